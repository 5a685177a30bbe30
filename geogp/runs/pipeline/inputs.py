"""How places and quarters become the inputs of models."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.estimators.point_columns import Points
from geogp.estimators.point_scale import PointScale
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.catalogue.model_names import find_model
from geogp.runs.settings import MapRequest

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class InputScale:
    """How places and quarters become inputs in [-1, 1]^d.

    Attributes
    ----------
    region
        Scales longitude and latitude by its bounding box.
    quarters
        First and last quarter index, scaled to -1 and 1; None for inputs of place alone.
    area_km2
        Area of a tile whose exposure is 1, for counts: the log exposure is one more input.
    """

    region: Region
    quarters: tuple[int, int] | None
    area_km2: float | None = None

    @property
    def points(self) -> PointScale:
        """How points of the region become inputs."""
        return PointScale(self.region.bounds, times=self.quarters, exposure=self.area_km2)

    def inputs(self, longitude: Floats, latitude: Floats, quarter: NDArray[np.int64]) -> Floats:
        """Return inputs of shape (n, d), float64."""
        area = None if self.area_km2 is None else tile_areas_km2(latitude)
        when = quarter.astype(np.float64)
        return self.points.inputs(Points(longitude, latitude, when, exposure=area))


def input_scale(request: MapRequest, region: Region, observations: Observations) -> InputScale:
    """Return the scale of the inputs that a request asks for.

    Raises
    ------
    RequestError
        It asks for quarters, and the rows are of one.
    """
    quarters = observations.quarters
    if request.inputs == "place-quarter" and len(quarters) == 1:
        raise RequestError(
            f"the only quarter with data is {quarter_label(quarters[0])}; "
            "--inputs place-quarter needs two or more."
        )
    timeless = request.inputs == "place" or len(quarters) == 1
    ends = None if timeless else (quarters[0], quarters[-1])
    if not find_model(request.model).counts:
        return InputScale(region, ends)
    return InputScale(region, ends, float(tile_areas_km2(observations.latitude).mean()))
