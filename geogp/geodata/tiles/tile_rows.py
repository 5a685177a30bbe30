"""The region's rows of one file of tiles, checked."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Region
from geogp.geodata.store.cache import overlap
from geogp.geodata.store.sources import Held
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.parquet_footer import check_types
from geogp.geodata.tiles.parquet_limits import GroupReader, check_footer
from geogp.geodata.tiles.plausibility import Implausible, beyond_limits
from geogp.geodata.tiles.targets import TargetColumn
from geogp.geodata.tiles.tile_files import (
    AT_SOURCE,
    IN_PLACE,
    QUADKEY,
    empty_values,
    faulty,
    groups_touching,
    plain_quadkeys,
    quadkey_codes,
    schema_faults,
)


@dataclass(frozen=True)
class TileRows:
    """The region's rows of one quarter, ordered by quadkey.

    Attributes
    ----------
    file_sha256
        Hash of the bytes of the file that was read.
    in_file
        Rows of that file.
    quadkey, value, tests, devices
        Each of shape (n,); the value in the target's unit. NaN and 0 in rows that are left out.
    left_out
        Rows with a value that cannot be, (n,).
    implausible
        The first such values.
    """

    file_sha256: str
    in_file: int
    quadkey: NDArray[np.uint64]
    value: NDArray[np.float64]
    tests: NDArray[np.int64]
    devices: NDArray[np.int64]
    left_out: NDArray[np.bool_]
    implausible: tuple[Implausible, ...] = ()

    @property
    def sha256(self) -> str:
        """Hash of the rows, whatever file they stand in."""
        digest = hashlib.sha256()
        for column in (self.quadkey, self.value, self.tests, self.devices):
            digest.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


class OtherFileError(Exception):
    """A file is no longer the one that was held."""


def read_rows(held: Held, region: Region, column: TargetColumn, service: str) -> TileRows:
    """Read the region's rows of one file, from the very bytes whose hash is taken.

    Raises
    ------
    OtherFileError
        Another file stands in its place, or none.
    DataError
        The file is damaged: all faults among the region's rows are listed together; or too many of
        them hold values beyond `LIMITS`.
    """
    with _opened(held) as (stream, digest):
        table, codes, in_file = _read_table(stream, held, region, column)
    inside = np.flatnonzero(
        region.contains(*quadkeys.tile_centres(*quadkeys.codes_to_tiles(codes)))
    )
    kept = inside[np.argsort(codes[inside], kind="stable")]
    codes, table = codes[kept], table.take(kept)
    faults = _value_faults(table, column)
    repeated = codes[1:][codes[1:] == codes[:-1]]
    if len(repeated):
        first = quadkeys.format_quadkeys(repeated[:1])[0]
        faults.append(
            f"expected every tile once in a quarter, found {len(repeated)} duplicates, "
            f"the first {first}."
        )
    if faults:
        raise _faulty(held, faults)
    columns = {name: table[name].to_numpy() for name in (column.column, "tests", "devices")}
    try:
        left_out, implausible = beyond_limits(service, columns, codes)
    except DataError as error:
        raise _faulty(held, [str(error)]) from error
    value = columns[column.column].astype(np.float64) / column.divisor
    return TileRows(
        digest,
        in_file,
        codes,
        np.where(left_out, np.nan, value),
        np.where(left_out, 0, columns["tests"]).astype(np.int64),
        np.where(left_out, 0, columns["devices"]).astype(np.int64),
        left_out,
        implausible,
    )


@contextmanager
def _opened(held: Held) -> Iterator[tuple[BinaryIO, str]]:
    """Open the file that is held, and hash it as it is opened: a path may change its file."""
    try:
        stream = held.path.open("rb")
    except FileNotFoundError as error:
        raise OtherFileError from error
    except OSError as error:
        raise DataError(f"{held.path} cannot be read ({error.strerror}).") from error
    with stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if held.sha256 is not None and digest != held.sha256:
            raise OtherFileError
        stream.seek(0)
        yield stream, digest


def _where(held: Held) -> str:
    """Return the file that the user knows: an entry of the cache is what its source was."""
    return str(held.path) if held.note is None else held.note.source


def _faulty(held: Held, faults: list[str]) -> DataError:
    return faulty(_where(held), faults, IN_PLACE if held.note is None else AT_SOURCE)


def _read_table(
    stream: BinaryIO, held: Held, region: Region, column: TargetColumn
) -> tuple[pa.Table, NDArray[np.uint64], int]:
    """Read four columns of the rows in the box around the region; count the file's rows.

    All quadkeys of the row groups that can touch the region are checked, not only those near it:
    a damaged one could be any tile's. One row group is held at a time.
    """
    names = list(dict.fromkeys(["quadkey", column.column, "tests", "devices"]))
    try:
        check_types(stream)
        with (
            pq.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True) as opened,
            GroupReader(opened, stream, names, text=QUADKEY) as reader,
        ):
            check_footer(opened.metadata, names=names)
            faults = schema_faults(opened.schema_arrow, names)
            if faults:
                raise _faulty(held, faults)
            groups = groups_touching(opened.metadata, region.code_ranges)
            tables, codes = [plain_quadkeys(opened.schema_arrow.empty_table().select(names))], []
            for group in groups:
                table = plain_quadkeys(reader.read(group))
                try:
                    found = quadkey_codes(table["quadkey"])
                except DataError as error:
                    told = _group_faults(pa.concat_tables(map(reader.read, groups)), column, error)
                    raise _faulty(held, told) from error
                kept = np.flatnonzero(overlap(found, region.code_ranges))
                tables.append(table.take(kept))
                codes.append(found[kept])
            whole = np.concatenate([np.zeros(0, np.uint64), *codes])
            return pa.concat_tables(tables), whole, opened.metadata.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        cure = "Download it again." if held.note is None else AT_SOURCE
        raise DataError(f"{_where(held)} is not a whole Parquet file ({error}). {cure}") from error
    except DataError as error:
        if _where(held) in str(error):
            raise
        raise _faulty(held, [str(error)]) from error


def _group_faults(table: pa.Table, column: TargetColumn, first: DataError) -> list[str]:
    """List all that is wrong with row groups of which one has a wrong quadkey."""
    plain = plain_quadkeys(table)
    try:
        quadkey_codes(plain["quadkey"])
    except DataError as error:
        first = error
    return list(dict.fromkeys([str(first), *_value_faults(plain, column)]))


def _value_faults(table: pa.Table, column: TargetColumn) -> list[str]:
    """List what is wrong with the numbers, naming the first tile of each fault."""
    tiles = table["quadkey"]
    faults = [
        empty_values(name, table[name].null_count)
        for name in table.column_names
        if table[name].null_count
    ]
    if faults:
        return faults
    value = table[column.column].to_numpy().astype(np.float64)
    tests, devices = table["tests"].to_numpy(), table["devices"].to_numpy()
    rules = [
        (f"expected finite {column.column} above 0", ~(np.isfinite(value) & (value > 0)), value),
        ("expected whole tests of 1 or more", ~_counts(tests), tests),
        (
            "expected whole devices between 1 and tests",
            ~(_counts(devices) & (devices <= tests)),
            devices,
        ),
    ]
    for expected, wrong, values in rules:
        if wrong.any():
            first = int(np.argmax(wrong))
            faults.append(
                f"{expected}, found {int(wrong.sum())} that are not, the first {values[first]} "
                f"in tile {tiles[first].as_buffer().to_pybytes().decode(errors='replace')}."
            )
    return faults


def _counts(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Tell which values are whole numbers of 1 or more."""
    numbers = values.astype(np.float64)
    whole = np.isfinite(numbers) & (numbers >= 1) & (numbers == np.floor(numbers))
    return np.asarray(whole, np.bool_)
