"""The layers of further targets and of tiers in the grid of a run of several targets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from geogp.arrays import Floats
from geogp.distributions.joint_prediction import JointPrediction
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.tiers import Tier
from geogp.maps.frame import Frame
from geogp.maps.prediction_grid import LEVEL
from geogp.maps.target_quantities import quantity_of
from geogp.maps.views import TARGET, TIER

SHOWN = ("median", "lower", "upper")
"""Variables of a target after the first; the names in the grid end with the target's name."""


def with_targets(
    grid: xr.Dataset, tiles: Tiles, joint: JointPrediction, tiers: Sequence[Tier]
) -> xr.Dataset:
    """Return a grid with median and 95 % interval of further targets, and probabilities of tiers.

    `joint` are the predictions at the tiles, the first of which is the target of the grid. The
    variables are, for example, ``median_mbps_upload`` and ``p_tier_7_1``.
    """
    grid, frame = grid.copy(), Frame.of_tiles(tiles)

    def add(name: str, values: Floats, attributes: dict[str, Any]) -> None:
        placed = frame.place(tiles, values.astype(np.float32), np.nan)
        grid[name] = (("y", "x"), placed, attributes)
        grid[name].encoding |= grid["distance_km"].encoding
        grid[name].attrs |= {
            key: value
            for key, value in grid["distance_km"].attrs.items()
            if key not in {"long_name", "units"}
        }

    for name, marginal in list(zip(joint.names, joint.marginals, strict=True))[1:]:
        quantity = quantity_of(name)
        variables = marginal.variables(quantity, LEVEL)
        for start in SHOWN:
            values, label, unit = variables[f"{start}_{quantity.suffix}"]
            about = {"long_name": label, "units": unit}
            about |= {TARGET: name} if start == SHOWN[0] else {}
            add(f"{start}_{quantity.suffix}_{name}", values, about)
    for tier in tiers:
        about = {"long_name": f"probability of {tier.definition}", "units": "1", TIER: tier.name}
        add(tier.variable, tier.probability(joint), about)
    return grid
