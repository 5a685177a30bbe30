"""The posterior of the parameters of an exact process, by a few points with weights."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from geogp.errors import NumericalError
from geogp.models.exact.covariance import FORMS, Covariance
from geogp.models.exact.kriging import ExactRows, Kriging
from geogp.models.exact.passes import MOST_ROWS
from geogp.models.exact.stations import StationKriging, are_stations

Floats = NDArray[np.float64]
Conditioned = Kriging | StationKriging
"""Kriging with given parameters."""

SUBSETS = (250, 700)
"""Numbers of random rows on which the searches begin; each starts where the one before ended."""

STEPS = 60
"""Largest number of steps of a search."""

HALVINGS = 6
"""Largest number of times that a step is halved before a search ends."""

ENOUGH = (0.1, 0.01)
"""A search ends where a step raises the log density by less; the second number is for searches
whose maximum has points around it.
"""

LONGEST = 0.7
"""Largest change of a parameter in a step, in standard deviations of its prior."""

FAR_BELOW = 6.0
"""A form is left out if its largest log density is lower than that of another by this much."""

LEAST_LIKELY = 2.0
"""With more than `MOST_COMPARED` rows, a form is left out if its log evidence on some of them is
lower than that of another by this much.
"""

MOST_COMPARED = 1_000
"""With more rows, not all forms are compared on all rows."""

MOST_AVERAGED = 1_500
"""With more rows, the parameters of a form have the values of its maximum."""

ROWS_PER_TREND = 3
"""Rows of a subset for each column of the trend, at least."""

CHANGE = 1e-3
"""Change of a parameter in differences of gradients."""

LEAST_CURVATURE = 0.1
"""Smallest curvature of the log posterior in any direction; the prior has a larger one."""

SAMPLE, RUNS = 2_000, 8
"""Number of rows to which the parameters of stations are fitted, and of runs of successive times
from which they are.
"""

LEAST_WEIGHT = 0.01
"""Points with a smaller weight are left out."""


@dataclass(frozen=True, eq=False)
class WeightedKriging:
    """Kriging with one value of the parameters, and its weight in the posterior."""

    weight: float
    kriging: Conditioned


@dataclass(frozen=True, eq=False)
class Maximum:
    """The maximum of the density of the parameters θ of a form, and what `slopes` returns there."""

    kriging: Kriging
    gradient: Floats
    information: Floats

    @property
    def height(self) -> float:
        """Log density."""
        return self.kriging.log_evidence

    @property
    def log_mass(self) -> float:
        """Logarithm of the integral of the density, by Laplace's approximation."""
        return self.height + _log_volume(np.asarray(np.linalg.eigvalsh(self.information)))

    def around(self) -> list[tuple[float, Kriging]]:
        """Return kriging at points around the maximum, with the logarithms of their masses.

        A Laplace approximation gives the covariance of θ. The points are the corners of a regular
        simplex, which have the mean and the covariance of this normal distribution; each mass is
        proportional to the density divided by the normal density.
        """
        law, theta, rows = self.kriging.covariance, self.kriging.theta, self.kriging.rows
        size = len(theta)
        curvature, axes = np.linalg.eigh(self._curvature())
        curvature = curvature.clip(min=LEAST_CURVATURE)
        spread = axes / np.sqrt(curvature)
        centre = theta + _shortened(spread @ (spread.T @ self.gradient), law)
        # Each corner stands for an equal share of the volume.
        log_volume = _log_volume(curvature) - math.log(size + 1)
        points = ((corner, _tried(law, centre + spread @ corner, rows)) for corner in simplex(size))
        return [
            (solved.log_evidence + 0.5 * corner @ corner + log_volume, solved)
            for corner, solved in points
            if solved is not None
        ]

    def _curvature(self) -> Floats:
        """Return the negative second derivative of the log density, by differences."""
        law, theta, rows = self.kriging.covariance, self.kriging.theta, self.kriging.rows
        near = [_tried(law, theta + step, rows) for step in CHANGE * np.eye(len(theta))]
        changes = [other.slopes()[0] - self.gradient for other in near if other is not None]
        if len(changes) < len(theta):
            return self.information
        slopes = np.array(changes)
        curvature: Floats = -(slopes + slopes.T) / (2 * CHANGE)
        return curvature


def posterior(rows: ExactRows, seed: int) -> list[WeightedKriging]:
    """Return kriging with points of the posterior of form and θ, whose weights sum to 1.

    The maximum of the density is searched for each form, first on some rows. The points are those
    around the maxima; with more than `MOST_AVERAGED` rows, they are the maxima. Raises
    NumericalError if no covariance of the rows factorises.
    """
    order = np.random.default_rng([seed, 11]).permutation(len(rows))
    laws = [rows.law(nu, nested=nested) for nu, nested in FORMS]
    starts = {law: law.starts() for law in laws}
    most_trend = rows.trend.shape[1] * ROWS_PER_TREND
    sizes = [size for size in SUBSETS if most_trend < size < 0.7 * len(rows)]
    averaged = len(rows) <= MOST_AVERAGED
    for size in [*sizes, len(rows)]:
        whole = size == len(rows)
        some = rows if whole else rows.at(np.sort(order[:size]))
        enough = ENOUGH[whole and averaged]
        each = [_maximum(law, at, some, enough) for law, at in starts.items()]
        searched = [found for found in each if found is not None]
        if not searched:
            raise NumericalError("no covariance of the rows factorises.")
        top = max(found.height for found in searched)
        maxima = [found for found in searched if found.height > top - FAR_BELOW]
        if len(rows) > MOST_COMPARED and sizes and size == sizes[-1]:
            most = max(found.log_mass for found in maxima)
            maxima = [found for found in maxima if found.log_mass > most - LEAST_LIKELY]
        starts = {found.kriging.covariance: [found.kriging.theta] for found in maxima}
    if averaged:
        points = [point for found in maxima for point in found.around()]
    else:
        points = [(found.log_mass, found.kriging) for found in maxima]
    if not points:
        raise NumericalError("no covariance of the rows factorises.")
    weights = softmax([mass for mass, _ in points])
    kept = weights >= LEAST_WEIGHT
    return [
        WeightedKriging(float(weight / weights[kept].sum()), solved)
        for weight, (_, solved), keep in zip(weights, points, kept, strict=True)
        if keep
    ]


def conditioned(law: Covariance, theta: Floats, rows: ExactRows) -> Conditioned:
    """Return kriging with parameters θ; many rows may be those of stations."""
    if len(rows) > MOST_ROWS and are_stations(rows.points.cpu().numpy()):
        return StationKriging(law, theta, rows)
    return Kriging(law, theta, rows)


def station_posterior(rows: ExactRows, seed: int) -> list[WeightedKriging]:
    """Return kriging of the rows of stations, with parameters fitted to runs of successive times.

    Raises NumericalError like `posterior`.
    """
    order = np.lexsort(rows.points[:, [0, 2]].cpu().numpy().T)
    size, every = SAMPLE // RUNS, len(order) // RUNS
    random = np.random.default_rng([seed, 17])
    starts = every * np.arange(RUNS) + random.integers(0, every - size, RUNS, endpoint=True)
    sample = np.sort(np.concatenate([order[start : start + size] for start in starts]))
    points = posterior(rows.at(sample), seed)
    return [
        WeightedKriging(point.weight, StationKriging(own.covariance, own.theta, rows))
        for point in points
        for own in [point.kriging]
    ]


def _maximum(
    law: Covariance, starts: list[Floats], rows: ExactRows, enough: float
) -> Maximum | None:
    """Return the maximum of the density that is found from the best of the starts.

    Each step divides the gradient by the average information, and is halved until the density
    rises. None if no covariance factorises at the starts.
    """
    tried = [found for start in starts if (found := _tried(law, start, rows))]
    if not tried:
        return None
    best = max(tried, key=lambda found: found.log_evidence)
    gradient, information = best.slopes()
    for _ in range(STEPS):
        step = np.asarray(np.linalg.solve(information, gradient), np.float64)
        if gradient @ step < 2 * enough:
            break
        step = _shortened(step, law)
        halved = (_tried(law, best.theta + 0.5**k * step, rows) for k in range(HALVINGS))
        before = best.log_evidence
        found = next((other for other in halved if other and other.log_evidence > before), None)
        if found is None:
            break
        best = found
        gradient, information = best.slopes()
        if best.log_evidence < before + enough:
            break
    return Maximum(best, gradient, information)


def _shortened(step: Floats, law: Covariance) -> Floats:
    """Return a step in which no parameter changes by more than `LONGEST`."""
    longest = float(np.abs(step / law.spread).max())
    return step * LONGEST / max(longest, LONGEST)


def _tried(law: Covariance, theta: Floats, rows: ExactRows) -> Kriging | None:
    """Return kriging with θ inside its bounds, or None if no covariance factorises."""
    try:
        return Kriging(law, theta.clip(*np.array(law.bounds).T), rows)
    except NumericalError:
        return None


def _log_volume(curvature: Floats) -> float:
    """Return the logarithm of the integral of exp(-x' A x / 2), where A has these eigenvalues."""
    return float(np.log(2 * math.pi / curvature).sum()) / 2


def simplex(size: int) -> Floats:
    """Return the corners of a regular simplex with mean 0 and covariance 1, (size + 1, size)."""
    corners = np.eye(size + 1) - 1 / (size + 1)
    # An orthonormal basis of the vectors whose entries sum to 0.
    basis = np.linalg.svd(corners)[2][:size]
    result: Floats = math.sqrt(size + 1) * corners @ basis.T
    return result
