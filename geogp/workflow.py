"""The main job: read, fit, predict, draw and report one map."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import geogp
from geogp.calibration.baseline import quarter_baseline
from geogp.calibration.metrics import score_by_stratum
from geogp.calibration.report import build_report, report_html, report_json, report_markdown
from geogp.calibration.splits import block_split, random_split
from geogp.drawing import make_drawing
from geogp.errors import RequestError
from geogp.files import write_bytes, write_text
from geogp.geodata.census import Boundaries, read_region
from geogp.geodata.observations import Observations
from geogp.geodata.ookla import Ingested, read_observations
from geogp.geodata.quadkeys import format_quadkeys
from geogp.geodata.quarters import parse_quarters, quarter_label
from geogp.geodata.region import Region
from geogp.geodata.sources import open_source
from geogp.models.catalogue import build
from geogp.models.lowrank import Architecture, LowRankGP
from geogp.models.prediction import Prediction
from geogp.models.storage import save_model
from geogp.models.training import Data, FitSettings, FitState, fit
from geogp.runs import MODEL_FILE, PREDICTIONS_FILE, RunFolder, read_run
from geogp.settings import PRESETS, MapRequest, Preset
from geogp.watcher import Watcher

Floats = NDArray[np.float64]
Parts = NDArray[np.str_]


@dataclass(frozen=True)
class InputScale:
    """How places and quarters become inputs in [-1, 1]^d.

    Attributes
    ----------
    region
        Scales longitude and latitude by its bounding box.
    quarters
        First and last quarter index, scaled to -1 and 1; None for inputs of place alone.
    """

    region: Region
    quarters: tuple[int, int] | None

    @property
    def d(self) -> int:
        """Number of inputs."""
        return 2 if self.quarters is None else 3

    def inputs(self, longitude: Floats, latitude: Floats, quarter: NDArray[np.int64]) -> Floats:
        """Return inputs of shape (n, d), float64."""
        place = self.region.scale(longitude, latitude)
        if self.quarters is None:
            return place
        first, last = self.quarters
        return np.column_stack([place, (2.0 * quarter - first - last) / (last - first)])

    def described(self) -> dict[str, Any]:
        """Return what a saved model needs to be used again."""
        return {"bounds": self.region.bounds, "quarters": self.quarters}


@dataclass(frozen=True)
class Fitted:
    """A fitted model and how its fit went."""

    model: LowRankGP
    state: FitState


@dataclass
class _Job:
    """One run in progress."""

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

    @property
    def observations(self) -> Observations:
        return self.ingested.observations

    @property
    def region(self) -> Region:
        return self.boundaries.region

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.watcher.warn(text)


@dataclass(frozen=True)
class RunResult:
    """A finished run: its folder, and the content of its run.json.

    `already_there` tells that nothing had to be done.
    """

    path: Path
    run: dict[str, Any]
    already_there: bool = False


def make_map(request: MapRequest, watcher: Watcher | None = None) -> RunResult:
    """Make one map with its report: the whole main job.

    Parameters
    ----------
    request
        What to map and how.
    watcher
        Hears of stages, progress and warnings.

    Returns
    -------
    RunResult
        The run folder, with all files in it.

    Raises
    ------
    RequestError
        The request cannot be met: an unknown name, an output path that is a file, a run folder
        that holds another run.
    DataError
        The data are wrong or missing.
    NetworkError
        A remote source failed.
    OutputError
        The results could not be written; the fit is kept and the same call continues.
    KeyboardInterrupt
        Stopped; the same call continues.
    """
    job = _prepare(request, watcher or Watcher())
    identity = _identity(job)
    if request.fresh:
        job.folder.clear()
    else:
        held = job.folder.finished(identity)
        if held is not None:
            return RunResult(job.folder.path, held, already_there=True)
    splits = {name: _split(name, job.observations, request.seed) for name in request.splits}
    job.folder.begin(identity)
    outcomes = {name: _run_split(job, name, parts) for name, parts in splits.items()}
    final = _map_model(job, outcomes)
    with _timed(job.seconds, "predict"):
        job.watcher.stage("predicting the map")
        drawing = make_drawing(
            job.region,
            job.observations,
            final.model,
            job.scale.inputs,
            zoom=request.zoom,
            far_km=request.far_km,
            settings=_flat_settings(identity),
        )
    for text in drawing.warnings:
        job.warn(text)
    run = {
        **identity,
        "region_name": job.region.name,
        "quarters_missing": [quarter_label(q) for q in job.ingested.missing],
        "n": {name: outcome.n for name, outcome in outcomes.items()},
        "seconds": job.seconds,
        "device": str(job.device),
        "warnings": job.warnings,
        "metrics": {name: outcome.metrics for name, outcome in outcomes.items()},
        "baseline": {name: outcome.baseline for name, outcome in outcomes.items()},
        "map": drawing.described(),
        "attribution": job.ingested.attribution,
    }
    predictions = pd.concat([outcome.table for outcome in outcomes.values()], ignore_index=True)

    def write(folder: Path) -> None:
        with _timed(job.seconds, "write"):
            job.watcher.stage("writing maps and report")
            save_model(final.model, folder / MODEL_FILE, _model_context(job, final))
            table = predictions.to_parquet(index=False, compression="zstd")
            write_bytes(folder / PREDICTIONS_FILE, table)
            drawing.write(folder, job.warnings, job.ingested.attribution)
            write_report(folder, run, predictions)

    job.folder.complete(write, run)
    return RunResult(job.folder.path, run)


def remake_report(path: Path) -> RunResult:
    """Write the report of a finished run again, from run.json and the test predictions.

    Raises
    ------
    RequestError
        The folder is not a finished run.
    DataError
        A file is damaged, or the predictions contradict the figures in run.json.
    OutputError
        The report cannot be written.
    """
    run, predictions = read_run(path)
    write_report(path, run, predictions)
    return RunResult(path, run)


def write_report(folder: Path, run: dict[str, Any], predictions: pd.DataFrame) -> None:
    """Write report.json, report.md and report.html into a folder; see `build_report`."""
    report = build_report(run, predictions)
    write_text(folder / "report.json", report_json(report))
    write_text(folder / "report.md", report_markdown(report))
    write_text(folder / "report.html", report_html(report, predictions))


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


def _prepare(request: MapRequest, watcher: Watcher) -> _Job:
    """Read everything, and refuse before any work what cannot be done."""
    torch.set_flush_denormal(True)
    device = pick_device(request.device)
    if request.out is not None:
        RunFolder(request.out).check()
    seconds = dict.fromkeys(("read", "fit", "predict", "write"), 0.0)
    with _timed(seconds, "read"):
        watcher.stage("reading boundaries and tiles")
        quarters = parse_quarters(request.quarters) if request.quarters else None
        source, borders = open_source(request.source), open_source(request.boundaries)
        boundaries = read_region(borders, request.region)
        ingested = read_observations(
            source,
            boundaries.region,
            service=request.service,
            target=request.target,
            quarters=quarters,
        )
    region = boundaries.region
    name = f"{region.code}-{request.service}-{request.target}-{request.model}-{request.preset}"
    job = _Job(
        request,
        PRESETS[request.preset],
        watcher,
        RunFolder(request.out or Path("runs") / name),
        boundaries,
        ingested,
        _input_scale(request, region, ingested.observations),
        device,
        seconds,
    )
    job.folder.check()
    for text in (*boundaries.warnings, *ingested.warnings):
        job.warn(text)
    return job


def _input_scale(request: MapRequest, region: Region, observations: Observations) -> InputScale:
    quarters = observations.quarters
    if request.inputs == "place-quarter" and len(quarters) == 1:
        raise RequestError(
            f"the only quarter with data is {quarter_label(quarters[0])}; "
            "--inputs place-quarter needs two or more."
        )
    if request.inputs == "place" or len(quarters) == 1:
        return InputScale(region, None)
    return InputScale(region, (quarters[0], quarters[-1]))


def _identity(job: _Job) -> dict[str, Any]:
    """Return the part of run.json that decides the outcome."""
    request, preset = job.request, asdict(job.preset)
    settings = {
        **preset,
        "epochs": _epochs(job),
        "batch": _batch(job),
        "learning_rate": job.preset.learning_rate_for(_batch(job)),
        "splits": list(request.splits),
        "inputs": "place" if job.scale.quarters is None else "place-quarter",
        "zoom": request.zoom,
        "far_km": request.far_km,
        "source": request.source,
        "boundaries": request.boundaries,
        "urban_vintage": job.region.urban_vintage,
        "dtype": "float32",
    }
    del settings["split"], settings["least_steps"]
    return {
        "geogp": geogp.__version__,
        "region": job.region.code,
        "service": request.service,
        "target": request.target,
        "quarters": [quarter_label(q) for q in job.observations.quarters],
        "model": request.model,
        "preset": request.preset,
        "seed": request.seed,
        "settings": settings,
        "inputs": [asdict(file) for file in (*job.boundaries.files, *job.ingested.files)],
    }


def _flat_settings(identity: dict[str, Any]) -> dict[str, str | int | float]:
    """Return the settings of a run as attributes of a raster."""
    merged = {k: v for k, v in identity.items() if k not in {"settings", "inputs"}}
    flat = {**merged, **identity["settings"]}
    return {k: v if type(v) in {str, int, float} else json.dumps(v) for k, v in flat.items()}


def _split(name: str, observations: Observations, seed: int) -> Parts:
    if name == "random":
        return random_split(observations.quadkey, observations.quarter, seed)
    return block_split(observations.longitude, observations.latitude, seed)


@dataclass(frozen=True)
class _Outcome:
    """What a split gave."""

    fitted: Fitted
    parts: Parts
    n: dict[str, int]
    metrics: dict[str, dict[str, float | None]]
    baseline: dict[str, dict[str, float | None]]
    table: pd.DataFrame


def _run_split(job: _Job, name: str, parts: Parts) -> _Outcome:
    """Fit on a split's training rows, and score its test rows beside the baseline."""
    observations, test, train = job.observations, parts == "test", parts == "train"
    fitted = _fit(job, name, train, parts == "validation")
    with _timed(job.seconds, "predict"):
        prediction = fitted.model.predict(_inputs(job, test))
    y, stratum = observations.y[test], observations.stratum[test]
    reference = quarter_baseline(
        observations.quarter[train], observations.y[train], observations.quarter[test]
    )
    return _Outcome(
        fitted,
        parts,
        n={part: int((parts == part).sum()) for part in ("train", "validation", "test")},
        metrics=_scores(prediction, y, stratum),
        baseline=_scores(reference.prediction, y, stratum),
        table=_prediction_table(name, observations, test, prediction),
    )


def _map_model(job: _Job, outcomes: dict[str, _Outcome]) -> Fitted:
    """Return the model that draws the map: the random split's, or one more fit."""
    if "random" in outcomes and not job.preset.refit:
        return outcomes["random"].fitted
    parts = (
        outcomes["random"].parts
        if "random" in outcomes
        else _split("random", job.observations, job.request.seed)
    )
    validation = parts == "validation"
    return _fit(job, "map", ~validation, validation)


def _fit(job: _Job, name: str, train: NDArray[np.bool_], validation: NDArray[np.bool_]) -> Fitted:
    """Fit the requested model, continuing from its checkpoint where there is one."""
    preset, request = job.preset, job.request
    job.watcher.stage(f"fitting {request.model} ({name})")
    sizes = Architecture(d=job.scale.d, h=preset.h, r=preset.r)
    rows = Data(_inputs(job, train), job.observations.y[train])
    held = Data(_inputs(job, validation), job.observations.y[validation])
    model = build(
        request.model,
        sizes,
        torch.from_numpy(rows.x),
        placement=preset.placement,
        seed=request.seed,
    ).to(job.device)
    settings = FitSettings(
        epochs=_epochs(job),
        batch=_batch(job),
        learning_rate=preset.learning_rate_for(_batch(job)),
        decay=preset.decay,
        weights=preset.weights,
        seed=request.seed,
    )

    def progress(state: FitState, epochs: int) -> None:
        note = f"validation log score {state.validation_nll[-1]:.4f}"
        job.watcher.progress(f"fit ({name})", state.epoch, epochs, note)

    checkpoint = job.folder.unfinished / f"{name}.safetensors"
    state = fit(model, rows, held, settings, checkpoint=checkpoint, progress=progress)
    job.seconds["fit"] += state.seconds
    return Fitted(model, state)


def _epochs(job: _Job) -> int:
    return job.request.epochs or job.preset.epochs


def _batch(job: _Job) -> int:
    return job.preset.batch_for(8 * len(job.observations) // 10)


def _inputs(job: _Job, rows: NDArray[np.bool_]) -> Floats:
    seen = job.observations
    return job.scale.inputs(seen.longitude[rows], seen.latitude[rows], seen.quarter[rows])


def _scores(
    prediction: Prediction, y: Floats, stratum: Parts
) -> dict[str, dict[str, float | None]]:
    found = score_by_stratum(prediction, y, stratum)
    return {name: asdict(scores) for name, scores in found.items()}


def _prediction_table(
    split: str, observations: Observations, rows: NDArray[np.bool_], prediction: Prediction
) -> pd.DataFrame:
    """Return the test rows with their predictions, in the columns other programs expect."""
    lower, upper = prediction.interval(0.95)
    return pd.DataFrame(
        {
            "split": split,
            "quadkey": format_quadkeys(observations.quadkey[rows]),
            "quarter": [quarter_label(q) for q in observations.quarter[rows].tolist()],
            "longitude": observations.longitude[rows],
            "latitude": observations.latitude[rows],
            "y": observations.y[rows],
            "tests": observations.tests[rows],
            "stratum": observations.stratum[rows],
            "mean": prediction.mean,
            "function_variance": prediction.function_variance,
            "noise_variance": prediction.noise_variance,
            "lower_95": lower,
            "upper_95": upper,
        }
    )


def _model_context(job: _Job, final: Fitted) -> dict[str, Any]:
    """Return what a saved model needs to be used and understood later."""
    return {
        "region": job.region.code,
        "target": job.request.target,
        "service": job.request.service,
        "inputs": job.scale.described(),
        "best_epoch": final.state.best_epoch,
        "validation_nll": final.state.best_nll,
    }


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    finally:
        seconds[name] += time.monotonic() - start
