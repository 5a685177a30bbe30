"""Which rows of a run train, validate, test and calibrate, in each split and fold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from geogp.errors import RequestError
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
from geogp.evaluation.splits.split_names import BLOCKS, BUFFER, COUNTY, LATEST, RANDOM, TILES
from geogp.evaluation.splits.split_rows import SplitRows, cell_side, split_parts
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.tiles.parquet_files import MAX_TABLE_BYTES
from geogp.models.names import find_model
from geogp.records.map_settings import MapSettings
from geogp.records.run_record import PartCounts
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.target_kinds import kind_of
from geogp.runs.progress import RunListener

Rows = NDArray[np.bool_]

OWN_COLUMNS, OWN_TEXT_BYTES = 40, 256
"""Upper bounds for a table of predictions without layers: columns, and bytes of text per row."""

FEW_ROWS = 300
"""A run warns if a part of a split has fewer rows than this."""

_ALL_PARTS = (*PARTS, CALIBRATION, LEFT_OUT)


@dataclass(frozen=True)
class Splits:
    """The part of each row in each split and fold; `codes` are positions in `_ALL_PARTS`."""

    codes: dict[tuple[str, int], NDArray[np.int8]]

    def rows(self, split: str, fold: int, part: str) -> Rows:
        """Return a mask of the rows of a part, (n,)."""
        rows: Rows = self.codes[split, fold] == _ALL_PARTS.index(part)
        return rows

    def sizes(self, split: str, fold: int) -> PartCounts:
        """Return the number of rows in each part of a fold."""
        counts = np.bincount(self.codes[split, fold], minlength=len(_ALL_PARTS)).tolist()
        return PartCounts(**dict(zip(PartCounts.__struct_fields__, counts, strict=True)))


def make_splits(settings: MapSettings, inputs: Inputs, listener: RunListener) -> Splits:
    """Return which part (such as training or test) each row belongs to, in each split and fold.

    Raises DataError if there are too few rows or too few calibration rows, and RequestError if
    there are more test rows than a report can read.
    """
    folds = [(name, fold) for name in settings.splits for fold in range(settings.folds)]
    known = rows_to_split(settings, inputs)
    splits = Splits(
        {key: _codes(settings, inputs, known, *key) for key in [*folds, (RANDOM.name, 0)]}
    )
    sizes = {key: splits.sizes(*key) for key in splits.codes}
    if settings.calibrated:
        for size in sizes.values():
            check_rows(settings.conformal, size.calibration)
    _check_tested(inputs.layers, sum(sizes[key].test for key in folds))
    _warn_of_latest(settings, inputs, listener)
    for name in settings.splits:
        _warn_of_few_rows(name, [sizes[name, fold] for fold in range(settings.folds)], listener)
    return splits


def _check_tested(layers: Sequence[PolygonLayer], rows: int) -> None:
    """Raise RequestError if there are more test rows than `read_predictions` can read."""
    columns, text = OWN_COLUMNS + len(layers), OWN_TEXT_BYTES
    text += sum(max(len(label.encode()) for label in layer.labels) for layer in layers)
    most = MAX_TABLE_BYTES // (8 * columns + text)
    if rows > most:
        raise RequestError(
            f"expected at most {most:,} test rows in all splits and folds, which is the most that "
            f"a report can read, found {rows:,}. Choose fewer splits, folds or quarters."
        )


def map_calibration_rows(settings: MapSettings, inputs: Inputs) -> Rows:
    """Return a mask of the map's calibration rows, (n,), from the first fold of a random split."""
    key = RANDOM.name, 0
    splits = Splits({key: _codes(settings, inputs, rows_to_split(settings, inputs), *key)})
    return splits.rows(*key, CALIBRATION)


def rows_to_split(settings: MapSettings, inputs: Inputs) -> SplitRows:
    """Return the columns of the input rows that splits use, such as quadkeys and quarters."""
    rows, counties = inputs.ingested.source_rows, inputs.boundaries.counties
    county = None
    if counties is not None and COUNTY.name in settings.splits:
        county = counties.label(rows.longitude, rows.latitude)
    session = None if rows.drive is None else rows.drive.astype(np.str_)
    return SplitRows(rows.quadkey, rows.quarter, rows.longitude, rows.latitude, county, session)


def block_degrees(settings: MapSettings, inputs: Inputs) -> float | UnsetType:
    """Return the side of a block in degrees; UNSET if no requested split has blocks."""
    if not {BLOCKS.name, BUFFER.name} & set(settings.splits):
        return UNSET
    rows = inputs.ingested.source_rows
    return cell_side(rows.longitude, rows.latitude)


def same_splits(settings: MapSettings, inputs: Inputs) -> dict[str, str]:
    """Return the splits that would only repeat another one, by their names.

    If every tile has one row, random rows are whole tiles.
    """
    quadkeys = inputs.observations.quadkey
    same = RANDOM.name in settings.splits and len(np.unique(quadkeys)) == len(quadkeys)
    return {TILES.name: RANDOM.name} if same else {}


def _codes(
    settings: MapSettings, inputs: Inputs, rows: SplitRows, name: str, fold: int
) -> NDArray[np.int8]:
    parts = split_parts(
        name,
        rows,
        settings.seed,
        fold=fold,
        calibrated=settings.calibrated,
        buffer_km=settings.buffer_km,
    )
    kept = inputs.ingested.kept
    if not kept.all():
        what = f"the {name} split of {len(kept)} rows, {int((~kept).sum())} of which are left out"
        parts = without_empty(parts[kept], what, calibrated=settings.calibrated)
    return np.asarray(pd.Categorical(parts, categories=_ALL_PARTS).codes)


def _warn_of_latest(settings: MapSettings, inputs: Inputs, listener: RunListener) -> None:
    """Warn if scores may be too good, or if coverage may be too low."""
    name = find_model(settings.model)
    if settings.folds > 1 and settings.tune_weights and name.uses:
        listener.warn(
            "alpha and beta are chosen once, without the test rows of the first fold of each "
            "split. The choice depends on test rows of later folds, so the scores of later folds "
            "may be slightly too good."
        )
    if LATEST.name not in settings.splits:
        return
    if any(added.covariate.rows for added in inputs.places.covariates):
        listener.warn(
            "in the split latest, covariates from points also use the points of the tested quarter "
            "and of later quarters."
        )
    if not name.has_tiles:
        listener.warn(
            f"in the split latest, {name.name} predicts a quarter after the training "
            f"quarters. {kind_of(settings.target).later}"
        )
    elif len(inputs.observations.quarters) == settings.folds + 1:
        listener.warn(
            "the split latest trains on a single quarter, which does not show how much the level "
            "changes between quarters. The coverage of the intervals may be below the stated "
            "level."
        )


def _warn_of_few_rows(name: str, folds: list[PartCounts], listener: RunListener) -> None:
    """Warn if a split has few rows in a part; test rows of all folds are counted together."""
    rows = {part: min(getattr(fold, part) for fold in folds) for part in (TRAIN, VALIDATION)}
    rows[TEST] = sum(fold.test for fold in folds)
    few = [f"{n} {part} rows" for part, n in rows.items() if n < FEW_ROWS]
    if few:
        listener.warn(
            f"the {name} split has only {' and '.join(few)}, fewer than {FEW_ROWS}: its fit and "
            f"its scores are uncertain. Choose more quarters or a larger region."
        )


def tuning_rows(settings: MapSettings, splits: Splits) -> tuple[Rows, Rows]:
    """Return masks of the training and validation rows that choose alpha and beta, each (n,).

    The rows come from the first fold of the first split. Calibration rows, and test rows of the
    first fold of any split, are left out. Raises RequestError if no rows are left.
    """
    first = settings.splits[0]
    open_rows = np.ones(len(splits.codes[first, 0]), np.bool_)
    for name in settings.splits:
        open_rows &= ~splits.rows(name, 0, TEST)
    for key in splits.codes:
        open_rows &= ~splits.rows(*key, CALIBRATION)
    train, validation = (splits.rows(first, 0, part) & open_rows for part in (TRAIN, VALIDATION))
    if settings.tune_weights and not (train.any() and validation.any()):
        raise RequestError(
            f"--tune-weights has no rows left: {settings.folds} folds use all rows for tests "
            f"and calibration. Choose fewer folds or splits."
        )
    return train, validation
