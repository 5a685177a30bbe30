"""Reading of a region's observations from Ookla's open data.

A source has the layout of Ookla's public bucket: one Parquet file per service and quarter with the
tiles of the whole world. Only row groups that can contain tiles of the region are read. The column
with the outlines of tiles is never read, because the quadkey gives the location of a tile.
"""

import datetime as dt
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Region
from geogp.geodata.store.fetch_quarters import Progress, fetch_quarters
from geogp.geodata.store.sources import LocalFile, Source
from geogp.geodata.tiles.observations import Observations, complete_counts
from geogp.geodata.tiles.parquet_files import reading_process
from geogp.geodata.tiles.plausibility import LeftOut, exchanged_columns
from geogp.geodata.tiles.quarters import QuarterRequest, quarter_index, quarter_label
from geogp.geodata.tiles.targets import TargetColumn, check_in_tiles, find_target
from geogp.geodata.tiles.tile_files import tile_file
from geogp.geodata.tiles.tile_rows import OtherFileError, TileRows, read_rows

logger = logging.getLogger(__name__)

FIRST_QUARTER = quarter_index("2019Q1")  # the first quarter that Ookla published

ATTRIBUTION = "Speedtest by Ookla Global Fixed and Mobile Network Performance Maps, CC BY-NC-SA 4.0"
"""The attribution that the licence of Ookla's data requires."""

LICENSE = "CC-BY-NC-SA-4.0"
"""The licence of Ookla's data, as an SPDX identifier."""

SIMULATED = "Simulated tiles, made by geogp; no measurements"
"""The text on maps of simulated tiles, in place of the attribution."""

SPARSE_SHARE = 0.8  # geogp warns about a quarter with fewer rows, compared with the median

HOLDS = 3  # attempts to read a file, if another process replaces the file during the reading


@dataclass(frozen=True)
class InputFile:
    """The record of a file that was read.

    `sha256` is the hash of the file or of its cache entry, and `rows_sha256` is the hash of the
    region's rows in a tile file. `rows` is the number of rows in the file, and `rows_used` is the
    number of rows that geogp uses. Only cache entries have `source`, `etag`, `bytes_read`
    (downloaded bytes) and `bytes_stored` (size of the file at the source).
    """

    name: str
    sha256: str
    rows: int
    rows_used: int
    rows_sha256: str | None = None
    source: str | None = None
    etag: str | None = None
    bytes_read: int | None = None
    bytes_stored: int | None = None


@dataclass(frozen=True)
class Ingested:
    """The observations of a region, and their origin.

    `source_rows` are all n rows of the region. The mask `kept`, (n,), selects the `observations`.
    Splits are made from all rows, so a split does not depend on the values of a target. `left_out`
    describes the other rows, which have impossible values. The `missing` quarters of a range have
    no rows in the source. For the `unreached` quarters, the source did not answer, and the cache
    has no file. `attribution` names the source of the data on maps. `license` is the SPDX
    identifier of the licence of the data, or empty if geogp knows of no licence.
    """

    observations: Observations
    source_rows: Observations
    kept: NDArray[np.bool_]
    left_out: tuple[LeftOut, ...]
    files: tuple[InputFile, ...] = ()
    missing: tuple[int, ...] = ()
    unreached: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    attribution: str = ATTRIBUTION
    license: str = ""

    @property
    def credits(self) -> dict[str, str]:
        """The attribution and, if known, the licence, as attributes of files."""
        texts = {"attribution": self.attribution, "license": self.license}
        return {name: text for name, text in texts.items() if text}


def all_quarters() -> tuple[int, ...]:
    """Return the quarters that Ookla may have published, up to the current quarter."""
    today = dt.datetime.now(tz=dt.UTC).date()
    return tuple(range(FIRST_QUARTER, today.year * 4 + (today.month - 1) // 3 + 1))


@reading_process()
def read_observations(
    source: Source,
    region: Region,
    *,
    service: str = "mobile",
    target: str = "download",
    quarters: QuarterRequest | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Return the observations of a region: the tiles whose centroid lies in the region.

    `service` is ``mobile`` or ``fixed``; `target` is a name in `TARGETS`; `quarters` defaults to
    all quarters of the source; `progress` is called during downloads. Raises DataError if a quarter
    that the user named individually is missing, if there are no rows, or if a file is damaged or
    has too many impossible values. Raises NetworkError if the source could not be read. Raises
    RequestError if the target is unknown or not in the tiles, or if the target ``tests`` would give
    too many rows.
    """
    check_in_tiles(target)
    column = find_target(target)
    wanted = quarters.all if quarters else all_quarters()
    named = set(quarters.named) if quarters else set()
    fetched = fetch_quarters(source, region, service, wanted, progress=progress)
    fetched.check_named(named, source.where, service)
    read = {
        quarter: _read_quarter(
            file, column, source=source, region=region, service=service, quarter=quarter
        )
        for quarter, file in fetched.files.items()
    }
    parts = {quarter: rows for quarter, (_, rows) in read.items() if len(rows.table)}
    missing = sorted({*wanted} - {*parts} - {*fetched.unreached})
    for quarter in sorted(named.intersection(missing)):
        raise DataError(
            f"the file of {quarter_label(quarter)} in {source.where} has no tile of {region.name}."
        )
    if not parts:
        raise DataError(
            f"no {service} tiles of {region.name} in {source.where} for "
            f"{quarter_label(wanted[0])} to {quarter_label(wanted[-1])}. Expected files like "
            f"{tile_file(service, wanted[-1])}."
        )
    # If no quarters were requested, only gaps between quarters with rows are reported as missing.
    gaps = [q for q in missing if quarters or min(parts) < q < max(parts)]
    for quarter, rows in parts.items():
        logger.info("read %d rows of %s", len(rows.table), quarter_label(quarter))
    gathered = gather(
        {"": parts}, region, target=target, service=service, file_of=partial(tile_file, service)
    )
    files = {quarter: file for quarter, (file, _) in read.items()}
    warnings = [
        *replace(fetched, files=files).warnings(source.where),
        *gap_warnings(gaps, region.name),
        *_sparse_warnings(parts, region.name),
        *gathered.warnings,
        *_exchange_warnings(parts, column, service),
    ]
    simulated = any(file.simulated for file in files.values())
    return replace(
        gathered,
        files=tuple(_input_file(tile_file(service, q), *read[q]) for q in parts),
        missing=tuple(gaps),
        unreached=tuple(sorted(fetched.unreached)),
        warnings=tuple(warnings),
        attribution=SIMULATED if simulated else ATTRIBUTION,
        license="" if simulated else LICENSE,
    )


def gather(
    parts: Mapping[str, Mapping[int, TileRows]],
    region: Region,
    *,
    target: str,
    service: str,
    file_of: Callable[[int], str],
) -> Ingested:
    """Return the observations of a region from the rows of each provider and quarter.

    The provider of rows that are not apart by provider is ``""``. `file_of` returns the name of the
    file of a quarter. Raises RequestError if the target ``tests`` would give too many rows.
    """
    tables = {
        provider: pd.concat([rows.table.assign(quarter=q) for q, rows in quarters.items()])
        for provider, quarters in parts.items()
    }
    if find_target(target).counted:
        tables = {name: complete_counts(table, region) for name, table in tables.items()}
    # The order of rows, and so the fit, does not depend on the names of providers.
    names = sorted(tables, key=lambda name: -int((~tables[name]["left_out"]).sum()))
    table = pd.concat([tables[name].assign(provider=name) for name in names], ignore_index=True)
    if "" in tables:
        table = table.drop(columns="provider")
    else:
        table = table.sort_values(["quarter", "quadkey"], kind="stable", ignore_index=True)
    left_out = tuple(
        LeftOut(file_of(quarter), quarter, int(rows.table["left_out"].sum()), rows.implausible)
        for name in names
        for quarter, rows in parts[name].items()
        if rows.implausible
    )
    source_rows = Observations.of_table(table, region, target, service)
    kept = ~table["left_out"].to_numpy()
    return Ingested(
        source_rows.taken(kept),
        source_rows,
        kept,
        left_out,
        warnings=tuple(rows.warning(service, target) for rows in left_out),
    )


def _read_quarter(
    held: LocalFile,
    column: TargetColumn,
    *,
    source: Source,
    region: Region,
    service: str,
    quarter: int,
) -> tuple[LocalFile, TileRows]:
    """Return a file and its rows; fetch the file again if another process changes it."""
    for _ in range(HOLDS):
        try:
            return held, read_rows(held, region, column, service)
        except OtherFileError:
            again = fetch_quarters(source, region, service, [quarter])
            if quarter not in again.files:
                raise DataError(
                    f"the file of {quarter_label(quarter)} disappeared from {source.where} while "
                    f"it was read. Try again."
                ) from None
            held = again.files[quarter]
    raise DataError(
        f"{held.path} changed {HOLDS} times while it was read. Try again when no other program "
        f"writes this file."
    )


def _input_file(name: str, held: LocalFile, rows: TileRows) -> InputFile:
    note, used = held.note, int((~rows.table["left_out"]).sum())
    found = InputFile(name, rows.file_sha256, rows.in_file, used, rows.sha256)
    if note is None:
        return found
    keys = ("source", "etag", "bytes_read", "bytes_stored")
    return replace(found, rows=note.rows_in_source, **{key: getattr(note, key) for key in keys})


def gap_warnings(gaps: Sequence[int], region: str) -> list[str]:
    """Return a warning about missing quarters, if there are any."""
    labels = ", ".join(map(quarter_label, gaps))
    return [f"the source has no tiles of {region} for {labels}."] if gaps else []


def _sparse_warnings(parts: Mapping[int, TileRows], region: str) -> list[str]:
    """Return warnings about quarters with unusually few rows."""
    warnings = []
    counts = {quarter: len(rows.table) for quarter, rows in parts.items()}
    for quarter, count in counts.items():
        others = [other for at, other in counts.items() if at != quarter]
        if others and count < SPARSE_SHARE * np.median(others):
            warnings.append(
                f"{quarter_label(quarter)} has {count} rows in {region}, "
                f"{count / np.median(others):.0%} of the median of the other quarters; the file "
                "may be incomplete."
            )
    return warnings


def _exchange_warnings(
    parts: Mapping[int, TileRows], column: TargetColumn, service: str
) -> list[str]:
    """Return warnings about files whose columns seem to be swapped."""
    tables = {
        tile_file(service, quarter): rows.table[~rows.table["left_out"]]
        for quarter, rows in parts.items()
    }
    warnings = []
    for place, name in enumerate(column.columns):
        medians = {
            file: (
                float(table[place].median()) * column.divisors[place],
                float(table["tests"].median()),
            )
            for file, table in tables.items()
        }
        warnings += exchanged_columns(name, medians)
    return warnings
