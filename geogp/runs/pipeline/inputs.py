"""Places and quarters as the table of a run's estimators."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.estimators.point_scale import PointScale
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.observations import Observations, quarter_periods
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.catalogue.model_names import find_model
from geogp.runs.settings import MapRequest

Floats = NDArray[np.float64]

COLUMNS = {"time": "quarter", "tests": "tests", "devices": "devices", "exposure": "area_km2"}
"""The columns of `place_table` by the estimator's parameters."""


def place_table(
    longitude: Floats, latitude: Floats, quarter: NDArray[np.int64], tests: int | None = None
) -> pd.DataFrame:
    """Return places in quarters, with the area of a tile at each, and tests unless None."""
    table = {
        "longitude": longitude,
        "latitude": latitude,
        "quarter": quarter_periods(quarter),
        "area_km2": tile_areas_km2(latitude),
    }
    counted = {} if tests is None else {"tests": np.full(len(longitude), tests)}
    return pd.DataFrame(table | counted)


def tile_table(tiles: Tiles, quarter: int, tests: int | None = None) -> pd.DataFrame:
    """Return the centres of tiles in one quarter; see `place_table`."""
    return place_table(*tiles.centres, np.full(len(tiles), quarter), tests)


def run_scale(request: MapRequest, region: Region, observations: Observations) -> PointScale:
    """Return the scale of the inputs of all fits of a run.

    The box is the region's box, the times are of all rows, and a count's exposure is its tile's
    area over the mean area, so that all splits and the map share one scale. RequestError where the
    request asks for quarters and the rows are of one quarter.
    """
    quarters = observations.quarters
    if request.inputs == "place-quarter" and len(quarters) == 1:
        raise RequestError(
            f"the only quarter with data is {quarter_label(quarters[0])}; "
            "--inputs place-quarter needs two or more."
        )
    timeless = request.inputs == "place" or len(quarters) == 1
    times = None if timeless else (quarters[0], quarters[-1])
    counts = find_model(request.model).counts
    area = float(tile_areas_km2(observations.latitude).mean()) if counts else None
    kind = None if times is None else "quarter"
    return PointScale(region.bounds, times=times, exposure=area, time_kind=kind)
