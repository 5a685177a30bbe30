"""The fit of the field model: single rows first, then places with the rows near them.

The steps train `FieldParameters`. After the last step, the fit learns the drift of the level and
the errors of predictions, which make the parameters and the rows a `FittedField`.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.models.field.blocks import BlockRows, Shapes, flat_on_device, padded, place_arrays
from geogp.models.field.conditioning import block_at, condition_on, information_in, rows_at
from geogp.models.field.covariance_start import start_covariance
from geogp.models.field.fitted import FittedField
from geogp.models.field.learned_home import learned_home
from geogp.models.field.left_out import LeftOutRows, left_out, rows_alone
from geogp.models.field.level_drift import level_drift
from geogp.models.field.measurement import ENDLESS
from geogp.models.field.near_cache import Conditionals
from geogp.models.field.near_network import LEAST_ROWS, MEMBERS, SHARE, network_predictions
from geogp.models.field.near_rows import Conditional
from geogp.models.field.near_summaries import left_out_summaries, near_summaries
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.prediction_errors import FieldErrors, error_covariates
from geogp.models.field.predictive_law import (
    SIMPLE,
    Errors,
    PredictiveLaw,
    earns_covariates,
    fit_law,
    no_law,
)
from geogp.models.field.rows import FieldRows, by_place
from geogp.models.field.vecchia import NO_ROW, Indices
from geogp.models.fitting.steps import Batch, SteppedFit
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.threads import aside, in_threads
from geogp.models.options import Weights
from geogp.models.process.model import KnownPredictions
from geogp.models.process.objectives import BatchTerms, elbo, whitened_elbo
from geogp.models.process.posteriors import Information, posterior_of
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

GROUP = 16
"""Number of neighbouring places in one group; the places of a group share conditioning rows."""

SHARES = 2
"""Number of shares of a step, whatever the number of threads; a fit so has the same results."""

SINGLE = 0.5
"""Share of the epochs in which every row is its own block."""

REACH = 0.95
"""Quantile of the distances of predicted rows to the nearest row up to which errors were seen."""

MOST_HELD_OUT = 20_000
"""Largest number of validation rows whose errors are estimated; of more rows, some are drawn."""


class FieldFit(SteppedFit[FieldParameters]):
    """A fit on the evidence lower bound under Vecchia's approximation.

    In the first epochs (a share `SINGLE` of all epochs), every row is its own block. This is fast
    and finds field, noise and amplitude. In later epochs, each block is a whole place, conditioned
    on rows of near places.
    """

    one_core_each: ClassVar[bool] = True
    same_kernels: ClassVar[bool] = True

    field: FittedField

    def start(self, rows: Rows, seed: int, *, resumed: bool = False) -> None:
        """Take the rows, ordered by place; start values are those of `start_covariance`."""
        stored = _stored(self.process, rows, seed)
        super().start(stored.rows._replace(y=stored.y.to(rows.y.dtype)), seed)
        self.field = FittedField.unlearned(self.process, stored)
        if not resumed:
            start_covariance(self.process, stored, seed)

    def complete(self, share: float) -> bool:
        """Return whether each block is a whole place in an epoch.

        After the epoch, the fit has done the fraction `share` of its epochs.
        """
        return share > SINGLE

    # Steps.

    def batches(self, batch: int, rng: np.random.Generator, share: float) -> list[Batch]:
        """Divide the rows, or groups of places, into batches."""
        n = self.rows.n
        if not self.complete(share):
            order = torch.as_tensor(rng.permutation(n)).to(self.process.device)
            return [Batch(index, len(index)) for index in order.split(self.batch_rows(batch, n))]
        count, groups = self.field.rows.sites.count, self._groups()
        shuffled = rng.permutation(len(groups))
        steps = np.array_split(shuffled, self._steps(batch, n))
        chosen = [np.concatenate([groups[i] for i in step]) for step in steps if len(step)]
        return [
            Batch(torch.as_tensor(places), int(count[places].sum()), whole_places=True)
            for places in chosen
        ]

    def split(self, batch: Batch, count: int) -> list[Batch]:
        """Divide a batch into `count` batches. Places stay whole, and neighbours stay together."""
        pieces = batch.numbers.tensor_split(count)
        if not batch.whole_places:
            return [Batch(numbers, self.rows.at(numbers).n) for numbers in pieces]
        rows = self.field.rows.sites.count
        counts = [int(rows[numbers.cpu().numpy()].sum()) for numbers in pieces]
        return [
            Batch(numbers, n, whole_places=True) for numbers, n in zip(pieces, counts, strict=True)
        ]

    def placed(self, batch: int) -> Callable[[Batch], Batch]:
        """Return a function that copies the rows of places to a GPU, in arrays of equal shapes."""
        shapes: list[tuple[int, ...]] = []

        def copied(unplaced: Batch) -> Batch:
            if not unplaced.whole_places:
                return unplaced
            if not shapes:
                shapes.extend(self._shapes(self._steps(batch, self.rows.n)))
            rows = self.field.rows
            arrays = place_arrays(rows.sites, rows.earlier, unplaced.numbers.numpy(), 1)
            flat = flat_on_device(padded(arrays, shapes), self.process.device)
            return unplaced._replace(numbers=flat, shapes=shapes)

        return copied

    def step(self, batch: Batch, weights: Weights) -> Tensor:
        """Add the gradient of a batch's loss per datum to the parameters; return the loss."""
        if batch.whole_places:
            return self._step_of_places(batch)
        rows = self.rows.at(batch.numbers)
        loss = elbo(single_row_terms(self.process, rows), rows.y, self.rows.n, weights)
        loss.backward()
        return loss.detach().double()

    def _step_of_places(self, batch: Batch) -> Tensor:
        """Learn from whole places, on a CPU in `SHARES` shares, one for each thread."""
        parameters, rows = self.process, self.field.rows
        trained = [value for value in parameters.parameters() if value.requires_grad]

        def gradients_of(share: Batch) -> tuple[Tensor, tuple[Tensor | None, ...]]:
            L = parameters.posterior.cholesky()
            at = (
                BlockRows.of(share.numbers, share.shapes)
                if share.shapes
                else rows_at(rows, share.numbers)
            )
            block = block_at(parameters, rows, at)
            # There are fewer whitened rows than rows that condition them.
            spread = block.spread.to(L.dtype) @ L
            white = torch.cat([block.residual, spread.flatten()])
            kl = parameters.posterior.kl(L)
            loss = whitened_elbo(white, block.log_scale, kl, len(rows), at.own.sum())
            if share is not batch:
                loss = loss * (share.n / batch.n)
            return loss.detach().double(), torch.autograd.grad(loss, trained, allow_unused=True)

        whole = bool(batch.shapes) or parameters.device.type != "cpu"
        count = 1 if whole else min(SHARES, len(batch.numbers))
        shares = [batch] if count == 1 else self.split(batch, count)
        computed = in_threads(gradients_of, shares, parameters.device)
        losses, gradients_by_share = zip(*computed, strict=True)
        for value, *gradients in zip(trained, *gradients_by_share, strict=True):
            for gradient in gradients:
                if gradient is not None:
                    value.grad = gradient if value.grad is None else value.grad + gradient
        return losses[0] if count == 1 else torch.stack(losses).sum()

    def predicted(self, held_out: Rows, share: float) -> Prediction:
        """Predict from the field; in epochs with whole places, also from rows of near places."""
        alone = not self.complete(share)
        return self.field.predict_scaled(held_out.x, held_out.counts, alone=alone)

    def _steps(self, batch: int, n: int) -> int:
        """Return the number of steps of an epoch with whole places."""
        return max(1, round(n / self.batch_rows(batch, n)))

    def _groups(self) -> list[Indices]:
        """Return the numbers of the places of each group."""
        places = len(self.field.rows.sites)
        return np.array_split(np.arange(places), max(1, places // GROUP))

    def _shapes(self, steps: int) -> Shapes:
        """Return shapes that are large enough for the arrays of every step of every epoch."""
        places, earlier, groups = self.field.rows.sites, self.field.rows.earlier, self._groups()
        ends = places.first + places.count
        distinct = [
            len(np.union1d(earlier[group], np.arange(places.first[group[0]], ends[group[-1]])))
            for group in groups
        ]
        most = -(-len(groups) // steps)
        u, b = (sum(sorted(sizes)[-most:]) for sizes in (distinct, map(len, groups)))
        m = int(((earlier != NO_ROW).sum(1) + places.count).max())
        return [(u,), (b, m), (u,), (b, int(places.count.max()))]

    # After the last step.

    def finish(self, held_out: Rows) -> FittedField:
        """Learn the coefficients of covariates, the drift of the level, and the errors.

        The posterior of the coefficients is conditioned on the means of the other weights. This
        maximises the bound if they are independent of the other weights. The error distribution is
        learned from the errors of training rows, predicted without their own row alone or without
        their group (`rows_alone`), and of validation rows. It depends on few covariates, and the
        networks have no share, if the measurements are precise (the covariance knows the sizes of
        their errors better), or if all covariates predict the errors no better. The validation rows
        are stored at the end; weights and home are then given all rows.
        """
        parameters, rows = deepcopy(self.process), self.field.rows
        with torch.no_grad():
            _take_coefficients(parameters, rows)
            rows = rows.going(learned_home(parameters, rows))
            field = replace(
                FittedField.unlearned(parameters, rows), drift=drift_of(parameters, rows)
            )
            rng = np.random.default_rng([self.seed, 3])
            alone = rows_alone(rows, rng)
            inside = left_out(parameters, rows, alone, rng)
            outside = _held_out(field, held_out, rng)
            errors = _errors(parameters, inside, alone).joined(_errors(parameters, outside, alone))
            seen = np.concatenate([inside.nearest, outside.nearest])
            simple = parameters.is_precise() or not earns_covariates(errors)
            device = parameters.device
            with aside(lambda: fit_law(errors, scale=SIMPLE if simple else ()), device) as law:
                predicted = None if simple else _learn_networks(field, alone, inside, outside)
            with aside(lambda: _networks_law(errors, predicted), device) as networks_law:
                every = _stored(parameters, _joined(rows, held_out), self.seed)
                condition_on(parameters, every)
            learned = FieldErrors(
                law=law(),
                networks=field.errors.networks,
                networks_law=networks_law(),
                networks_share=0.0 if predicted is None else SHARE,
                reach_km=reach_of(seen),
            )
            every = every.going(learned_home(parameters, every))
            fitted = FittedField(parameters, every, learned, field.drift)
            known = _left_out_rows(fitted, inside, outside, errors, predicted)
            sorted_rows = np.concatenate([rows.sites.order, len(rows) + np.arange(len(held_out.y))])
            return replace(fitted, known=known._replace(rows=sorted_rows[known.rows]))


def _left_out_rows(
    fitted: FittedField,
    inside: LeftOutRows,
    outside: LeftOutRows,
    errors: Errors,
    networks: tuple[Floats, Floats] | None,
) -> KnownPredictions:
    """Return predictions of rows inside and outside the fit by the laws of their errors.

    `errors` and `networks` are those of the rows. Row numbers are those of stored rows, followed by
    rows outside.
    """
    pairs = zip(inside.predicted, outside.predicted, strict=True)
    joined = Conditional(*(torch.cat(pair) for pair in pairs))
    nearest = np.concatenate([inside.nearest, outside.nearest])
    law = fitted.errors.law_at(errors.covariates, nearest, networks)
    y = numpy_of(torch.cat([inside.rows.y.double(), outside.rows.y.double()]))
    return KnownPredictions(
        fitted.assembled(Conditionals(joined, joined), law),
        float(fitted.y_mean) + float(fitted.y_sd) * y,
        torch.cat([inside.numbers, outside.numbers]).cpu().numpy(),
        errors.alone,
    )


def _stored(parameters: FieldParameters, rows: Rows, seed: int) -> FieldRows:
    """Return rows in the order of their places; the law learns the ranges of their counts."""
    ordered, sites = by_place(parameters, rows)
    parameters.law.take_counts(ordered.counts)
    return FieldRows.of(parameters, ordered, sites, seed)


def single_row_terms(parameters: FieldParameters, rows: Rows) -> BatchTerms:
    """Return the terms of `elbo` if every row is its own block.

    The variance of a row around f is then the sum of the variances of tile process and measurement.
    """
    terms = parameters.row_terms(rows.x, rows.counts)
    moments, kl = parameters.posterior.moments_and_kl(terms.phi)
    tiles = (2 * terms.log_amplitude).exp() * parameters.tiles.variance().detach()
    variance = terms.noise + tiles
    zero = torch.zeros_like(variance)
    return BatchTerms(
        mean=terms.mean,
        function_variance=moments.variance.double(),
        residual=zero,
        feature_norm=zero,
        noise_var=variance,
        kl=kl,
    )


def _take_coefficients(parameters: FieldParameters, rows: FieldRows) -> None:
    """Set the posterior of the covariates' coefficients; see `FieldFit.finish`."""
    if not (c := parameters.architecture.used_covariates):
        return
    m = parameters.posterior.m.double()
    precision, pull = information_in(parameters, rows)
    pull = pull[-c:] - precision[-c:, :-c] @ m[:-c]
    parameters.posterior.take_last(*posterior_of(Information(precision[-c:, -c:], pull)))


def drift_of(parameters: FieldParameters, rows: FieldRows) -> Tensor:
    """Return the variance and the squared mean of the change of the level per quarter."""
    if not parameters.has_time:
        return torch.zeros(2, dtype=torch.float64, device=parameters.device)
    return level_drift(rows.points[:, 2], rows.y - parameters.law.shift(rows.counts))


def reach_of(nearest: Floats) -> float:
    """Return the distance up to which errors were seen, from distances to the nearest row in km.

    It is the quantile `REACH` of the distances above 0, because others are of repeated places;
    `ENDLESS` if there are none.
    """
    apart = nearest[nearest > 0]
    return float(np.quantile(apart, REACH)) if len(apart) else ENDLESS


def _held_out(field: FittedField, rows: Rows, rng: np.random.Generator) -> LeftOutRows:
    """Predict rows that are not stored, or a random subset if there are many."""
    chosen = np.arange(len(rows.y))
    if len(rows.y) > MOST_HELD_OUT:
        chosen = np.sort(rng.permutation(len(rows.y))[:MOST_HELD_OUT])
        rows = rows.at(on_device(chosen, field.device))
    points = numpy_of(field.parameters.points(rows.x))
    predicted = field.conditional(rows.x, rows.counts)
    distances = field.rows.distance_to_others(points), field.rows.nearest(points)
    numbers = on_device(len(field.rows) + chosen, field.device)
    return LeftOutRows(rows, predicted, *distances, numbers)


def _errors(parameters: FieldParameters, left: LeftOutRows, alone: NDArray[np.bool_]) -> Errors:
    """Return the standardised prediction errors of rows.

    `alone` marks which of the stored rows are left out alone; no row that is held out is.
    """
    rows, predicted, distance, _ = left[:4]
    numbers = left.numbers.cpu().numpy()
    errors = numpy_of(rows.y.double() - predicted.mean)
    sd = np.sqrt(numpy_of(predicted.field + predicted.tile + predicted.noise))
    n = len(errors)
    groups = np.arange(n) if rows.groups is None else rows.groups.cpu().numpy()
    held_out = numbers >= len(alone)
    single = np.append(alone, False)[np.minimum(numbers, len(alone))]
    return Errors(
        errors / sd,
        error_covariates(parameters.law, rows.counts, predicted, distance),
        held_out,
        single,
        groups,
    )


def _learn_networks(
    field: FittedField, alone: NDArray[np.bool_], inside: LeftOutRows, outside: LeftOutRows
) -> tuple[Floats, Floats] | None:
    """Fit the networks of the field; return their predictions of the rows inside and outside.

    The result has means and log standard deviations. It is None if there are few rows, or several
    providers. `alone` is as in `left_out`.
    """
    parameters, rows, networks = field.parameters, field.rows, field.errors.networks
    groups = np.arange(len(rows)) if rows.groups is None else rows.groups.cpu().numpy()
    few = len(groups) < LEAST_ROWS or len(np.unique(groups)) < 2 * MEMBERS
    # The networks do not know which of the near rows are the provider's own.
    if few or parameters.architecture.used_providers > 0:
        return None
    source = parameters.measurements(rows.x, rows.counts, rows.y)
    summaries = left_out_summaries(near_summaries, source, groups, alone, rows.seed)
    inputs = parameters.network_inputs(rows.x, rows.counts, summaries)
    learned = networks.fit(inputs, rows.y, groups, rows.seed)
    at = inside.numbers.cpu().numpy()
    new, counts = outside.rows.x, [outside.rows.counts]
    others = network_predictions(parameters, networks, field.sums, new, counts)[0]
    mean, log_sd = (np.concatenate([a[at], b]) for a, b in zip(learned, others, strict=True))
    return mean, log_sd


def _networks_law(errors: Errors, predicted: tuple[Floats, Floats] | None) -> PredictiveLaw:
    """Return the law of the networks' errors, from the errors of field and tile process."""
    return no_law() if predicted is None else fit_law(errors.predicted_by(*predicted))


def _joined(rows: FieldRows, more: Rows) -> Rows:
    """Return stored rows followed by other rows."""
    y, counts = torch.cat([rows.y, more.y.double()]), torch.cat([rows.counts, more.counts])
    return Rows(torch.cat([rows.x, more.x]), y, counts)
