"""Student-t measurement noise; with this noise, one bad row hardly changes the function.

y = f(x) + e with e = sqrt(σ²) T and T Student-t with df degrees of freedom. Given g ~ Gamma(df/2,
rate df/2), e is normal with variance σ²/g. Each row has its own g; a common g for all rows would
not reduce the influence of a bad row.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from geogp.distributions.prediction import Prediction
from geogp.distributions.student_sum import NormalPlusStudent
from geogp.models.fitting.steps import ByInputs
from geogp.models.options import Weights
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.noise import NOISE_FLOOR, NOISE_START, Noise
from geogp.models.process.objectives import BatchTerms, hermite
from geogp.models.process.posteriors import WeightedRows
from geogp.models.process.rows import Rows

if TYPE_CHECKING:
    from geogp.models.process.basis_functions import Features

DF_START = 4.0
"""Start value of the degrees of freedom."""

MIN_DF = 2.05
"""Lower limit of the degrees of freedom; with 2 or less, the noise has no finite variance."""

_STIRLING_FROM = 50.0


class StudentNoise(Noise):
    """Student-t noise; all rows share the squared scale σ² (at least 1e-6) and df (above 2.05)."""

    def __init__(self, dtype: torch.dtype, start: float = NOISE_START) -> None:
        super().__init__()
        squared = max(start * (DF_START - 2) / DF_START - NOISE_FLOOR, NOISE_FLOOR)
        self.log_excess = nn.Parameter(torch.tensor(math.log(squared), dtype=dtype))
        self.log_df = nn.Parameter(torch.tensor(math.log(DF_START - MIN_DF), dtype=dtype))

    @property
    def df(self) -> Tensor:
        """Degrees of freedom, a scalar, float64."""
        return MIN_DF + self.log_df.double().exp()

    @property
    def scale_squared(self) -> Tensor:
        """σ², a scalar, float64."""
        return NOISE_FLOOR + self.log_excess.double().exp()

    def forward(self, phi: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
        """Return the variance σ² df / (df - 2), a scalar, float64."""
        return self.scale_squared * self.df / (self.df - 2)


class StudentGP(LowRankProcess):
    """A low-rank process with Student-t noise; predictions are distributions of f plus noise."""

    noise: StudentNoise

    def predict_scaled(
        self, x: Tensor, counts: Tensor | None = None, *, level: bool = False
    ) -> Prediction:
        """Predict f (the level), or f plus noise, which is a scale mixture of normals."""
        usual = super().predict_scaled(x, counts, level=level)
        if level:
            return usual
        shape = NormalPlusStudent(
            usual.function_variance, usual.noise_variance, float(self.noise.df.detach())
        )
        return replace(usual, shape=shape)

    def weighted_rows(self, rows: Rows) -> Iterator[WeightedRows]:
        """Yield the rows for `condition`.

        The variance of a row is σ² / E[g] plus the variance of the diagonal. Here E[g] = (df + 1) /
        (df + ((y - mu)² + s²) / σ²) is the mean of g in the mean-field posterior given q(f)
        (Tipping and Lawrence 2005). Rows far from the function have little weight.
        """
        df, squared = self.noise.df, self.noise.scale_squared
        for chunk in rows.chunks():
            features: Features = self.basis(chunk.x)
            moments = self.posterior.moments(features.phi)
            added = self.diagonal.of_rows(features).double()
            residual = (chunk.y - self.mean_constant).double()
            away = (residual - moments.mean).square() + moments.variance + added
            variance = squared * (df + away / squared) / (df + 1) + added
            yield WeightedRows(features.phi, residual, variance)


class StudentPerBatch(ByInputs[StudentGP]):
    """A fit on the evidence lower bound of a batch of rows under Student-t noise.

    `missed` (b,) is the variance of f that the objective adds to s² = ||L' phi||².
    """

    same_kernels: ClassVar[bool] = True

    def __init__(self, process: StudentGP, missed: Callable[[BatchTerms], Tensor]) -> None:
        super().__init__(process, combines=False)
        self.missed = missed

    def backward(self, rows: Rows, n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss to the parameters; return the loss."""
        terms, law = self.process.terms(rows.x), self.process.noise
        variance = terms.function_variance + self.missed(terms)
        nll = student_expected_nll(
            rows.y - terms.mean, variance, scale_squared=law.scale_squared, df=law.df
        )
        loss = nll.mean() + terms.kl / n
        loss.backward()
        return loss.detach().double()


def student_expected_nll(
    residual: Tensor, variance: Tensor, *, scale_squared: Tensor, df: Tensor
) -> Tensor:
    """Return E_q[-log t_df(y; f, σ²)] for f ~ N(y - residual, variance), (b,), float64.

    log t_df(e; σ²) = log Γ((df + 1)/2) - log Γ(df/2) - ½ log(df π σ²)
    - (df + 1)/2 log(1 + e²/(df σ²)).

    The model is that of Jylänki, Vanhatalo and Vehtari (2011); Gauss-Hermite quadrature with 20
    nodes computes the integral. Let q be the sd of f divided by the sd of the noise. The error of
    the integral is 1e-8 if q is at most 1, up to 0.04 if q is 5, and up to 0.5 if q is 16.
    `residual` and `variance` (0 or more) are (b,); σ² and df are scalars, float64.
    """
    at, share = hermite(residual.device)
    # The square root has no derivative at 0.
    sd = variance.double().clamp(min=torch.finfo(torch.float64).tiny).sqrt()
    e = residual.double()[:, None] + sd[:, None] * at
    power = torch.log1p(e.square() / (df * scale_squared)) @ share
    constant = log_gamma_step(df / 2) - 0.5 * (df * math.pi * scale_squared).log()
    return (df + 1) / 2 * power - constant


def log_gamma_step(a: Tensor) -> Tensor:
    """Return log Γ(a + ½) - log Γ(a); see `heavy_shapes.log_gamma_step`."""
    large = a.clamp(min=_STIRLING_FROM)
    series = 0.5 * large.log() - 1 / (8 * large) + 1 / (192 * large**3) - 1 / (640 * large**5)
    small = a.clamp(max=_STIRLING_FROM)
    return torch.where(a < _STIRLING_FROM, torch.lgamma(small + 0.5) - torch.lgamma(small), series)
