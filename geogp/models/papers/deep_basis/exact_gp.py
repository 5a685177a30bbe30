"""Exact Gaussian processes, for comparison with low-rank models: `GP` and `DKL` of DBK-1.

y = m0 + f(x) + noise, where f has the kernel k(a, b) = s² exp(-½ Σ_j (g_j(a) - g_j(b))² / l_j²). In
`GP`, g(x) = x; in deep kernel learning (`DKL`), g is a network. Matrices are n by n: a gradient
takes about n³ multiplications and 6 n² numbers of memory. More than 20,000 rows are refused.
"""

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, RequestError
from geogp.models.numerics.arrays import as_inputs
from geogp.models.numerics.devices import WORD
from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.numerics.precision import check_precision
from geogp.models.numerics.threads import seeded
from geogp.models.process.basis_functions import Backbone
from geogp.models.process.data import Data
from geogp.models.process.memory import refuse_above
from geogp.models.process.noise import NOISE_FLOOR, NOISE_START, ConstantNoise
from geogp.models.process.rbf import rbf

Floats = NDArray[np.float64]

MOST_ROWS = 20_000
"""Largest number of training rows; a matrix of so many rows and columns needs 3.2 GB."""

MATRICES = 6
"""Number of n by n matrices in memory at once: kernel, exponents, factor, inverse, gradients."""

CHUNK_ROWS = 1024
"""Rows of one chunk of a prediction."""


@dataclass(frozen=True)
class ExactSettings:
    """Settings of `fit_exact`.

    `steps`: number of steps of Adam, whose learning rates fall to zero by a cosine.
    `kernel_rate`, `network_rate`: learning rates of the kernel, mean and noise, and of the network.
    `likelihood_rows`: number of random rows whose likelihood is maximised, or None for all rows.
        Predictions always use all rows.
    `check_every`: with validation rows, number of steps from one validation to the next.
    `seed`: fixes the choice of the rows.

    Raises RequestError if a number is out of range.
    """

    steps: int = 200
    kernel_rate: float = 0.1
    network_rate: float = 3e-3
    likelihood_rows: int | None = None
    check_every: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (self.steps, self.check_every, self.likelihood_rows or 2)
        rates = (self.kernel_rate, self.network_rate)
        if min(counts) < 1 or self.likelihood_rows == 1 or not all(0 < r < math.inf for r in rates):
            raise RequestError(
                "expected steps and check_every of 1 or more, likelihood_rows of 2 or more, and "
                f"rates above 0; found {self}."
            )


class ExactGP(nn.Module):
    """An exact Gaussian process of inputs (n, d), or of a network's h features of them; float64.

    Inputs are mapped to [-1, 1] and targets standardised by the training rows. Lengthscales start
    at the square root of the dimension, the noise variance at 1e-2. `seed` fixes the network. Fits
    and predictions compute on the device of the parameters.

    Raises RequestError if the noise is not above 1e-6.
    """

    x_low: Tensor
    x_span: Tensor
    y_mean: Tensor
    y_sd: Tensor

    def __init__(
        self, d: int, *, h: int | None = None, noise_start: float = NOISE_START, seed: int = 0
    ) -> None:
        super().__init__()
        if not NOISE_FLOOR < noise_start < math.inf:
            raise RequestError(
                f"expected a starting noise above {NOISE_FLOOR:g}, found {noise_start}."
            )
        with seeded(seed):
            self.backbone = None if h is None else Backbone(d, h).double()
        dimension = d if h is None else h
        start = torch.full((dimension,), 0.5 * math.log(dimension), dtype=torch.float64)
        self.log_lengthscale = nn.Parameter(start)
        self.log_variance = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.mean_constant = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.noise = ConstantNoise(torch.float64, noise_start)
        self.register_buffer("x_low", torch.full((d,), -1.0, dtype=torch.float64))
        self.register_buffer("x_span", torch.full((d,), 2.0, dtype=torch.float64))
        self.register_buffer("y_mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("y_sd", torch.ones((), dtype=torch.float64))
        self._conditioned: tuple[Tensor, ...] | None = None

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        """Move the tensors to another device; those of the training rows follow."""
        moved = super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self._conditioned = self._conditioned and tuple(map(arguments[0], self._conditioned))
        return moved

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.mean_constant.device

    def take_scales(self, train: Data) -> None:
        """Set the range of the inputs, and mean and standard deviation of the target.

        Raises DataError if the target is constant or `train` has another number of columns.
        """
        d = len(self.x_low)
        if train.x.shape[1] != d or train.y.min() == train.y.max():
            raise DataError(
                f"expected {d} columns and a target with several values, found {train.x.shape[1]} "
                f"columns and targets from {train.y.min():g} to {train.y.max():g}."
            )
        low, span = train.x.min(0), np.ptp(train.x, axis=0)
        self.x_low.copy_(torch.as_tensor(low))
        self.x_span.copy_(torch.as_tensor(np.where(span > 0, span, 1.0)))
        self.y_mean.fill_(float(train.y.mean()))
        self.y_sd.fill_(float(train.y.std()))

    def scaled(self, x: Floats) -> Tensor:
        """Return inputs (n, d), scaled; raise DataError if they are not finite or not (n, d)."""
        check_precision(self.y_mean)
        values = torch.as_tensor(as_inputs(x, len(self.x_low))).to(self.device)
        return 2 * (values - self.x_low) / self.x_span - 1

    def standardised(self, y: Floats) -> Tensor:
        """Return standardised targets, (n,)."""
        return (torch.as_tensor(y).to(self.device) - self.y_mean) / self.y_sd

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the prior covariance of scaled inputs (a, d) and (b, d), (a, b)."""
        return rbf(self._places(a), self._places(b), self.log_variance.exp())

    def log_marginal_likelihood(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log N(y; m0, K + noise_var I) for scaled rows (DBK-1 section 2), a scalar.

        Raises RequestError if the rows are too many, and NumericalError if the matrix does not
        factorise.
        """
        check_rows(len(y), self.device)
        K = self.kernel(x, x)
        K = K + self.noise() * torch.eye(len(y), dtype=torch.float64, device=self.device)
        return _LogDensity.apply(K, y - self.mean_constant)  # type: ignore[no-untyped-call, no-any-return]

    def condition(self, train: Data) -> None:
        """Factorise the covariance of the training rows, for `predict`; errors as for a fit."""
        check_rows(len(train.y), self.device)
        with torch.no_grad():
            x = self.scaled(train.x)
            K = self.kernel(x, x)
            K.diagonal().add_(self.noise())
            L, _ = jittered_cholesky(K, 0.0)
            e = self.standardised(train.y) - self.mean_constant
            self._conditioned = x, L, torch.cholesky_solve(e[:, None], L)[:, 0]

    def predict(self, x: Floats) -> Prediction:
        """Predict at inputs (n, d), in chunks, in the target's unit (DBK-1 equation 1).

        Raises DataError if the inputs are not finite or not (n, d), and RequestError if the process
        has no training rows yet.
        """
        if self._conditioned is None:
            raise RequestError("expected a process with training rows; call fit_exact first.")
        scale = self.y_sd.square()
        with torch.no_grad():
            chunks = list(self._chunks(self.scaled(x)))
            mean, variance = (torch.cat(values) for values in zip(*chunks, strict=True))
            noise = self.noise().expand_as(variance)
            in_units = self.y_mean + self.y_sd * mean, variance * scale, noise * scale
            return Prediction(*torch.stack(in_units).cpu().numpy())

    def _chunks(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        assert self._conditioned is not None
        rows, L, alpha = self._conditioned
        for chunk in x.split(CHUNK_ROWS):
            cross = self.kernel(chunk, rows)
            explained = torch.linalg.solve_triangular(L, cross.T, upper=False).square().sum(0)
            variance = (self.log_variance.exp() - explained).clamp(min=0)
            yield self.mean_constant + cross @ alpha, variance

    def _places(self, x: Tensor) -> Tensor:
        places: Tensor = x if self.backbone is None else self.backbone(x)
        return places / self.log_lengthscale.exp()


class _LogDensity(torch.autograd.Function):
    """log N(e; 0, K); its gradient by K is ½ (a a' - K^(-1)) with a = K^(-1) e."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, e: Tensor) -> Tensor:
        L, _ = jittered_cholesky(K, 0.0)
        a = torch.cholesky_solve(e[:, None], L)[:, 0]
        ctx.save_for_backward(L, a)
        return -0.5 * (e @ a + len(e) * math.log(2 * math.pi)) - L.diagonal().log().sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        L, a = ctx.saved_tensors
        half = 0.5 * gradients[0]  # stays on the device, so nothing waits for it
        by_K = torch.cholesky_inverse(L).mul_(-half).addr_(half * a, a)
        return by_K, -gradients[0] * a


@dataclass(frozen=True)
class ExactFit:
    """What `fit_exact` did: the `likelihood` per row before each step, the kept step, `seconds`."""

    likelihood: list[float]
    best_step: int
    seconds: float


def fit_exact(
    model: ExactGP, train: Data, settings: ExactSettings, validation: Data | None = None
) -> ExactFit:
    """Maximise the log marginal likelihood by Adam, and condition the process on the rows.

    With `validation`, the parameters with the best validation log score are kept.

    Raises RequestError if there are more than 20,000 rows or not enough memory, DataError as
    `ExactGP.take_scales`, and NumericalError if the covariance is not finite.
    """
    started = monotonic()
    check_rows(len(train.y), model.device)
    model.take_scales(train)
    random = np.random.default_rng(settings.seed)
    few = min(settings.likelihood_rows or len(train.y), len(train.y))
    chosen = train.at(np.sort(random.permutation(len(train.y))[:few]))
    x, y = model.scaled(chosen.x), model.standardised(chosen.y)
    network = [] if model.backbone is None else list(model.backbone.parameters())
    in_network = {id(value) for value in network}
    kernel = [value for value in model.parameters() if id(value) not in in_network]
    groups = [{"params": kernel, "lr": settings.kernel_rate}]
    if network:
        groups.append({"params": network, "lr": settings.network_rate})
    optimiser = torch.optim.Adam(groups)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
    likelihood, best = [], (math.inf, 0, deepcopy(model.state_dict()))
    for step in range(1, settings.steps + 1):
        optimiser.zero_grad(set_to_none=True)
        loss = -model.log_marginal_likelihood(x, y) / few
        loss.backward()
        optimiser.step()
        decay.step()
        # On a GPU, this waits for the step; the check of the factorisation has waited before.
        likelihood.append(-float(loss.detach()))
        if validation is not None and (step % settings.check_every == 0 or step == settings.steps):
            model.condition(chosen)
            score = float(model.predict(validation.x).log_score(validation.y).mean())
            if score < best[0]:
                best = score, step, deepcopy(model.state_dict())
    if validation is not None:
        model.load_state_dict(best[2])
    model.condition(train)
    kept = best[1] if validation is not None else settings.steps
    return ExactFit(likelihood, kept, monotonic() - started)


def check_rows(n: int, device: torch.device | None = None) -> None:
    """Raise RequestError if n rows are too many for an exact process, or for memory of `device`."""
    if n > MOST_ROWS:
        raise RequestError(
            f"expected at most {MOST_ROWS:,} training rows for an exact Gaussian process, found "
            f"{n:,}. Use a low-rank model, such as sgp, sdkl or dbk-rbf."
        )
    what = f"an exact Gaussian process of {n:,} rows"
    refuse_above(MATRICES * n * n * WORD, what, "Use fewer rows, or a low-rank model.", device)
