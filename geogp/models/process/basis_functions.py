"""Basis functions phi; their kernel is k(x, x') = <phi(x), phi(x')>.

The symbols are those of Zhu, Yuchi and Xie, "Scalable Deep Basis Kernel Gaussian Processes" (DBK).
"""

import logging
import math
from abc import ABC
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from geogp.errors import NumericalError
from geogp.models.numerics.linalg import is_deferred
from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.products import squared_norms
from geogp.models.options import DOUBLE
from geogp.models.process.posteriors import Posterior
from geogp.models.process.rbf import Whitening, rbf_features
from geogp.models.process.rbf_readers import CachedReader, Marginals, Reader, feature_reader

logger = logging.getLogger(__name__)

RESIDUAL_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-2}
"""Negative Nyström residuals up to this share of the prior variance count as 0, by precision."""

FEATURE_JITTER = 1e-6
"""Relative jitter of Kzz for inducing points among learned features."""

COORDINATE_JITTER = 1e-4
"""Relative jitter of Kzz for inducing points among raw coordinates, which are closer together."""

DRIFT_START = 0.3
"""Start value of the prior standard deviation of a covariate's coefficient."""

SPLINES = 16
"""Smallest number of splines of one coordinate in `SplineBasis`, if there are several."""


@dataclass(frozen=True)
class Features:
    """Features of a batch.

    `phi`: values of the basis functions, (b, r).
    `norm`: ||phi(x)||² = k(x, x), the prior variance, (b,).
    `residual`: k~(x, x) - ||phi(x)||², the prior variance that the basis misses, (b,); 0 if the
        basis is exact.
    """

    phi: Tensor
    norm: Tensor
    residual: Tensor

    @classmethod
    def exact(cls, phi: Tensor) -> "Features":
        """Return the features of an exact basis, whose residual is 0, from phi (b, r)."""
        norm = squared_norms(phi)
        return cls(phi, norm, torch.zeros_like(norm))


class Basis(nn.Module, ABC):
    """Interface of a basis: it has `rank` functions, and `forward` returns their `Features`."""

    rank: int

    def covariate_sds(self) -> Tensor:
        """Return the prior sd of each covariate's coefficient, (c,); empty by default."""
        return torch.zeros(0)

    def values(self, x: Tensor) -> Tensor:
        """Return phi at inputs (b, d), (b, r), without norms and residuals."""
        return self(x).phi  # type: ignore[no-any-return]

    def reader(self, posterior: Posterior, *, norms: bool, rows: int) -> Reader:
        """Return a function that computes mean and variance of <w, phi> at inputs.

        If `norms` is true, it also returns the norms and residuals of the features. `rows` is the
        approximate total number of inputs. The function gives no gradients, and is valid until
        posterior or basis change.
        """

        def read(x: Tensor) -> Marginals:
            features: Features = self(x)
            mean, variance = posterior.moments(features.phi)
            return Marginals(mean.double(), variance.double(), features.norm, features.residual)

        return read


class Backbone(nn.Module):
    """Residual network g: R^d -> R^h of DBK, appendix B.

    The network is a linear map to h dimensions, residual blocks, a LayerNorm and a SiLU. A block
    adds LayerNorm, linear, SiLU and linear layers to its input.
    """

    def __init__(self, d: int, h: int, blocks: int = 2) -> None:
        super().__init__()
        self.project = nn.Linear(d, h)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(h), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h))
            for _ in range(blocks)
        )
        self.finish = nn.Sequential(nn.LayerNorm(h), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs (b, d) to features (b, h)."""
        hidden = self.project(x)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.finish(hidden)  # type: ignore[no-any-return]


class InducingBasis(Basis):
    """Inducing points of an RBF kernel on raw inputs or on the features of a network.

    k~(a, b) = s² exp(-½ Σ_j (a_j - b_j)² / l_j²)  (DBK equation 16) and
    phi(x) = Lz^(-1) k~_Z(g(x)) with Lz the lower Cholesky factor of k~_ZZ (equation 12).

    `anchors`: inducing points Z, (r, h) in the network's output space, or (r, d) without a network.
    `backbone`: the network g, or None for an RBF kernel on the raw inputs.
    `jitter`: relative jitter of k~_ZZ; defaults to 1e-6 with a network and 1e-4 without.
    """

    def __init__(
        self, anchors: Tensor, backbone: nn.Module | None = None, *, jitter: float | None = None
    ) -> None:
        super().__init__()
        if jitter is None:
            jitter = COORDINATE_JITTER if backbone is None else FEATURE_JITTER
        self.backbone = backbone
        self.jitter = jitter
        self.anchors = nn.Parameter(anchors.clone())
        self.rank, dimension = anchors.shape
        self.log_lengthscale = nn.Parameter(
            torch.full((dimension,), 0.5 * math.log(dimension), dtype=anchors.dtype)
        )
        self.log_variance = nn.Parameter(torch.zeros((), dtype=anchors.dtype))

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d); kernels are computed in float64.

        Raises NumericalError if k~_ZZ does not factorise, and the error of `checked_residual`.
        """
        mapped = x if self.backbone is None else self.backbone(x)
        phi, norm = rbf_features(
            mapped, self.anchors, self.log_lengthscale, self.log_variance, self.jitter
        )
        variance = self.log_variance.double().exp()
        residual = checked_residual(variance - norm, variance)
        return Features(phi, norm.to(x.dtype), residual.to(x.dtype))

    def reader(self, posterior: Posterior, *, norms: bool, rows: int) -> Reader:
        """Return a reader that factorises the kernel once; see `Basis.reader`.

        If the weights are float32, no norms are requested and the kernel can be computed in double
        precision, each chunk needs only one matrix product; see `rbf_readers.py`. The method and
        the reader raise the errors of `forward`.
        """
        white = Whitening.of(self.anchors, self.log_lengthscale, self.log_variance, self.jitter)
        m, L = posterior.weights()
        cached = not norms and L.dtype == torch.float32 and current_precision() == DOUBLE
        read: Reader = (
            CachedReader(white, m, L, rows) if cached else feature_reader(white, posterior)
        )

        def at(x: Tensor) -> Marginals:
            marginals = read(x if self.backbone is None else self.backbone(x))
            residual = checked_residual(marginals.residual, white.variance)
            return marginals._replace(residual=residual)

        return at


class DenseBasis(Basis):
    """A dense SiLU layer on a network: phi(x) = s ∘ silu(W g(x) + b) (DBK equation 13).

    The scale s is learned and starts at ±1/sqrt(r) with random signs (DBK appendix B).
    """

    def __init__(self, backbone: nn.Module, h: int, r: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.rank = r
        self.expand = nn.Linear(h, r)
        self.scale = nn.Parameter((2.0 * torch.randint(0, 2, (r,)) - 1.0) / math.sqrt(r))

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d); the residual is 0."""
        return Features.exact(self.values(x))

    def values(self, x: Tensor) -> Tensor:
        """Return phi at inputs (b, d), (b, r)."""
        return self.scale * nn.functional.silu(self.expand(self.backbone(x)))


class FourierBasis(DenseBasis):
    """Fourier features of a network: phi(x) = s ∘ cos(W g(x) + b) (DBK section 3.1).

    W starts at draws of N(0, 1/h), b at draws from [0, 2π], s at ±sqrt(2/r). Then the kernel tends
    to exp(-||g(x) - g(x')||² / 2h) as r grows (Rahimi and Recht 2007), which is the start of
    `InducingBasis`. All three are learned, as in Lázaro-Gredilla et al. (2010).
    """

    def __init__(self, backbone: nn.Module, h: int, r: int) -> None:
        super().__init__(backbone, h, r)
        nn.init.normal_(self.expand.weight, std=h**-0.5)
        nn.init.uniform_(self.expand.bias, 0, 2 * math.pi)
        with torch.no_grad():
            self.scale.mul_(math.sqrt(2))

    def values(self, x: Tensor) -> Tensor:
        """Return phi at inputs (b, d), (b, r)."""
        return self.scale * torch.cos(self.expand(self.backbone(x)))


class SplineBasis(Basis):
    """Cubic B-splines of a few coordinates of a network (DBK section 3.1).

    u(x) = tanh(W g(x) + b) has c = max(1, r // 16) coordinates in [-1, 1]. Each coordinate has J >=
    4 B-splines on equidistant knots, whose sum is 1 on [-1, 1]:
    phi(x) = s ∘ (B_1(u_1), ..., B_J(u_1), B_1(u_2), ...). J is r / c rounded up, and the rank c J.
    The kernel is thus a sum over coordinates. At most four splines of a coordinate differ from 0,
    as in Cunningham et al. (2023), whose B-splines are of the inputs. The scale s is learned, and
    starts at sqrt(2/c), so that k(x, x) is near 1.
    """

    def __init__(self, backbone: nn.Module, h: int, r: int) -> None:
        super().__init__()
        self.backbone = backbone
        c = max(1, r // SPLINES)
        self.splines = max(4, math.ceil(r / c))
        self.rank = c * self.splines
        self.expand = nn.Linear(h, c)
        self.log_scale = nn.Parameter(torch.full((self.rank,), 0.5 * math.log(2 / c)))

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d); the residual is 0."""
        return Features.exact(self.values(x))

    def values(self, x: Tensor) -> Tensor:
        """Return phi at inputs (b, d), (b, rank)."""
        u = torch.tanh(self.expand(self.backbone(x)))
        # In units of the distance of two knots, the peaks are at -1, 0, ..., J - 2.
        t = (u + 1) * ((self.splines - 3) / 2)
        peaks = torch.arange(-1, self.splines - 1, device=u.device)
        return self.log_scale.exp() * cubic_spline(t[:, :, None] - peaks).flatten(1)


class DriftBasis(Basis):
    """A basis psi plus covariates c, which are the last inputs: phi(z, c) = (psi(z), s ∘ c).

    The last `shown` covariates are inputs of psi, too.

    The model is kriging with external drift (Chilès and Delfiner 2012, section 5.7). The
    coefficient of each covariate has a normal prior with mean 0 and a learned standard deviation s.
    """

    def __init__(self, basis: Basis, covariates: int, shown: int = 0) -> None:
        super().__init__()
        self.basis = basis
        self.hidden = covariates - shown
        self.rank = basis.rank + covariates
        self.log_scale = nn.Parameter(torch.full((covariates,), DRIFT_START).log())

    def covariate_sds(self) -> Tensor:
        """Return s, (c,)."""
        return self.log_scale.exp()

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d)."""
        d = x.shape[1] - len(self.log_scale)
        features: Features = self.basis(torch.cat([x[:, :d], x[:, d + self.hidden :]], 1))
        drift = self.covariate_sds() * x[:, d:]
        norm = features.norm + squared_norms(drift)
        return Features(torch.cat([features.phi, drift], 1), norm, features.residual)


class NetworkBasis(Basis):
    """The network as a basis: phi(x) = g(x) with h outputs; the last layer of g must be linear."""

    def __init__(self, backbone: nn.Module, h: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.rank = h

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d); the residual is 0."""
        return Features.exact(self.backbone(x))


def cubic_spline(t: Tensor) -> Tensor:
    """Return the cubic B-spline with the knots -2, -1, 0, 1 and 2, elementwise."""
    distance = t.abs()
    return (relu(2 - distance).pow(3) - 4 * relu(1 - distance).pow(3)) / 6


def checked_residual(residual: Tensor, variance: Tensor) -> Tensor:
    """Return the residual k(x, x) - ||phi(x)||², (b,); small negative values become 0.

    `variance` is k(x, x). Raises NumericalError if a residual is negative by more than the share of
    the prior variance in `RESIDUAL_TOLERANCE`; if checks are deferred, the result is then NaN.
    """
    tolerance = RESIDUAL_TOLERANCE[residual.dtype]
    if is_deferred(residual):
        wrong = residual.detach() < -tolerance * variance.detach()
        return torch.where(wrong, torch.nan, relu(residual))
    below = residual.detach() < 0
    if bool(below.any()):
        lowest = float((residual.detach() / variance.detach()).min())
        if lowest < -tolerance:
            raise NumericalError(
                "the variance of the basis exceeds the prior variance by a share of "
                f"{-lowest:.2g}; expected at most {tolerance:g}. Raise the jitter."
            )
        logger.info(
            "%d residual variances are set to 0: rounding made them negative", int(below.sum())
        )
    return relu(residual)
