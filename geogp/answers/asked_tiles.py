"""What is asked of a run at places, and the answer that tiles.parquet has without the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.answers.map_tiles import TILES_FILE, MapTiles
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.targets import target_names
from geogp.geodata.tiles.thresholds import Threshold
from geogp.geodata.tiles.tiers import Tier
from geogp.maps.target_quantities import quantity_of
from geogp.models.names import find_model
from geogp.records.record_names import LEVEL
from geogp.records.run_record import OpenedRecord, given
from geogp.runs.file_records import damaged_files
from geogp.runs.question import Question

Floats = NDArray[np.float64]

LEVELS = (50, 80, 95)
"""Levels of the intervals in percent."""


@dataclass(frozen=True)
class OwnTiles:
    """The t different tiles of zoom 16 in which m places lie, in the order of the places.

    `place` is the index of each tile's tile in the map, (t,); `number` is the index of each place's
    tile, (m,).
    """

    code: NDArray[np.uint64]
    place: NDArray[np.int64]
    number: NDArray[np.intp]

    @classmethod
    def of_places(cls, longitude: Floats, latitude: Floats, place: NDArray[np.int64]) -> "OwnTiles":
        """Return the tiles of zoom 16 of m places; `place` are their tiles in the map."""
        code = quadkeys.tiles_to_codes(*quadkeys.tiles_at(longitude, latitude))
        # At the border, a tile of zoom 16 may have places in several tiles of the map.
        pairs = pd.MultiIndex.from_arrays([code, place])
        first = ~pairs.duplicated()
        return cls(code[first], place[first], pairs.factorize()[0])


@dataclass(frozen=True)
class Asked:
    """What is asked of a run: predictions of q quarters in t tiles of zoom 16.

    `target` is one of the run's targets; `tiers` are those of several.
    """

    record: OpenedRecord
    question: Question
    quarters: Sequence[int]
    thresholds: Sequence[Threshold]
    tiles: MapTiles
    own: OwnTiles
    target: str
    tiers: Sequence[Tier] = ()


def level_beside(record: OpenedRecord, question: Question) -> bool:
    """Return whether an answer has the level beside the median."""
    return find_model(record.model).has_tiles and question.name != LEVEL


def columns_of(
    record: OpenedRecord,
    question: Question,
    target: str,
    events: Sequence[Threshold | Tier],
) -> dict[str, str]:
    """Return the columns of an answer, each with the column of tiles.parquet that has its values.

    tiles.parquet has the 95 % interval without a level in the names of its ends. It has only some
    columns of targets after the first.
    """
    end = quantity_of(target).suffix
    bounds = {
        f"{side}_{level}_{end}": f"{side}_{end}" if level == LEVELS[-1] else f"{side}_{level}_{end}"
        for level in LEVELS
        for side in ("lower", "upper")
    }
    level = [f"level_{end}"] if level_beside(record, question) else []
    alike = [*level, *(event.variable for event in events)]
    names = {f"median_{end}": f"median_{end}", **bounds, **{name: name for name in alike}}
    if target == target_names(record.target)[0]:
        return names
    of_tiers = {event.variable for event in events if isinstance(event, Tier)}
    return {k: v if k in of_tiers else f"{v}_{target}" for k, v in names.items()}


def stored_columns(asked: Asked, folder: Path) -> pd.DataFrame | None:
    """Return the columns of an answer from tiles.parquet, (t,); None if it does not have them.

    It has them for the quantity and the quarter of the map, if the tiles of the map have zoom 16,
    for all values and thresholds with a column. The values are rounded to float32.
    """
    record, tiles, own = asked.record, asked.tiles, asked.own
    drawn = record.map
    wanted = drawn.question, drawn.tests, given(drawn.devices, None), [quarter_index(drawn.at)]
    question = asked.question
    if (question.name, question.tests, question.devices, [*asked.quarters]) != wanted:
        return None
    if tiles.zoom != quadkeys.ZOOM or (tiles.code[own.place] != own.code).any():
        return None
    names = columns_of(record, question, asked.target, (*asked.thresholds, *asked.tiers))
    absent = {*names.values()} - {*tiles.columns}
    if absent or damaged_files(folder, record, [TILES_FILE]):
        return None
    columns = {name: tiles.columns[column][own.place] for name, column in names.items()}
    return pd.DataFrame(columns).astype(np.float64)
