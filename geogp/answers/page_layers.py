"""Layers of the interactive page with answers: values of areas, and changes of tiles.

Each layer has a ``source``, which the page draws, and reads at a place:

- ``areas``: ``names`` of the areas; ``numbers``, the packed position of each tile's area in
  ``names``; ``times``, in order; ``bands``, for each time and area the lower end of the 95 %
  interval, the value, and the upper end; ``medians``, for each time and area the same of the
  medians that the map shows, or null. A change also has ``rose``, the probability of a rise of
  each area, and ``called``, whether the area has a direction;
- ``tiles``: packed ``mean`` and ``sd`` of the change of values of the model; ``times``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, defstruct

from geogp.answers.answer import Answer, AreaLayer, TileLayer
from geogp.errors import DataError
from geogp.evaluation.scores import Share
from geogp.maps.frame import Floats
from geogp.maps.page.packing import Packed, json_text, pack
from geogp.maps.page.page_layers import Layer, layer_json
from geogp.maps.page.page_quantiles import pack_within
from geogp.maps.rasters import read_geotiff
from geogp.records.checked_types import checked
from geogp.records.record_types import Text
from geogp.value_scales import DECIBELS, LOG10, PERCENT

TILE_TEXT = 600_000
"""Number of base64 bytes of the change of single tiles, above which its step is larger."""

ALL_TEXT = 1_500_000
"""Largest number of bytes of all layers of answers in a page."""

_DIGITS = 4
_MOST_IN = {8: 250, 16: 65_000, 32: np.inf}


def page_layers(folder: Path, answers: Sequence[Answer]) -> tuple[list[Layer], list[str]]:
    """Return the layers of answers in a run folder, and sentences about those that are left out.

    Values of the same areas at several times, in the order of the answers, are one layer. Of
    several changes, only the one between the latest quarters has a layer of tiles. A layer is left
    out if the page has no room for it, or if a raster of the answer is missing or damaged.
    """
    notes: list[str] = []
    levels: dict[str, list[_Areas]] = {}
    changes: dict[str, Layer] = {}
    tiles: dict[tuple[str, str], tuple[str, TileLayer]] = {}
    for answer in answers:
        try:
            areas = answer.areas and _areas(folder, answer.name, answer.areas, answer.content)
        except DataError as error:
            notes.append(left_out(answer.name, str(error)))
            continue
        if areas and not areas.layer.directed:
            levels.setdefault(areas.same, []).append(areas)
        elif areas:
            changes[answer.name] = _joined([areas])
        if answer.tiles:
            tiles.setdefault(answer.tiles.quarters[::-1], (answer.name, answer.tiles))
    made = [_joined(parts) for parts in levels.values()]
    if tiles:
        name, latest = tiles[max(tiles)]
        try:
            made.append(_tiles(folder, latest))
        except DataError as error:
            notes.append(left_out(name, str(error)))
    made += reversed(changes.values())
    room, layers = ALL_TEXT, []
    for layer in made:
        room -= len(json_text(layer))
        if room >= 0:
            layers.append(layer)
        else:
            notes.append(f"{layer['title']} is not on this map, which would be too large.")
    return layers, notes


def left_out(name: str, reason: str) -> str:
    """Return a sentence about an answer without a layer."""
    return f"{name} is not on this map: {reason}"


class _Areas(Struct, frozen=True):
    """The values of areas at one time, (areas, 3); parts with equal `same` are one layer."""

    layer: AreaLayer
    source: dict[str, Any]
    bands: Floats

    @property
    def same(self) -> str:
        view = self.layer.view
        return json_text([view.title, view.label, self.source["names"], self.source["numbers"]])


def _areas(folder: Path, name: str, layer: AreaLayer, content: dict[str, Any]) -> _Areas:
    """Return the values and the source of a layer of areas; raise DataError if a value is wrong."""
    columns = [*layer.band, *([layer.median] if layer.median else [])]
    kinds: dict[str, Any] = dict.fromkeys(columns, layer.kind | None)
    if layer.directed:
        kinds |= {"probability_rose": Share | None, "direction": str}
    row_type = defstruct("Area", [("area", Text), *kinds.items()], frozen=True)
    rows: list[Any] = checked(content["areas"], list[row_type], "the table of areas")  # type: ignore[valid-type]
    bands = np.array([[getattr(row, end) for end in layer.band] for row in rows], np.float64)
    if not np.isfinite(bands[:, 1]).any():
        raise DataError("no area has a value.")
    path = folder / f"{name}.tif"
    numbers = _raster(path) - 1
    if np.nanmax(numbers, initial=0) >= len(rows):
        raise DataError(f"{path.name} does not belong to its JSON file. Give the command again.")
    bits = next(bits for bits, most in _MOST_IN.items() if len(rows) <= most)
    source = {
        "names": [row.area for row in rows],
        "numbers": pack(numbers, 1.0, bits, none=True, offset=0.0),
        "times": [layer.time],
        "bands": [[[_short(end) for end in area] for area in bands.tolist()]],
        "medians": [[_short(getattr(row, layer.median or "", None)) for row in rows]],
        "what": layer.what,
    }
    if layer.directed:
        source["rose"] = [row.probability_rose for row in rows]
        source["called"] = [bool(row.direction) for row in rows]
    return _Areas(layer, source, bands)


def _joined(parts: list[_Areas]) -> Layer:
    """Return the layer of the same areas at one or more times, in order."""
    times = {name: [value for areas in parts for value in areas.source[name]] for name in _BY_TIME}
    middle = np.stack([areas.bands for areas in parts])[:, :, 1]
    last = parts[-1]
    return layer_json(last.layer.view, "", {"areas": last.source | times}, middle)


_BY_TIME = ("times", "bands", "medians")
"""Entries of a source that have a value for each time."""


def _tiles(folder: Path, layer: TileLayer) -> Layer:
    """Return the layer of the change of the level in single tiles."""
    change, sd = (_raster(folder / f"{name}.tif") for name in (layer.change, layer.sd))
    units = {scale.change_unit: scale for scale in (LOG10, DECIBELS, PERCENT)}
    scale = units[layer.view.unit]
    if scale.logarithmic and not np.nanmin(change, initial=0) > -100:
        raise DataError(f"{layer.change}.tif is damaged. Give the command again.")
    mean = scale.differences(change)

    def packed(step: float) -> list[Packed]:
        # The standard deviation varies little, and says how exactly the mean must be known.
        return [pack(mean, step, 16, none=True), pack(sd, step, 16, none=True)]

    planes = dict(
        zip(("mean", "sd"), pack_within(packed, TILE_TEXT, decade=scale.decade), strict=True)
    )
    source = {"tiles": planes | {"times": [" to ".join(layer.quarters)]}}
    return layer_json(layer.view, "", source, change)


def _raster(path: Path) -> Floats:
    """Return a raster of an answer, which must have the pixels of the run's map."""
    return read_geotiff(path, like=path.with_name("far.tif"))


def _short(value: float | None) -> float | None:
    known = value is not None and np.isfinite(value)
    return float(f"{value:.{_DIGITS}g}") if known else None
