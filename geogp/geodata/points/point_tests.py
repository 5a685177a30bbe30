"""Measurements of your own: one test in each row of a file, pooled by tile and quarter.

The mean over the tests of a tile of zoom 16 in a quarter is what Ookla publishes, too. So the
pooled measurements have the form of Ookla's tiles, and everything else works as with tiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.choices import one_of
from geogp.errors import DataError, RequestError, named, shown
from geogp.files import sha256_of
from geogp.geodata.places.region import Region
from geogp.geodata.points.cell_numbers import is_missing
from geogp.geodata.points.cell_places import read_places
from geogp.geodata.points.checks import (
    MAX_EXTENT_KM,
    TIMES_NEIGHBOURS,
    extent_km,
    far_warnings,
    mark_far_rows,
    mistakes,
    unlike_neighbours,
)
from geogp.geodata.points.drives import drives_of
from geogp.geodata.points.extent import PointExtent
from geogp.geodata.points.measured_cells import (
    read_error_sd,
    read_quarters,
    read_successes,
    read_target,
    with_dates,
)
from geogp.geodata.points.point_options import PointOptions, PointSource, named_columns
from geogp.geodata.points.roles import SPEEDS, plain, role_of, signal_in
from geogp.geodata.points.tables import PointTable, RowReview, read_point_table
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import Ingested, InputFile, gap_warnings, gather
from geogp.geodata.tiles.quarters import QuarterRequest, quarter_label
from geogp.geodata.tiles.targets import SIGNALS, find_target
from geogp.geodata.tiles.tile_rows import TileRows

Floats = NDArray[np.float64]

LEAST_ROWS = 100
"""Smallest number of rows of each provider; the test part of a split then has about ten of them."""

SLOW_MBPS = 0.5
"""A median speed below this leads to a warning about the unit."""


LOCAL = ("wifi", "wlan", "ethernet", "lan", "wired", "cable", "fiber", "fibre", "dsl", "ftth")
CELLULAR = ("cell", "mobile")
"""Begins of connections that belong to no mobile map, and to no fixed map; see `plain`."""


@dataclass(frozen=True)
class PointTests:
    """The n tests of a file that have a value of the target: places, quarters and values.

    `value` is in the unit of Ookla's columns (kbps or ms) or in dBm or dB, 100 or 0 for tests that
    succeeded or failed, and 1 for the target ``tests``. `error_sd` are known standard deviations of
    the errors of values, (n,), or None. A `target` ``signal`` has become the kind of signal in the
    file. `rows` is the number of rows in the file. `columns` are the names of the columns that
    geogp knows. `provider` are names, (n,), or None if all providers are pooled. `notes` are pairs
    of a subject and what was understood of it; `units` has the unit of a column, and where it was
    read from. `counts` has the number of left-out rows for each reason, and `left_out` the rows
    themselves. `drive` are names of drives, (n,), if the tests are a log of drives.
    """

    path: Path
    sha256: str
    rows: int
    target: str
    service: str
    longitude: Floats
    latitude: Floats
    quarter: NDArray[np.int64]
    value: Floats
    columns: dict[str, str]
    warnings: tuple[str, ...]
    provider: NDArray[np.object_] | None = None
    notes: tuple[tuple[str, str], ...] = ()
    units: dict[str, tuple[str, str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    left_out: pd.DataFrame = field(default_factory=pd.DataFrame)
    drive: NDArray[np.object_] | None = None
    error_sd: Floats | None = None

    @property
    def extent(self) -> PointExtent:
        """The places near the tests; raises DataError if the tests lie all around the world."""
        return PointExtent.of(self.path, self.longitude, self.latitude)

    def observations(self, region: Region, quarters: QuarterRequest | None) -> Ingested:
        """Return the measurements of a region, pooled by tile, quarter and known provider or drive.

        A tile belongs to the region if its centre lies in the region. Raises DataError if there are
        no measurements in the region, or none in a quarter that the user named individually; or if
        there is only one provider, or one with fewer than `LEAST_ROWS` rows.
        """
        column, row = quadkeys.tiles_at(self.longitude, self.latitude)
        codes = quadkeys.tiles_to_codes(column, row)
        inside = region.contains(*quadkeys.tile_centres(column, row))
        wanted = inside if quarters is None else inside & np.isin(self.quarter, quarters.all)
        absent = [] if quarters is None else sorted({*quarters.all} - {*self.quarter[wanted]})
        lost = (
            [] if quarters is None else [quarter for quarter in absent if quarter in quarters.named]
        )
        if not wanted.any() or lost:
            raise DataError(self._nothing(region, inside, lost))
        present = np.unique(self.quarter[wanted]).tolist()
        if quarters is None:
            absent = [
                quarter for quarter in range(present[0], present[-1]) if quarter not in present
            ]
        name = self.path.name
        providers = np.full(len(codes), "") if self.provider is None else self.provider
        gathered = gather(
            {
                str(provider): {
                    int(quarter): self._pooled(codes, rows & (self.quarter == quarter))
                    for quarter in np.unique(self.quarter[rows])
                }
                for provider in np.unique(providers[wanted])
                for rows in [wanted & (providers == provider)]
            },
            region,
            target=self.target,
            service=self.service,
            file_of=lambda _: name,
        )
        if gathered.observations.provider is not None:
            check_providers(gathered.observations.provider)
        outside = int((~inside).sum())
        warnings = [
            *self.warnings,
            *([f"{outside:,} of {len(inside):,} tests lie outside {region.name}."] * bool(outside)),
            *gap_warnings(absent, region.name),
            *gathered.warnings,
        ]
        return replace(
            gathered,
            files=(InputFile(name, self.sha256, self.rows, int(wanted.sum())),),
            missing=tuple(absent),
            warnings=tuple(warnings),
            attribution=f"Measurements of {name}",
        )

    @property
    def by_drive(self) -> bool:
        """Whether the tests of each drive in a tile are a row; a count or a share has no drive."""
        about = find_target(self.target)
        pooled = about.counted or about.is_share or self.error_sd is not None
        return self.drive is not None and self.provider is None and not pooled

    def _pooled(self, codes: NDArray[np.uint64], rows: NDArray[np.bool_]) -> TileRows:
        """Return the mean of the marked tests in each tile, with the number of tests.

        If `by_drive`, each drive in a tile has its own row, with the column ``drive``. The tests of
        one drive in a tile are of one device, otherwise each test is of its own.
        """
        code, device = codes[rows], np.arange(np.count_nonzero(rows))
        if self.drive is not None:
            device = pd.factorize(self.drive[rows], sort=True)[0]
        tile = np.unique(code, return_inverse=True)[1]
        passes = tile * len(code) + device
        key = passes if self.by_drive else tile
        _, first, row = np.unique(key, return_index=True, return_inverse=True)
        tests, devices = np.bincount(row), np.bincount(row[np.unique(passes, return_index=True)[1]])
        column = find_target(self.target)
        known: dict[str, NDArray[Any]] = {"tests": tests, "devices": devices}
        if not column.counted:
            known[column.columns[0]] = np.bincount(row, self.value[rows]) / tests
        try:
            pooled = TileRows.of(code[first], known, column, self.service)
            if self.error_sd is not None:
                squares = np.bincount(row, self.error_sd[rows] ** 2) / tests**2
                errors = column.scale.error_variance(known[column.columns[0]], squares)
                pooled = replace(pooled, table=pooled.table.assign(error_variance=errors))
            if self.drive is None or not self.by_drive:
                return pooled
            return replace(pooled, table=pooled.table.assign(drive=self.drive[rows][first]))
        except DataError as error:
            failed = int((self.value[rows] == 0).sum())
            if not failed:
                raise
            raise DataError(
                f"{failed:,} of {int(rows.sum()):,} tests of {self.path.name} in a quarter are 0, "
                f"as failed tests are: {error} Map how often a test succeeds (--target success), "
                "map --target latency or tests, or remove the failed tests."
            ) from error

    def _nothing(self, region: Region, inside: NDArray[np.bool_], absent: Sequence[int]) -> str:
        """Return why a region has no measurements."""
        if inside.any():
            present = sorted({*self.quarter[inside].tolist()})
            labels = ", ".join(map(quarter_label, absent)) or "the chosen quarters"
            return (
                f"{self.path} has no tests in {region.name} for {labels}; its quarters are "
                f"{named(map(quarter_label, present))}."
            )
        for hint, east, north in mistakes(self.longitude, self.latitude):
            able = np.abs(north) < quadkeys.NORTHMOST
            count = int(region.contains(east[able], north[able]).sum())
            if count:
                return (
                    f"no test of {self.path} lies in {region.name}, but with {hint} {count:,} of "
                    f"{len(able):,} would. Correct the columns, or name them with --columns."
                )
        return f"no test of {self.path} lies in {region.name}. Choose the region of the tests."


def read_point_tests(
    source: PointSource, *, target: str, service: str, apart: bool = False
) -> PointTests:
    """Return the tests in a file that have a value of the target.

    With `apart`, the region is not the extent of the tests, so tests may be far from each other.
    Raises RequestError if the file, a named column, the provider or the technology is unknown.
    Raises DataError if a column is missing, the file has two meanings, or too many rows have
    missing, unreadable or impossible values; the message has their lines.
    """
    if len(find_target(target).columns) > 1:
        raise RequestError(f"a map of {target} needs tiles; --points has no such target.")
    path, options = Path(source.file), source.options
    table = read_point_table(path, options)
    if target == SIGNALS[-1]:
        target = signal_in(table.names, named_columns(options.columns), str(path))
    columns = with_dates(table, options, _needed(source, target))
    review = RowReview.of(table)
    review.mark(_other_service(table, columns, service), f"not {service}", apart=True)
    longitude, latitude = read_places(review, columns, options)
    quarter, seconds = read_quarters(review, columns, options)
    value, units = _values(review, columns, options, target, service)
    error_sd = _error_sd(review, columns, options, target, units)
    far = mark_far_rows(review, longitude, latitude)
    provider = table.texts(columns["provider"]) if source.by_provider else None
    if provider is not None:
        review.mark(_unnamed(provider), "no provider", apart=True)
    session = _sessions(review, columns)
    review.check(options.most_left_out)
    kept, warnings = _chosen_rows(table, columns, source)
    kept &= review.kept
    if not kept.any():
        raise DataError(f"{path} has no {target} with the chosen provider and technology.")
    if find_target(target).is_share and np.ptp(value[kept]) == 0:
        raise DataError(
            f"all {int(kept.sum()):,} tests of {path.name} "
            f"{'succeeded' if value[kept][0] else 'failed'}; there is nothing to learn."
        )
    warnings += [f"left out of {path.name}, {reason}." for reason in review.reasons()]
    if not apart:
        check_extent(path, longitude[kept], latitude[kept])
    warnings += far_warnings(table, far, refuse=not apart)
    warnings += _doubts(table, kept, (longitude, latitude), value, target)
    where = longitude[kept], latitude[kept], seconds[kept]
    drive = drives_of(*where) if session is None else session[kept]
    _tell_drives(review, drive, columns)
    review.notes.append(("rows", f"{int(kept.sum()):,} of {len(table):,} rows used"))
    return PointTests(
        path,
        sha256_of(path),
        len(table),
        target,
        service,
        longitude[kept],
        latitude[kept],
        quarter[kept],
        value[kept],
        columns,
        tuple(warnings),
        None if provider is None else provider[kept],
        notes=tuple(review.notes),
        units=units,
        counts=review.counts(),
        left_out=review.left_out(columns),
        drive=drive,
        error_sd=None if error_sd is None else error_sd[kept],
    )


def _values(
    review: RowReview,
    columns: Mapping[str, str],
    options: PointOptions,
    target: str,
    service: str,
) -> tuple[Floats, dict[str, tuple[str, str]]]:
    """Return the values of the target, 1 for numbers of tests, and the unit of their column."""
    if find_target(target).counted:
        return np.ones(len(review.table)), {}
    if find_target(target).is_share:
        value, units = read_successes(review, columns, options, service)
        review.mark(np.isnan(value), f"no {target}", apart=True)
        return value, units
    value, unit = read_target(review, columns[target], options, target, service)
    review.mark(np.isnan(value), f"no {target}", apart=True)
    return value, {columns[target]: unit}


def _error_sd(
    review: RowReview,
    columns: Mapping[str, str],
    options: PointOptions,
    target: str,
    units: Mapping[str, tuple[str, str]],
) -> Floats | None:
    """Return the known standard deviations of the errors of values, (n,); None without a column.

    Raises RequestError if the target's values have no errors of a unit.
    """
    about = find_target(target)
    if "error_sd" not in columns:
        return None
    if about.counted or about.is_share:
        raise RequestError(
            f"--columns error_sd= is for a speed, a latency or a signal: --target {target} counts "
            "tests, whose values have no error of an instrument. Leave error_sd out."
        )
    return read_error_sd(review, columns["error_sd"], options, target, units[columns[target]][0])


def _sessions(review: RowReview, columns: Mapping[str, str]) -> NDArray[np.object_] | None:
    """Return the names of drives in the column of sessions; None without this column."""
    if "session" not in columns:
        return None
    session = review.table.texts(columns["session"])
    review.mark(is_missing(session), "no session", apart=True)
    return session


def _tell_drives(
    review: RowReview, drive: NDArray[np.object_] | None, columns: Mapping[str, str]
) -> None:
    """Add a note of how many drives there are, and where they are from, if there are any."""
    if drive is None:
        return
    why = "tests follow each other in time and place"
    if "session" in columns:
        why = f"from the column {shown(columns['session'])}"
    review.notes.append(("drives", f"{len(np.unique(drive)):,} drives: {why}"))


def _needed(source: PointSource, target: str) -> list[str]:
    """Return what columns a file must have."""
    needed = ["latitude", "longitude", *([] if source.options.at_quarter else ["time"])]
    about = find_target(target)
    if about.is_share and source.options.at_least is not None:
        needed.append("download")
    elif not about.counted:
        needed.append(target)
    needed += ["provider"] if source.by_provider or source.provider is not None else []
    return needed + ([] if source.technology is None else ["technology"])


def _chosen_rows(
    table: PointTable, columns: Mapping[str, str], source: PointSource
) -> tuple[NDArray[np.bool_], list[str]]:
    """Return a mask of the rows with the chosen provider and technology, and warnings."""
    kept, warnings = np.ones(len(table), np.bool_), list[str]()
    operators = [name for name in table.names if role_of(name) == "provider"]
    if "provider" not in columns and len(operators) > 1:
        warnings.append(
            f"several columns of {table.path.name} may name the provider ({named(operators)}). "
            "Choose one with --columns provider=NAME."
        )
    for role, name in (("provider", source.provider), ("technology", source.technology)):
        if role not in columns or (source.by_provider and role == "provider"):
            continue
        texts = table.texts(columns[role])
        names = sorted({*texts.tolist()} - {""})
        if name is not None:
            one_of(role, name, names)
            kept &= np.asarray(texts == name, np.bool_)
        elif len(names) > 1 and role == "provider":
            warnings.append(
                f"the map is of {len(names)} providers together ({named(names, 5)}). Choose one "
                "with --provider, or map each with --by-provider."
            )
    return kept, warnings


def _doubts(
    table: PointTable,
    kept: NDArray[np.bool_],
    places: tuple[Floats, Floats],
    value: Floats,
    target: str,
) -> list[str]:
    """Return warnings about values in kbps or ms that are very low, or unlike those near.

    Decibels have no such ratios, and their limits are narrow.
    """
    about = find_target(target)
    if about.counted or not about.scale.logarithmic:
        return []
    warnings, name, (longitude, latitude) = [], table.path.name, places
    median = float(np.median(value[kept])) / 1000
    if target in SPEEDS and median < SLOW_MBPS:
        text = f"the median {target} of {name} is {median:.3g} Mbps."
        warnings.append(f"{text} Is the unit right? Choose it with --units.")
    unlike = np.zeros(len(table), np.bool_)
    unlike[kept] = unlike_neighbours(longitude[kept], latitude[kept], value[kept])
    if unlike.any():
        warnings.append(
            f"the {target} is over {TIMES_NEIGHBOURS:,.0f} times that of the nearest tests in "
            f"{table.where(unlike)} of {name}. Is it right?"
        )
    return warnings


def check_extent(path: Path, longitude: Floats, latitude: Floats) -> None:
    """Raise DataError if points extend over more than `MAX_EXTENT_KM`."""
    wide, high = extent_km(longitude, latitude)
    if max(wide, high) > MAX_EXTENT_KM:
        raise DataError(
            f"the tests of {path} extend over {wide:,.0f} by {high:,.0f} km (longitudes "
            f"{longitude.min():g} to {longitude.max():g}, latitudes {latitude.min():g} to "
            f"{latitude.max():g}), more than {MAX_EXTENT_KM:,.0f} km. Are latitude and longitude "
            "swapped in some rows, or signs lost? If not, choose the region to map, such as PR, or "
            "--region-file."
        )


def _unnamed(names: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Return a mask of texts that name no provider; NA may be a name."""
    return np.asarray(is_missing(names) & (names != "NA"), np.bool_)


def _other_service(
    table: PointTable, columns: Mapping[str, str], service: str
) -> NDArray[np.bool_]:
    """Return a mask of the tests whose connection is of the other service."""
    names = [columns[role] for role in ("technology",) if role in columns]
    names = names or [name for name in dict.fromkeys(table.names) if role_of(name) == "technology"]
    others = CELLULAR if service == "fixed" else LOCAL
    found = np.zeros(len(table), np.bool_)
    for name in [name for name in names if table.names.count(name) == 1]:
        found |= np.array([plain(text).startswith(others) for text in table.texts(name)], np.bool_)
    return found


def check_providers(provider: NDArray[np.object_]) -> None:
    """Raise RequestError for rows (n,) of one provider, DataError for a provider with few rows."""
    names, counts = np.unique(provider, return_counts=True)
    if len(names) < 2:
        raise RequestError(
            f"--by-provider needs tests of two providers or more, found only {named(names)}. "
            "Leave --by-provider out."
        )
    few = [
        f"{rows} of {name}" for name, rows in zip(names, counts, strict=True) if rows < LEAST_ROWS
    ]
    if few:
        raise DataError(
            f"--by-provider needs {LEAST_ROWS} rows or more of each provider, where a row is one "
            f"tile in one quarter, found {named(few)}. Remove their tests from the file, or "
            "choose more quarters."
        )
