"""Reading and checking of a region's rows in one file of tiles."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Region
from geogp.geodata.store.cache import overlap
from geogp.geodata.store.sources import LocalFile
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.parquet_files import DamagedParquetError, open_parquet
from geogp.geodata.tiles.plausibility import LIMITS, Implausible, beyond_limits
from geogp.geodata.tiles.targets import TargetColumn
from geogp.geodata.tiles.tile_files import (
    AT_SOURCE,
    IN_PLACE,
    QUADKEY,
    empty_values,
    faulty,
    groups_touching,
    quadkey_codes,
    schema_faults,
)


@dataclass(frozen=True)
class TileRows:
    """The region's rows of one quarter, ordered by quadkey.

    Attributes
    ----------
    file_sha256
        Hash of the file.
    in_file
        Number of all rows in the file.
    quadkey, value, tests, devices
        Each of shape (n,); `value` is in the target's unit. In rows that are left out, `value` is
        NaN, and `tests` and `devices` are 0.
    left_out
        Marks rows with an impossible value, (n,).
    implausible
        The first impossible values.
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
        """Hash of the region's rows, which does not depend on other rows of the file."""
        digest = hashlib.sha256()
        for column in (self.quadkey, self.value, self.tests, self.devices):
            digest.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


class OtherFileError(Exception):
    """A file has changed or disappeared since its hash was computed."""


def read_rows(held: LocalFile, region: Region, column: TargetColumn, service: str) -> TileRows:
    """Read the region's rows from one file, and check the hash of the bytes that were read.

    Raises
    ------
    OtherFileError
        The file has changed or disappeared.
    DataError
        The file is damaged, or too many of the region's rows have values beyond `LIMITS`. The
        message lists all faults of the region's rows.
    """
    table, codes, in_file, digest = _read_table(held, region, column)
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
            f"expected every tile once in a quarter, found {len(repeated)} duplicates, the first "
            f"in tile {first}."
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


def _where(held: LocalFile) -> str:
    """Return the file's name for messages; for a cache entry, the address of the source."""
    return str(held.path) if held.note is None else held.note.source


def _faulty(held: LocalFile, faults: list[str]) -> DataError:
    return faulty(_where(held), faults, IN_PLACE if held.note is None else AT_SOURCE)


def _read_table(
    held: LocalFile, region: Region, column: TargetColumn
) -> tuple[pa.Table, NDArray[np.uint64], int, str]:
    """Return rows in the region's bounding box, their codes, and the file's row count and hash.

    In row groups that can touch the region, all quadkeys are checked, because a damaged quadkey
    could belong to any tile. Row groups are read one by one.
    """
    names = list(dict.fromkeys([QUADKEY, column.column, "tests", "devices"]))
    try:
        with open_parquet(held.path, hashed=True) as opened:
            assert opened.sha256 is not None
            if held.note is not None and opened.sha256 != held.note.sha256:
                raise OtherFileError
            faults = schema_faults(opened.schema, names)
            if faults:
                raise _faulty(held, faults)
            groups = groups_touching(opened.groups(names, QUADKEY), region.code_ranges)
            tables, codes = [opened.read([], names)], [np.zeros(0, np.uint64)]
            for group in groups:
                table = opened.read([group], names)
                try:
                    found = quadkey_codes(table[QUADKEY])
                except DataError as error:
                    told = _group_faults(opened.read(groups, names), column, error)
                    raise _faulty(held, told) from error
                kept = np.flatnonzero(overlap(found, region.code_ranges))
                tables.append(table.take(kept))
                codes.append(found[kept])
            return pa.concat_tables(tables), np.concatenate(codes), opened.rows, opened.sha256
    except FileNotFoundError as error:
        raise OtherFileError from error
    except OSError as error:
        raise DataError(f"{held.path} cannot be read ({error.strerror}).") from error
    except DamagedParquetError as error:
        cure = "Download it again." if held.note is None else AT_SOURCE
        raise DataError(
            f"{_where(held)} is not a complete Parquet file ({error}). {cure}"
        ) from error
    except DataError as error:
        if _where(held) in str(error):
            raise
        raise _faulty(held, [str(error)]) from error


def _group_faults(table: pa.Table, column: TargetColumn, first: DataError) -> list[str]:
    """List all faults of row groups in which a wrong quadkey was found."""
    try:
        quadkey_codes(table[QUADKEY])
    except DataError as error:
        first = error
    return list(dict.fromkeys([str(first), *_value_faults(table, column)]))


def _value_faults(table: pa.Table, column: TargetColumn) -> list[str]:
    """List the faults of the numbers, each with its first tile."""
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
    zero = LIMITS["mobile"][column.column].may_be_zero
    least = "0 or above" if zero else "above 0"
    right = np.isfinite(value) & ((value >= 0) if zero else (value > 0))
    rules = [
        (f"expected finite {column.column} {least}", ~right, value),
        ("expected whole numbers of tests, 1 or more", ~_counts(tests), tests),
        (
            "expected whole numbers of devices, from 1 to the number of tests",
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
    """Return which values are whole numbers of 1 or more."""
    numbers = values.astype(np.float64)
    whole = np.isfinite(numbers) & (numbers >= 1) & (numbers == np.floor(numbers))
    return np.asarray(whole, np.bool_)
