"""Posteriors over the weights w of f(x) = m0 + <w, phi(x)>, with prior w ~ N(0, I)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.numerics.products import squared_norms


class Moments(NamedTuple):
    """Mean <m, phi> and variance ||L' phi||² of the weighted basis, each (b,)."""

    mean: Tensor
    variance: Tensor


class WeightedRows(NamedTuple):
    """Features (c, r) of rows, targets minus mean constant (c,), variances around <w, phi> (c,)."""

    phi: Tensor
    residual: Tensor
    variance: Tensor


class Information(NamedTuple):
    """Phi' V^(-1) Phi (r, r) and Phi' V^(-1) (y - m0) (r,), which are sums over rows."""

    precision: Tensor
    pull: Tensor


class Posterior(nn.Module, ABC):
    """Interface of a posterior.

    `in_closed_form` is true if the covariance equals that of p(w | y) given features and noise.
    `is_learned` is true if gradients train mean and covariance.
    """

    in_closed_form: ClassVar[bool] = False
    is_learned: ClassVar[bool] = False

    @abstractmethod
    def moments(self, phi: Tensor) -> Moments:
        """Return mean and variance of <w, phi> for features (b, r)."""

    @abstractmethod
    def weights(self) -> tuple[Tensor, Tensor]:
        """Return the mean m (r,) of w and a factor L (r, k) of its covariance L L'."""

    def kl(self) -> Tensor:
        """Return KL(q(w) || N(0, I)), a scalar; 0 for a point estimate."""
        return self.weights()[0].new_zeros(())

    def moments_and_kl(self, phi: Tensor) -> tuple[Moments, Tensor]:
        """Return the results of `moments` for features (b, r) and of `kl`."""
        return self.moments(phi), self.kl()

    def update_closed_forms(self, rows: Iterable[WeightedRows]) -> None:
        """Learn from chunks of training rows; by default, do nothing."""


class VariationalPosterior(Posterior):
    """q(w) = N(m, L L') with L lower triangular and diag L positive (DBK appendix B).

    m starts at 0, log diag L at -½ log r, and the rest of L at standard normal draws divided by r.
    """

    is_learned = True

    def __init__(self, r: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.zeros(r, dtype=dtype))
        self.log_diagonal = nn.Parameter(torch.full((r,), -0.5 * math.log(r), dtype=dtype))
        self.lower = nn.Parameter(torch.randn(r, r, generator=generator, dtype=dtype).tril(-1) / r)

    def cholesky(self) -> Tensor:
        """Return L, shape (r, r)."""
        return self.lower.tril(-1) + torch.diag(self.log_diagonal.exp())

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return m and L."""
        return self.m, self.cholesky()

    def take_covariance(self, L: Tensor) -> None:
        """Set the covariance to L L', for any factor L (r, r) of full rank."""
        with torch.no_grad():
            R = torch.linalg.qr(L.double().T, mode="r").R
            lower = R.T * torch.where(R.diagonal() < 0, -1.0, 1.0)
            self.lower.copy_(lower.tril(-1))
            self.log_diagonal.copy_(lower.diagonal().log())

    def take_last(self, m: Tensor, L: Tensor) -> None:
        """Set the last c weights to N(m, L L'), independent of others; L (c, c) has full rank."""
        c, factor = len(m), self.cholesky().detach().double()
        factor[-c:, :-c] = 0.0
        factor[-c:, -c:] = L
        self.take_covariance(factor)
        with torch.no_grad():
            self.m[-c:] = m.to(self.m.dtype)

    def moments(self, phi: Tensor) -> Moments:
        """Return mean and variance of <w, phi>."""
        return self._moments(phi, self.cholesky())

    def kl(self, L: Tensor | None = None) -> Tensor:
        """Return KL(N(m, LL') || N(0, I)) = ½ (||L||_F² + ||m||² - r - 2 Σ log L_ii), a scalar.

        `L` is the factor, if it is known.
        """
        L = self.cholesky() if L is None else L
        return _Divergence.apply(self.m, L, self.log_diagonal)  # type: ignore[no-untyped-call, no-any-return]

    def moments_and_kl(self, phi: Tensor) -> tuple[Moments, Tensor]:
        """Return the moments for features (b, r) and the KL, both from one L."""
        L = self.cholesky()
        return self._moments(phi, L), self.kl(L)

    def _moments(self, phi: Tensor, L: Tensor) -> Moments:
        return Moments(phi @ self.m, squared_norms(phi @ L))


class _Divergence(torch.autograd.Function):
    """The KL of `VariationalPosterior`, by m, L and log diag L; its gradients are m, L and -1."""

    @staticmethod
    def forward(ctx: Any, m: Tensor, L: Tensor, log_diagonal: Tensor) -> Tensor:
        ctx.save_for_backward(m, L)
        squares = torch.cat([squared_norms(L), m.square(), -2 * log_diagonal]).sum()
        return 0.5 * (squares - len(m))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, L = ctx.saved_tensors
        return gradient * m, gradient * L, -gradient.expand(len(m))


class PointPosterior(Posterior):
    """A point estimate m of the weights: the function variance is 0, the KL is 0. m starts at 0."""

    def __init__(self, r: int, _generator: torch.Generator | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.zeros(r, dtype=dtype))

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return m and a factor (r, 0), because the covariance is 0."""
        return self.m, self.m.new_zeros(len(self.m), 0)

    def moments(self, phi: Tensor) -> Moments:
        """Return <m, phi> and 0 for features (b, r)."""
        mean = phi @ self.m
        return Moments(mean, torch.zeros_like(mean))


class ClosedFormPosterior(Posterior):
    """The closed form p(w | y) = N(m, L L'), float64; before `update_closed_forms`, the prior."""

    in_closed_form = True
    m: Tensor
    L: Tensor

    def __init__(self, r: int, *_: object) -> None:
        super().__init__()
        self.register_buffer("m", torch.zeros(r, dtype=torch.float64))
        self.register_buffer("L", torch.eye(r, dtype=torch.float64))

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return m and L, float64."""
        return self.m, self.L

    def moments(self, phi: Tensor) -> Moments:
        """Return mean and variance of <w, phi>, float64."""
        exact = phi.double()
        return Moments(exact @ self.m, squared_norms(exact @ self.L))

    def kl(self) -> Tensor:
        """Return KL(N(m, LL') || N(0, I)), a scalar, as for the variational posterior."""
        squares = self.L.square().sum() + self.m.square().sum()
        spread: Tensor = torch.linalg.slogdet(self.L).logabsdet
        return 0.5 * (squares - len(self.m)) - spread

    def update_closed_forms(self, rows: Iterable[WeightedRows]) -> None:
        """Condition the weights on the training rows."""
        m, L = condition(rows, self.m)
        self.m.copy_(m)
        self.L.copy_(L)


def condition(rows: Iterable[WeightedRows], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and factor of p(w | y) = N(m, L L') for w ~ N(0, I), from chunks of rows.

    With the variances of the rows in the diagonal matrix V, P = I + Phi' V^(-1) Phi,
    m = P^(-1) Phi' V^(-1) (y - m0) and L L' = P^(-1). If V = noise_var D, then L L' is
    noise_var Λ^(-1) with Λ = Phi' D^(-1) Phi + noise_var I (DBK-1 equation 12).

    `like` is a tensor (r,) on the device to compute on. m is (r,), L (r, r) upper triangular, both
    float64.
    """
    return posterior_of(information(rows, like))


def information(rows: Iterable[WeightedRows], like: Tensor) -> Information:
    """Return the information about the weights in the rows, from chunks; see `condition`."""
    r = len(like)
    P = torch.zeros(r, r, dtype=torch.float64, device=like.device)
    b = torch.zeros(r, dtype=torch.float64, device=like.device)
    for phi, residual, variance in rows:
        weighted = phi.double() / variance.double()[:, None]
        P += weighted.T @ phi.double()
        b += weighted.T @ residual.double()
    return Information(P, b)


def posterior_of(known: Information) -> tuple[Tensor, Tensor]:
    """Return mean and factor of p(w | y); see `condition`."""
    identity = torch.eye(len(known.pull), dtype=torch.float64, device=known.pull.device)
    C, _ = jittered_cholesky(known.precision + identity, 0.0)
    L = torch.linalg.solve_triangular(C, identity, upper=False).T
    return L @ (L.T @ known.pull), L
