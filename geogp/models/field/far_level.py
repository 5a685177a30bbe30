"""The error of the level far from all rows, which the fitted process does not state.

Where whole parts of a region are held out, the error of the level grows with the distance to the
rows, and is common to large areas and to all quarters (`benchmarks/answers/far_from_data.py`).
This error is a process δ of the place alone, with the covariance

Cov(δ(x), δ(x')) = τ² h(x) h(x') c(x, x'),    h(x)² = 1 - exp(-2 max(d(x) - d0, 0) / L).

d(x) is the distance to the nearest row. τ² h² is the variance of a process with exponential
correlation of range L, given its value at a distance of d - d0. c is the correlation exp(-|x - x'|
/ L), approximated from `KNOTS` points with c(x, x) = 1. Changes between quarters do not contain δ.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from torch import Tensor

from geogp.models.field.parameters import FieldParameters
from geogp.models.field.rows import FieldRows
from geogp.models.process.placement import farthest_points

Floats = NDArray[np.float64]

NEAR_KM = 2.0
"""d0, fitted in `benchmarks/answers/far_from_data.py`, as `RANGE_KM` and `SHARE`."""

RANGE_KM = 130.0
"""L, in km."""

SHARE = 0.135
"""τ² divided by the variance of the target."""

KNOTS = 64
"""Largest number of points from which correlations of δ are approximated."""

TINY = 1e-12
"""Eigenvalues and correlations below this value count as this value."""


def far_variance(parameters: FieldParameters, rows: FieldRows, x: Tensor) -> Floats:
    """Return the variance of δ at scaled inputs, (n,), in the target's squared unit."""
    return float(parameters.y_sd) ** 2 * far_share(_distance(parameters, rows, x)[1])


def far_level(parameters: FieldParameters, rows: FieldRows, x: Tensor) -> Any:
    """Return sparse R (n, q), R R' the covariance of δ at scaled inputs, in the target's unit."""
    return float(parameters.y_sd) * far_factor(*_distance(parameters, rows, x))


def far_share(distance: Floats) -> Floats:
    """Return the variance of δ for a target of variance 1, (n,); `distance` (n,) is in km."""
    return -SHARE * np.expm1(-2 * (distance - NEAR_KM).clip(min=0) / RANGE_KM)


def far_factor(places: Floats, distance: Floats) -> Any:
    """Return sparse R (n, q) for a target of variance 1, at places (n, 2) in km.

    `distance` (n,) is the distance of each place to the nearest row in km.
    """
    share = far_share(distance)
    far = np.flatnonzero(share > 0)
    if not len(far):
        return sparse.csr_array((len(places), 0))
    distinct = np.unique(places[far], axis=0)
    knots = farthest_points(torch.as_tensor(distinct), min(KNOTS, len(distinct))).numpy()
    value, vectors = np.linalg.eigh(np.exp(-cdist(knots, knots) / RANGE_KM))
    basis = vectors / np.sqrt(value.clip(min=TINY))
    whitened = np.exp(-cdist(places[far], knots) / RANGE_KM) @ basis
    size = np.sqrt(np.square(whitened).sum(1)).clip(min=TINY)
    values = whitened * (np.sqrt(share[far]) / size)[:, None]
    columns = np.tile(np.arange(len(knots)), len(far))
    starts = np.append(0, np.cumsum((share > 0) * len(knots)))
    return sparse.csr_array((values.ravel(), columns, starts), shape=(len(places), len(knots)))


def _distance(parameters: FieldParameters, rows: FieldRows, x: Tensor) -> tuple[Floats, Floats]:
    """Return scaled inputs as places (n, 2), and their distance to the nearest row, in km.

    For precise data the distance is 0, because their covariance is known well far from rows.
    """
    places = parameters.points(x)[:, :2].cpu().numpy()
    if parameters.is_precise():
        return places, np.zeros(len(places))
    return places, np.asarray(rows.near.places.query(places)[0])
