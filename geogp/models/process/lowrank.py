"""Low-rank processes: a basis, a posterior, a noise model and the variance of single points."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.models.numerics.arrays import as_inputs
from geogp.models.numerics.devices import CHUNK, CHUNK_ARRAYS, rows_at_once
from geogp.models.numerics.linalg import deferred_checks
from geogp.models.numerics.precision import check_precision
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import Basis, Features
from geogp.models.process.data import Data
from geogp.models.process.diagonals import Diagonal
from geogp.models.process.model import Model
from geogp.models.process.noise import Noise
from geogp.models.process.objectives import BatchTerms
from geogp.models.process.posteriors import Posterior, WeightedRows, condition
from geogp.models.process.rbf_readers import Marginals
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

ENTRIES = 2**20
"""Numbers in a chunk of a prediction on a CPU, to fit into the cache."""

MIN_ROWS = 256
"""Smallest number of rows in such a chunk."""


NO_NUMBERS = (
    "expected a model whose parameters have values, found a model on the device meta, which "
    "stores only shapes. Build or load the model on cpu or cuda."
)


class LowRankProcess(nn.Module, Model):
    """y = f(x) + noise with f(x) = m0 + <w, phi(x)>; the kernel is k(x, x') = <phi(x), phi(x')>.

    The model maps the inputs `x_low` and `x_high` to -1 and 1, and standardises targets by the mean
    `y_mean` and standard deviation `y_sd` of the training targets. Predictive standard deviations
    are multiplied by `widening`. `predict`, `features` and `kernel` take unscaled inputs and return
    values in the unit of the target.

    `name` is the row of the catalogue. `make_fit` makes the fit of this row, which trains the
    process (see `fitting/steps.py`). `diagonal` adds variance at single points.
    """

    make_fit: Callable[[Any], Any]
    x_low: Tensor
    x_high: Tensor
    y_mean: Tensor
    y_sd: Tensor
    widening: Tensor

    def __init__(
        self,
        name: str,
        architecture: Architecture,
        *,
        basis: Basis,
        posterior: Posterior,
        noise: Noise,
        diagonal: Diagonal,
    ) -> None:
        super().__init__()
        self.name = name
        self.architecture = architecture
        self.basis = basis
        self.posterior = posterior
        self.noise = noise
        self.diagonal = diagonal
        used = len(architecture.used)
        self.mean_constant = nn.Parameter(torch.zeros((), dtype=architecture.torch_dtype))
        self.register_buffer("x_low", torch.full((used,), -1.0, dtype=torch.float64))
        self.register_buffer("x_high", torch.ones(used, dtype=torch.float64))
        self.register_buffer("y_mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("y_sd", torch.ones((), dtype=torch.float64))
        self.register_buffer("widening", torch.ones((), dtype=torch.float64))

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        above = self.x_high - self.x_low, self.y_sd, self.widening
        if not all(bool((value > 0).all()) for value in above):
            raise ValueError("expected x_low below x_high, and y_sd and widening above 0")

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.mean_constant.device

    def check(self) -> None:
        """Raise RequestError unless parameters have values, one device and the right precision."""
        if self.device.type == "meta":
            raise RequestError(NO_NUMBERS)
        check_precision(self.y_mean)
        expected = self.architecture.torch_dtype
        for name, value in self.named_parameters():
            if value.device != self.device or value.dtype != expected:
                raise RequestError(
                    f"expected all parameters on {self.device} with {expected}, found {name} on "
                    f"{value.device} with {value.dtype}. Move the whole model with .to(device), "
                    "and choose the dtype with Architecture(dtype=...)."
                )

    @property
    def level_in_closed_form(self) -> bool:
        """Whether the stated variance of the level is that of the closed form."""
        return self.posterior.in_closed_form

    @property
    def intercept(self) -> float:
        """The mean m0 in the target's unit."""
        return float(self.y_mean + self.y_sd * self.mean_constant.detach().double())

    def scaled(self, x: Floats | Tensor) -> Tensor:
        """Return inputs (n, d) for the basis: used columns only, scaled, on the model's device.

        Raises DataError if `x` has another dimension than the training inputs or is not finite, and
        the error of `check`.
        """
        self.check()
        d = self.architecture.d
        values = as_inputs(x, d)
        used = values if len(self.x_low) == d else values[:, list(self.architecture.used)]
        tensor = torch.as_tensor(np.ascontiguousarray(used)).to(self.device)
        share = (tensor - self.x_low) / (self.x_high - self.x_low)
        return (2 * share - 1).to(self.architecture.torch_dtype)

    def seen(self, x: Tensor) -> Tensor:
        """Return scaled inputs in the form that the basis expects; by default unchanged."""
        return x

    def take_range(self, low: Tensor, high: Tensor) -> None:
        """Set the inputs that are mapped to -1 and 1, each with shape (used,)."""
        self.x_low.copy_(low)
        self.x_high.copy_(high)

    def take_target(self, y: Floats) -> None:
        """Set `y_mean` and `y_sd` to the mean and standard deviation of training targets (n,)."""
        self.y_mean.fill_(float(y.mean()))
        self.y_sd.fill_(float(y.std()))

    def standardised(self, y: Floats) -> Tensor:
        """Return targets (n,), standardised, on the model's device and in its dtype."""
        values = (torch.as_tensor(y).to(self.device) - self.y_mean) / self.y_sd
        return values.to(self.architecture.torch_dtype)

    def as_rows(self, data: Data) -> Rows:
        """Return rows with scaled inputs and standardised targets, on the model's device."""
        counts, groups = (
            torch.as_tensor(part).to(self.device) for part in (data.counts, data.groups)
        )
        return Rows(self.scaled(data.x), self.standardised(data.y), counts, groups=groups)

    def terms(self, x: Tensor) -> BatchTerms:
        """Return the terms of objectives at scaled inputs (b, d), for a standardised target."""
        features: Features = self.basis(x)
        moments, kl = self.posterior.moments_and_kl(features.phi)
        return BatchTerms(
            mean=self.mean_constant + moments.mean,
            function_variance=moments.variance,
            residual=features.residual,
            feature_norm=features.norm,
            noise_var=self.noise(),
            kl=kl,
        )

    def widened(self, factor: float) -> Self:
        """Return the process with predictive standard deviations multiplied by `factor`."""
        wider = deepcopy(self)
        wider.widening.fill_(factor)
        return wider

    def weighted_rows(self, rows: Rows) -> Iterator[WeightedRows]:
        """Yield features, residuals and variances of rows, in chunks, for `condition`.

        The variance of a row around <w, phi> is noise_var plus `Diagonal.of_rows`. If
        `spread_is_noise`, the function variance is added. For the mean of k rows at one input, the
        variance is divided by k.
        """
        for chunk in rows.chunks():
            features: Features = self.basis(chunk.x)
            variance = self.noise().double() + self.diagonal.of_rows(features).double()
            if self.spread_is_noise:
                variance = variance + self.posterior.moments(features.phi).variance.double()
            if chunk.repeats is not None:
                variance = variance / chunk.repeats.rows.double()
            yield WeightedRows(features.phi, chunk.y - self.mean_constant, variance)

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return mean (r,) and factor (r, r) of the weights given rows; see `condition`."""
        return condition(self.weighted_rows(rows), torch.zeros(self.basis.rank, device=self.device))

    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Prediction:
        """Predict at inputs, ignoring tests and devices; see `Model.predict`."""
        return self.predict_scaled(self.scaled(x), level=level).widened(float(self.widening))

    def predict_scaled(
        self, x: Tensor, counts: Tensor | None = None, *, level: bool = False
    ) -> Prediction:
        """Predict at inputs returned by `scaled`; see `predict`."""
        with deferred_checks():
            arrays = self._marginals(x, level=level)
        if not np.isfinite(arrays).all():
            arrays = self._marginals(x, level=level)
        return Prediction(*arrays)

    def _marginals(self, x: Tensor, *, level: bool) -> Floats:
        """Return mean, function variance and noise variance in the target's unit, (3, n)."""
        with torch.no_grad():
            norms = self.diagonal.uses_norms
            read = self.basis.reader(self.posterior, norms=norms, rows=len(x))
            usual = min(CHUNK, max(MIN_ROWS, ENTRIES // self.basis.rank))
            rows = rows_at_once(usual, CHUNK_ARRAYS * self.architecture.widest, x.device)
            chunks = [read(chunk) for chunk in x.split(rows)]
            marginals = Marginals(*map(torch.cat, zip(*chunks, strict=True)))
            mean = self.y_mean + self.y_sd * (self.mean_constant.double() + marginals.mean)
            variance = marginals.variance
            if norms:
                variance = variance + self.diagonal(marginals).double()
            noise = torch.zeros_like(variance) if level else self.noise().double()
            scale = self.y_sd.square()
            in_units = mean, variance * scale, noise.expand_as(variance) * scale
            arrays: Floats = torch.stack(in_units).cpu().numpy()
        return arrays

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield phi(x) in the target's unit, float64, in chunks (c, r) on the device."""
        for chunk in self.scaled(x).split(CHUNK):
            with torch.no_grad():
                phi = self.basis(self.seen(chunk)).phi.double() * self.y_sd
            yield phi

    def added_variance(self, x: Floats) -> Floats:
        """Return the part of the function variance at x that the diagonal adds, (n,)."""
        if not self.diagonal.uses_norms:
            return np.zeros(len(x))
        with torch.no_grad():
            chunks = [self.diagonal(self.basis(chunk)) for chunk in self.scaled(x).split(CHUNK)]
            variance: Floats = (torch.cat(chunks).double() * self.y_sd.square()).cpu().numpy()
        return variance

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return the function variance for the weight covariance L L'; see `Model`."""
        chunks = [(phi @ L).square().sum(1).cpu() for phi in self.feature_chunks(x)]
        variance: Floats = torch.cat(chunks).numpy() + self.added_variance(x)
        return variance * float(self.widening) ** 2
