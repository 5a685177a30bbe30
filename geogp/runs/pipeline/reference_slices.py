"""Slices of a fitted kernel at a place of each stratum and at a remote place."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.estimators.spatial_gp import SpatialGP
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.region import UNKNOWN, Tiles
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quarters import quarter_label
from geogp.maps.kernel_slices import KernelSlice
from geogp.runs.pipeline.inputs import place_table, tile_table

Floats = NDArray[np.float64]


def reference_slices(
    model: SpatialGP,
    tiles: Tiles,
    observations: Observations,
    quarter: int,
) -> list[KernelSlice]:
    """Return k(x, x_ref) on tiles for three places x_ref, all in one quarter.

    The measured rows of `observations` choose the places.
    """
    places = _reference_places(_measured_tiles(observations), tiles)
    references = place_table(
        np.array([place.longitude for place in places]),
        np.array([place.latitude for place in places]),
        np.full(len(places), quarter),
    )
    values = model.kernel(tile_table(tiles, quarter), references)
    return [
        KernelSlice(
            place.name,
            place.longitude,
            place.latitude,
            values[:, column],
            quarter_label(quarter),
            place.description,
        )
        for column, place in enumerate(places)
    ]


def distance_to_measured(tiles: Tiles, observations: Observations) -> Floats:
    """Return the distance in km from each tile to the nearest measured tile, (n,)."""
    measured = _measured_tiles(observations)
    return nearest_km(*tiles.centres, measured.longitude, measured.latitude)


@dataclass(frozen=True)
class _Measured:
    """The distinct measured tiles of all quarters, with their tests summed."""

    longitude: Floats
    latitude: Floats
    tests: NDArray[np.int64]
    stratum: NDArray[np.str_]
    strata: tuple[str, str]


def _measured_tiles(observations: Observations) -> _Measured:
    seen = np.flatnonzero(observations.tests)
    _, first, inverse = np.unique(
        observations.quadkey[seen], return_index=True, return_inverse=True
    )
    return _Measured(
        observations.longitude[seen[first]],
        observations.latitude[seen[first]],
        np.bincount(inverse, observations.tests[seen]).astype(np.int64),
        observations.stratum[seen[first]],
        observations.strata,
    )


@dataclass(frozen=True)
class _Place:
    name: str
    description: str
    longitude: float
    latitude: float


def _reference_places(measured: _Measured, tiles: Tiles) -> list[_Place]:
    """Return a place in each stratum, such as urban and rural, and a wildland place.

    The measured tile with most tests of each stratum, and the tile of the map farthest from any
    measured tile. Without strata: the tiles with most tests and with the median number of tests.
    """
    by_tests = np.argsort(-measured.tests, kind="stable")
    known = np.any(measured.stratum != UNKNOWN)
    places = []
    if known:
        for name in measured.strata:
            of_kind = by_tests[measured.stratum[by_tests] == name]
            if len(of_kind):
                text = f"{name} tile with most tests"
                places.append((name, text, int(of_kind[0])))
    else:
        places.append(("most tests", "tile with most tests", int(by_tests[0])))
        middle = int(by_tests[len(by_tests) // 2])
        places.append(("median tests", "tile with the median number of tests", middle))
    chosen = [
        _Place(
            name,
            f"{text} ({measured.tests[at]:,})",
            float(measured.longitude[at]),
            float(measured.latitude[at]),
        )
        for name, text, at in places
    ]
    distance = nearest_km(*tiles.centres, measured.longitude, measured.latitude)
    far = int(np.argmax(distance))
    longitude, latitude = (float(values[far]) for values in tiles.centres)
    text = f"farthest from any measured tile ({distance[far]:.1f} km)"
    return [*chosen, _Place("wildland", text, longitude, latitude)]
