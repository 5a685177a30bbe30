"""Fits the models of a run, and chooses the rank and the weights of the objective."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.estimators.spatial_gp import SpatialGP
from geogp.files import read_json, write_text
from geogp.models.catalogue.budget import rank_for
from geogp.models.fitting.few_rows import FOLDS, are_few
from geogp.models.fitting.loop import FitState
from geogp.models.fitting.tuning import TUNING_EPOCHS, Trial, choose_weights
from geogp.models.options import Weights
from geogp.models.process.data import Data
from geogp.models.process.process import Process
from geogp.records.checked_types import checked
from geogp.records.record_reading import run_text
from geogp.records.run_record import FittedRank, TrialRecord, TunedWeights, WeightsRecord
from geogp.runs.machine import cores_here
from geogp.runs.pipeline.job import Job
from geogp.runs.run_folder import FRESH, damaged

Rows = NDArray[np.bool_]
Groups = NDArray[np.int64]

WEIGHTS_FILE = "weights.json"
RANK_FILE = "rank.json"


def fit_model(
    job: Job, name: str, parts: tuple[Rows, Rows], weights: Weights, groups: Groups | None = None
) -> SpatialGP:
    """Return the fitted model of a job; continue from the checkpoint `name`, if there is one.

    `parts` are masks of the training and the validation rows. `groups`, (n,), is the group of each
    row; a split leaves out all rows of a group together.
    """
    job.clock.begin("fit")
    job.listener.stage(f"fitting {job.request.model} ({name})")

    def progress(state: FitState, epochs: int) -> None:
        note = f"validation log score {state.validation_nll[-1]:.4f}"
        job.listener.progress(f"fit ({name})", state.epoch, epochs, note)

    def warn(text: str) -> None:
        if text not in job.warnings:
            job.warn(text)

    train, validation = parts
    rows = train | validation
    model = job.estimator(weights, validation=validation[rows])
    model.fit_watched(
        job.table[rows],
        job.observations.y[rows],
        scale=job.scale,
        groups=None if groups is None else groups[rows],
        checkpoint=job.folder.unfinished / f"{name}.safetensors",
        progress=progress,
        warn=warn,
        stage=job.listener.stage,
        name=name,
    )
    job.seconds["fit"] += model.history_.seconds
    return model


def threads_for(job: Job, began: int | None) -> int:
    """Return the number of threads at the start of the run; other numbers change the last digits.

    If there are too few cores, warn, and return the current number of threads.
    """
    now = torch.get_num_threads()
    if began is None or began == now:
        return now
    if began <= cores_here():
        job.listener.stage(
            f"continuing with {began} threads, as at the start of the run, instead of {now}"
        )
        return began
    job.warn(
        f"the run started with {began} threads and continues with {now}, because this process may "
        f"use {cores_here()} cores: the last digits of the results may differ from those of an "
        "uninterrupted run."
    )
    return now


def take_rank(job: Job, train: Rows, validation: Rows) -> FittedRank:
    """Choose the rank of the model by the time budget, or else by the preset; return the choice.

    The budget is for all fits of the run together. A rank chosen before an interruption is kept.
    Raises RequestError if the budget is too short, and DataError if the stored choice is damaged.
    """
    budget = job.request.budget
    if budget is None:
        return FittedRank(r=job.preset.r, chosen_by="preset")
    path = job.folder.unfinished / RANK_FILE
    if not path.exists():
        job.listener.stage("choosing the rank for the time budget")
        rows = job.data(train)
        fits = len(job.request.splits) * job.request.folds + job.refits
        fits *= 1 + FOLDS if are_few(job.data(train | validation)) else 1
        plan = job.estimator(job.preset.weights).plan(job.scale, len(rows.y))

        def make(r: int) -> Process:
            return replace(plan, sizes=replace(plan.sizes, r=r)).build(rows)

        choice = rank_for(budget / fits, make, rows, plan.preset.settings)
        chosen = FittedRank(r=choice.r, chosen_by="budget", expected_seconds=choice.seconds)
        job.listener.stage(f"rank {choice.r}, which takes about {choice.seconds * fits:.0f} s")
        write_text(path, run_text(chosen))
    with damaged(path, FRESH):
        found = checked(read_json(path), FittedRank, "it")
    job.preset = replace(job.preset, r=found.r)
    return found


def weights_of(job: Job, train: Rows, validation: Rows) -> tuple[Weights, WeightsRecord]:
    """Return the weights alpha and beta of the objective, and a record of how they were chosen.

    A finished search for the weights is not repeated after an interruption. Raises NumericalError
    if every fit of the search diverged, and DataError if stored weights are damaged.
    """
    preset, uses = job.preset.weights, job.about.uses
    if not uses:
        if job.request.tune_weights:
            job.warn(
                f"--tune-weights has no effect: the objective of {job.request.model} has no "
                "weights to choose."
            )
        return preset, WeightsRecord(chosen_by="none")
    if not job.request.tune_weights:
        return preset, WeightsRecord(chosen_by="preset", **_used(preset, uses))
    path = job.folder.unfinished / WEIGHTS_FILE
    if not path.exists():
        write_text(path, run_text(_search(job, job.data(train), job.data(validation))))
    with damaged(path, FRESH):
        found = checked(read_json(path), TunedWeights, "it")
        chosen = {name: getattr(found, name) for name in uses}
        lacking = [name for name in uses if chosen[name] is None]
        if lacking:
            raise DataError(f"it lacks {', '.join(lacking)}.")
    job.seconds["fit"] += found.seconds
    return replace(preset, **chosen), found


def _used(weights: Weights, uses: tuple[str, ...]) -> dict[str, Any]:
    """Return the weights that an objective uses, by name."""
    return {name: getattr(weights, name) for name in uses}


def _search(job: Job, train: Data, validation: Data) -> TunedWeights:
    job.clock.begin("search")
    job.listener.stage(f"choosing alpha and beta of {job.request.model}")
    done: list[Trial] = []

    def progress(state: FitState, epochs: int) -> None:
        note = f"search {len(done) + 1}, validation log score {state.validation_nll[-1]:.4f}"
        job.listener.progress(f"weights {len(done) + 1}", state.epoch, epochs, note)

    asked = job.estimator(job.preset.weights, epochs=min(TUNING_EPOCHS, job.epochs))
    plan = asked.plan(job.scale, len(train.y))
    trials = choose_weights(
        lambda: plan.build(train),
        train,
        validation,
        plan.preset.settings,
        folder=job.folder.unfinished / "weights",
        progress=progress,
        tell=done.append,
    )
    uses = job.about.uses
    records = [
        TrialRecord(validation_nll=trial.nll, **_used(trial.weights, uses))
        for trial in trials
        if np.isfinite(trial.nll)
    ]
    return TunedWeights(
        chosen_by="validation",
        seconds=sum(trial.seconds for trial in trials),
        trials=records,
        **_used(trials[0].weights, uses),
    )
