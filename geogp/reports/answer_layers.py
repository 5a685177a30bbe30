"""Layers of the interactive page with the answers of later commands: levels and changes.

Each layer has a ``source``, which the page draws, and reads at a place:

- ``areas``: ``names`` of the areas; ``numbers``, the packed position of each tile's area in
  ``names``; ``times``, in order; ``bands``, for each time and area the lower end of the 95 %
  interval, the value, and the upper end. A change also has ``rose``, the probability of a rise of
  each area, and ``called``, whether the area has a direction;
- ``tiles``: packed ``mean`` and ``sd`` of the change of log10; ``times``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, defstruct, field

from geogp.errors import DataError
from geogp.evaluation.scores import Share
from geogp.maps.frame import Floats
from geogp.maps.page.packing import Packed, json_text, pack
from geogp.maps.page.page_layers import Layer, layer_json
from geogp.maps.page.page_quantiles import pack_within
from geogp.maps.rasters import read_geotiff
from geogp.maps.scales import CHANGE_PALETTE, SPEED_PALETTE, change_scale, speed_scale
from geogp.maps.views import HOW_FAST, WHAT_CHANGED, View
from geogp.records.checked_types import checked
from geogp.records.record_types import AboveZero, Name, Quarter, QuestionText, Some, Text
from geogp.reports.words import sample_words

TILE_TEXT = 600_000
"""Number of base64 bytes of the change of single tiles, above which its step is larger."""

ALL_TEXT = 1_500_000
"""Largest number of bytes of all layers of answers in a page."""

_DIGITS = 4
_MOST_IN = {8: 250, 16: 65_000, 32: np.inf}
_ENDS = ("_lower", "", "_upper")

_Rows = Annotated[list[Any], Meta(min_length=1)]
_Percent = Annotated[float, Meta(gt=-100, le=1e100)]


class _Levels(Struct, frozen=True):
    """What a layer needs to know of an answer of `geogp areas`, beside the values of its rows."""

    question: QuestionText = field(name="for")
    by: Name
    at: Quarter
    unit: Annotated[str, Meta(pattern="^[A-Za-z]+$", description="a unit")]
    areas: _Rows
    weights: Name | None = None
    tests: Some | None = field(name="tests_per_tile", default=None)
    devices: Some | None = field(name="devices_per_tile", default=None)

    @property
    def what(self) -> str:
        """The quantity in words."""
        words = "level" if self.question == "level" else "mean of measurements"
        if self.question != "level" and self.tests is not None:
            words += f" ({sample_words(self.tests, self.devices)})"
        return f"{words} by {Path(self.weights).name}" if self.weights else words


class _Changes(Struct, frozen=True):
    """What a layer needs to know of an answer of `geogp change`, beside the values of its rows."""

    by: Name
    start: Quarter = field(name="from")
    end: Quarter = field(name="to")
    areas: _Rows


def level_column(question: str, weights: str | None = None) -> str:
    """Return the main quantity of an answer of `geogp areas`, such as ``level_mean``."""
    kind = "level" if question == "level" else "tile"
    return f"{kind}_weighted" if weights else f"{kind}_mean"


def answer_layers(folder: Path, told: dict[str, Any]) -> tuple[list[Layer], list[str]]:
    """Return the layers of answers in a run folder, and sentences about those that are left out.

    `told` is the content of the JSON file of each answer, by the file's name without its end.
    Levels of the same areas in several quarters are one layer. Of several changes, only the one
    between the latest quarters has a layer of tiles. A layer is left out if the page has no room
    for it, or if the JSON file or a raster of the answer is missing or damaged.
    """
    made: list[Layer] = []
    notes: list[str] = []

    def tried(make: Callable[[Path, str, Any], Any], stem: str) -> Any:
        try:
            return make(folder, stem, told[stem])
        except DataError as error:
            notes.append(f"{stem} is not on this map: {error}")
            return None

    levels: dict[str, list[_Part]] = {}
    for stem in told:
        part = tried(_level, stem) if stem.startswith("areas_") else None
        if part:
            levels.setdefault(part.same, []).append(part)
    made += [_levels(sorted(parts, key=lambda part: part.told.at)) for parts in levels.values()]
    changes = {stem: tried(_change, stem) for stem in told if stem.startswith("change_")}
    changes = {stem: layer for stem, layer in changes.items() if layer}
    if changes:
        latest = max(changes, key=lambda stem: (told[stem]["to"], told[stem]["from"]))
        tiles = tried(_tiles, latest)
        made += [tiles] if tiles else []
    made += reversed(changes.values())
    room, layers = ALL_TEXT, []
    for layer in made:
        room -= len(json_text(layer))
        if room >= 0:
            layers.append(layer)
        else:
            notes.append(f"{layer['title']} is not on this map, which would be too large.")
    return layers, notes


class _Part(Struct, frozen=True):
    """The levels of areas in one quarter; parts with equal `same` are one layer."""

    stem: str
    told: _Levels
    source: dict[str, Any]
    bands: Floats

    @property
    def same(self) -> str:
        one = self.told
        held = [self.source[name] for name in ("what", "names", "numbers")]
        return json_text([one.by, one.weights, one.unit, *held])


def _level(folder: Path, stem: str, told: Any) -> _Part:
    one = checked(told, _Levels, "the JSON file")
    column, unit = level_column(one.question, one.weights), one.unit.lower()
    columns = [f"{column}{end}_{unit}" for end in _ENDS]
    rows = _rows(one.areas, dict.fromkeys(columns, AboveZero | None))
    bands = _bands(rows, columns)
    source = _areas(folder / f"{stem}.tif", rows, one.at, bands) | {"what": one.what}
    return _Part(stem, one, source, bands)


def _levels(parts: list[_Part]) -> Layer:
    """Return the layer of the levels of areas in one or more quarters, in order."""
    last = parts[-1]
    what, by, unit = last.told.what, Path(last.told.by).name, last.told.unit
    view = View(
        last.stem,
        "",
        f"{what[0].upper()}{what[1:]} by {by}",
        f"{what} by {by}, {unit}",
        SPEED_PALETTE,
        speed_scale,
        "The answer of geogp areas, for the quarters for which it was asked.",
        unit,
        HOW_FAST,
    )
    joined = {
        name: [one for part in parts for one in part.source[name]] for name in ("times", "bands")
    }
    middle = np.stack([part.bands for part in parts])[:, :, 1]
    return layer_json(view, "", {"areas": last.source | joined}, middle)


def _change(folder: Path, stem: str, told: Any) -> Layer:
    """Return the layer of the change of the level in areas."""
    one = checked(told, _Changes, "the JSON file")
    times, by = f"{one.start} to {one.end}", Path(one.by).name
    columns = [f"change{end}_percent" for end in _ENDS]
    kinds = dict.fromkeys(columns, _Percent | None)
    rows = _rows(one.areas, kinds | {"probability_rose": Share | None, "direction": str})
    bands = _bands(rows, columns)
    view = View(
        stem,
        "",
        f"Change by {by}, {times}",
        f"change of the level by {by}, %",
        CHANGE_PALETTE,
        change_scale,
        "The answer of geogp change. Striped: no direction, because the change may be chance.",
        "%",
        WHAT_CHANGED,
    )
    source = _areas(folder / f"{stem}.tif", rows, times, bands) | {
        "what": "change",
        "rose": [row.probability_rose for row in rows],
        "called": [bool(row.direction) for row in rows],
    }
    return layer_json(view, "", {"areas": source}, bands[:, 1])


def _tiles(folder: Path, stem: str, told: Any) -> Layer:
    """Return the layer of the change of the level in single tiles."""
    end = "_".join(stem.split("_")[-3:])
    percent, sd = (
        _raster(folder / f"{name}_{end}.tif") for name in ("change_percent", "change_sd")
    )
    if not np.nanmin(percent, initial=0) > -100:
        raise DataError(f"change_percent_{end}.tif is damaged. Give the command again.")
    mean = np.log10(1 + percent / 100)

    def packed(step: float) -> list[Packed]:
        # The standard deviation varies little, and says how exactly the mean must be known.
        return [pack(mean, step, 16, none=True), pack(sd, step, 16, none=True)]

    times = f"{told['from']} to {told['to']}"
    view = View(
        f"change_tiles_{end}",
        "",
        f"Change of the level, {times}",
        "median change of the level, %",
        CHANGE_PALETTE,
        change_scale,
        "The answer of geogp change for single tiles. Most of these changes are uncertain: click a "
        "tile for its interval.",
        "%",
        WHAT_CHANGED,
    )
    planes = dict(zip(("mean", "sd"), pack_within(packed, TILE_TEXT), strict=True))
    return layer_json(view, "", {"tiles": planes | {"times": [times]}}, percent)


def _rows(areas: list[Any], columns: dict[str, Any]) -> list[Any]:
    """Return the rows of a table of areas, with the types of the columns checked."""
    kind = defstruct("Area", [("area", Text), *columns.items()], frozen=True)
    return checked(areas, list[kind], "the table of areas")  # type: ignore[valid-type]


def _bands(rows: list[Any], columns: list[str]) -> Floats:
    """Return columns of areas, (areas, columns), NaN for no value."""
    found = np.array([[getattr(row, column) for column in columns] for row in rows], np.float64)
    if not np.isfinite(found[:, 1]).any():
        raise DataError("no area has a value.")
    return found


def _raster(path: Path) -> Floats:
    """Return a raster of an answer, which must have the pixels of the run's map."""
    return read_geotiff(path, like=path.with_name("far.tif"))


def _areas(path: Path, rows: list[Any], time: str, bands: Floats) -> dict[str, Any]:
    """Return the source of a layer of areas at one time."""
    numbers = _raster(path) - 1
    if np.nanmax(numbers, initial=0) >= len(rows):
        raise DataError(f"{path.name} does not belong to its JSON file. Give the command again.")
    bits = next(bits for bits, most in _MOST_IN.items() if len(rows) <= most)
    return {
        "names": [row.area for row in rows],
        "numbers": pack(numbers, 1.0, bits, none=True, offset=0.0),
        "times": [time],
        "bands": [[[_short(end) for end in area] for area in bands.tolist()]],
    }


def _short(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
