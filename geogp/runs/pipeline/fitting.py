"""The fits of one run: from a job's rows to a model, and the choice of its weights."""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.files import read_json, write_text
from geogp.models.catalogue.build_model import build
from geogp.models.core.architecture import Architecture
from geogp.models.core.lowrank import LowRankGP
from geogp.models.core.memory import check_memory
from geogp.models.core.options import Weights
from geogp.models.training.budget import rank_for
from geogp.models.training.few_rows import FOLDS, are_few, check_places, count_places, widen
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_loop import Data, FitState, fit
from geogp.models.training.tuning import TUNING_EPOCHS, Trial, choose_weights
from geogp.runs.machine import cores_here
from geogp.runs.pipeline.job import Job, timed

Rows = NDArray[np.bool_]

WEIGHTS_FILE = "weights.json"
RANK_FILE = "rank.json"

THREADS = "threads"
"""Key of run.json: how many threads the fits were begun with. It tells no run from another."""


@dataclass(frozen=True)
class Fitted:
    """A fitted model and how its fit went."""

    model: LowRankGP
    state: FitState


def fit_model(job: Job, name: str, train: Rows, validation: Rows, weights: Weights) -> Fitted:
    """Fit the requested model, continuing from its checkpoint where there is one.

    Parameters
    ----------
    job
        The run.
    name
        Of the fit, for its checkpoint.
    train, validation
        Rows to learn from, and rows that choose the epoch, among the job's observations.
    weights
        alpha and beta of the objective.

    Raises
    ------
    DataError, NumericalError
        As `fit` says.
    """
    job.watcher.stage(f"fitting {job.request.model} ({name})")
    rows, held = job.data(train), job.data(validation)

    def progress(state: FitState, epochs: int) -> None:
        note = f"validation log score {state.validation_nll[-1]:.4f}"
        job.watcher.progress(f"fit ({name})", state.epoch, epochs, note)

    known = rows.joined(held)
    few = are_few(known) and not job.about.counts
    if few:
        check_places(known)
    checkpoint = job.folder.unfinished / f"{name}.safetensors"
    model = _build(job, rows, job.warn)
    settings = _settings(job, weights, job.epochs)
    state = fit(model, rows, held, settings, checkpoint=checkpoint, progress=progress)
    job.seconds["fit"] += state.seconds
    if few:
        job.watcher.stage(f"the width of intervals from folds ({name})")
        with timed(job.seconds, "fit"):
            factor = widen(model, lambda part: _build(job, part), known, settings)
        job.warn(
            f"{len(known.y)} rows at {count_places(known)} places are few: the width of the "
            f"intervals ({name}) comes from folds, and is {factor:.2f} times the model's own."
        )
    return Fitted(model, state)


def threads_for(job: Job, note: dict[str, Any]) -> int:
    """Return how many threads to compute with: so many as the run began with, if there are cores.

    Sums depend on it in their last digits.
    """
    now = torch.get_num_threads()
    began = note.get(THREADS, now)
    if began == now:
        return now
    if type(began) is int and 0 < began <= cores_here():
        job.watcher.stage(f"going on with {began} threads, as the run began, instead of {now}")
        return began
    job.warn(
        f"the run began with {began} threads and goes on with {now}, as this process may use "
        f"{cores_here()} cores: its numbers may differ in the last digits from those of a run "
        "without a break."
    )
    return now


def take_rank(job: Job, train: Rows, validation: Rows) -> dict[str, Any]:
    """Give the job's preset the rank that its budget allows, and return how it came about.

    The budget is shared by the fits of the run. A rank that was chosen before an interruption
    stays.

    Raises
    ------
    RequestError
        The budget is too short for any rank.
    DataError
        What an interrupted run left is damaged.
    """
    budget = job.request.budget
    if budget is None:
        return {"r": job.preset.r, "chosen_by": "preset"}
    described: dict[str, Any]
    path = job.folder.unfinished / RANK_FILE
    if not path.exists():
        job.watcher.stage("choosing the rank by the time it takes")
        rows = job.data(train)
        fits = len(job.request.splits) * job.request.folds + job.refits
        fits *= 1 + FOLDS if are_few(job.data(train | validation)) else 1
        settings = _settings(job, job.preset.weights, job.epochs)

        def make(r: int) -> LowRankGP:
            return _build(replace(job, preset=replace(job.preset, r=r)), rows)

        choice = rank_for(budget / fits, make, rows, settings)
        described = {"r": choice.r, "chosen_by": "budget", "expected_seconds": choice.seconds}
        job.watcher.stage(f"rank {choice.r}, which takes about {choice.seconds * fits:.0f} s")
        write_text(path, json.dumps(described, indent=1))
    try:
        described = dict(read_json(path))
        job.preset = replace(job.preset, r=int(described["r"]))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is damaged ({error}). Run the command again with --fresh."
        ) from error
    return described


def weights_of(job: Job, train: Rows, validation: Rows) -> tuple[Weights, dict[str, Any]]:
    """Return alpha and beta, and how they came about: the preset's, or chosen by validation.

    A search that was finished before an interruption is not repeated.

    Raises
    ------
    NumericalError
        Every fit of the search diverged.
    DataError
        What an interrupted run left is damaged.
    """
    preset, uses = job.preset.weights, job.spec.step.uses
    if not uses:
        if job.request.tune_weights:
            job.warn(f"the objective of {job.request.model} has no weights to choose.")
        return preset, {"chosen_by": "none"}
    if not job.request.tune_weights:
        return preset, {**_named(preset, uses), "chosen_by": "preset"}
    path = job.folder.unfinished / WEIGHTS_FILE
    if not path.exists():
        described = _search(job, job.data(train), job.data(validation))
        write_text(path, json.dumps(described, indent=1))
    try:
        described = read_json(path)
        chosen = replace(preset, **{name: float(described[name]) for name in uses})
        job.seconds["fit"] += float(described["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is damaged ({error}). Run the command again with --fresh."
        ) from error
    return chosen, described


def _named(weights: Weights, uses: tuple[str, ...]) -> dict[str, float]:
    return {name: value for name, value in asdict(weights).items() if name in uses}


def _search(job: Job, train: Data, validation: Data) -> dict[str, Any]:
    job.watcher.stage(f"choosing alpha and beta of {job.request.model}")
    done: list[Trial] = []

    def progress(state: FitState, epochs: int) -> None:
        note = f"search {len(done) + 1}, validation log score {state.validation_nll[-1]:.4f}"
        job.watcher.progress(f"weights {len(done) + 1}", state.epoch, epochs, note)

    trials = choose_weights(
        lambda: _build(job, train),
        train,
        validation,
        _settings(job, job.preset.weights, min(TUNING_EPOCHS, job.epochs)),
        folder=job.folder.unfinished / "weights",
        progress=progress,
        tell=done.append,
    )
    uses = job.spec.step.uses
    return {
        **_named(trials[0].weights, uses),
        "chosen_by": "validation",
        "seconds": sum(trial.seconds for trial in trials),
        "trials": [
            {**_named(trial.weights, uses), "validation_nll": trial.nll}
            for trial in trials
            if np.isfinite(trial.nll)
        ],
    }


def _build(job: Job, rows: Data, warn: Callable[[str], None] | None = None) -> LowRankGP:
    """Return the untrained model on its device; `warn` hears what there is to say of the rows."""
    preset, scale = job.preset, job.scale
    sizes = Architecture(
        d=len(scale.columns),
        h=preset.h,
        r=preset.r,
        columns=scale.columns,
        dropped=scale.offsets,
        units=scale.units,
        noise=job.request.noise,
    )
    check_memory(sizes, len(rows.y), job.batch, job.device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = build(
            job.request.model,
            sizes,
            torch.from_numpy(rows.x),
            placement=preset.placement,
            noise_start=preset.noise_start,
            seed=job.request.seed,
        )
    for text in map(str, (warning.message for warning in caught)):
        if warn is not None and text not in job.warnings:
            warn(text)
    return model.to(job.device)


def _settings(job: Job, weights: Weights, epochs: int) -> FitSettings:
    preset = job.preset
    return FitSettings(
        epochs=epochs,
        batch=job.batch,
        optimiser=preset.optimiser,
        learning_rate=preset.learning_rate_for(job.batch),
        decay=preset.decay,
        head_rate=preset.head_rate,
        noise_rate=preset.noise_rate,
        clip=preset.clip,
        average=preset.average,
        weights=weights,
        seed=job.request.seed,
    )
