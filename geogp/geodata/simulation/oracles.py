"""Oracles: predictions for simulated tiles, made with knowledge of the true model."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import KDTree

from geogp.geodata.simulation.truth import TruthLaw
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import quarter_index

Floats = NDArray[np.float64]

_CANDIDATES_PER_NEIGHBOUR = 4
_CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Oracle:
    """Means and standard deviations, (n,), of the Gaussian predictions for n simulated rows.

    Predictions are on the scale of the target; rows without a prediction have NaN.
    """

    mean: Floats
    sd: Floats

    def log_score(self, y: Floats) -> Floats:
        """Return the negative log density at the observations, shape (n,); lower is better."""
        residual = (np.asarray(y, np.float64) - self.mean) / self.sd
        return np.asarray(0.5 * np.log(2 * np.pi) + np.log(self.sd) + residual**2 / 2)


def column_of(name: str, target: str) -> str:
    """Return the column name of a target: ``y`` for download, ``y_upload`` for upload."""
    return name if target == "download" else f"{name}_{target}"


def known_oracle(truth: pd.DataFrame, target: str = "download") -> Oracle:
    """Return the oracle that knows the field, the tile effects, and the variance of the noise."""
    mean = _values(truth, "field_true", target) + _values(truth, "tile_true", target)
    return Oracle(mean, _values(truth, "sd_measurement_true", target))


def predictive_oracle(
    truth: pd.DataFrame, train: NDArray[np.bool_], law: TruthLaw, *, neighbours: int = 128
) -> Oracle:
    """Return the oracle that knows the model, and predicts tile effects from training rows.

    For the training rows near a point, let r = y - field. Let K be the covariance matrix of the
    tile effects of these rows, and D the diagonal matrix of their measurement variances. Let k be
    the covariances of these tile effects with the tile effect at the point. Then

    mean = field + k' (K + D)⁻¹ r, variance = k(0) - k' (K + D)⁻¹ k + sd_measurement²

    (Rasmussen and Williams 2006, equations 2.25 and 2.26). Of the 4 * `neighbours` training rows
    nearest in space and time, the oracle uses the `neighbours` rows with the largest prior
    correlation. If `neighbours` is at least the number of training rows, the prediction is the
    exact conditional distribution. In the demo region, 256 instead of 128 neighbours lower the mean
    log score by 0.0002 to 0.0003.

    The mask `train`, (n,), marks one or more training rows; the prediction for these rows is NaN.
    """
    place = _plane(truth, law)
    mean = np.full(len(truth), np.nan)
    variance = np.full(len(truth), np.nan)
    targets, known = np.flatnonzero(~train), np.flatnonzero(train)
    trend = _values(truth, "field_true", law.target)
    noise = _values(truth, "sd_measurement_true", law.target) ** 2
    residual = _values(truth, "y", law.target) - trend
    near = min(neighbours, len(known))
    tree = KDTree(_scaled(place[known], law), balanced_tree=False)
    step = max(1, _CHUNK_BYTES // (8 * near * max(near, _CANDIDATES_PER_NEIGHBOUR)))
    for start in range(0, len(targets), step):
        rows = targets[start : start + step]
        chosen = known[_most_correlated(place[rows], place[known], tree, law, near)]
        across = _covariance(law, place[rows][:, None, :], place[chosen])[:, 0, :]
        within = _covariance(law, place[chosen], place[chosen])
        within[:, np.arange(near), np.arange(near)] += noise[chosen]
        weights = np.linalg.solve(within, across[..., None])[..., 0]
        mean[rows] = trend[rows] + (weights * residual[chosen]).sum(axis=1)
        prior = law.sill_constant + law.sill_changing
        variance[rows] = prior - (weights * across).sum(axis=1) + noise[rows]
    return Oracle(mean, np.sqrt(variance))


def _values(truth: pd.DataFrame, name: str, target: str) -> Floats:
    return truth[column_of(name, target)].to_numpy(np.float64)


def _plane(truth: pd.DataFrame, law: TruthLaw) -> Floats:
    """Return each row's km east and km south of the origin, and its quarter's index, (n, 3)."""
    codes = quadkeys.parse_quadkeys(truth["quadkey"].to_numpy(np.str_))
    column, row = quadkeys.codes_to_tiles(codes)
    world = 1 << quadkeys.ZOOM
    across = (column - law.origin_column) % world  # columns wrap at the antimeridian
    labels, where = np.unique(truth["quarter"].to_numpy(np.str_), return_inverse=True)
    quarters = np.array([quarter_index(str(label)) for label in labels])[where]
    return np.column_stack([across * law.tile_km, (row - law.origin_row) * law.tile_km, quarters])


def _scaled(place: Floats, law: TruthLaw) -> Floats:
    """Return places scaled so that their distance is about -log(prior correlation)."""
    total = law.sill_constant + law.sill_changing
    kept = (law.sill_constant + law.sill_changing * law.memory) / total if total > 0 else 1.0
    apart = -np.log(max(kept, 1e-9))
    return np.asarray(place * [1 / law.range_km, 1 / law.range_km, apart], np.float64)


def _most_correlated(
    targets: Floats, known: Floats, tree: KDTree, law: TruthLaw, near: int
) -> NDArray[np.intp]:
    """Return indices in `known` of the most correlated rows, (len(asked), near)."""
    candidates = min(_CANDIDATES_PER_NEIGHBOUR * near, len(known))
    _, near_rows = tree.query(_scaled(targets, law), k=np.arange(1, candidates + 1))
    near_rows = np.asarray(near_rows, np.intp)
    covariance = _covariance(law, targets[:, None, :], known[near_rows])[:, 0, :]
    best = np.argpartition(-covariance, near - 1, axis=1)[:, :near]
    return np.take_along_axis(near_rows, best, axis=1)


def _covariance(law: TruthLaw, first: Floats, second: Floats) -> Floats:
    """Return covariances of tile effects, (m, p, q), at places (m, p, 3) and places (m, q, 3)."""
    apart = first[:, :, None, :] - second[:, None, :, :]
    return law.covariance(np.hypot(apart[..., 0], apart[..., 1]), apart[..., 2])
