"""Test rows in rough places, where the errors of neighbours differ most.

Near a sharp border, a smooth model predicts too much on one side and too little on the other. So
the errors of neighbours differ there, and intervals can be too narrow. The roughness of a row is
the variance of z = Phi^-1(PIT), the normal score, over the rows of the `NEIGHBOURS` nearest other
tiles. The rows with the largest tenth of the roughness are rough places.

The row's own tile does not enter. An error that all neighbours share cancels in the variance. So
the coverage of correct predictions in rough places is close to the stated coverage, even if errors
are correlated. The mean square of z would not do: it selects places with a large shared error, and
the row's own error contains this error. In simulated fields with test blocks, the coverage of
correct 95 % intervals where the mean square is large was 67 to 94 %, and 93 to 95 % in rough
places.
"""

import numpy as np
import pandas as pd
from scipy import special
from scipy.spatial import cKDTree

from geogp.arrays import Floats, Numbers
from geogp.evaluation.paired import sums_by_block
from geogp.evaluation.strata import MIN_ROWS, Stratum
from geogp.geodata.places.distances import unit_vectors

NEIGHBOURS = 8
"""Number of neighbouring tiles; on a full grid, these are all tiles that touch a tile."""

SHARE = 0.1
"""Largest share of the rows in rough places."""

LARGEST_SCORE = 3.0
"""Normal scores are limited to this absolute value, so that single outliers do not dominate."""

ROUGHNESS = "roughness"
"""Kind of the strata rough and smooth places."""


def roughness_strata(rows: pd.DataFrame, pit: Floats) -> dict[str, list[Stratum]]:
    """Return rough and smooth places as strata of one kind; empty if there are too few rows.

    `rows` has the columns quadkey, longitude and latitude of test_predictions.parquet, and `pit`
    (n,) is P(Y <= y) for the measurement y of each row. Coordinates are finite. At least `MIN_ROWS`
    rows must be in rough places.
    """
    tile = pd.factorize(rows["quadkey"], sort=True, use_na_sentinel=False)[0]
    if len(rows) * SHARE < MIN_ROWS or tile.max() < NEIGHBOURS:
        return {}
    place = unit_vectors(rows["longitude"].to_numpy(), rows["latitude"].to_numpy())
    rough_by_tile = _roughness(pit, place, tile)
    rough = (rough_by_tile > np.quantile(rough_by_tile[tile], 1 - SHARE))[tile]
    if rough.sum() < MIN_ROWS:
        return {}
    named = {"rough places": rough, "smooth places": ~rough}
    return {ROUGHNESS: [Stratum(name, [name], chosen) for name, chosen in named.items()]}


def _roughness(pit: Floats, place: Floats, tile: Numbers) -> Floats:
    """Return the roughness of each tile, (tiles,), from unit vectors (n, 3) and tiles of rows."""
    z = np.clip(special.ndtri(pit), -LARGEST_SCORE, LARGEST_SCORE)
    values = np.column_stack([np.ones(len(z)), z, np.square(z), place])
    sums = sums_by_block(values, tile, int(tile.max()) + 1)
    centre = sums[:, 3:] / sums[:, :1]
    near = np.asarray(cKDTree(centre, balanced_tree=False).query(centre, NEIGHBOURS + 1)[1])
    others = near != np.arange(len(near))[:, None]
    n, total, squares = (sums[near, :3] * others[..., None]).sum(1).T
    found: Floats = (squares - np.square(total) / n) / (n - 1)
    return found
