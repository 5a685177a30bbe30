"""Blocks of a Vecchia approximation: the rows that condition each place.

log p(y) is approximated by the sum over places of log p(y_t | y_N(t)), where y_t holds all rows
at one place and N(t) the rows of near places that come earlier in a random order (Vecchia 1988;
Katzfuss and Guinness 2021). Every choice of N gives a proper distribution.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from geogp.errors import NumericalError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

NEIGHBOURS = 6
"""Most earlier places whose rows condition a place in training."""

TRAINING_ROWS = 40
"""Most rows that condition a place in training."""

PREDICTION_PLACES = 16
PREDICTION_ROWS = 64
"""Rows that condition a prediction: the most correlated ones, of the nearest places."""

DISTANCE_PLACES = 16
"""Near places whose mean distance measures the density of places."""

PLACE_ROWS = 64
"""Most rows of one place in a block: a place with more is cut into several blocks."""

NO_ROW = -1


@dataclass(frozen=True)
class Sites:
    """The distinct places of rows, ordered so that near places follow each other.

    A place with more than `PLACE_ROWS` rows counts as several of equal coordinates.

    `order`: row numbers, grouped by place, (n,).
    `first`, `count`: start in `order` and number of the rows of each place, (s,).
    `centre`: coordinates of each place, (s, 2).
    """

    order: Indices
    first: Indices
    count: Indices
    centre: Floats

    @classmethod
    def of(cls, place: Floats) -> "Sites":
        """Return the places of rows (n, 2)."""
        centre, inverse = np.unique(place, axis=0, return_inverse=True)
        rank = np.argsort(np.argsort(_morton(centre), kind="stable"), kind="stable")
        inverse = rank[inverse.reshape(-1)]
        order = np.argsort(inverse, kind="stable")
        count = np.bincount(inverse, minlength=len(centre))
        sorted_centre = np.empty_like(centre)
        sorted_centre[rank] = centre
        within = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
        first = np.flatnonzero(within % PLACE_ROWS == 0)
        pieces = -(-count // PLACE_ROWS)
        counts = np.diff(np.append(first, len(place)))
        return cls(order, first, counts, np.repeat(sorted_centre, pieces, axis=0))

    @cached_property
    def places(self) -> KDTree:
        """A search tree of the distinct places."""
        return KDTree(np.unique(self.centre, axis=0))

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, sites: Indices, most: int) -> Indices:
        """Return the positions in `order` of the rows of sites (m, k), nearest first, (m, most).

        `NO_ROW` marks absent sites and fills up.
        """
        count = np.where(sites == NO_ROW, 0, self.count[sites])
        ends = np.cumsum(count, 1)
        slot = np.arange(most)
        found = np.full((len(sites), most), NO_ROW)
        for at in range(sites.shape[1]):
            start = ends[:, at] - count[:, at]
            inside = (slot >= start[:, None]) & (slot < ends[:, at][:, None])
            value = self.first[sites[:, at]][:, None] + slot - start[:, None]
            found = np.where(inside, value, found)
        return found


def earlier_rows(sites: Sites, rng: np.random.Generator) -> Indices:
    """Return the rows that condition each place: of near places earlier in a random order.

    Positions in `sites.order`, (s, TRAINING_ROWS), filled with `NO_ROW`.
    """
    s = len(sites)
    rank = rng.permutation(s)
    _, near = KDTree(sites.centre).query(sites.centre, k=min(s, 4 * NEIGHBOURS + 1))
    near = near.reshape(s, -1)
    earlier = rank[near] < rank[:, None]
    chosen = np.where(earlier & (np.cumsum(earlier, 1) <= NEIGHBOURS), near, NO_ROW)
    return sites.rows(chosen, TRAINING_ROWS)


def nearest_rows(sites: Sites, tree: KDTree, place: Floats) -> Indices:
    """Return all rows of the `PREDICTION_PLACES` places nearest to places (m, 2), (m, most).

    Filled with `NO_ROW`.
    """
    _, near = tree.query(place, k=min(len(sites), PREDICTION_PLACES))
    near = near.reshape(len(place), -1)
    return sites.rows(near, int(sites.count[near].sum(1).max()))


def distance_to_others(places: KDTree, at: Floats) -> Floats:
    """Return the mean distance from points (m, 2) to the nearest of distinct places, (m,).

    Over the `DISTANCE_PLACES` nearest places other than the point itself, or all there are. A
    single place has no density: its distance counts as 1.
    """
    if places.n < 2:
        return np.ones(len(at))
    found = places.query(at, k=min(places.n, DISTANCE_PLACES + 1))
    distance: Floats = np.asarray(found[0])
    own = (distance[:, :1] == 0).astype(np.int64)
    slot = np.arange(distance.shape[1])
    counted = (slot >= own) & (slot < own + DISTANCE_PLACES)
    mean: Floats = np.where(counted, distance, 0.0).sum(1) / counted.sum(1)
    return mean


def whiten(
    covariance: Tensor, noise: Tensor, known: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Return L and L^(-1) values for padded covariances, L L' = covariance + diag(noise).

    `covariance` (b, m, m), `noise` (b, m) and `values` (b, m, c) are float64; `known` (b, m) marks
    rows that are not padding, and the padding may hold anything. Returns (b, m, m) and (b, m, c);
    padding becomes rows of the identity and 0. Raises NumericalError: a covariance does not
    factorise.
    """
    both = known[:, :, None] & known[:, None, :]
    K = covariance.masked_fill(~both, 0.0)
    K.diagonal(dim1=1, dim2=2).add_(torch.where(known, noise, 1.0))
    try:
        L = torch.linalg.cholesky(K)
    except RuntimeError as error:
        raise NumericalError(
            f"the covariance of a block of tiles does not factorise ({error}); the fit has "
            "diverged. Lower the learning rate."
        ) from error
    V = values.masked_fill(~known[..., None], 0.0)
    return L, torch.linalg.solve_triangular(L, V, upper=False)


def _morton(centre: Floats) -> Indices:
    """Return codes that interleave the bits of two coordinates (s, 2)."""
    low, high = centre.min(0), centre.max(0)
    span = np.maximum(high - low, np.finfo(np.float64).tiny)
    cells = ((centre - low) / span * (2**16 - 1)).astype(np.int64)
    code = np.zeros(len(centre), np.int64)
    for bit in range(16):
        for axis in range(2):
            code |= ((cells[:, axis] >> bit) & 1) << (2 * bit + axis)
    return code
