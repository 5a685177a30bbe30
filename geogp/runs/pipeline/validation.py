"""Validation of a run's model on rows outside the fit: fits and scores of each split."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.splits.row_parts import CALIBRATION, PARTS
from geogp.evaluation.splits.split_rows import split_groups
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.tiles.quadkeys import format_quadkeys
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.joint.area_means import AreaMeans
from geogp.models.options import Weights
from geogp.records.repair_records import RepairedFold
from geogp.records.run_record import FoldRecord, Strata
from geogp.runs.pipeline.areas_check import area_means
from geogp.runs.pipeline.fitting import RunFitter, fit_model
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.repair import check_repair, places_of, repair_of
from geogp.runs.pipeline.splits import Splits, rows_to_split
from geogp.runs.pipeline.target_kinds import Columns, HeldOutScores, kind_of

Rows = NDArray[np.bool_]


@dataclass(frozen=True)
class FoldOutcome:
    """The results of one fold: model, scores, predictions for the test rows, and repair."""

    model: SpatialGP
    scores: FoldRecord
    held_out: HeldOutScores
    table: pd.DataFrame
    repair: RepairedFold | None
    areas: AreaMeans | str


@dataclass(frozen=True)
class SplitOutcome:
    """The folds of a split, and the scores of all their test rows together."""

    folds: list[FoldOutcome]
    scores: HeldOutScores


def run_split(fitter: RunFitter, splits: Splits, name: str, weights: Weights) -> SplitOutcome:
    """Fit the model to a split's training rows, and score model and baseline on its test rows.

    The model is fitted once for each fold. The test rows of all folds are scored together.
    """
    settings, folds = fitter.model.settings, list[FoldOutcome]()
    for fold in range(settings.folds):
        outcome = _run_fold(fitter, splits, (name, fold), weights)
        # Only the first model may draw the map, so only one model is kept in memory.
        folds.append(replace(outcome, model=folds[0].model) if folds else outcome)
    kind = kind_of(settings.target)
    scores = kind.together(
        fitter.inputs.observations,
        [fold.held_out for fold in folds],
        [fold.table for fold in folds],
    )
    for group in groups_below_baseline(scores.metrics, scores.baseline):
        fitter.listener.warn(
            f"the model's log score is worse than the baseline's ({name} split, {group}): for "
            f"these rows, {kind.yardstick} better than the model."
        )
    return SplitOutcome(folds, scores)


def _run_fold(
    fitter: RunFitter, splits: Splits, key: tuple[str, int], weights: Weights
) -> FoldOutcome:
    settings, inputs, listener = fitter.model.settings, fitter.inputs, fitter.listener
    (name, fold), rows, source_rows = key, inputs.observations, rows_to_split(settings, inputs)
    train, validation, test = (splits.rows(*key, part) for part in PARTS)
    groups = split_groups(name, source_rows)
    fit_name = f"{name}-{fold}" if fold else name
    if groups is not None:
        groups = groups[inputs.ingested.kept]
    estimator = fit_model(fitter, fit_name, (train, validation), weights, groups)
    listener.begin("check", f"checking {settings.model} on test rows ({fit_name})")
    with listener.timed("predict"):
        prediction = estimator.predict_distribution(inputs.table[test])
        repair = repair_of(settings.conformal, inputs, estimator, splits.rows(*key, CALIBRATION))
        check = None
        if repair.n:
            places = places_of(rows, test)
            check = check_repair(repair, prediction, rows.y[test], places)
            prediction = repair.apply(prediction, places)
        main = inputs.of_target(settings.targets[0])
        shown = fitter.model.shown(estimator)
        areas = area_means(settings, main, shown, source_rows, test)
    held_out = kind_of(settings.target).fold(rows, train, test, prediction)
    if held_out.rows_pooled:
        which = f"{name} split, fold {fold + 1}" if settings.folds > 1 else f"{name} split"
        listener.warn(
            f"{held_out.rows_pooled} test rows ({which}) lie in quarters with too few training "
            "rows; for these test rows, the baseline is the mean and variance of all quarters."
        )
    scores = FoldRecord(n=splits.sizes(*key), metrics=held_out.metrics, baseline=held_out.baseline)
    # Models that store rows also predict from the validation rows.
    known = train | validation if shown.network_.holds_rows else train
    table = _prediction_table(inputs, key, (known, test), held_out.columns)
    return FoldOutcome(estimator, scores, held_out, table, check, areas)


def groups_below_baseline(metrics: Strata, baseline: Strata) -> list[str]:
    """Return the strata in which the model's log score is worse than the baseline's."""
    pairs = {name: (scores.nll, baseline[name].nll) for name, scores in metrics.items()}
    return [
        name
        for name, (own, other) in pairs.items()
        if own is not None and other is not None and own > other
    ]


def _prediction_table(
    inputs: Inputs, key: tuple[str, int], rows: tuple[Rows, Rows], columns: Columns
) -> pd.DataFrame:
    """Return a table of the test rows with predictions; other programs rely on its columns.

    `key` is the split and the fold. `rows` are two masks: the rows that predictions depend on, and
    the test rows. `columns` describe the predictions.
    """
    (split, fold), seen, (known, test) = key, inputs.observations, rows
    place = seen.longitude[test], seen.latitude[test]
    counties = inputs.boundaries.counties
    layers = {} if counties is None else {"county": counties.label(*place)}
    layers |= {f"layer_{layer.name}": layer.label(*place) for layer in inputs.layers}
    return pd.DataFrame(
        {
            "split": split,
            "fold": fold,
            "quadkey": format_quadkeys(seen.quadkey[test]),
            "quarter": [quarter_label(q) for q in seen.quarter[test].tolist()],
            "longitude": place[0],
            "latitude": place[1],
            "y": seen.y[test],
            "tests": seen.tests[test],
            "devices": seen.devices[test],
            "stratum": seen.stratum[test],
            **({} if seen.provider is None else {"provider": seen.provider[test]}),
            **({} if seen.drive is None else {"drive": seen.drive[test]}),
            **layers,
            "distance_km": nearest_km(*place, seen.longitude[known], seen.latitude[known]),
            **columns,
        }
    )
