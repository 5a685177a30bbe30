"""Chooses the training, validation and test rows of each split.

The choice depends on the seed, the tiles and the quarters, but not on the order of rows or on the
target. Each row is a test row in at most one fold; folds are counted from 0. A calibrated split
uses one more tenth of the rows for conformal repair, and so has fewer training rows.

Every split raises RequestError if the fold does not exist or the rows do not allow the split. It
raises DataError if rows are invalid or a part is empty.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.arrays import Floats, Numbers
from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.row_parts import (
    CALIBRATION,
    LEFT_OUT,
    MORE_ROWS,
    TENTHS,
    TEST,
    TRAIN,
    VALIDATION,
    Codes,
    Parts,
    assign_parts,
    check_fold,
    hashed,
    part_names,
    tenths,
    text_codes,
    without_empty,
)
from geogp.evaluation.splits.split_names import (
    BLOCKS,
    BUFFER,
    BUFFER_KM,
    CELL_DEGREES,
    COUNTY,
    LATEST,
    RANDOM,
    SESSION,
    TILES,
)
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.layers import ELSEWHERE

HALVINGS = 3
"""Largest number of times that the side of cells is halved in small regions."""

MIN_CELLS, MIN_EFFECTIVE_CELLS = 30, 20.0
"""Smallest number, and smallest effective number, of cells with rows in a split by blocks."""

LEAST_SESSIONS = 3
"""Smallest number of sessions, or counties, of a split by whole ones: one for each part."""


@dataclass(frozen=True)
class SplitRows:
    """The columns (n,) that splits use: quadkeys, quarters, degrees, counties, and sessions."""

    quadkey: Codes
    quarter: Numbers
    longitude: Floats
    latitude: Floats
    county: NDArray[np.str_] | None = None
    session: NDArray[np.str_] | None = None


def split_parts(
    name: str,
    rows: SplitRows,
    seed: int,
    *,
    fold: int = 0,
    calibrated: bool = False,
    buffer_km: float = BUFFER_KM,
) -> Parts:
    """Return the name of each row's part, (n,), in the split `name` (see `SPLITS`).

    The parts are ``train``, ``validation`` and ``test``, and in some splits ``calibration`` and
    ``left out``.
    """
    place, tile = (rows.longitude, rows.latitude), (rows.quadkey, rows.quarter)
    ways: dict[str, Callable[..., Parts]] = {
        RANDOM.name: partial(random_split, *tile),
        TILES.name: partial(tile_split, rows.quadkey),
        BLOCKS.name: partial(block_split, *place),
        BUFFER.name: partial(buffer_split, *place, buffer_km=buffer_km),
        COUNTY.name: partial(county_split, rows.county),
        LATEST.name: partial(latest_split, *tile),
        SESSION.name: partial(session_split, rows.session),
    }
    return ways[name](seed=seed, fold=fold, calibrated=calibrated)


def split_groups(name: str, rows: SplitRows) -> Numbers | None:
    """Return the group of each row, such as its block, (n,); None for splits without groups.

    A group has all rows at a place, so that sessions are none.
    """
    if name in {BLOCKS.name, BUFFER.name}:
        side = cell_side(rows.longitude, rows.latitude)
        groups = np.unique(
            cell_indices(rows.longitude, rows.latitude, side), axis=0, return_inverse=True
        )
        return groups[1].reshape(-1)
    if name == COUNTY.name and rows.county is not None:
        return np.unique(rows.county, return_inverse=True)[1]
    return None


def random_split(
    quadkey: Codes, quarter: Numbers, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows 8:1:1 at random, each row independently.

    A hash of seed and row gives a number u in [0, 1) (see `tenths`). In fold 0, rows with u below
    0.8 are for training, rows with u from 0.8 to 0.9 for validation, and the other rows for tests.
    In fold j, the limits 0.8 and 0.9 move down by j tenths, modulo 1. If `calibrated`, the tenth
    before the validation tenth is for calibration.
    """
    keys, what = (quadkey, quarter), f"{len(quadkey)} rows split at random 8:1:1"
    return _by_hash(RANDOM.name, keys, what, seed, fold=fold, calibrated=calibrated)


def tile_split(quadkey: Codes, seed: int, *, fold: int = 0, calibrated: bool = False) -> Parts:
    """Split tiles 8:1:1 at random, each tile with the rows of all its quarters.

    As `random_split`, but the hash is of seed and quadkey, so that a test tile has no other rows.
    """
    what = f"{len(np.unique(quadkey))} tiles split at random 8:1:1"
    cure = "Choose a larger region, or the split random."
    return _by_hash(TILES.name, (quadkey,), what, seed, fold=fold, calibrated=calibrated, cure=cure)


def _by_hash(
    name: str,
    keys: tuple[NDArray[np.uint64] | Numbers, ...],
    what: str,
    seed: int,
    *,
    fold: int,
    calibrated: bool,
    cure: str = MORE_ROWS,
) -> Parts:
    """Split rows 8:1:1 by a hash of seed and keys (n,); `what` names what is split."""
    check_fold(name, fold, TENTHS)
    tenth = (tenths(seed, *keys) + fold) % TENTHS
    names = np.array([*[TRAIN] * 7, CALIBRATION if calibrated else TRAIN, VALIDATION, TEST])
    return without_empty(names[tenth], what, calibrated=calibrated, cure=cure)


def block_split(
    longitude: ArrayLike, latitude: ArrayLike, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows by whole cells of 0.1 by 0.1 degrees; in small regions, by smaller cells.

    `cell_side` gives the side of the cells, and `assign_parts` assigns cells to ten parts. In fold
    j of 5, parts 2j and 2j + 1 are for tests, and the next part is for validation. If `calibrated`,
    one more part is for calibration. Longitudes that differ by 360 degrees are in the same cell. A
    test cell may touch a training cell.
    """
    side = cell_side(longitude, latitude)
    cells = cell_indices(longitude, latitude, side)
    what = f"cells of {side:g} by {side:g} degrees"
    return assign_cells(cells, seed, what, fold=fold, calibrated=calibrated)


def assign_cells(
    cells: Numbers, seed: int, what: str, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows by whole cells, in the same way as `block_split`.

    `cells` (n, 2) contains column and row of each row's cell. `what` names the cells in messages.
    """
    distinct, cell = np.unique(cells, axis=0, return_inverse=True)
    names = part_names(BLOCKS.name, TENTHS, fold, calibrated=calibrated)
    part = names[assign_parts(hashed(seed, *distinct.T), cell.reshape(-1), TENTHS)]
    found = f"{len(cells)} rows in {len(distinct)} {what}"
    return without_empty(part, found, calibrated=calibrated)


def buffer_split(
    longitude: ArrayLike,
    latitude: ArrayLike,
    seed: int,
    *,
    buffer_km: float = BUFFER_KM,
    fold: int = 0,
    calibrated: bool = False,
) -> Parts:
    """Split rows by cells, and leave out training and validation rows near a test row.

    Rows are split as in `block_split`, but training and validation rows less than `buffer_km`
    (great-circle distance) from a test row are left out. Calibration rows near test rows are not
    left out, because the fit does not use them.
    """
    longitude, latitude = np.asarray(longitude, np.float64), np.asarray(latitude, np.float64)
    part = block_split(longitude, latitude, seed, fold=fold, calibrated=calibrated)
    used, test = np.isin(part, (TRAIN, VALIDATION)), part == TEST
    near = np.zeros(len(part), np.bool_)
    near[used] = (
        nearest_km(longitude[used], latitude[used], longitude[test], latitude[test]) < buffer_km
    )
    for name, rows in (("training", part == TRAIN), ("validation", part == VALIDATION)):
        if near[rows].all():
            raise RequestError(
                f"a buffer of {buffer_km:g} km around the test blocks removes all "
                f"{int(rows.sum())} {name} rows. Choose a smaller --buffer-km, or leave the split "
                f"buffer out."
            )
    return np.where(near, LEFT_OUT, part)


def county_split(
    county: NDArray[np.str_] | None, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows by whole counties.

    Counties with rows are assigned to ten parts, in the same way as the cells of `block_split`.
    With fewer than ten counties, each county is a part. A fifth of the parts, at least one, are
    test parts. Rows outside all counties (``elsewhere``) are left out.
    """
    if county is None:
        raise RequestError(
            "the split county needs the boundaries of counties: expected counties_<ST>.parquet or "
            "cb_2018_us_county_500k.zip in the folder of the state boundaries, found neither. Add "
            "one of these files to --boundaries, or leave the split out."
        )
    known = county != ELSEWHERE
    part = np.full(len(county), LEFT_OUT, dtype="<U11")
    kinds = COUNTY.name, "counties"
    part[known] = _whole_groups(kinds, county[known], seed, fold=fold, calibrated=calibrated)
    return part


def session_split(
    session: NDArray[np.str_] | None, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows by whole sessions, such as drives, in the same way as `county_split`."""
    if session is None:
        raise RequestError(
            "the split session needs rows of drives, found none. Give a log of drives with "
            "--points, name the column of its drives with --columns session=NAME, or leave the "
            "split out."
        )
    kinds = SESSION.name, "sessions"
    return _whole_groups(kinds, session, seed, fold=fold, calibrated=calibrated)


def _whole_groups(
    kinds: tuple[str, str], group: NDArray[np.str_], seed: int, *, fold: int, calibrated: bool
) -> Parts:
    """Split rows by groups with names (n,); `kinds` are the split, and what the groups are."""
    split, what = kinds
    names, number = np.unique(group, return_inverse=True)
    least = LEAST_SESSIONS + calibrated
    if len(names) < least:
        raise RequestError(
            f"the split {split} needs at least {least} {what} with "
            f"measurements{' (one for calibration)' if calibrated else ''}, found {len(names)}. "
            "Leave the split out."
        )
    parts = min(TENTHS, len(names))
    named = part_names(split, parts, fold, calibrated=calibrated)
    part = named[assign_parts(hashed(seed, text_codes(names)), number, parts)]
    return without_empty(part, f"{len(group)} rows in {len(names)} {what}", calibrated=calibrated)


def latest_split(
    quadkey: Codes, quarter: Numbers, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Use the latest quarter for tests, and the earlier quarters for training.

    In fold j, the test quarter is j quarters before the latest quarter, counting only quarters with
    data; later quarters are left out. Validation and calibration rows are chosen from the earlier
    rows as in `random_split`.
    """
    tenth = tenths(seed, quadkey, quarter)
    found = np.unique(quarter)
    if len(found) < fold + 2:
        raise RequestError(
            f"the split latest needs {fold + 2} quarters with data for {fold + 1} "
            f"{'folds' if fold else 'fold'}, found {len(found)}. Choose more --quarters"
            f"{' or fewer --folds' if fold else ''}, or leave the split out."
        )
    tested = found[-1 - fold]
    earlier = np.where(tenth == TENTHS - 2, VALIDATION, TRAIN).astype("<U11")
    if calibrated:
        earlier[tenth == TENTHS - 3] = CALIBRATION
    part = np.where(quarter < tested, earlier, np.where(quarter == tested, TEST, LEFT_OUT))
    what = f"{int((quarter <= tested).sum())} rows up to the quarter that is tested"
    return without_empty(part, what, calibrated=calibrated)


def cell_side(longitude: ArrayLike, latitude: ArrayLike) -> float:
    """Return the side, in degrees, of the cells of `block_split`.

    The side is the largest of 0.1, 0.05, 0.025 and 0.0125 that gives at least `MIN_CELLS` cells
    with rows and `MIN_EFFECTIVE_CELLS` effective cells. The effective number of cells is (Σ n)² / Σ
    n² (Kish 1965), where a cell has n rows. Raises RequestError if no side gives enough cells.
    """
    for halvings in range(HALVINGS + 1):
        side: float = CELL_DEGREES / 2**halvings
        cells = cell_indices(longitude, latitude, side)
        rows = np.unique(cells, axis=0, return_counts=True)[1].astype(np.float64)
        if len(rows) >= MIN_CELLS and rows.sum() ** 2 >= MIN_EFFECTIVE_CELLS * (rows @ rows):
            return side
    found = f"{len(rows)} cells of {side:g} degrees with {len(cells)} rows"
    if len(rows) < MIN_CELLS:
        what = f"{MIN_CELLS} cells with rows, found {found}"
    else:
        effective = rows.sum() ** 2 / (rows @ rows)
        what = (
            f"an effective number of {MIN_EFFECTIVE_CELLS:g} cells, found {effective:.3g} because "
            f"few cells contain most rows ({found})"
        )
    raise RequestError(
        f"the splits blocks and buffer need {what}. Choose more quarters, a larger region, or the "
        f"split random."
    )


def cell_indices(longitude: ArrayLike, latitude: ArrayLike, side: float = CELL_DEGREES) -> Numbers:
    """Return column (0 or more) and row of each point's cell, (n, 2) int64.

    Raises DataError if a coordinate is not finite.
    """
    longitude, latitude = np.asarray(longitude, np.float64), np.asarray(latitude, np.float64)
    wrong = ~(np.isfinite(longitude) & np.isfinite(latitude))
    if wrong.any():
        raise DataError(
            f"expected finite coordinates, found {int(wrong.sum())} rows with other values; drop "
            f"these rows first."
        )
    column = np.floor(longitude / side).astype(np.int64) % round(360 / side)
    row = np.floor(latitude / side).astype(np.int64)
    return np.column_stack([column, row])
