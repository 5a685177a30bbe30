"""How large a Parquet file may say to be before any of its pages is read.

A page can stand for far more than its bytes: one value of a dictionary, or one run, may fill
millions of rows. What the footer says is checked first, and text is measured while it is still held
as a dictionary.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geogp.errors import DataError
from geogp.geodata.parquet_footer import check_types

MOST_ROWS = 1 << 28
"""Rows of a file; a quarter of the whole world has some ten million."""

MOST_GROUP_ROWS = 1 << 25
"""Rows of a row group, which is held in memory as a whole."""

MOST_GROUPS = 1 << 16

MOST_COLUMNS = 1 << 12

MOST_GROUP_BYTES = 2 << 30
"""Bytes, unpacked, that the pages of a row group say to have."""

MOST_TABLE_ROWS = 1 << 22
"""Rows of a file that is held in memory as a whole: polygons, predictions."""

MOST_CELLS = 1 << 28
"""Rows times columns of such a file."""

MOST_TEXT_BYTES = 4 << 30
"""Bytes of all text and shapes of such a file."""

BATCH = 1 << 15
"""Rows that are unpacked at once."""


def check_footer(metadata: pq.FileMetaData, most_rows: int = MOST_ROWS) -> None:
    """Refuse what a footer says, before a page is read.

    Parameters
    ----------
    metadata
        The footer.
    most_rows
        Rows that may be held.

    Raises
    ------
    DataError
        There are more rows, row groups or columns than can be, or a row group is too large; or its
        rows are not those of the file.
    """
    groups = [metadata.row_group(k) for k in range(min(metadata.num_row_groups, MOST_GROUPS + 1))]
    rows = [group.num_rows for group in groups]
    limits = [
        ("rows", metadata.num_rows, most_rows),
        ("row groups", metadata.num_row_groups, MOST_GROUPS),
        ("columns", metadata.num_columns, MOST_COLUMNS),
        ("rows in a group", max(rows, default=0), MOST_GROUP_ROWS),
        ("bytes in a group", max(map(_unpacked, groups), default=0), MOST_GROUP_BYTES),
    ]
    for what, found, most in limits:
        if found > most:
            raise DataError(f"the footer says {found:,} {what}; expected at most {most:,}.")
    if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
        raise DataError(
            f"the footer says {metadata.num_rows:,} rows, its row groups {sum(rows):,} in all."
        )


def check_parquet(path: Path, most_rows: int = MOST_TABLE_ROWS) -> None:
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
            _check_texts(path, texts)
    except DataError as error:
        raise DataError(f"{path} cannot be used: {error}") from error


def read_group(
    opened: pq.ParquetFile,
    source: Path | BinaryIO | io.RawIOBase,
    group: int,
    names: Sequence[str],
    *,
    text: str,
    longest: int = 64,
) -> pa.Table:
    """Read columns of one row group, and stop where they are larger than they can be.

    Parameters
    ----------
    opened, source
        The file, and where it is.
    group, names
        What is read.
    text
        The one column of text among them.
    longest
        Bytes that a value of it may have.

    Raises
    ------
    DataError
        A value is too long, or the row group too large.
    """
    metadata = opened.metadata
    chunks = map(metadata.row_group(group).column, range(metadata.num_columns))
    if any(chunk.path_in_schema == text and chunk.has_dictionary_page for chunk in chunks):
        # The whole dictionary comes with the first row; only then may it fill the others.
        with pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=[text],
            pre_buffer=False,  # no thread reads on where `opened` has the same file object
            page_checksum_verification=True,
        ) as words:
            for batch in words.iter_batches(1, [group], [text], use_threads=False):
                found = batch.column(0)
                if pa.types.is_dictionary(found.type):
                    _check_lengths(found.dictionary, text, longest)
                break
    batches, size = [], 0
    for batch in opened.iter_batches(BATCH, [group], list(names), use_threads=False):
        size += batch.nbytes
        if size > MOST_GROUP_BYTES:
            raise DataError(
                f"a row group unpacks to more than {MOST_GROUP_BYTES:,} bytes of wanted columns."
            )
        batches.append(batch)
    if not batches:
        return opened.schema_arrow.empty_table().select(list(names))
    return pa.Table.from_batches(batches).select(list(names))


def _check_cells(metadata: pq.FileMetaData) -> None:
    if metadata.num_rows * metadata.num_columns > MOST_CELLS:
        raise DataError(
            f"the footer says {metadata.num_rows:,} rows of {metadata.num_columns:,} columns; "
            f"expected at most {MOST_CELLS:,} values."
        )


def _check_lengths(values: pa.Array, name: str, longest: int) -> None:
    found = pc.max(pc.binary_length(values)).as_py() or 0
    if found > longest:
        raise DataError(
            f"expected texts of at most {longest} bytes in {name}, found one of {found}."
        )


def _check_texts(path: Path, names: Sequence[str]) -> None:
    """Measure columns of text while each value is held once."""
    size = 0
    with pq.ParquetFile(path, read_dictionary=names) as opened:
        for batch in opened.iter_batches(BATCH, columns=names, use_threads=False):
            size += sum(map(_text_bytes, batch.columns))
            if size > MOST_TEXT_BYTES:
                raise DataError(f"text and shapes unpack to more than {MOST_TEXT_BYTES:,} bytes.")


def _text_bytes(column: pa.Array) -> int:
    """Return the bytes of a column's values, each as often as it stands there."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(column.indices)).as_py() or 0)


def _unpacked(group: pq.RowGroupMetaData) -> int:
    return sum(max(0, group.column(k).total_uncompressed_size) for k in range(group.num_columns))


def _texts(schema: pa.Schema) -> list[str]:
    """Return the columns of text or bytes at the top of a table."""
    kinds = (
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_large_string,
        pa.types.is_large_binary,
    )
    return [one.name for one in schema if any(kind(one.type) for kind in kinds)]
