"""Tables of places and quarters for a run's estimators, and the scale of their inputs."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.estimators.point_scale import PointScale, covariate_scales
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.observations import Observations, quarter_periods
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.catalogue.model_names import find_model
from geogp.runs.settings import MapRequest

Floats = NDArray[np.float64]

COLUMNS = {"time": "quarter", "tests": "tests", "devices": "devices", "exposure": "area_km2"}
"""Columns of `place_table`, by the estimator's parameter that names the column."""


def place_table(
    longitude: Floats, latitude: Floats, quarter: NDArray[np.int64], **counts: int | None
) -> pd.DataFrame:
    """Return a table of places in quarters, with the area of a tile at each place.

    Each of `counts`, such as `tests` or `devices`, adds a column with this number in all rows; None
    adds no column.
    """
    table = {
        "longitude": longitude,
        "latitude": latitude,
        "quarter": quarter_periods(quarter),
        "area_km2": tile_areas_km2(latitude),
    }
    known = {name: count for name, count in counts.items() if count is not None}
    return pd.DataFrame(table).assign(**known)


def run_scale(
    request: MapRequest, region: Region, observations: Observations, covariates: pd.DataFrame
) -> PointScale:
    """Return the scale of the inputs of all fits of a run.

    The scale comes from the box of the region and the times of all rows, so all splits and the map
    share it. The exposure of a count is the area of its tile divided by the mean area. Raises
    RequestError if the request asks for quarters as inputs, but all rows are of one quarter.
    `covariates` are the covariates of all rows.
    """
    quarters = observations.quarters
    if request.inputs == "place-quarter" and len(quarters) == 1:
        raise RequestError(
            f"--inputs place-quarter needs data of two quarters or more, but the only quarter with "
            f"data is {quarter_label(quarters[0])}. Choose more quarters, or --inputs place."
        )
    timeless = request.inputs == "place" or len(quarters) == 1
    times = None if timeless else (quarters[0], quarters[-1])
    counts = find_model(request.model).counts
    area = float(tile_areas_km2(observations.latitude).mean()) if counts else None
    kind = None if times is None else "quarter"
    drift = covariate_scales(list(map(str, covariates)), covariates.to_numpy(np.float64))
    return PointScale(region.bounds, times=times, exposure=area, time_kind=kind, covariates=drift)
