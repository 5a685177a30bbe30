"""What the training of the field model changes: field, tile process and measurement law.

    y(tile, quarter) = f(place, quarter) + shift(k, d) + u(tile, quarter) + e,

Here f = m0 + <w, phi> has low rank, and u is a `TileProcess`. For an average of k tests from d
devices, `MeasurementLaw` gives shift(k, d) and the variance of e.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.arguments import numbers_of
from geogp.errors import DataError, RequestError
from geogp.models.field.blocks import RowTerms
from geogp.models.field.measurement import MeasurementLaw
from geogp.models.field.near_summaries import Measurements
from geogp.models.field.tile_process import TileProcess
from geogp.models.numerics.arrays import as_floats, check_devices
from geogp.models.process.architecture import Architecture
from geogp.models.process.posteriors import VariationalPosterior
from geogp.models.process.process import Process

Floats = NDArray[np.float64]

MOST_NOISE = 0.1
"""Measurements are precise if `start_covariance` found another form of the covariance than the
usual one, and if the noise of a single test has at most this share of the variance.
"""


class WeightPosterior(NamedTuple):
    """Posterior of the weights of the field: mean m (r,), and factor L (r, r) of the covariance."""

    m: Tensor
    L: Tensor


class FieldParameters(Process):
    """A low-rank process, a process of single tiles and a measurement law.

    The parameters are the same as in `Process`; a `MeasurementLaw` replaces the noise.
    `units` (3,) is the size of one unit of each scaled input: kilometres for the two coordinates,
    quarters for the time. Predictions need the rows too: a `FittedField` makes them.

    Raises
    ------
    RequestError
        If the inputs are not two coordinates and an optional time, or have no units.
    """

    noise: MeasurementLaw
    posterior: VariationalPosterior
    units: Tensor

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        d = architecture.d - len(architecture.covariates)
        dropped = set(architecture.dropped) - set(architecture.covariates)
        if d not in {2, 3} or dropped not in (set(), set(architecture.columns[2:d])):
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
        self.tiles = TileProcess(r, dtype, by_provider=architecture.used_providers > 0)
        self.coordinates = len(architecture.used) - architecture.used_covariates
        self.register_buffer("units", torch.ones(3, dtype=torch.float64))

    @property
    def law(self) -> MeasurementLaw:
        """The measurement law."""
        return self.noise

    @property
    def weights(self) -> WeightPosterior:
        """The posterior of the field's weights."""
        return WeightPosterior(self.posterior.m, self.posterior.cholesky())

    @property
    def has_time(self) -> bool:
        """Whether an input is the time."""
        return self.coordinates > 2

    def take_range(self, low: Tensor, high: Tensor) -> None:
        """Set the range of the inputs, and from the range the units of the scaled inputs."""
        super().take_range(low, high)
        used = list(self.architecture.used)
        per_input = torch.tensor(self.architecture.units, dtype=torch.float64)[used]
        units = per_input * ((high - low) / 2).double()
        self.units[: self.coordinates] = units[: self.coordinates]

    def points(self, x: Tensor) -> Tensor:
        """Return scaled inputs in km and quarters, and the provider, (n, 3 or 4) float64.

        Providers are numbered from 1; their columns are above 0 in the rows of one provider each.
        """
        exact = x[..., : self.coordinates].double()
        if not self.has_time:
            exact = torch.cat([exact, torch.zeros_like(exact[..., :1])], -1)
        points, providers = exact * self.units, self.architecture.used_providers
        if not providers:
            return points
        numbers = torch.arange(1.0, providers + 1, dtype=points.dtype, device=points.device)
        marks = x[..., -providers:] > 0
        return torch.cat([points, (marks * numbers).sum(-1, keepdim=True)], -1)

    def row_terms(self, x: Tensor, counts: Tensor, m: Tensor | None = None) -> RowTerms:
        """Return the terms of rows at scaled inputs (n, d) with tests and devices (n, 2).

        `m` (r,) is the mean of the weights, by default their posterior mean.
        """
        return self.terms_at(x, self.law.log_counts(counts), m)

    def terms_at(self, x: Tensor, logs: Tensor, m: Tensor | None = None) -> RowTerms:
        """Return `row_terms` for logarithms of counts from `log_counts`."""
        return self.terms_of(self.basis.values(x), logs, m)

    def terms_of(self, phi: Tensor, logs: Tensor, m: Tensor | None = None) -> RowTerms:
        """Return `terms_at` for the features phi (n, r)."""
        m = self.posterior.m if m is None else m.to(phi.dtype)
        heads = torch.cat([m[:, None], self.law.heads, self.tiles.head[:, None]], 1)
        lifts, lift = (phi @ heads).double().split([3, 1], 1)
        mean, noise = self.law.moments(lifts, logs, self.mean_constant)
        return RowTerms(phi, mean, self.tiles.log_amplitude(lift.squeeze(1)), noise)

    def amplitude(self, phi: Tensor) -> Tensor:
        """Return the amplitude of the tile process for features phi (n, r), (n,)."""
        return self.tiles.log_amplitude((phi @ self.tiles.head).double()).exp()

    def is_precise(self) -> bool:
        """Return whether the measurements are precise; see `MOST_NOISE`."""
        counts = torch.ones(1, 2, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            noise, tiles = self.law.anywhere(counts), self.tiles.variance()
        return not self.tiles.form.usual and bool(noise < MOST_NOISE * (noise + tiles))

    def measurements(self, x: Tensor, counts: Tensor, y: Tensor | None = None) -> Measurements:
        """Return scaled inputs, counts and targets (by default 0) as `Measurements`.

        The weight of a row is the variance of a single test divided by the variance of the row.
        Both are variances around the field, without the effects of the place on the noise.
        """
        points = numpy_of(self.points(x))
        with torch.no_grad():
            variance = self.tiles.variance() + self.law.anywhere(counts)
            single = self.tiles.variance() + self.law.anywhere(torch.ones_like(counts[:1]))
        values = np.zeros(len(x)) if y is None else numpy_of(y)
        return Measurements(points[:, :2], points[:, 2], values, numpy_of(single / variance))

    def network_inputs(self, x: Tensor, counts: Tensor, summaries: Floats) -> Floats:
        """Return the inputs of the networks, (n, c), for scaled inputs, counts and summaries."""
        tests, devices = self.law.log_counts(counts).unbind(1)
        logs = numpy_of(torch.stack([tests, devices, tests - devices], 1))
        return np.column_stack([numpy_of(x), logs, summaries])

    def coefficients(self) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the covariates' coefficients, each (c,).

        In the target's unit, per unit of the scaled covariate.
        """
        scale = self.y_sd * self.basis.covariate_sds().double()
        c = len(scale)
        if not c:
            return np.zeros(0), np.zeros(0)
        with torch.no_grad():
            sd = self.weights.L[-c:].double().square().sum(1).sqrt()
            return numpy_of(scale * self.posterior.m[-c:].double()), numpy_of(scale * sd)

    def counts_of(
        self, tests: Floats | float | None, devices: Floats | float | None, n: int
    ) -> Tensor:
        """Return tests and devices of n rows, (n, 2); see `FittedField.predict`.

        Raises DataError if `tests` or `devices` has neither one value nor n values, a count is
        below 1, or a row has more devices than tests.
        """
        behind = self._counts(1.0 if tests is None else tests, n, "tests")
        if devices is None:
            return torch.stack([behind, self.law.typical_devices(behind)], 1)
        counts = self._counts(devices, n, "devices")
        check_devices(numpy_of(counts), numpy_of(behind))
        return torch.stack([behind, counts], 1)

    def _counts(self, values: Floats | float, n: int, name: str) -> Tensor:
        numbers = numbers_of(values, name)
        infinite = np.isinf(numbers)
        counts = np.where(infinite, numbers, as_floats(np.where(infinite, 1.0, numbers), name))
        if counts.shape not in {(), (n,)} or (counts < 1).any():
            raise DataError(
                f"expected one number of {name} for all rows or one for each of {n} rows, each 1 "
                f"or more, found shape {counts.shape}"
                f"{f' and a smallest value of {counts.min():g}' if counts.size else ''}."
            )
        return torch.as_tensor(np.broadcast_to(counts, (n,)).copy()).to(self.device)

    def well_measured(self, n: int) -> Tensor:
        """Return the tests and devices of the level for n rows, (n, 2); see `MeasurementLaw`."""
        return self.law.well_measured.expand(n, 2)


def numpy_of(tensor: Tensor) -> Floats:
    """Return a tensor as a float64 array."""
    return np.asarray(tensor.detach().cpu().double().numpy(), np.float64)
