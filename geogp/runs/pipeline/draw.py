"""The fourth step of a run: predicts the map, and returns its grid, rasters, figures and page."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.distributions.quantity import Quantity
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_repair import Repair
from geogp.evaluation.splits.split_names import NEAR_KM
from geogp.files import sha256_of, write_bytes
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.places.stratum_names import UNKNOWN
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quadkeys import ZOOM, tiles_to_codes
from geogp.geodata.tiles.quarters import quarter_label
from geogp.maps.figures.map_figures import write_map_figures
from geogp.maps.figures.panels import slices_panels
from geogp.maps.grid import build_grid
from geogp.maps.kernel_slices import KernelSlice
from geogp.maps.one_colour import first_threshold, one_colour
from geogp.maps.page.interactive_page import map_page
from geogp.maps.page.kernel_basis import KernelBasis, kernel_basis
from geogp.maps.page.kernel_error import KernelFeatures
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_quantiles import QuarterMap
from geogp.maps.provider_layers import with_providers
from geogp.maps.qgis_styles import write_styles
from geogp.maps.rasters import LARGE_TILES, has_zarr, write_geotiffs, write_netcdf, write_zarr
from geogp.maps.stac_item import write_item
from geogp.maps.target_layers import with_targets
from geogp.maps.target_quantities import quantity_of
from geogp.maps.tile_table import write_tile_table
from geogp.models.numerics.threads import one_core_each
from geogp.records.input_records import CovariateRecord
from geogp.records.map_settings import MAX_TILES, MapSettings
from geogp.records.record_names import LEVEL
from geogp.records.run_record import FittedRecord, RunMap
from geogp.reports.rendering import say
from geogp.reports.words import own_measurements
from geogp.runs.kept_level import KeptLevel
from geogp.runs.pipeline.fit import Fits
from geogp.runs.pipeline.map_predictor import MapPredictor
from geogp.runs.pipeline.plan import Plan
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.repair import repair_of
from geogp.runs.pipeline.run_model import RunModel
from geogp.runs.pipeline.splits import map_calibration_rows
from geogp.runs.progress import RunListener
from geogp.runs.question import Question
from geogp.runs.run_folder import GRID_FILE, MODEL_FILE
from geogp.runs.run_identity import flat_settings

BESIDE = (
    "Which number to quote: the median and its intervals say what one more measurement of a tile "
    "would show. The level is the value of a place or an area itself, without measurement noise."
)
"""A note on a page that has medians and levels."""


@dataclass(frozen=True)
class MapContent:
    """A map in memory: its raster, the content of its page, and its repair.

    `level` has the tensors of the `KeptLevel`, and `covariates` the entries of run.json.
    """

    question: Question
    grid: xr.Dataset
    page: PageContent
    repair: Repair
    covariates: list[CovariateRecord]
    level: Mapping[str, Tensor]

    @property
    def record(self) -> RunMap:
        """The map's entry in run.json, without the sizes and hashes of files."""
        tiles, others, thresholds = self.page.tiles, self.page.past, self.page.thresholds
        first = first_threshold(self.grid, thresholds)
        tests, distance = self.grid["tests"].to_numpy(), self.grid["distance_km"].to_numpy()
        return RunMap(
            quarter=self.question.at,
            zoom=tiles.zoom,
            tiles=len(tiles),
            measured_tiles=int((tests > 0).sum()),
            near_tiles=int(((tests == 0) & (distance <= NEAR_KM)).sum()),
            far_tiles=int((self.grid["far"].to_numpy() == 1).sum()),
            other_quarters=len(others),
            other_quarters_zoom=others[0].tiles.zoom if others else None,
            first_threshold=None if first is None else first.value,
            one_colour=one_colour(self.grid, thresholds),
            **self.question.record,
        )

    def html(self, attribution: str, notes: Sequence[str], *, base_map: bool) -> str:
        """Return the HTML of the interactive page, with the source of the data and notes."""
        data = page_data(self.grid, self.page)
        beside = [] if data["level"] is None else [BESIDE]
        return map_page(
            data,
            self.page.region,
            self.page.counties,
            attribution=attribution,
            notes=[f"The map predicts {self.question.words()}.", *beside, *notes],
            base_map=base_map,
        )

    def write(self, folder: Path, attribution: str) -> None:
        """Write grid.nc, the GeoTIFFs with their styles, tiles.parquet, item.json and the figures.

        A large map is also written as grid.zarr if zarr is installed. `attribution` names the
        source of the data.
        """
        region, tiles = self.page.region, self.page.tiles
        write_netcdf(self.grid, folder / GRID_FILE)
        write_geotiffs(self.grid, folder)
        write_styles(self.grid, folder)
        write_item(self.grid, folder)
        model = sha256_of(folder / MODEL_FILE)
        KeptLevel.of(folder, model, self.question.at, tiles).write(self.level)
        write_tile_table(
            self.grid,
            tiles,
            folder / "tiles.parquet",
            county=self.page.county_names,
            prediction=self.page.quarters[self.page.shown].prediction,
        )
        if len(tiles) > LARGE_TILES and has_zarr():
            write_zarr(self.grid, folder / "grid.zarr")
        write_map_figures(self.grid, region, folder, quarter=self.question.label())
        title = f"Influence of one place on all other places, {region.heading}"
        target = str(self.grid.attrs["target"])
        kernel = slices_panels(region, tiles, self.page.slices, target=target, title=title)
        write_bytes(folder / "kernel.png", kernel.png(attribution))


def draw_map(inputs: Inputs, plan: Plan, fits: Fits, listener: RunListener) -> MapContent:
    """Predict all tiles of a map with the fitted model, and return the map.

    The zoom is lowered until there are at most a million tiles. The conformal repair corrects
    predicted measurements, but not predicted levels.
    """
    settings, model = plan.model.settings, plan.model.shown(fits.model)
    several = None if model is fits.model else fits.model
    inputs = inputs.of_target(settings.targets[0])
    each = one_core_each() if plan.model.name.has_tiles else nullcontext()
    with listener.timed("predict"), each:
        listener.begin("predict", "predicting the map")
        calibration = map_calibration_rows(settings, inputs)
        repair = repair_of(settings.conformal, inputs, model, calibration)
        zoom = inputs.region.zoom_within(settings.zoom, MAX_TILES)
        inputs.region.check_zoom(zoom)
        tiles = inputs.region.tiles(zoom)
        asker = MapPredictor(inputs, plan.question, model, repair, zoom, several)
        grid, law, level, joint = _grid_with_level(asker, tiles, plan.model, fits.record)
        page = _page(asker, tiles, law, plan.model)
        if joint is not None:
            grid = with_targets(grid, tiles, joint, settings.tiers)
            page = replace(page, joint=joint, tiers=settings.tiers)
        quarter = plan.question.quarter
        covariates = [added.record(tiles, quarter, model) for added in inputs.places.covariates]
    for text in _warnings(grid, law, zoom, settings, inputs.region):
        listener.warn(text)
    if repair.n and plan.question.name == LEVEL:
        listener.warn(say("conformal", "level"))
    return MapContent(plan.question, grid, page, repair, covariates, level)


def _grid_with_level(
    asker: MapPredictor, tiles: Tiles, model: RunModel, record: FittedRecord
) -> tuple[xr.Dataset, Prediction, Mapping[str, Tensor], JointPrediction | None]:
    """Return the raster, the predictions of the map, the level of its tiles, and several targets.

    The predictions of several targets are None for one target.
    """
    nothing: AbstractContextManager[Mapping[str, Tensor]] = nullcontext({})
    with asker.remembering(tiles) if model.keeps_level else nothing as level:
        joint = asker.joint(tiles)
        law = (
            asker.predict(tiles, [asker.question.quarter]) if joint is None else joint.marginals[0]
        )
        speed = asker.level(tiles)
    grid = _grid(asker, tiles, law, model.settings, record, level=speed)
    providers = asker.inputs.providers
    if providers:
        grids = {providers[0]: grid}
        for name in providers[1:]:
            other = replace(asker, question=replace(asker.question, provider=name))
            other_law = other.predict(tiles, [other.question.quarter])
            grids[name] = _grid(other, tiles, other_law, model.settings, record)
        grid = with_providers(grid, grids)
    return grid, law, level, joint


def _grid(
    asker: MapPredictor,
    tiles: Tiles,
    law: Prediction,
    settings: MapSettings,
    record: FittedRecord,
    *,
    level: NDArray[np.float64] | None = None,
) -> xr.Dataset:
    """Return the raster of the predictions for the provider of the map, if there are providers."""
    region, question = asker.inputs.region, asker.question
    rows = asker.inputs.observations.of_provider(question.provider)
    measured = _measured_tiles(rows)
    chosen = {"alpha": record.weights.alpha, "beta": record.weights.beta}
    return build_grid(
        region,
        tiles,
        law,
        target=rows.target,
        distance_km=nearest_km(*tiles.centres, measured.longitude, measured.latitude),
        far_km=settings.far_km,
        measured=tests_on(tiles, rows),
        stratum=region.stratum(*tiles.centres),
        settings={
            **flat_settings(record),
            "target": rows.target,
            "targets": record.target,
            "r": record.rank.r,
            "weights": json.dumps(chosen),
            **asker.inputs.ingested.credits,
            "quarter": question.at,
            "zoom": tiles.zoom,
        },
        thresholds=settings.thresholds,
        level=level,
    )


def _page(asker: MapPredictor, tiles: Tiles, law: Prediction, model: RunModel) -> PageContent:
    """Return the content of the page: the map, other quarters, and the kernel."""
    inputs, question = asker.inputs, asker.question
    region, boundaries = inputs.region, inputs.boundaries
    rows = inputs.observations.of_provider(question.provider)
    quantity = quantity_of(rows.target)
    others = [] if model.scale.times is None else sorted({*rows.quarters} - {question.quarter})
    quarters = asker.other_quarters(tiles, others, model.preset.other_predictions)
    shown = sum(quarter < question.quarter for quarter in others)
    quarters.insert(shown, QuarterMap(question.at, tiles, law))
    averages = None
    if others and not quantity.classes:
        averages = averages_on(tiles, rows, [*others, question.quarter])
    return PageContent(
        region,
        tiles,
        _title(inputs, question, quantity, model.settings.service),
        question.words(),
        tuple(quarters),
        shown,
        reference_slices(inputs, question, asker.model, tiles),
        _kernel(inputs, question, asker.model, tiles),
        model.settings.thresholds,
        boundaries.counties,
        boundaries.urban_areas,
        averages,
    )


def _title(inputs: Inputs, question: Question, quantity: Quantity, service: str) -> str:
    """Return the title of the page: region, quantity and quarter, or what is known of own tests."""
    rows, heading = inputs.observations.of_provider(question.provider), inputs.region.heading
    if inputs.points is None:
        return f"{heading}: {quantity.subject}, {service} networks, {question.label()}"
    subject = f"{quantity.subject[0].upper()}{quantity.subject[1:]}, {question.label()}"
    first, last = rows.quarters[0], rows.quarters[-1]
    place = (
        heading if first == last else f"{quarter_label(first)} to {quarter_label(last)}, {heading}"
    )
    used = sum(file.rows_used for file in inputs.ingested.files)
    return f"{subject}: {own_measurements(used, place)}"


def _warnings(
    grid: xr.Dataset, law: Prediction, zoom: int, settings: MapSettings, region: Region
) -> list[str]:
    """Return warnings of a lower zoom, of missing means and of a missing file."""
    quantity, texts = quantity_of(settings.target), []
    if zoom < settings.zoom:
        texts.append(
            f"{region.name} has more than {MAX_TILES:,} tiles at zoom {settings.zoom}, so the map "
            f"has zoom {zoom}."
        )
    if quantity.scale.logarithmic and not law.has_power_mean:
        texts.append(
            f"the mean of the predicted {quantity.subject} does not exist: the predicted "
            "distribution is Student-t on the log scale, and its tails are too heavy for a mean. "
            "The map shows the median; the layer of the mean is empty."
        )
    else:
        texts += _missing_means(grid, quantity)
    if len(law) > LARGE_TILES and not has_zarr():
        texts.append("grid.zarr is not written: zarr is not installed (pip install 'geogp[zarr]').")
    return texts


def _kernel(
    inputs: Inputs, question: Question, model: SpatialGP, tiles: Tiles
) -> KernelBasis | None:
    """Return the kernel for the page, with few basis functions; None if the kernel is 0.

    Also returns None for an exact process, which has no basis; the page then has only the slices.
    """
    if model.network_.path == "exact":
        return None

    def table(cells: Tiles) -> pd.DataFrame:
        return inputs.places.of_tiles(cells, question.quarter, provider=question.provider)

    features = KernelFeatures(
        lambda cells: model.features(table(cells)),
        lambda cells, others: model.kernel(table(cells), table(others)),
    )
    return kernel_basis(tiles, features)


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
    quantity = quantity_of(seen.target)
    rows = pd.DataFrame(
        {
            "tile": seen.quadkey >> np.uint64(2 * (ZOOM - tiles.zoom)),
            "quarter": seen.quarter,
            "tests": seen.tests,
            "sum": seen.y if quantity.counted else seen.tests * quantity.scale.values(seen.y),
        }
    )
    sums, tests = (
        rows.pivot_table(index="quarter", columns="tile", values=name, aggfunc="sum")
        for name in ("sum", "tests")
    )
    values = sums if quantity.counted else sums / tests
    wanted = tiles_to_codes(tiles.column, tiles.row, tiles.zoom)
    measured = wanted[np.isin(wanted, rows["tile"])]
    return values.reindex(index=sorted(quarters), columns=measured).to_numpy(np.float64)


def reference_slices(
    inputs: Inputs, question: Question, model: SpatialGP, tiles: Tiles
) -> list[KernelSlice]:
    """Return maps of the kernel for a few fixed places, in the quarter of the map."""
    rows = inputs.observations.of_provider(question.provider)
    places = _reference_places(_measured_tiles(rows), tiles)
    _, _, longitude, latitude = map(np.array, zip(*places, strict=True))
    quarter, provider = question.quarter, question.provider
    quarters = np.full(len(places), quarter)
    references = inputs.places.at(longitude, latitude, quarters, provider=provider)
    table = inputs.places.of_tiles(tiles, quarter, provider=provider)
    values = model.kernel(table, references)
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
