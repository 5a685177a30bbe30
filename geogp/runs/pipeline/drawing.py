"""Makes the files of a map from a fitted model: grid, rasters, figures and page."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.distributions.quantity import Quantity
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_repair import Repair
from geogp.files import sha256_of, write_bytes
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.region import Tiles
from geogp.geodata.places.stratum_column import UNKNOWN
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quadkeys import ZOOM, tiles_to_codes
from geogp.maps.figures.map_figures import write_map_figures
from geogp.maps.figures.panels import slices_panels
from geogp.maps.grid import build_grid
from geogp.maps.kernel_slices import KernelSlice
from geogp.maps.page.interactive_page import map_page
from geogp.maps.page.kernel_basis import KernelBasis, kernel_basis
from geogp.maps.page.kernel_error import KernelFeatures
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_quantiles import QuarterMap
from geogp.maps.provider_layers import with_providers
from geogp.maps.qgis_styles import write_styles
from geogp.maps.rasters import LARGE_TILES, has_zarr, write_geotiffs, write_netcdf, write_zarr
from geogp.maps.stac_item import write_item
from geogp.maps.target_quantities import quantity_of
from geogp.maps.tile_table import write_tile_table
from geogp.records.map_settings import MAX_TILES
from geogp.records.record_names import LEVEL
from geogp.records.run_record import RunMap
from geogp.reports.rendering import say
from geogp.runs.kept_level import KeptLevel
from geogp.runs.pipeline.job import Job
from geogp.runs.pipeline.predicting import MapPredictor
from geogp.runs.run_folder import GRID_FILE, MODEL_FILE


@dataclass(frozen=True)
class Drawing:
    """A map in memory: its job, its raster, the content of its page, and warnings.

    `level` has the tensors of the `KeptLevel`.
    """

    job: Job
    grid: xr.Dataset
    content: PageContent
    warnings: list[str]
    level: Mapping[str, Tensor]

    @property
    def record(self) -> RunMap:
        """The map's entry in run.json, without the sizes and hashes of files."""
        content, question = self.content, self.job.question
        others = content.past
        return RunMap(
            quarter=question.at,
            zoom=content.tiles.zoom,
            tiles=len(content.tiles),
            far_tiles=int((self.grid["far"].to_numpy() == 1).sum()),
            other_quarters=len(others),
            other_quarters_zoom=others[0].tiles.zoom if others else None,
            **question.record,
        )

    def page(self) -> str:
        """Return the HTML of the interactive page, with the warnings of the job as notes."""
        job = self.job
        return map_page(
            page_data(self.grid, self.content),
            job.region,
            job.boundaries.counties,
            attribution=job.ingested.attribution,
            notes=[f"The map predicts {job.question.words()}.", *job.warnings],
            base_map=not job.request.self_contained,
        )

    def write(self, folder: Path) -> None:
        """Write grid.nc, the GeoTIFFs with their styles, tiles.parquet, item.json and the figures.

        A large map is also written as grid.zarr if zarr is installed.
        """
        content, job = self.content, self.job
        write_netcdf(self.grid, folder / GRID_FILE)
        write_geotiffs(self.grid, folder)
        write_styles(self.grid, folder)
        write_item(self.grid, folder)
        tiles, county = content.tiles, content.county_names
        model = sha256_of(folder / MODEL_FILE)
        KeptLevel.of(folder, model, job.question.at, tiles).write(self.level)
        write_tile_table(self.grid, tiles, folder / "tiles.parquet", county=county)
        if len(tiles) > LARGE_TILES and has_zarr():
            write_zarr(self.grid, folder / "grid.zarr")
        write_map_figures(self.grid, job.region, folder, quarter=job.question.label())
        title = f"Influence of one place on all other places, {job.region.name}"
        kernel = slices_panels(
            job.region, tiles, content.slices, target=job.request.target, title=title
        )
        write_bytes(folder / "kernel.png", kernel.png(job.ingested.attribution))


def draw(
    job: Job, model: SpatialGP, repair: Repair, settings: dict[str, str | int | float]
) -> Drawing:
    """Predict all tiles of a map, and return the map.

    The zoom is lowered until there are at most a million tiles. `settings` become attributes of the
    grid. `repair` corrects predicted measurements, but not predicted levels.
    """
    region, seen, question, request = job.region, job.mapped, job.question, job.request
    zoom = region.zoom_within(request.zoom, MAX_TILES)
    region.check_zoom(zoom)
    tiles = region.tiles(zoom)
    asker = MapPredictor(job, model, repair, zoom)
    nothing: AbstractContextManager[Mapping[str, Tensor]] = nullcontext({})
    with asker.remembering(tiles) if job.keeps_level else nothing as level:
        prediction = asker.predict(tiles, [question.quarter])
    quantity = quantity_of(seen.target)
    grid = _grid(job, tiles, prediction, settings)
    grids = {job.places.provider: grid}
    for name in job.providers[1:]:
        other = job.of_provider(name)
        found = MapPredictor(other, model, repair, zoom).predict(tiles, [question.quarter])
        grids[name] = _grid(other, tiles, found, settings)
    if job.providers:
        grid = with_providers(grid, {str(name): one for name, one in grids.items()})
    texts = []
    if zoom < request.zoom:
        texts.append(
            f"{region.name} has more than {MAX_TILES:,} tiles at zoom {request.zoom}, so the map "
            f"has zoom {zoom}."
        )
    if not prediction.has_power_mean:
        texts.append(
            f"the mean of the predicted {quantity.subject} does not exist: the predicted "
            "distribution is Student-t on the log scale, and its tails are too heavy for a mean. "
            "The map shows the median; the layer of the mean is empty."
        )
    else:
        texts += _missing_means(grid, quantity)
    if len(tiles) > LARGE_TILES and not has_zarr():
        texts.append("grid.zarr is not written: zarr is not installed (pip install 'geogp[zarr]').")
    if repair.n and question.name == LEVEL:
        texts.append(say("conformal", "level"))
    others = [] if job.scale.times is None else sorted({*seen.quarters} - {question.quarter})
    quarters = asker.other_quarters(tiles, others)
    shown = sum(one < question.quarter for one in others)
    quarters.insert(shown, QuarterMap(question.at, tiles, prediction))
    content = PageContent(
        region,
        tiles,
        f"{region.name}: {quantity.subject}, {question.label()}",
        question.words(),
        tuple(quarters),
        shown,
        reference_slices(job, model, tiles),
        _kernel(job, model, tiles),
        request.thresholds,
        job.boundaries.counties,
        job.boundaries.urban_areas,
        averages_on(tiles, seen, [*others, question.quarter])
        if others and not quantity.classes
        else None,
    )
    return Drawing(job, grid, content, texts, level)


def _grid(
    job: Job, tiles: Tiles, prediction: Prediction, settings: dict[str, str | int | float]
) -> xr.Dataset:
    """Return the raster of the predictions for the provider of the map, if there are providers."""
    region, seen = job.region, job.mapped
    measured = _measured_tiles(seen)
    return build_grid(
        region,
        tiles,
        prediction,
        target=seen.target,
        distance_km=nearest_km(*tiles.centres, measured.longitude, measured.latitude),
        far_km=job.request.far_km,
        measured=tests_on(tiles, seen),
        stratum=region.stratum(*tiles.centres),
        settings={**settings, "quarter": job.question.at, "zoom": tiles.zoom},
        thresholds=job.request.thresholds,
    )


def _kernel(job: Job, model: SpatialGP, tiles: Tiles) -> KernelBasis | None:
    """Return the kernel for the page, with few basis functions; None if the kernel is 0."""

    def table(cells: Tiles) -> pd.DataFrame:
        return job.places.of_tiles(cells, job.question.quarter)

    asked = KernelFeatures(
        lambda cells: model.features(table(cells)),
        lambda one, other: model.kernel(table(one), table(other)),
    )
    return kernel_basis(tiles, asked)


def _missing_means(grid: xr.Dataset, quantity: Quantity) -> list[str]:
    """Return a warning if the predicted mean of some tiles is too large for float32."""
    name = f"mean_{quantity.suffix}"
    if name not in grid:  # maps of counts and classes show other values, which every tile has
        return []
    shown = np.isfinite(grid[f"median_{quantity.suffix}"].to_numpy())
    absent = int((shown & ~np.isfinite(grid[name].to_numpy())).sum())
    if not absent:
        return []
    text = (
        f"the layer of the mean is empty at {absent:,} tiles, because the predictive distribution "
        f"has such heavy tails that the mean {quantity.subject} is above "
        f"{np.finfo(np.float32).max:.2g} {quantity.unit}."
    )
    return [text]


def tests_on(tiles: Tiles, observations: Observations) -> NDArray[np.int64]:
    """Return the number of tests on each tile, summed over all quarters, (n,)."""
    measured = observations.quadkey >> np.uint64(2 * (ZOOM - tiles.zoom))
    wanted = tiles_to_codes(tiles.column, tiles.row, tiles.zoom)
    total = pd.Series(observations.tests).groupby(measured).sum()
    return total.reindex(wanted, fill_value=0).to_numpy(np.int64)


def averages_on(
    tiles: Tiles, observations: Observations, quarters: Sequence[int]
) -> NDArray[np.float64]:
    """Return averages of all tests in each quarter and each tile with tests, (q, m), NaN if none.

    For numbers of tests, the values are sums.
    """
    seen = observations.taken(np.flatnonzero(observations.tests))
    counted = quantity_of(seen.target).counted
    rows = pd.DataFrame(
        {
            "tile": seen.quadkey >> np.uint64(2 * (ZOOM - tiles.zoom)),
            "quarter": seen.quarter,
            "tests": seen.tests,
            "sum": seen.y if counted else seen.tests * 10**seen.y,
        }
    )
    sums, tests = (
        rows.pivot_table(index="quarter", columns="tile", values=name, aggfunc="sum")
        for name in ("sum", "tests")
    )
    found = sums if counted else sums / tests
    wanted = tiles_to_codes(tiles.column, tiles.row, tiles.zoom)
    measured = wanted[np.isin(wanted, rows["tile"])]
    return found.reindex(index=sorted(quarters), columns=measured).to_numpy(np.float64)


def reference_slices(job: Job, model: SpatialGP, tiles: Tiles) -> list[KernelSlice]:
    """Return maps of the kernel for a few fixed places, in the quarter of the map."""
    places = _reference_places(_measured_tiles(job.mapped), tiles)
    _, _, longitude, latitude = map(np.array, zip(*places, strict=True))
    question = job.question
    references = job.places.at(longitude, latitude, np.full(len(places), question.quarter))
    values = model.kernel(job.places.of_tiles(tiles, question.quarter), references)
    return [
        KernelSlice(name, x, y, values[:, column], question.at, text)
        for column, (name, text, x, y) in enumerate(places)
    ]


def _measured_tiles(observations: Observations) -> Observations:
    """Return one row for each measured tile, with the tile's number of tests in all quarters."""
    seen = np.flatnonzero(observations.tests)
    _, first, tile = np.unique(observations.quadkey[seen], return_index=True, return_inverse=True)
    tests = np.bincount(tile, observations.tests[seen]).astype(np.int64)
    return replace(observations.taken(seen[first]), tests=tests)


def _reference_places(measured: Observations, tiles: Tiles) -> list[tuple[str, str, float, float]]:
    """Return the fixed places of the kernel slices: one per stratum, and one far from all data.

    The place of a stratum is the measured tile with most tests. The place called wildland is the
    tile of the map farthest from all measured tiles. Without strata, the other places are the tile
    with most tests and the tile with the median number of tests.
    """
    by_tests = np.argsort(-measured.tests, kind="stable")
    chosen = []
    if np.any(measured.stratum != UNKNOWN):
        for name in measured.strata:
            of_kind = by_tests[measured.stratum[by_tests] == name]
            if len(of_kind):
                chosen.append((name, f"{name} tile with most tests", of_kind[0]))
    else:
        chosen.append(("most tests", "tile with most tests", by_tests[0]))
        middle = by_tests[len(by_tests) // 2]
        chosen.append(("median tests", "tile with the median number of tests", middle))
    places = [
        (
            name,
            f"{text} ({measured.tests[at]:,})",
            float(measured.longitude[at]),
            float(measured.latitude[at]),
        )
        for name, text, at in chosen
    ]
    distance = nearest_km(*tiles.centres, measured.longitude, measured.latitude)
    far = int(np.argmax(distance))
    longitude, latitude = (float(values[far]) for values in tiles.centres)
    text = f"farthest from any measured tile ({distance[far]:.1f} km)"
    return [*places, ("wildland", text, longitude, latitude)]
