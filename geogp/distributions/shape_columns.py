"""Makes shapes from the columns of a table of predictions, which `Shape.columns` returns."""

from collections.abc import Mapping

import numpy as np

from geogp.distributions.burr import Burr, BurrMixture, BurrScale
from geogp.distributions.heavy_shapes import StudentT
from geogp.distributions.shapes import (
    BURR_COLUMNS,
    GAUSSIAN,
    SHAPE_COLUMNS,
    Floats,
    Shape,
    shape_of_rows,
)
from geogp.distributions.sinh_arcsinh import shape_of
from geogp.distributions.student_sum import NormalPlusStudent
from geogp.distributions.warped_shapes import WarpedShape
from geogp.distributions.warps import REPAIR_COLUMNS, Warp
from geogp.errors import RequestError

_KINDS = (("skewness", "tailweight"), ("df",), ("noise_df",), BURR_COLUMNS)
"""Columns of each kind of shape: sinh-arcsinh, Student's t, normal plus Student's t, and Burr."""


def shape_from(
    columns: Mapping[str, Floats], function_variance: Floats, noise_variance: Floats
) -> Shape:
    """Return the shapes that a table describes, one shape for each of n rows.

    `columns` are arrays (n,), with names from `SHAPE_COLUMNS`; an absent column has the value of a
    normal shape. The knots of a conformal repair are in `REPAIR_COLUMNS`; rows with only NaN there
    are not repaired. The variances (n,) are used only with the column `noise_df`.

    Raises RequestError if a value is out of range, a row has parameters of two kinds of shape,
    `noise_df` differs between rows, or only some columns of a repair are given.
    """
    base = _base_from(columns, function_variance, noise_variance)
    missing = [name for name in REPAIR_COLUMNS if name not in columns]
    if len(missing) == len(REPAIR_COLUMNS) or not len(function_variance):
        return base
    if missing:
        raise RequestError(
            f"expected all columns of a repair, or none of them; missing: {', '.join(missing)}."
        )
    knots = np.column_stack([columns[name] for name in REPAIR_COLUMNS])
    # NaN is replaced, because NaN does not equal itself.
    distinct, number = np.unique(np.nan_to_num(knots, nan=-1.0), axis=0, return_inverse=True)
    if (distinct == -1.0).all():
        return base
    warp = Warp(np.where(distinct == -1.0, np.nan, distinct))
    return WarpedShape(base, warp, number.reshape(-1))


def _base_from(
    columns: Mapping[str, Floats], function_variance: Floats, noise_variance: Floats
) -> Shape:
    n = len(function_variance)
    if not n:
        return GAUSSIAN
    table = np.column_stack([columns.get(k, np.full(n, v)) for k, v in SHAPE_COLUMNS.items()])
    if "noise_df" in columns and (columns["noise_df"] != np.inf).any():
        distinct = np.unique(table, axis=0)
        row = dict(zip(SHAPE_COLUMNS, distinct[0].tolist(), strict=True))
        if len(distinct) > 1 or _kinds(row) > 1:
            raise RequestError(
                "expected all rows of a split to have the same noise_df and no other shape "
                f"parameter, found {len(distinct)} different sets of parameters."
            )
        return NormalPlusStudent(function_variance, noise_variance, row["noise_df"])
    return shape_of_rows(table, _one)


def _kinds(row: Mapping[str, float]) -> int:
    """Return how many kinds of shape, apart from the normal, a row's parameters describe."""
    return sum(any(row[name] != SHAPE_COLUMNS[name] for name in names) for names in _KINDS)


def _one(*parameters: float) -> Shape:
    row = dict(zip(SHAPE_COLUMNS, parameters, strict=True))
    if _kinds(row) > 1:
        raise RequestError(f"expected parameters of one kind of shape, found {row}.")
    c, d, rows, distance = (row[name] for name in BURR_COLUMNS)
    if (c, d, rows, distance) != (np.inf,) * 4:
        return BurrMixture(BurrScale(Burr(c, d), rows, distance))
    if row["df"] != np.inf:
        return StudentT(row["df"])
    return shape_of(row["skewness"], row["tailweight"])
