"""Kriging averaged over the posterior of its parameters, and the errors of rows left out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from geogp.errors import DataError
from geogp.models.exact.kriging import AT_ONCE, JITTER, ExactRows, Kriging
from geogp.models.exact.search import Conditioned, WeightedKriging
from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.numerics.threads import chunks
from geogp.models.numerics.trees import tree_of

Floats = NDArray[np.float64]

NEAR_ROWS = (8, 40)
"""Numbers of nearest rows whose errors tell how wide an interval is: few see a sharp border, many
tell the noise of a place.
"""

NEAR_SHARE = 8
"""At most one in this many rows is near. The mean over all other rows would be small for the very
rows whose own error is large.
"""

UNKNOWN = 100.0
"""A row whose variance without others is so many times that of a measurement is not foretold."""

PRIOR_ROWS = 2.0
"""Weight of the prior of the mean squared error near a point, in rows; its mean is 1."""

REACH = 0.99
"""Quantile of the distances between rows up to which the errors say something."""

ROUNDING = 1e-12
"""Smallest variance of the level in a joint distribution, relative to the largest."""


@dataclass(frozen=True, eq=False)
class KrigingMixture:
    """A weighted mixture of kriging with different parameters; its weights sum to 1."""

    rows: ExactRows
    points: Sequence[WeightedKriging]

    def predict(self, places: Tensor, trend: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, variance of the field and variance of the noise at places, (n,) each."""
        with torch.no_grad():
            each = [point.kriging.field(places, trend) for point in self.points]
        mean, field = self._moments(each)
        noise = sum(point.weight * point.kriging.noise for point in self.points)
        return mean, field, torch.full_like(mean, noise)

    def joint(self, places: Tensor, trend: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (n,) and covariance (n, n) of the field at places.

        Raises DataError if two places are the same.
        """
        repeated = len(places) - len(torch.unique(places, dim=0))
        if repeated:
            raise DataError(
                f"expected each place once at each time, found {repeated} repeated; drop repeats."
            )
        centre, total = self.points[0].kriging.joint(places, trend)
        mean = torch.zeros_like(centre)
        total *= self.points[0].weight
        for point in self.points[1:]:
            own, covariance = point.kriging.joint(places, trend)
            mean += point.weight * (own - centre)
            total += point.weight * (covariance + torch.outer(own - centre, own - centre))
        total -= torch.outer(mean, mean)
        # A variance of 0 at a measured place may be negative by rounding.
        total.diagonal().clamp_(min=ROUNDING * float(total.diagonal().max()))
        return centre + mean, total

    @property
    def of_rows(self) -> list[tuple[float, Kriging]]:
        """Weights and kriging of the points; none if the rows are those of stations."""
        each = [(point.weight, point.kriging.of_rows) for point in self.points]
        return [(weight, own) for weight, own in each if own is not None]

    def patches(
        self, places: Tensor, trend: Tensor, at: Tensor, knots: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean (n,) of the field at places, and its covariance in two parts.

        The first is given between the places `at` (p, k), (p, k, k). The other reaches far, and is
        given as a factor (n, q): the errors of trends, the differences of means, and what the field
        at the places numbered `knots` (m,) tells about others (Sang and Huang 2012).
        """
        total = trend.new_zeros(*at.shape, at.shape[1])
        cross = trend.new_zeros(len(places), len(knots))
        size = max(1, AT_ONCE // (len(self.rows) * at.shape[1]))
        means, factors = [], []
        with torch.no_grad():
            for weight, kriging in self.of_rows:
                mean, white, errors = kriging.whitened(places, trend)
                means.append(mean)
                factors.append(math.sqrt(weight) * errors)
                for some in chunks(len(at), size):
                    own = places[at[some]], white[at[some]]
                    total[some] += weight * kriging.given_rows(own, own)
                for some in chunks(len(places), size * at.shape[1]):
                    own, other = (places[some], white[some]), (places[knots], white[knots])
                    cross[some] += weight * kriging.given_rows(own, other)
        root = jittered_cholesky(cross[knots], JITTER)[0]
        low = torch.linalg.solve_triangular(root, cross.T, upper=False).T
        for some in chunks(len(at), size):
            total[some] -= low[at[some]] @ low[at[some]].mT
        mean = self._summed(means)
        pairs = zip(self.points, means, strict=True)
        apart = [math.sqrt(point.weight) * (own - mean) for point, own in pairs]
        return mean, total, torch.cat([low, *factors, torch.stack(apart, 1)], 1)

    def averaged(self, value: Callable[[Conditioned], Tensor]) -> Tensor:
        """Return the mean of a value of the points."""
        return self._summed([value(point.kriging) for point in self.points])

    @property
    def noise_of_test(self) -> float:
        """Variance that a single test has beyond the noise of many tests; 0 if rows are alike."""
        return sum(point.weight * point.kriging.noise_of_test for point in self.points)

    @cached_property
    def left_out(self) -> tuple[Floats, Floats]:
        """Mean and variance of each row given the other rows, (n,) each."""
        with torch.no_grad():
            each = [point.kriging.left_out() for point in self.points]
        mean, variance = self._moments(each)
        return mean.cpu().numpy(), variance.cpu().numpy()

    @cached_property
    def foretold(self) -> NDArray[np.bool_]:
        """Mask of the rows that others tell something about, (n,).

        Without a row or its session, the effect of a covariate may be unknown. Known errors, which
        may be large, do not count.
        """
        total = sum(point.weight * point.kriging.variance for point in self.points)
        errors, variance = self.rows.error_variance, self.left_out[1]
        known = 0.0 if errors is None else errors.cpu().numpy()
        return np.asarray(variance - known < UNKNOWN * total, np.bool_)

    @cached_property
    def reach(self) -> float:
        """Distance up to which the errors of rows say something, in km."""
        distance = self.near(None)[0]
        apart = distance[distance > 0]
        return (
            float(np.quantile(apart, REACH)) if len(apart) else float(np.ptp(self._spots, 0).max())
        )

    def distance(self, places: Floats) -> Floats:
        """Return the distance to the nearest row, (n,)."""
        return np.asarray(self._tree.query(places)[0])

    def near(self, places: Floats | None) -> tuple[Floats, Floats]:
        """Return the distance to the nearest row, (m,), and mean squared errors of near rows.

        There is a mean for each number in `NEAR_ROWS`, (m, 2). `places`, (m, 2); None for the rows,
        each without itself, or without its session.
        """
        counts = np.clip(len(self.rows) // NEAR_SHARE, 1, NEAR_ROWS)
        count = int(counts.max())
        if places is not None:
            distance, number = _nearest(self._tree, places, count)
        elif self.rows.session is not None:
            distance, number = self._of_other_sessions(count)
        else:
            distance, number = _nearest(self._tree, self._spots, count + 1)
            # A row is among the nearest ones, in any order, or as many others are at its place.
            own = number == np.arange(len(number))[:, None]
            own[~own.any(1), -1] = True
            distance, number = (part[~own].reshape(-1, count) for part in (distance, number))
        squares = self._squares[number]
        sums = np.column_stack([squares[:, :nearest].sum(1) for nearest in counts])
        return distance[:, 0], (sums + PRIOR_ROWS) / (counts + PRIOR_ROWS)

    def _of_other_sessions(self, count: int) -> tuple[Floats, NDArray[np.intp]]:
        """Return distances and numbers of the nearest rows of other sessions, (n, count) each.

        If there are fewer, the last of them is repeated.
        """
        n = len(self.rows)
        distance, number = np.empty((n, count)), np.empty((n, count), np.intp)
        for session in self.rows.sessions:
            own = session.cpu().numpy()
            others = np.delete(np.arange(n), own)
            least = min(count, len(others))
            columns = np.minimum(np.arange(count), least - 1)
            found = _nearest(tree_of(self._spots[others]), self._spots[own], least)
            distance[own], number[own] = found[0][:, columns], others[found[1][:, columns]]
        return distance, number

    @cached_property
    def _spots(self) -> Floats:
        spots: Floats = self.rows.points[:, :2].cpu().numpy()
        return spots

    @cached_property
    def _tree(self) -> KDTree:
        return tree_of(self._spots)

    @cached_property
    def _squares(self) -> Floats:
        """Squared standardised errors of the rows that are left out, (n,)."""
        mean, variance = self.left_out
        squares = np.square(self.rows.y.cpu().numpy() - mean) / variance
        return np.where(self.foretold, squares, 1.0)

    def _moments(self, each: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the mixture of distributions with these moments, (n,)."""
        mean = self._summed([own for own, _ in each])
        return mean, self._summed([(own - mean).square() + variance for own, variance in each])

    def _summed(self, values: Sequence[Tensor]) -> Tensor:
        pairs = zip(self.points, values, strict=True)
        return torch.stack([point.weight * own for point, own in pairs]).sum(0)


def _nearest(tree: KDTree, places: Floats, count: int) -> tuple[Floats, NDArray[np.intp]]:
    """Return distances and numbers of the nearest points of a tree, (m, count) each."""
    distance, number = tree.query(places, count)
    return np.reshape(distance, (-1, count)), np.reshape(number, (-1, count))
