"""The main job: read, fit, predict, draw and report one map."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.calibration.baseline import count_baseline, quarter_baseline
from geogp.calibration.metrics import score_by_stratum
from geogp.calibration.report import build_report, report_html, report_json, report_markdown
from geogp.calibration.splits import block_split, random_split
from geogp.drawing import make_drawing
from geogp.files import write_bytes, write_text
from geogp.fitting import Fitted, fit_model, take_rank, weights_of
from geogp.geodata.observations import Observations
from geogp.geodata.quadkeys import format_quadkeys
from geogp.geodata.quarters import quarter_label
from geogp.job import Job, flat_settings, identity_of, prepare, timed
from geogp.models.catalogue import find_spec
from geogp.models.lowrank import LowRankGP
from geogp.models.objectives import Weights
from geogp.models.prediction import Prediction
from geogp.models.storage import load_model, save_model
from geogp.runs import MODEL_FILE, PREDICTIONS_FILE, read_run
from geogp.settings import MapRequest
from geogp.watcher import Watcher

Floats = NDArray[np.float64]
Parts = NDArray[np.str_]


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

    A run folder that holds the same fits is used: with the same question nothing is done, with
    another the map alone is drawn anew.

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
        Stopped; the same call continues, with `fresh` unset.
    """
    job = prepare(request, watcher or Watcher())
    identity = identity_of(job)
    if request.fresh:
        job.folder.clear()
    else:
        held = job.folder.finished(identity)
        if held is not None and held.get("drawing") == identity["drawing"]:
            return RunResult(job.folder.path, held, already_there=True)
        if held is not None:
            return _redraw(job, held)
    splits = {name: _split(name, job.observations, request.seed) for name in request.splits}
    job.folder.begin(identity)
    first = next(iter(splits.values()))
    # What any split tests must not choose the weights.
    open_rows = np.logical_and.reduce([parts != "test" for parts in splits.values()])
    before = len(job.warnings)
    weights, chosen = weights_of(
        job, (first == "train") & open_rows, (first == "validation") & open_rows
    )
    rank = take_rank(job, first == "train")
    outcomes = {name: _run_split(job, name, parts, weights) for name, parts in splits.items()}
    final = _map_model(job, outcomes, weights)
    scores = {
        "weights": chosen,
        "rank": rank,
        "n": {name: outcome.n for name, outcome in outcomes.items()},
        "metrics": {name: outcome.metrics for name, outcome in outcomes.items()},
        "baseline": {name: outcome.baseline for name, outcome in outcomes.items()},
        "fit_warnings": job.warnings[before:],
    }
    predictions = pd.concat([outcome.table for outcome in outcomes.values()], ignore_index=True)

    return _complete(
        job,
        scores,
        final.model,
        lambda path: save_model(final.model, path, _model_context(job, final)),
        predictions,
    )


def _redraw(job: Job, held: dict[str, Any]) -> RunResult:
    """Answer another question from the model of a finished run."""
    job.watcher.stage("drawing the map of the fitted model anew")
    _, predictions = read_run(job.folder.path)
    file = job.folder.path / MODEL_FILE
    model = load_model(file)[0].to(job.device)
    content = file.read_bytes()
    for text in held["fit_warnings"]:
        job.warn(text)
    job.seconds["fit"] = held["seconds"]["fit"]
    scores = {
        key: held[key] for key in ("weights", "rank", "n", "metrics", "baseline", "fit_warnings")
    }

    return _complete(job, scores, model, lambda path: write_bytes(path, content), predictions)


def _complete(
    job: Job,
    scores: dict[str, Any],
    model: LowRankGP,
    keep_model: Callable[[Path], None],
    predictions: pd.DataFrame,
) -> RunResult:
    """Draw the map, and write everything into the run folder."""
    identity = identity_of(job)
    chosen = {name: scores["weights"].get(name) for name in ("alpha", "beta")}
    with timed(job.seconds, "predict"):
        job.watcher.stage("predicting the map")
        drawing = make_drawing(
            job.region,
            job.observations,
            model,
            job.scale.inputs,
            question=job.question,
            zoom=job.request.zoom,
            far_km=job.request.far_km,
            settings={
                **flat_settings(identity),
                "r": scores["rank"]["r"],
                "weights": json.dumps(chosen),
                "attribution": job.ingested.attribution,
            },
            thresholds=job.request.thresholds,
        )
    for text in drawing.warnings:
        job.warn(text)
    run = {
        **identity,
        "region_name": job.region.name,
        "quarters_missing": [quarter_label(q) for q in job.ingested.missing],
        **scores,
        "seconds": job.seconds,
        "warnings": job.warnings,
        "map": {**drawing.described(), **job.question.described()},
        "attribution": job.ingested.attribution,
    }

    def write(folder: Path) -> None:
        with timed(job.seconds, "write"):
            job.watcher.stage("writing maps and report")
            keep_model(folder / MODEL_FILE)
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


def _run_split(job: Job, name: str, parts: Parts, weights: Weights) -> _Outcome:
    """Fit on a split's training rows, and score its test rows beside the baseline."""
    observations, test, train = job.observations, parts == "test", parts == "train"
    fitted = fit_model(job, name, train, parts == "validation", weights)
    with timed(job.seconds, "predict"):
        prediction = fitted.model.predict(
            job.inputs(test), observations.tests[test].astype(np.float64)
        )
    y, stratum = observations.y[test], observations.stratum[test]
    yardstick_of = count_baseline if find_spec(job.request.model).counts else quarter_baseline
    reference = yardstick_of(
        observations.quarter[train], observations.y[train], observations.quarter[test]
    )
    if reference.rows_pooled:
        job.warn(
            f"{reference.rows_pooled} test rows ({name} split) lie in quarters with too few "
            "training rows; their baseline is that of all quarters."
        )
    metrics = _scores(prediction, y, stratum)
    yardstick = _scores(reference.prediction, y, stratum)
    for group in losing_groups(metrics, yardstick):
        job.warn(
            f"the model's log score is worse than the baseline's ({name} split, {group}): the "
            "mean of each quarter tells more there than the map."
        )
    return _Outcome(
        fitted,
        parts,
        n={part: int((parts == part).sum()) for part in ("train", "validation", "test")},
        metrics=metrics,
        baseline=yardstick,
        table=_prediction_table(name, observations, test, prediction),
    )


def _map_model(job: Job, outcomes: dict[str, _Outcome], weights: Weights) -> Fitted:
    """Return the model that draws the map: the random split's, or one more fit."""
    if not job.refits:
        return outcomes["random"].fitted
    parts = (
        outcomes["random"].parts
        if "random" in outcomes
        else _split("random", job.observations, job.request.seed)
    )
    validation = parts == "validation"
    return fit_model(job, "map", ~validation, validation, weights)


def _scores(
    prediction: Prediction, y: Floats, stratum: Parts
) -> dict[str, dict[str, float | None]]:
    found = score_by_stratum(prediction, y, stratum)
    return {name: asdict(scores) for name, scores in found.items()}


def losing_groups(
    metrics: dict[str, dict[str, float | None]], baseline: dict[str, dict[str, float | None]]
) -> list[str]:
    """Return the strata in which the log score is worse than the baseline's."""
    pairs = {name: (found["nll"], baseline[name]["nll"]) for name, found in metrics.items()}
    return [
        name
        for name, (own, other) in pairs.items()
        if own is not None and other is not None and own > other
    ]


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
            **prediction.columns(),
            "lower_95": lower,
            "upper_95": upper,
        }
    )


def _model_context(job: Job, final: Fitted) -> dict[str, Any]:
    """Return what a saved model needs to be used and understood later."""
    return {
        "region": job.region.code,
        "target": job.request.target,
        "service": job.request.service,
        "inputs": job.scale.described(),
        "best_epoch": final.state.best_epoch,
        "validation_nll": final.state.best_nll,
    }
