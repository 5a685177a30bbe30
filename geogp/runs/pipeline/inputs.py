"""How places and quarters become the inputs of models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.catalogue.model_names import find_model
from geogp.models.families.cox import OFFSET
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
    def columns(self) -> tuple[str, ...]:
        """Names of the inputs."""
        time = () if self.quarters is None else ("quarter",)
        return ("longitude", "latitude", *time, *self.offsets)

    @property
    def offsets(self) -> tuple[str, ...]:
        """Names of the inputs that the basis does not see."""
        return () if self.area_km2 is None else (OFFSET,)

    def inputs(self, longitude: Floats, latitude: Floats, quarter: NDArray[np.int64]) -> Floats:
        """Return inputs of shape (n, d), float64."""
        parts = [self.region.scale(longitude, latitude)]
        if self.quarters is not None:
            first, last = self.quarters
            parts.append(((2.0 * quarter - first - last) / (last - first))[:, None])
        if self.area_km2 is not None:
            parts.append(np.log(tile_areas_km2(latitude) / self.area_km2)[:, None])
        return np.hstack(parts)

    @property
    def units(self) -> tuple[float, ...]:
        """Kilometres, and quarters, that one unit of each input stands for."""
        time = () if self.quarters is None else ((self.quarters[1] - self.quarters[0]) / 2,)
        return (*self.region.half_size_km, *time, *(1.0 for _ in self.offsets))

    def described(self) -> dict[str, Any]:
        """Return what a saved model needs to be used again."""
        area = {} if self.area_km2 is None else {"area_km2": self.area_km2}
        return {"bounds": self.region.bounds, "quarters": self.quarters, **area}


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
