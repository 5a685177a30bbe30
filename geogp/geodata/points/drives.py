"""Drives: tests that follow each other in time and place, as in the log of a drive test."""

import numpy as np
from numpy.typing import NDArray

from geogp.geodata.places.distances import distance_km

Floats = NDArray[np.float64]

SECONDS, KM = 60.0, 2.0
"""Longest time and distance from one test of a drive to the next."""

BREAK_SECONDS, BREAK_KM = 300.0, 5.0
"""A new drive begins after a longer time or distance."""

SHARE = 0.5
"""Tests are a log of drives if at least this share of their times follow another so closely."""


def drives_of(longitude: Floats, latitude: Floats, seconds: Floats) -> NDArray[np.object_] | None:
    """Return the number of each test's drive as text, (n,); None if they are no log of drives.

    `seconds` are times since 1970, (n,). Of tests at the same time, the first one counts. Dates
    without a time of day, and tests of many people in one file, are no log of drives.
    """
    times, first, number = np.unique(seconds, return_index=True, return_inverse=True)
    if len(times) < 2 or np.isnan(seconds).any():
        return None
    gap = np.diff(times)
    place = longitude[first], latitude[first]
    step = distance_km(*(part[:-1] for part in place), *(part[1:] for part in place))
    if np.mean((gap <= SECONDS) & (step <= KM)) < SHARE:
        return None
    begins = (gap > BREAK_SECONDS) | (step > BREAK_KM)
    return np.append(1, 1 + begins.cumsum())[number].astype(str).astype(object)
