"""The first step of a run: reads the region, the rows and all other files."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError
from geogp.estimators.point_scale import providers_of
from geogp.geodata.places.census import Boundaries
from geogp.geodata.places.file_choice import file_and_rest
from geogp.geodata.places.layers import PolygonLayer, read_layers
from geogp.geodata.places.region import Region
from geogp.geodata.points.point_tests import PointTests, read_point_tests
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.ookla import Ingested, InputFile, read_observations
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.targets import find_target
from geogp.maps.page.page_places import town_near
from geogp.models.names import find_model
from geogp.records.input_records import EXTENT
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_covariates import PlaceTables, read_run_covariates
from geogp.runs.progress import RunListener

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Inputs:
    """What a run reads: boundaries, rows, covariates, polygons of reports, and own tests.

    `points` is None if the rows are Ookla's tiles.
    """

    boundaries: Boundaries
    ingested: Ingested
    places: PlaceTables
    layers: tuple[PolygonLayer, ...] = ()
    layer_files: tuple[InputFile, ...] = ()
    points: PointTests | None = None

    @property
    def region(self) -> Region:
        """The region to map."""
        return self.boundaries.region

    @property
    def observations(self) -> Observations:
        """All rows of the region."""
        return self.ingested.observations

    @property
    def files(self) -> list[InputFile]:
        """All files, in the order of run.json."""
        of_places = self.places.files
        return [*self.boundaries.files, *self.layer_files, *self.ingested.files, *of_places]

    def settled(self, settings: MapSettings) -> MapSettings:
        """Return settings with the target that the rows have: for ``signal``, its kind.

        Raises RequestError if a threshold is not in the range of this target.
        """
        return replace(settings, target=self.observations.target)

    def of_target(self, name: str) -> "Inputs":
        """Return the same inputs with the rows of one of several targets."""
        rows, source = self.observations, self.ingested.source_rows
        if rows.every is None:
            return self
        ingested = replace(
            self.ingested, observations=rows.of_target(name), source_rows=source.of_target(name)
        )
        return replace(self, ingested=ingested)

    @property
    def measured(self) -> Floats | pd.DataFrame:
        """The values to which models are fitted: of one target, (n,), or a column for each."""
        rows = self.observations
        return rows.y if rows.every is None else pd.DataFrame(rows.every, columns=rows.targets)

    @cached_property
    def providers(self) -> tuple[str, ...]:
        """The providers of a run by provider, with most rows first; otherwise none."""
        names = self.observations.provider
        return () if names is None else providers_of(names)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Table of all rows, with the columns that the run's estimator reads."""
        rows = self.observations
        place = rows.longitude, rows.latitude, rows.quarter
        table = self.places.at(*place, provider=rows.provider)
        table = table.assign(tests=rows.tests, devices=rows.devices)
        if rows.drive is not None:
            table = table.assign(drive=rows.drive)
        if rows.error_variance is not None:
            table = table.assign(error_variance=rows.error_variance)
        return table if find_target(rows.target).counted else table.drop(columns="area_km2")


def read_inputs(settings: MapSettings, listener: RunListener) -> Inputs:
    """Read all data of a run; raise the errors of `run_map`."""
    with listener.timed("read"):
        listener.begin("read", "reading boundaries and tiles")
        source = open_source(settings.source)
        _check_files(settings)
        layers, layer_files = read_layers(settings.layers, settings.crs)
        points = read_points(settings, listener)
        boundaries, points = _read_region(settings, points, listener)
        region = boundaries.region
        if find_model(settings.model).counts:
            listener.stage(f"the model {settings.model} predicts numbers of tests")
        ingested = read_rows(settings, region, points, listener)
        rows = ingested.observations
        hear = partial(listener.progress, "covariates")
        places = read_run_covariates(settings.covariates, source, region, rows, hear)
    for name in rows.targets:
        values = rows.of_target(name).y
        if values.min() == values.max():
            raise DataError(
                f"the {name} has the same value in all {len(rows)} rows of {region.name}; there is "
                "nothing to learn."
            )
    for text in (*boundaries.warnings, *ingested.warnings, *places.warnings):
        listener.warn(text)
    counties = () if boundaries.counties is None else (boundaries.counties,)
    for layer in (*counties, *layers):
        overlap = layer.overlap(rows.longitude, rows.latitude, "rows")
        for text in layer.warnings if overlap is None else (*layer.warnings, overlap):
            listener.warn(text)
    return Inputs(boundaries, ingested, places, layers, layer_files, points)


def read_rows(
    settings: MapSettings, region: Region, points: PointTests | None, listener: RunListener
) -> Ingested:
    """Return the rows of a region in the quarters of the settings, of `points` or of the source.

    Raises the errors of `PointTests.observations` and `read_observations`.
    """
    quarters = parse_quarters(settings.quarters) if settings.quarters else None
    if points:
        return points.observations(region, quarters)
    return read_observations(
        open_source(settings.source),
        region,
        service=settings.service,
        target=settings.target,
        quarters=quarters,
        progress=partial(listener.progress, "tiles"),
    )


def _read_region(
    settings: MapSettings, points: PointTests | None, listener: RunListener
) -> tuple[Boundaries, PointTests | None]:
    """Return the region, by default the places near the user's own tests, with a note on these."""
    if points is None or not settings.place.is_extent:
        return settings.place.read(), points
    extent = points.extent
    boundaries = settings.place.read(extent.shape, extent.measured)
    note = f"no region was given: the map shows places within {extent.reach_km:.2g} km of a tile "
    note += "with tests"
    if boundaries.on_land:
        note += ", on the land of the states in --boundaries"
    listener.stage(f"{points.path.name}, {EXTENT}: {note}")
    near = town_near(boundaries.region)
    if near is not None and settings.region_name is None:
        region = replace(boundaries.region, name=f"{near} area")
        boundaries = replace(boundaries, region=region)
    return boundaries, replace(points, notes=(*points.notes, (EXTENT, note)))


def _check_files(settings: MapSettings) -> None:
    """Raise RequestError if a file is missing that is read after the boundaries and the tiles."""
    if settings.crs and not (settings.region_file or settings.strata or settings.layers):
        raise RequestError(
            f"--crs {settings.crs} describes files of polygons, but there is no --region-file, "
            "--strata or --layer. Leave --crs out."
        )
    # Other covariates are names, such as a service, or addresses.
    named = {"covariates": [text for text in settings.covariates if Path(text).is_absolute()]}
    named["strata"] = [] if settings.strata is None else [str(file_and_rest(settings.strata)[0])]
    for option, paths in named.items():
        for path in paths:
            if not Path(path).exists():
                raise RequestError(f"no file {path}; expected an existing file for --{option}.")


def read_points(settings: MapSettings, listener: RunListener) -> PointTests | None:
    """Return the user's own tests, and tell what was understood; None without such a file."""
    if settings.own_points is None:
        return None
    points = read_point_tests(
        settings.own_points,
        target=settings.target,
        service=settings.service,
        apart=not settings.place.is_extent,
    )
    for subject, note in points.notes:
        listener.stage(f"{points.path.name}, {subject}: {note}")
    return points
