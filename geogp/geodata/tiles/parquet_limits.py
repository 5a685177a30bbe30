"""How large a Parquet file may say to be before any of its pages is read.

A page can stand for far more than its bytes: one value of a dictionary, or one run, may fill
millions of rows. What the footer says is checked first, and text is measured while it is still held
as a dictionary.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geogp.errors import DataError
from geogp.geodata.tiles.parquet_footer import check_types
from geogp.geodata.tiles.parquet_pages import DICTIONARY, PLAIN, chunks_of, read_pages

MOST_ROWS = 1 << 28
"""Rows of a file; a quarter of the whole world has some ten million."""

MOST_GROUP_ROWS = 1 << 25
"""Rows of a row group, which is held in memory as a whole."""

MOST_GROUPS = 1 << 16

MOST_COLUMNS = 1 << 12

MOST_GROUP_BYTES = 2 << 30
"""Bytes, unpacked, that the pages of a row group say to have."""

MOST_CELLS = 1 << 29
"""Rows times columns of a file that is held in memory as a whole: polygons, predictions."""

MOST_TEXT_BYTES = 4 << 30
"""Bytes of all text and shapes of such a file."""

MOST_FIXED_BYTES = 1 << 30
"""Bytes of its values of one length: whole words of a dictionary, or decimals."""

BATCH = 1 << 15
"""Rows that are unpacked at once."""


def check_footer(
    metadata: pq.FileMetaData, most_rows: int = MOST_ROWS, *, names: Sequence[str] | None = None
) -> None:
    """Refuse what a footer says, before a page is read.

    Parameters
    ----------
    metadata
        The footer.
    most_rows
        Rows that may be held.
    names
        Columns that are wanted; those of a row group may have only so many bytes. None for all.

    Raises
    ------
    DataError
        There are more rows, row groups or columns than can be, or a row group is too large; or its
        rows are not those of the file.
    """
    groups = [metadata.row_group(k) for k in range(min(metadata.num_row_groups, MOST_GROUPS + 1))]
    rows = [group.num_rows for group in groups]
    paths = [metadata.schema.column(k).path for k in range(metadata.num_columns)]
    places = [k for k, path in enumerate(paths) if names is None or path in names]
    limits = [
        ("rows", metadata.num_rows, most_rows),
        ("row groups", metadata.num_row_groups, MOST_GROUPS),
        ("columns", metadata.num_columns, MOST_COLUMNS),
        ("rows in a group", max(rows, default=0), MOST_GROUP_ROWS),
        (
            "bytes in a group",
            max((_unpacked(one, places) for one in groups), default=0),
            MOST_GROUP_BYTES,
        ),
    ]
    for what, found, most in limits:
        if found > most:
            raise DataError(f"the footer says {found:,} {what}; expected at most {most:,}.")
    if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
        raise DataError(
            f"the footer says {metadata.num_rows:,} rows, its row groups {sum(rows):,} in all."
        )


def check_parquet(path: Path, most_rows: int = MOST_ROWS) -> None:
    """Refuse a Parquet file that is too large to be held in memory as a whole.

    Raises
    ------
    DataError
        As `check_footer`; or there are too many values or too much text.
    pyarrow.ArrowException, OSError, UnicodeDecodeError
        The file is damaged.
    """
    try:
        check_types(path)
        with pq.ParquetFile(path) as opened:
            metadata = opened.metadata
            check_footer(metadata, most_rows)
            texts = _texts(opened.schema_arrow)
        _check_cells(metadata)
        if texts:
            _check_texts(path, metadata, texts)
    except DataError as error:
        raise DataError(f"{path} cannot be used: {error}") from error


class GroupReader:
    """Columns of row groups, one of them text, that are never larger than they can be.

    A context manager, which closes what it opened besides.

    Parameters
    ----------
    opened, source
        The file, and where it is.
    names
        What is read.
    text
        The one column of text among them.
    longest
        Bytes that a value of it may have.
    """

    def __init__(
        self,
        opened: pq.ParquetFile,
        source: Path | BinaryIO | io.RawIOBase,
        names: Sequence[str],
        *,
        text: str,
        longest: int = 64,
    ) -> None:
        self._opened, self._source = opened, source
        self._names, self._text, self._longest = list(names), text, longest
        self._words: pq.ParquetFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._words is not None:
            self._words.close()

    def read(self, group: int) -> pa.Table:
        """Read one row group.

        A dictionary is measured before it fills rows. Where pages hold only what differs from the
        text before, all of it is first unpacked by small parts.

        Raises
        ------
        DataError
            A value is too long, or the row group too large.
        pyarrow.ArrowException, OSError
            The file is damaged.
        """
        reader = self._reader_of(group) if self._text in self._names else self._opened
        batches, size = [], 0
        for batch in reader.iter_batches(BATCH, [group], self._names, use_threads=False):
            plain = self._plain(batch) if reader is self._words else batch
            size += plain.nbytes
            if size > MOST_GROUP_BYTES:
                raise DataError(
                    f"a row group unpacks to more than {MOST_GROUP_BYTES:,} bytes of wanted "
                    "columns."
                )
            batches.append(plain)
        if not batches:
            return self._opened.schema_arrow.empty_table().select(self._names)
        return pa.Table.from_batches(batches).select(self._names)

    def _reader_of(self, group: int) -> pq.ParquetFile:
        """Return what may read all columns of a row group by large parts."""
        pages = read_pages(self._source, chunks_of(self._opened.metadata, self._text, [group]))
        if pages.encodings <= {PLAIN}:
            return self._opened
        if pages.encodings <= {PLAIN} | DICTIONARY:
            if self._words is None:
                self._words = pq.ParquetFile(
                    self._source,
                    metadata=self._opened.metadata,
                    read_dictionary=[self._text],
                    pre_buffer=False,  # no thread reads on where `opened` has the same file object
                    page_checksum_verification=True,
                )
            return self._words
        for batch in self._opened.iter_batches(
            pages.small_batch, [group], [self._text], use_threads=False
        ):
            _check_lengths(batch.column(0), self._text, self._longest)
        return self._opened

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the type of text that the file says, once its words are short."""
        place = batch.schema.get_field_index(self._text)
        found, kind = batch.column(place), self._opened.schema_arrow.field(self._text).type
        if pa.types.is_dictionary(found.type):
            _check_lengths(found.dictionary, self._text, self._longest)
        return batch.set_column(place, self._text, found.cast(kind))


def _check_cells(metadata: pq.FileMetaData) -> None:
    """Refuse too many values, or too many bytes of those that all have one length."""
    if metadata.num_rows * metadata.num_columns > MOST_CELLS:
        raise DataError(
            f"the footer says {metadata.num_rows:,} rows of {metadata.num_columns:,} columns; "
            f"expected at most {MOST_CELLS:,} values."
        )

    widths = {
        k: metadata.schema.column(k).length
        for k in range(metadata.num_columns)
        if metadata.schema.column(k).physical_type == "FIXED_LEN_BYTE_ARRAY"
    }
    size = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups if widths else 0)):
        for k, width in widths.items():
            size += max(group.num_rows, group.column(k).num_values) * width
    if size > MOST_FIXED_BYTES:
        raise DataError(
            f"the footer says {size:,} bytes of values of one length; expected at most "
            f"{MOST_FIXED_BYTES:,}."
        )


def _check_lengths(values: pa.Array, name: str, longest: int) -> None:
    found = pc.max(pc.binary_length(values)).as_py() or 0
    if found > longest:
        raise DataError(
            f"expected texts of at most {longest} bytes in {name}, found one of {found}."
        )


def _check_texts(path: Path, metadata: pq.FileMetaData, names: Sequence[str]) -> None:
    """Measure columns of text while each value is held once, or by small parts.

    pyarrow refuses to hold as a dictionary what is stored by differences. It does so too where the
    footer hides that, so that the footer may tell which columns are read how.
    """
    small: dict[str, int] = {}
    for name in names:
        chunks = list(chunks_of(metadata, name, range(metadata.num_row_groups)))
        if any("DELTA" in encoding for chunk in chunks for encoding in chunk.encodings):
            small[name] = read_pages(path, chunks).small_batch
    large = [name for name in names if name not in small]
    parts = [([name], rows) for name, rows in small.items()]
    if large:
        parts.append((large, BATCH))
    size = 0
    with pq.ParquetFile(path, read_dictionary=large) as opened:
        for columns, rows in parts:
            for batch in opened.iter_batches(rows, columns=columns, use_threads=False):
                size += sum(map(_text_bytes, batch.columns))
                if size > MOST_TEXT_BYTES:
                    raise DataError(
                        f"text and shapes unpack to more than {MOST_TEXT_BYTES:,} bytes."
                    )


def _text_bytes(column: pa.Array) -> int:
    """Return the bytes of a column's values, each as often as it stands there."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(column.indices)).as_py() or 0)


def _unpacked(group: pq.RowGroupMetaData, places: Sequence[int]) -> int:
    return sum(max(0, group.column(k).total_uncompressed_size) for k in places)


def _texts(schema: pa.Schema) -> list[str]:
    """Return the columns of text or bytes at the top of a table, as dictionaries too."""
    return [one.name for one in schema if _is_text(one.type)]


def _is_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    kinds = (
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_large_string,
        pa.types.is_large_binary,
        pa.types.is_string_view,
        pa.types.is_binary_view,
    )
    return any(found(kind) for found in kinds)
