"""Conformal quantiles from the calibration rows around a location, weighted by distance.

Let w_i be the weight of calibration row i at location x, and w_x = 1 the weight of the new row at
x. The quantile of level p is the smallest score s with

    Σ_(i: s_i <= s) w_i >= p (Σ_i w_i + w_x)    (Tibshirani et al. 2019, (7); Guan 2023).

If all weights are 1, this quantile is the k-th smallest score with k = ceil((m + 1) p). The
calibration rows are the 200 rows nearest to x. A row at distance d from x has the weight 1 - ¾ (d /
h)², where h is the largest distance of the 200 rows. As weights lie between ¼ and 1, the effective
number of rows (Σ w)² / Σ w² is at least 0.64 times 200, which is 128 (Kantorovich's inequality).
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from geogp.arrays import Floats
from geogp.distributions.warps import LADDER, covering_knots
from geogp.errors import DataError
from geogp.geodata.places.distances import unit_vectors

NEAREST = 200
"""Number of calibration rows nearest to a location that determine the quantiles there."""

MIN_NEAREST = 157
"""Smallest number of calibration rows: 100 / 0.64, so that the effective number is 100 or more."""

MAX_SCORE = 37.0
"""Largest normal score; larger scores would have probabilities below 1e-300."""

_FALL = 0.75
_CHUNK = 4096


@dataclass(frozen=True)
class NearbyScores:
    """Scores and locations (in degrees) of calibration rows, each (m,), sorted by score."""

    longitude: Floats
    latitude: Floats
    scores: Floats

    def __post_init__(self) -> None:
        order = np.argsort(self.scores, kind="stable")
        for name in ("longitude", "latitude", "scores"):
            values = np.asarray(getattr(self, name), np.float64)[order]
            object.__setattr__(self, name, values)

    def knots(self, longitude: Floats, latitude: Floats) -> Floats:
        """Return the conformal quantiles at n locations for the K levels of `LADDER`, (n, K).

        Raises DataError if nearly all scores around a location are 37 or more.
        """
        tree = cKDTree(unit_vectors(self.longitude, self.latitude), balanced_tree=False)
        points = unit_vectors(longitude, latitude)
        found = np.empty((len(points), len(LADDER)))
        for start in range(0, len(points), _CHUNK):
            part = slice(start, start + _CHUNK)
            found[part] = self._of(tree, points[part])
        found = covering_knots(found)
        found[found >= MAX_SCORE] = np.nan
        if np.isnan(found[:, 0]).any():
            raise DataError(
                f"expected normal scores below {MAX_SCORE:g}, found places where nearly all scores "
                "nearby are larger. Fit the model again."
            )
        return found

    def _of(self, tree: cKDTree, points: Floats) -> Floats:
        nearest = np.arange(1, min(NEAREST, len(self.scores)) + 1)
        chord, rows = map(np.asarray, tree.query(points, k=nearest, workers=-1))
        # Chords replace distances; h is only a few tens of km. If all rows are at x, w is 1.
        reach = np.maximum(chord[:, -1:], np.finfo(np.float64).tiny)
        weights = 1 - _FALL * np.square(chord / reach)
        # Rows are numbered in the order of scores, so sorted row numbers give sorted scores.
        order = np.argsort(rows, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
        below = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
        total = below[:, -1] + 1
        found = np.full((len(points), len(LADDER)), np.nan)
        for column, level in enumerate(LADDER):
            # As in `rank`, a sum that is too small only by rounding errors reaches the level.
            short = below < (level * total * (1 - 1e-12))[:, None]
            place = np.count_nonzero(short, axis=1)
            held = np.flatnonzero(place < rows.shape[1])
            found[held, column] = self.scores[rows[held, place[held]]]
        return found
