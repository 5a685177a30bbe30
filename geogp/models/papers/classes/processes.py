"""Gaussian processes of classes: the class is a draw from the softmax of k functions.

Each class j has a function f_j(x) = c_j + <w_j, phi(x)>. The basis phi is common to all classes,
and the weights w_j are independent. The variational posterior and the bound are from Lee et al.,
"Scale mixtures of neural network Gaussian processes" (Scale), appendices C and D.
"""

from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from geogp.distributions.class_prediction import ClassPrediction
from geogp.errors import DataError, RequestError
from geogp.models.fitting.steps import Batch, ByInputs
from geogp.models.numerics.devices import CHUNK
from geogp.models.numerics.threads import seeded
from geogp.models.options import Weights
from geogp.models.papers.scale_mixtures.processes import SCALE_PRIOR, scale_divergence
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import Features
from geogp.models.process.lowrank import Floats, LowRankProcess
from geogp.models.process.noise import Noise, ValidationNoise
from geogp.models.process.objectives import BatchTerms
from geogp.models.process.posteriors import Moments, Posterior
from geogp.models.process.rows import Rows

TRAINING_DRAWS = 16
"""Number T of draws of the logits in a step of training."""

HEAD_RATE = 15.0
"""Learning rate of the posterior and the kernel, relative to the rate of a network."""

SCALE_RATE = 60.0
"""Learning rate of the scale of the functions, relative to the rate of a network; logits are large,
so the scale is far from its start value.
"""

LEAST_SHAPE = 1.05
"""Lower limit of a' in q(s²) = InvGamma(a', b'), so that s² has a mean."""

LOGIT_NOISE = 0.1
"""Noise variance of the logits in a Bayesian last layer (Rich C.3)."""


def logit_noise(dtype: torch.dtype, _start: float) -> Noise:
    """Return the noise of class models, with the variance `LOGIT_NOISE`; it is not learned."""
    return ValidationNoise(dtype, LOGIT_NOISE)


class ClassPosterior(Posterior):
    """Independent posteriors over the weights of k classes; `parts` are these posteriors."""

    def __init__(self, posterior: Posterior, classes: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(deepcopy(posterior) for _ in range(classes))

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return the means (k, r) and the factors (k, r, ·) of the covariances."""
        means, factors = zip(*(posterior.weights() for posterior in self.each()), strict=True)
        return torch.stack(means), torch.stack(factors)

    def moments(self, phi: Tensor) -> Moments:
        """Return mean and variance of <w_j, phi>, each (b, k)."""
        means, variances = zip(*(posterior.moments(phi) for posterior in self.each()), strict=True)
        return Moments(torch.stack(means, 1), torch.stack(variances, 1))

    def kl(self) -> Tensor:
        """Return the sum over the classes of the divergences from the prior, a scalar."""
        return torch.stack([posterior.kl() for posterior in self.each()]).sum()

    def each(self) -> list[Posterior]:
        """Return the posteriors of the classes, in order."""
        return cast("list[Posterior]", list(self.parts))


class ClassProcess(LowRankProcess):
    """Interface of models of classes: f_j = c_j + <w_j, phi>, p(y = j | x) = softmax_j(f(x)).

    Targets are the numbers of classes, from 0 to k - 1, as floats. c_j starts at the logarithm of
    the share of class j among the training rows, with one more row in each class.
    """

    has_level = False

    posterior: ClassPosterior

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        k = architecture.classes
        if k < 2:
            raise RequestError(f"{name} needs 2 classes or more, found {k}.")
        posterior = ClassPosterior(parts["posterior"], k)
        super().__init__(name, architecture, **{**parts, "posterior": posterior})
        self.mean_constant.requires_grad = False
        self.constants = nn.Parameter(torch.zeros(k, dtype=architecture.torch_dtype))

    def take_target(self, y: Floats) -> None:
        """Set the constants c_j; raise DataError if a target is not the number of a class."""
        shares = torch.as_tensor(np.bincount(self._codes(y), minlength=len(self.constants)) + 1.0)
        with torch.no_grad():
            self.constants.copy_((shares / shares.sum()).log())

    def standardised(self, y: Floats) -> Tensor:
        """Return targets (n,) unchanged; raise DataError if one is not the number of a class."""
        return torch.as_tensor(self._codes(y)).to(self.device, self.architecture.torch_dtype)

    def terms(self, x: Tensor) -> BatchTerms:
        """Return the terms of the objectives at scaled inputs (b, d).

        Mean and function variance are (b, k); the variance includes that of the diagonal.
        """
        features: Features = self.basis(x)
        moments, kl = self.posterior.moments_and_kl(features.phi)
        return BatchTerms(
            mean=self.constants + moments.mean,
            function_variance=moments.variance + self.diagonal(features)[:, None],
            residual=features.residual,
            feature_norm=features.norm,
            noise_var=self.noise(),
            kl=kl,
        )

    def steps(self, shape: tuple[int, int, int]) -> Tensor:
        """Draw deviations of the logits, in units of their sds, of a shape (t, b, k)."""
        return torch.randn(shape, device=self.device)

    @property
    def df(self) -> float:
        """Degrees of freedom of the logits; infinite for normal logits."""
        return float("inf")

    def predict(  # type: ignore[override]
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> ClassPrediction:
        """Predict classes at inputs of shape (n, d); raises the errors of `scaled`."""
        return self.predict_scaled(self.scaled(x))

    def predict_scaled(  # type: ignore[override]
        self, x: Tensor, counts: Tensor | None = None, *, level: bool = False
    ) -> ClassPrediction:
        """Predict classes at inputs returned by `scaled`."""
        with torch.no_grad():
            terms = [self.terms(chunk) for chunk in x.split(CHUNK)]
        mean = torch.cat([term.mean.double() for term in terms]).cpu().numpy()
        variance = torch.cat([term.function_variance.double() for term in terms]).cpu().numpy()
        return ClassPrediction(mean[None], variance[None], np.array([self.df]))

    def _codes(self, y: Floats) -> "np.ndarray[Any, np.dtype[np.int64]]":
        codes, k = y.astype(np.int64), len(self.constants)
        if (codes != y).any() or codes.min() < 0 or codes.max() >= k:
            raise DataError(
                f"expected numbers of classes, whole numbers from 0 to {k - 1}, found values from "
                f"{y.min():g} to {y.max():g}."
            )
        return codes


class StudentClassProcess(ClassProcess):
    """A process of classes with a random scale s²; the logits are multivariate t (Scale D).

    q(w, s²) = Π_j N(w_j; s0 m_j, s² L_j L_j') InvGamma(s²; a', b'), where s0² = b'/a'. The prior is
    w_j ~ N(0, s² I), s² ~ InvGamma(2, 2). One scale is common to all classes. In units of s0,
    m_j stays of order 1 although logits are large. a' and b' are learned, because a softmax has no
    optimal a' in closed form. The divergence from the prior is Σ_j KL(N(m_j, L_j L_j') || N(0, I))
    plus `scale_divergence`, because E[1/s²] s0² = 1.
    """

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        dtype = architecture.torch_dtype
        self.log_shape = nn.Parameter(torch.tensor(SCALE_PRIOR.a - LEAST_SHAPE, dtype=dtype).log())
        self.log_scale = nn.Parameter(torch.zeros((), dtype=dtype))

    def scale_parameters(self) -> tuple[Tensor, Tensor]:
        """Return a' and b' = a' s0², with a' and s0² learned, scalars, float64."""
        a = LEAST_SHAPE + self.log_shape.double().exp()
        return a, a * self.log_scale.double().exp()

    @property
    def df(self) -> float:
        """Degrees of freedom of the logits, 2 a'."""
        return 2 * float(self.scale_parameters()[0].detach())

    def terms(self, x: Tensor) -> BatchTerms:
        """Return the terms of the objectives; variances are the squared scales of the logits."""
        usual = super().terms(x)
        a, b = self.scale_parameters()
        prior = a.new_tensor([SCALE_PRIOR.a, SCALE_PRIOR.b])
        kl = usual.kl.double() + scale_divergence(a, b, prior)
        scale = (b / a).to(usual.mean.dtype)
        return replace(
            usual,
            mean=self.constants + scale.sqrt() * (usual.mean - self.constants),
            function_variance=scale * usual.function_variance,
            kl=kl.to(usual.mean.dtype),
        )

    def steps(self, shape: tuple[int, int, int]) -> Tensor:
        """Draw z t with t² = a' / g, g ~ Gamma(a', 1), common to the classes of a row."""
        a = self.scale_parameters()[0]
        # `torch.distributions.Gamma` would wait for the device to check a'.
        g = torch._standard_gamma(a.expand(shape[:2]))  # noqa: SLF001
        t = (a / g).sqrt()[..., None]
        return torch.randn(shape, dtype=torch.float64, device=self.device) * t


class DrawnBatch(ByInputs[ClassProcess]):
    """A fit on a Monte Carlo estimate of the bound of a batch of rows (Scale C, D).

    -1 / (T b) Σ_t Σ_i log softmax_{y_i}(f_i^(t)) + KL / n, with T = `TRAINING_DRAWS` draws f^(t) of
    the logits from q, whose gradients go through the draws. The row numbers of the step seed the
    draws, so a fit that continues from a checkpoint repeats them.
    """

    def __init__(self, process: ClassProcess) -> None:
        super().__init__(process, combines=False)

    def rates(self) -> dict[str, float]:
        """Return learning rates by parameter name, relative to that of a network."""
        names = [name for name, _ in self.process.named_parameters() if ".backbone." not in name]
        scales = {"basis.kernel.log_readout", "basis.log_variance", "log_scale"}
        return {name: SCALE_RATE if name in scales else HEAD_RATE for name in names}

    def update_closed_forms(self, held_out: Rows) -> None:
        """Do nothing, because the gradient trains every part."""

    def step(self, batch: Batch, weights: Weights) -> Tensor:
        """Add the gradient of a batch's loss per datum to the parameters; return the loss."""
        with seeded(batch.seed, self.process.device):
            return super().step(batch, weights)

    def backward(self, rows: Rows, n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss to the parameters; return the loss."""
        terms = self.process.terms(rows.x)
        b, k = terms.mean.shape
        draws = self.process.steps((TRAINING_DRAWS, b, k))
        loss = drawn_nll(terms, rows.y, draws) + terms.kl / n
        loss.backward()
        return loss.detach().double()


def drawn_nll(terms: BatchTerms, y: Tensor, steps: Tensor) -> Tensor:
    """Return the mean over draws and rows of -log softmax_y(f), a scalar.

    The logits are f = mean + sqrt(variance) times `steps` (t, b, k).
    """
    # The square root has no derivative at 0.
    sd = terms.function_variance.clamp(min=torch.finfo(terms.mean.dtype).tiny).sqrt()
    logits = terms.mean + sd * steps.to(terms.mean)
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), y.long().repeat(len(steps)), reduction="mean"
    )


def softmax_cross_entropy(terms: BatchTerms, y: Tensor, _n: int, _weights: Weights) -> Tensor:
    """Return the mean of -log softmax_y(mean) over the rows of the batch, a scalar."""
    return nn.functional.cross_entropy(terms.mean, y.long())
