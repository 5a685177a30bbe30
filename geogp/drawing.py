"""From a fitted model to the files of a map: grid, rasters, figures and page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.calibration.conformal import Repair
from geogp.calibration.conformal_cells import Places
from geogp.calibration.conformal_words import LEVEL_NOTE
from geogp.errors import DataError
from geogp.files import write_bytes, write_text
from geogp.geodata.distances import nearest_km
from geogp.geodata.layers import PolygonLayer
from geogp.geodata.observations import Observations
from geogp.geodata.quadkeys import ZOOM, codes_to_tiles, tile_centres
from geogp.geodata.quarters import quarter_label
from geogp.geodata.region import RURAL, UNKNOWN, URBAN, Region, Tiles
from geogp.geodata.thresholds import Threshold
from geogp.job import LEVEL, Question
from geogp.maps.figures import kernel_figure, write_map_figures
from geogp.maps.grid import Quantity, build_grid, quantity_of
from geogp.maps.page import map_page
from geogp.maps.rasters import LARGE_TILES, write_geotiffs, write_netcdf, write_zarr
from geogp.maps.slices import KernelSlice
from geogp.maps.tile_table import write_tile_table
from geogp.models.counts import CountPrediction
from geogp.models.lowrank import LowRankGP
from geogp.settings import MOST_TILES

Floats = NDArray[np.float64]
MakeInputs = Callable[[Floats, Floats, NDArray[np.int64]], Floats]


@dataclass(frozen=True)
class Drawing:
    """A map in memory.

    Attributes
    ----------
    region, tiles
        What is mapped.
    grid
        The raster; see `geogp.maps.grid.build_grid`.
    slices
        Kernel slices at three places.
    quarter
        Label of the quarter that the map shows.
    target
        What is mapped.
    question
        What is predicted of it.
    warnings
        What the user should know.
    county
        The county of each tile, where counties are known.
    """

    region: Region
    tiles: Tiles
    grid: xr.Dataset
    slices: list[KernelSlice]
    quarter: str
    target: str
    question: Question
    warnings: tuple[str, ...]
    county: NDArray[np.str_] | None = None

    def described(self) -> dict[str, Any]:
        """Return what run.json says of the map."""
        return {"quarter": self.quarter, "zoom": self.tiles.zoom, "tiles": len(self.tiles)}

    def write(self, folder: Path, notes: list[str], attribution: str) -> None:
        """Write grid.nc, the GeoTIFFs, tiles.parquet, the figures and map.html.

        A large map is written as grid.zarr as well.

        Raises
        ------
        OutputError
            A file cannot be written.
        """
        write_netcdf(self.grid, folder / "grid.nc")
        write_geotiffs(self.grid, folder)
        write_tile_table(self.grid, self.tiles, folder / "tiles.parquet", county=self.county)
        if len(self.tiles) > LARGE_TILES:
            write_zarr(self.grid, folder / "grid.zarr")
        label = self.question.label()
        write_map_figures(self.grid, self.region, folder, quarter=label)
        kernel = kernel_figure(self.region, self.tiles, self.slices, target=self.target)
        write_bytes(folder / "kernel.png", kernel)
        page = map_page(
            self.grid,
            self.region,
            self.tiles,
            title=f"{self.region.name}: {quantity_of(self.target).subject}, {label}",
            kernel_slices=self.slices,
            attribution=attribution,
            predicted=self.question.words(),
            notes=[f"The map predicts {self.question.words()}.", *notes],
        )
        write_text(folder / "map.html", page)


@dataclass(frozen=True)
class _Measured:
    """The distinct measured tiles of all quarters, with their tests summed."""

    longitude: Floats
    latitude: Floats
    tests: NDArray[np.int64]
    stratum: NDArray[np.str_]


def make_drawing(
    region: Region,
    observations: Observations,
    model: LowRankGP,
    make_inputs: MakeInputs,
    *,
    question: Question,
    zoom: int,
    far_km: float,
    settings: dict[str, str | int | float],
    repair: Repair,
    thresholds: tuple[Threshold, ...] = (),
    counties: PolygonLayer | None = None,
) -> Drawing:
    """Predict a region's tiles and lay them out.

    Parameters
    ----------
    region
        What to map.
    observations
        All measured rows; distances and reference places come from them.
    model
        The fitted model.
    make_inputs
        Turns longitude, latitude and quarter, each (n,), into the model's inputs (n, d).
    question
        What to predict, and for which quarter.
    zoom
        Zoom of the map's tiles; dropped while there are more than a million.
    far_km
        Tiles farther than this from any measured tile are marked.
    settings
        Attributes of the grid.
    repair
        Puts predictions of measurements right; the level, which none are of, stays.
    thresholds
        Their probabilities of being met are mapped.
    counties
        The counties of the region, where they are known.

    Raises
    ------
    DataError
        The region has no tile at this zoom.
    """
    used = region.zoom_within(zoom, MOST_TILES)
    tiles = region.tiles(used)
    if not len(tiles):
        raise DataError(f"{region.name} is smaller than a tile of zoom {used}; use a higher zoom.")
    quarter = question.quarter
    longitude, latitude = tiles.centres
    measured = _measured_tiles(observations)
    distance = nearest_km(longitude, latitude, measured.longitude, measured.latitude)
    inputs = make_inputs(longitude, latitude, np.full(len(tiles), quarter))
    prediction = model.predict(inputs, question.tests, level=question.name == LEVEL)
    stratum = region.stratum(longitude, latitude)
    if repair.n and question.name != LEVEL:
        prediction = repair.apply(prediction, _map_places(tiles, question, stratum, observations))
    if isinstance(prediction, CountPrediction):
        prediction = prediction.pooled(4 ** (ZOOM - used))
    grid = build_grid(
        region,
        tiles,
        prediction,
        target=observations.target,
        distance_km=distance,
        far_km=far_km,
        measured=tests_on(tiles, observations),
        stratum=stratum,
        settings={**settings, "quarter": quarter_label(quarter), "zoom": used},
        thresholds=thresholds,
    )
    places = _reference_places(measured, tiles, distance)
    slices = _slices(model, make_inputs, inputs, quarter, places)
    told = []
    if used < zoom:
        told.append(
            f"{region.name} has more than {MOST_TILES:,} tiles of zoom {zoom}; mapped at {used}."
        )
    if not prediction.shape.has_power_mean:
        subject = quantity_of(observations.target).subject
        told.append(
            f"the mean of the predicted {subject} does not exist: its distribution is Student-t on "
            "the log scale, with tails too heavy for one. The median is mapped; the mean holds no "
            "data."
        )
    elif not isinstance(prediction, CountPrediction):
        told += _missing_means(grid, quantity_of(observations.target))
    if repair.n and question.name == LEVEL:
        told.append(LEVEL_NOTE)
    return Drawing(
        region,
        tiles,
        grid,
        slices,
        quarter_label(quarter),
        observations.target,
        question,
        tuple(told),
        None if counties is None else counties.label(longitude, latitude),
    )


def _missing_means(grid: xr.Dataset, quantity: Quantity) -> list[str]:
    """Say where tails are too heavy for a mean."""
    shown = np.isfinite(grid[f"median_{quantity.suffix}"].to_numpy())
    absent = int((shown & ~np.isfinite(grid[f"mean_{quantity.suffix}"].to_numpy())).sum())
    if not absent:
        return []
    text = (
        f"at {absent:,} tiles the predictive distribution has tails too heavy for a mean "
        f"{quantity.subject}; the mean holds no data there."
    )
    return [text]


def _map_places(
    tiles: Tiles, question: Question, stratum: NDArray[np.str_], observations: Observations
) -> Places:
    """Return what a repair may know of the tiles; of unknown tests it takes the median."""
    tests = float(question.tests or np.median(observations.tests))
    return Places(stratum, np.full(len(tiles), tests), *tiles.centres)


def _measured_tiles(observations: Observations) -> _Measured:
    seen = np.flatnonzero(observations.tests)
    _, first, inverse = np.unique(
        observations.quadkey[seen], return_index=True, return_inverse=True
    )
    return _Measured(
        observations.longitude[seen[first]],
        observations.latitude[seen[first]],
        np.bincount(inverse, observations.tests[seen]).astype(np.int64),
        observations.stratum[seen[first]],
    )


def tests_on(tiles: Tiles, observations: Observations) -> NDArray[np.int64]:
    """Sum the tests of all quarters on each tile of the map."""
    column, row = codes_to_tiles(observations.quadkey)
    # Columns follow the region's unwrapped longitudes.
    turns = np.round((observations.longitude - tile_centres(column, row)[0]) / 360).astype(np.int64)
    shift = ZOOM - tiles.zoom
    measured = _key((column + turns * (1 << ZOOM)) >> shift, row >> shift)
    wanted = _key(tiles.column, tiles.row)
    order = np.argsort(wanted)
    at = np.minimum(np.searchsorted(wanted[order], measured), len(order) - 1)
    hit = wanted[order][at] == measured
    return np.bincount(order[at[hit]], observations.tests[hit], minlength=len(tiles)).astype(
        np.int64
    )


def _key(column: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    return (row << 32) + column


@dataclass(frozen=True)
class _Place:
    name: str
    description: str
    longitude: float
    latitude: float


def _reference_places(measured: _Measured, tiles: Tiles, distance: Floats) -> list[_Place]:
    """Choose an urban, a rural and a wildland place.

    The measured tile with most tests, the rural tile with most tests, and the tile of the map
    farthest from any measured one. Without urban areas the second is the tile whose number of
    tests is the median.
    """
    by_tests = np.argsort(-measured.tests, kind="stable")
    known = not np.any(measured.stratum == UNKNOWN)
    places = []
    if known:
        for name in (URBAN, RURAL):
            of_kind = by_tests[measured.stratum[by_tests] == name]
            if len(of_kind):
                text = f"{name} tile with most tests"
                places.append((name, text, int(of_kind[0])))
    else:
        places.append(("most tests", "tile with most tests", int(by_tests[0])))
        middle = int(by_tests[len(by_tests) // 2])
        places.append(("median tests", "tile with the median number of tests", middle))
    chosen = [
        _Place(
            name,
            f"{text} ({measured.tests[at]:,})",
            float(measured.longitude[at]),
            float(measured.latitude[at]),
        )
        for name, text, at in places
    ]
    far = int(np.argmax(distance))
    longitude, latitude = (float(values[far]) for values in tiles.centres)
    text = f"farthest from any measured tile ({distance[far]:.1f} km)"
    return [*chosen, _Place("wildland", text, longitude, latitude)]


def reference_slices(
    model: LowRankGP,
    make_inputs: MakeInputs,
    tiles: Tiles,
    observations: Observations,
    quarter: int,
) -> list[KernelSlice]:
    """Return the slices of a fitted kernel at an urban, a rural and a wildland place.

    Parameters
    ----------
    model, make_inputs, observations
        As for `make_drawing`.
    tiles
        Where the kernel is evaluated.
    quarter
        Of the places and of the tiles.
    """
    longitude, latitude = tiles.centres
    measured = _measured_tiles(observations)
    distance = nearest_km(longitude, latitude, measured.longitude, measured.latitude)
    inputs = make_inputs(longitude, latitude, np.full(len(tiles), quarter))
    places = _reference_places(measured, tiles, distance)
    return _slices(model, make_inputs, inputs, quarter, places)


def _slices(
    model: LowRankGP, make_inputs: MakeInputs, inputs: Floats, quarter: int, places: list[_Place]
) -> list[KernelSlice]:
    """Evaluate k(x, x_ref) on the map's tiles, both in the map's quarter."""
    references = make_inputs(
        np.array([place.longitude for place in places]),
        np.array([place.latitude for place in places]),
        np.full(len(places), quarter),
    )
    values = model.kernel(inputs, references)
    return [
        KernelSlice(
            place.name,
            place.longitude,
            place.latitude,
            values[:, column],
            quarter_label(quarter),
            place.description,
        )
        for column, place in enumerate(places)
    ]
