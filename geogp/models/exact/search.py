"""The posterior of the parameters of an exact process, by a few points with weights."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from geogp.errors import NumericalError
from geogp.models.exact.covariance import SMOOTHNESSES, Covariance
from geogp.models.exact.kriging import ExactRows, Kriging, evidence, kriging

Floats = NDArray[np.float64]

SUBSETS = (250, 700)
"""Numbers of random rows on which the searches begin; each starts where the one before ended."""

STEPS = (60, 30, 15)
"""Largest numbers of iterations in the first, in further, and in the last search."""

FAR_BELOW = 5.0
"""A smoothness is left out if its log evidence is lower than the largest by this much."""

MOST_AVERAGED = 1_000
"""With more rows, only the smoothness with the largest evidence on some rows is used."""

CHANGE = 1e-3
"""Change of a parameter in differences of gradients."""

LEAST_CURVATURE = 0.1
"""Smallest curvature of the log posterior in any direction; the prior has a larger one."""

LEAST_WEIGHT = 0.01
"""Points with a smaller weight are left out."""


@dataclass(frozen=True, eq=False)
class WeightedKriging:
    """Kriging with one value of the parameters, and its weight in the posterior."""

    weight: float
    kriging: Kriging


def posterior(rows: ExactRows, seed: int) -> list[WeightedKriging]:
    """Return kriging with points of the posterior of smoothness and θ, whose weights sum to 1.

    The maximum of the evidence is searched for each smoothness by L-BFGS-B, first on some rows. A
    Laplace approximation gives the covariance of θ there. The points are the corners of a regular
    simplex, which have the mean and the covariance of this normal distribution; each weight is
    proportional to the posterior density divided by the normal density. Raises NumericalError if no
    covariance of the rows factorises.
    """
    rng = np.random.default_rng([seed, 11])
    order = rng.permutation(len(rows))
    width, duration = rows.extent
    laws = {nu: Covariance(nu, width, duration) for nu in SMOOTHNESSES}
    best: dict[float, Floats] = {}
    sizes = [size for size in SUBSETS if size < 0.7 * len(rows)]
    for step, size in enumerate([*sizes, len(rows)]):
        some = rows if size == len(rows) else rows.at(np.sort(order[:size]))
        most = STEPS[0] if not step else STEPS[1] if some is not rows else STEPS[2]
        reached = {}
        for nu, law in laws.items():
            starts = [best[nu]] if nu in best else law.starts()
            reached[nu] = max(
                (_maximum(law, start, some, most) for start in starts), key=lambda found: found[0]
            )
        top = max(value for value, _ in reached.values())
        if not math.isfinite(top):
            raise NumericalError("no covariance of the rows factorises.")
        below = FAR_BELOW if len(rows) <= MOST_AVERAGED or size < SUBSETS[-1] else 0.0
        best = {nu: theta for nu, (value, theta) in reached.items() if value >= top - below}
        laws = {nu: laws[nu] for nu in best}
    points = [point for nu, theta in best.items() for point in _around(laws[nu], theta, rows)]
    log_weights = np.array([value for value, _ in points])
    weights = np.exp(log_weights - log_weights.max())
    kept = weights >= LEAST_WEIGHT * weights.sum()
    total = weights[kept].sum()
    return [
        WeightedKriging(float(weight / total), law)
        for weight, (_, law), keep in zip(weights, points, kept, strict=True)
        if keep
    ]


def _maximum(law: Covariance, start: Floats, rows: ExactRows, steps: int) -> tuple[float, Floats]:
    """Return the largest log evidence found from a start, and its θ."""

    def loss(theta: Floats) -> tuple[float, Floats]:
        value, gradient = evidence(law, theta, rows)
        return (-value, -gradient) if math.isfinite(value) else (1e12, gradient)

    reached = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=law.bounds,
        options={"maxiter": steps, "ftol": 1e-7},
    )
    return -float(reached.fun) if reached.fun < 1e12 else -math.inf, np.asarray(reached.x)


def _around(law: Covariance, theta: Floats, rows: ExactRows) -> list[tuple[float, Kriging]]:
    """Return kriging at points around a maximum, with the logarithms of their weights."""
    size = len(theta)
    _, here = evidence(law, theta, rows)
    steps = CHANGE * np.eye(size)
    slopes = np.array([evidence(law, theta + step, rows)[1] - here for step in steps]) / CHANGE
    curvature, axes = np.linalg.eigh(-(slopes + slopes.T) / 2)
    spread = axes / np.sqrt(curvature.clip(min=LEAST_CURVATURE))
    log_volume = -0.5 * np.log(curvature.clip(min=LEAST_CURVATURE)).sum()
    low, high = np.array(law.bounds).T
    points = []
    for corner in _simplex(size):
        at = (theta + spread @ corner).clip(low, high)
        try:
            solved = kriging(law, at, rows)
        except NumericalError:
            continue
        points.append((solved.log_evidence + 0.5 * corner @ corner + log_volume, solved))
    return points


def _simplex(size: int) -> Floats:
    """Return the corners of a regular simplex with mean 0 and covariance 1, (size + 1, size)."""
    corners = np.eye(size + 1) - 1 / (size + 1)
    # An orthonormal basis of the vectors whose entries sum to 0.
    basis = np.linalg.svd(corners)[2][:size]
    simplex: Floats = math.sqrt(size + 1) * corners @ basis.T
    return simplex
