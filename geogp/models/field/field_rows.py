"""Arrays of rows in the field model: stored rows, terms of rows, and whitened blocks."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from geogp.models.core.lowrank import Rows


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


class Padded(NamedTuple):
    """Rows of b blocks, (b, m): row numbers, masks of actual rows and of the block's own rows."""

    rows: Tensor
    known: Tensor
    own: Tensor


def packed(blocks: Padded, parts: int) -> list[Padded]:
    """Divide the blocks into parts with similar numbers of rows, to need less padding.

    The rows of a block keep their order; the padding comes last.
    """
    order = blocks.known.byte().sort(dim=1, descending=True, stable=True).indices
    first = Padded(*(each.gather(1, order) for each in blocks))
    count = blocks.known.sum(1)
    pieces = [piece for piece in count.argsort().tensor_split(parts) if len(piece)]
    widths = [int(count[piece[-1]]) for piece in pieces]
    return [
        Padded(*(each[piece, :width] for each in first))
        for piece, width in zip(pieces, widths, strict=True)
    ]
