"""The fitted field: parameters and rows that predict, with the laws of prediction errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.distributions.shapes import GAUSSIAN
from geogp.models.field.conditioning import places_at_once
from geogp.models.field.near_cache import Conditionals, NearCache, level_tensors
from geogp.models.field.near_network import network_predictions
from geogp.models.field.near_rows import Conditional, given_rows, near_rows, without_rows
from geogp.models.field.near_summaries import TileSums
from geogp.models.field.parameters import FieldParameters, WeightPosterior, numpy_of
from geogp.models.field.prediction_errors import FieldErrors, error_covariates
from geogp.models.field.predictive_law import Parameters, no_law
from geogp.models.field.rows import FieldRows
from geogp.models.field.stored_field import restored, tensors_of
from geogp.models.field.vecchia import Sites
from geogp.models.numerics.devices import CHUNK, on_device
from geogp.models.numerics.threads import in_threads, one_core_each
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.model import KnownPredictions, Model
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedField(Model):
    """A field that predicts from its parameters and its rows; only `cache` changes.

    `parameters`: the parameters. After a fit, the posterior of the weights is given the rows.
    `rows`: the rows.
    `errors`: the distribution of prediction errors.
    `drift`: variance and squared mean of the change of the level per quarter, (2,); see
        `level_drift`.
    `known`: predictions of known rows, each left out; None for a field from a file.
    `cache`: the level at some inputs; see `remembering`.
    """

    parameters: FieldParameters
    rows: FieldRows
    errors: FieldErrors
    drift: Tensor
    known: KnownPredictions | None = None
    cache: NearCache = field(default_factory=NearCache)

    holds_rows = True
    level_in_closed_form = True

    @classmethod
    def unlearned(cls, parameters: FieldParameters, rows: FieldRows) -> "FittedField":
        """Return a field without drift, and with normal errors."""
        drift = torch.zeros(2, dtype=torch.float64, device=parameters.device)
        return cls(parameters, rows, FieldErrors.none(parameters), drift)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the row of the catalogue."""
        return self.parameters.name

    @property
    def architecture(self) -> Architecture:  # type: ignore[override]
        """Sizes of the parameters."""
        return self.parameters.architecture

    @property
    def y_mean(self) -> Tensor:  # type: ignore[override]
        """Mean of the training targets."""
        return self.parameters.y_mean

    @property
    def y_sd(self) -> Tensor:  # type: ignore[override]
        """Standard deviation of the training targets."""
        return self.parameters.y_sd

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.parameters.device

    @property
    def intercept(self) -> float:
        """The mean m0 in the target's unit."""
        return self.parameters.intercept

    @cached_property
    def sums(self) -> TileSums:
        """Sums of the rows by tile and time, for the inputs of the networks."""
        rows = self.rows
        return TileSums.of(self.parameters.measurements(rows.x, rows.counts, rows.y))

    def within(self, x: Tensor) -> Tensor:
        """Return scaled inputs, with times clamped to the times of the rows."""
        return self.rows.within(x, has_time=self.parameters.has_time)

    def away(self, x: Tensor) -> Tensor:
        """Return the quarters after the last time of the rows, or before the first."""
        if not self.parameters.has_time:
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=self.device)
        return (x - self.within(x))[..., 2].double() * self.parameters.units[2]

    def widened(self, factor: float) -> Self:
        """Return the field with normal errors whose standard deviation is `factor`."""
        law = no_law()
        law.coefficients[1, 0] = np.log(factor)
        errors = replace(FieldErrors.none(self.parameters), law=law)
        return replace(self, errors=errors, known=None, cache=NearCache())

    def left_out_rows(self) -> KnownPredictions | None:
        """Return predictions of training and validation rows, or of a random subset of many."""
        return self.known

    def to(self, device: torch.device) -> Self:
        """Return a copy of the field on a device, or the field itself if it is there."""
        if device == self.device:
            return self
        moved = {
            name: value.to(device)
            for name in ("x", "y", "counts", "points", "logs", "groups")
            if (value := getattr(self.rows, name)) is not None
        }
        networks = deepcopy(self.errors.networks).to(device)
        return type(self)(
            deepcopy(self.parameters).to(device),
            replace(self.rows, **moved, home=self.rows.home.to(device)),
            replace(self.errors, networks=networks),
            self.drift.to(device),
        )

    def as_rows(self, data: Data) -> Rows:
        """Return rows with scaled inputs and standardised targets, on the model's device."""
        return self.parameters.as_rows(data)

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return mean and factor of the weights given the stored rows."""
        m, L = self.parameters.weights
        return m.detach().double(), L.detach().double()

    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Prediction:
        """Predict at inputs of shape (n, d), in chunks.

        Parameters
        ----------
        x
            Inputs. Before the first and after the last time of the rows, the field stays constant;
            if the rows have more than one time, the variance of the level grows there.
        tests
            Tests in each average, (n,) or one number for all; 1 by default. Infinity is allowed.
            `MeasurementLaw` explains counts outside the range of the rows.
        devices
            Devices behind the tests, (n,) or one number for all. The default is the typical number
            of devices for these tests in the rows.
        level
            Predict the level that measurements scatter around. The level has no noise. Its mean
            is that of well-measured averages (`MeasurementLaw.well_measured`); `tests` and
            `devices` are ignored. The shape is normal: skewness and heavy tails belong to
            measurements.

        Returns
        -------
        Prediction
            `function_variance` is the variance of the sum of field and tile process.
            `tile_variance` is the variance of the tile process.

        Raises
        ------
        DataError
            If `x`, `tests` or `devices` has a wrong shape or values out of range, or an average has
            more devices than tests.
        NumericalError
            If a predictive variance is not positive.
        """
        parameters = self.parameters
        scaled = parameters.scaled(x)
        n = len(scaled)
        counts = parameters.well_measured(n) if level else parameters.counts_of(tests, devices, n)
        with one_core_each():
            near = self.cache.at(x)
            if near and not level:
                near = near.with_counts(parameters, self.rows, scaled, counts)
            return self.predict_scaled(scaled, counts, level=level, near=near)

    @contextmanager
    def remembering(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        stored: Mapping[str, Tensor] | None = None,
    ) -> Iterator[Mapping[str, Tensor]]:
        """Keep the level at inputs in the cache; see `Model.remembering`.

        Raises DataError if `stored` is not the level at as many inputs.
        """
        tensors = self._level_tensors(x, tests, devices) if stored is None else stored
        before = self.cache.kept
        if tensors:
            level = Conditionals.of_tensors(tensors, len(x), self.device)
            self.cache.kept = np.array(x), level
        try:
            yield tensors
        finally:
            self.cache.kept = before

    def _level_tensors(
        self, x: Floats, tests: Floats | float | None, devices: Floats | float | None
    ) -> dict[str, Tensor]:
        """Return the level given near rows; nothing if an input is outside the rows' times."""
        parameters = self.parameters
        scaled = parameters.scaled(x)
        if not torch.equal(self.within(scaled), scaled):
            return {}
        many = parameters.well_measured(len(x))
        asked = [] if tests is None else [parameters.counts_of(tests, devices, len(x))]
        with one_core_each():
            level = self.conditional(scaled, many)
            distance = self.rows.distance_to_others(numpy_of(parameters.points(scaled)))
            if not self.errors.networks_share:
                return level_tensors(level, distance)
            return level_tensors(level, distance, self._networks(scaled, [many, *asked]), *asked)

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

        If `alone` is true, the prediction ignores the rows near each tile; this is fast. `near` are
        the `conditionals`, if they are known.
        """
        if counts is None:
            counts = self.parameters.counts_of(None, None, len(x))
        errors, share = self.errors, self.errors.networks_share
        history = bool(share) or not errors.law.is_constant
        near = near or self.conditionals(x, counts, alone=alone, history=history)
        inside = self.within(x)
        points = numpy_of(self.parameters.points(inside))
        distance = near.distance
        if distance is None:
            distance = self.rows.distance_to_others(points)
        covariates = error_covariates(self.parameters.law, counts, near.within, distance)
        networks = None
        if share and not alone:
            networks = near.networks or tuple(self._networks(inside, [counts])[0])
        law = errors.law_at(covariates, self.rows.nearest(points), networks)
        return self.assembled(near, law, level=level)

    def conditionals(
        self,
        x: Tensor,
        counts: Tensor,
        weights: WeightPosterior | None = None,
        *,
        alone: bool = False,
        history: bool = True,
    ) -> Conditionals:
        """Predict at scaled inputs, also within the times that the error distribution holds for."""

        def predicted(inputs: Tensor) -> Conditional:
            return self.conditional(inputs, counts, weights, alone=alone, history=history)

        at, inside = predicted(x), self.within(x)
        return Conditionals(at, at if torch.equal(inside, x) else predicted(inside))

    def conditional(
        self,
        x: Tensor,
        counts: Tensor,
        weights: WeightPosterior | None = None,
        *,
        alone: bool = False,
        history: bool = True,
    ) -> Conditional:
        """Predict at scaled inputs, in chunks, given the rows near each input.

        If `history` is false, the covariates from the near rows are 0.
        """
        parameters, rows, device = self.parameters, self.rows, self.device
        # Near places are in one chunk, because they share conditioning rows.
        points = numpy_of(parameters.points(x))
        order, size = Sites.of(points[:, :2]).order, places_at_once(device)

        def predict(start: int) -> Conditional:
            numbers = order[start : start + size]
            at = on_device(numbers, device)
            inputs, tests = x[at], counts[at]
            places = rows.locations(points[numbers])
            if alone:
                return without_rows(parameters, rows, inputs, tests, posterior, at=places)
            near = near_rows(parameters, rows, places.points)
            predicted = given_rows(
                parameters, rows, inputs, tests, near, weights=posterior, history=history, at=places
            )
            return predicted._replace(field=predicted.field + self._beyond(inputs))

        with torch.no_grad():
            posterior = weights or parameters.weights
            chunks = list(in_threads(predict, range(0, len(x), size), device))
        back = on_device(order.argsort(), device)
        return Conditional(*(torch.cat(values)[back] for values in zip(*chunks, strict=True)))

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield phi(x) in the target's unit, float64, in chunks (c, r) on the device."""
        for chunk in self.parameters.scaled(x).split(CHUNK):
            with torch.no_grad():
                phi = self.rows.features(self.parameters, chunk).double() * self.y_sd
            yield phi

    def tile_kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance of u between points, in the target's squared unit, (n, n2).

        For the prior covariance of f, see `kernel`.
        """
        parameters = self.parameters
        first, second = parameters.scaled(x), parameters.scaled(x2)
        with torch.no_grad():
            points, amplitude = parameters.points(second), self._amplitude(second)
            rows = [
                parameters.tiles(parameters.points(chunk), points)
                * self._amplitude(chunk)[:, None]
                * amplitude[None, :]
                for chunk in first.split(CHUNK)
            ]
        return numpy_of(torch.cat(rows) * self.y_sd.square())

    def _amplitude(self, x: Tensor) -> Tensor:
        return self.parameters.amplitude(self.rows.features(self.parameters, x))

    def coefficients(self) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the covariates' coefficients, each (c,)."""
        return self.parameters.coefficients()

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return the variance of the function if the weights had the covariance L L', (n,).

        The function is the field plus the tile process, for the level.
        """
        weights = self.parameters.weights._replace(L=L.to(self.parameters.posterior.m.dtype))
        scaled = self.parameters.scaled(x)
        counts = self.parameters.well_measured(len(scaled))
        with one_core_each():
            near = self.conditionals(scaled, counts, weights)
            return self.predict_scaled(scaled, counts, near=near).function_variance

    def _networks(self, x: Tensor, counts: list[Tensor]) -> Floats:
        return network_predictions(self.parameters, self.errors.networks, self.sums, x, counts)

    def _beyond(self, x: Tensor) -> Tensor:
        """Return the variance of the drift of the level outside the times of the rows."""
        away = self.away(x)
        return away.abs() * self.drift[0] + away.square() * self.drift[1]

    def assembled(self, near: Conditionals, law: Parameters, *, level: bool = False) -> Prediction:
        """Return the prediction in the target's unit; `law` is that of the errors of `within`."""
        mean, field_variance, tile, noise = (numpy_of(values) for values in near.at[:4])
        location, scale, shape = law.distribution()
        factor = (scale * float(self.y_sd)) ** 2
        mean = mean + location * np.sqrt(sum(numpy_of(values) for values in near.within[1:4]))
        return Prediction(
            float(self.y_mean) + float(self.y_sd) * mean,
            factor * (field_variance + tile),
            np.zeros_like(noise) if level else factor * noise,
            factor * tile,
            GAUSSIAN if level else shape,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors of a saved field, by name."""
        return tensors_of(self.parameters, self.rows, self.errors, self.drift)

    @classmethod
    def restored(cls, parameters: FieldParameters, tensors: Mapping[str, Tensor]) -> "FittedField":
        """Return the field of the tensors of `state_dict`, loaded into untrained parameters.

        Raises ValueError or RuntimeError if the tensors do not fit, and DataError if they are of a
        version whose predictions differed.
        """
        return cls(parameters, *restored(parameters, tensors))
