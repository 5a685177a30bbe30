"""Reads all data of a run and checks all settings, before the fits."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from geogp.choices import AVERAGE, check_sample
from geogp.errors import DataError, RequestError
from geogp.estimators.fit_rows import data_of
from geogp.estimators.point_scale import PointScale, covariate_scales, providers_of
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import make_estimator
from geogp.evaluation.conformal.repair_methods import BY_STRATA
from geogp.geodata.places.census import Boundaries
from geogp.geodata.places.layers import PolygonLayer, read_layers
from geogp.geodata.places.region import Region
from geogp.geodata.places.region_choice import file_and_rest
from geogp.geodata.places.stratum_column import UNKNOWN
from geogp.geodata.points.point_tests import PointTests, read_point_tests
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.ookla import Ingested, InputFile, read_observations
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index, quarter_label
from geogp.geodata.tiles.targets import TARGETS, TargetColumn
from geogp.models.catalogue.build import find_spec, with_noise
from geogp.models.names import ModelName, find_model
from geogp.models.numerics.devices import pick_device
from geogp.models.options import DOUBLE, NOISES, Weights
from geogp.models.presets import Preset, find_preset
from geogp.models.process.data import Data
from geogp.records.map_settings import MAX_TILES, MapSettings
from geogp.records.record_names import LEVEL, OTHER_QUESTIONS
from geogp.runs.pipeline.run_covariates import PlaceTables, read_run_covariates
from geogp.runs.progress import PhaseClock, ProgressListener
from geogp.runs.question import Question, check_quarter
from geogp.runs.run_folder import RunFolder

Rows = NDArray[np.bool_]

COLUMNS = {"time": "quarter", "tests": "tests", "devices": "devices", "exposure": "area_km2"}
"""The column of a run's tables for each of these parameters of the estimator."""


@dataclass
class Job:
    """A run in progress; `seconds` is the time of each stage, and `call` is as in `RunNote`."""

    request: MapSettings
    preset: Preset
    listener: ProgressListener
    folder: RunFolder
    boundaries: Boundaries
    ingested: Ingested
    device: torch.device
    seconds: dict[str, float]
    warnings: list[str] = field(default_factory=list)
    layers: tuple[PolygonLayer, ...] = ()
    layer_files: tuple[InputFile, ...] = ()
    call: str | None = None
    places: PlaceTables = field(default_factory=PlaceTables)
    points: PointTests | None = None
    clock: PhaseClock = field(default_factory=PhaseClock)

    @property
    def observations(self) -> Observations:
        """All rows of the region."""
        return self.ingested.observations

    @property
    def mapped(self) -> Observations:
        """The rows of the provider of the map; all rows if the run is not by provider."""
        return self.observations.of_provider(self.places.provider)

    def of_provider(self, name: str) -> "Job":
        """Return the same run with the map of another provider."""
        return replace(self, places=replace(self.places, provider=name))

    @property
    def region(self) -> Region:
        """The region to map."""
        return self.boundaries.region

    @property
    def about(self) -> ModelName:
        """Properties of the model: its name, its family and its abilities."""
        return find_model(self.request.model)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Table of all rows, with the columns that the run's estimator reads."""
        seen = self.observations
        table = self.places.at(seen.longitude, seen.latitude, seen.quarter)
        table = table.assign(tests=seen.tests, devices=seen.devices)
        if seen.provider is not None:
            table["provider"] = seen.provider
        return table if self.about.counts else table.drop(columns="area_km2")

    @property
    def target(self) -> TargetColumn:
        """The target of the run: its columns, its unit and its classes."""
        return TARGETS[self.request.target]

    @cached_property
    def scale(self) -> PointScale:
        """The conversion of rows to model inputs, which is the same for all fits of the run.

        The conversion depends on the box of the region and on all rows. The exposure of a count is
        the area of its tile divided by the mean area. Raises RequestError if the request asks for
        quarters as inputs, but all rows are of one quarter.
        """
        quarters, asked = self.observations.quarters, self.request.inputs
        if asked == "place-quarter" and len(quarters) == 1:
            raise RequestError(
                f"--inputs place-quarter needs data of two quarters or more, but the only quarter "
                f"with data is {quarter_label(quarters[0])}. Choose more quarters, or --inputs "
                f"place."
            )
        timeless = asked == "place" or len(quarters) == 1
        covariates = self.table[self.places.names]
        return PointScale(
            self.region.bounds,
            times=None if timeless else (quarters[0], quarters[-1]),
            exposure=float(self.table["area_km2"].to_numpy().mean()) if self.about.counts else None,
            time_kind=None if timeless else "quarter",
            covariates=covariate_scales(self.places.names, covariates.to_numpy(np.float64)),
            providers=self.providers,
        )

    @property
    def keeps_level(self) -> bool:
        """Whether the run folder keeps the level of single tiles; see `KeptLevel`.

        In single precision, rounding errors decide which rows are near, and the model that was
        fitted and the model from the file have different ones.
        """
        return not self.providers and self.request.precision == DOUBLE

    @cached_property
    def providers(self) -> tuple[str, ...]:
        """The providers of a run by provider, with most rows first; otherwise none."""
        names = self.observations.provider
        return () if names is None else providers_of(names)

    def estimator(
        self, weights: Weights, *, validation: Rows | None = None, epochs: int | None = None
    ) -> SpatialGP:
        """Return an unfitted estimator with the settings of the run, or with other `epochs`."""
        request = self.request
        timeless = {"time": None} if self.scale.times is None else {}
        return make_estimator(
            request.model,
            **COLUMNS | timeless,
            covariates=self.places.names or None,
            provider="provider" if self.providers else None,
            validation="random" if validation is None else validation,
            preset=request.preset,
            epochs=epochs or self.epochs,
            rank=self.preset.r,
            batch=self.batch,
            alpha=weights.alpha,
            beta=weights.beta,
            noise=request.noise,
            classes=len(self.target.classes),
            device=str(self.device),
            random_state=request.seed,
        )

    @property
    def epochs(self) -> int:
        """Number of passes over the training rows: the user's number, or the preset's number."""
        return self.request.epochs or self.preset.epochs

    @property
    def batch(self) -> int:
        """Number of rows per training step, for a training part of 80 % of all rows."""
        n = 8 * len(self.observations) // 10
        spec = with_noise(find_spec(self.request.model), self.request.noise)
        return spec.batch_rows(self.preset.batch_for(n), n)

    def data(self, rows: Rows) -> Data:
        """Return the observations that the mask `rows` selects, as `Data`."""
        points = self.estimator(self.preset.weights).columns().read(self.table[rows])
        return data_of(self.scale, points, self.observations.y[rows])

    @property
    def question(self) -> Question:
        """The predicted quantity and the quarter of the map."""
        request, about = self.request, self.about
        latest = self.observations.quarters[-1]
        quarter = latest if request.at is None else quarter_index(request.at)
        if about.kind != AVERAGE:
            return Question(about.kind, quarter, latest, None)
        typical = max(1, round(float(np.median(self.observations.tests))))
        tests = 1 if request.question == "single-test" else request.tests or typical
        known = (about.has_tiles or request.conformal == BY_STRATA) and request.question != LEVEL
        devices = None
        if about.has_tiles and known:
            devices = request.devices or self.observations.typical_devices(tests)
        provider = self.places.provider
        return Question(
            request.question, quarter, latest, tests if known else None, devices, provider
        )

    @property
    def refits(self) -> bool:
        """Whether the map needs its own fit, in addition to the fits of the splits."""
        return self.preset.refit or "random" not in self.request.splits

    def warn(self, text: str) -> None:
        """Send a warning to the listener, and keep it for run.json."""
        self.warnings.append(text)
        self.listener.warn(text)


def prepare(
    request: MapSettings, listener: ProgressListener, clock: PhaseClock | None = None
) -> Job:
    """Read all data of a request, and return a `Job`; raise the errors of `make_map`."""
    device = pick_device(request.device)
    seconds = dict.fromkeys(("read", "fit", "predict", "write"), 0.0)
    with timed(seconds, "read"):
        listener.stage("reading boundaries and tiles")
        quarters = parse_quarters(request.quarters) if request.quarters else None
        source = open_source(request.source)
        _check_files(request)
        layers, layer_files = read_layers(request.layers, request.crs)
        points = _points(request, listener)
        boundaries = request.place.read(
            points.extent if points and request.place.is_extent else None
        )
        if find_model(request.model).counts:
            listener.stage(f"the model {request.model} predicts numbers of tests")
        ingested = (
            points.observations(boundaries.region, quarters)
            if points
            else read_observations(
                source,
                boundaries.region,
                service=request.service,
                target=request.target,
                quarters=quarters,
                progress=partial(listener.progress, "tiles"),
            )
        )
        places = read_run_covariates(
            request.covariates,
            source,
            boundaries.region,
            ingested.observations,
            partial(listener.progress, "covariates"),
        )
    region, y = boundaries.region, ingested.observations.y
    if y.min() == y.max():
        raise DataError(
            f"the {request.target} has the same value in all {len(y)} rows of {region.name}; "
            "there is nothing to learn."
        )
    parts = [region.code, request.service, request.target, request.model, request.preset]
    name = "-".join(parts if request.noise == NOISES[0] else [*parts, request.noise])
    job = Job(
        request,
        find_preset(request.preset, request.model),
        listener,
        RunFolder(request.out or Path("runs") / name),
        boundaries,
        ingested,
        device,
        seconds,
        layers=layers,
        layer_files=layer_files,
        places=places,
        points=points,
        clock=clock or PhaseClock(),
    )
    if job.providers:
        job.places = replace(places, provider=job.providers[0])
    job.folder.check()
    region.check_zoom(request.zoom)
    _check_strata(job)
    _check_question(job)
    for text in (*boundaries.warnings, *ingested.warnings, *places.warnings):
        job.warn(text)
    seen, counties = job.observations, boundaries.counties
    for layer in layers if counties is None else (counties, *layers):
        for text in layer.warnings:
            job.warn(text)
        overlap = layer.overlap(seen.longitude, seen.latitude, "rows")
        if overlap is not None:
            job.warn(overlap)
    return job


def _check_files(request: MapSettings) -> None:
    """Raise RequestError if a file is missing that is read after the boundaries and the tiles."""
    if request.crs and not (request.region_file or request.strata or request.layers):
        raise RequestError(
            f"--crs {request.crs} describes files of polygons, but there is no --region-file, "
            "--strata or --layer. Leave --crs out."
        )
    named = {"covariates": [one for one in request.covariates if Path(one).is_absolute()]}
    # Other covariates are names, such as a service, or addresses.
    named["strata"] = [] if request.strata is None else [str(file_and_rest(request.strata)[0])]
    for option, paths in named.items():
        for path in paths:
            if not Path(path).exists():
                raise RequestError(f"no file {path}; expected an existing file for --{option}.")


def _points(request: MapSettings, listener: ProgressListener) -> PointTests | None:
    """Return the user's own tests, and tell what was understood; None without such a file."""
    asked = request.own_points
    if asked is None:
        return None
    apart = not request.place.is_extent
    found = read_point_tests(asked, target=request.target, service=request.service, apart=apart)
    for subject, note in found.notes:
        listener.stage(f"{found.path.name}, {subject}: {note}")
    return found


def _check_strata(job: Job) -> None:
    """Raise RequestError if the repair uses strata and some tiles have no stratum."""
    strata = job.region.strata
    if job.request.conformal != BY_STRATA or strata is None or strata.rest is None:
        return
    tiles = job.region.tiles(job.region.zoom_within(job.request.zoom, MAX_TILES))
    lost = int((job.region.stratum(*tiles.centres) == UNKNOWN).sum())
    if lost:
        raise RequestError(
            f"--conformal {BY_STRATA} needs the stratum of every tile, but {lost:,} of "
            f"{len(tiles):,} tiles lie in neither {strata.names[0]} nor {strata.names[1]}. Extend "
            f"the polygons of --strata, or choose --conformal marginal or local."
        )


def _check_question(job: Job) -> None:
    """Raise RequestError if the model cannot predict the requested map; warn of misleading maps."""
    question, request, about = job.question, job.request, job.about
    quarters, timeless = job.observations.quarters, job.scale.times is None
    check_quarter(question.quarter, quarters, about, timeless=timeless)
    check_sample(question.tests, question.devices)
    if request.devices is not None and question.devices is None:
        job.warn(f"the noise of {about.name} does not depend on devices: --devices has no effect.")
    asked = request.question == "single-test" or request.tests or request.devices
    if question.tests is None and question.name not in {LEVEL, *OTHER_QUESTIONS} and asked:
        job.warn(
            f"the noise of {about.name} does not depend on the number of tests: the map predicts "
            "measurements with as many tests as those in the data."
        )
    if question.name == LEVEL and not about.has_spread:
        raise RequestError(
            f"{about.name} does not state the uncertainty of its level, so --for level has no "
            f"intervals. Choose --for tile-mean or --for single-test, or another model."
        )
    if question.name == LEVEL and about.spread_is_noise:
        job.warn(
            f"the function variance of {about.name} also contains noise that varies over space, so "
            "the intervals of the level are too wide."
        )
    if question.beyond:
        job.warn(
            f"the map shows {question.at}, but the data end in {quarter_label(quarters[-1])}: the "
            "predicted level stays constant, and the intervals become wider."
        )


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds spent in the ``with`` block to the entry `name`."""
    start = time.monotonic()
    try:
        yield
    finally:
        seconds[name] += time.monotonic() - start
