"""The process of single tiles: short range in space, memory in time."""

from typing import Any

import torch
from torch import Tensor, nn

from geogp.models.core.elementwise import exponential_

SILLS = (0.05, 0.1, 0.05, 0.02)
RANGES_KM = (3.0, 1.5)
MEMORIES = (4.0, 2.0)
"""Start values of the parameters: a tile of zoom 16 is about 0.6 km wide."""

SAME_TILE_KM = 1e-3

LARGEST_EXPONENT = 60.0
"""Largest exponent of an amplitude, either way: its fourth power, in gradients, stays finite."""


class TileProcess(nn.Module):
    """Covariance of single tiles beyond the smooth field, in units of the target's sd.

    With h the distance of two places in km and t the time between them in quarters,

    k = s_1 exp(-h/l_1) + s_2 exp(-h/l_2) exp(-t/τ_2) + [same tile] (s_3 + s_4 exp(-t/τ_4)):

    a lasting and a fading part shared with near tiles, and both for the tile alone. k is multiplied
    by amplitude(x) amplitude(x'), amplitude(x) = exp(<c, phi(x)>) with an exponent from -60 to 60,
    so that the process can be stronger in one part of a region than in another.

    Parameters
    ----------
    r
        Number of basis functions phi in the amplitude.
    dtype
        Of the parameters; results are float64.
    """

    def __init__(self, r: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.log_sills = nn.Parameter(torch.tensor(SILLS, dtype=dtype).log())
        self.log_ranges = nn.Parameter(torch.tensor(RANGES_KM, dtype=dtype).log())
        self.log_memories = nn.Parameter(torch.tensor(MEMORIES, dtype=dtype).log())
        self.head = nn.Parameter(torch.zeros(r, dtype=dtype))

    def amplitude(self, phi: Tensor) -> Tensor:
        """Return the amplitude, (b,) float64, for features (b, r)."""
        exponent = (phi @ self.head).double()
        return exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()

    def variance(self) -> Tensor:
        """Return k at one place and time for amplitude 1, a scalar."""
        return self.log_sills.double().exp().sum()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k for amplitude 1 between points (..., m, 3) and (..., n, 3): (..., m, n).

        Points have two coordinates in km and a time in quarters, float64, and get no gradient.
        Points closer than a metre are on the same tile.
        """
        found: Tensor = _TileKernel.apply(  # type: ignore[no-untyped-call]
            a, b, self.log_sills.double(), self.log_ranges.double(), self.log_memories.double()
        )
        return found


class _TileKernel(torch.autograd.Function):
    """The kernel of `TileProcess`, with a gradient of eight sums over the matrix.

    With G the gradient by k, the gradient by a logarithm is the sum of G times the part that it
    scales, and times distance or time over its range for one within an exponential.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, *logs: Tensor) -> Tensor:
        sills, ranges, memories = (log.exp() for log in logs)
        east, north, elapsed = (a[..., :, None, i] - b[..., None, :, i] for i in range(3))
        distance = east.square_().addcmul_(north, north)
        own = (distance < SAME_TILE_KM**2).to(distance.dtype)
        distance, elapsed = distance.sqrt_(), elapsed.abs_()
        wide = exponential_(distance * (-1 / ranges[0])).mul_(sills[0])
        fading = torch.mul(distance, -1 / ranges[1], out=north).addcmul_(elapsed, -1 / memories[0])
        fading = exponential_(fading).mul_(sills[1])
        later = exponential_(elapsed * (-1 / memories[1])).mul_(sills[3]).mul_(own)
        ctx.save_for_backward(distance, elapsed, own, wide, fading, later, sills, ranges, memories)
        return (wide + fading).add_(later).addcmul_(own, sills[2])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        distance, elapsed, own, wide, fading, later, sills, ranges, memories = ctx.saved_tensors
        G = gradients[0].contiguous()
        by_wide, by_fading, by_later = G * wide, G * fading, G * later
        by_sills = [by_wide.sum(), by_fading.sum(), sills[2] * _inner(G, own), by_later.sum()]
        by_ranges = [_inner(by_wide, distance), _inner(by_fading, distance)]
        by_memories = [_inner(by_fading, elapsed), _inner(by_later, elapsed)]
        return (
            None,
            None,
            torch.stack(by_sills),
            torch.stack(by_ranges) / ranges,
            torch.stack(by_memories) / memories,
        )


def _inner(A: Tensor, B: Tensor) -> Tensor:
    return torch.dot(A.flatten(), B.flatten())
