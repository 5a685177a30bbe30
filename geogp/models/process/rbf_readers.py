"""Mean and variance of <w, phi(x)> at many points, for an RBF kernel with inducing points.

With w ~ N(m, L L') and phi(x) = Lz^(-1) k_Z(x), mean and variance are k_xZ c and ||k_xZ V||². Here
c = Lz^(-T) m and V = Lz^(-T) L are computed once. If inducing points are close together, c and V
have large entries of both signs, and a float32 sum of these entries loses all digits. So k_xZ is
first interpolated, in float64, from the kernel at p inducing points P, chosen to leave small
residuals. With Kpp = M M', psi = k_xP M^(-T) and B = M^(-1) k_PZ,

k_xZ V = psi (B V) + (k_xZ - psi B) V.

The right side is one float32 product with r + p columns; its second part adds only small numbers.
The number p depends on the model but not on the inputs; see `product_error`. If 128 points are too
few, the product is in float64. On a GPU, it is so for few inputs, because the points are searched
on the CPU. If p is 0, k_xZ may be float32 too. For many inputs x, V is first
rotated into a lower triangular matrix V Q. The rotation does not change ||k_xZ V||, and the
triangular product, computed in blocks, needs half the operations.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geogp.models.numerics.elementwise import exponential_
from geogp.models.numerics.products import (
    slices,
    squared_norms,
    times_lower,
    times_lower_transposed,
)
from geogp.models.process.posteriors import Posterior
from geogp.models.process.rbf import Whitening, left_side, right_side

POINTS = (0, 16, 32, 64, 128)
"""Possible numbers p of inducing points P; the smallest sufficient number is used."""

LARGEST_ERROR = 3e-5
"""Largest rounding error of a mean or standard deviation, in prior standard deviations."""

WORTH_ROTATING = 16
"""With at least this number of rows per inducing point, the factorisation V = R'Q' saves time."""

WORTH_SEARCHING = 64
"""With at least this number of rows per inducing point, a GPU saves more time by float32 than the
CPU takes to search for the points P.
"""

SUM_ERROR = 0.4
"""Error of a float32 inner product, divided by 2^-24 and both norms; observed: 0.2 to 0.4."""


class Marginals(NamedTuple):
    """Mean and variance of <w, phi(x)>, and, on request, norm and residual of `Features`, (b,)."""

    mean: Tensor
    variance: Tensor
    norm: Tensor
    residual: Tensor


Reader = Callable[[Tensor], Marginals]
"""A function that returns the marginals at inputs or network features, (b, h)."""


class Interpolation(NamedTuple):
    """The indices of the inducing points P; the matrices M^(-1) (p, p) and B (p, r), float64."""

    points: Tensor
    inverse: Tensor
    onto: Tensor


def interpolation(K: Tensor, most: int) -> Interpolation:
    """Choose up to `most` points one by one, each with the largest remaining variance.

    This is the partial pivoted Cholesky decomposition of K (r, r), float64. It stops when the
    remaining variances are rounding errors. It runs on the CPU, because each step depends on the
    values of the step before.
    """
    if not most:
        return Interpolation(K.new_empty(0, dtype=torch.int64), K[:0, :0], K[:0])
    device, K = K.device, K.cpu()
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
    identity = torch.eye(len(points), dtype=K.dtype)
    inverse = torch.linalg.solve_triangular(M, identity, upper=False)
    chosen = torch.tensor(points, dtype=torch.int64)
    return Interpolation(*(array.to(device) for array in (chosen, inverse, onto)))


def searches(device: torch.device, rows: int, r: int) -> bool:
    """Return whether points P are searched, for a number of rows and r inducing points."""
    return device.type == "cpu" or rows >= WORTH_SEARCHING * r


def product_error(rest: Tensor, columns: Tensor) -> float:
    """Return the approximate rounding error of ||k_xZ C|| in float32, for C (r, k).

    `rest` is the residual of the interpolation of K_ZZ, (r, r). The residual at a row x is assumed
    to be at most the largest residual at inducing points. Far from all points, the residual may be
    twice as large.
    """
    largest = float(squared_norms(rest).max().sqrt())
    return SUM_ERROR * 2.0**-24 * largest * float(torch.linalg.norm(columns))


class CachedReader:
    """A reader with stored products of the kernel and the posterior's m (r,) and L (r, r).

    Buffers are reused. `rows` is the approximate total number of inputs.
    """

    def __init__(self, white: Whitening, m: Tensor, L: Tensor, rows: int) -> None:
        self.white, self.right = white, right_side(white.Z, white.Z.mean(0))
        V = white.inverse.T @ L.double()
        blocks = slices(len(V), V.device)
        self.triangular = len(blocks) > 1 and rows >= WORTH_ROTATING * len(V)
        if self.triangular:
            V = torch.linalg.qr(V.T, mode="r").R.T
        columns = torch.cat([V, (white.inverse.T @ m.double())[:, None]], 1)
        if searches(V.device, rows, len(V)):
            self.chosen, dtype = self._searched(columns)
        else:
            self.chosen, dtype = interpolation(white.Kzz, 0), torch.float64
        mixed = torch.cat([columns, self.chosen.onto @ columns]).to(dtype)
        self.factor, self.mean = mixed[:, :-1].contiguous(), mixed[:, -1].contiguous()
        self.buffers = [columns.new_empty(0), mixed.new_empty(0), mixed.new_empty(0)]

    def _searched(self, columns: Tensor) -> tuple[Interpolation, torch.dtype]:
        """Return the fewest sufficient points P, and the dtype of the product."""
        white = self.white
        allowed = LARGEST_ERROR * float(white.variance.sqrt())
        for count in POINTS:
            chosen = interpolation(white.Kzz, min(count, len(columns)))
            error = product_error(white.Kzz - chosen.onto.T @ chosen.onto, columns)
            if error <= allowed:
                break
        else:
            return interpolation(white.Kzz, 0), torch.float64
        if not len(chosen.points):
            exponents = left_side(white.Z, white.Z.mean(0), white.variance)
            # An error of an exponent is a relative error of the kernel; it is independent of the
            # error of the product.
            exponent_error = float(
                squared_norms(exponents).max().sqrt() * squared_norms(self.right).max().sqrt()
            )
            if error * math.hypot(1, exponent_error) <= allowed:
                self.right = self.right.float()
        return chosen, torch.float32

    def __call__(self, rows: Tensor) -> Marginals:
        """Return the marginals at rows (b, h); norm and residual are empty."""
        white, chosen, b = self.white, self.chosen, len(rows)
        kernel, mixed, spread = self._buffers(b)
        left = left_side(rows.double() / white.lengthscale, white.Z.mean(0), white.variance)
        if self.right.dtype == mixed.dtype:
            exponential_(torch.mm(left.to(mixed.dtype), self.right.T, out=mixed))
        else:
            exponential_(torch.mm(left, self.right.T, out=kernel))
            count = len(chosen.points)
            if count:
                psi = kernel[:, chosen.points] @ chosen.inverse.T
                mixed[:, -count:].copy_(psi)
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


def feature_reader(white: Whitening, posterior: Posterior) -> Reader:
    """Return a reader that computes marginals, norms and residuals from the features."""

    def read(rows: Tensor) -> Marginals:
        phi = times_lower_transposed(white.cross(rows.double() / white.lengthscale), white.inverse)
        norm = squared_norms(phi)
        mean, variance = posterior.moments(phi.to(rows.dtype))
        return Marginals(mean.double(), variance.double(), norm, white.variance - norm)

    return read
