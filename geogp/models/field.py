"""The field model: a deep basis process, a process of single tiles, and a law of measurements.

    y(tile, quarter) = f(place, quarter) + shift(k) + u(tile, quarter) + e,

f = m0 + <w, phi> of the low rank, u of `TileProcess`, e of variance `MeasurementLaw` for an
average of k tests. Given the weights w, y is Gaussian with the covariance of u + e, whose
Vecchia factor W whitens rows and features alike: W y ~ N(W(m0 + Phi w + shift), I). With
q(w) = N(m, L L') the evidence lower bound is that of a linear regression on W Phi.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from geogp.errors import DataError, RequestError
from geogp.models import vecchia
from geogp.models.arrays import as_floats
from geogp.models.bases import Basis
from geogp.models.diagonals import Diagonal
from geogp.models.drift import level_drift
from geogp.models.field_rows import Block, HeldRows, RowTerms, distinct_rows, whitened
from geogp.models.lowrank import Architecture, LowRankGP, Rows
from geogp.models.measurement import MeasurementLaw
from geogp.models.objectives import BatchTerms
from geogp.models.posteriors import Posterior, VariationalPosterior, WeightedRows
from geogp.models.prediction import Prediction
from geogp.models.shape_laws import NO_LAW, ShapeLaw, fit_shape
from geogp.models.shapes import GAUSSIAN, Shape
from geogp.models.steps import CHUNK
from geogp.models.tiles import TileProcess
from geogp.models.vecchia import (
    NO_ROW,
    Sites,
    distance_to_others,
    earlier_rows,
    nearest_rows,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

SITES_AT_ONCE = 256
"""Places whose blocks are held at once."""

ROWS_AT_ONCE = 512
"""Rows that are predicted at once."""


class FieldGP(LowRankGP):
    """A low-rank process, a process of single tiles and a law of measurements.

    Parameters
    ----------
    name, architecture, basis, posterior, diagonal
        As for `LowRankGP`.
    noise
        The law of measurements.
    tiles
        The process of single tiles.
    units
        Kilometres (two) and quarters that one unit of each scaled input stands for, (2,) or (3,).

    Raises
    ------
    RequestError
        Other inputs than two coordinates and, or not, a time.
    """

    units: Tensor
    drift: Tensor
    shape_coefficients: Tensor
    shape_ranges: Tensor
    order_seed: Tensor

    def __init__(
        self,
        name: str,
        architecture: Architecture,
        *,
        basis: Basis,
        posterior: Posterior,
        noise: MeasurementLaw,
        diagonal: Diagonal,
        tiles: TileProcess,
        units: Tensor,
    ) -> None:
        if architecture.d not in {2, 3} or architecture.dropped not in {
            (),
            architecture.columns[2:],
        }:
            raise RequestError(
                f"{name} takes two coordinates and, or not, a time, found the columns "
                f"{', '.join(architecture.columns)}"
                f"{' without ' if architecture.dropped else ''}{', '.join(architecture.dropped)}."
            )
        super().__init__(
            name, architecture, basis=basis, posterior=posterior, noise=noise, diagonal=diagonal
        )
        self.tiles = tiles
        self.rows = HeldRows(len(architecture.used), architecture.torch_dtype)
        self.register_buffer("units", torch.cat([units.double(), torch.ones(3 - len(units))]))
        self.register_buffer("drift", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("shape_coefficients", torch.zeros(4, 3, dtype=torch.float64))
        self.register_buffer("shape_ranges", torch.zeros(2, 2, dtype=torch.float64))
        self.register_buffer("order_seed", torch.zeros((), dtype=torch.int64))
        # Worked out from the held rows when they are first needed.
        self._sites: tuple[Sites, KDTree] | None = None
        self._earlier: Tensor | None = None

    @property
    def law(self) -> MeasurementLaw:
        """The law of measurements."""
        return cast("MeasurementLaw", self.noise)

    @property
    def factor(self) -> Tensor:
        """The factor L of q(w), (r, r)."""
        return cast("VariationalPosterior", self.posterior).cholesky()

    # Training.

    def hold(self, rows: Rows, seed: int) -> Rows:
        """Keep the training rows, in the order of their places, and return them so.

        What an earlier fit learned from other rows (drift, shape) is forgotten.
        """
        sites = Sites.of(_numpy(self.points(rows.x)[:, :2]))
        order = torch.from_numpy(sites.order).to(self.device)
        held = Rows(rows.x[order], rows.y[order], rows.tests[order])
        self.rows.hold(held)
        self.law.hold(held.tests)
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
                raise RequestError("the model has not been fitted: it holds no rows.")
            sites = Sites.of(_numpy(self.points(self.rows.x)[:, :2]))
            assert (np.diff(sites.order) == 1).all(), "rows are held in the order of their places"
            self._sites = sites, KDTree(sites.centre)
        return self._sites

    @property
    def shape_law(self) -> ShapeLaw:
        """The law of the predictive shape."""
        return ShapeLaw(_numpy(self.shape_coefficients), _numpy(self.shape_ranges))

    @property
    def earlier(self) -> Tensor:
        """The held rows that the rows of each place are conditioned on, (s, most)."""
        if self._earlier is None:
            random = np.random.default_rng([int(self.order_seed), 1])
            self._earlier = torch.from_numpy(earlier_rows(self.sites[0], random))
        self._earlier = self._earlier.to(self.device)
        return self._earlier

    def row_terms(self, x: Tensor, tests: Tensor) -> RowTerms:
        """Return means and laws of scaled inputs (n, d) and counts of tests (n,)."""
        phi = self.basis(self._within_data(x)).phi
        mean = self.mean_constant.double() + self.posterior.moments(phi).mean.double()
        return RowTerms(
            phi,
            mean + self.law.shift(tests),
            self.tiles.amplitude(phi),
            self.law(phi, tests),
        )

    def single_row_terms(self, rows: Rows) -> BatchTerms:
        """Return what `elbo` needs when every row is a block of its own.

        The variance around f is then that of the tile process plus that of the measurement.
        """
        found = self.row_terms(rows.x, rows.tests)
        moments = self.posterior.moments(found.phi)
        variance = found.noise + found.amplitude.square() * self.tiles.variance().detach()
        zero = torch.zeros_like(variance)
        return BatchTerms(
            mean=found.mean,
            function_variance=moments.variance.double(),
            residual=zero,
            feature_norm=zero,
            noise_var=variance,
            kl=self.posterior.kl(),
        )

    def block(self, sites: Tensor, *, factor: Tensor | None) -> Block:
        """Return the whitened held rows of some places.

        Parameters
        ----------
        sites
            Numbers of places, (b,).
        factor
            L of q(w), (r, r), or None for W Phi itself.
        """
        earlier = self.earlier[sites]
        number = sites.cpu().numpy()
        places = self.sites[0]
        own = places.rows(number[:, None], int(places.count[number].max()))
        index = torch.cat([earlier, torch.from_numpy(own).to(self.device)], 1)
        known = index != NO_ROW
        distinct, back = distinct_rows(index, known)
        x, y, tests = self.rows.x[distinct], self.rows.y[distinct], self.rows.tests[distinct]
        terms = self.row_terms(x, tests)
        spread = terms.phi if factor is None else terms.phi @ factor
        values = torch.cat([(y - terms.mean)[:, None], spread.double()], 1)
        covariance = self._covariance(self.points(x), terms.amplitude, back, back)
        noise = torch.diag_embed(terms.noise[back])
        L, white = whitened(covariance + noise, known, values[back])
        mine = known[:, earlier.shape[1] :]
        kept = white[:, earlier.shape[1] :][mine]
        log_scale = L.diagonal(dim1=1, dim2=2)[:, earlier.shape[1] :][mine].log().sum()
        return Block(kept[:, 0], kept[:, 1:], log_scale)

    def settle(self, rows: Rows, validation: Rows) -> None:
        """Nothing is learned outside the gradient before the end; see `finish`."""

    def finish(self, validation: Rows) -> None:
        """Learn the drift of the level between quarters, and the shape of what is left.

        Parameters
        ----------
        validation
            Rows that took no part in the gradient; their standardised residuals give location,
            scale, skewness and tail weight of the predictive distribution, by number of tests
            and distance to the held places near.
        """
        with torch.no_grad():
            self.drift.copy_(self._drift())
            self._set_shape(NO_LAW)
            prediction = self.predict_scaled(validation.x, validation.tests)
            y = _numpy(self.y_mean + self.y_sd * validation.y.double())
            residuals = (y - prediction.mean) / prediction.sd
            distance = self.distance_to_others(validation.x)
            self._set_shape(fit_shape(residuals, _numpy(validation.tests), distance))

    def weighted_rows(
        self,
        rows: Rows,
        *,
        spread_is_noise: bool,  # noqa: ARG002
    ) -> Iterator[WeightedRows]:
        """Yield W Phi and W (y - m0 - shift) of the held rows in chunks, of variance 1.

        Raises
        ------
        RequestError
            Other rows than those the model was fitted to: their tests are not known.
        """
        if rows.x.shape != self.rows.x.shape:
            raise RequestError(
                f"expected the {len(self.rows.y)} training rows of this model, found {len(rows.y)}."
            )
        m = cast("VariationalPosterior", self.posterior).m
        numbers = torch.arange(len(self.sites[0]), device=self.device)
        for part in numbers.split(SITES_AT_ONCE):
            with torch.no_grad():
                found = self.block(part, factor=None)
            mean = found.spread @ m.double()
            yield WeightedRows(found.spread, found.residual + mean, torch.ones_like(found.residual))

    # Prediction.

    def predict(
        self, x: Floats, tests: Floats | float | None = None, *, level: bool = False
    ) -> Prediction:
        """Predict at inputs of shape (n, d), in chunks.

        Parameters
        ----------
        x
            Inputs. Beyond the first and last time of the training rows the field stays as it
            was there, and its variance grows (if they have more than one time).
        tests
            Tests behind each average, (n,) or one number for all; 1 where nothing is given.
            Infinity is allowed; see `MeasurementLaw` for counts that were never seen.
        level
            Predict what measurements scatter around: without noise, with the mean of as many
            tests as the training rows ever had. Its shape is the normal: lean and heavy tails are
            those of measurements. `tests` is then of no account.

        Returns
        -------
        Prediction
            `function_variance` is that of field and tile process; `tile_variance` the second.

        Raises
        ------
        DataError
            `x` or `tests` has another shape or values out of range.
        NumericalError
            A predictive variance is not positive.
        """
        scaled = self.scaled(x)
        given = np.inf if level else 1.0 if tests is None else tests
        return self.predict_scaled(scaled, self._counts(given, len(scaled)), level=level)

    def predict_scaled(
        self,
        x: Tensor,
        tests: Tensor | None = None,
        *,
        level: bool = False,
        alone: bool = False,
    ) -> Prediction:
        """Predict at inputs that `scaled` has returned; see `predict`.

        With `alone`, without what near held rows tell of a tile: cheap.
        """
        if tests is None:
            tests = torch.ones(len(x), dtype=torch.float64, device=self.device)
        nothing = alone or not len(self.rows.y)
        parts = torch.zeros(4, len(x), dtype=torch.float64, device=self.device)
        # Rows of near places together: they share what they are conditioned on.
        order = torch.from_numpy(Sites.of(_numpy(self.points(x)[:, :2])).order).to(self.device)
        for rows in order.split(ROWS_AT_ONCE):
            with torch.no_grad():
                given = self._given_nothing if nothing else self._given_rows
                parts[:, rows] = given(x[rows], tests[rows])
        found = self.shape_law.at(_numpy(tests), self.distance_to_others(x))
        return self._assembled(parts, found, level=level)

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield phi(x) of the field in the target's unit, float64, in chunks (c, r)."""
        for part in self.scaled(x).split(CHUNK):
            with torch.no_grad():
                phi = self.basis(self._within_data(part)).phi.double() * self.y_sd
            yield phi

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return the variance of field and tile process at points were that of the weights L L'.

        (n,), in the target's squared unit; see `LowRankGP`. Whatever else `predict` has stays.
        """
        other = deepcopy(self)
        cast("VariationalPosterior", other.posterior).take_covariance(L)
        return other.predict(x, np.inf).function_variance

    def field_mean(self, x: Floats) -> Floats:
        """Return the mean of field and shift at infinitely many tests, in the target's unit, (n,).

        The level that `predict` gives adds to it what near tiles tell of each tile.
        """
        parts = []
        for part in self.scaled(x).split(CHUNK):
            with torch.no_grad():
                endless = torch.full((len(part),), torch.inf, dtype=torch.float64)
                parts.append(self.row_terms(part, endless.to(self.device)).mean)
        return _numpy(self.y_mean + self.y_sd * torch.cat(parts))

    def tile_kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance of u between points, in the target's squared unit, (n, n2).

        `kernel` is that of f.
        """
        second = self.scaled(x2)
        with torch.no_grad():
            points, amplitude = self.points(second), self._amplitude(second)
            parts = []
            for part in self.scaled(x).split(CHUNK):
                own = self._amplitude(part)
                found = self.tiles(self.points(part), points)
                parts.append(found * own[:, None] * amplitude[None, :])
        return _numpy(torch.cat(parts) * self.y_sd.square())

    def points(self, x: Tensor) -> Tensor:
        """Return scaled inputs as kilometres and quarters, (n, 3) float64."""
        exact = x.double()
        if x.shape[-1] == 2:
            exact = torch.cat([exact, torch.zeros_like(exact[..., :1])], -1)
        return exact * self.units

    def distance_to_others(self, x: Tensor) -> Floats:
        """Return the mean distance from scaled inputs to the held places near, in km, (n,).

        Of the 16 nearest places other than the input's own; 1 where the model holds fewer than two
        places. See `geogp.models.vecchia.distance_to_others`.
        """
        if not len(self.rows.y):
            return np.ones(len(x))
        return distance_to_others(self.sites[0].places, _numpy(self.points(x)[:, :2]))

    def _within_data(self, x: Tensor) -> Tensor:
        """Return inputs with their times brought into those of the held rows."""
        if x.shape[-1] == 2 or not len(self.rows.x):
            return x
        times = self.rows.x[:, 2]
        time = x[..., 2:].clamp(times.min(), times.max())
        return torch.cat([x[..., :2], time], -1)

    def _counts(self, tests: Floats | float, n: int) -> Tensor:
        given = np.asarray(tests, np.float64)
        infinite = np.isinf(given)
        counts = as_floats(np.where(infinite, 1.0, given), "tests")
        counts = np.where(infinite, given, counts)
        if counts.shape not in {(), (n,)} or (counts < 1).any():
            raise DataError(
                f"expected one count of tests or {n}, each 1 or more, found shape {counts.shape}"
                f"{f' and a least value of {counts.min():g}' if counts.size else ''}."
            )
        spread = np.broadcast_to(counts, (n,)).copy()
        return torch.from_numpy(spread).to(self.device)

    def _amplitude(self, x: Tensor) -> Tensor:
        return self.tiles.amplitude(self.basis(self._within_data(x)).phi)

    def _covariance(self, points: Tensor, amplitude: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance of u between rows a (n, i) and b (n, j) of `points`."""
        prior: Tensor = self.tiles(points[a], points[b])
        return prior * amplitude[a][:, :, None] * amplitude[b][:, None]

    def near_rows(self, points: Tensor) -> Tensor:
        """Return the held rows that predictions at points (b, 3) are conditioned on, (b, m).

        Of the rows of the nearest places those of largest prior correlation with the point.
        """
        sites, tree = self.sites
        near = torch.from_numpy(nearest_rows(sites, tree, _numpy(points[:, :2]))).to(self.device)
        if near.shape[1] <= vecchia.PREDICTION_ROWS:
            return near
        chosen = []
        for rows, at in zip(near.split(SITES_AT_ONCE), points.split(SITES_AT_ONCE), strict=True):
            held = self.points(self.rows.x[rows.clamp(min=0)])
            prior = self.tiles(at[:, None], held)[:, 0]
            best = torch.where(rows == NO_ROW, -torch.inf, prior).topk(vecchia.PREDICTION_ROWS)
            chosen.append(rows.gather(1, best.indices))
        return torch.cat(chosen)

    def _given_rows(self, x: Tensor, tests: Tensor) -> Tensor:
        """Return mean, field, tile and noise variance at some rows given the held ones, (4, b)."""
        at = self.points(x)
        near = self.near_rows(at)
        known = near != NO_ROW
        distinct, back = distinct_rows(near, known)
        held = self.rows.x[distinct]
        seen = self.row_terms(held, self.rows.tests[distinct])
        asked = self.row_terms(x, tests)
        points = torch.cat([self.points(held), at])
        amplitude = torch.cat([seen.amplitude, asked.amplitude])
        here = torch.arange(len(x), device=self.device)[:, None] + len(held)
        covariance = self._covariance(points, amplitude, back, back)
        cross = self._covariance(points, amplitude, back, here)
        deviations = (self.rows.y[distinct] - seen.mean)[:, None]
        spread = (torch.cat([seen.phi, asked.phi]) @ self.factor).double()
        noise = torch.diag_embed(seen.noise[back])
        factor, white = whitened(covariance + noise, known, cross)
        tile = asked.amplitude.square() * self.tiles.variance() - white.square().sum((1, 2))
        # One column is solved for, whatever the rank; the padding has the weight 0.
        weights = torch.linalg.solve_triangular(factor.mT, white, upper=True)[..., 0]
        told = torch.cat([deviations, spread[: len(held)]], 1)
        shared = torch.stack([w @ told[at] for w, at in zip(weights, back, strict=True)])
        field = (spread[here[:, 0]] - shared[:, 1:]).square().sum(-1) + self.beyond(x)
        return torch.stack([asked.mean + shared[:, 0], field, tile.clamp(min=0), asked.noise])

    def _given_nothing(self, x: Tensor, tests: Tensor) -> Tensor:
        """Return what `_given_rows` does, had the model no rows near."""
        asked = self.row_terms(x, tests)
        field = self.posterior.moments(asked.phi).variance.double()
        tile = asked.amplitude.square() * self.tiles.variance()
        return torch.stack([asked.mean, field, tile, asked.noise])

    def beyond(self, x: Tensor) -> Tensor:
        """Return the variance of what the level may do outside the times of the held rows."""
        if x.shape[-1] == 2:
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=self.device)
        away = (x - self._within_data(x))[..., 2].double().abs() * self.units[2]
        found: Tensor = away * self.drift[0] + away.square() * self.drift[1]
        return found

    def _drift(self) -> Tensor:
        """Return variance per quarter and squared mean of the level's change in a quarter."""
        if self.rows.x.shape[1] == 2:
            return torch.zeros(2, dtype=torch.float64)
        values = self.rows.y - self.law.shift(self.rows.tests)
        return level_drift(self.points(self.rows.x)[:, 2], values)

    def _set_shape(self, law: ShapeLaw) -> None:
        self.shape_coefficients.copy_(torch.from_numpy(law.coefficients))
        self.shape_ranges.copy_(torch.from_numpy(law.ranges))

    def _assembled(
        self, parts: Tensor, of_shape: tuple[Floats, Floats, Shape], *, level: bool
    ) -> Prediction:
        """Return the prediction in the target's unit."""
        mean, field, tile, noise = (_numpy(part) for part in parts)
        location, scale, shape = of_shape
        factor = (scale * float(self.y_sd)) ** 2
        mean = mean + location * np.sqrt(field + tile + noise)
        return Prediction(
            float(self.y_mean) + float(self.y_sd) * mean,
            factor * (field + tile),
            np.zeros_like(noise) if level else factor * noise,
            factor * tile,
            GAUSSIAN if level else shape,
        )


def _numpy(tensor: Tensor) -> Floats:
    found: Floats = tensor.detach().cpu().double().numpy()
    return found
