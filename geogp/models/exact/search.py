"""The posterior of the parameters of an exact process, by a few points with weights."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from geogp.errors import NumericalError
from geogp.models.exact.covariance import FORMS, Covariance
from geogp.models.exact.kriging import ExactRows, Kriging, evidence, kriging

Floats = NDArray[np.float64]

SUBSETS = (250, 700)
"""Numbers of random rows on which the searches begin; each starts where the one before ended."""

STEPS = (60, 30, 6)
"""Largest numbers of iterations in the first search, in further ones, and in one on all rows, if it
is not the first; a Newton step follows.
"""

FAR_BELOW = 6.0
"""A form is left out if its largest log density is lower than that of another by this much."""

LEAST_LIKELY = 3.0
"""With more than `MOST_AVERAGED` rows, a form is left out if its log evidence on some of them is
lower than that of another by this much.
"""

MOST_AVERAGED = 1_000
"""With more rows, a search on all rows is slow."""

CHANGE = 1e-3
"""Change of a parameter in differences of gradients."""

LONGEST = 0.5
"""Largest change of a parameter in a Newton step."""

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
    """Return kriging with points of the posterior of form and θ, whose weights sum to 1.

    The maximum of the density is searched for each form by L-BFGS-B, first on some rows. A Laplace
    approximation gives the covariance of θ there. The points are the corners of a regular simplex,
    which have the mean and the covariance of this normal distribution; each weight is proportional
    to the posterior density divided by the normal density. With more than `MOST_AVERAGED` rows, the
    sums of these weights on some of the rows say which forms are left out. Raises NumericalError if
    no covariance of the rows factorises.
    """
    order = np.random.default_rng([seed, 11]).permutation(len(rows))
    width, duration = rows.extent
    laws = [Covariance(nu, width, duration, nested) for nu, nested in FORMS]
    best: dict[Covariance, Floats] = {}
    sizes = [size for size in SUBSETS if size < 0.7 * len(rows)]
    for step, size in enumerate([*sizes, len(rows)]):
        some = rows if size == len(rows) else rows.at(np.sort(order[:size]))
        most = STEPS[0] if not step else STEPS[1] if some is not rows else STEPS[2]
        reached = {}
        for law in laws:
            starts = [best[law]] if law in best else law.starts()
            searched = (_maximum(law, start, some, most) for start in starts)
            reached[law] = max(searched, key=lambda found: found[0])
        top = max(value for value, _ in reached.values())
        if not math.isfinite(top):
            raise NumericalError("no covariance of the rows factorises.")
        laws = [law for law in laws if reached[law][0] > top - FAR_BELOW]
        best = {law: reached[law][1] for law in laws}
        if len(rows) > MOST_AVERAGED and size == sizes[-1] and len(laws) > 1:
            weight = {law: _total(_around(law, best[law], some)) for law in laws}
            laws = [law for law in laws if weight[law] >= max(weight.values()) - LEAST_LIKELY]
    points = [point for law in laws for point in _around(law, best[law], rows)]
    if not points:
        raise NumericalError("no covariance of the rows factorises.")
    weights = np.exp([value - _total(points) for value, _ in points])
    kept = weights >= LEAST_WEIGHT
    return [
        WeightedKriging(float(weight / weights[kept].sum()), solved)
        for weight, (_, solved), keep in zip(weights, points, kept, strict=True)
        if keep
    ]


def _total(points: list[tuple[float, Kriging]]) -> float:
    """Return the logarithm of the sum of the weights of points."""
    return float(np.logaddexp.reduce([value for value, _ in points]))


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
    """Return kriging at points around a maximum near θ, with the logarithms of their weights."""
    size = len(theta)
    _, here = evidence(law, theta, rows)
    steps = CHANGE * np.eye(size)
    slopes = np.array([evidence(law, theta + step, rows)[1] - here for step in steps]) / CHANGE
    curvature, axes = np.linalg.eigh(-(slopes + slopes.T) / 2)
    curvature = curvature.clip(min=LEAST_CURVATURE)
    spread = axes / np.sqrt(curvature)
    newton = spread @ (spread.T @ here)
    newton *= min(1.0, LONGEST / max(float(np.abs(newton).max()), LONGEST))
    # Each corner stands for an equal share of the volume.
    log_volume = -0.5 * np.log(curvature).sum()
    log_volume += size / 2 * math.log(2 * math.pi) - math.log(size + 1)
    low, high = np.array(law.bounds).T
    points = []
    for corner in _simplex(size):
        at = (theta + newton + spread @ corner).clip(low, high)
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
