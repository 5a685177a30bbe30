"""The process of single tiles, with correlation over short distances and over time."""

import torch
from torch import Tensor, nn

from geogp.models.core.elementwise import exponential_

SILLS = (0.05, 0.1, 0.05, 0.02)
RANGES_KM = (3.0, 1.5)
MEMORIES = (4.0, 2.0)
"""Start values of s, l (km) and τ (quarters). A tile of zoom 16 is about 0.6 km wide."""

SAME_TILE_KM = 1e-3

LARGEST_EXPONENT = 60.0
"""Largest absolute exponent of an amplitude; its fourth power, used in gradients, is finite."""


class TileProcess(nn.Module):
    """Covariance of the effects of single tiles around the field, for a standardised target.

    With h the distance between two places in km and t the time between them in quarters,

    k = s_1 exp(-h/l_1) + s_2 exp(-h/l_2) exp(-t/τ_2) + [same tile] (s_3 + s_4 exp(-t/τ_4)):

    The first two terms correlate near tiles, and the last two belong to one tile. In each pair, the
    first term is constant in time and the second term decays with time. k is multiplied by
    amplitude(x) amplitude(x'), with amplitude(x) = exp(<c, phi(x)>) and an exponent from -60 to 60.
    So the tile process can be stronger in one part of a region than in another.

    Parameters
    ----------
    r
        Number of basis functions phi in the amplitude.
    dtype
        Dtype of the parameters; results are float64.
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

        A point has two coordinates in km and a time in quarters, float64, without gradients. Points
        less than a metre apart are on the same tile.
        """
        s1, s2, s3, s4 = self.log_sills.double().unbind()
        near, fast = (-self.log_ranges.double()).exp().unbind()
        fading, forgetting = (-self.log_memories.double()).exp().unbind()
        with torch.no_grad():
            east, north, t = (a[..., :, None, i] - b[..., None, :, i] for i in range(3))
            h = east.square_().addcmul_(north, north)
            same = (h < SAME_TILE_KM**2).to(h.dtype)
            h, t = h.sqrt_(), t.abs_()
            del east, north  # saves memory: a block is large
        fades = torch.addcmul(s2, h, fast, value=-1).addcmul(t, fading, value=-1)
        shared = exponential_(fades) + exponential_(torch.addcmul(s1, h, near, value=-1))
        del h, fades
        own = exponential_(torch.addcmul(s4, t, forgetting, value=-1)) + s3.exp()
        return torch.addcmul(shared, same, own)
