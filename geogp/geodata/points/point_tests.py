"""Measurements of your own: one test in each row of a file, pooled by tile and quarter.

The mean over the tests of a tile of zoom 16 in a quarter is what Ookla publishes, too. So the
pooled measurements have the form of Ookla's tiles, and everything else works as with tiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from shapely.geometry import MultiPoint
from shapely.geometry.base import BaseGeometry

from geogp.choices import one_of
from geogp.errors import DataError, RequestError
from geogp.files import sha256_of
from geogp.geodata.places.region import Region
from geogp.geodata.points.point_roles import (
    KBPS,
    SPEEDS,
    PointSource,
    columns_of,
    named_columns,
    unit_in,
)
from geogp.geodata.points.point_table import PointTable, coordinates, read_point_table
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import Ingested, InputFile, gap_warnings, gather
from geogp.geodata.tiles.plausibility import LIMITS, beyond_limits
from geogp.geodata.tiles.quarters import QuarterRequest, quarter_label
from geogp.geodata.tiles.targets import find_target
from geogp.geodata.tiles.tile_rows import TileRows

Floats = NDArray[np.float64]

FIRST_YEAR = 2000
"""Times before this year are refused: they come from clocks that were never set."""

MANY_TIMES, FEW, SHARE = 300, 5, 0.001
"""A file seems to mix units if over 5 values and over 0.1 % are 300 times the median or more."""

MARGIN_DEGREES = 0.02
"""Distance from the outermost points to the border of their own extent: some tiles."""

LEAST_ROWS = 100
"""Smallest number of rows of each provider; the test part of a split then has about ten of them."""

SLOW_MBPS = 0.5
"""A median speed below this leads to a warning about the unit."""


@dataclass(frozen=True)
class PointTests:
    """The n tests of a file that have a value of the target: places, quarters and values.

    `value` is in the unit of Ookla's columns (kbps or ms), and 1 for the target ``tests``. `rows`
    is the number of rows in the file. `columns` are the names of the columns that geogp knows.
    `provider` are names, (n,), or None if all providers are pooled.
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

    @property
    def extent(self) -> BaseGeometry:
        """The convex hull of the points with a margin of about 2 km, in degrees.

        Raises DataError if the points lie all around the world.
        """
        longitude = self.longitude
        if np.ptp(longitude) > 180:
            longitude = longitude % 360
        if np.ptp(longitude) > 180:
            raise DataError(
                f"the points of {self.path} lie all around the world. Choose a region, such as PR, "
                "or --region-file."
            )
        places = MultiPoint(np.column_stack([longitude, self.latitude]))
        return places.convex_hull.buffer(MARGIN_DEGREES)

    def observations(self, region: Region, quarters: QuarterRequest | None) -> Ingested:
        """Return the measurements of a region, pooled by tile, quarter and known provider.

        A tile belongs to the region if its centre lies in the region. Raises DataError if there are
        no measurements in the region, or none in a quarter that the user named individually; or if
        there is only one provider, or one with fewer than `LEAST_ROWS` rows.
        """
        column, row = quadkeys.tiles_at(self.longitude, self.latitude)
        codes = quadkeys.tiles_to_codes(column, row)
        inside = region.contains(*quadkeys.tile_centres(column, row))
        wanted = inside if quarters is None else inside & np.isin(self.quarter, quarters.all)
        absent = [] if quarters is None else sorted({*quarters.all} - {*self.quarter[wanted]})
        named = [] if quarters is None else [one for one in absent if one in quarters.named]
        if not wanted.any() or named:
            raise DataError(self._nothing(region, inside, named))
        found = np.unique(self.quarter[wanted]).tolist()
        if quarters is None:
            absent = [one for one in range(found[0], found[-1]) if one not in found]
        name = self.path.name
        if self.provider is None:
            gathered = self._gathered(codes, wanted, region)
        else:
            gathered = _joined(
                {
                    str(one): self._gathered(codes, wanted & (self.provider == one), region)
                    for one in np.unique(self.provider[wanted])
                }
            )
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

    def _gathered(
        self, codes: NDArray[np.uint64], wanted: NDArray[np.bool_], region: Region
    ) -> Ingested:
        """Return the marked tests of a region, pooled by tile and quarter."""
        parts = {
            int(quarter): self._pooled(codes, wanted & (self.quarter == quarter))
            for quarter in np.unique(self.quarter[wanted])
        }
        return gather(
            parts,
            region,
            target=self.target,
            service=self.service,
            file_of=lambda _: self.path.name,
        )

    def _pooled(self, codes: NDArray[np.uint64], rows: NDArray[np.bool_]) -> TileRows:
        """Return the mean of the marked tests in each tile, with the number of tests."""
        code, tile = np.unique(codes[rows], return_inverse=True)
        tests = np.bincount(tile)
        column = find_target(self.target)
        value = np.bincount(tile, self.value[rows]) / tests
        known: dict[str, NDArray[Any]] = {"tests": tests, "devices": tests}
        if column.counted:
            value = tests.astype(np.float64)
        else:
            known[column.columns[0]] = value
        left_out, implausible = beyond_limits(self.service, known, code)
        value = np.where(left_out, np.nan, value / column.divisor)
        counts = np.where(left_out, 0, tests).astype(np.int64)
        file = self.sha256, self.rows
        return TileRows(*file, code, value[None], counts, counts, left_out, implausible)

    def _nothing(self, region: Region, inside: NDArray[np.bool_], named: Sequence[int]) -> str:
        """Return why a region has no measurements."""
        if inside.any():
            held = sorted({*self.quarter[inside].tolist()})
            labels = ", ".join(map(quarter_label, named)) or "the chosen quarters"
            return (
                f"{self.path} has no tests in {region.name} for {labels}; its quarters are "
                f"{', '.join(map(quarter_label, held))}."
            )
        turned = np.abs(self.longitude) < quadkeys.NORTHMOST
        if region.contains(self.latitude[turned], self.longitude[turned]).any():
            return (
                f"no test of {self.path} lies in {region.name}, but with latitude and longitude "
                "swapped some would. Swap the columns, or name them with --columns."
            )
        return f"no test of {self.path} lies in {region.name}. Choose the region of the tests."


def read_point_tests(source: PointSource, *, target: str, service: str) -> PointTests:
    """Return the tests in a file that have a value of the target.

    Raises RequestError if the file, a column, the unit, the provider or the technology is unknown,
    and DataError with line numbers if values are missing, unreadable or impossible.
    """
    if len(find_target(target).columns) > 1:
        raise RequestError(f"a map of {target} needs tiles; --points has no such target.")
    path = Path(source.file)
    table = read_point_table(path)
    counted = find_target(target).counted
    chosen = {"provider": source.provider, "technology": source.technology}
    apart = source.by_provider
    needed = ["latitude", "longitude", "time", *([] if counted else [target])]
    needed += [role for role, value in chosen.items() if value is not None]
    needed += ["provider"] * (apart and source.provider is None)
    columns = columns_of(table.names, named_columns(source.columns), needed, str(path))
    faults: list[str] = []
    longitude, latitude = coordinates(table, columns, faults)
    quarter = _quarters(table, columns["time"], faults)
    value = np.ones(len(table))
    if not counted:
        column, unit = columns[target], None
        if target in SPEEDS:
            unit = source.units or unit_in(column)
            if unit is None:
                raise RequestError(
                    f"the unit of the column {column} in {path} is unknown. Give --units with one "
                    f"of {', '.join(KBPS)}, or add the unit to the name, as in {column}_mbps."
                )
        value = _values(table, column, faults, target=target, service=service, unit=unit)
    table.refuse(faults)
    warnings = []
    kept = ~np.isnan(value)
    if not kept.all():
        warnings.append(f"{table.where(~kept)} of {path.name} have no {target} and are left out.")
    provider = table.texts(columns["provider"]) if apart else None
    if provider is not None and (provider == "").any():
        where = table.where(provider == "")
        warnings.append(f"{where} of {path.name} have no provider and are left out.")
        kept &= provider != ""
    for role, name in chosen.items():
        if role in columns and not (apart and role == "provider"):
            kept &= _chosen(table, role, columns[role], name, warnings)
    if not kept.any():
        raise DataError(f"{path} has no {target} with the chosen provider and technology.")
    if target in SPEEDS and np.median(value[kept]) < 1000 * SLOW_MBPS:
        warnings.append(
            f"the median {target} of {path.name} is {np.median(value[kept]) / 1000:.3g} Mbps. Is "
            "the unit right? Choose it with --units."
        )
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
    )


def _joined(parts: Mapping[str, Ingested]) -> Ingested:
    """Return the rows of several providers together; raise the errors of `observations`."""
    rows = {name: int(part.kept.sum()) for name, part in parts.items()}
    if len(rows) < 2:
        raise RequestError(
            f"--by-provider needs tests of two providers or more, found only {', '.join(rows)}. "
            "Leave --by-provider out."
        )
    few = [f"{count} of {name}" for name, count in rows.items() if count < LEAST_ROWS]
    if few:
        raise DataError(
            f"--by-provider needs {LEAST_ROWS} rows or more of each provider, where a row is one "
            f"tile in one quarter, found {', '.join(few)}. Remove their tests from the file, or "
            "choose more quarters."
        )
    # The order of rows, and so the fit, does not depend on the names.
    parts = dict(sorted(parts.items(), key=lambda one: -rows[one[0]]))
    sources = [part.source_rows for part in parts.values()]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in sources])
        for name, held in vars(sources[0]).items()
        if isinstance(held, np.ndarray)
    }
    names = np.repeat(np.array(list(parts), object), list(map(len, sources)))
    order = np.lexsort((arrays["quadkey"], arrays["quarter"]))
    known = replace(sources[0], **arrays, provider=names).taken(order)
    kept = np.concatenate([part.kept for part in parts.values()])[order]
    return Ingested(
        known.taken(kept),
        known,
        kept,
        tuple(one for part in parts.values() for one in part.left_out),
        warnings=tuple(text for part in parts.values() for text in part.warnings),
    )


def _chosen(
    table: PointTable, role: str, column: str, name: str | None, warnings: list[str]
) -> NDArray[np.bool_]:
    """Return a mask of the rows with the chosen provider or technology; all rows without choice."""
    texts = table.texts(column)
    if name is not None:
        one_of(role, name, sorted({*texts.tolist()} - {""}))
        return np.asarray(texts == name, np.bool_)
    held = sorted({*texts.tolist()} - {""})
    if len(held) > 1 and role == "provider":
        shown = ", ".join(held[:5]) + (", ..." if len(held) > 5 else "")
        warnings.append(
            f"the map is of {len(held)} providers together ({shown}). Choose one with --provider, "
            "or map each with --by-provider."
        )
    return np.ones(len(table), np.bool_)


def _values(
    table: PointTable, name: str, faults: list[str], *, target: str, service: str, unit: str | None
) -> Floats:
    """Return the values of a target in kbps or ms, NaN in empty cells; add faults."""
    before = len(faults)
    values = table.numbers(name, faults)
    if len(faults) > before:
        return values
    if unit is not None:
        values = values * KBPS[unit]
    limit = LIMITS[service][find_target(target).columns[0]]
    negative, beyond = values < 0, values > limit.most
    if negative.any():
        faults.append(f"expected {target} of 0 or more, found less in {table.where(negative)}.")
    hint = "" if unit is None else f" Is the unit right ({unit})?"
    if beyond.any():
        faults.append(
            f"expected {target} up to {limit.most:,} {limit.unit} ({limit.source}), found more in "
            f"{table.where(beyond)}.{hint}"
        )
    known = values[values > 0]
    many = values > MANY_TIMES * np.median(known) if len(known) else beyond
    if not beyond.any() and unit is not None and many.sum() > max(FEW, SHARE * len(values)):
        faults.append(
            f"expected one unit of {target}, found values over {MANY_TIMES} times the median in "
            f"{table.where(many)}. Are some values in another unit?"
        )
    return values


def _quarters(table: PointTable, name: str, faults: list[str]) -> NDArray[np.int64]:
    """Return the index of each row's quarter in UTC, the time zone of bare dates; add faults."""
    column = table.frame[name]
    if column.dtype.kind in "iuf":
        faults.append(
            f"expected times such as 2023-11-05 or 2023-11-05T14:30:00Z in the column {name}, "
            "found numbers."
        )
        return np.zeros(len(table), np.int64)
    if isinstance(column.dtype, pd.DatetimeTZDtype) or column.dtype.kind == "M":
        times, absent = pd.to_datetime(column, utc=True), column.isna().to_numpy()
    else:
        texts = pd.Series(table.texts(name))
        absent = (texts == "").to_numpy()
        # BigQuery writes UTC; without a hyphen, a text may be a year or another number.
        plain = texts.str.removesuffix("UTC").str.strip().where(texts.str.contains("-"))
        times = pd.to_datetime(plain, utc=True, format="ISO8601", errors="coerce")
    unread = times.isna().to_numpy() & ~absent
    # Local times without a time zone may lie up to 14 hours ahead of UTC.
    ahead = (times > pd.Timestamp.now("UTC") + pd.Timedelta(days=1)).to_numpy()
    early = (times < pd.Timestamp(FIRST_YEAR, 1, 1, tz="UTC")).to_numpy()
    first, where = str(column.iloc[int(unread.argmax())])[:40], f"in the column {name}"
    for wrong, expected, found in (
        (absent, f"a time {where}", "none"),
        (
            unread,
            f"times such as 2023-11-05 or 2023-11-05T14:30:00Z {where}",
            f"{first!r} and the like",
        ),
        (ahead, f"times {where} up to now", "later ones"),
        (early, f"times {where} from {FIRST_YEAR} on", "earlier ones"),
    ):
        if wrong.any():
            faults.append(f"expected {expected}, found {found} in {table.where(wrong)}.")
    filled = times.fillna(pd.Timestamp(FIRST_YEAR, 1, 1, tz="UTC"))
    return np.asarray(filled.dt.year * 4 + filled.dt.quarter - 1, np.int64)
