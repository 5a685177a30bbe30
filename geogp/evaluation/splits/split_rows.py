"""Chooses the training, validation and test rows of each split.

A split depends on the seed, the quadkey (or its location) and the quarter, but not on the order of
rows or on the target. So every model and every other method is judged on the same rows. Each row is
a test row in at most one fold. A calibrated split takes one more tenth, from the training rows,
only to repair intervals; the test rows are the same as without calibration.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.row_parts import (
    CALIBRATION,
    LEFT_OUT,
    TENTHS,
    TEST,
    TRAIN,
    VALIDATION,
    Codes,
    Numbers,
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
)
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.layers import ELSEWHERE

HALVINGS = 3
"""For small regions, how often cells of 0.1 degrees in the split by blocks are halved at most."""

MIN_CELLS, MIN_EFFECTIVE_CELLS = 30, 20.0
"""Smallest number, and smallest effective number, of cells with rows in a split by blocks."""


@dataclass(frozen=True)
class SplitRows:
    """The columns that a split may use.

    Each is (n,). `quadkey` contains codes of quadkeys; `quarter` contains indices of quarters;
    `longitude` and `latitude` are the centroids of tiles in degrees; `county` contains names of
    counties, or is None if there are no boundaries of counties.
    """

    quadkey: Codes
    quarter: Numbers
    longitude: NDArray[np.float64]
    latitude: NDArray[np.float64]
    county: NDArray[np.str_] | None = None


def split_parts(
    name: str,
    rows: SplitRows,
    seed: int,
    *,
    fold: int = 0,
    calibrated: bool = False,
    buffer_km: float = BUFFER_KM,
) -> Parts:
    """Split rows by the split `name`, one of `SPLITS`.

    Returns ``train``, ``validation`` or ``test`` for each row, (n,), or ``calibration`` or ``left
    out`` if the split has such rows. `fold` is counted from 0. If `calibrated` is true, some of the
    training rows are for calibration. Raises RequestError if the split does not have the fold, or
    is not possible with these rows. Raises DataError if rows are invalid or a part is empty.
    """
    place = rows.longitude, rows.latitude
    ways: dict[str, Callable[[], Parts]] = {
        RANDOM.name: lambda: random_split(
            rows.quadkey, rows.quarter, seed, fold=fold, calibrated=calibrated
        ),
        BLOCKS.name: lambda: block_split(*place, seed, fold=fold, calibrated=calibrated),
        BUFFER.name: lambda: buffer_split(
            *place, seed, buffer_km=buffer_km, fold=fold, calibrated=calibrated
        ),
        COUNTY.name: lambda: county_split(rows.county, seed, fold=fold, calibrated=calibrated),
        LATEST.name: lambda: latest_split(
            rows.quadkey, rows.quarter, seed, fold=fold, calibrated=calibrated
        ),
    }
    return ways[name]()


def split_groups(name: str, rows: SplitRows) -> Numbers | None:
    """Return the group of each row, (n,); a split leaves out whole groups. None for single rows.

    Raises the errors of `split_parts`.
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

    Each row is hashed with the seed to u in [0, 1) (see `tenths`). Rows with u below 0.8 are for
    training, rows with u from 0.8 to 0.9 for validation, and the other rows for tests. The part of
    a row does not depend on other rows, so the numbers of rows are binomial around 8:1:1, not
    exact. In fold j of 10, all parts are shifted down by j tenths, cyclically: test rows have u
    from 0.9 - j / 10 to 1 - j / 10. If `calibrated`, the tenth before the validation tenth is for
    calibration. Raises the errors of `split_parts`, and DataError if shapes differ.
    """
    check_fold(RANDOM.name, fold, TENTHS)
    tenth = (tenths(seed, quadkey, quarter) + fold) % TENTHS
    names = np.array([*[TRAIN] * 7, CALIBRATION if calibrated else TRAIN, VALIDATION, TEST])
    part = names[tenth]
    what = f"{len(part)} rows split at random 8:1:1"
    return without_empty(part, what, calibrated=calibrated)


def block_split(
    longitude: ArrayLike,
    latitude: ArrayLike,
    seed: int,
    *,
    fold: int = 0,
    calibrated: bool = False,
) -> Parts:
    """Split rows by whole cells of 0.1 by 0.1 degrees; in small regions, smaller (`cell_side`).

    Cells, floor(longitude / side) and floor(latitude / side), are ordered by a hash with the seed.
    One after the other, each cell joins the part, of ten parts, that has the fewest rows so far. So
    the sizes of two parts differ by at most the number of rows in the largest cell. In fold j of 5,
    parts 2j and 2j + 1 are for tests, and the next part is for validation. If `calibrated`, the
    part after that is for calibration. The other parts are for training. Longitudes that differ by
    360 degrees are in the same cell.

    A test cell may touch a training cell: there is no minimum distance. Edges of tiles of zoom 16
    are at multiples of 360 / 2^16 degrees, so no centroid of a tile is on an edge of a cell in
    longitude. Raises the errors of `split_parts`, and DataError if shapes differ or a coordinate is
    not finite.
    """
    side = cell_side(longitude, latitude)
    cells = cell_indices(longitude, latitude, side)
    what = f"cells of {side:g} by {side:g} degrees"
    return assign_cells(cells, seed, what, fold=fold, calibrated=calibrated)


def assign_cells(
    cells: NDArray[np.int64], seed: int, what: str, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows by whole cells; `cells` (n, 2) are column and row of each cell; see `block_split`.

    `what` names the cells in messages.
    """
    distinct, cell_of_row, rows = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(hashed(seed, distinct[:, 0], distinct[:, 1]), kind="stable")
    names = part_names(BLOCKS.name, TENTHS, fold, calibrated=calibrated)
    part_of_row = names[assign_parts(order, rows, TENTHS)[cell_of_row.reshape(-1)]]
    return without_empty(
        part_of_row, f"{len(cells)} rows in {len(distinct)} {what}", calibrated=calibrated
    )


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
    (great-circle distance) from the centre of a tile with a test row are left out. Calibration rows
    near test rows are not left out, because no prediction depends on these rows. Raises the errors
    of `block_split`, and RequestError if the buffer leaves no training or no validation rows.
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

    Counties with rows are assigned to ten parts, in the same way as the cells of `block_split`;
    with fewer than ten counties, each county is a part. A fifth of the parts, at least one, are
    test parts; the next fold uses the next parts for tests. Rows outside all counties
    (``elsewhere``) are left out. Raises RequestError if there are no boundaries or too few
    counties, or the split does not have the fold.
    """
    if county is None:
        raise RequestError(
            "the split county needs the boundaries of counties: expected counties_<ST>.parquet or "
            "cb_2018_us_county_500k.zip in the folder of the state boundaries, found neither. Add "
            "one of these files to --boundaries, or leave the split out."
        )
    known = county != ELSEWHERE
    names, number, rows = np.unique(county[known], return_inverse=True, return_counts=True)
    least = 4 if calibrated else 3
    if len(names) < least:
        raise RequestError(
            f"the split county needs at least {least} counties with "
            f"measurements{' (one for calibration)' if calibrated else ''}, found {len(names)}. "
            "Leave the split out."
        )
    order = np.argsort(hashed(seed, text_codes(names)), kind="stable")
    parts = min(TENTHS, len(names))
    dealt = part_names(COUNTY.name, parts, fold, calibrated=calibrated)[
        assign_parts(order, rows, parts)
    ]
    part = np.full(len(county), LEFT_OUT, dtype="<U11")
    part[known] = dealt[number.reshape(-1)]
    what = f"{len(county)} rows in {len(names)} counties"
    return without_empty(part, what, calibrated=calibrated)


def latest_split(
    quadkey: Codes, quarter: Numbers, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Use the latest quarter for tests, and the earlier quarters for training.

    In fold j, the test quarter is j quarters before the latest quarter, counting only quarters with
    data; later quarters are left out. Of the rows before the test quarter, the validation tenth of
    `random_split` is for validation, and if `calibrated`, the tenth before that is for calibration.
    The number of folds is the number of quarters minus 1. Raises RequestError if there is no
    earlier quarter, and DataError if shapes differ or a part is empty.
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

    The side is the largest of 0.1, 0.05, 0.025 and 0.0125 that meets two conditions: at least
    `MIN_CELLS` cells have rows; and the effective number of cells, (Σ n)² / Σ n² (Kish 1965) with n
    the number of rows in a cell, is at least `MIN_EFFECTIVE_CELLS`. The side depends only on the
    places of the rows. Raises RequestError if no side gives enough cells, and the errors of
    `cell_indices`.
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
            f"few cells have most rows ({found})"
        )
    raise RequestError(
        f"the splits blocks and buffer need {what}. Choose more quarters, a larger region, or the "
        f"split random."
    )


def cell_indices(
    longitude: ArrayLike, latitude: ArrayLike, side: float = CELL_DEGREES
) -> NDArray[np.int64]:
    """Return column (0 or more) and row of each point's cell, (n, 2) int64.

    Raises DataError if shapes differ or a coordinate is not finite.
    """
    longitude = np.asarray(longitude, np.float64)
    latitude = np.asarray(latitude, np.float64)
    if longitude.ndim != 1 or longitude.shape != latitude.shape:
        raise DataError(
            "expected one longitude and one latitude per row, found shapes "
            f"{longitude.shape} and {latitude.shape}."
        )
    wrong = ~(np.isfinite(longitude) & np.isfinite(latitude))
    if wrong.any():
        raise DataError(
            f"expected finite coordinates, found {int(wrong.sum())} rows without them; drop "
            f"these rows first."
        )
    column = np.floor(longitude / side).astype(np.int64) % round(360 / side)
    row = np.floor(latitude / side).astype(np.int64)
    return np.column_stack([column, row])
