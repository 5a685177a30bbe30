"""The training, validation and test rows of each split, and the question that it answers.

A split is a function of the seed, the quadkey (or its location) and the quarter, not of the order
of rows or the target: every model and every peer is judged on the same rows. Each row is held out
by at most one fold. A calibrated split takes one more tenth from the training rows, only for the
repair of intervals; its test rows are the same.
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
    COUNTY,
    LATEST,
    RANDOM,
)
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.layers import ELSEWHERE

CELL_DEGREES = 0.1
"""Side of the cells of the split by blocks, in degrees of longitude and of latitude."""


@dataclass(frozen=True)
class SplitRows:
    """What a split may use of the rows.

    Codes of quadkeys and indices of quarters, centroids of tiles in degrees, and names of counties,
    each (n,); `county` is None without boundaries of counties.
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
    """Split rows in the way of a name, one of `SPLITS`.

    Returns ``train``, ``validation`` or ``test`` for each row, (n,); ``calibration`` and ``left
    out`` where the split has such rows. `fold` counts from 0; `calibrated` keeps training rows for
    calibration. A fold that the split does not have, or a split that these rows do not allow, is a
    RequestError; wrong rows or an empty part are a DataError.
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


def random_split(
    quadkey: Codes, quarter: Numbers, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows 8:1:1 at random, each row on its own.

    Each row is hashed with the seed to u in [0, 1) (see `tenths`): below 0.8 it trains, below 0.9
    it validates, else it tests. A row's part does not depend on the other rows, so the counts are
    binomial around 8:1:1, not exact. Fold j, of 10, shifts all by j tenths down, cyclically: it
    tests u from 0.9 - j / 10. The tenth before the validating one calibrates. Errors are as in
    `split_parts`; different shapes are a DataError.
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
    """Split rows by whole cells of 0.1 by 0.1 degrees.

    Cells, floor(longitude / 0.1) and floor(latitude / 0.1), are ordered by a hash with the seed;
    each then joins the part, of ten, with the fewest rows so far. In fold j, of 5, parts 2j and 2j
    + 1 test, the next one validates, the one after it calibrates on request, and the others train.
    The sizes of two parts thus differ by no more rows than the largest cell holds. Longitudes that
    differ by 360 degrees share a cell.

    A test cell may touch a training cell: cells are separate, but there is no minimum distance.
    Edges of tiles of zoom 16 lie at multiples of 360 / 2^16 degrees, so no centroid of a tile sits
    on an edge of a cell of longitude. Errors are as in `split_parts`; different shapes or a
    coordinate that is not finite are a DataError.
    """
    cells = cell_indices(longitude, latitude)
    what = "cells of 0.1 by 0.1 degrees"
    return assign_cells(cells, seed, what, fold=fold, calibrated=calibrated)


def assign_cells(
    cells: NDArray[np.int64], seed: int, what: str, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows by whole cells; `cells` (n, 2) holds column and row; see `block_split`.

    Messages call the cells `what`.
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
    """Split rows by cells, and leave out training rows near a test row.

    As `block_split`, but training rows less than `buffer_km` (great-circle distance) from the
    centre of any tile with a test row are left out. Validation and calibration rows stay: no
    prediction depends on their neighbourhood. Errors are as in `block_split`; a buffer that leaves
    no training rows is one.
    """
    longitude, latitude = np.asarray(longitude, np.float64), np.asarray(latitude, np.float64)
    part = block_split(longitude, latitude, seed, fold=fold, calibrated=calibrated)
    train, test = part == TRAIN, part == TEST
    near = np.zeros(len(part), np.bool_)
    near[train] = (
        nearest_km(longitude[train], latitude[train], longitude[test], latitude[test]) < buffer_km
    )
    if near.sum() == train.sum():
        raise RequestError(
            f"a buffer of {buffer_km:g} km around the test blocks removes all {int(near.sum())} "
            f"training rows. Choose a smaller --buffer-km, or leave the split buffer out."
        )
    return np.where(near, LEFT_OUT, part)


def county_split(
    county: NDArray[np.str_] | None, seed: int, *, fold: int = 0, calibrated: bool = False
) -> Parts:
    """Split rows by whole counties.

    Counties with rows are assigned like the cells of `block_split`, to ten parts or one part a
    county if there are fewer. A fifth of the parts, at least one, are test parts; each fold takes
    the next ones. Rows in no county (``elsewhere``) are left out. No boundaries, too few counties,
    or no such fold are a RequestError.
    """
    if county is None:
        raise RequestError(
            "the split county needs the boundaries of counties: expected counties_<ST>.parquet "
            "or cb_2018_us_county_500k.zip in the folder of the state boundaries, found neither. "
            "Add one to --boundaries, or leave the split out."
        )
    known = county != ELSEWHERE
    names, number, rows = np.unique(county[known], return_inverse=True, return_counts=True)
    least = 4 if calibrated else 3
    if len(names) < least:
        raise RequestError(
            f"the split county needs {least} counties with measurements or more"
            f"{' (one calibrates)' if calibrated else ''}, found {len(names)}. Leave it out."
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
    """Hold out the latest quarter, and train on the earlier ones.

    Fold j tests the j-th quarter before the latest with data; later quarters are left out. Of the
    earlier rows, the tenth that validates in `random_split` validates, and the tenth before it
    calibrates. There is one fold fewer than quarters. No earlier quarter is a RequestError;
    different shapes or an empty part are a DataError.
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


def cell_indices(longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.int64]:
    """Return column (from 0 to 3599) and row of each point's cell, int64 of shape (n, 2).

    Different shapes or a coordinate that is not finite are a DataError.
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
    column = np.floor(longitude / CELL_DEGREES).astype(np.int64) % round(360 / CELL_DEGREES)
    row = np.floor(latitude / CELL_DEGREES).astype(np.int64)
    return np.column_stack([column, row])
