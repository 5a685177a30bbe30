"""Reads the covariates of a run, and adds their columns to tables of places and quarters."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError, check_name, named
from geogp.estimators.spatial_gp import SpatialGP
from geogp.files import sha256_of
from geogp.geodata.covariates.points import CovariateValues, PointCovariate
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.store.fetch_quarters import Progress
from geogp.geodata.store.sources import Source
from geogp.geodata.tiles.observations import Observations, quarter_periods
from geogp.geodata.tiles.ookla import InputFile, read_observations
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.quarters import QuarterRequest
from geogp.geodata.tiles.targets import SERVICES
from geogp.records.input_records import CovariateRecord
from geogp.records.map_settings import STRATUM

if TYPE_CHECKING:
    from geogp.geodata.covariates.read_covariate import Covariate

Floats = NDArray[np.float64]

OTHER_COLUMNS = (
    *("longitude", "latitude", "quarter", "area_km2", "tests", "devices", "provider"),
    "drive",
)
"""Columns of a run's tables that are not covariates."""

KNOWN_SHARE = 0.9
"""A tile has data nearby if the covariate's variance is below this share of the prior variance."""

LEAST_VARIANCE = 1e-3
"""Added to a ratio of variances before the logarithm, because the ratio may be 0."""


@dataclass(frozen=True)
class StratumCovariate:
    """1 in the second stratum of a region, such as the country, and 0 elsewhere."""

    region: Region
    interpolation = "none"
    rows = 0
    prior_sd = float("nan")

    def at(
        self,
        longitude: Floats,
        latitude: Floats,
        quarter: Any = None,  # noqa: ARG002 - strata have no time
    ) -> CovariateValues:
        """Return the values at places, (n,); they have no standard deviations."""
        second = self.region.stratum(longitude, latitude) == self.region.strata_names[1]
        return CovariateValues(second.astype(np.float64), np.full(len(second), np.nan))


@dataclass(frozen=True)
class RunCovariate:
    """A covariate of a run, and the columns that the covariate adds to tables.

    The column `name` has the values of the covariate. If `with_support`, `<name>_support` is -log10
    of the posterior variance divided by the prior variance. `mean`, the mean over the rows of the
    run, replaces missing values. If `with_gaps`, `<name>_missing` marks missing values. `source` is
    the value of ``--covariates``, and `files` are the names of the covariate's files.
    """

    name: str
    source: str
    covariate: "Covariate | StratumCovariate"
    files: tuple[str, ...] = ()
    with_support: bool = False
    mean: float = 0.0
    with_gaps: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the covariate's columns."""
        support = (f"{self.name}_support",) if self.with_support else ()
        missing = (f"{self.name}_missing",) if self.with_gaps else ()
        return (self.name, *support, *missing)

    def columns(
        self, longitude: Floats, latitude: Floats, quarter: NDArray[np.int64]
    ) -> dict[str, Floats]:
        """Return the covariate's columns at places and quarters, each (n,), by name."""
        values = self.covariate.at(longitude, latitude, quarter)
        missing = np.isnan(values.value)
        columns = [np.where(missing, self.mean, values.value)]
        if self.with_support:
            left = np.square(values.sd / self.covariate.prior_sd) + LEAST_VARIANCE
            columns.append(-np.log10(left))
        if self.with_gaps:
            columns.append(missing.astype(np.float64))
        return dict(zip(self.names, columns, strict=True))

    def record(self, tiles: Tiles, quarter: int, model: SpatialGP) -> CovariateRecord:
        """Return the covariate's entry in run.json, from the map's tiles and the fitted model."""
        values = self.covariate.at(*tiles.centres, np.full(len(tiles), quarter))
        sd = values.sd[np.isfinite(values.sd)]
        far = values.sd**2 > KNOWN_SHARE * self.covariate.prior_sd**2
        known = model.coefficients_.reindex([self.name]).iloc[0]
        return CovariateRecord(
            name=self.name,
            source=self.source,
            files=list(self.files),
            interpolation=self.covariate.interpolation,
            share_with_data=float(np.mean(np.isfinite(values.value) & ~far)),
            median_sd=float(np.median(sd)) if len(sd) else None,
            coefficient=None if np.isnan(known["mean"]) else float(known["mean"]),
            coefficient_sd=None if np.isnan(known["sd"]) else float(known["sd"]),
        )


@dataclass(frozen=True)
class PlaceTables:
    """The covariates of a run; makes tables of places and quarters for the run's estimator.

    `files` are the files that were read, and `warnings` concern these files.
    """

    covariates: list[RunCovariate] = field(default_factory=list)
    files: list[InputFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the columns of all covariates."""
        return [name for covariate in self.covariates for name in covariate.names]

    def at(
        self,
        longitude: Floats,
        latitude: Floats,
        quarter: NDArray[np.int64],
        **columns: Any,
    ) -> pd.DataFrame:
        """Return a table of places and quarters, with covariates and the area of each place's tile.

        Each keyword of `columns` that is not None, such as ``tests=3``, adds a column.
        """
        table = pd.DataFrame(
            {
                "longitude": longitude,
                "latitude": latitude,
                "quarter": quarter_periods(quarter),
                "area_km2": tile_areas_km2(latitude),
                **{name: value for name, value in columns.items() if value is not None},
            }
        )
        for covariate in self.covariates:
            table = table.assign(**covariate.columns(longitude, latitude, quarter))
        return table

    def of_tiles(self, tiles: Tiles, quarter: int, **columns: Any) -> pd.DataFrame:
        """Return the table of the method `at` for the centres of tiles in one quarter."""
        longitude, latitude = tiles.centres
        return self.at(longitude, latitude, np.full(len(tiles), quarter), **columns)


def read_run_covariates(
    texts: Sequence[str],
    source: Source,
    region: Region,
    observations: Observations,
    progress: Progress,
) -> PlaceTables:
    """Read the covariates that ``--covariates`` names: the other service, the stratum, or files.

    Raises RequestError if two covariates have the same name, and DataError if a file has no data.
    """
    from geogp.geodata.covariates import read_covariate  # noqa: PLC0415 - slow

    read = PlaceTables()
    for text in texts:
        if text in SERVICES:
            tables = _service(text, source, region, observations, progress)
            read.covariates.extend(tables.covariates)
            read.files.extend(tables.files)
            read.warnings.extend(tables.warnings)
            continue
        if text == STRATUM:
            known = StratumCovariate(region)
            if np.ptp(known.at(observations.longitude, observations.latitude).value):
                read.covariates.append(RunCovariate(region.strata_names[1], text, known))
            elif region.strata is not None:
                read.warnings.append(
                    f"all rows of {region.name} are in one stratum, so the covariate {STRATUM} is "
                    f"left out."
                )
            continue
        path = Path(text)
        check_name("a name of a file of a covariate", path.stem, RequestError)
        covariate: Covariate
        if path.suffix.lower() in read_covariate.RASTERS or not path.is_file():
            covariate = read_covariate.read_covariate(path)
        else:
            covariate, left_out = read_covariate.read_points(path)
            read.warnings.extend(left_out)
        supported = bool(np.isfinite(covariate.prior_sd))
        added = RunCovariate(path.stem, text, covariate, (path.name,), supported)
        read.covariates.append(_without_gaps(added, observations, read.warnings))
        rows = covariate.rows
        read.files.append(InputFile(path.name, sha256_of(path), rows, rows))
    columns = [*read.names, *OTHER_COLUMNS]
    double = sorted({name for name in columns if columns.count(name) > 1})
    if double:
        raise RequestError(
            f"expected a different name for each column, found {named(double)} more than once. "
            "A covariate has the name of its file, or of the second stratum; rename it."
        )
    return read


def _service(
    service: str, source: Source, region: Region, seen: Observations, progress: Progress
) -> PlaceTables:
    """Return two covariates from the other service: its target, and its number of tests."""
    ingested = read_observations(
        source,
        region,
        service=service,
        target=seen.targets[0],
        quarters=QuarterRequest((), seen.quarters),
        progress=progress,
    )
    other = ingested.observations
    tests = other.tests.astype(np.float64)
    place = other.longitude, other.latitude
    value = PointCovariate(*place, other.y, tests, other.quarter)
    files = tuple(file.name for file in ingested.files)
    covariates = [RunCovariate(service, service, value, files, with_support=True)]
    if np.ptp(tests):
        popular = PointCovariate(*place, np.log10(tests), np.ones(len(tests)), other.quarter)
        covariates.append(RunCovariate(f"{service}_tests", service, popular, files))
    warnings = [f"covariate {service}: {text}" for text in ingested.warnings]
    return PlaceTables(covariates, list(ingested.files), warnings)


def _without_gaps(added: RunCovariate, seen: Observations, warnings: list[str]) -> RunCovariate:
    """Return a covariate with `mean` and `with_gaps` computed from the rows; warn of gaps."""
    if added.with_support:  # kriging has a value everywhere
        return added
    values = added.covariate.at(seen.longitude, seen.latitude).value
    known = np.isfinite(values)
    if not known.any():
        raise DataError(
            f"{added.source} has no data at any of the {len(seen):,} rows of the region. Is it a "
            f"raster of another region?"
        )
    if not known.all():
        warnings.append(
            f"{added.source} has no finite value at {(~known).mean():.1%} of the rows "
            f"({int((~known).sum()):,} of {len(seen):,}). The mean of the other rows replaces it, "
            f"and the column {added.name}_missing marks these rows."
        )
    return replace(added, mean=float(values[known].mean()), with_gaps=not known.all())
