"""Bayesian last layers, plain and enriched by tangent-kernel features.

The method is from Calvo-Ordoñez et al., "Richer Bayesian Last Layers with Subsampled NTK Features"
(Rich); numbers in parentheses are equations of this paper. Let A be the least-squares map from
phi^r to phi^m over the training rows (8, 9), B = (A, I) and B'B = L L'. The features L' phi^r are
the part of the features of the tangent kernel that the last layer can express (14). The variance is

S(x, x) = phi^r' (Phi^r' Phi^r / noise_var + (B'B)^(-1))^(-1) phi^r  (13, 15).

Neither A (m, r) nor Phi^m (n, m) is in memory as a whole. With Phi^r = Q T (Q orthonormal, T
triangular), A = D T^(-T) for D = Phi^m' Q. D is computed for blocks of parameters, from chunks of
rows, and only the triangular factor of D is stored. Factors come from the QR decomposition, so no
Gram matrix is computed.
"""

import logging
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from geogp.errors import RequestError
from geogp.models.fitting.steps import PerBatch
from geogp.models.numerics.devices import CHUNK
from geogp.models.numerics.products import squared_norms
from geogp.models.papers.last_layers.tangents import (
    BASE_WIDTH,
    LastLayerBasis,
    Mlp,
    parameter_blocks,
)
from geogp.models.process.architecture import Architecture
from geogp.models.process.lowrank import Floats, LowRankProcess
from geogp.models.process.posteriors import Moments, PointPosterior, WeightedRows
from geogp.models.process.rows import Rows

logger = logging.getLogger(__name__)

BLOCK_ENTRIES = 2**22
"""Numbers in a block of D or a chunk of Phi^m, so that each takes 32 MiB."""

EXACT_ENTRIES = 10**9
"""Largest number of rows times parameters for which A is fitted to all rows."""

RANK_TOLERANCE = 1e-10
"""Singular values of Phi^r below this share of the largest value count as 0."""


class Enrichment(NamedTuple):
    """Information about a last layer in the training rows, float64.

    `L`: lower Cholesky factor of B'B = A'A + I, (r, r).
    `T`: upper triangular, (r, r), with T'T = Phi^r' Phi^r, times N/k if only k of N rows are used.
    `rows`: number of rows to which A is fitted.
    """

    L: Tensor
    T: Tensor
    rows: int


def enrich(
    network: Mlp,
    readout: Tensor,
    x: Tensor,
    k: int | None = None,
    *,
    seed: int = 0,
    ridge: float = 0.0,
) -> Enrichment:
    """Compute the factor L of B'B from a trained network and its training inputs x (n, d).

    `readout` (r,) contains the weights and the bias of the last layer. If `k` is given, k of the N
    rows are drawn, and Phi^r' Phi^r is multiplied by N/k (Rich 21). If Phi^r does not have full
    rank, A is the least-norm solution. With a `ridge` λ, A = Phi^m' Phi^r (Phi^r' Phi^r + λ I)^(-1)
    (Rich C.3). Raises RequestError if k is not from r to N.
    """
    scale = 1.0
    if k is not None:
        n, r = len(x), len(readout)
        if not r <= k <= n:
            raise RequestError(
                f"expected a subsample of {r} (the number of features) to {n} rows, found k = {k}."
            )
        drawn = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:k]
        x, scale = x[drawn.to(x.device)], math.sqrt(n / k)
    with torch.no_grad():
        T = row_factor(network, x)
        _, s, Vh = torch.linalg.svd(T)
        kept = s > RANK_TOLERANCE * s[0]
        inverse = torch.where(kept, 1 / s.clamp(min=torch.finfo(s.dtype).tiny), 0.0)
        # Q = Phi^r V / s is orthonormal, and A = D (V / s)' for D = Phi^m' Q.
        whitening = Vh.T * inverse
        D = _tangent_factor(network, readout, x, whitening)
        identity = torch.eye(len(T), dtype=torch.float64, device=x.device)
        shrunk = Vh.T * torch.where(kept, s / (s.square() + ridge), 0.0)
        return Enrichment(stacked_triangle(D @ shrunk.T, identity).T, scale * T, len(x))


def row_factor(network: Mlp, x: Tensor) -> Tensor:
    """Return triangular T, (r, r), with T'T = Phi^r' Phi^r, from chunks of rows."""
    r = len(network.biases[-1]) + 1
    T = torch.zeros(r, r, dtype=torch.float64, device=x.device)
    nothing = T.new_zeros(r)
    for chunk in x.split(CHUNK):
        T = stacked_triangle(T, network.tangents(chunk, nothing).last)
    return T


def posterior_factor(T: Tensor, L: Tensor, noise_var: float) -> Tensor:
    """Return V with V V' = (T'T / noise_var + (L L')^(-1))^(-1), (r, r), as in (13)."""
    identity = torch.eye(len(L), dtype=L.dtype, device=L.device)
    P = stacked_triangle(T @ L / math.sqrt(noise_var), identity)
    V: Tensor = torch.linalg.solve_triangular(P, L, upper=True, left=False)
    return V


def parameters_before_the_last(network: Mlp) -> int:
    """Return m, the number of parameters of all layers but the last."""
    return sum(value.numel() for value in network.parameters())


def rows_for(network: Mlp, n: int) -> int | None:
    """Return the number of rows, at least r, to which A is fitted; None means all n rows.

    Rows times parameters are at most EXACT_ENTRIES.
    """
    r = len(network.biases[-1]) + 1
    k = max(EXACT_ENTRIES // parameters_before_the_last(network), r)
    return None if n <= k else k


def stacked_triangle(*matrices: Tensor) -> Tensor:
    """Return the upper triangular factor of stacked matrices; its diagonal is 0 or more."""
    stacked = torch.cat(matrices)
    R: Tensor = torch.linalg.qr(stacked, mode="r").R
    sign = torch.where(R.diagonal() < 0, -1.0, 1.0).to(R.dtype)
    return R * sign[:, None]


def _tangent_factor(network: Mlp, readout: Tensor, x: Tensor, whitening: Tensor) -> Tensor:
    """Return triangular R_D, (r, r), with R_D' R_D = D'D for D = Phi^m' Q."""
    r = len(whitening)
    R = whitening.new_zeros(r, r)
    for layer, units, size in parameter_blocks(network, BLOCK_ENTRIES // r):
        D = whitening.new_zeros(size, r)
        for chunk in x.split(max(1, BLOCK_ENTRIES // size)):
            tangents = network.tangents(chunk, readout)
            D += tangents.block(layer, units).T @ (tangents.last @ whitening)
        R = stacked_triangle(R, D)
    return R


class LastLayerPosterior(PointPosterior):
    """The trained weights m of the last layer, and the factor L of their covariance, at first 0."""

    in_closed_form = True
    L: Tensor

    def __init__(self, r: int, generator: torch.Generator | None, dtype: torch.dtype) -> None:
        super().__init__(r, generator, dtype)
        self.register_buffer("L", torch.zeros(r, r, dtype=torch.float64))

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return m and L, float64."""
        return self.m, self.L

    def moments(self, phi: Tensor) -> Moments:
        """Return <m, phi> and ||L' phi||² (float64) for features phi^r (b, r)."""
        return Moments(phi @ self.m, squared_norms(phi.double() @ self.L))


class LastLayerGP(LowRankProcess):
    """A network trained by squared error, then a Bayesian last layer in closed form.

    For the standardised target, f(x) = <w, phi(x)> with phi = F' phi^r and w ~ N(0, I). In this
    class, F = I. The bias of the last layer is the weight of the constant feature; `mean_constant`
    stays 0.
    """

    basis: LastLayerBasis
    posterior: LastLayerPosterior
    enrichment: Tensor
    enrichment_rows: Tensor

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        r = self.basis.rank
        self.register_buffer("enrichment", torch.eye(r, dtype=torch.float64))
        self.register_buffer("enrichment_rows", torch.zeros((), dtype=torch.int64))

    @property
    def network(self) -> Mlp:
        """The network below the last layer."""
        return self.basis.backbone

    def forget_covariance(self) -> None:
        """Set the covariance of the weights to 0, and F to I, as before a fit."""
        self.take_factor(torch.zeros_like(self.enrichment))
        self.enrichment.copy_(torch.eye(self.basis.rank, dtype=torch.float64))
        self.enrichment_rows.zero_()

    def take_factor(self, L: Tensor) -> None:
        """Set the covariance of the weights to L L', (r, r)."""
        self.posterior.L.copy_(L)

    def factor(self, x: Tensor, seed: int) -> Tensor:
        """Return a factor (r, r) of the covariance of the weights, from training inputs (n, d)."""
        return posterior_factor(row_factor(self.network, x), self.enrichment, float(self.noise()))

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield F' phi^r(x) in the target's unit, float64, in chunks (c, r) on the device."""
        for phi in super().feature_chunks(x):
            yield phi @ self.enrichment

    def weighted_rows(self, rows: Rows) -> Iterator[WeightedRows]:
        """Yield the same rows as `LowRankProcess`, but with the features F' phi^r."""
        for chunk in super().weighted_rows(rows):
            yield chunk._replace(phi=chunk.phi.double() @ self.enrichment)

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return mean and factor of the weights of F' phi^r; the mean comes from the network."""
        _, L = super().conditioned(rows)
        m = self.posterior.m.detach().double()[:, None]
        return torch.linalg.solve_triangular(self.enrichment, m, upper=False)[:, 0], L


class LastLayerFit(PerBatch[LastLayerGP]):
    """A fit of a network by its batches; at the end, the covariance from all training rows."""

    def rates(self) -> dict[str, float]:
        """Return learning rates as multiples of the usual rate; see `Mlp.rates`."""
        network = self.process.network
        of_last = {"mean_constant": 0.0, "posterior.m": BASE_WIDTH / network.root}
        return of_last | {f"basis.backbone.{k}": rate for k, rate in network.rates().items()}

    def start(self, rows: Rows, seed: int, *, resumed: bool = False) -> None:
        """Take the rows, and forget the covariance of an earlier fit."""
        self.inputs = rows.x
        self.process.forget_covariance()
        super().start(rows, seed, resumed=resumed)

    def finish(self, held_out: Rows) -> LastLayerGP:
        """Compute the covariance from the training rows, once the best epoch is known."""
        with torch.no_grad():
            self.process.take_factor(self.process.factor(self.inputs, self.seed))
        return self.process


class EnrichedGP(LastLayerGP):
    """Bayesian last layer whose features are enriched by F = L, the factor of B'B; see `enrich`.

    `enrichment_rows` is the number of rows to which A is fitted; see `rows_for`.
    """

    def factor(self, x: Tensor, seed: int) -> Tensor:
        """Compute F from the training inputs, and return the factor of `LastLayerGP.factor`."""
        k = rows_for(self.network, len(x))
        enrichment = enrich(self.network, self.posterior.m, x, k, seed=seed)
        if enrichment.rows < len(x):
            logger.warning(
                "the map from last-layer to tangent features is fitted to %d of %d rows: the "
                "number of rows times %d parameters exceeds %d",
                *(enrichment.rows, len(x), parameters_before_the_last(self.network), EXACT_ENTRIES),
            )
        self.enrichment.copy_(enrichment.L)
        self.enrichment_rows.fill_(enrichment.rows)
        return super().factor(x, seed)
