"""One run in preparation: everything read, checked and named before any work is done."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import geogp
from geogp.calibration.conformal import BY_STRATA
from geogp.calibration.splits import BUFFER
from geogp.errors import DataError, RequestError
from geogp.geodata.census import Boundaries, read_region
from geogp.geodata.layers import PolygonLayer, read_layers
from geogp.geodata.observations import Observations
from geogp.geodata.ookla import Ingested, InputFile, read_observations
from geogp.geodata.quadkeys import tile_areas_km2
from geogp.geodata.quarters import parse_quarters, quarter_index, quarter_label
from geogp.geodata.region import Region
from geogp.geodata.sources import open_source
from geogp.machine import tune_process
from geogp.models.catalogue import ModelSpec, find_spec, with_noise
from geogp.models.cox import OFFSET
from geogp.models.noise import NOISES
from geogp.models.training import Data
from geogp.runs import RunFolder
from geogp.settings import MapRequest, Preset, find_preset
from geogp.watcher import Watcher

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class InputScale:
    """How places and quarters become inputs in [-1, 1]^d.

    Attributes
    ----------
    region
        Scales longitude and latitude by its bounding box.
    quarters
        First and last quarter index, scaled to -1 and 1; None for inputs of place alone.
    area_km2
        Area of a tile whose exposure is 1, for counts: the log exposure is one more input.
    """

    region: Region
    quarters: tuple[int, int] | None
    area_km2: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the inputs."""
        time = () if self.quarters is None else ("quarter",)
        return ("longitude", "latitude", *time, *self.offsets)

    @property
    def offsets(self) -> tuple[str, ...]:
        """Names of the inputs that the basis does not see."""
        return () if self.area_km2 is None else (OFFSET,)

    def inputs(self, longitude: Floats, latitude: Floats, quarter: NDArray[np.int64]) -> Floats:
        """Return inputs of shape (n, d), float64."""
        parts = [self.region.scale(longitude, latitude)]
        if self.quarters is not None:
            first, last = self.quarters
            parts.append(((2.0 * quarter - first - last) / (last - first))[:, None])
        if self.area_km2 is not None:
            parts.append(np.log(tile_areas_km2(latitude) / self.area_km2)[:, None])
        return np.hstack(parts)

    @property
    def units(self) -> tuple[float, ...]:
        """Kilometres, and quarters, that one unit of each input stands for."""
        time = () if self.quarters is None else ((self.quarters[1] - self.quarters[0]) / 2,)
        return (*self.region.half_size_km, *time, *(1.0 for _ in self.offsets))

    def described(self) -> dict[str, Any]:
        """Return what a saved model needs to be used again."""
        area = {} if self.area_km2 is None else {"area_km2": self.area_km2}
        return {"bounds": self.region.bounds, "quarters": self.quarters, **area}


COUNT = "count"
"""The question of a map of numbers of tests."""

LEVEL = "level"
"""The question of a map of what measurements scatter around."""


@dataclass(frozen=True)
class Question:
    """What a map predicts.

    Attributes
    ----------
    name
        ``tile-mean``, ``single-test`` or ``level``; ``count`` where tests are counted.
    quarter, latest
        Indices of the quarter shown and of the latest one with data.
    tests
        Tests that the predicted value averages; None for the level, and for models whose noise
        does not depend on them, unless a repair by number of tests makes it.
    """

    name: str
    quarter: int
    latest: int
    tests: int | None

    @property
    def beyond(self) -> int:
        """Quarters that the map lies after the latest data; 0 within them."""
        return max(0, self.quarter - self.latest)

    def words(self) -> str:
        """Return what is predicted, many of them, for notes and legends."""
        if self.name == COUNT:
            return "numbers of tests of a tile in a quarter"
        if self.name == LEVEL:
            return "levels that measurements scatter around"
        if self.tests is None:
            return "new measurements, of as many tests as the data happen to hold"
        return f"tile averages over {self.tests} tests" if self.tests > 1 else "single tests"

    def label(self) -> str:
        """Return the quarter, with that in which the data end where it lies beyond."""
        end = f" (data end in {quarter_label(self.latest)})" if self.beyond else ""
        return f"{quarter_label(self.quarter)}{end}"

    def described(self) -> dict[str, Any]:
        """Return what run.json says of it."""
        return {
            "for": self.name,
            "tests": self.tests,
            "at": quarter_label(self.quarter),
            "quarters_beyond_data": self.beyond,
        }


@dataclass
class Job:
    """One run in progress.

    Attributes
    ----------
    request, preset, watcher
        What was asked for, and who hears of it.
    folder
        Where the run is made.
    boundaries, ingested
        What was read.
    scale
        How rows become inputs.
    device
        Where to compute.
    seconds
        Time spent in each stage.
    warnings
        What the user should know; `warn` adds to them.
    layers, layer_files
        The polygon layers of the user, and the files they come from.
    """

    request: MapRequest
    preset: Preset
    watcher: Watcher
    folder: RunFolder
    boundaries: Boundaries
    ingested: Ingested
    scale: InputScale
    device: torch.device
    seconds: dict[str, float]
    warnings: list[str] = field(default_factory=list)
    layers: tuple[PolygonLayer, ...] = ()
    layer_files: tuple[InputFile, ...] = ()

    @property
    def observations(self) -> Observations:
        """All rows of the region."""
        return self.ingested.observations

    @property
    def region(self) -> Region:
        """What is mapped."""
        return self.boundaries.region

    @property
    def spec(self) -> ModelSpec:
        """The row of the catalogue that is fitted, with the noise asked for."""
        return with_noise(find_spec(self.request.model), self.request.noise)

    @property
    def epochs(self) -> int:
        """Passes over the training rows: the request's, or the preset's."""
        return self.request.epochs or self.preset.epochs

    @property
    def batch(self) -> int:
        """Rows per step, for the eight tenths of the rows that train."""
        n = 8 * len(self.observations) // 10
        return self.spec.step.rows(self.preset.batch_for(n), n)

    def inputs(self, rows: NDArray[np.bool_]) -> Floats:
        """Return the inputs of some of the observations, shape (n, d)."""
        seen = self.observations
        return self.scale.inputs(seen.longitude[rows], seen.latitude[rows], seen.quarter[rows])

    def data(self, rows: NDArray[np.bool_]) -> Data:
        """Return inputs, targets and tests of some of the observations."""
        seen, counted = self.observations, find_spec(self.request.model).counts
        tests = None if counted else seen.tests[rows].astype(np.float64)
        return Data(self.inputs(rows), seen.y[rows], tests)  # type: ignore[arg-type]

    @property
    def question(self) -> Question:
        """What the map predicts."""
        request, spec = self.request, find_spec(self.request.model)
        latest = self.observations.quarters[-1]
        quarter = latest if request.at is None else quarter_index(request.at)
        if spec.counts:
            return Question(COUNT, quarter, latest, None)
        typical = max(1, round(float(np.median(self.observations.tests))))
        tests = 1 if request.question == "single-test" else request.tests or typical
        known = (spec.has_tiles or request.conformal == BY_STRATA) and request.question != LEVEL
        return Question(request.question, quarter, latest, tests if known else None)

    @property
    def refits(self) -> bool:
        """Whether the map's model is fitted apart from those of the splits."""
        return self.preset.refit or "random" not in self.request.splits

    def warn(self, text: str) -> None:
        """Pass a warning on, and keep it for run.json."""
        self.warnings.append(text)
        self.watcher.warn(text)


def prepare(request: MapRequest, watcher: Watcher) -> Job:
    """Read everything, and refuse before any work what cannot be done.

    Raises
    ------
    RequestError, DataError, NetworkError
        As `geogp.workflow.make_map` says.
    """
    tune_process()
    device = pick_device(request.device)
    if request.out is not None:
        RunFolder(request.out).check()
    seconds = dict.fromkeys(("read", "fit", "predict", "write"), 0.0)
    with timed(seconds, "read"):
        watcher.stage("reading boundaries and tiles")
        quarters = parse_quarters(request.quarters) if request.quarters else None
        source, borders = open_source(request.source), open_source(request.boundaries)
        layers, layer_files = read_layers(request.layers)
        boundaries = read_region(borders, request.region)
        if find_spec(request.model).counts:
            watcher.stage(f"numbers of tests are modelled by {request.model}")
        ingested = read_observations(
            source,
            boundaries.region,
            service=request.service,
            target=request.target,
            quarters=quarters,
            progress=lambda done, total, note: watcher.progress("tiles", done, total, note),
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
        watcher,
        RunFolder(request.out or Path("runs") / name),
        boundaries,
        ingested,
        _input_scale(request, region, ingested.observations),
        device,
        seconds,
        layers=layers,
        layer_files=layer_files,
    )
    job.folder.check()
    _check_question(job)
    for text in (*boundaries.warnings, *ingested.warnings):
        job.warn(text)
    return job


def _check_question(job: Job) -> None:
    question, scale = job.question, job.scale
    if question.quarter != question.latest and scale.quarters is None:
        raise RequestError(
            f"--at {quarter_label(question.quarter)} needs a model of time, but the inputs are "
            f"those of place alone; the data are of {quarter_label(question.latest)}"
            f"{' and before' if len(job.observations.quarters) > 1 else ''}."
        )
    first = job.observations.quarters[0]
    if question.quarter < first:
        raise RequestError(
            f"--at {quarter_label(question.quarter)} lies before the data, which start in "
            f"{quarter_label(first)}."
        )
    spec = job.spec
    if question.beyond and not spec.has_tiles:
        raise RequestError(
            f"--at {quarter_label(question.quarter)} lies beyond the data, which end in "
            f"{quarter_label(question.latest)}; "
            + (
                "numbers of tests are mapped within the data only."
                if spec.counts
                else "only the model field says how sure it is there."
            )
        )
    asked = job.request.question == "single-test" or job.request.tests
    if question.tests is None and question.name not in {LEVEL, COUNT} and asked:
        job.warn(
            f"the noise of {spec.name} is the same for any number of tests: the map is that of a "
            "measurement as the data hold them."
        )
    if question.name == LEVEL and spec.step.spread_is_noise:
        job.warn(
            f"the function variance of {spec.name} also carries noise that varies over space: the "
            "intervals of the level are too wide."
        )
    if question.beyond:
        job.warn(
            f"the map shows {quarter_label(question.quarter)}, but the data end in "
            f"{quarter_label(question.latest)}: the level stays as it was, and the intervals grow."
        )


def _input_scale(request: MapRequest, region: Region, observations: Observations) -> InputScale:
    quarters = observations.quarters
    if request.inputs == "place-quarter" and len(quarters) == 1:
        raise RequestError(
            f"the only quarter with data is {quarter_label(quarters[0])}; "
            "--inputs place-quarter needs two or more."
        )
    timeless = request.inputs == "place" or len(quarters) == 1
    ends = None if timeless else (quarters[0], quarters[-1])
    if not find_spec(request.model).counts:
        return InputScale(region, ends)
    return InputScale(region, ends, float(tile_areas_km2(observations.latitude).mean()))


def identity_of(job: Job) -> dict[str, Any]:
    """Return the part of run.json that decides the outcome; `drawing` that of the map alone."""
    request, preset = job.request, asdict(job.preset)
    settings = {
        **preset,
        "noise": request.noise,
        "epochs": job.epochs,
        "tune_weights": request.tune_weights,
        "batch": job.batch,
        "learning_rate": job.preset.learning_rate_for(job.batch),
        "splits": list(request.splits),
        "folds": request.folds,
        "layers": list(request.layers),
        "conformal": request.conformal,
        "inputs": "place" if job.scale.quarters is None else "place-quarter",
        "source": request.source,
        "boundaries": request.boundaries,
        "urban_vintage": job.region.urban_vintage,
        "dtype": "float32",
    }
    if BUFFER.name in request.splits:
        settings["buffer_km"] = request.buffer_km
    if request.budget is not None:
        settings |= {"r": "budget", "budget": request.budget}
    del settings["split"], settings["least_steps"]
    if request.tune_weights:
        settings["weights"] = "validation"
    return {
        "geogp": geogp.__version__,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "device": str(job.device),
        "region": job.region.code,
        "service": request.service,
        "target": request.target,
        "quarters": [quarter_label(q) for q in job.observations.quarters],
        "model": request.model,
        "preset": request.preset,
        "seed": request.seed,
        "settings": settings,
        "drawing": {
            "zoom": request.zoom,
            "far_km": request.far_km,
            "thresholds": [threshold.value for threshold in request.thresholds],
            **job.question.described(),
        },
        "inputs": [
            file.described()
            for file in (*job.boundaries.files, *job.layer_files, *job.ingested.files)
        ],
    }


def flat_settings(identity: dict[str, Any]) -> dict[str, str | int | float]:
    """Return the settings of a run as attributes of a raster."""
    nested = {"settings", "drawing", "inputs", "versions"}
    merged = {k: v for k, v in identity.items() if k not in nested}
    drawing = {f"map_{k}": v for k, v in identity["drawing"].items()}
    flat = {**merged, **identity["settings"], **drawing}
    return {k: v if type(v) in {str, int, float} else json.dumps(v) for k, v in flat.items()}


def pick_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` takes the GPU where there is one.

    Raises
    ------
    RequestError
        ``cuda`` was asked for and there is none.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise RequestError("no CUDA device is available; use --device cpu or auto.")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the time spent inside to one of several counts."""
    start = time.monotonic()
    try:
        yield
    finally:
        seconds[name] += time.monotonic() - start
