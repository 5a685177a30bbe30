"""The statistical model of a simulated target: smooth field, tile effects, measurement noise.

The value at place s in quarter q, in log10 of Mbps (download, upload) or ms (latency), is

    y(s, q) = field(s, q) + tile(s, q) + e,    e ~ N(0, a(s) + b(s) / tests)

Coordinates are kilometres east and south of the region's north-west tile. All tiles have the same
width `tile_km`, because a regular grid allows exact sampling. `tile_km` is the width on the ground
at the region's middle latitude.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
import scipy.ndimage
from numpy.typing import NDArray

from geogp.errors import NumericalError, RequestError
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.places.stratum_names import URBAN
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import quarter_index

Floats = NDArray[np.float64]

MAX_CELLS = 128_000_000
"""Largest number of grid cells for the tile process; its sampling takes about 4 GB."""

_FEATURES = 200
_NEGLIGIBLE_RANGES = 40  # exp(-40) = 4e-18 is below the rounding of float64


@dataclass(frozen=True)
class TruthLaw:
    """All parameters of the true model of one target; values are in log10 of Mbps or ms.

    The functions of this module give the formulas. `trend` and `urban_trend` are changes per
    quarter since `origin_quarter` (an index). `interaction_sd` is the standard deviation of local
    changes after 20 quarters. The lengthscale of the smooth field is between `lengthscale_km` / (1
    + `warp`) and `lengthscale_km` / (1 - `warp`). `urban_smoothing_km` is the standard deviation of
    the Gaussian filter for `PlanePlaces.urbanity`. The tile process has a constant and a changing
    part, with the variances `sill_constant` and `sill_changing`. The correlation of both parts is
    1/e at the distance `range_km`; `memory` is the correlation of the changing part between
    consecutive quarters. The `noise_floor` values give the variance a(s), and the `noise_test`
    values give b(s). Both variances have a common factor; the standard deviation of its logarithm
    is `noise_variation`. `field_seed` is the seed of the random fields.
    """

    target: str
    intercept: float
    trend: float
    urban_effect: float
    urban_trend: float
    field_sd: float
    interaction_sd: float
    sill_constant: float
    sill_changing: float
    noise_floor_urban: float
    noise_floor_rural: float
    noise_test_urban: float
    noise_test_rural: float
    range_km: float = 1.0
    memory: float = 0.85
    noise_variation: float = 0.15
    urban_smoothing_km: float = 2.5
    lengthscale_km: float = 12.0
    warp: float = 0.5
    warp_period_km: float = 70.0
    origin_quarter: int = quarter_index("2019Q1")
    tile_km: float = 0.5
    origin_column: int = 0
    origin_row: int = 0
    field_seed: int = 0

    def covariance(self, distance_km: Floats, quarters_apart: Floats) -> Floats:
        """Return the covariance of the tile process at distances d and lags in quarters.

        The covariance is exp(-d / range) * (sill_constant + sill_changing * memory^|lag|). The
        arrays are broadcast.
        """
        lasting = self.sill_constant + self.sill_changing * self.memory ** np.abs(quarters_apart)
        return np.asarray(np.exp(-distance_km / self.range_km) * lasting, np.float64)


# The level, the trend, and the variance of single tests in urban and rural places are like those of
# Puerto Rico's mobile tiles, 2019 to 2023.
_BASE = (
    TruthLaw("download", 1.06, 0.038, 0.15, 0.004, 0.2, 0.06, 0.02, 0.1, 0.03, 0.08, 0.28, 0.42),
    TruthLaw("upload", 0.6, 0.01, 0.2, 0.002, 0.14, 0.04, 0.02, 0.08, 0.04, 0.09, 0.35, 0.5),
    TruthLaw(
        "latency", 1.72, -0.009, -0.05, -0.001, 0.05, 0.02, 0.003, 0.01, 0.004, 0.01, 0.04, 0.07
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """The smallest rectangle of tiles that contains all zoom-16 tiles of a region.

    `across` and `down`, int64 (n,), are the column and row of each tile in the rectangle, from the
    north-west. `tile_km` is the width of a tile on the ground at the region's middle latitude.
    """

    tiles: Tiles
    across: NDArray[np.int64]
    down: NDArray[np.int64]
    tile_km: float

    @classmethod
    def of(cls, region: Region) -> "Grid":
        """Return the grid of a region; raise RequestError if the region contains no tile centre."""
        tiles = region.tiles()
        if not len(tiles):
            raise RequestError(
                f"{region.name} contains no centre of a zoom-16 tile; choose a larger region."
            )
        middle = np.deg2rad((region.bounds[1] + region.bounds[3]) / 2)
        tile_km = quadkeys.tile_size_m() * float(np.cos(middle)) / 1000
        return cls(tiles, tiles.column - tiles.column.min(), tiles.row - tiles.row.min(), tile_km)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns of the rectangle."""
        return int(self.down.max()) + 1, int(self.across.max()) + 1


@dataclass(frozen=True)
class PlanePlaces:
    """Places with coordinates in km east and south of the grid's origin, (n,).

    `urban` marks places in urban areas; `urbanity`, from 0 to 1, is the share of urban land nearby.
    """

    east_km: Floats
    south_km: Floats
    urban: NDArray[np.bool_]
    urbanity: Floats

    def take(self, rows: NDArray[np.int64]) -> "PlanePlaces":
        """Return the places with the given indices."""
        return PlanePlaces(
            self.east_km[rows], self.south_km[rows], self.urban[rows], self.urbanity[rows]
        )


def laws_of(grid: Grid, seed: int) -> dict[str, TruthLaw]:
    """Return the true model of each target on a grid; the seed determines the random fields."""
    seeds = np.random.SeedSequence(seed).generate_state(len(_BASE))
    return {
        law.target: replace(
            law,
            tile_km=grid.tile_km,
            origin_column=int(grid.tiles.column.min()),
            origin_row=int(grid.tiles.row.min()),
            field_seed=int(field_seed),
        )
        for law, field_seed in zip(_BASE, seeds, strict=True)
    }


def places_of(region: Region, grid: Grid, smoothing_km: float) -> PlanePlaces:
    """Return the centres of a region's tiles, in the order of `region.tiles()`.

    Urbanity is the Gaussian-weighted share of urban tiles among the region's tiles around a place:
    near 1 in the core of a large town, lower in a small town, and 0 without urban areas.
    """
    urban = region.stratum(*grid.tiles.centres) == URBAN
    inside = np.zeros(grid.shape)
    inside[grid.down, grid.across] = 1
    built = np.zeros(grid.shape)
    built[grid.down, grid.across] = urban
    width = smoothing_km / grid.tile_km
    near, near_built = (
        scipy.ndimage.gaussian_filter(mask, width, mode="constant")[grid.down, grid.across]
        for mask in (inside, built)
    )
    east, south = (
        np.asarray(position * grid.tile_km, np.float64) for position in (grid.across, grid.down)
    )
    return PlanePlaces(east, south, urban, near_built / near)


def field(law: TruthLaw, places: PlanePlaces, quarter: NDArray[np.int64] | int) -> Floats:
    """Return the smooth field at places and quarters (broadcast), shape (n,).

    The field is intercept + trend t + (urban_effect + urban_trend t) c(s) + field_sd g(s) +
    interaction_sd (t / 20) h(s), where t is the number of quarters since `origin_quarter`, c(s) is
    the urbanity, and g and h are random fields of variance 1.
    """
    time = np.asarray(quarter, np.float64) - law.origin_quarter
    level = law.intercept + law.trend * time
    urban = (law.urban_effect + law.urban_trend * time) * places.urbanity
    smooth = law.field_sd * _field_of(law, places, 0)
    growing = law.interaction_sd * time / 20 * _field_of(law, places, 1)
    return np.asarray(level + urban + smooth + growing, np.float64)


def measurement_variance(law: TruthLaw, places: PlanePlaces, tests: NDArray[np.int64]) -> Floats:
    """Return the variance of the measurement noise, a(s) + b(s) / tests, shape (n,).

    The variances a(s) and b(s) are linear in urbanity between their rural and urban values, and are
    multiplied by exp(noise_variation u(s)), where u is a random field of variance 1.
    """
    floor = law.noise_floor_rural + places.urbanity * (
        law.noise_floor_urban - law.noise_floor_rural
    )
    single = law.noise_test_rural + places.urbanity * (law.noise_test_urban - law.noise_test_rural)
    uneven = np.exp(law.noise_variation * _field_of(law, places, 2))
    return np.asarray(uneven * (floor + single / tests), np.float64)


def random_field(
    places: PlanePlaces,
    *,
    lengthscale_km: float,
    seed: int | Sequence[int],
    warp: float = 0.0,
    warp_period_km: float = 1.0,
) -> Floats:
    """Return a smooth random field of mean 0 and variance 1 at places, shape (n,).

    The field is sqrt(2 / F) Σ_j cos(ω_j · w(s) + φ_j), with F random Fourier features of the RBF
    kernel (Rahimi and Recht 2007): ω_j ~ N(0, I / lengthscale²) and φ_j uniform. The warp
    w(u) = u + warp P / (2π) sin(2π u / P) of each coordinate, with period P, changes the local
    lengthscale to lengthscale / (1 + warp cos(2π u / P)).
    """
    rng = np.random.default_rng(seed)
    frequency = rng.standard_normal((2, _FEATURES)) / lengthscale_km
    phase = rng.uniform(0, 2 * np.pi, _FEATURES)
    turns = 2 * np.pi / warp_period_km
    east, south = (
        position + warp / turns * np.sin(turns * position)
        for position in (places.east_km, places.south_km)
    )
    total = np.zeros(len(east))
    for j in range(_FEATURES):
        total += np.cos(frequency[0, j] * east + frequency[1, j] * south + phase[j])
    return np.asarray(np.sqrt(2 / _FEATURES) * total, np.float64)


def _field_of(law: TruthLaw, places: PlanePlaces, which: int) -> Floats:
    return random_field(
        places,
        lengthscale_km=law.lengthscale_km,
        seed=(law.field_seed, which),
        warp=law.warp,
        warp_period_km=law.warp_period_km,
    )


def tile_process(
    law: TruthLaw, shape: tuple[int, int], quarters: Sequence[int], rng: np.random.Generator
) -> Iterator[Floats]:
    """Yield exact samples of the tile process on a grid, one array of `shape` per quarter.

    In space, samples come from circulant embedding (Dietrich and Newsam 1997): the grid is padded
    to a torus, with so much padding that the covariance across the padding is below rounding. From
    quarter p to the next quarter q, x_q = r x_p + sqrt(1 - r²) z, where r = memory^(q - p) and z is
    a new sample. Tiles are `law.tile_km` apart; `quarters` increase and may have gaps. Raises
    RequestError if the torus needs more than `MAX_CELLS` cells, and NumericalError if the torus has
    negative eigenvalues beyond rounding.
    """
    spectrum, torus = _embedding(law, shape)

    def draw() -> Floats:
        white = scipy.fft.rfft2(rng.standard_normal(torus))
        smooth = scipy.fft.irfft2(spectrum * white, s=torus)
        return np.asarray(smooth[: shape[0], : shape[1]], np.float64)

    lasting = np.sqrt(law.sill_constant) * draw()
    changing = draw()
    for position, quarter in enumerate(quarters):
        if position:
            kept = law.memory ** (quarter - quarters[position - 1])
            changing = kept * changing + np.sqrt(1 - kept**2) * draw()
        yield lasting + np.sqrt(law.sill_changing) * changing


def _embedding(law: TruthLaw, shape: tuple[int, int]) -> tuple[Floats, tuple[int, int]]:
    """Return the square roots of the torus's eigenvalues (half spectrum), and the torus's shape."""
    padding = int(np.ceil(_NEGLIGIBLE_RANGES * law.range_km / law.tile_km))
    torus = (
        scipy.fft.next_fast_len(shape[0] + padding, real=True),
        scipy.fft.next_fast_len(shape[1] + padding, real=True),
    )
    if torus[0] * torus[1] > MAX_CELLS:
        raise RequestError(
            f"simulating this region needs a grid of {torus[0]} by {torus[1]} cells, more than "
            f"{MAX_CELLS:,}. Choose a smaller region or a shorter range."
        )
    down, across = (np.minimum(np.arange(size), size - np.arange(size)) for size in torus)
    distance = law.tile_km * np.hypot(down[:, None], across[None, :])
    eigenvalues = scipy.fft.rfft2(np.exp(-distance / law.range_km)).real
    if eigenvalues.min() < -1e-10 * eigenvalues.max():
        raise NumericalError(
            f"expected eigenvalues of 0 or more in the circulant embedding of {torus}, found "
            f"{eigenvalues.min():.3g}. Shorten the range of the tile process."
        )
    return np.sqrt(np.maximum(eigenvalues, 0)), torus
