"""From a fitted model to the files of a map: grid, rasters, figures and page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.distributions.quantity import Quantity
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_repair import Repair
from geogp.files import write_bytes
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quadkeys import ZOOM, codes_to_tiles, tile_centres
from geogp.geodata.tiles.quarters import quarter_label
from geogp.geodata.tiles.thresholds import Threshold
from geogp.maps.figures.map_figures import kernel_figure, write_map_figures
from geogp.maps.grid import build_grid, quantity_of
from geogp.maps.kernel_slices import KernelSlice
from geogp.maps.page.interactive_page import map_page
from geogp.maps.page.kernel_basis import KernelBasis, kernel_basis
from geogp.maps.page.kernel_error import KernelFeatures
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_quantiles import QuarterMap
from geogp.maps.rasters import LARGE_TILES, write_geotiffs, write_netcdf, write_zarr
from geogp.maps.tile_table import write_tile_table
from geogp.records.record_names import LEVEL
from geogp.records.run_record import RunMap
from geogp.reports.rendering import say
from geogp.runs.pipeline.inputs import tile_table
from geogp.runs.pipeline.job import Job
from geogp.runs.pipeline.predicting import Asker
from geogp.runs.pipeline.reference_slices import distance_to_measured, reference_slices
from geogp.runs.question import Question
from geogp.runs.run_folder import GRID_FILE
from geogp.runs.settings import MOST_TILES


@dataclass(frozen=True)
class Drawing:
    """A map in memory.

    Attributes
    ----------
    region, tiles
        What is mapped.
    grid
        The raster; see `build_grid`.
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
    quarters, shown
        Predictions in time order, and which of them the grid is of.
    kernel
        The reduced kernel, or None where it is 0.
    thresholds, counties, urban_areas
        See `make_drawing`.
    """

    region: Region
    tiles: Tiles
    grid: xr.Dataset
    slices: list[KernelSlice]
    quarter: str
    target: str
    question: Question
    warnings: tuple[str, ...]
    quarters: tuple[QuarterMap, ...]
    shown: int
    kernel: KernelBasis | None
    thresholds: tuple[Threshold, ...] = ()
    counties: PolygonLayer | None = None
    urban_areas: PolygonLayer | None = None

    @property
    def record(self) -> RunMap:
        """What run.json says of the map, but for its files."""
        others = [one for place, one in enumerate(self.quarters) if place != self.shown]
        return RunMap(
            quarter=self.quarter,
            zoom=self.tiles.zoom,
            tiles=len(self.tiles),
            other_quarters=len(others),
            other_quarters_zoom=others[0].tiles.zoom if others else None,
            question=self.question.name,
            tests=self.question.tests,
            at=self.question.at,
            quarters_beyond_data=self.question.beyond,
        )

    @cached_property
    def content(self) -> PageContent:
        """What map.html is made of."""
        label = self.question.label()
        return PageContent(
            self.region,
            self.tiles,
            f"{self.region.name}: {quantity_of(self.target).subject}, {label}",
            self.question.words(),
            self.quarters,
            self.shown,
            self.slices,
            self.kernel,
            self.thresholds,
            self.counties,
            self.urban_areas,
        )

    def data(self) -> dict[str, Any]:
        """Return the data of map.html; see `page_data.py`."""
        return page_data(self.grid, self.content)

    def page(self, notes: list[str], attribution: str, *, base_map: bool = True) -> str:
        """Return map.html; without a base map it asks the network for nothing."""
        return map_page(
            self.data(),
            self.region,
            self.counties,
            attribution=attribution,
            notes=[f"The map predicts {self.question.words()}.", *notes],
            base_map=base_map,
        )

    def write(self, folder: Path) -> None:
        """Write grid.nc, the GeoTIFFs, tiles.parquet and the figures.

        A large map is written as grid.zarr as well.

        Raises
        ------
        OutputError
            A file cannot be written.
        """
        write_netcdf(self.grid, folder / GRID_FILE)
        write_geotiffs(self.grid, folder)
        county = self.content.county_names
        write_tile_table(self.grid, self.tiles, folder / "tiles.parquet", county=county)
        if len(self.tiles) > LARGE_TILES:
            write_zarr(self.grid, folder / "grid.zarr")
        write_map_figures(self.grid, self.region, folder, quarter=self.question.label())
        kernel = kernel_figure(self.region, self.tiles, self.slices, target=self.target)
        write_bytes(folder / "kernel.png", kernel)


def draw(
    job: Job, model: SpatialGP, repair: Repair, settings: dict[str, str | int | float]
) -> Drawing:
    """Draw the map that a run asks for; see `make_drawing`.

    Parameters
    ----------
    job
        The run.
    model
        Its fitted model.
    repair, settings
        See `make_drawing`.
    """
    return make_drawing(
        job.region,
        job.observations,
        model,
        question=job.question,
        zoom=job.request.zoom,
        far_km=job.request.far_km,
        settings=settings,
        repair=repair,
        thresholds=job.request.thresholds,
        other_quarters=() if job.scale.times is None else job.observations.quarters,
        counties=job.boundaries.counties,
        urban_areas=job.boundaries.urban_areas,
    )


def make_drawing(
    region: Region,
    observations: Observations,
    model: SpatialGP,
    *,
    question: Question,
    zoom: int,
    far_km: float,
    settings: dict[str, str | int | float],
    repair: Repair,
    thresholds: tuple[Threshold, ...] = (),
    other_quarters: Sequence[int] = (),
    counties: PolygonLayer | None = None,
    urban_areas: PolygonLayer | None = None,
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
    other_quarters
        Quarters beside the question's that the page shows, on coarser tiles.
    counties, urban_areas
        Named polygons that the page shows and finds.

    Raises
    ------
    RequestError
        No tile of this zoom has its centre in the region.
    """
    used = region.zoom_within(zoom, MOST_TILES)
    region.check_zoom(used)
    tiles = region.tiles(used)
    quarter = question.quarter
    longitude, latitude = tiles.centres
    distance = distance_to_measured(tiles, observations)
    asker = Asker(region, observations, model, question, repair, used)
    prediction = asker.predict(tiles, [quarter])
    stratum = region.stratum(longitude, latitude)
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
    slices = reference_slices(model, tiles, observations, quarter)
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
    else:
        told += _missing_means(grid, quantity_of(observations.target))
    if repair.n and question.name == LEVEL:
        told.append(say("conformal", "level"))
    others = sorted(set(other_quarters) - {quarter})
    quarters = asker.other_quarters(tiles, others)
    shown = sum(one < quarter for one in others)
    quarters.insert(shown, QuarterMap(quarter_label(quarter), tiles, prediction))
    return Drawing(
        region,
        tiles,
        grid,
        slices,
        quarter_label(quarter),
        observations.target,
        question,
        tuple(told),
        tuple(quarters),
        shown,
        _kernel(model, tiles, quarter),
        thresholds,
        counties,
        urban_areas,
    )


def _kernel(model: SpatialGP, tiles: Tiles, quarter: int) -> KernelBasis | None:
    """Reduce the kernel in the map's quarter for the page; None where it is 0."""
    asked = KernelFeatures(
        lambda cells: model.features(tile_table(cells, quarter)),
        lambda one, other: model.kernel(tile_table(one, quarter), tile_table(other, quarter)),
    )
    return kernel_basis(tiles, asked)


def _missing_means(grid: xr.Dataset, quantity: Quantity) -> list[str]:
    """Say where tails are too heavy for a mean that float32 holds."""
    name = f"mean_{quantity.suffix}"
    if name not in grid:  # expected numbers of tests are there at every tile
        return []
    shown = np.isfinite(grid[f"median_{quantity.suffix}"].to_numpy())
    absent = int((shown & ~np.isfinite(grid[name].to_numpy())).sum())
    if not absent:
        return []
    text = (
        f"at {absent:,} tiles the tails of the predictive distribution are too heavy for a mean "
        f"{quantity.subject} below {np.finfo(np.float32).max:.2g} {quantity.unit}; the mean holds "
        "no data there."
    )
    return [text]


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
