"""The process of the field model and its held rows: means, covariances, neighbours.

`field_model.py` has the equations, learns the process and predicts with it.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from geogp.errors import RequestError
from geogp.models.core.architecture import Architecture
from geogp.models.core.lowrank import LowRankGP, Rows
from geogp.models.core.posteriors import VariationalPosterior
from geogp.models.field import vecchia
from geogp.models.field.field_rows import HeldRows, RowTerms
from geogp.models.field.measurement import MeasurementLaw
from geogp.models.field.shape_laws import NO_LAW, ShapeLaw
from geogp.models.field.tile_process import TileProcess
from geogp.models.field.vecchia import (
    NO_ROW,
    Sites,
    distance_to_others,
    earlier_rows,
    nearest_rows,
)
from geogp.models.training.steps import CHUNK

Floats = NDArray[np.float64]

SITES_AT_ONCE = 256
"""Places whose blocks are held at once."""


class FieldProcess(LowRankGP):
    """A low-rank process, a process of single tiles and a law of measurements.

    Parameters are those of `LowRankGP`; a `MeasurementLaw` replaces the noise. `units` are the
    kilometres (two) and quarters in one unit of each scaled input, (3,).

    Raises
    ------
    RequestError
        Other inputs than two coordinates and an optional time, or no units of them.
    """

    holds_rows = True

    noise: MeasurementLaw
    posterior: VariationalPosterior
    units: Tensor
    drift: Tensor
    shape_coefficients: Tensor
    shape_ranges: Tensor
    order_seed: Tensor

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        if architecture.d not in {2, 3} or architecture.dropped not in {
            (),
            architecture.columns[2:],
        }:
            raise RequestError(
                f"{name} expects two coordinates and optionally a time, found the columns "
                f"{', '.join(architecture.columns)}"
                f"{' without ' if architecture.dropped else ''}{', '.join(architecture.dropped)}."
            )
        if not architecture.units:
            raise RequestError(
                f"{name} needs distances: give Architecture(units=...), the kilometres or "
                f"quarters in one unit of each input."
            )
        r, dtype = parts["basis"].rank, architecture.torch_dtype
        super().__init__(name, architecture, **{**parts, "noise": MeasurementLaw(r, dtype)})
        self.tiles = TileProcess(r, dtype)
        self.rows = HeldRows(len(architecture.used), dtype)
        self.register_buffer("units", torch.ones(3, dtype=torch.float64))
        self.register_buffer("drift", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("shape_coefficients", torch.zeros(4, 3, dtype=torch.float64))
        self.register_buffer("shape_ranges", torch.zeros(2, 2, dtype=torch.float64))
        self.register_buffer("order_seed", torch.zeros((), dtype=torch.int64))
        # Computed from the held rows on first use.
        self._sites: tuple[Sites, KDTree] | None = None
        self._earlier: Tensor | None = None

    def take_range(self, low: Tensor, high: Tensor) -> None:
        """Take the range of the inputs, and with it the units of the scaled ones."""
        super().take_range(low, high)
        used = list(self.architecture.used)
        per_input = torch.tensor(self.architecture.units, dtype=torch.float64)[used]
        self.units[: len(used)] = per_input * ((high - low) / 2).double()

    @property
    def can_solve_mean(self) -> bool:
        """False: steps take places with the rows near them, not single rows."""
        return False

    @property
    def law(self) -> MeasurementLaw:
        """The law of measurements."""
        return self.noise

    @property
    def factor(self) -> Tensor:
        """The factor L of q(w), (r, r)."""
        return self.posterior.cholesky()

    def keep_rows(self, rows: Rows, seed: int) -> Rows:
        """Keep the training rows, and return them, in the order of their places.

        It resets drift and shape of an earlier fit.
        """
        sites = Sites.of(numpy_of(self.points(rows.x)[:, :2]))
        order = torch.from_numpy(sites.order).to(self.device)
        held = Rows(rows.x[order], rows.y[order], rows.tests[order])
        self.rows.keep_rows(held)
        self.law.keep_rows(held.tests)
        self.order_seed.fill_(seed)
        self.drift.zero_()
        self._set_shape(NO_LAW)
        self._sites = self._earlier = None
        return held

    @property
    def sites(self) -> tuple[Sites, KDTree]:
        """The places of the held rows, and a tree to search them."""
        if self._sites is None or len(self._sites[0].order) != len(self.rows.y):
            if not len(self.rows.y):
                raise RequestError("the model is not fitted: it has no training rows.")
            sites = Sites.of(numpy_of(self.points(self.rows.x)[:, :2]))
            assert (np.diff(sites.order) == 1).all(), "rows are held in the order of their places"
            self._sites = sites, KDTree(sites.centre)
        return self._sites

    @property
    def earlier(self) -> Tensor:
        """The held rows that condition the rows of each place, (s, most)."""
        if self._earlier is None:
            random = np.random.default_rng([int(self.order_seed), 1])
            self._earlier = torch.from_numpy(earlier_rows(self.sites[0], random))
        self._earlier = self._earlier.to(self.device)
        return self._earlier

    @property
    def shape_law(self) -> ShapeLaw:
        """The law of the predictive shape."""
        return ShapeLaw(numpy_of(self.shape_coefficients), numpy_of(self.shape_ranges))

    def _set_shape(self, law: ShapeLaw) -> None:
        self.shape_coefficients.copy_(torch.from_numpy(law.coefficients))
        self.shape_ranges.copy_(torch.from_numpy(law.ranges))

    def row_terms(self, x: Tensor, tests: Tensor) -> RowTerms:
        """Return means and laws at scaled inputs (n, d) with counts of tests (n,)."""
        phi = self.basis(self.seen(x)).phi
        mean = self.mean_constant.double() + self.posterior.moments(phi).mean.double()
        return RowTerms(
            phi,
            mean + self.law.shift(tests),
            self.tiles.amplitude(phi),
            self.law(phi, tests),
        )

    def near_rows(self, points: Tensor) -> Tensor:
        """Return the held rows that condition predictions at points (b, 3), (b, m).

        The rows of the nearest places with the largest prior correlation with the point.
        """
        sites, tree = self.sites
        near = torch.from_numpy(nearest_rows(sites, tree, numpy_of(points[:, :2]))).to(self.device)
        if near.shape[1] <= vecchia.PREDICTION_ROWS:
            return near
        chosen = []
        for rows, at in zip(near.split(SITES_AT_ONCE), points.split(SITES_AT_ONCE), strict=True):
            held = self.points(self.rows.x[rows.clamp(min=0)])
            prior = self.tiles(at[:, None], held)[:, 0]
            best = torch.where(rows == NO_ROW, -torch.inf, prior).topk(vecchia.PREDICTION_ROWS)
            chosen.append(rows.gather(1, best.indices))
        return torch.cat(chosen)

    def beyond(self, x: Tensor) -> Tensor:
        """Return the variance of the level's drift outside the times of the held rows."""
        if x.shape[-1] == 2:
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=self.device)
        away = (x - self.seen(x))[..., 2].double().abs() * self.units[2]
        found: Tensor = away * self.drift[0] + away.square() * self.drift[1]
        return found

    def field_mean(self, x: Floats) -> Floats:
        """Return the mean of field and shift at infinitely many tests, in the target's unit, (n,).

        `predict` at the level adds the effect of near rows on each tile.
        """
        parts = []
        for part in self.scaled(x).split(CHUNK):
            with torch.no_grad():
                endless = torch.full((len(part),), torch.inf, dtype=torch.float64)
                parts.append(self.row_terms(part, endless.to(self.device)).mean)
        return numpy_of(self.y_mean + self.y_sd * torch.cat(parts))

    def tile_kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance of u between points, in the target's squared unit, (n, n2).

        `kernel` is the prior covariance of f.
        """
        second = self.scaled(x2)
        with torch.no_grad():
            points, amplitude = self.points(second), self._amplitude(second)
            parts = []
            for part in self.scaled(x).split(CHUNK):
                own = self._amplitude(part)
                found = self.tiles(self.points(part), points)
                parts.append(found * own[:, None] * amplitude[None, :])
        return numpy_of(torch.cat(parts) * self.y_sd.square())

    def points(self, x: Tensor) -> Tensor:
        """Return scaled inputs as kilometres and quarters, (n, 3) float64."""
        exact = x.double()
        if x.shape[-1] == 2:
            exact = torch.cat([exact, torch.zeros_like(exact[..., :1])], -1)
        return exact * self.units

    def distance_to_others(self, x: Tensor) -> Floats:
        """Return the mean distance from scaled inputs to the near held places, in km, (n,).

        See `distance_to_others`; 1 where the model holds fewer than two places.
        """
        if not len(self.rows.y):
            return np.ones(len(x))
        return distance_to_others(self.sites[0].places, numpy_of(self.points(x)[:, :2]))

    def seen(self, x: Tensor) -> Tensor:
        """Return inputs with their times clamped to the times of the held rows."""
        if x.shape[-1] == 2 or not len(self.rows.x):
            return x
        times = self.rows.x[:, 2]
        time = x[..., 2:].clamp(times.min(), times.max())
        return torch.cat([x[..., :2], time], -1)

    def _amplitude(self, x: Tensor) -> Tensor:
        return self.tiles.amplitude(self.basis(self.seen(x)).phi)


def numpy_of(tensor: Tensor) -> Floats:
    """Return a tensor as a float64 array."""
    found: Floats = tensor.detach().cpu().double().numpy()
    return found
