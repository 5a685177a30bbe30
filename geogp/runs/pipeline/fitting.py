"""Single fits of a run, the rank, and the weights of the objective."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.estimators.fit_rows import data_of
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
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.run_model import RunModel
from geogp.runs.progress import RunListener
from geogp.runs.run_folder import FRESH, damaged

Rows = NDArray[np.bool_]
Groups = NDArray[np.int64]

WEIGHTS_FILE = "weights.json"
RANK_FILE = "rank.json"


@dataclass(frozen=True)
class RunFitter:
    """Fits the models of a run; `folder` keeps the checkpoints of unfinished fits."""

    model: RunModel
    inputs: Inputs
    folder: Path
    listener: RunListener

    def data(self, rows: Rows) -> Data:
        """Return the observations that the mask `rows` selects, as `Data`."""
        columns = self.model.estimator(self.model.preset.weights).columns()
        points = columns.read(self.inputs.table[rows])
        return data_of(self.model.scale, points, self.inputs.observations.y[rows])


def fit_model(
    fitter: RunFitter,
    name: str,
    parts: tuple[Rows, Rows],
    weights: Weights,
    groups: Groups | None = None,
) -> SpatialGP:
    """Return a fitted model of a run; continue from the checkpoint `name`, if there is one.

    `parts` are masks of the training and the validation rows. `groups`, (n,), is the group of each
    row; a split leaves out all rows of a group together.
    """
    model, inputs, listener = fitter.model, fitter.inputs, fitter.listener
    listener.begin("fit", f"fitting {model.name.name} ({name})")

    def progress(state: FitState, epochs: int) -> None:
        note = f"validation log score {state.validation_nll[-1]:.4f}"
        listener.progress(f"fit ({name})", state.epoch, epochs, note)

    def warn(text: str) -> None:
        if text not in listener.warnings:
            listener.warn(text)

    train, validation = parts
    rows = train | validation
    estimator = model.estimator(weights, validation=validation[rows])
    estimator.fit_watched(
        inputs.table[rows],
        inputs.measured[rows],
        scale=model.scale,
        groups=None if groups is None else groups[rows],
        checkpoint=fitter.folder / f"{name}.safetensors",
        progress=progress,
        warn=warn,
        stage=listener.stage,
        name=name,
    )
    listener.seconds["fit"] += estimator.history_.seconds
    return estimator


def threads_for(began: int | None, listener: RunListener) -> int:
    """Return the number of threads at the start of the run; other numbers change the last digits.

    If there are too few cores, warn, and return the current number of threads.
    """
    now = torch.get_num_threads()
    if began is None or began == now:
        return now
    if began <= cores_here():
        listener.stage(
            f"continuing with {began} threads, as at the start of the run, instead of {now}"
        )
        return began
    listener.warn(
        f"the run started with {began} threads and continues with {now}, because this process may "
        f"use {cores_here()} cores: the last digits of the results may differ from those of an "
        "uninterrupted run."
    )
    return now


def take_rank(fitter: RunFitter, parts: tuple[Rows, Rows], fits: int) -> FittedRank:
    """Choose the rank of the model by the time budget, or else by the preset; return the choice.

    `parts` are masks of the training and the validation rows of the first fit. The budget is for
    all `fits` together. A rank chosen before an interruption is kept. Raises RequestError if the
    budget is too short, and DataError if the stored choice is damaged.
    """
    model, budget = fitter.model, fitter.model.settings.budget
    if budget is None:
        return FittedRank(r=model.preset.r, chosen_by="preset")
    path = fitter.folder / RANK_FILE
    if not path.exists():
        fitter.listener.stage("choosing the rank for the time budget")
        train, validation = parts
        rows = fitter.data(train)
        fits *= 1 + FOLDS if are_few(fitter.data(train | validation)) else 1
        plan = model.estimator(model.preset.weights).plan(model.scale, len(rows.y))

        def make(r: int) -> Process:
            return replace(plan, sizes=replace(plan.sizes, r=r)).build(rows)

        choice = rank_for(budget / fits, make, rows, plan.preset.settings)
        chosen = FittedRank(r=choice.r, chosen_by="budget", expected_seconds=choice.seconds)
        fitter.listener.stage(f"rank {choice.r}, which takes about {choice.seconds * fits:.0f} s")
        write_text(path, run_text(chosen))
    with damaged(path, FRESH):
        return checked(read_json(path), FittedRank, "it")


def weights_of(fitter: RunFitter, parts: tuple[Rows, Rows]) -> tuple[Weights, WeightsRecord]:
    """Return the weights alpha and beta of the objective, and a record of how they were chosen.

    `parts` are masks of the training and the validation rows of the search. A finished search is
    not repeated after an interruption. Raises NumericalError if every fit of the search diverged,
    and DataError if stored weights are damaged.
    """
    model = fitter.model
    preset, uses, tune = model.preset.weights, model.name.uses, model.settings.tune_weights
    if not uses:
        if tune:
            fitter.listener.warn(
                f"--tune-weights has no effect: the objective of {model.name.name} has no "
                "weights to choose."
            )
        return preset, WeightsRecord(chosen_by="none")
    if not tune:
        return preset, WeightsRecord(chosen_by="preset", **_used(preset, uses))
    path = fitter.folder / WEIGHTS_FILE
    if not path.exists():
        train, validation = (fitter.data(rows) for rows in parts)
        write_text(path, run_text(_search(fitter, train, validation)))
    with damaged(path, FRESH):
        record = checked(read_json(path), TunedWeights, "it")
        chosen = _used(record, uses)
        lacking = [name for name in uses if chosen[name] is None]
        if lacking:
            raise DataError(f"it lacks {', '.join(lacking)}.")
    fitter.listener.seconds["fit"] += record.seconds
    return replace(preset, **chosen), record


def _used(weights: Weights | TunedWeights, uses: tuple[str, ...]) -> dict[str, Any]:
    """Return the weights that an objective uses, by name."""
    return {name: getattr(weights, name) for name in uses}


def _search(fitter: RunFitter, train: Data, validation: Data) -> TunedWeights:
    model = fitter.model
    fitter.listener.begin("search", f"choosing alpha and beta of {model.name.name}")
    done: list[Trial] = []

    def progress(state: FitState, epochs: int) -> None:
        note = f"search {len(done) + 1}, validation log score {state.validation_nll[-1]:.4f}"
        fitter.listener.progress(f"weights {len(done) + 1}", state.epoch, epochs, note)

    epochs = min(TUNING_EPOCHS, model.epochs)
    plan = model.estimator(model.preset.weights, epochs=epochs).plan(model.scale, len(train.y))
    trials = choose_weights(
        lambda: plan.build(train),
        train,
        validation,
        plan.preset.settings,
        folder=fitter.folder / "weights",
        progress=progress,
        tell=done.append,
    )
    uses = model.name.uses
    return TunedWeights(
        chosen_by="validation",
        seconds=sum(trial.seconds for trial in trials),
        trials=[
            TrialRecord(validation_nll=trial.nll, **_used(trial.weights, uses))
            for trial in trials
            if np.isfinite(trial.nll)
        ],
        **_used(trials[0].weights, uses),
    )
