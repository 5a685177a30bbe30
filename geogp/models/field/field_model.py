"""The field model: a deep basis process, a process of single tiles, and a law of measurements.

    y(tile, quarter) = f(place, quarter) + shift(k) + u(tile, quarter) + e,

f = m0 + <w, phi> of low rank, u of `TileProcess`, e of variance `MeasurementLaw` for an average of
k tests. Given the weights w, y is Gaussian with the covariance of u + e, whose Vecchia factor W
whitens rows and features alike: W y ~ N(W(m0 + Phi w + shift), I). With q(w) = N(m, L L') the
evidence lower bound is the bound of a linear regression on W Phi.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from geogp.distributions.prediction import Prediction
from geogp.distributions.shapes import GAUSSIAN, Shape
from geogp.errors import DataError, RequestError
from geogp.models.core.arrays import as_floats
from geogp.models.core.lowrank import Rows
from geogp.models.core.objectives import BatchTerms, elbo, whitened_elbo
from geogp.models.core.options import Weights
from geogp.models.core.posteriors import WeightedRows
from geogp.models.field.field_process import SITES_AT_ONCE, FieldProcess, numpy_of
from geogp.models.field.field_rows import Block, Padded, distinct_rows, packed
from geogp.models.field.shape_laws import FEW_RESIDUALS, NO_LAW, ShapeLaw, fit_shape, width_factor
from geogp.models.field.vecchia import NO_ROW, Sites, whiten
from geogp.models.joint.joint_level import LevelOptions
from geogp.models.joint.tile_level import TileLevel, tile_level
from geogp.models.training.steps import Part, Step

Floats = NDArray[np.float64]

ROWS_AT_ONCE = 256
"""Rows that are predicted at once."""

PARTS = 4
"""Parts of a step's blocks, each with its own padding."""


GROUP = 16
"""Neighbouring places in one group of a step: they share conditioning rows."""


class FieldNetwork(FieldProcess):
    """A low-rank process, a process of single tiles and a law of measurements.

    Its parameters: see `FieldProcess`.
    """

    # Training.

    def single_row_terms(self, rows: Rows) -> BatchTerms:
        """Return the terms of `elbo` when every row is its own block.

        The variance around f is then the tile process's plus the measurement's.
        """
        found = self.row_terms(rows.x, rows.tests)
        moments, kl = self.posterior.moments_and_kl(found.phi)
        variance = found.noise + found.amplitude.square() * self.tiles.variance().detach()
        zero = torch.zeros_like(variance)
        return BatchTerms(
            mean=found.mean,
            function_variance=moments.variance.double(),
            residual=zero,
            feature_norm=zero,
            noise_var=variance,
            kl=kl,
        )

    def block(self, sites: Tensor, *, factor: Tensor | None) -> Block:
        """Return the whitened held rows of places with these numbers (b,).

        `factor` is the L (r, r) of q(w), or None for W Phi itself.
        """
        earlier = self.earlier[sites]
        number = sites.cpu().numpy()
        places = self.sites[0]
        here = places.rows(number[:, None], int(places.count[number].max()))
        index = torch.cat([earlier, torch.from_numpy(here).to(self.device)], 1)
        known = index != NO_ROW
        own = known.clone()
        own[:, : earlier.shape[1]] = False
        distinct, back = distinct_rows(index, known)
        x, y, tests = self.rows.x[distinct], self.rows.y[distinct], self.rows.tests[distinct]
        terms = self.row_terms(x, tests)
        spread = terms.phi if factor is None else terms.phi @ factor
        # In units of the amplitude at the rows, which saves the product D K D.
        values = torch.cat([(y - terms.mean)[:, None], spread.double()], 1)
        values = values * terms.amplitude.reciprocal()[:, None]
        noise, points = terms.noise / terms.amplitude.square(), self.points(x)
        kept, log_scale = [], terms.amplitude.log()[back[own]].sum()
        for part in packed(Padded(back, known, own), PARTS):
            at = points[part.rows]
            prior = self.tiles(at, at)
            L, white = whiten(prior, noise[part.rows], part.known, values[part.rows])
            kept.append(white[part.own])
            log_scale = log_scale + L.diagonal(dim1=1, dim2=2)[part.own].log().sum()
        found = torch.cat(kept)
        return Block(found[:, 0], found[:, 1:], log_scale)

    def update_closed_forms(self, rows: Rows, validation: Rows) -> None:
        """Learn nothing outside the gradient before the end; see `finish`."""

    def finish(self, validation: Rows) -> None:
        """Learn the drift of the level between quarters, and the shape of the residuals.

        The standardised residuals of the validation rows give location, scale, skewness and tail
        weight of the predictive distribution, by number of tests and distance to near held places;
        few rows give its scale alone.
        """
        with torch.no_grad():
            self.drift.copy_(self._drift())
            self._set_shape(NO_LAW)
            prediction = self.predict_scaled(validation.x, validation.tests)
            y = numpy_of(self.y_mean + self.y_sd * validation.y.double())
            residuals = (y - prediction.mean) / prediction.sd
            if len(residuals) < FEW_RESIDUALS:
                self.widen(width_factor(residuals))
                return
            distance = self.distance_to_others(validation.x)
            self._set_shape(fit_shape(residuals, numpy_of(validation.tests), distance))

    def widen(self, factor: float) -> None:
        """Replace the shape by a normal law, `factor` times as wide."""
        coefficients = NO_LAW.coefficients.copy()
        coefficients[1, 0] = np.log(factor)
        self._set_shape(ShapeLaw(coefficients, NO_LAW.ranges))

    def weighted_rows(self, rows: Rows) -> Iterator[WeightedRows]:
        """Yield W Phi and W (y - m0 - shift) of the held rows in chunks, of variance 1.

        Raises RequestError: other rows than the training rows, whose tests are not known.
        """
        if rows.x.shape != self.rows.x.shape:
            raise RequestError(
                f"expected the {len(self.rows.y)} training rows of this model, found {len(rows.y)}."
            )
        numbers = torch.arange(len(self.sites[0]), device=self.device)
        for part in numbers.split(SITES_AT_ONCE):
            with torch.no_grad():
                found = self.block(part, factor=None)
            mean = found.spread @ self.posterior.m.double()
            yield WeightedRows(found.spread, found.residual + mean, torch.ones_like(found.residual))

    def joint(self, x: Floats, rows: Rows | None, how: LevelOptions) -> TileLevel:  # noqa: ARG002
        """Return the joint law of field and tile process at tiles, given the held rows."""
        return tile_level(self, x, how)

    # Prediction.

    def predict(
        self, x: Floats, tests: Floats | float | None = None, *, level: bool = False
    ) -> Prediction:
        """Predict at inputs of shape (n, d), in chunks.

        Parameters
        ----------
        x
            Inputs. Before the first and after the last time of the training rows the field stays
            constant, and its variance grows (if they have more than one time).
        tests
            Tests in each average, (n,) or one number for all; 1 by default. Infinity is allowed;
            see `MeasurementLaw` for counts outside the training rows. level Predict the level that
            measurements scatter around: no noise, and the mean of the largest number of tests in
            the training rows; `tests` is ignored. Its shape is normal: skewness and heavy tails
            belong to measurements.

        Returns
        -------
        Prediction
            `function_variance` is of field and tile process, `tile_variance` of the tile process.

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
        """Predict at inputs returned by `scaled`; see `predict`.

        `alone` ignores the held rows near each tile, which is cheap.
        """
        if tests is None:
            tests = torch.ones(len(x), dtype=torch.float64, device=self.device)
        nothing = alone or not len(self.rows.y)
        parts = torch.zeros(4, len(x), dtype=torch.float64, device=self.device)
        # Rows of near places together: they share conditioning rows.
        order = torch.from_numpy(Sites.of(numpy_of(self.points(x)[:, :2])).order).to(self.device)
        for rows in order.split(ROWS_AT_ONCE):
            with torch.no_grad():
                given = self._given_nothing if nothing else self._given_rows
                parts[:, rows] = given(x[rows], tests[rows])
        found = self.shape_law.at(numpy_of(tests), self.distance_to_others(x))
        return self._assembled(parts, found, level=level)

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return `predict(x).function_variance`, (n,), if the weights had the covariance L L'."""
        other = deepcopy(self)
        other.posterior.take_covariance(L)
        return other.predict(x, np.inf).function_variance

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
        here = torch.arange(len(x), device=self.device)[:, None] + len(held)
        # In units of the amplitude at the rows, which saves the product D K D.
        prior = self.tiles(points[back], points[back])
        cross = self.tiles(points[back], points[here]) * asked.amplitude[:, None, None]
        deviations = (self.rows.y[distinct] - seen.mean)[:, None]
        spread = (torch.cat([seen.phi, asked.phi]) @ self.factor).double()
        noise = (seen.noise / seen.amplitude.square())[back]
        factor, white = whiten(prior, noise, known, cross)
        tile = asked.amplitude.square() * self.tiles.variance() - white.square().sum((1, 2))
        # One column to solve for, for any rank; the padding has the weight 0.
        weights = torch.linalg.solve_triangular(factor.mT, white, upper=True)[..., 0]
        weights = weights / seen.amplitude[back]
        told = torch.cat([deviations, spread[: len(held)]], 1)
        shared = embedding_bag(back, told, mode="sum", per_sample_weights=weights)
        field = (spread[here[:, 0]] - shared[:, 1:]).square().sum(-1) + self.beyond(x)
        return torch.stack([asked.mean + shared[:, 0], field, tile.clamp(min=0), asked.noise])

    def _given_nothing(self, x: Tensor, tests: Tensor) -> Tensor:
        """Return what `_given_rows` would return without near rows."""
        asked = self.row_terms(x, tests)
        field = self.posterior.moments(asked.phi).variance.double()
        tile = asked.amplitude.square() * self.tiles.variance()
        return torch.stack([asked.mean, field, tile, asked.noise])

    def _drift(self) -> Tensor:
        """Return variance per quarter and squared mean of the level's change in a quarter."""
        if self.rows.x.shape[1] == 2:
            return torch.zeros(2, dtype=torch.float64)
        values = self.rows.y - self.law.shift(self.rows.tests)
        return level_drift(self.points(self.rows.x)[:, 2], values)

    def _assembled(
        self, parts: Tensor, of_shape: tuple[Floats, Floats, Shape], *, level: bool
    ) -> Prediction:
        """Return the prediction in the target's unit."""
        mean, field, tile, noise = (numpy_of(part) for part in parts)
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


@dataclass(frozen=True)
class PerPlace(Step[FieldNetwork]):
    """The evidence lower bound under Vecchia's approximation; see `Step`.

    In the first epochs, a share `single` of all, every row is its own block, which is cheap and
    finds field, noise and amplitude; then the blocks are whole places, conditioned on near ones.
    """

    single: float = 0.5

    def complete(self, share: float) -> bool:
        """Tell whether the epoch that ends at `share` takes whole places."""
        return share > self.single

    def parts(
        self,
        model: FieldNetwork,
        rows: Rows,
        batch: int,
        rng: np.random.Generator,
        share: float,
    ) -> list[Part]:
        """Cut the rows, or groups of places, into batches."""
        n = rows.n
        if not self.complete(share):
            order = torch.from_numpy(rng.permutation(n)).to(model.device)
            return [Part(index, len(index)) for index in order.split(self.rows(batch, n))]
        sites, _ = model.sites
        groups = np.array_split(np.arange(len(sites)), max(1, len(sites) // GROUP))
        shuffled = rng.permutation(len(groups))
        steps = np.array_split(shuffled, max(1, round(n / self.rows(batch, n))))
        chosen = [np.concatenate([groups[i] for i in step]) for step in steps if len(step)]
        return [
            Part(torch.from_numpy(c).to(model.device), int(sites.count[c].sum()), whole_places=True)
            for c in chosen
        ]

    def split(self, model: FieldNetwork, rows: Rows, part: Part, count: int) -> list[Part]:
        """Cut a part into `count` parts, of rows or of whole neighbouring places."""
        own = part.numbers.tensor_split(count)
        if not part.whole_places:
            return [Part(numbers, rows.at(numbers).n) for numbers in own]
        places, _ = model.sites
        counts = [int(places.count[numbers.cpu().numpy()].sum()) for numbers in own]
        return [Part(numbers, n, whole_places=True) for numbers, n in zip(own, counts, strict=True)]

    def learn(self, model: FieldNetwork, rows: Rows, part: Part, weights: Weights) -> Tensor:
        """Add the gradient of a part's loss per datum to the parameters; return the loss."""
        n = rows.n
        if part.whole_places:
            block = model.block(part.numbers, factor=model.factor)
            loss = whitened_elbo(
                block.residual, block.spread, block.log_scale, model.posterior.kl(), n
            )
        else:
            chosen = rows.at(part.numbers)
            loss = elbo(model.single_row_terms(chosen), chosen.y, n, weights)
        loss.backward()
        return loss.detach().double()

    def predicted(self, model: FieldNetwork, rows: Rows, share: float) -> Prediction:
        """Predict from near places once the epochs take them; earlier, by the field alone."""
        return model.predict_scaled(rows.x, rows.tests, alone=not self.complete(share))


def level_drift(times: Tensor, values: Tensor) -> Tensor:
    """Return variance per quarter and squared mean of the level's change in a quarter, (2,).

    From the changes between successive times of the mean of the values, less the sampling variance
    of those means. With two times, the only change counts as variance; with one time, both are 0.
    `times` are quarters (n,), `values` measurements without their shift, (n,) float64.
    """
    times, number = torch.unique(times, return_inverse=True)
    if len(times) < 2:
        return torch.zeros(2, dtype=torch.float64)
    count = torch.bincount(number)
    level = torch.bincount(number, values) / count
    sampling = torch.bincount(number, (values - level[number]).square()) / count.square()
    quarters = times.diff()
    several = len(times) > 2
    slope = (level[-1] - level[0]) / quarters.sum() if several else torch.zeros_like(level[0])
    unexplained = (level.diff() - slope * quarters).square() - sampling[1:] - sampling[:-1]
    variance = (unexplained / quarters).sum() / (len(quarters) - several)
    trend = slope.square() - (sampling[-1] + sampling[0]) / quarters.sum().square()
    return torch.stack([variance, several * trend]).clamp(min=0)
