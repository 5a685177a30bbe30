"""Validation of a run's model on rows outside the fit: splits, folds and scores."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_repair import check_rows
from geogp.evaluation.splits.row_parts import (
    CALIBRATION,
    LEFT_OUT,
    PARTS,
    TEST,
    TRAIN,
    VALIDATION,
    without_empty,
)
from geogp.evaluation.splits.split_names import BLOCKS, BUFFER, COUNTY, LATEST, RANDOM
from geogp.evaluation.splits.split_rows import SplitRows, cell_side, split_groups, split_parts
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.tiles.parquet_files import MAX_TABLE_BYTES
from geogp.geodata.tiles.quadkeys import format_quadkeys
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.joint.area_means import AreaMeans
from geogp.models.options import Weights
from geogp.records.repair_records import RepairedFold
from geogp.records.run_record import FoldRecord, PartCounts, Strata
from geogp.runs.pipeline.areas_check import area_means
from geogp.runs.pipeline.fitting import fit_model
from geogp.runs.pipeline.job import Job, timed
from geogp.runs.pipeline.repair import check_repair, places_of, repair_of
from geogp.runs.pipeline.target_kinds import Columns, HeldOutScores, kind_of

Rows = NDArray[np.bool_]

OWN_COLUMNS, OWN_TEXT_BYTES = 40, 256
"""Upper bounds for a table of predictions without layers: columns, and bytes of text per row."""

FEW_ROWS = 300
"""A run warns if a part of a split has fewer rows than this."""

_ALL_PARTS = (*PARTS, CALIBRATION, LEFT_OUT)


@dataclass(frozen=True)
class Plan:
    """The part of each row in each split and fold; `codes` are positions in `_ALL_PARTS`."""

    codes: dict[tuple[str, int], NDArray[np.int8]]

    def rows(self, split: str, fold: int, part: str) -> Rows:
        """Return a mask of the rows of a part, (n,)."""
        found: Rows = self.codes[split, fold] == _ALL_PARTS.index(part)
        return found

    def sizes(self, split: str, fold: int) -> PartCounts:
        """Return the number of rows in each part of a fold."""
        counts = np.bincount(self.codes[split, fold], minlength=len(_ALL_PARTS)).tolist()
        return PartCounts(**dict(zip(PartCounts.__struct_fields__, counts, strict=True)))


def make_plan(job: Job) -> Plan:
    """Return which part (such as training or test) each row belongs to, in each split and fold.

    Raises DataError if there are too few rows or too few calibration rows, and RequestError if
    there are more test rows than a report can read.
    """
    request = job.request
    asked = [(name, fold) for name in request.splits for fold in range(request.folds)]
    known = _known(job)
    plan = Plan({one: _codes(job, known, *one) for one in [*asked, (RANDOM.name, 0)]})
    sizes = {one: plan.sizes(*one) for one in plan.codes}
    if request.calibrated:
        for size in sizes.values():
            check_rows(request.conformal, size.calibration)
    _check_tested(job, sum(sizes[one].test for one in asked))
    _warn_of(job)
    for name in request.splits:
        _warn_of_few_rows(job, name, [sizes[name, fold] for fold in range(request.folds)])
    return plan


def _check_tested(job: Job, rows: int) -> None:
    """Raise RequestError if there are more test rows than `read_predictions` can read."""
    columns, text = OWN_COLUMNS + len(job.layers), OWN_TEXT_BYTES
    text += sum(max(len(label.encode()) for label in layer.labels) for layer in job.layers)
    most = MAX_TABLE_BYTES // (8 * columns + text)
    if rows > most:
        raise RequestError(
            f"expected at most {most:,} test rows in all splits and folds, which is the most that "
            f"a report can read, found {rows:,}. Choose fewer splits, folds or quarters."
        )


def map_calibration_rows(job: Job) -> Rows:
    """Return a mask of the map's calibration rows, (n,), from the first fold of a random split."""
    plan = Plan({(RANDOM.name, 0): _codes(job, _known(job), RANDOM.name, 0)})
    return plan.rows(RANDOM.name, 0, CALIBRATION)


def _known(job: Job) -> SplitRows:
    """Return the columns of the input rows that splits use, such as quadkeys and quarters."""
    seen, counties = job.ingested.source_rows, job.boundaries.counties
    county = None
    if counties is not None and COUNTY.name in job.request.splits:
        county = counties.label(seen.longitude, seen.latitude)
    return SplitRows(seen.quadkey, seen.quarter, seen.longitude, seen.latitude, county)


def block_degrees(job: Job) -> float | UnsetType:
    """Return the side of a block in degrees; UNSET if no requested split has blocks."""
    if not {BLOCKS.name, BUFFER.name} & set(job.request.splits):
        return UNSET
    seen = job.ingested.source_rows
    return cell_side(seen.longitude, seen.latitude)


def _codes(job: Job, known: SplitRows, name: str, fold: int) -> NDArray[np.int8]:
    request = job.request
    parts = split_parts(
        name,
        known,
        request.seed,
        fold=fold,
        calibrated=request.calibrated,
        buffer_km=request.buffer_km,
    )
    kept = job.ingested.kept
    if not kept.all():
        what = f"the {name} split of {len(kept)} rows, {int((~kept).sum())} of which are left out"
        parts = without_empty(parts[kept], what, calibrated=request.calibrated)
    return np.asarray(pd.Categorical(parts, categories=_ALL_PARTS).codes)


def _warn_of(job: Job) -> None:
    """Warn if scores may be too good, or if coverage may be too low."""
    request = job.request
    if request.folds > 1 and request.tune_weights and job.about.uses:
        job.warn(
            "alpha and beta are chosen once, without the test rows of the first fold of each "
            "split. The choice depends on test rows of later folds, so the scores of later folds "
            "may be slightly too good."
        )
    if LATEST.name not in request.splits:
        return
    if any(one.covariate.rows for one in job.places.covariates):
        job.warn(
            "in the split latest, covariates from points also use the points of the tested quarter "
            "and of later quarters."
        )
    if not job.about.has_tiles:
        job.warn(
            f"in the split latest, {job.about.name} predicts a quarter after the training "
            f"quarters. {kind_of(request.target).later}"
        )
    elif len(job.observations.quarters) == request.folds + 1:
        job.warn(
            "the split latest trains on a single quarter, which does not show how much the level "
            "changes between quarters. The coverage of the intervals may be below the stated "
            "level."
        )


def _warn_of_few_rows(job: Job, name: str, folds: list[PartCounts]) -> None:
    """Warn if a split has few rows in a part; test rows of all folds are counted together."""
    rows = {part: min(getattr(fold, part) for fold in folds) for part in (TRAIN, VALIDATION)}
    rows[TEST] = sum(fold.test for fold in folds)
    few = [f"{n} {part} rows" for part, n in rows.items() if n < FEW_ROWS]
    if few:
        job.warn(
            f"the {name} split has only {' and '.join(few)}, fewer than {FEW_ROWS}: its fit and "
            f"its scores are uncertain. Choose more quarters or a larger region."
        )


def tuning_rows(job: Job, plan: Plan) -> tuple[Rows, Rows]:
    """Return masks of the training and validation rows that choose alpha and beta, each (n,).

    The rows come from the first fold of the first split. Calibration rows, and test rows of the
    first fold of any split, are left out. Raises RequestError if no rows are left.
    """
    open_rows = np.ones(len(job.observations), np.bool_)
    for name in job.request.splits:
        open_rows &= ~plan.rows(name, 0, TEST)
    for split, fold in plan.codes:
        open_rows &= ~plan.rows(split, fold, CALIBRATION)
    first = job.request.splits[0]
    train, validation = (plan.rows(first, 0, part) & open_rows for part in (TRAIN, VALIDATION))
    if job.request.tune_weights and not (train.any() and validation.any()):
        raise RequestError(
            f"--tune-weights has no rows left: {job.request.folds} folds use all rows for tests "
            f"and calibration. Choose fewer folds or splits."
        )
    return train, validation


@dataclass(frozen=True)
class FoldOutcome:
    """The results of one fold: model, scores, predictions for the test rows, and repair."""

    model: SpatialGP
    scores: FoldRecord
    held: HeldOutScores
    table: pd.DataFrame
    repair: RepairedFold | None
    areas: AreaMeans | str


@dataclass(frozen=True)
class SplitOutcome:
    """The folds of a split, and the scores of all their test rows together."""

    folds: list[FoldOutcome]
    scores: HeldOutScores


def run_split(job: Job, name: str, plan: Plan, weights: Weights) -> SplitOutcome:
    """Fit the model to a split's training rows, and score model and baseline on its test rows.

    The model is fitted once for each fold. The test rows of all folds are scored together.
    """
    found: list[FoldOutcome] = []
    for fold in range(job.request.folds):
        one = _run_fold(job, name, fold, plan, weights)
        # Only the first model may draw the map, so only one model is kept in memory.
        found.append(replace(one, model=found[0].model) if found else one)
    kind = kind_of(job.request.target)
    scores = kind.together(job.observations, [o.held for o in found], [o.table for o in found])
    for group in groups_below_baseline(scores.metrics, scores.baseline):
        job.warn(
            f"the model's log score is worse than the baseline's ({name} split, {group}): for "
            f"these rows, {kind.yardstick} better than the model."
        )
    return SplitOutcome(found, scores)


def _run_fold(job: Job, name: str, fold: int, plan: Plan, weights: Weights) -> FoldOutcome:
    seen = job.observations
    train, validation, test = (plan.rows(name, fold, part) for part in PARTS)
    groups = split_groups(name, _known(job))
    kept = None if groups is None else groups[job.ingested.kept]
    fit_name = f"{name}-{fold}" if fold else name
    model = fit_model(job, fit_name, (train, validation), weights, kept)
    job.clock.begin("check")
    job.listener.stage(f"checking {job.request.model} on test rows ({fit_name})")
    with timed(job.seconds, "predict"):
        prediction = model.predict_distribution(job.table[test])
        repair = repair_of(job, model, plan.rows(name, fold, CALIBRATION))
        check = None
        if repair.n:
            places = places_of(seen, test)
            check = check_repair(repair, prediction, seen.y[test], places)
            prediction = repair.apply(prediction, places)
        areas = area_means(job, model, _known(job), test)
    held = kind_of(job.request.target).fold(seen, train, test, prediction)
    if held.rows_pooled:
        which = f"{name} split, fold {fold + 1}" if job.request.folds > 1 else f"{name} split"
        job.warn(
            f"{held.rows_pooled} test rows ({which}) lie in quarters with too few training "
            "rows; for these test rows, the baseline is the mean and variance of all quarters."
        )
    scores = FoldRecord(n=plan.sizes(name, fold), metrics=held.metrics, baseline=held.baseline)
    # Models that store rows also predict from the validation rows.
    known = train | validation if model.network_.holds_rows else train
    table = _prediction_table(job, name, fold, (known, test), held.columns)
    return FoldOutcome(model, scores, held, table, check, areas)


def groups_below_baseline(metrics: Strata, baseline: Strata) -> list[str]:
    """Return the strata in which the model's log score is worse than the baseline's."""
    pairs = {name: (found.nll, baseline[name].nll) for name, found in metrics.items()}
    return [
        name
        for name, (own, other) in pairs.items()
        if own is not None and other is not None and own > other
    ]


def _prediction_table(
    job: Job, split: str, fold: int, rows: tuple[Rows, Rows], columns: Columns
) -> pd.DataFrame:
    """Return a table of the test rows with predictions; other programs rely on its columns.

    `rows` are two masks: the rows that predictions depend on, and the test rows. `columns` describe
    the predictions.
    """
    seen, (known, test) = job.observations, rows
    place = seen.longitude[test], seen.latitude[test]
    counties = job.boundaries.counties
    layers = {} if counties is None else {"county": counties.label(*place)}
    layers |= {f"layer_{layer.name}": layer.label(*place) for layer in job.layers}
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
            **layers,
            "distance_km": nearest_km(*place, seen.longitude[known], seen.latitude[known]),
            **columns,
        }
    )
