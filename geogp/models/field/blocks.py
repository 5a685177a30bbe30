"""Arrays of rows in the field model: near rows, terms of rows, and whitened blocks."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.linalg import solve_triangular

from geogp.models.field.vecchia import NO_ROW, Indices, Sites, factor_of
from geogp.models.numerics.devices import on_device

Shapes = Sequence[tuple[int, ...]]


class RowTerms(NamedTuple):
    """Features phi (n, r) of rows; mean, log amplitude and noise variance, (n,) float64."""

    phi: Tensor
    mean: Tensor
    log_amplitude: Tensor
    noise: Tensor

    @property
    def amplitude(self) -> Tensor:
        """Amplitude of rows, (n,)."""
        return self.log_amplitude.exp()


class Block(NamedTuple):
    """Whitened rows of some places, in no particular order, with padding, which is 0.

    `residual` (k,) is W (y - mean), and `spread` (k, r) is W Phi, or W Phi L with the factor L of
    q(w). The scalar `log_scale` is the sum of the logarithms of the conditional standard
    deviations.
    """

    residual: Tensor
    spread: Tensor
    log_scale: Tensor


class NearRows(NamedTuple):
    """Rows near b places, on the device of the model.

    `distinct` (u,) are numbers of stored rows. `at` (b, m) are positions among them, and `known`
    (b, m) marks actual rows; padding has the position 0.
    """

    distinct: Tensor
    at: Tensor
    known: Tensor

    @classmethod
    def of(cls, index: Indices, device: torch.device) -> "NearRows":
        """Return the rows with the row numbers `index` (b, m); `NO_ROW` is padding."""
        distinct, back, known = _distinct(index)
        arrays = [distinct, np.where(known, back, NO_ROW)]
        numbers, at = _arrays(flat_on_device(arrays, device), [array.shape for array in arrays])
        return cls(numbers, at.clamp(min=0), at >= 0)

    @property
    def numbers(self) -> Tensor:
        """The row numbers, (b, m), with `NO_ROW` in the padding."""
        return torch.where(self.known, self.distinct[self.at], NO_ROW)


def _distinct(index: Indices) -> tuple[Indices, Indices, NDArray[np.bool_]]:
    """Return the distinct rows (at least one), the positions among these, and which are known.

    Padding gets the position 0.
    """
    known = index != NO_ROW
    numbers = index[known]
    low = numbers.min(initial=np.iinfo(index.dtype).max) if len(numbers) else 0
    # Rows of a chunk have near numbers, so this is faster than sorting them.
    occurs = np.zeros(numbers.max(initial=low) - low + 1, np.bool_)
    occurs[numbers - low] = True
    distinct = np.flatnonzero(occurs) + low
    back = np.zeros_like(index)
    back[known] = (np.cumsum(occurs) - 1)[numbers - low]
    return distinct if len(numbers) else np.zeros(1, index.dtype), back, known


class PaddedBlocks(NamedTuple):
    """Blocks with similar numbers of rows, on the device of the model.

    `rows` (b, m) are positions among the distinct rows; first `NO_ROW` as padding, then the rows
    that condition the block, then its own rows. `own` (b, k) marks, by 1 and 0, which of the last
    k rows are the block's own.
    """

    rows: Tensor
    own: Tensor


class BlockRows(NamedTuple):
    """The rows of blocks, divided into pieces with similar numbers of rows, to need less padding.

    `distinct` (u,) are the numbers of the stored rows, and `own` (u,) marks the blocks' own rows.
    """

    distinct: Tensor
    own: Tensor
    pieces: list[PaddedBlocks]

    @classmethod
    def of(cls, flat: Tensor, shapes: Shapes) -> "BlockRows":
        """Return the rows from the arrays of `block_arrays`, flat and one after the other."""
        half = len(shapes) // 2
        end = sum(map(math.prod, shapes[:half]))
        distinct, *rows = _arrays(flat[:end], shapes[:half])
        own, *marks = _arrays(flat[end:].double(), shapes[half:])
        return cls(
            distinct, own, [PaddedBlocks(*arrays) for arrays in zip(rows, marks, strict=True)]
        )


def block_arrays(index: Indices, first_own: int, pieces: int) -> list[Indices]:
    """Arrange the rows of blocks; each block has the row numbers in a row of `index` (b, m).

    `NO_ROW` is padding. From column `first_own` on, a row belongs to the block itself; the other
    rows condition it. The rows of a block keep their order. The result has the arrays of
    `BlockRows`: the row numbers, then the marks. All of this is computed on the CPU, because the
    sizes depend on the values.
    """
    distinct, back, known = _distinct(index)
    own = known & (np.arange(index.shape[1]) >= first_own)
    mark = np.zeros_like(distinct)
    mark[back[own]] = 1
    back[~known] = NO_ROW
    order = np.argsort(known, axis=1, kind="stable")
    count, owned = known.sum(1), own.sum(1)
    rows, marks = [distinct], [mark]
    for piece in np.array_split(np.argsort(count, kind="stable"), pieces):
        if len(piece):
            last = order[piece, -count[piece[-1]] :]
            rows.append(back[piece[:, None], last])
            marks.append(own[piece[:, None], last[:, -owned[piece].max() :]].astype(np.int64))
    return rows + marks


def place_arrays(
    places: Sites,
    earlier: Indices,
    number: Indices,
    pieces: int,
    without: NDArray[np.bool_] | None = None,
) -> list[Indices]:
    """Return `block_arrays` of the places with the numbers `number` (b,).

    `earlier` (s, k) are the rows that condition each place; `without` (n,) marks rows that must
    not.
    """
    before = earlier[number]
    if without is not None:
        before = np.where(without[before], NO_ROW, before)
    here = places.rows(number[:, None], int(places.count[number].max()))
    return block_arrays(np.concatenate([before, here], axis=1), before.shape[1], pieces)


def padded(arrays: list[Indices], shapes: Shapes) -> list[Indices]:
    """Return arrays of `block_arrays`, of one piece, with more padding, to get these shapes."""
    wider = []
    for array, shape, fill in zip(arrays, shapes, (0, NO_ROW, 0, 0), strict=True):
        widths = [(0, shape[0] - len(array)), *((w - array.shape[1], 0) for w in shape[1:])]
        wider.append(np.pad(array, widths, constant_values=fill))
    return wider


def block_rows(arrays: list[Indices], device: torch.device) -> BlockRows:
    """Return the arrays of `block_arrays` on a device, in one transfer."""
    return BlockRows.of(flat_on_device(arrays, device), [array.shape for array in arrays])


def flat_on_device(arrays: list[Indices], device: torch.device) -> Tensor:
    """Return integer arrays, one after the other, on a device, in one transfer."""
    return on_device(np.concatenate([array.reshape(-1) for array in arrays]), device)


def _arrays(flat: Tensor, shapes: Shapes) -> list[Tensor]:
    pieces = flat.split([math.prod(shape) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def whitened(rows: BlockRows, terms: RowTerms, values: Tensor, priors: list[Tensor]) -> Block:
    """Return the own rows of blocks, with `values` (u, 1 + r) whitened.

    `terms` are those of the distinct rows. `priors` are the symmetric covariances (b, m, m) of the
    tile process in each piece, for amplitude 1; values in the padding do not count.
    """
    return Block(*_Whitened.apply(rows, terms.noise, terms.log_amplitude, values, *priors))  # type: ignore[no-untyped-call]


class _Whitened(torch.autograd.Function):
    """White values of own rows, and the sum of the logarithms of their standard deviations.

    For a block with K = L L', values U and E the columns of the identity matrix of its own rows,
    the white values are V = Y' U with Y = L^(-T) E. Let A and a be the gradients by V and by log
    L_ii of the own rows. The gradients by U and K are Y A and -Y tri(A U' L^(-T) - E' diag a)
    L^(-1), up to an antisymmetric part; tri is the lower triangle with half of the diagonal (Murray
    2016). K and U are divided by the amplitude D at the rows, which saves the product D K D. E has
    the columns of the last k rows, and columns of rows that are not the block's own are 0.
    """

    @staticmethod
    def forward(ctx: Any, rows: BlockRows, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        noise, log_amplitude, values, *priors = tensors
        amplitude = log_amplitude.exp()
        square = amplitude.square()
        scaled = noise / square, values / amplitude[:, None]
        scale = torch.dot(log_amplitude, rows.own)
        factors, whites = [], []
        for piece, prior in zip(rows.pieces, priors, strict=True):
            last = slice(-piece.own.shape[1], None)
            known = piece.rows >= 0
            L = factor_of(prior, scaled[0][piece.rows], known)
            E = prior.new_zeros(*piece.rows.shape, piece.own.shape[1])
            E[:, last].diagonal(dim1=1, dim2=2).copy_(piece.own)
            Y = solve_triangular(L.mT, E, upper=True)
            whites.append((Y.mT @ scaled[1][piece.rows]).flatten(0, 1))
            logs = L.diagonal(dim1=1, dim2=2)[:, last].log()
            scale = scale + torch.dot(logs.flatten(), piece.own.flatten())
            factors += [known, L, Y]
        ctx.rows = rows
        ctx.save_for_backward(amplitude, square, *scaled, *factors)
        white = torch.cat(whites) if len(whites) > 1 else whites[0]
        return white[:, 0], white[:, 1:], scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        amplitude, square, noise, values, *factors = ctx.saved_tensors
        rows: BlockRows = ctx.rows
        by_residual, by_spread, by_scale = gradients
        by_white = torch.cat([by_residual[:, None], by_spread], 1)
        by_noise, by_values = torch.zeros_like(noise), torch.zeros_like(values)
        by_whites = by_white.split([piece.own.numel() for piece in rows.pieces])
        by_priors = []
        blocks = zip(
            rows.pieces, by_whites, factors[::3], factors[1::3], factors[2::3], strict=True
        )
        for piece, by_white_values, known, L, Y in blocks:
            by_rows = by_white_values.view(*piece.own.shape, -1)
            before = L.shape[1] - piece.own.shape[1]
            half = by_rows @ values[piece.rows].mT
            half = solve_triangular(L.mT, half, upper=True, left=False).tril_(before)
            half.diagonal(before, dim1=1, dim2=2).sub_(by_scale).div_(2)
            half.mul_(torch.where(known, -1.0, 0.0)[:, None])
            by_prior = Y @ solve_triangular(L, half, upper=False, left=False)
            at = (piece.rows,)
            by_noise.index_put_(at, by_prior.diagonal(dim1=1, dim2=2), accumulate=True)
            by_values.index_put_(at, Y @ by_rows, accumulate=True)
            by_priors.append(by_prior)
        by_log = torch.addcmul(torch.linalg.vecdot(by_values, values), by_noise, noise, value=2)
        by_log = torch.addcmul(by_log.neg_(), rows.own, by_scale)
        scaled = by_noise / square, by_log, by_values / amplitude[:, None]
        return None, *scaled, *by_priors
