"""The field model: a deep basis process, a process of single tiles and a measurement model.

    y(tile, quarter) = f(place, quarter) + shift(k, d) + u(tile, quarter) + e,

Here f = m0 + <w, phi> has low rank, and u is a `TileProcess`. For an average of k tests from d
devices, `MeasurementLaw` gives shift(k, d) and the variance of e. Given the weights w, y is
Gaussian with the covariance of u + e. The Vecchia factor W of this covariance whitens the rows and
the features: W y ~ N(W(m0 + Phi w + shift), I). With q(w) = N(m, L L'), the evidence lower bound
equals that of a linear regression on W Phi.
"""

from copy import deepcopy
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.distributions.shapes import GAUSSIAN, Shape
from geogp.models.field.blocks import Block, BlockRows, block_rows, place_arrays, whitened
from geogp.models.field.covariance_start import start_covariance
from geogp.models.field.far_level import with_far_level
from geogp.models.field.left_out import LeftOutRows, held_out, left_out
from geogp.models.field.level_drift import level_drift
from geogp.models.field.near_network import law_and_share, learn_networks, network_predictions
from geogp.models.field.near_rows import (
    Conditional,
    Conditionals,
    WeightPosterior,
    given_rows,
    near_rows,
    single_of,
    with_counts,
    without_rows,
)
from geogp.models.field.predictive_law import Errors, fit_law, no_law, pooled_law, prediction_in
from geogp.models.field.stored_process import FieldProcess, numpy_of
from geogp.models.field.tile_level import TileLevel, tile_level
from geogp.models.field.vecchia import Indices, Sites
from geogp.models.joint.level import LevelOptions, level_of
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.threads import aside, in_threads, one_core_each
from geogp.models.process.lowrank import Rows, Single
from geogp.models.process.objectives import BatchTerms
from geogp.models.process.posteriors import Information, WeightedRows, information, posterior_of

Floats = NDArray[np.float64]

PARTS, PART = 4, 64
"""Blocks are divided into `PARTS` parts or more, each with its own padding and about `PART` blocks.
On a GPU, padding costs less than more operations, so there is only one part.
"""

MOST_NOISE = 0.1
"""Measurements are precise if `start_covariance` found another form of the covariance than the
usual one, and if the noise of a single test has at most this share of the variance.
"""


class FieldNetwork(FieldProcess):
    """The field model: training and prediction.

    `FieldProcess` documents the parameters.
    """

    # Training.

    def single_row_terms(self, rows: Rows) -> BatchTerms:
        """Return the terms of `elbo` if every row is its own block.

        The variance of a row around f is then the sum of the variances of tile process and
        measurement.
        """
        found = self.row_terms(rows.x, rows.counts)
        moments, kl = self.posterior.moments_and_kl(found.phi)
        variance = found.noise + (2 * found.log_amplitude).exp() * self.tiles.variance().detach()
        zero = torch.zeros_like(variance)
        return BatchTerms(
            mean=found.mean,
            function_variance=moments.variance.double(),
            residual=zero,
            feature_norm=zero,
            noise_var=variance,
            kl=kl,
        )

    def rows_at(self, sites: Tensor, without: NDArray[np.bool_] | None = None) -> BlockRows:
        """Return the stored rows at the places with the numbers `sites` (b,), and rows near them.

        `without` (n,) marks stored rows that must not condition the places.
        """
        number = sites.cpu().numpy()
        parts = max(PARTS, len(number) // PART) if self.device.type == "cpu" else 1
        arrays = place_arrays(self.sites.sites, self.earlier.numpy(), number, parts, without)
        return block_rows(arrays, self.device)

    def block_at(self, rows: BlockRows, factor: Tensor | None = None) -> Block:
        """Return rows whitened; `factor` is L (r, r) of q(w), or None for W Phi as `spread`."""
        points, logs, y = self.table[:, rows.distinct].split([self.table.shape[0] - 3, 2, 1])
        terms = self.terms_at(self.rows.x[rows.distinct], logs.T)
        spread = terms.phi if factor is None else terms.phi @ factor
        values = torch.cat([(y[0] - terms.mean)[:, None], spread], 1)
        blocks = [points[:, part.rows].movedim(0, -1) for part in rows.parts]
        priors = [self.tiles(at, at) for at in blocks]
        return whitened(rows, terms, values, priors)

    def begin(self, seed: int) -> None:
        """Find start values of covariance and noise; see `start_covariance`."""
        start_covariance(self, seed)

    def update_closed_forms(self, rows: Rows, validation: Rows) -> None:
        """Do nothing, because `finish` learns the remaining parts after the last step."""

    def finish(self, validation: Rows) -> None:
        """Learn the coefficients of covariates, the drift of the level, and the error distribution.

        The posterior of the coefficients is conditioned on the means of the other weights. This
        maximises the bound if they are independent of the other weights. The error distribution is
        learned from the errors of training rows, each predicted without its group, and of
        validation rows. If the measurements are precise, this distribution depends on the distance
        to other places alone, because the covariance then knows the sizes of errors better. The
        validation rows are stored at the end.
        """
        with torch.no_grad():
            self._take_coefficients()
            self.drift.copy_(self._drift())
            self.set_law(no_law())
            rng = np.random.default_rng([int(self.order_seed), 3])
            inside = left_out(self, rng)
            outside = held_out(self, validation, rng)
            training = self._errors(inside, held_out=False)
            errors = training.joined(self._errors(outside, held_out=True))
            precise, n = self.is_precise(), len(self.rows.y)
            groups = np.arange(n) if self.groups is None else self.groups.cpu().numpy()
            with aside(lambda: fit_law(errors, precise=precise), self.device) as law:
                predicted = learn_networks(self, groups, inside, outside)
            with aside(
                lambda: law_and_share(errors, groups, law(), predicted), self.device
            ) as both:
                self._condition_on(validation)
            self.set_law(law())
            self.set_networks(*both())

    def is_precise(self) -> bool:
        """Return whether the measurements are precise; see `MOST_NOISE`."""
        counts = torch.ones(1, 2, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            noise, tiles = self.law.anywhere(counts), self.tiles.variance()
        return not self.tiles.form.usual and bool(noise < MOST_NOISE * (noise + tiles))

    def _take_coefficients(self) -> None:
        if not (c := self.architecture.used_covariates):
            return
        m = self.posterior.m.double()
        known = self.information()
        pull = known.pull[-c:] - known.precision[-c:, :-c] @ m[:-c]
        self.posterior.take_last(*posterior_of(Information(known.precision[-c:, -c:], pull)))

    def _condition_on(self, others: Rows) -> None:
        """Store further rows, and condition the weights on all stored rows."""
        drift, stored = self.drift.clone(), self.rows.as_rows()
        counts = torch.cat([stored.counts, others.counts])
        rows = Rows(
            torch.cat([stored.x, others.x]), torch.cat([stored.y, others.y.double()]), counts
        )
        self.keep_rows(rows, int(self.order_seed))
        self.drift.copy_(drift)
        m, L = posterior_of(self.information())
        self.posterior.m.copy_(m)
        self.posterior.take_covariance(L)
        self.is_conditioned = True

    def _errors(self, left: LeftOutRows, *, held_out: bool) -> Errors:
        """Return the standardised prediction errors of rows."""
        rows, found, distance, _ = left
        errors = numpy_of(rows.y.double() - found.mean)
        sd = np.sqrt(numpy_of(found.field + found.tile + found.noise))
        return Errors(
            errors / sd,
            self._covariates(rows.counts, found, distance),
            np.full(len(errors), held_out),
            None if rows.groups is None else rows.groups.cpu().numpy(),
        )

    def _covariates(self, counts: Tensor, found: Conditional, distance: Floats) -> Floats:
        """Return the covariates of predictions, (n, c); `COVARIATES` names them."""
        logs = self.law.log_counts(counts)
        total = found.field + found.tile + found.noise
        own = torch.stack([(found.noise / total).log(), 0.5 * total.log(), found.mean], 1)
        return np.column_stack(
            [numpy_of(logs), np.log(distance), numpy_of(own), numpy_of(found.history)]
        )

    def widen(self, factor: float) -> None:
        """Replace the error distribution by a normal one with standard deviation `factor`."""
        law = no_law()
        law.coefficients[1, 0] = np.log(factor)
        self.set_law(law)

    def information(
        self, sites: Indices | None = None, without: NDArray[np.bool_] | None = None
    ) -> Information:
        """Return the information about the weights in the stored rows at all places, or `sites`."""
        numbers = np.arange(len(self.earlier)) if sites is None else sites
        like = self.posterior.m.detach()
        parts = in_threads(
            lambda part: information([self.whitened(part, without)], like),
            torch.as_tensor(numbers).split(self.places_at_once) if len(numbers) else (),
            self.device,
        )
        total = information([], like)
        for part in parts:
            total = Information(*(one + other for one, other in zip(total, part, strict=True)))
        return total

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return mean and factor of the weights given the stored rows; `rows` are not used."""
        if self.is_conditioned:
            return self.posterior.m.double(), self.factor.double()
        return posterior_of(self.information())

    def whitened(self, sites: Tensor, without: NDArray[np.bool_] | None = None) -> WeightedRows:
        """Return W Phi and W (y - m0 - shift) for the stored rows at places; see `block_at`."""
        with torch.no_grad():
            found = self.block_at(self.rows_at(sites, without))
        mean = found.spread @ self.posterior.m.double()
        return WeightedRows(found.spread, found.residual + mean, torch.ones_like(found.residual))

    # Prediction.

    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
        single: Single | None = None,
    ) -> Prediction:
        """Predict at inputs of shape (n, d), in chunks.

        Parameters
        ----------
        x
            Inputs. Before the first and after the last time of the training rows, the field stays
            constant; if the training rows have more than one time, the variance of the level grows
            there.
        tests
            Tests in each average, (n,) or one number for all; 1 by default. Infinity is allowed.
            `MeasurementLaw` explains counts outside the range of the training rows.
        devices
            Devices behind the tests, (n,) or one number for all. The default is the typical number
            of devices for these tests in the training rows.
        level
            Predict the level that measurements scatter around. The level has no noise. Its mean
            is the mean of measurements with the largest numbers of tests and devices in the
            training rows; `tests` and `devices` are ignored. The shape is normal: skewness and
            heavy tails belong to measurements.
        single
            `single` of the same inputs, which saves time if it is known.

        Returns
        -------
        Prediction
            `function_variance` is the variance of the sum of field and tile process; for a
            level, plus `far_level`. `tile_variance` is the variance of the tile process.

        Raises
        ------
        DataError
            If `x`, `tests` or `devices` has a wrong shape or values out of range, or an average has
            more devices than tests.
        NumericalError
            If a predictive variance is not positive.
        """
        scaled = self.scaled(x)
        counts = self.endless(len(scaled)) if level else self.counts_of(tests, devices, len(scaled))
        with one_core_each():
            near = Conditionals.of(single, self.device)
            if near and not level:
                near = with_counts(self, near, scaled, counts)
            found = self.predict_scaled(scaled, counts, level=level, near=near)
        return with_far_level(self, scaled, found) if level and len(self.rows.y) else found

    def single(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
    ) -> Single:
        """Return the predictions of the level given near rows; see `LowRankProcess.single`."""
        scaled = self.scaled(x)
        if not len(self.rows.y) or not torch.equal(self.seen(scaled), scaled):
            return {}
        level = self.endless(len(x))
        asked = [] if tests is None else [self.counts_of(tests, devices, len(x))]
        with one_core_each():
            found, distance = self.conditional(scaled, level), self.distance_to_others(scaled)
            if not self.networks_share:
                return single_of(found, distance)
            predicted = network_predictions(self, scaled, [level, *asked])
            return single_of(found, distance, predicted, *asked)

    def predict_scaled(
        self,
        x: Tensor,
        counts: Tensor | None = None,
        *,
        level: bool = False,
        alone: bool = False,
        near: Conditionals | None = None,
    ) -> Prediction:
        """Predict at inputs returned by `scaled`; see `predict`.

        If `alone` is true, the prediction ignores the stored rows near each tile; this is fast.
        `near` are the `conditionals`, if they are known.
        """
        if counts is None:
            counts = self.counts_of(None, None, len(x))
        law, share = self.predictive_law(), float(self.networks_share)
        history = bool(share) or not law.is_constant
        near = near or self.conditionals(x, counts, alone=alone, history=history)
        found, known = near[:2]
        then = self.seen(x)
        distance = self.distance_to_others(then) if near.distance is None else near.distance
        covariates = self._covariates(counts, known, distance)
        if alone or not share or not len(self.rows.y):
            return self._assembled(found, known, law.at(covariates), level=level)
        predicted = near.networks or tuple(network_predictions(self, then, [counts])[0])
        pooled = pooled_law(law, self.predictive_law("networks_law"), share, covariates, predicted)
        errors = pooled.standardised(*prediction_in(covariates))
        return self._assembled(found, known, errors.distribution(), level=level)

    def conditionals(
        self, x: Tensor, counts: Tensor, *, alone: bool = False, history: bool = True
    ) -> Conditionals:
        """Predict at scaled inputs, also within the times that the error distribution holds for."""
        predicted = partial(self.conditional, counts=counts, alone=alone, history=history)
        found, then = predicted(x), self.seen(x)
        return Conditionals(found, found if torch.equal(then, x) else predicted(then))

    def conditional(
        self,
        x: Tensor,
        counts: Tensor,
        weights: WeightPosterior | None = None,
        *,
        alone: bool = False,
        history: bool = True,
    ) -> Conditional:
        """Predict at scaled inputs, in chunks, given the stored rows near each input (if any).

        If `history` is false, the covariates from the near rows are 0.
        """
        nothing = alone or not len(self.rows.y)
        # Near places are in one chunk, because they share conditioning rows.
        points = numpy_of(self.points(x))
        order, size = Sites.of(points[:, :2]).order, self.places_at_once

        def predicted(start: int) -> Conditional:
            part = order[start : start + size]
            rows = on_device(part, self.device)
            asked = x[rows], counts[rows]
            if nothing:
                return without_rows(self, *asked, held)
            return given_rows(self, *asked, near_rows(self, points[part]), held, history=history)

        with torch.no_grad():
            held = weights or self.weights
            parts = list(in_threads(predicted, range(0, len(x), size), self.device))
        back = on_device(order.argsort(), self.device)
        return Conditional(*(torch.cat(part)[back] for part in zip(*parts, strict=True)))

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return `predict(x).function_variance`, (n,), if the weights had the covariance L L'."""
        other = deepcopy(self)
        other.posterior.take_covariance(L)
        return other.predict(x, np.inf).function_variance

    def _drift(self) -> Tensor:
        """Return the variance and the squared mean of the change of the level per quarter."""
        if self.coordinates == 2:
            return torch.zeros(2, dtype=torch.float64)
        values = self.rows.y - self.law.shift(self.rows.counts)
        return level_drift(self.points(self.rows.x)[:, 2], values)

    def _assembled(
        self,
        found: Conditional,
        known: Conditional,
        law: tuple[Floats, Floats, Shape],
        *,
        level: bool,
    ) -> Prediction:
        """Return the prediction in the target's unit.

        `known` is the prediction within the times of the stored rows, whose errors have the
        distribution `law`.
        """
        mean, field, tile, noise = (numpy_of(part) for part in found[:4])
        location, scale, shape = law
        factor = (scale * float(self.y_sd)) ** 2
        mean = mean + location * np.sqrt(sum(numpy_of(part) for part in known[1:4]))
        return Prediction(
            float(self.y_mean) + float(self.y_sd) * mean,
            factor * (field + tile),
            np.zeros_like(noise) if level else factor * noise,
            factor * tile,
            GAUSSIAN if level else shape,
        )


@level_of.register(FieldNetwork)
def field_level(
    model: FieldNetwork, x: Floats, _rows: Rows | None, options: LevelOptions
) -> TileLevel:
    """Return the joint level of field and tile process at tiles, given the stored rows."""
    with one_core_each():
        return tile_level(model, x, options)
