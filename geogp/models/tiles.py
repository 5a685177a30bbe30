"""The process of single tiles: short range in space, memory in time."""

import torch
from torch import Tensor, nn

SILLS = (0.05, 0.1, 0.05, 0.02)
RANGES_KM = (3.0, 1.5)
MEMORIES = (4.0, 2.0)
"""Where the parameters start: a tile of zoom 16 is about 0.6 km wide."""

SAME_TILE_KM = 1e-3


class TileProcess(nn.Module):
    """Covariance of what single tiles have beyond the smooth field, in units of the target's sd.

    With h the distance of two places in km and t that of two times in quarters,

    k = s_1 exp(-h/l_1) + s_2 exp(-h/l_2) exp(-t/τ_2) + [same tile] (s_3 + s_4 exp(-t/τ_4)):

    what lasts and what fades, each shared with near tiles or the tile's own. The whole is
    multiplied by amplitude(x) amplitude(x'), amplitude(x) = exp(<c, phi(x)>), so that the
    process may be stronger in one part of a region than in another.

    Parameters
    ----------
    r
        Number of basis functions phi on which the amplitude depends.
    dtype
        Of the parameters; what is worked out from them is float64.
    """

    def __init__(self, r: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.log_sills = nn.Parameter(torch.tensor(SILLS, dtype=dtype).log())
        self.log_ranges = nn.Parameter(torch.tensor(RANGES_KM, dtype=dtype).log())
        self.log_memories = nn.Parameter(torch.tensor(MEMORIES, dtype=dtype).log())
        self.head = nn.Parameter(torch.zeros(r, dtype=dtype))

    def amplitude(self, phi: Tensor) -> Tensor:
        """Return the amplitude, (b,) float64, for features (b, r)."""
        return (phi @ self.head).double().exp()

    def variance(self) -> Tensor:
        """Return k at one place and time for amplitude 1, a scalar."""
        return self.log_sills.double().exp().sum()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k for amplitude 1 between points (..., m, 3) and (..., n, 3): (..., m, n).

        Points hold two coordinates in km and a time in quarters, float64, and are no
        parameters: at distance 0 there is no gradient. Points closer than a metre are on the
        same tile.
        """
        sills, ranges = self.log_sills.double().exp(), self.log_ranges.double().exp()
        memories = self.log_memories.double().exp()
        east, north, later = (a[..., :, None, i] - b[..., None, :, i] for i in range(3))
        square = east.square() + north.square()
        distance, elapsed = square.sqrt(), later.abs()
        near = sills[0] * torch.exp(-distance / ranges[0])
        near = near + sills[1] * torch.exp(-distance / ranges[1] - elapsed / memories[0])
        own = sills[2] + sills[3] * torch.exp(-elapsed / memories[1])
        return near + (square < SAME_TILE_KM**2) * own
