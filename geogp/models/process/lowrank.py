"""The class of all models: a process with a basis, a posterior and a noise model."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geogp.choices import CLASS, COUNT
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.models.names import find_model
from geogp.models.numerics.arrays import as_inputs
from geogp.models.numerics.devices import CHUNK, CHUNK_ARRAYS, rows_at_once
from geogp.models.numerics.linalg import deferred_checks
from geogp.models.numerics.precision import check_precision
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import Basis, Features
from geogp.models.process.data import Data
from geogp.models.process.diagonals import Diagonal
from geogp.models.process.noise import Noise
from geogp.models.process.objectives import BatchTerms, Repeats
from geogp.models.process.posteriors import Posterior, WeightedRows, condition
from geogp.models.process.rbf_readers import Marginals

Floats = NDArray[np.float64]

Single = dict[str, Tensor]
"""The level of single tiles given the rows near each: tensors by name; see `LowRankProcess.single`."""

ENTRIES, MIN_ROWS = 2**20, 256
"""Numbers in a chunk of a prediction on a CPU, to fit into the cache; least number of rows."""


class Rows(NamedTuple):
    """Rows for a model: scaled `x` (n, d), standardised `y` (n,), `counts` (n, 2) float64.

    `counts` are the tests and the devices behind each average; a model uses them if the noise
    depends on them. With `repeats`, each entry is an input with several rows, and `y` is the mean
    of these rows. `groups` (n,) are as in `Data`, or None if they are not needed. `total` is the
    number of rows, repeats included; it is stored because a GPU must not be asked for it.
    """

    x: Tensor
    y: Tensor
    counts: Tensor
    repeats: Repeats | None = None
    groups: Tensor | None = None
    total: int | None = None

    @property
    def n(self) -> int:
        """Number of rows, repeats included; if `total` is unknown, the host waits for the sum."""
        if self.total is not None:
            return self.total
        return len(self.y) if self.repeats is None else int(self.repeats.rows.sum())

    def at(self, numbers: Tensor | slice, n: int | None = None) -> "Rows":
        """Return the rows with the given row numbers, which are `n` with repeats, if known."""
        repeats = self.repeats and Repeats(*(part[numbers] for part in self.repeats))
        groups = None if self.groups is None else self.groups[numbers]
        return Rows(self.x[numbers], self.y[numbers], self.counts[numbers], repeats, groups, n)

    def chunks(self) -> Iterator["Rows"]:
        """Yield the rows in order, `CHUNK` at a time; their totals are unknown."""
        for start in range(0, len(self.y), CHUNK):
            yield self.at(slice(start, start + CHUNK))

    def collapsed(self) -> "Rows":
        """Return the distinct inputs, with mean and scatter of the rows at each; see `Repeats`."""
        x, inverse = torch.unique(self.x, dim=0, return_inverse=True)
        count = torch.bincount(inverse).double()
        mean = torch.bincount(inverse, self.y.double()) / count
        square = (self.y.double() - mean[inverse]).square()
        repeats = Repeats(count, torch.bincount(inverse, square) / count)
        dtype = self.y.dtype
        sums = torch.zeros(len(x), 2, dtype=torch.float64, device=x.device)
        counts = sums.index_add(0, inverse, self.counts) / count[:, None]
        repeats = Repeats(*(part.to(dtype) for part in repeats))
        return Rows(x, mean.to(dtype), counts, repeats, total=len(self.y))


NO_NUMBERS = (
    "expected a model whose parameters have values, found a model on the device meta, which "
    "stores only shapes. Build or load the model on cpu or cuda."
)


class LowRankProcess(nn.Module):
    """y = f(x) + noise with f(x) = m0 + <w, phi(x)>; the kernel is k(x, x') = <phi(x), phi(x')>.

    The model maps the inputs `x_low` and `x_high` to -1 and 1, and standardises targets by the mean
    `y_mean` and standard deviation `y_sd` of the training targets. Predictive standard deviations
    are multiplied by `widening`. `predict`, `features` and `kernel` take unscaled inputs and return
    values in the unit of the target.

    `name` is the row of the catalogue, and `step` is the training step of this row (see
    `fitting/steps.py`). `diagonal` adds variance at single points. `holds_rows` says whether the
    model stores its training rows, because predictions need them. `has_level` says whether the
    level, around which measurements scatter, has a closed-form posterior.
    """

    holds_rows: ClassVar[bool] = False
    has_level: ClassVar[bool] = True

    step: Any
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

    def _load_from_state_dict(self, *given: Any) -> None:
        super()._load_from_state_dict(*given)
        above = self.x_high - self.x_low, self.y_sd, self.widening
        if not all(bool((value > 0).all()) for value in above):
            raise ValueError("expected x_low below x_high, and y_sd and widening above 0")

    @property
    def spread_is_noise(self) -> bool:
        """Whether the function variance also contains noise; see `ModelName`."""
        return find_model(self.name).spread_is_noise

    @property
    def can_solve_mean(self) -> bool:
        """Whether the mean of the weights is learned, so that a closed form could replace it."""
        return self.has_level and self.posterior.is_learned

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
        found: Features = self.basis(x)
        moments, kl = self.posterior.moments_and_kl(found.phi)
        return BatchTerms(
            mean=self.mean_constant + moments.mean,
            function_variance=moments.variance,
            residual=found.residual,
            feature_norm=found.norm,
            noise_var=self.noise(),
            kl=kl,
        )

    def keep_rows(self, rows: Rows, seed: int) -> Rows:
        """Store the data that prediction needs; return the rows in the order of the training steps.

        By default nothing is stored. `seed` fixes random choices.
        """
        return rows

    def begin(self, seed: int) -> None:
        """Find start values from the stored rows before the first step; by default, do nothing."""

    def coefficients(self) -> tuple[Floats, Floats]:
        """Return means and sds of the covariates' coefficients; empty by default."""
        return np.zeros(0), np.zeros(0)

    def rates(self) -> dict[str, float]:
        """Return learning rates by parameter name, relative to the usual rate; empty by default."""
        return {}

    def finish(self, validation: Rows) -> None:
        """Learn from the validation rows after the last step; by default, do nothing."""

    def widen(self, factor: float) -> None:
        """Multiply predictive standard deviations by `factor`."""
        self.widening.fill_(factor)

    def update_closed_forms(self, rows: Rows, validation: Rows) -> None:
        """Update the parts that learn from training or validation rows without a gradient."""
        with torch.no_grad():
            self.diagonal.update_closed_forms(self.basis(part) for part in rows.x.split(CHUNK))
            self.posterior.update_closed_forms(self.weighted_rows(rows))
            errors = ((self.terms(part.x).mean - part.y).square() for part in validation.chunks())
            self.noise.update_closed_forms(errors)

    def weighted_rows(self, rows: Rows) -> Iterator[WeightedRows]:
        """Yield features, residuals and variances of rows, in chunks, for `condition`.

        The variance of a row around <w, phi> is noise_var plus `Diagonal.of_rows`. If
        `spread_is_noise`, the function variance is added. For the mean of k rows at one input, the
        variance is divided by k.
        """
        for part in rows.chunks():
            found: Features = self.basis(part.x)
            variance = self.noise().double() + self.diagonal.of_rows(found).double()
            if self.spread_is_noise:
                variance = variance + self.posterior.moments(found.phi).variance.double()
            if part.repeats is not None:
                variance = variance / part.repeats.rows.double()
            yield WeightedRows(found.phi, part.y - self.mean_constant, variance)

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return mean (r,) and factor (r, r) of the weights given rows; see `condition`."""
        return condition(self.weighted_rows(rows), torch.zeros(self.basis.rank, device=self.device))

    def check_has_level(self) -> None:
        """Raise RequestError if the level has no closed-form posterior."""
        if not self.has_level:
            of = {COUNT: "counts", CLASS: "classes"}[find_model(self.name).kind]
            raise RequestError(
                f"{self.name} is a model of {of}: its level has no posterior in closed form. "
                f"Choose a model of averages."
            )

    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Prediction:
        """Predict at inputs of shape (n, d), in chunks, in the target's unit.

        `tests`, `devices`: numbers of tests and devices behind each average; the noise of this
            model ignores them.
        `level`: whether to predict the level around which measurements scatter, which is the
            function without noise.

        The function variance includes the variance of the diagonal. Raises the errors of `scaled`,
        and NumericalError if a predictive variance is not positive.
        """
        return self.predict_scaled(self.scaled(x), level=level).widened(float(self.widening))

    def single(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
    ) -> Single:
        """Return what a map and the joint level of its tiles both need, (n,) tensors by name.

        Nothing for models whose predictions of single tiles are fast, and if a tile lies outside
        the times of the rows. `predict` and `joint` of other models take the result as `single`.
        If `tests` is given, it also has what `predict` needs for these `tests` and `devices`.
        """
        return {}

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
            parts = [read(part) for part in x.split(rows)]
            found = Marginals(*map(torch.cat, zip(*parts, strict=True)))
            mean = self.y_mean + self.y_sd * (self.mean_constant.double() + found.mean)
            variance = found.variance
            if norms:
                variance = variance + self.diagonal(found).double()
            noise = torch.zeros_like(variance) if level else self.noise().double()
            scale = self.y_sd.square()
            in_units = mean, variance * scale, noise.expand_as(variance) * scale
            arrays: Floats = torch.stack(in_units).cpu().numpy()
        return arrays

    def features(self, x: Floats) -> Floats:
        """Return phi(x), (n, r), in the target's unit, so that k = phi phi'."""
        return torch.cat(list(self.feature_chunks(x))).cpu().numpy()

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield phi(x) in the target's unit, float64, in chunks (c, r) on the device."""
        for part in self.scaled(x).split(CHUNK):
            with torch.no_grad():
                phi = self.basis(self.seen(part)).phi.double() * self.y_sd
            yield phi

    def added_variance(self, x: Floats) -> Floats:
        """Return the part of the function variance at x that the diagonal adds, (n,)."""
        if not self.diagonal.uses_norms:
            return np.zeros(len(x))
        with torch.no_grad():
            parts = [self.diagonal(self.basis(part)) for part in self.scaled(x).split(CHUNK)]
            found: Floats = (torch.cat(parts).double() * self.y_sd.square()).cpu().numpy()
        return found

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return the function variance of a prediction for the weight covariance L L', (n,).

        L (r, r), float64, belongs to the weights of the features in `feature_chunks`.
        """
        parts = [(phi @ L).square().sum(1).cpu() for phi in self.feature_chunks(x)]
        found: Floats = torch.cat(parts).numpy() + self.added_variance(x)
        return found * float(self.widening) ** 2

    def kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance <phi(x), phi(x2)>, (n, n2), in the target's squared unit."""
        second = torch.cat(list(self.feature_chunks(x2)))
        return torch.cat([phi @ second.T for phi in self.feature_chunks(x)]).cpu().numpy()
