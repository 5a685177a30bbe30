"""The figure of a fitted estimator, and the training rows that it shows."""

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from geogp.choices import AVERAGE
from geogp.distributions.amounts import AmountPrediction, NormalScores
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.estimators.point_columns import Points
from geogp.estimators.point_scale import PointScale
from geogp.estimators.point_times import Times
from geogp.models.names import find_model
from geogp.models.process.model import KnownPredictions, Model

Floats = NDArray[np.float64]

MOST_SHOWN = 5_000
"""Largest number of training rows that a figure shows."""

CELLS = 80
"""Number of cells along the longer side of the map in a figure."""


def some_rows(points: Points, y: Floats) -> tuple[Points, Floats]:
    """Return at most `MOST_SHOWN` random rows."""
    n = len(y)
    chosen = np.zeros(n, np.bool_)
    chosen[np.random.default_rng(0).permutation(n)[:MOST_SHOWN]] = True
    return points.at(chosen), y[chosen]


def last_time(scale: PointScale) -> Times | None:
    """Return the last time of the training rows; None if these have no times."""
    if scale.times is None or scale.time_kind is None:
        return None
    return Times(np.array([scale.times[1]]), scale.time_kind)


def _are_of_rows(left_out: KnownPredictions | None, n: int) -> TypeGuard[KnownPredictions]:
    """Return whether predictions of rows that are left out are there for each of n rows."""
    return left_out is not None and len(left_out.y) == n


def fit_plot(
    network: Model,
    scale: PointScale,
    grid: Callable[..., Any],
    given: tuple[Points, Floats, Prediction] | None,
    known: tuple[Points, Floats] | None,
    *,
    scores: NormalScores | None,
) -> Any:
    """Return a figure of a fitted model; see `SpatialGP.plot`.

    `grid` returns a map of a box with a resolution. `given` are test rows and their predictions,
    and `known` are training rows; None if there are none. `scores` are those of a law of amounts,
    where rows at an end of the range have no measurement to predict from the others.
    """
    from geogp.maps.figures.fit_figure import MeasuredRows, fit_figure  # noqa: PLC0415 - slow

    if find_model(network.name).kind != AVERAGE:
        raise RequestError(
            f"expected a model of averages, found {network.name}: counts and classes have no "
            "errors around a median. Use evaluate(predict_distribution(X), y)."
        )
    if given is not None:
        (points, y, law), what = given, "errors of test rows"
    elif known is None:
        raise RequestError(
            "expected X and y, because the estimator was loaded from a file, which has no "
            "training rows for a figure. Give rows with plot(X, y), or fit the estimator again."
        )
    elif scores is None and _are_of_rows(left_out := network.left_out_rows(), len(known[1])):
        points, law, y = known[0], left_out.prediction, left_out.y
        what = "errors of training rows, each from the others"
    else:
        points, y = known
        law = network.predict(scale.inputs(points), points.tests, points.devices)
        law = law if scores is None else AmountPrediction.of(law, scores)
        what = "errors of training rows; those of others are larger"
    west, south, east, north = scale.bounds
    box = grid(scale.bounds, resolution=max(east - west, north - south) / CELLS)
    x = points.x if scale.km is not None else scale.unwrap(points.x)
    aspect = 1.0 if scale.km is not None else 1 / np.cos(np.deg2rad((south + north) / 2))
    return fit_figure(box, MeasuredRows(x, points.y, law, y, what), scale.names, aspect=aspect)
