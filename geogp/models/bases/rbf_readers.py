"""Mean and variance of <w, phi(x)> at many points under an RBF kernel of inducing points.

With w ~ N(m, L L') and phi(x) = Lz^(-1) k_Z(x) they are k_xZ a and ||k_xZ V||², for a = Lz^(-T) m
and V = Lz^(-T) L made once. Where inducing points lie close, a and V have large entries of both
signs, of which a float32 sum leaves no digit. So k_xZ is first interpolated, in float64, from a
few inducing points P that are chosen to leave little over: with Kpp = M M', psi = k_xP M^(-T) and
B = M^(-1) k_PZ,

k_xZ V = psi (B V) + (k_xZ - psi B) V,

one float32 product of r + p columns, whose second part sums up small numbers only. How many points
are needed follows from the model alone; see `product_error`. Where 128 do not suffice, the product
is in float64; where none is needed, k_xZ may be float32 too. For many points V is first rotated
into a lower triangle, V Q, which leaves ||k_xZ V|| as it is and halves the product in blocks.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geogp.models.bases.rbf import Whitening, left_side, right_side
from geogp.models.core.elementwise import exponential_
from geogp.models.core.posteriors import Posterior
from geogp.models.core.products import slices, squared_norms, times_lower, times_lower_transposed

POINTS = (0, 16, 32, 64, 128)
"""Numbers of inducing points to interpolate from, the smallest that will do."""

LARGEST_ERROR = 3e-5
"""Of a mean or standard deviation by rounding, relative to the prior standard deviation."""

WORTH_ROTATING = 16
"""Rows for each inducing point from which half a product is worth the factorisation V = R'Q'."""

SUM_ERROR = 0.4
"""Error of a float32 sum of products, over 2^-24 times the norms of both: 0.2 to 0.4 were seen."""


class Marginals(NamedTuple):
    """Moments of <w, phi(x)> and what a `Diagonal` needs, each (b,).

    Attributes
    ----------
    mean, variance
        Float64.
    norm, residual
        As in `Features`; only where they were asked for.
    """

    mean: Tensor
    variance: Tensor
    norm: Tensor
    residual: Tensor


Reader = Callable[[Tensor], Marginals]
"""Returns the marginals at inputs or features of a network, (b, h)."""


class Interpolation(NamedTuple):
    """Inducing points P, M^(-1) (p, p) and B (p, r), all float64 but the numbers."""

    points: Tensor
    inverse: Tensor
    onto: Tensor


def interpolation(K: Tensor, most: int) -> Interpolation:
    """Choose up to `most` points one by one, each where the others leave the largest variance.

    The partial pivoted Cholesky decomposition of K (r, r), float64. It ends where rounding errors
    are all that is left.
    """
    left = K.diagonal().clone()
    floor = 1e-13 * left.max()
    rows, points = K.new_zeros(most, len(K)), []
    for number in range(most):
        at = int(left.argmax())
        if left[at] <= floor:
            break
        row = (K[at] - rows[:number, at] @ rows[:number]) / left[at].sqrt()
        rows[number] = row
        left = (left - row.square()).clamp_(min=0)
        left[at] = 0
        points.append(at)
    onto = rows[: len(points)]
    M = onto[:, points].T
    identity = torch.eye(len(points), dtype=K.dtype, device=K.device)
    inverse = torch.linalg.solve_triangular(M, identity, upper=False)
    return Interpolation(torch.tensor(points, dtype=torch.int64, device=K.device), inverse, onto)


def product_error(rest: Tensor, columns: Tensor) -> float:
    """Return about how far rounding takes ||k_xZ C|| in a float32 product.

    Parameters
    ----------
    rest
        What the interpolation leaves over of K_ZZ, (r, r): a row x is taken to leave no more than
        the worst inducing point does. Rows far from all of them may: twice as much was seen.
    columns
        C, (r, k).
    """
    largest = float(squared_norms(rest).max().sqrt())
    return SUM_ERROR * 2.0**-24 * largest * float(torch.linalg.norm(columns))


class CachedReader:
    """Reads marginals from cached products with the posterior; buffers are used again.

    Parameters
    ----------
    white
        The kernel at the inducing points.
    m, L
        Mean (r,) and a factor (r, r) of the covariance of the weights.
    rows
        How many will be read, about.
    """

    def __init__(self, white: Whitening, m: Tensor, L: Tensor, rows: int) -> None:
        self.white, self.right = white, right_side(white.Z, white.Z.mean(0))
        exponents = left_side(white.Z, white.Z.mean(0), white.variance)
        # An error of an exponent is a relative one of the kernel, and independent of the product's.
        own = float(squared_norms(exponents).max().sqrt() * squared_norms(self.right).max().sqrt())
        V = white.inverse.T @ L.double()
        blocks = slices(len(V), V.device)
        self.triangular = len(blocks) > 1 and rows >= WORTH_ROTATING * len(V)
        if self.triangular:
            V = torch.linalg.qr(V.T, mode="r").R.T
        columns = torch.cat([V, (white.inverse.T @ m.double())[:, None]], 1)
        allowed = LARGEST_ERROR * float(white.variance.sqrt())
        for count in POINTS:
            self.chosen = interpolation(white.Kzz, min(count, len(columns)))
            onto = self.chosen.onto
            error = product_error(white.Kzz - onto.T @ onto, columns)
            if error <= allowed:
                dtype = torch.float32
                break
        else:
            self.chosen, dtype = interpolation(white.Kzz, 0), torch.float64
        if not len(self.chosen.points) and error * math.hypot(1, own) <= allowed:
            self.right = self.right.to(dtype)
        mixed = torch.cat([columns, self.chosen.onto @ columns]).to(dtype)
        self.factor, self.mean = mixed[:, :-1].contiguous(), mixed[:, -1].contiguous()
        self.buffers = [columns.new_empty(0), mixed.new_empty(0), mixed.new_empty(0)]

    def __call__(self, rows: Tensor) -> Marginals:
        """Return the marginals at rows (b, h); norm and residual are empty."""
        white, chosen, b = self.white, self.chosen, len(rows)
        kernel, mixed, spread = self._buffers(b)
        left = left_side(rows.double() / white.lengthscale, white.Z.mean(0), white.variance)
        if self.right.dtype == mixed.dtype:
            exponential_(torch.mm(left.to(mixed.dtype), self.right.T, out=mixed))
        else:
            exponential_(torch.mm(left, self.right.T, out=kernel))
            taken = len(chosen.points)
            if taken:
                psi = kernel[:, chosen.points] @ chosen.inverse.T
                mixed[:, -taken:].copy_(psi)
                kernel.addmm_(psi, chosen.onto, alpha=-1)
            mixed[:, : kernel.shape[1]].copy_(kernel)
        if self.triangular:
            times_lower(mixed, self.factor, out=spread)
        else:
            torch.mm(mixed, self.factor, out=spread)
        empty = kernel.new_empty(0)
        variance = squared_norms(spread).double()
        return Marginals((mixed @ self.mean).double(), variance, empty, empty)

    def _buffers(self, b: int) -> list[Tensor]:
        widths = (self.white.Kzz.shape[0], *self.factor.shape)
        if len(self.buffers[0]) < b:
            self.buffers = [
                buffer.new_empty(b, width)
                for buffer, width in zip(self.buffers, widths, strict=True)
            ]
        return [buffer[:b] for buffer in self.buffers]


class FeatureReader:
    """Reads marginals from the features themselves, with norms and residuals.

    Parameters
    ----------
    white
        The kernel at the inducing points.
    posterior
        Of the weights.
    """

    def __init__(self, white: Whitening, posterior: Posterior) -> None:
        self.white, self.posterior = white, posterior

    def __call__(self, rows: Tensor) -> Marginals:
        """Return the marginals at rows (b, h); the residual is not checked."""
        white = self.white
        phi = times_lower_transposed(white.cross(rows.double() / white.lengthscale), white.inverse)
        norm = squared_norms(phi)
        mean, variance = self.posterior.moments(phi.to(rows.dtype))
        return Marginals(mean.double(), variance.double(), norm, white.variance - norm)
