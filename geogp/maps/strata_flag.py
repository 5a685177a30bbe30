"""The variable of a grid with the stratum of each tile."""

import re

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.geodata.places.region import STRATA, UNKNOWN, Strata

URBAN_FLAG, OWN_FLAG = "urban", "stratum"
"""Names of the variable with the strata: for urban and rural tiles, and for strata of the user.

The variable is 1 in the first stratum and 0 in the second.
"""

_FIRST, _SECOND = "first_stratum", "second_stratum"


def strata_flag(strata: Strata) -> tuple[str, dict[str, str]]:
    """Return the name and the attributes of the variable with the strata."""
    if strata.names == STRATA:
        year = "" if strata.vintage is None else f" of {strata.vintage}"
        attributes = {"long_name": f"in a Census urban area{year}", "flag_meanings": "rural urban"}
        return URBAN_FLAG, attributes
    first, second = strata.names
    meanings = " ".join(re.sub(r"[^\w.+@-]", "_", name) for name in (second, first))
    attributes = {"long_name": f"stratum: {first} or {second}", "flag_meanings": meanings}
    return OWN_FLAG, {**attributes, _FIRST: first, _SECOND: second}


def strata_in(grid: xr.Dataset) -> tuple[NDArray[np.uint8], tuple[str, str]] | None:
    """Return the flags of a grid and the names of its strata; None if there are no strata."""
    if URBAN_FLAG in grid:
        return grid[URBAN_FLAG].to_numpy(), STRATA
    if OWN_FLAG in grid:
        attributes = grid[OWN_FLAG].attrs
        return grid[OWN_FLAG].to_numpy(), (str(attributes[_FIRST]), str(attributes[_SECOND]))
    return None


def stratum_at(grid: xr.Dataset, pixels: tuple[NDArray[np.int64], ...]) -> NDArray[np.str_]:
    """Return the name of the stratum at each of n pixels, (n,)."""
    found = strata_in(grid)
    if found is None:
        return np.full(len(pixels[0]), UNKNOWN)
    flags, names = found[0][pixels], found[1]
    return np.select([flags == 1, flags == 0], names, UNKNOWN).astype(np.str_)
