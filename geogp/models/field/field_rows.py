"""Arrays of rows in the field model: stored rows, terms of rows, and whitened blocks."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.linalg import solve_triangular

from geogp.models.core.devices import on_device
from geogp.models.core.lowrank import Rows
from geogp.models.field.vecchia import NO_ROW, Indices, factor_of


class HeldRows(nn.Module):
    """The training rows, grouped by place; they are part of the saved model.

    `x` are scaled inputs, `y` standardised targets, and `counts` (n, 2) tests and devices.
    """

    x: Tensor
    y: Tensor
    counts: Tensor

    def __init__(self, d: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("x", torch.zeros(0, d, dtype=dtype))
        self.register_buffer("y", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(0, 2, dtype=torch.float64))

    def keep_rows(self, rows: Rows) -> None:
        """Store rows."""
        self.x, self.y = rows.x, rows.y.double()
        self.counts = rows.counts

    def as_rows(self) -> Rows:
        """Return the rows."""
        return Rows(self.x, self.y, self.counts)

    def _load_from_state_dict(self, state: Any, prefix: str, *others: Any) -> None:
        # The number of rows is only known from the file.
        for name in ("x", "y", "counts"):
            own, found = getattr(self, name), state.get(prefix + name)
            if found is not None and found.shape[1:] == own.shape[1:]:
                setattr(self, name, own.new_zeros(found.shape))
        super()._load_from_state_dict(state, prefix, *others)


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


@dataclass(frozen=True)
class Block:
    """Whitened rows of some places, in no particular order.

    `white` (k, 1 + r) is W (y - mean, Phi), or W (y - mean, Phi L) with the factor L of q(w).
    The scalar `log_scale` is the sum of the logarithms of the conditional standard deviations.
    """

    white: Tensor
    log_scale: Tensor

    @property
    def residual(self) -> Tensor:
        """W (y - mean), (k,)."""
        return self.white[:, 0]

    @property
    def spread(self) -> Tensor:
        """The other columns of `white`, (k, r)."""
        return self.white[:, 1:]


def with_providers(points: Tensor, marks: Tensor) -> Tensor:
    """Return points (..., k) with the number of the provider, from 1, as the last column.

    The columns of `marks` (..., providers) are above 0 in the rows of one provider each.
    """
    numbers = torch.arange(1.0, marks.shape[-1] + 1, dtype=points.dtype, device=points.device)
    return torch.cat([points, ((marks > 0) * numbers).sum(-1, keepdim=True)], -1)


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
        found, at = _on_device([distinct, np.where(known, back, NO_ROW)], device)
        return cls(found, at.clamp(min=0), at >= 0)

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
    held = np.zeros(numbers.max(initial=low) - low + 1, np.bool_)
    held[numbers - low] = True
    distinct = np.flatnonzero(held) + low
    back = np.zeros_like(index)
    back[known] = (np.cumsum(held) - 1)[numbers - low]
    return distinct if len(numbers) else np.zeros(1, index.dtype), back, known


class PaddedBlocks(NamedTuple):
    """Blocks with similar numbers of rows, on the device of the model.

    `rows` (b, m) are positions among the distinct rows, and `known` (b, m) marks actual rows, which
    come before the padding. `own` (3, k) are the block, the slot and the number within the block of
    each of the blocks' own rows; a block has at most `most` own rows.
    """

    rows: Tensor
    known: Tensor
    own: Tensor
    most: int


class BlockRows(NamedTuple):
    """The rows of blocks, divided into parts with similar numbers of rows, to need less padding.

    `distinct` (u,) are the numbers of the stored rows. `own` (k,) are the positions of the blocks'
    own rows among these.
    """

    distinct: Tensor
    own: Tensor
    parts: list[PaddedBlocks]


def block_rows(index: Indices, first_own: int, parts: int, device: torch.device) -> BlockRows:
    """Arrange the rows of blocks; each block has the row numbers in a row of `index` (b, m).

    `NO_ROW` is padding. From column `first_own` on, a row belongs to the block itself; the other
    rows condition it. The rows of a block keep their order. All of this is computed on the CPU, and
    goes to the device in one transfer, because the sizes depend on the values.
    """
    distinct, back, known = _distinct(index)
    own = known & (np.arange(index.shape[1]) >= first_own)
    order = np.argsort(~known, axis=1, kind="stable")
    count = known.sum(1)
    pieces = [p for p in np.array_split(np.argsort(count, kind="stable"), parts) if len(p)]
    arrays, mosts = [distinct, back[own]], []
    for piece in pieces:
        kept = piece[:, None], order[piece, : count[piece[-1]]]
        block, slot = np.nonzero(own[kept])
        number = np.arange(len(block)) - np.searchsorted(block, block)
        arrays += [back[kept], count[piece], np.stack([block, slot, number])]
        mosts.append(int(number.max(initial=0)) + 1)
    first, second, *others = _on_device(arrays, device)
    found = []
    for rows, counts, positions, most in zip(
        others[::3], others[1::3], others[2::3], mosts, strict=True
    ):
        slots = torch.arange(rows.shape[1], device=device)
        found.append(PaddedBlocks(rows, slots < counts[:, None], positions, most))
    return BlockRows(first, second, found)


def _on_device(arrays: list[Indices], device: torch.device) -> list[Tensor]:
    """Return integer arrays on a device, in one transfer."""
    flat = on_device(np.concatenate([part.reshape(-1) for part in arrays]), device)
    pieces = flat.split([part.size for part in arrays])
    return [piece.view(part.shape) for piece, part in zip(pieces, arrays, strict=True)]


def whitened(rows: BlockRows, terms: RowTerms, values: Tensor, priors: list[Tensor]) -> Block:
    """Return the own rows of blocks, with `values` (u, c) whitened.

    `terms` are those of the distinct rows. `priors` are the symmetric covariances (b, m, m) of the
    tile process in each part, for amplitude 1; values in the padding do not count.
    """
    found = _Whitened.apply(rows, terms.noise, terms.log_amplitude, values, *priors)  # type: ignore[no-untyped-call]
    return Block(*found)


class _Whitened(torch.autograd.Function):
    """White values of own rows, and the sum of the logarithms of their standard deviations.

    For a block with K = L L', values U and E the columns of the identity matrix of its own rows,
    the white values are V = Y' U with Y = L^(-T) E. Let A and a be the gradients by V and by log
    L_ii of the own rows. The gradients by U and K are Y A and -Y tri(A U' L^(-T) - E' diag a)
    L^(-1), up to an antisymmetric part; tri is the lower triangle with half of the diagonal (Murray
    2016). K and U are divided by the amplitude D at the rows, which saves the product D K D.
    """

    @staticmethod
    def forward(ctx: Any, rows: BlockRows, *given: Tensor) -> tuple[Tensor, Tensor]:
        noise, log_amplitude, values, *priors = given
        inverse = (-log_amplitude).exp()
        square = inverse.square()
        scaled = noise * square, values * inverse[:, None]
        factors, kept, scales = [], [], [log_amplitude[rows.own]]
        for part, prior in zip(rows.parts, priors, strict=True):
            block, slot, number = part.own
            L = factor_of(prior, scaled[0][part.rows], part.known)
            E = prior.new_zeros(*part.rows.shape, part.most)
            E[block, slot, number] = 1.0
            Y = solve_triangular(L.mT, E, upper=True)
            white = Y.mT @ scaled[1][part.rows]
            kept.append(white[block, number])
            scales.append(L.diagonal(dim1=1, dim2=2)[block, slot].log())
            factors += [L, Y]
        ctx.rows = rows
        ctx.save_for_backward(inverse, square, *scaled, *factors)
        return torch.cat(kept) if len(kept) > 1 else kept[0], torch.cat(scales).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_white: Tensor, by_scale: Tensor) -> tuple[Tensor | None, ...]:
        inverse, square, noise, values, *factors = ctx.saved_tensors
        rows: BlockRows = ctx.rows
        by_noise, by_values = torch.zeros_like(noise), torch.zeros_like(values)
        pieces = by_white.split([part.own.shape[1] for part in rows.parts])
        by_priors = []
        blocks = zip(rows.parts, pieces, factors[::2], factors[1::2], strict=True)
        for part, piece, L, Y in blocks:
            block, slot, number = part.own
            by_rows = piece.new_zeros(len(Y), part.most, values.shape[1])
            by_rows[block, number] = piece
            half = by_rows @ values[part.rows].mT
            half = solve_triangular(L.mT, half, upper=True, left=False)
            half[block, number, slot] = (half[block, number, slot] - by_scale) / 2
            slots = torch.arange(L.shape[1], device=L.device)
            last = slots.new_zeros(len(Y), part.most)
            last[block, number] = slot
            half.masked_fill_(slots > last[..., None], 0.0)
            by_prior = (Y @ solve_triangular(L, half, upper=False, left=False)).neg_()
            at = (part.rows,)
            by_noise.index_put_(at, by_prior.diagonal(dim1=1, dim2=2), accumulate=True)
            by_values.index_put_(at, Y @ by_rows, accumulate=True)
            by_priors.append(by_prior)
        by_log = torch.linalg.vecdot(by_values, values)
        by_log = torch.addcmul(by_log, by_noise, noise, value=2).neg_()
        by_log.index_add_(0, rows.own, by_scale.expand(len(rows.own)))
        scaled = by_noise * square, by_log, by_values * inverse[:, None]
        return None, *scaled, *by_priors
