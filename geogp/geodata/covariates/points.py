"""Covariates from points: a quantity measured at points, interpolated by simple kriging.

Let a_i be the value of row i minus the mean of its quarter. The model is a_i = g(x_i) + e_i at the
place x_i, where the process g has mean 0 and covariance s² exp(-h / l) at the distance h, and the
error e_i has variance v s² / w_i. In a prediction for the quarter t, the weight of row i is w_i =
k_i / (k_i + 2) exp(-|t_i - t| / 4), where k_i is the number of tests and t_i the quarter of the
row. If t is earlier than all rows, the first quarter replaces t; if t is later, the last quarter.
The rows of a place are replaced by their weighted mean. The prediction at a place x is the
conditional mean and the conditional standard deviation of g(x), given the means of the 16 nearest
places. Far from all points, the prediction is 0 with standard deviation s.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from geogp.arguments import places_of
from geogp.errors import DataError
from geogp.geodata.places.distances import unit_vectors
from geogp.geodata.tiles.quadkeys import EARTH_RADIUS_KM

Floats = NDArray[np.float64]

NEAREST = 16  # places that determine a value
MEMORY = 4.0  # quarters in which the weight of a row falls by a factor e
HALF_TESTS = 2.0  # number of tests at which a row has half of the largest weight

RANGES_KM = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
NOISES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Candidates for the range l in km and the noise v; `PointCovariate.model` chooses a pair."""

MOST_PLACES = 2000  # most places whose values are predicted to choose l and v
PLACES_AT_ONCE = 4096


class CovariateValues(NamedTuple):
    """Values of a covariate, (n,), and their standard deviations, (n,); NaN if unknown."""

    value: Floats
    sd: Floats


def indices_of(quarter: ArrayLike) -> NDArray[np.int64]:
    """Return the indices of calendar quarters, (n,); raise DataError for other text."""
    values = np.asarray(quarter)
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    try:
        periods = pd.PeriodIndex(pd.Series(values).astype(str), freq="Q")
    except ValueError as error:
        raise DataError(f"expected quarters such as 2023Q4, found {error}.") from None
    if periods.hasnans:
        raise DataError("expected a quarter such as 2023Q4 in each row, found missing values.")
    return np.asarray(periods.year * 4 + periods.quarter - 1, np.int64)


class KrigingModel(NamedTuple):
    """Parameters of the kriging model: variance s², range l in km, and noise v."""

    variance: float
    range_km: float
    noise: float


@dataclass(frozen=True)
class PointCovariate:
    """A quantity measured at points, and interpolated by kriging.

    The fields, each (n,), are places in degrees, values, the number of tests behind each value, and
    indices of quarters. `quarter` is None if the points have no time. Raises DataError if there are
    fewer than two places, or all deviations are 0.
    """

    longitude: Floats
    latitude: Floats
    value: Floats
    tests: Floats
    quarter: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if len(self._place.points) < 2 or not np.any(self._deviation):
            raise DataError(
                f"expected points with different values at two places or more, found "
                f"{len(self.value)} points at {len(self._place.points)} places."
            )

    interpolation = (
        f"kriging from the {NEAREST} nearest points, as deviations from the mean of a quarter"
    )

    @property
    def rows(self) -> int:
        """Number of points."""
        return len(self.value)

    @property
    def prior_sd(self) -> float:
        """Standard deviation of a predicted value far from all points."""
        return float(np.sqrt(self.model.variance))

    def at(
        self, longitude: ArrayLike, latitude: ArrayLike, quarter: ArrayLike | None = None
    ) -> CovariateValues:
        """Return predicted deviations from the mean of a quarter, with standard deviations.

        Places are in degrees, (n,). `quarter` is one quarter for all places, or one for each place,
        (n,): a calendar quarter (``Period[Q]``, or text such as ``2023Q4``) or its index. If
        `quarter` is None, weights do not depend on time. Raises DataError if the numbers of places
        and quarters differ.
        """
        points = _points_km(*map(np.atleast_1d, places_of(longitude, latitude)))
        value, sd = np.full(len(points), np.nan), np.full(len(points), np.nan)
        places = np.flatnonzero(np.isfinite(points).all(1))
        groups: list[tuple[int | None, NDArray[np.int64]]] = [(None, places)]
        if quarter is not None:
            times = indices_of(np.atleast_1d(np.asarray(quarter)))
            if len(times) not in {1, len(points)}:
                raise DataError(
                    f"expected one quarter, or a quarter for each of {len(points)} places, found "
                    f"{len(times)}."
                )
            if self.quarter is not None:
                times = np.broadcast_to(times, len(points))[places]
                groups = [(int(t), places[times == t]) for t in np.unique(times)]
        for time, rows in groups:
            mean, weight = self._means(time)
            for chunk in np.array_split(rows, 1 + len(rows) // PLACES_AT_ONCE):
                distance, near = self._place.nearest(points[chunk], NEAREST)
                kriged = _kriged(
                    self.model, self._place.points[near], distance, mean[near], weight[near]
                )
                value[chunk], sd[chunk] = kriged
        return CovariateValues(value, sd)

    @cached_property
    def model(self) -> KrigingModel:
        """The parameters that best predict the value at a place from values at other places.

        For each range and noise, geogp predicts each place's mean from the 15 nearest others, and
        chooses the variance, range and noise with the highest normal likelihood of the errors.
        """
        mean, weight = self._means(None)
        n = len(mean)
        chosen = np.random.default_rng(0).permutation(n)[:MOST_PLACES]
        distance, near = self._place.nearest(self._place.points[chosen], NEAREST)
        distance, near = distance[:, 1:], near[:, 1:]  # the first is the place itself
        best, lowest = KrigingModel(1.0, RANGES_KM[0], NOISES[0]), np.inf
        for range_km, noise in product(RANGES_KM, NOISES):
            unit = KrigingModel(1.0, range_km, noise)
            kriged = _kriged(unit, self._place.points[near], distance, mean[near], weight[near])
            variance = kriged.sd**2 + noise / weight[chosen]
            scale = float(np.mean((mean[chosen] - kriged.value) ** 2 / variance))
            loss = np.log(scale) + float(np.log(variance).mean())
            if loss < lowest:
                best, lowest = KrigingModel(scale, range_km, noise), loss
        return best

    def _means(self, quarter: int | None) -> tuple[Floats, Floats]:
        """Return the weighted mean of the deviations at each place, and the sum of the weights."""
        weight = self.tests / (self.tests + HALF_TESTS)
        if quarter is not None and self.quarter is not None:
            # Before the first and after the last quarter, a value stays constant.
            time = np.clip(quarter, self.quarter.min(), self.quarter.max())
            weight = weight * np.exp(-np.abs(self.quarter - time) / MEMORY)
        total = np.bincount(self._place.number, weight)
        mean: Floats = np.bincount(self._place.number, weight * self._deviation) / total
        return mean, total.astype(np.float64)

    @cached_property
    def _deviation(self) -> Floats:
        quarter = np.zeros(len(self.value)) if self.quarter is None else self.quarter
        _, number = np.unique(quarter, return_inverse=True)
        level = np.bincount(number, self.value) / np.bincount(number)
        return self.value - level[number]

    @cached_property
    def _place(self) -> "_Places":
        points, number = np.unique(
            _points_km(self.longitude, self.latitude), axis=0, return_inverse=True
        )
        return _Places(points, number.reshape(-1), cKDTree(points, balanced_tree=False))


class _Places(NamedTuple):
    """Distinct places as vectors in km (p, 3), the place of each row (n,), and a search tree."""

    points: Floats
    number: NDArray[np.int64]
    tree: cKDTree

    def nearest(self, points: Floats, most: int) -> tuple[Floats, NDArray[np.int64]]:
        """Return distances and indices of the nearest places, each (m, k) with k up to `most`."""
        nearest = self.tree.query(points, k=range(1, min(most, len(self.points)) + 1))
        return np.asarray(nearest[0]), np.asarray(nearest[1], np.int64)


def _points_km(longitude: ArrayLike, latitude: ArrayLike) -> Floats:
    """Return vectors (n, 3) in km from the Earth's centre to places."""
    return EARTH_RADIUS_KM * unit_vectors(longitude, latitude)


def _kriged(
    model: KrigingModel, near: Floats, distance: Floats, mean: Floats, weight: Floats
) -> CovariateValues:
    """Return conditional means and standard deviations at m places, each given k near places.

    `near` (m, k, 3) are the vectors of the near places, and `distance` (m, k) are their distances.
    `mean` and `weight` (m, k) are the weighted mean and the sum of weights at each near place.
    """
    near = near - near[:, :1]  # short vectors, whose squares lose no digits
    square = np.square(near).sum(2)
    apart = square[:, :, None] + square[:, None, :] - 2 * near @ near.transpose(0, 2, 1)
    covariance = np.exp(-np.sqrt(apart.clip(0)) / model.range_km)
    k = np.arange(near.shape[1])
    covariance[:, k, k] = 1 + model.noise / weight
    cross = np.exp(-distance / model.range_km)
    share = np.linalg.solve(covariance, cross[..., None])[..., 0]
    variance = model.variance * (1 - (share * cross).sum(1)).clip(0)
    return CovariateValues((share * mean).sum(1), np.sqrt(variance))
