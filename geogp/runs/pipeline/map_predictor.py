"""Predictions of a map, in the map's quarter and in other quarters."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_cells import RepairPlaces
from geogp.evaluation.conformal.conformal_repair import Repair
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.geodata.tiles.quarters import quarter_label
from geogp.maps.page.kernel_basis import coarser
from geogp.maps.page.page_quantiles import QuarterMap
from geogp.maps.target_quantities import quantity_of
from geogp.models.names import find_model
from geogp.records.record_names import LEVEL
from geogp.runs.pipeline.read import Inputs
from geogp.runs.question import Question

OTHER_TILES = 150_000
"""Largest number of tiles of a map that shows other quarters on the same tiles."""

OTHER_LARGER = 40_000
"""Largest number of larger tiles for other quarters, if the map has too many tiles."""


@dataclass(frozen=True)
class MapPredictor:
    """Predicts the values of a map for any tiles and quarters.

    `repair` corrects predicted measurements, but not predicted levels. Predicted numbers of tests
    refer to tiles of the map's `zoom`, even for tiles of another zoom. `model` predicts the target
    of the map, and `every` all of several targets.
    """

    inputs: Inputs
    question: Question
    model: SpatialGP
    repair: Repair
    zoom: int
    every: SpatialGP | None = None

    def predict(self, tiles: Tiles, quarters: Sequence[int]) -> Prediction:
        """Return predictions at the centres of n tiles in q quarters, (q n,), sorted by quarter."""
        tables, columns = self.inputs.places, self.question.columns
        places = pd.concat([tables.of_tiles(tiles, quarter, **columns) for quarter in quarters])
        level = self.question.name == LEVEL
        law: Prediction = self.model.predict_distribution(places, level=level)
        if self.repair.n and not level:
            law = self.repair.apply(law, self._places(tiles, len(quarters)))
        return law.pooled(4 ** (ZOOM - self.zoom))

    def joint(self, tiles: Tiles) -> JointPrediction | None:
        """Return the joint predictions of several targets in the map's quarter; None for one."""
        if self.every is None:
            return None
        places = self.inputs.places.of_tiles(tiles, self.question.quarter, **self.question.columns)
        level = self.question.name == LEVEL
        joint: JointPrediction = self.every.predict_distribution(places, level=level)
        return joint

    def level(self, tiles: Tiles) -> NDArray[np.float64] | None:
        """Return the level of n tiles in the map's quarter, (n,), in the unit of the target.

        None if the map shows it anyway, or if the model has no process of single tiles, whose level
        of a tile is that of its surroundings.
        """
        if self.question.name == LEVEL or not find_model(self.model.model).has_tiles:
            return None
        law = replace(self, question=replace(self.question, name=LEVEL, tests=None, devices=None))
        predicted = law.predict(tiles, [self.question.quarter])
        return quantity_of(self.inputs.observations.target).scale.values(predicted.median)

    @contextmanager
    def remembering(self, tiles: Tiles) -> Iterator[Mapping[str, Tensor]]:
        """Keep the level of tiles in the quarter of the map; see `Model.remembering`."""
        question = self.question
        places = self.inputs.places.of_tiles(tiles, question.quarter, provider=question.provider)
        inputs, network = self.model.inputs(places), self.model.network_
        with network.remembering(inputs, question.tests, question.devices) as level:
            yield level

    def other_quarters(self, tiles: Tiles, quarters: Sequence[int], most: int) -> list[QuarterMap]:
        """Return predictions for other quarters, on larger tiles if there are more than `most`."""
        if not quarters:
            return []
        coarse = coarser(tiles, other_zoom(tiles, most // len(quarters)))
        law, n = self.predict(coarse, quarters), len(coarse)
        return [
            QuarterMap(quarter_label(quarter), coarse, law[place * n : (place + 1) * n])
            for place, quarter in enumerate(quarters)
        ]

    def _places(self, tiles: Tiles, times: int) -> RepairPlaces:
        """Return strata, tests (by default the median) and coordinates of tiles, for a repair."""
        region = self.inputs.region
        tests = float(self.question.tests or np.median(self.inputs.observations.tests))
        longitude, latitude = (np.tile(degrees, times) for degrees in tiles.centres)
        stratum = np.tile(region.stratum(*tiles.centres), times)
        tested = np.full(len(longitude), tests)
        return RepairPlaces(stratum, tested, longitude, latitude, region.strata_names)


def other_zoom(tiles: Tiles, most: int) -> int:
    """Return the highest zoom, up to the map's, with at most `most` tiles for other quarters."""
    most = min(most, OTHER_TILES if len(tiles) <= OTHER_TILES else OTHER_LARGER)
    zoom = tiles.zoom
    while zoom > 1 and len(coarser(tiles, zoom)) > most:
        zoom -= 1
    return zoom
