"""Reading and checking of a region's rows in one tile file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Region
from geogp.geodata.store.sources import LocalFile
from geogp.geodata.tiles import quadkeys, tile_files
from geogp.geodata.tiles.parquet_files import open_parquet
from geogp.geodata.tiles.plausibility import LIMITS, Implausible, beyond_limits
from geogp.geodata.tiles.targets import TargetColumn


@dataclass(frozen=True)
class TileRows:
    """A region's rows of one quarter, ordered by quadkey, with the file's hash and row count.

    `table` has the columns ``quadkey`` (codes), ``tests``, ``devices``, ``left_out``, which marks
    rows with an impossible value, and the numbers 0, 1 and so on: the target's columns in the
    target's unit. In left-out rows, these values are NaN, and tests and devices are 0.
    `implausible` has the first impossible values.
    """

    table: pd.DataFrame
    implausible: tuple[Implausible, ...]
    file_sha256: str = ""
    in_file: int = 0

    @classmethod
    def of(
        cls,
        codes: NDArray[np.uint64],
        columns: Mapping[str, NDArray[Any]],
        target: TargetColumn,
        service: str,
    ) -> "TileRows":
        """Return rows from `columns` with values (n,) as stored in a file, for codes (n,).

        Raises DataError as `beyond_limits` does.
        """
        left_out, implausible = beyond_limits(service, columns, codes)
        table = pd.DataFrame({"quadkey": codes})
        for place, name in enumerate(target.columns):
            values = columns[name].astype(np.float64) / target.divisors[place]
            table[place] = np.where(left_out, np.nan, values)
        for name in ("tests", "devices"):
            table[name] = np.where(left_out, 0, columns[name]).astype(np.int64)
        table["left_out"] = left_out
        return cls(table, implausible)

    @property
    def sha256(self) -> str:
        """Hash of the region's rows, independent of other rows of the file."""
        digest = hashlib.sha256()
        for name in self.table.columns.drop("left_out"):
            column = self.table[name].to_numpy()
            digest.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


class OtherFileError(Exception):
    """A file has changed or disappeared since its hash was computed."""


def read_rows(held: LocalFile, region: Region, column: TargetColumn, service: str) -> TileRows:
    """Read a region's rows from one file, and check the hash of the file.

    Raises OtherFileError if the file has changed or disappeared. Raises DataError if the file is
    damaged, or if too many of the region's rows have impossible values. The message lists all
    faults of the region's rows.
    """
    address = None if held.note is None else held.note.source
    try:
        with tile_files.blaming(address or held.path, at_source=address is not None):
            return _read_rows(held, region, column, service)
    except FileNotFoundError as error:
        raise OtherFileError from error
    except OSError as error:
        raise DataError(f"{held.path} cannot be read ({error.strerror}).") from error


def _read_rows(held: LocalFile, region: Region, column: TargetColumn, service: str) -> TileRows:
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
    tile_files.refuse(faults)
    columns = {name: table[name].to_numpy() for name in _names(column)}
    rows = TileRows.of(codes, columns, column, service)
    return replace(rows, file_sha256=digest, in_file=in_file)


def _read_table(
    held: LocalFile, region: Region, column: TargetColumn
) -> tuple[pa.Table, NDArray[np.uint64], int, str]:
    """Return rows in the region's bounding box, their codes, and the file's row count and hash.

    In each row group that may contain rows of the region, all quadkeys are checked, because a
    damaged quadkey could belong to any tile. Row groups are read one by one.
    """
    names = [tile_files.QUADKEY, *_names(column)]
    with open_parquet(held.path, hashed=True) as opened:
        assert opened.sha256 is not None
        if held.note is not None and opened.sha256 != held.note.sha256:
            raise OtherFileError
        tile_files.check_schema(opened.schema, names)
        groups = tile_files.groups_touching(opened.groups(names), region.code_ranges)
        tables, codes = [opened.read([], names)], [np.zeros(0, np.uint64)]
        for group in groups:
            table = opened.read([group], names)
            try:
                code = tile_files.quadkey_codes(table[tile_files.QUADKEY])
            except DataError:
                _refuse_groups(opened.read(groups, names), column)
                raise
            kept = np.flatnonzero(tile_files.in_ranges(code, region.code_ranges))
            tables.append(table.take(kept))
            codes.append(code[kept])
        return pa.concat_tables(tables), np.concatenate(codes), opened.rows, opened.sha256


def _names(column: TargetColumn) -> list[str]:
    """Return the names of the columns of numbers that a target needs."""
    return list(dict.fromkeys([*column.columns, "tests", "devices"]))


def _refuse_groups(table: pa.Table, column: TargetColumn) -> None:
    """Raise DataError with all faults of row groups that contain a wrong quadkey."""
    try:
        tile_files.quadkey_codes(table[tile_files.QUADKEY])
    except DataError as error:
        tile_files.refuse(list(dict.fromkeys([str(error), *_value_faults(table, column)])))


def _value_faults(table: pa.Table, column: TargetColumn) -> list[str]:
    """Return messages about wrong numbers; each message names the first wrong tile."""
    tiles = table["quadkey"]
    faults = [
        tile_files.empty_values(name, table[name].null_count)
        for name in table.column_names
        if table[name].null_count
    ]
    if faults:
        return faults
    tests, devices = table["tests"].to_numpy(), table["devices"].to_numpy()
    rules = [
        *(_measured(name, table[name].to_numpy().astype(np.float64)) for name in column.columns),
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
                f"{expected}, found {int(wrong.sum())} other values, the first {values[first]} "
                f"in tile {tiles[first].as_buffer().to_pybytes().decode(errors='replace')}."
            )
    return faults


def _measured(
    name: str, value: NDArray[np.float64]
) -> tuple[str, NDArray[np.bool_], NDArray[np.float64]]:
    """Return the rule for the values of a column, a mask of the wrong values, and the values."""
    zero = LIMITS["mobile"][name].may_be_zero
    right = np.isfinite(value) & ((value >= 0) if zero else (value > 0))
    return f"expected finite {name} {'0 or above' if zero else 'above 0'}", ~right, value


def _counts(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return whether each value is a whole number of 1 or more."""
    numbers = values.astype(np.float64)
    whole = np.isfinite(numbers) & (numbers >= 1) & (numbers == np.floor(numbers))
    return np.asarray(whole, np.bool_)
