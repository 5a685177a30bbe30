"""Arrays of rows in the field model: stored rows, terms of rows, and whitened blocks."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from geogp.models.core.lowrank import Rows
from geogp.models.field.vecchia import NO_ROW, Indices


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
    """Features phi (n, r) of rows; mean, amplitude and noise variance of rows, (n,) float64."""

    phi: Tensor
    mean: Tensor
    amplitude: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Block:
    """Whitened rows of some places, in no particular order.

    `residual` (k,) is W (y - mean). `spread` (k, r) is W Phi, or W Phi L with the factor L of q(w).
    The scalar `log_scale` is the sum of the logarithms of the conditional standard deviations.
    """

    residual: Tensor
    spread: Tensor
    log_scale: Tensor


def distinct_rows(index: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct known rows, and for each entry of `index` its position among these rows.

    Padding gets the position 0.
    """
    distinct, inverse = torch.unique(index[known], return_inverse=True)
    if not len(distinct):
        distinct = torch.zeros(1, dtype=index.dtype, device=index.device)
    back = torch.zeros_like(index)
    back[known] = inverse
    return distinct, back


class PaddedBlocks(NamedTuple):
    """Blocks with similar numbers of rows, on the device of the model.

    `rows` (b, m) are positions among the distinct rows, and `known` (b, m) marks actual rows, which
    come before the padding. `own` (k,) are the positions in `rows.flatten()` of the blocks' own
    rows.
    """

    rows: Tensor
    known: Tensor
    own: Tensor


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
    known = index != NO_ROW
    distinct, inverse = np.unique(index[known], return_inverse=True)
    back = np.zeros_like(index)
    back[known] = inverse.reshape(-1)
    own = known & (np.arange(index.shape[1]) >= first_own)
    order = np.argsort(~known, axis=1, kind="stable")
    count = known.sum(1)
    pieces = [p for p in np.array_split(np.argsort(count, kind="stable"), parts) if len(p)]
    arrays = [distinct if len(distinct) else np.zeros(1, index.dtype), back[own]]
    for piece in pieces:
        kept = piece[:, None], order[piece, : count[piece[-1]]]
        arrays += [back[kept], count[piece], np.flatnonzero(own[kept])]
    first, second, *others = _on_device(arrays, device)
    found = []
    for rows, counts, positions in zip(others[::3], others[1::3], others[2::3], strict=True):
        slots = torch.arange(rows.shape[1], device=device)
        found.append(PaddedBlocks(rows, slots < counts[:, None], positions))
    return BlockRows(first, second, found)


def _on_device(arrays: list[Indices], device: torch.device) -> list[Tensor]:
    """Return integer arrays on a device, in one transfer."""
    flat = torch.from_numpy(np.concatenate([part.reshape(-1) for part in arrays])).to(device)
    pieces = flat.split([part.size for part in arrays])
    return [piece.view(part.shape) for piece, part in zip(pieces, arrays, strict=True)]
