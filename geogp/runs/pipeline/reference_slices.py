"""Slices of a fitted kernel at a place of each stratum and at a remote place."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from geogp.estimators.spatial_gp import SpatialGP
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.region import UNKNOWN, Tiles
from geogp.geodata.tiles.observations import Observations
from geogp.maps.kernel_slices import KernelSlice
from geogp.runs.pipeline.job import Job

Floats = NDArray[np.float64]
_Place = tuple[str, str, float, float]
"""Name, description, longitude and latitude."""


def reference_slices(job: Job, model: SpatialGP, tiles: Tiles) -> list[KernelSlice]:
    """Return k(x, x_ref) on tiles for three places x_ref, all in the quarter of the map."""
    places = _reference_places(_measured_tiles(job.observations), tiles)
    _, _, longitude, latitude = map(np.array, zip(*places, strict=True))
    question = job.question
    references = job.places.at(longitude, latitude, np.full(len(places), question.quarter))
    values = model.kernel(job.places.of_tiles(tiles, question.quarter), references)
    return [
        KernelSlice(name, x, y, values[:, column], question.at, text)
        for column, (name, text, x, y) in enumerate(places)
    ]


def distance_to_measured(tiles: Tiles, observations: Observations) -> Floats:
    """Return the distance in km from each tile to the nearest measured tile, (n,)."""
    measured = _measured_tiles(observations)
    return nearest_km(*tiles.centres, measured.longitude, measured.latitude)


def _measured_tiles(observations: Observations) -> Observations:
    """Return one row for each measured tile, with the tile's number of tests in all quarters."""
    seen = np.flatnonzero(observations.tests)
    _, first, tile = np.unique(observations.quadkey[seen], return_index=True, return_inverse=True)
    tests = np.bincount(tile, observations.tests[seen]).astype(np.int64)
    return replace(observations.taken(seen[first]), tests=tests)


def _reference_places(measured: Observations, tiles: Tiles) -> list[_Place]:
    """Return a place in each stratum, such as urban and rural, and a wildland place.

    The place in a stratum is the measured tile with most tests. The wildland place is the tile of
    the map farthest from any measured tile. If there are no strata, the places are the tile with
    most tests, the tile with the median number of tests, and the wildland place.
    """
    by_tests = np.argsort(-measured.tests, kind="stable")
    chosen = []
    if np.any(measured.stratum != UNKNOWN):
        for name in measured.strata:
            of_kind = by_tests[measured.stratum[by_tests] == name]
            if len(of_kind):
                chosen.append((name, f"{name} tile with most tests", of_kind[0]))
    else:
        chosen.append(("most tests", "tile with most tests", by_tests[0]))
        middle = by_tests[len(by_tests) // 2]
        chosen.append(("median tests", "tile with the median number of tests", middle))
    places = [
        (
            name,
            f"{text} ({measured.tests[at]:,})",
            float(measured.longitude[at]),
            float(measured.latitude[at]),
        )
        for name, text, at in chosen
    ]
    distance = nearest_km(*tiles.centres, measured.longitude, measured.latitude)
    far = int(np.argmax(distance))
    longitude, latitude = (float(values[far]) for values in tiles.centres)
    text = f"farthest from any measured tile ({distance[far]:.1f} km)"
    return [*places, ("wildland", text, longitude, latitude)]
