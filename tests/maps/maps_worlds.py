"""Synthetic regions with known predictions, for the tests of maps."""

from dataclasses import dataclass, replace

import numpy as np
import shapely.affinity
import xarray as xr
from shapely.geometry import MultiPolygon, Point, Polygon, box

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.region import Region, Tiles
from geogp.maps.grid import build_grid
from geogp.maps.kernel_slices import KernelSlice
from geogp.maps.scales import LEVELS

VIEWS = ("median", "mean", "bound", "width")
"""Names of the views of a map of averages."""


@dataclass(frozen=True)
class World:
    region: Region
    tiles: Tiles
    prediction: Prediction
    measured: np.ndarray
    distance_km: np.ndarray
    stratum: np.ndarray
    grid: xr.Dataset


def irregular_region(name="Isla <b>", *, urban=True):
    """A wavy mainland with a lake, and an island to the east."""
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    radius = 0.30 + 0.05 * np.sin(5 * angle)
    shore = np.column_stack([-66.5 + 1.6 * radius * np.cos(angle), 18.2 + radius * np.sin(angle)])
    lake = Point(-66.4, 18.25).buffer(0.06)
    island = box(-65.8, 18.1, -65.7, 18.2)
    boundary = MultiPolygon([Polygon(shore).difference(lake), island])
    towns = Point(-66.7, 18.1).buffer(0.07).union(Point(-66.3, 18.05).buffer(0.05))
    return Region.from_geometry("XX", name, boundary, towns if urban else None, 2000)


def stretched(across, up):
    """The irregular region, wider and taller by two factors."""

    def stretch(shape):
        return shapely.affinity.scale(shape, across, up, origin=(-66.5, 18.2))

    region = irregular_region()
    shapes = stretch(region.boundary), stretch(region.strata.area)
    return Region.from_geometry("XX", "Stretched", *shapes, 2020)


def smooth_prediction(tiles, seed=0):
    lon, lat = tiles.centres
    across, up = (lon - lon.min()) / np.ptp(lon), (lat - lat.min()) / np.ptp(lat)
    mean = 1.3 + 0.5 * np.sin(5 * across + seed) * np.cos(4 * up)
    return Prediction(mean, 0.02 + 0.05 * across, np.full(len(tiles), 0.09))


def make_joint(tiles, first, names=("download", "upload", "latency")):
    """Return joint predictions whose correlations go from -0.9 to 0.95 from west to east."""
    lon, lat = tiles.centres
    across, up = (lon - lon.min()) / np.ptp(lon), (lat - lat.min()) / np.ptp(lat)
    ones, none = np.ones(len(tiles)), np.zeros(len(tiles))
    r, turned, risen = -0.9 + 1.85 * across, 6 * up, 0.3 + across
    # Correlations are cosines between three directions.
    third = np.cos(risen) * np.cos(turned), np.cos(risen) * np.sin(turned), np.sin(risen)
    sides = np.stack([(ones, none, none), (r, np.sqrt(1 - r**2), none), third])[: len(names)]
    further = [replace(first, mean=first.mean / 2 + level) for level in (0.1, 1.3)]
    marginals = (first, *further)[: len(names)]
    return JointPrediction(names, marginals, np.einsum("idn,jdn->nij", sides, sides))


def make_world(region, zoom, target="download"):
    tiles = region.tiles(zoom)
    prediction = smooth_prediction(tiles)
    measured = np.where(np.random.default_rng(1).random(len(tiles)) < 0.05, 7, 0)
    lon, lat = tiles.centres
    distance = nearest_km(*tiles.centres, lon[measured > 0], lat[measured > 0])
    stratum = region.stratum(lon, lat)
    grid = build_grid(
        region,
        tiles,
        prediction,
        target=target,
        distance_km=distance,
        far_km=5.0,
        measured=measured,
        stratum=stratum,
        settings={"model": "dbk-rbf", "seed": 3, "quarter": "2023Q4"},
    )
    return World(region, tiles, prediction, measured, distance, stratum, grid)


def middle_values(scale):
    """Return the value in the middle of each colour of a scale."""
    middles = (np.arange(LEVELS) + 0.5) / LEVELS
    if scale.logarithmic:
        low, high = scale.low + scale.shift, scale.high + scale.shift
        return low * (high / low) ** middles - scale.shift
    return scale.low + (scale.high - scale.low) * middles


def make_slices(tiles):
    lon, lat = tiles.centres
    slices = []
    for place, name in enumerate(("urban", "rural", "wildland"), start=1):
        at = place * len(tiles) // 4
        squared = (lon - lon[at]) ** 2 + (lat - lat[at]) ** 2
        values = 0.3 * np.exp(-squared / (0.1 * place) ** 2)
        one = KernelSlice(name, float(lon[at]), float(lat[at]), values, "2023Q4", f"a {name} tile")
        slices.append(one)
    return slices
