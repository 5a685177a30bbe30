"""Nyström features of a kernel at fixed anchors, and the marginal likelihood of all rows.

Nyström's method replaces k(x, x') by k_xZ K_ZZ^(-1) k_Zx' = <phi(x), phi(x')> with phi(x) = Lz^(-1)
k_Zx. The anchors Z stay fixed; the few parameters of the kernel are learned.
"""

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from geogp.models.fitting.steps import Batch, WholeData
from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.numerics.products import squared_norms
from geogp.models.options import Weights
from geogp.models.papers.mixed_nystrom.kernels import VARIANCE_PRIOR, Kernel, log_inverse_gamma
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import Basis, Features, checked_residual
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.objectives import Statistics
from geogp.models.process.posteriors import ClosedFormPosterior
from geogp.models.process.rows import Rows

ANCHOR_JITTER = 1e-6
"""Relative jitter of K_ZZ, unless a model has its own."""

INPUT_SCALE = 0.5
"""Network kernels expect inputs in [-½, ½]^d; models scale their inputs to [-1, 1]^d."""


class AnchorBasis(Basis):
    """Nyström features of a kernel: phi(x) = Lz^(-1) k_Z(x / 2), for K_ZZ = Lz Lz'.

    `kernel`: the kernel, for inputs in [-½, ½]^d.
    `anchors`: the anchors Z as scaled inputs in [-1, 1]^d, (r, d), not learned.
    `jitter`: relative jitter of K_ZZ; defaults to 1e-6.
    """

    anchors: Tensor

    def __init__(self, kernel: Kernel, anchors: Tensor, *, jitter: float | None = None) -> None:
        super().__init__()
        self.kernel = kernel
        self.jitter = ANCHOR_JITTER if jitter is None else jitter
        self.rank = len(anchors)
        self.register_buffer("anchors", anchors.clone())

    def root(self) -> Tensor:
        """Return Lz, (r, r) float64; raise NumericalError if K_ZZ does not factorise."""
        return jittered_cholesky(self.covariance(self.anchors, self.anchors), self.jitter)[0]

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), (m, n) float64, for scaled inputs (m, d) and (n, d)."""
        K: Tensor = self.kernel(INPUT_SCALE * a.double(), INPUT_SCALE * b.double())
        return K

    def variance(self, x: Tensor) -> Tensor:
        """Return k(x, x), (b,) float64, for scaled inputs (b, d)."""
        return self.kernel.diagonal(INPUT_SCALE * x.double())

    def cross(self, x: Tensor) -> Tensor:
        """Return k_Zx, (r, b) float64, for scaled inputs (b, d)."""
        return self.covariance(self.anchors, x)

    def root_and_cross(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the results of `root` and `cross`, from one evaluation of the kernel."""
        K = self.covariance(torch.cat([self.anchors, x.to(self.anchors.dtype)]), self.anchors)
        Kzz, Kxz = K.split([self.rank, len(x)])
        return jittered_cholesky(Kzz, self.jitter)[0], Kxz.T

    def forward(self, x: Tensor) -> Features:
        """Return the features of scaled inputs (b, d).

        Raises the errors of `root` and `checked_residual`.
        """
        phi = torch.linalg.solve_triangular(*self.root_and_cross(x), upper=False).T
        norm = squared_norms(phi)
        variance = self.variance(x)
        residual = checked_residual(variance - norm, variance)
        return Features(phi.to(x.dtype), norm.to(x.dtype), residual.to(x.dtype))


class KernelProcess(LowRankProcess):
    """A Gaussian process on an `AnchorBasis`; m0 is the mean of the targets."""

    basis: AnchorBasis
    posterior: ClosedFormPosterior

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        self.mean_constant.requires_grad = False


K = TypeVar("K", bound=KernelProcess)


def kernel_prior(model: KernelProcess) -> Tensor:
    """Return the log prior density of kernel and noise variance (Mixed equation 20), float64.

    The noise variance has the same inverse-gamma prior as the other variances.
    """
    prior_of_noise = log_inverse_gamma(model.noise().double(), *VARIANCE_PRIOR)
    return model.basis.kernel.log_prior() + prior_of_noise


class AnchorEvidence(WholeData[K]):
    """A fit whose steps minimise -(log likelihood of all rows + log prior) / n.

    All rows must have the same noise variance. Loss and gradient equal those of `WholeData`,
    but need fewer passes over the rows. The features of a chunk are Lz^(-1) k_Zx. The gradient by
    the sums of features is propagated to k_Zx chunk by chunk. The gradient is propagated to Lz only
    once, because the sum of -Lz^(-T) (dphi) phi' over the rows follows from the sums of features.

    If the batch is smaller than the number of rows, every step uses the same random subset of the
    inputs. The few kernel parameters need far fewer rows than the posterior.
    """

    @staticmethod
    def batch_rows(batch: int, n: int) -> int:
        """Return the requested batch size, at most n."""
        return min(batch, n)

    def batches(self, batch: int, rng: np.random.Generator, share: float) -> list[Batch]:
        """Return a single batch of the rows, the same in every epoch."""
        rows, inputs = self.rows, len(self.rows.y)
        size = -(-self.batch_rows(batch, rows.n) * inputs // rows.n)
        order = np.random.default_rng(0).permutation(inputs)[:size]
        numbers = torch.as_tensor(np.sort(order)).to(rows.x.device)
        return [Batch(numbers, rows.at(numbers).n)]

    def backward(self, rows: Rows, n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss to the parameters; return the loss."""
        model = self.process
        basis, n = model.basis, min(n, rows.n)
        chunks = list(rows.chunks())
        # With one chunk, one evaluation of the kernel serves both passes.
        Lz, *crosses = basis.root_and_cross(rows.x) if len(chunks) == 1 else (basis.root(),)
        root = Lz.detach()
        gram, moment, square = _sums(model, basis, root, chunks, crosses)
        gram.requires_grad_()
        moment.requires_grad_()
        nothing = torch.zeros_like(square)
        # Largest norm and residuals do not follow from sums, so objectives with them are NaN.
        norms, unknown = gram.diagonal().sum(), nothing + torch.nan
        sums = Statistics(n, gram, moment, square, norms, unknown, unknown, nothing)
        loss = -(self.objective(sums, model.noise()) + self.prior(model)) / n
        loss.backward()
        assert gram.grad is not None, "expected an objective that depends on the features"
        assert moment.grad is not None, "expected an objective that depends on the targets"
        both, first = gram.grad + gram.grad.T, moment.grad
        with torch.no_grad():
            through = both @ gram + torch.outer(first, moment)
            by_root = -torch.linalg.solve_triangular(root.T, through, upper=True).tril()
        ends, gradients = [Lz], [by_root]
        for chunk in chunks:
            cross = crosses.pop() if crosses else basis.cross(chunk.x)
            residual, count, _ = _counted(model, chunk)
            with torch.no_grad():
                phi = torch.linalg.solve_triangular(root, cross, upper=False)
                by_phi = (both @ phi + torch.outer(first, residual)) * count
                gradient = torch.linalg.solve_triangular(root.T, by_phi, upper=True)
            torch.autograd.backward([*ends, cross], [*gradients, gradient])
            ends, gradients = [], []
        return loss.detach().double()


def _counted(model: KernelProcess, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return y - m0, and the number and the scatter of the rows, at each input, (b,) float64."""
    residual = rows.y.double() - model.mean_constant.detach().double()
    if rows.repeats is None:
        return residual, torch.ones_like(residual), torch.zeros_like(residual)
    return residual, rows.repeats.rows.double(), rows.repeats.scatter.double()


def _sums(
    model: KernelProcess, basis: AnchorBasis, Lz: Tensor, chunks: list[Rows], crosses: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return Phi'Phi (r, r), Phi'e (r,) and the sum of squares of the rows, float64.

    `crosses` are the values of `AnchorBasis.cross` for the chunks, if they are known.
    """
    r = basis.rank
    gram = torch.zeros(r, r, dtype=torch.float64, device=model.device)
    moment = torch.zeros(r, dtype=torch.float64, device=model.device)
    square = torch.zeros((), dtype=torch.float64, device=model.device)
    with torch.no_grad():
        for number, chunk in enumerate(chunks):
            cross = crosses[number] if crosses else basis.cross(chunk.x)
            phi = torch.linalg.solve_triangular(Lz, cross, upper=False)
            residual, count, scatter = _counted(model, chunk)
            weighted = phi * count
            gram += weighted @ phi.T
            moment += weighted @ residual
            square += count @ (residual.square() + scatter)
    return gram, moment, square
