"""The reader of Ookla's open-data tiles.

A source has the layout of Ookla's public bucket: one Parquet file for each service and quarter
with the tiles of the whole world. Only the row groups that can hold tiles of the region are
read, and the geometry text never is: a tile's place follows from its quadkey.
"""

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata import quadkeys
from geogp.geodata.cache import overlap
from geogp.geodata.counts import complete_counts
from geogp.geodata.holding import Progress, hold_quarters
from geogp.geodata.observations import Observations, TargetColumn, find_target
from geogp.geodata.parquet_footer import check_types
from geogp.geodata.parquet_limits import check_footer, read_group
from geogp.geodata.quarters import QuarterRequest, quarter_index, quarter_label
from geogp.geodata.region import Region
from geogp.geodata.sources import Held, Source
from geogp.geodata.tile_files import (
    QUADKEY,
    empty_values,
    faulty,
    groups_touching,
    plain_quadkeys,
    quadkey_codes,
    schema_faults,
    tile_file,
)

logger = logging.getLogger(__name__)

PUBLIC_SOURCE = "s3://ookla-open-data"
"""Ookla's public bucket."""

FIRST_QUARTER = quarter_index("2019Q1")
"""The first quarter that Ookla published."""

ATTRIBUTION = "Speedtest by Ookla Global Fixed and Mobile Network Performance Maps, CC BY-NC-SA 4.0"
"""What the licence of Ookla's data asks to be shown."""

SIMULATED = "Simulated tiles, made by geogp; no measurements"
"""What stands in place of the attribution on maps of simulated tiles."""

SPARSE_SHARE = 0.8
"""A quarter with a smaller share of the other quarters' median rows is reported."""


@dataclass(frozen=True)
class InputFile:
    """A file that was read.

    Attributes
    ----------
    name, sha256
        Its name, and the hash of what was read: the file itself, or its entry in the cache.
    rows, rows_used
        Rows of the file, and how many of them the region uses.
    source, etag
        Of an entry of the cache: address and ETag of the file it was made from.
    bytes_read, bytes_stored
        Of an entry of the cache: bytes that came over the network for it, and size of the file.
    """

    name: str
    sha256: str
    rows: int
    rows_used: int
    source: str | None = None
    etag: str | None = None
    bytes_read: int | None = None
    bytes_stored: int | None = None

    def described(self) -> dict[str, Any]:
        """Return what run.json says of it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Ingested:
    """Observations with where they come from.

    Attributes
    ----------
    observations
        All rows of the region.
    files
        The files read.
    missing
        Quarters inside a range for which the source has no rows of the region.
    warnings
        What the user should know.
    attribution
        Whom the data are by.
    """

    observations: Observations
    files: tuple[InputFile, ...]
    missing: tuple[int, ...]
    warnings: tuple[str, ...]
    attribution: str


def all_quarters() -> tuple[int, ...]:
    """Return the quarters that Ookla may have published until today."""
    today = dt.datetime.now(tz=dt.UTC).date()
    return tuple(range(FIRST_QUARTER, today.year * 4 + (today.month - 1) // 3 + 1))


def read_observations(
    source: Source,
    region: Region,
    *,
    service: str = "mobile",
    target: str = "download",
    quarters: QuarterRequest | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Read a region's observations from a source.

    Parameters
    ----------
    source
        Where the files are.
    region
        Tiles whose centroid lies in its boundary are kept.
    service, target
        ``mobile`` or ``fixed``; ``download``, ``upload``, ``latency`` or ``tests``.
    quarters
        Quarters asked for; None takes all that the source holds.
    progress
        Hears how downloads go.

    Raises
    ------
    DataError
        A quarter named singly is missing, a range holds none, or a file is damaged: all faults
        among the region's rows are listed together.
    NetworkError
        The source could not be read.
    RequestError
        Unknown target, or more tiles and quarters than can be counted over.
    """
    column = find_target(target)
    wanted = quarters.all if quarters else all_quarters()
    named = set(quarters.named) if quarters else set()
    held = hold_quarters(source, region, service, wanted, progress=progress)
    parts: list[_Rows] = []
    files: list[InputFile] = []
    missing: list[int] = []
    for quarter in wanted:
        got = held.files.get(quarter)
        rows = None if got is None else _read_quarter(got.path, region, column)
        if got is None or rows is None or not len(rows.quadkey):
            if quarter in held.unreached:
                if quarter in named:
                    raise held.unreached[quarter]
                continue
            if quarter in named:
                raise _missing_quarter(source, region, service, quarter, present=rows is not None)
            missing.append(quarter)
            continue
        parts.append(rows)
        files.append(_input_file(tile_file(service, quarter), got, rows))
        rows.quarter[:] = quarter
        logger.info("read %d rows of %s", len(rows.quadkey), quarter_label(quarter))
    if not parts:
        raise DataError(
            f"no {service} tiles of {region.name} in {source.where} for "
            f"{quarter_label(wanted[0])} to {quarter_label(wanted[-1])}. Expected files like "
            f"{tile_file(service, wanted[-1])}."
        )
    found = tuple(int(rows.quarter[0]) for rows in parts)
    # Without a request, quarters before the first and after the last are not missed.
    gaps = [q for q in missing if quarters or found[0] < q < found[-1]]
    warnings = [
        *held.warnings(source.where),
        *_quarter_warnings(found, [len(rows.quadkey) for rows in parts], gaps, region.name),
    ]
    observations = _observations(parts, region, target, service)
    return Ingested(
        complete_counts(observations, region) if column.counted else observations,
        tuple(files),
        tuple(gaps),
        tuple(warnings),
        SIMULATED if any(got.simulated for got in held.files.values()) else ATTRIBUTION,
    )


def _input_file(name: str, held: Held, rows: "_Rows") -> InputFile:
    note = held.note
    if note is None:
        return InputFile(name, held.sha256, rows.in_file, len(rows.quadkey))
    return InputFile(
        name,
        held.sha256,
        note.rows_in_source,
        len(rows.quadkey),
        note.source,
        note.etag,
        note.bytes_read,
        note.bytes_stored,
    )


@dataclass(frozen=True)
class _Rows:
    """The region's rows of one quarter, ordered by quadkey, and the rows of the whole file."""

    in_file: int

    quadkey: NDArray[np.uint64]
    quarter: NDArray[np.int64]
    value: NDArray[np.float64]
    tests: NDArray[np.int64]
    devices: NDArray[np.int64]


def _read_quarter(path: Path, region: Region, column: TargetColumn) -> _Rows:
    """Read the region's rows of one file."""
    table, codes, in_file = _read_table(path, region, column)
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
        raise faulty(path, faults)
    return _Rows(
        in_file,
        codes,
        np.zeros(len(kept), np.int64),
        table[column.column].to_numpy().astype(np.float64) / column.divisor,
        table["tests"].to_numpy().astype(np.int64),
        table["devices"].to_numpy().astype(np.int64),
    )


def _read_table(
    path: Path, region: Region, column: TargetColumn
) -> tuple[pa.Table, NDArray[np.uint64], int]:
    """Read four columns of the rows in the box around the region; count the file's rows.

    All quadkeys of the row groups that can touch the region are checked, not only those near it:
    a damaged one could be any tile's. One row group is held at a time.
    """
    names = list(dict.fromkeys(["quadkey", column.column, "tests", "devices"]))
    try:
        check_types(path)
        with pq.ParquetFile(path, page_checksum_verification=True) as opened:
            check_footer(opened.metadata)
            faults = schema_faults(opened.schema_arrow, names)
            if faults:
                raise faulty(path, faults)
            groups = groups_touching(opened.metadata, region.code_ranges)
            tables, codes = [plain_quadkeys(opened.schema_arrow.empty_table().select(names))], []
            for group in groups:
                table = plain_quadkeys(read_group(opened, path, group, names, text=QUADKEY))
                try:
                    found = quadkey_codes(table["quadkey"])
                except DataError as error:
                    parts = [read_group(opened, path, k, names, text=QUADKEY) for k in groups]
                    told = _group_faults(pa.concat_tables(parts), column, error)
                    raise faulty(path, told) from error
                kept = np.flatnonzero(overlap(found, region.code_ranges))
                tables.append(table.take(kept))
                codes.append(found[kept])
            whole = np.concatenate([np.zeros(0, np.uint64), *codes])
            return pa.concat_tables(tables), whole, opened.metadata.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a whole Parquet file ({error}). Download it again."
        ) from error
    except DataError as error:
        if str(path) in str(error):
            raise
        raise faulty(path, [str(error)]) from error


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


def _missing_quarter(
    source: Source, region: Region, service: str, quarter: int, *, present: bool
) -> DataError:
    label = quarter_label(quarter)
    if present:
        return DataError(f"the file of {label} in {source.where} has no tile of {region.name}.")
    return DataError(
        f"quarter {label} was named but {source.where} has no {tile_file(service, quarter)}. "
        "Leave the quarter out, or give a range, in which gaps are allowed."
    )


def _quarter_warnings(
    found: Sequence[int], rows: Sequence[int], gaps: Sequence[int], region: str
) -> list[str]:
    """Say which quarters are absent, and which have far fewer rows than the others."""
    warnings = []
    if gaps:
        labels = ", ".join(map(quarter_label, gaps))
        warnings.append(f"the source has no tiles of {region} for {labels}.")
    for place, quarter in enumerate(found):
        others = np.delete(np.asarray(rows, np.float64), place)
        if len(others) and rows[place] < SPARSE_SHARE * np.median(others):
            share = rows[place] / np.median(others)
            warnings.append(
                f"{quarter_label(quarter)} has {rows[place]} rows in {region}, {share:.0%} of the "
                "median of the other quarters; the file may be incomplete."
            )
    return warnings


def _observations(
    parts: Sequence[_Rows], region: Region, target: str, service: str
) -> Observations:
    codes = np.concatenate([rows.quadkey for rows in parts])
    value = np.concatenate([rows.value for rows in parts])
    longitude, latitude = quadkeys.tile_centres(*quadkeys.codes_to_tiles(codes))
    return Observations(
        quadkey=codes,
        quarter=np.concatenate([rows.quarter for rows in parts]),
        longitude=region.unwrap(longitude),
        latitude=latitude,
        y=value if find_target(target).counted else np.log10(value),
        tests=np.concatenate([rows.tests for rows in parts]),
        devices=np.concatenate([rows.devices for rows in parts]),
        stratum=region.stratum(longitude, latitude),
        target=target,
        service=service,
    )
