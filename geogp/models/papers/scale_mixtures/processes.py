"""Processes with a random overall scale: Student-t processes and processes with a Burr scale.

"The Scale paper" is Lee et al., "Scale mixtures of neural network Gaussian processes". Theorem 3.1
and lemma B.1 of this paper are about Student-t processes.

Let s² ~ InvGamma(a, b) and y ~ N(0, s² A) with A = Phi Phi' + t² I, so function and noise share the
scale. Then y is multivariate t with 2a degrees of freedom and scale matrix (b / a) A. Whatever the
prior of s² (for example the prior in `burr.py`), all results need only n, e'A^(-1)e and log|A|,
which follow from sums over rows.

A random scale helps if there are few rows and the prior scale is far from the true scale
(`benchmarks/kernels/student.py`). A Gaussian process with a learned scale predicts equally well. A
single bad row harms both equally.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from geogp.distributions.burr import BURR_PRIOR, Burr, BurrScale
from geogp.distributions.heavy_shapes import StudentT
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.models.fitting.steps import PerBatch
from geogp.models.options import Weights
from geogp.models.papers.mixed_nystrom.nystrom import AnchorEvidence, KernelProcess
from geogp.models.process.architecture import Architecture
from geogp.models.process.lowrank import Floats, LowRankProcess
from geogp.models.process.objectives import BatchTerms, Statistics, quadratic_form
from geogp.models.process.posteriors import VariationalPosterior
from geogp.models.process.rows import Rows


@dataclass(frozen=True)
class InverseGamma:
    """Inverse-gamma distribution of the scale s², with density b^a / Γ(a) s^(-2a-2) exp(-b / s²).

    Raises RequestError if a parameter is not positive and finite.
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        if not (0 < self.a < math.inf and 0 < self.b < math.inf):
            raise RequestError(f"expected a and b above 0, found {self.a} and {self.b}.")

    @property
    def mean(self) -> float:
        """Mean b / (a - 1) of s²; raises RequestError if `a` is 1 or less."""
        if self.a <= 1:
            raise RequestError(
                f"expected a above 1, so that the scale has a mean, found {self.a:g}; fit the "
                f"process to rows first, or choose a more informative prior."
            )
        return self.b / (self.a - 1)

    @property
    def shape(self) -> StudentT:
        """Shape of the distribution of a predicted value: Student-t with 2a degrees of freedom."""
        return StudentT(2 * self.a)

    def log_evidence(self, distance: Tensor, log_determinant: Tensor, n: int) -> Tensor:
        """Return log t_2a(y; 0, (b / a) A) from e'A^(-1)e and log|A|, a scalar (lemma B.1).

        The result is log Γ(a + n/2) - log Γ(a) - n/2 log(2π b) - ½ log|A|
        - (a + n/2) log(1 + e'A^(-1)e / (2b)).
        """
        half = self.a + n / 2
        constant = math.lgamma(half) - math.lgamma(self.a) - n / 2 * math.log(2 * math.pi * self.b)
        return constant - log_determinant / 2 - half * torch.log1p(distance / (2 * self.b))


SCALE_PRIOR = InverseGamma(2.0, 2.0)
"""Prior with 4 degrees of freedom, and a scale of about 1 for a standardised target. geogp fixes
this prior; the Scale paper searches a grid.
"""


def burr_log_evidence(burr: Burr, distance: Tensor, log_determinant: Tensor, n: int) -> Tensor:
    """Return the log density of all rows from e'A^(-1)e and log|A|, a scalar.

    The result is -½ (n log 2π + log|A|) + log ∫ p(u) exp(-n/2 u - e'A^(-1)e / 2 e^(-u)) du. The
    integral uses the nodes of `BurrScale`. Derivatives treat the nodes as constants, so the
    derivative by e'A^(-1)e is the exact -½ E[1/s² | y]. Raises the errors of `BurrScale`.
    """
    u, step = BurrScale(burr, n, float(distance.detach())).nodes
    log_prior, node = (
        torch.as_tensor(values, dtype=distance.dtype, device=distance.device)
        for values in (burr.log_density(u), u)
    )
    terms = log_prior - n / 2 * node - distance / 2 * torch.exp(-node)
    integral = math.log(step) + torch.logsumexp(terms, 0)
    return integral - (log_determinant + n * math.log(2 * math.pi)) / 2


def student_log_marginal_likelihood(sums: Statistics, noise_var: Tensor) -> Tensor:
    """Return the log density of all rows under `SCALE_PRIOR`; raise as `quadratic_form` does."""
    return SCALE_PRIOR.log_evidence(*quadratic_form(sums, noise_var), sums.n)


def burr_log_marginal_likelihood(sums: Statistics, noise_var: Tensor) -> Tensor:
    """Return the log density of all rows under `BURR_PRIOR`, from sums over the rows.

    Raises NumericalError as `quadratic_form` does, or if the distribution of the scale is too wide.
    """
    return burr_log_evidence(BURR_PRIOR, *quadratic_form(sums, noise_var), sums.n)


class RandomScale(LowRankProcess, ABC):
    """A low-rank process with a random scale s²; variances inside the model are in units of s²."""

    @property
    @abstractmethod
    def scale_posterior(self) -> InverseGamma | BurrScale:
        """The distribution of s² given the training rows, or the prior without rows."""

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return mean and factor of the weights; the covariance includes the mean of s²."""
        m, L = super().conditioned(rows)
        return m, L * math.sqrt(self.scale_posterior.mean)

    def predict_scaled(
        self, x: Tensor, counts: Tensor | None = None, *, level: bool = False
    ) -> Prediction:
        """Predict with variances times E[s²]; predictive distributions mix normals over s².

        Raises RequestError if the scale has no mean, because then predictions have no variance.
        """
        usual = super().predict_scaled(x, counts, level=level)
        scale = self.scale_posterior
        return Prediction(
            usual.mean,
            scale.mean * usual.function_variance,
            scale.mean * usual.noise_variance,
            scale.mean * usual.tile_variance,
            scale.shape,
        )


class ScaleMixture(RandomScale, KernelProcess):
    """A low-rank process with a random scale s²; given rows, s² depends on n and e'A^(-1)e.

    `scale_terms` contains four numbers: the two parameters of the prior, then n, then e'A^(-1)e.
    """

    usual_prior: ClassVar[InverseGamma | Burr]
    scale_terms: Tensor

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        terms = torch.tensor([*astuple(self.usual_prior), 0, 0], dtype=torch.float64)
        self.register_buffer("scale_terms", terms)

    def set_prior(self, prior: InverseGamma | Burr) -> None:
        """Replace the prior of the scale, for a known kernel.

        Raises RequestError if the new prior is not of the same kind as the default prior.
        """
        kind = type(self.usual_prior)
        if not isinstance(prior, kind):
            raise RequestError(
                f"expected a prior {kind.__name__} of the scale of {self.name}, found {prior}."
            )
        self.scale_terms[:2] = torch.tensor(astuple(prior), dtype=torch.float64)

    def distance(self, rows: Rows) -> Tensor:
        """Return e'A^(-1)e of the rows that the weights are conditioned on, a scalar.

        It is the minimum over w of ||e - Phi w||² / t² + ||w||², which the posterior mean attains.
        """
        m = self.posterior.m
        distance = m.square().sum()
        for chunk, weighted in zip(rows.chunks(), self.weighted_rows(rows), strict=True):
            left = weighted.residual.double() - weighted.phi.double() @ m
            distance += (left.square() / weighted.variance).sum()
            if chunk.repeats is not None:
                # `variance` is that of the mean of rows, and `scatter` is a mean over rows.
                distance += (chunk.repeats.scatter.double() / weighted.variance).sum()
        return distance


class ScaleMixtureFit(AnchorEvidence[ScaleMixture]):
    """A fit whose closed forms are the posterior of the weights, then that of the scale."""

    def update_closed_forms(self, held_out: Rows) -> None:
        """Condition on the training rows, and compute n and e'A^(-1)e from the rows."""
        super().update_closed_forms(held_out)
        with torch.no_grad():
            self.process.scale_terms[2] = self.rows.n
            self.process.scale_terms[3] = self.process.distance(self.rows)


class StudentProcess(ScaleMixture):
    """A low-rank process with an inverse-gamma scale; its predictions are Student-t.

    With c = e'A^(-1)e from the training rows, s² given these rows is InvGamma(a + n/2, b + c/2). So
    E[s²] = (b + c/2) / (a + n/2 - 1), and a new value has 2a + n degrees of freedom.
    """

    usual_prior = SCALE_PRIOR

    @property
    def scale_posterior(self) -> InverseGamma:
        """The distribution of s²."""
        a, b, n, distance = self.scale_terms.tolist()
        return InverseGamma(a + n / 2, b + distance / 2)


class BurrProcess(ScaleMixture):
    """A low-rank process with a Burr XII scale (appendix H of the Scale paper); see `BurrScale`.

    The predictions are mixtures of normals over s², computed by importance sampling.
    """

    usual_prior = BURR_PRIOR

    @property
    def scale_posterior(self) -> BurrScale:
        """The distribution of s²."""
        c, d, n, distance = self.scale_terms.tolist()
        return BurrScale(Burr(c, d), n, distance)


def scaled_elbo(terms: BatchTerms, y: Tensor, n: int, _weights: Weights) -> Tensor:
    """Return the negative evidence lower bound with a random scale, for Gaussian rows.

    The formula is from appendix D of the Scale paper:

    mean_b ½ [log 2π t² + E log s² + (E[1/s²] (y - mu)² + ||L' phi||² + residual) / t²] + KL / n.
    """
    assert terms.inverse_scale is not None, "expected a model with a random scale"
    assert terms.log_scale is not None
    spread = terms.inverse_scale * terms.square(y) + terms.function_variance + terms.residual
    constant = terms.noise_var.log() + terms.log_scale + math.log(2 * math.pi)
    return 0.5 * (constant + terms.average(spread) / terms.noise_var) + terms.kl / n


def scale_divergence(a: Tensor, b: Tensor, prior: Tensor) -> Tensor:
    """Return KL(InvGamma(a', b') || InvGamma(a, b)), a scalar, for a prior (a, b), (2,).

    It is a log(b'/b) - log Γ(a') / Γ(a) + (a' - a) ψ(a') + (b - b') a' / b'.
    """
    a0, b0 = prior
    ratio: Tensor = a0 * (b / b0).log() + (b0 - b) * a / b
    gammas: Tensor = torch.lgamma(a0) - torch.lgamma(a) + (a - a0) * torch.digamma(a)
    return ratio + gammas


class VariationalStudentProcess(RandomScale):
    """The Student-t process by mini-batches: q(w, s²) = N(w; m, s² L L') InvGamma(s²; a', b').

    The method is from appendix D of the Scale paper, for Gaussian rows. The noise of the rows
    shares the scale, as in `StudentProcess`. a' has the optimal value a + n/2; b' is learned.
    """

    posterior: VariationalPosterior
    scale_prior: Tensor
    rows_seen: Tensor

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        prior = torch.tensor([SCALE_PRIOR.a, SCALE_PRIOR.b], dtype=torch.float64)
        self.register_buffer("scale_prior", prior)
        self.register_buffer("rows_seen", torch.zeros((), dtype=torch.float64))
        # b' = a' s0² with s0² learned, so the mean of s² hardly depends on the number of rows.
        self.log_scale = nn.Parameter(torch.zeros((), dtype=architecture.torch_dtype))

    def _scale_parameters(self) -> tuple[Tensor, Tensor]:
        """Return a' and b', scalars, float64."""
        a = self.scale_prior[0] + self.rows_seen / 2
        return a, a * self.log_scale.double().exp()

    @property
    def scale_posterior(self) -> InverseGamma:
        """The law InvGamma(a', b')."""
        return InverseGamma(*(float(value.detach()) for value in self._scale_parameters()))

    def added_variance(self, x: Floats) -> Floats:
        """Return the variance that the diagonal adds at points, times the mean of s², (n,)."""
        return self.scale_posterior.mean * super().added_variance(x)

    def terms(self, x: Tensor) -> BatchTerms:
        """Return the terms of `scaled_elbo` at scaled inputs (b, d)."""
        usual = super().terms(x)
        a, b = self._scale_parameters()
        dtype = usual.mean.dtype
        return replace(
            usual,
            kl=self._kl(a, b).to(dtype),
            inverse_scale=(a / b).to(dtype),
            log_scale=(b.log() - torch.digamma(a)).to(dtype),
        )

    def _kl(self, a: Tensor, b: Tensor) -> Tensor:
        """Return KL(q(w, s²) || prior) (appendix D, after Soch and Allefeld 2016).

        It is ½ (||L||_F² + E[1/s²] ||m||² - r) - Σ log L_ii plus `scale_divergence`.
        """
        mean_term = (a / b - 1) * self.posterior.m.double().square().sum() / 2
        of_weights: Tensor = self.posterior.kl().double() + mean_term
        return of_weights + scale_divergence(a, b, self.scale_prior)


class VariationalStudentFit(PerBatch[VariationalStudentProcess]):
    """A fit on `scaled_elbo`."""

    def __init__(self, process: VariationalStudentProcess) -> None:
        super().__init__(process, scaled_elbo)

    def start(self, rows: Rows, seed: int, *, resumed: bool = False) -> None:
        """Take the rows, and store their number, because a' depends on it."""
        self.process.rows_seen.fill_(rows.n)
        super().start(rows, seed, resumed=resumed)
