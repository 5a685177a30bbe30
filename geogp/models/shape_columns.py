"""Shapes from the columns of a table of predictions: the way back from `Shape.columns`."""

from collections.abc import Mapping

import numpy as np

from geogp.errors import RequestError
from geogp.models.heavy_shapes import StudentT
from geogp.models.shapes import GAUSSIAN, SHAPE_COLUMNS, Floats, RowShapes, Shape, shape_of
from geogp.models.student_sum import NormalPlusStudent
from geogp.models.warped_shapes import REPAIR_COLUMNS, Warp, WarpedShape


def shape_from(
    columns: Mapping[str, Floats], function_variance: Floats, noise_variance: Floats
) -> Shape:
    """Return the shapes of rows of a table, equal to those that were written.

    Parameters
    ----------
    columns
        Those of `SHAPE_COLUMNS` that the table has, each (n,); absent ones are those of the
        normal. `skewness` and `tailweight` are of a sinh-arcsinh shape, `df` of a Student-t one,
        `noise_df` of Student-t noise around a normal function. Those of `REPAIR_COLUMNS` are the
        knots of a repair of that shape: all or none; rows of NaN are not repaired.
    function_variance, noise_variance
        Variances of the rows, (n,), on which the last depends.

    Raises
    ------
    RequestError
        A value is out of range, a row has parameters of two kinds of shape, rows differ in
        `noise_df`, or some columns of a repair are missing.
    """
    base = _base_from(columns, function_variance, noise_variance)
    missing = [name for name in REPAIR_COLUMNS if name not in columns]
    if len(missing) == len(REPAIR_COLUMNS) or not len(function_variance):
        return base
    if missing:
        raise RequestError(
            f"expected all columns of a repair or none, missing {', '.join(missing)}."
        )
    knots = np.column_stack([columns[name] for name in REPAIR_COLUMNS])
    # NaN would differ from NaN.
    distinct, number = np.unique(np.nan_to_num(knots, nan=-1.0), axis=0, return_inverse=True)
    if (distinct == -1.0).all():
        return base
    warp = Warp(np.where(distinct == -1.0, np.nan, distinct))
    return WarpedShape(base, warp, number.reshape(-1))


def _base_from(
    columns: Mapping[str, Floats], function_variance: Floats, noise_variance: Floats
) -> Shape:
    n = len(function_variance)
    filled = [columns.get(name, np.full(n, usual)) for name, usual in SHAPE_COLUMNS.items()]
    distinct, number = np.unique(np.column_stack(filled), axis=0, return_inverse=True)
    if not n:
        return GAUSSIAN
    noise_df = distinct[:, -1]
    if np.isfinite(noise_df).any():
        if len(distinct) > 1 or _kinds(distinct[0]) > 1:
            raise RequestError(
                "expected one noise_df for all rows of a split, and no other parameter of a shape "
                f"beside it, found {len(distinct)} different sets of parameters."
            )
        return NormalPlusStudent(function_variance, noise_variance, float(noise_df[0]))
    shapes = [_one(row) for row in distinct]
    return shapes[0] if len(shapes) == 1 else RowShapes(shapes, number.reshape(-1))


def _kinds(row: Floats) -> int:
    """Count the kinds of shape, other than the normal, that a row has parameters of."""
    skewness, tailweight, df, noise_df = row.tolist()
    return sum([skewness != 0 or tailweight != 1, df != np.inf, noise_df != np.inf])


def _one(row: Floats) -> Shape:
    if _kinds(row) > 1:
        raise RequestError(f"expected parameters of one kind of shape, found {row.tolist()}.")
    skewness, tailweight, df, _ = row.tolist()
    return shape_of(skewness, tailweight) if df == np.inf else StudentT(df)
