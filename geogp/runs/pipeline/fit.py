"""The third step of a run: fits and scores of all splits, and the model of the map."""

from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import load_with_notes
from geogp.evaluation.splits.row_parts import CALIBRATION, TEST, TRAIN, VALIDATION
from geogp.evaluation.splits.split_names import RANDOM
from geogp.files import write_bytes
from geogp.models.joint.law import two_variances
from geogp.records.record_names import NOISE_IN_SPREAD, POINT, STEPS
from geogp.records.record_reading import complete_record
from geogp.records.repair_records import CalibrationRecord
from geogp.records.run_record import (
    AreasCheck,
    FittedRecord,
    RunIdentity,
    RunNote,
    RunRecord,
    Strata,
    TargetRecord,
    VarianceCheck,
    given,
)
from geogp.runs.pipeline.areas_check import areas_check
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.fitting import (
    RunFitter,
    fit_model,
    take_rank,
    threads_for,
    weights_of,
)
from geogp.runs.pipeline.phase_rates import expect
from geogp.runs.pipeline.plan import Plan
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.repair import repaired_splits
from geogp.runs.pipeline.splits import (
    Splits,
    block_degrees,
    make_splits,
    same_splits,
    tuning_rows,
)
from geogp.runs.pipeline.validation import SplitOutcome, run_split
from geogp.runs.progress import RunListener
from geogp.runs.run_folder import MODEL_FILE, RunFolder
from geogp.runs.stored_predictions import read_predictions

CHECKED_ROWS = 2000
"""Largest number of test rows in the comparison of two calculations of variances."""


@dataclass(frozen=True)
class Fits:
    """The model of the map, the scores of all splits, and the predictions of their test rows.

    `content` is the content of the model's file if the model comes from this file, otherwise None.
    """

    model: SpatialGP
    record: FittedRecord
    predictions: pd.DataFrame
    content: bytes | None = None

    @property
    def device(self) -> torch.device:
        """The device of the fits."""
        return torch.device(given(self.record.device, "cpu"))

    def save_model(self, path: Path) -> None:
        """Write the model to a file; a model from a file keeps its content."""
        if self.content is not None:
            write_bytes(path, self.content)
            return
        names = {name: getattr(self.record, name) for name in ("region", "target", "service")}
        self.model.save(path, notes=names)


def fit_splits(
    inputs: Inputs,
    plan: Plan,
    identity: RunIdentity,
    folder: RunFolder,
    listener: RunListener,
    *,
    call: str | None = None,
) -> Fits:
    """Start or continue the fits of all splits and of the map, and return them.

    `call` is as in `RunNote`. Raises DataError if there are too few rows, and NumericalError if a
    fit diverges.
    """
    settings, model, before = plan.model.settings, plan.model, len(listener.warnings)
    splits = make_splits(settings, inputs, listener)
    expect(listener.clock, inputs, plan, fits=True)
    note = RunNote(**asdict(identity), threads=torch.get_num_threads(), call=call or UNSET)
    note = folder.begin(note)
    fitter = RunFitter(model, inputs, folder.unfinished, listener)
    with arithmetic(threads_for(note.threads, listener)):
        weights, chosen = weights_of(fitter, tuning_rows(settings, splits))
        first = settings.splits[0]
        train, validation = (splits.rows(first, 0, part) for part in (TRAIN, VALIDATION))
        fits = len(settings.splits) * settings.folds + plan.refits
        rank = take_rank(fitter, (train, validation), fits)
        fitter = replace_fields(fitter, model=model.with_rank(rank.r))
        outcomes = {name: run_split(fitter, splits, name, weights) for name in settings.splits}
        if plan.refits:
            parts = _map_rows(splits, refits=True), splits.rows(RANDOM.name, 0, VALIDATION)
            final = fit_model(fitter, "map", parts, weights)
        else:
            final = outcomes[RANDOM.name].folds[0].model
        folds = {name: [fold.scores for fold in split.folds] for name, split in outcomes.items()}
        repairs = {name: [fold.repair for fold in split.folds] for name, split in outcomes.items()}
        checks = {
            name: areas_check([fold.areas for fold in split.folds])
            for name, split in outcomes.items()
        }
        record = FittedRecord(
            **asdict(identity),
            weights=chosen,
            rank=rank,
            n={name: scores[0].n for name, scores in folds.items()},
            block_degrees=block_degrees(settings, inputs),
            same_splits=same_splits(settings, inputs) or UNSET,
            metrics={name: split.scores.metrics for name, split in outcomes.items()},
            baseline={name: split.scores.baseline for name, split in outcomes.items()},
            baseline_by_stratum=_by_stratum(outcomes),
            targets=_targets(outcomes) or UNSET,
            joint={k: joint for k, split in outcomes.items() if (joint := split.scores.joint)}
            or UNSET,
            folds=folds,
            calibration=CalibrationRecord(splits=repaired_splits(settings.conformal, repairs)),
            variance_check=_variance_check(fitter, final, splits, refits=plan.refits),
            areas_check={k: v for k, v in checks.items() if isinstance(v, AreasCheck)} or UNSET,
            areas_unchecked={k: v for k, v in checks.items() if isinstance(v, str)} or UNSET,
            seconds=dict(listener.seconds),
            fit_warnings=listener.warnings[before:],
            threads=note.threads,
            call=note.call,
        )
    tables = [fold.table for split in outcomes.values() for fold in split.folds]
    return Fits(final, record, pd.concat(tables, ignore_index=True))


def stored_fits(
    path: Path, run: RunRecord, identity: RunIdentity, device: torch.device, listener: RunListener
) -> Fits:
    """Return the fits of a finished run from its folder; give the warnings of the fits again.

    Raises DataError if a file is damaged.
    """
    record = complete_record(path, run, FittedRecord)
    predictions = read_predictions(path, run)
    model = load_with_notes(path / MODEL_FILE, device=str(device))[0]
    for text in record.fit_warnings:
        listener.warn(text)
    listener.seconds["fit"] = record.seconds.get("fit", 0.0)
    record = replace(record, **asdict(identity))
    return Fits(model, record, predictions, (path / MODEL_FILE).read_bytes())


def _by_stratum(splits: dict[str, SplitOutcome]) -> dict[str, Strata] | UnsetType:
    """Return the scores of the second baseline of classes in each split; UNSET for numbers."""
    scores = {name: split.scores.by_stratum for name, split in splits.items()}
    known = {name: strata for name, strata in scores.items() if strata is not None}
    return known or UNSET


def _targets(splits: dict[str, SplitOutcome]) -> list[TargetRecord]:
    """Return the scores of each of several targets alone; none for one target."""
    each = {name: split.scores.each for name, split in splits.items()}
    return [
        TargetRecord(
            name=target,
            metrics={name: scores[target].metrics for name, scores in each.items()},
            baseline={name: scores[target].baseline for name, scores in each.items()},
        )
        for target in next(iter(each.values()))
    ]


def _map_rows(splits: Splits, *, refits: bool) -> NDArray[np.bool_]:
    """Return a mask of the rows to which the map's model is fitted, (n,)."""
    rows = partial(splits.rows, RANDOM.name, 0)
    return ~(rows(VALIDATION) | rows(CALIBRATION)) if refits else rows(TRAIN)


def _variance_check(
    fitter: RunFitter, fitted: SpatialGP, splits: Splits, *, refits: bool
) -> VarianceCheck | None:
    """Compare two calculations of the standard deviation of the level at test rows.

    Returns None for counts. Also returns None for closed-form posteriors, and for models that
    store their rows: both results are equal.
    """
    name, network = fitter.model.name, fitter.model.shown(fitted).network_
    if network.level_in_closed_form or not network.has_level:
        return None
    fitter.listener.begin("check", "comparing two calculations of the level's variance")
    test = splits.rows(fitter.model.settings.splits[0], 0, TEST)
    chosen = np.flatnonzero(test)
    test[chosen] = np.arange(len(chosen)) % -(-len(chosen) // CHECKED_ROWS) == 0
    rows = fitter.data(_map_rows(splits, refits=refits))
    spread = two_variances(network, rows, fitted.inputs(fitter.inputs.table[test]))
    smooth = STEPS if name.has_spread else POINT
    return VarianceCheck(differ_by=NOISE_IN_SPREAD if name.spread_is_noise else smooth, **spread)
