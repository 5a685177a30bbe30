"""Layers of the interactive page with the answers of later commands: levels and changes.

Each layer has a ``source``, which the page draws, and reads at a place:

- ``areas``: ``names`` of the areas; ``numbers``, the packed position of each tile's area in
  ``names``; ``times``, in order; ``bands``, for each time and area the lower end of the 95 %
  interval, the value, and the upper end. A change also has ``rose``, the probability of a rise of
  each area, and ``called``, whether the area has a direction;
- ``tiles``: packed ``mean`` and ``sd`` of the change of log10; ``times``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geogp.errors import DataError
from geogp.maps.frame import Floats
from geogp.maps.page.packing import Packed, json_text, pack
from geogp.maps.page.page_layers import Layer, layer_json
from geogp.maps.page.page_quantiles import pack_within
from geogp.maps.rasters import read_geotiff
from geogp.maps.scales import CHANGE_PALETTE, SPEED_PALETTE, change_scale, speed_scale
from geogp.maps.views import HOW_FAST, WHAT_CHANGED, View

TILE_TEXT = 600_000
"""Number of base64 bytes of the change of single tiles, above which its step is larger."""

ALL_TEXT = 1_500_000
"""Largest number of bytes of all layers of answers in a page."""

_DIGITS = 4
_MOST_IN = {8: 250, 16: 65_000, 32: np.inf}

Told = dict[str, Any]


def level_column(told: Told) -> str:
    """Return the main quantity of an answer of `geogp areas`, such as ``level_mean``."""
    kind = "level" if told["for"] == "level" else "tile"
    return f"{kind}_weighted" if told.get("weights") else f"{kind}_mean"


def answer_layers(folder: Path, told: dict[str, Told]) -> list[Layer]:
    """Return the layers of answers in a run folder, as far as there is room for them in a page.

    `told` are the facts of each answer, by the name of its JSON file without its end. Levels of the
    same areas in several quarters are one layer. Of several changes, only the one between the
    latest quarters has a layer of tiles. An answer of an earlier version has no raster, and no
    layer. Raises DataError if a raster is damaged.
    """
    drawn = {stem: one for stem, one in told.items() if (folder / f"{stem}.tif").is_file()}
    levels: dict[str, list[str]] = {}
    for stem in (stem for stem in drawn if stem.startswith("areas_")):
        one = drawn[stem]
        same = [
            level_column(one),
            one.get("weights"),
            one["by"],
            *(row["area"] for row in one["areas"]),
        ]
        levels.setdefault(json_text(same), []).append(stem)
    made = [
        _levels(folder, sorted(stems, key=lambda stem: str(drawn[stem]["at"])), drawn)
        for stems in levels.values()
    ]
    changes = [stem for stem in drawn if stem.startswith("change_")]
    if changes:
        latest = max(changes, key=lambda stem: (drawn[stem]["to"], drawn[stem]["from"]))
        made.append(_tiles(folder, latest, drawn[latest]))
    made += [_change(folder, stem, drawn[stem]) for stem in reversed(changes)]
    room, layers = ALL_TEXT, []
    for layer in made:
        room -= len(json_text(layer))
        if room >= 0:
            layers.append(layer)
    return layers


def _levels(folder: Path, stems: list[str], told: dict[str, Told]) -> Layer:
    """Return the layer of the levels of areas in one or more quarters."""
    answers = [told[stem] for stem in stems]
    one, column = answers[-1], level_column(answers[-1])
    what = "level" if one["for"] == "level" else "mean of measurements"
    if one.get("weights"):
        what += f" by {Path(one['weights']).name}"
    unit, times = one["unit"], [str(each["at"]) for each in answers]
    ends = [f"{column}{end}_{unit.lower()}" for end in ("_lower", "", "_upper")]
    bands = [_bands(each, ends) for each in answers]
    view = View(
        stems[-1],
        "",
        f"{what[0].upper()}{what[1:]} by {_name(one)}",
        f"{what} by {_name(one)}, {unit}",
        SPEED_PALETTE,
        speed_scale,
        "The answer of geogp areas, for the quarters for which it was asked.",
        unit,
        HOW_FAST,
    )
    source = _areas(folder / f"{stems[-1]}.tif", one, times, bands) | {"what": what}
    return layer_json(view, "", {"areas": source}, np.stack(bands)[:, :, 1])


def _change(folder: Path, stem: str, told: Told) -> Layer:
    """Return the layer of the change of the level in areas."""
    times = f"{told['from']} to {told['to']}"
    bands = _bands(told, [f"change{end}_percent" for end in ("_lower", "", "_upper")])
    view = View(
        stem,
        "",
        f"Change by {_name(told)}, {times}",
        f"change of the level by {_name(told)}, %",
        CHANGE_PALETTE,
        change_scale,
        "The answer of geogp change. Striped: no direction, because the change may be chance.",
        "%",
        WHAT_CHANGED,
    )
    source = _areas(folder / f"{stem}.tif", told, [times], [bands]) | {
        "what": "change",
        "rose": [row["probability_rose"] for row in told["areas"]],
        "called": [bool(row["direction"]) for row in told["areas"]],
    }
    return layer_json(view, "", {"areas": source}, bands[:, 1])


def _tiles(folder: Path, stem: str, told: Told) -> Layer:
    """Return the layer of the change of the level in single tiles."""
    end = "_".join(stem.split("_")[-3:])
    percent, sd = (
        read_geotiff(folder / f"{name}_{end}.tif") for name in ("change_percent", "change_sd")
    )
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


def _name(told: Told) -> str:
    """Return the name of a division into areas: of a file of polygons, the name of the file."""
    return Path(told["by"]).name


def _bands(told: Told, columns: Sequence[str]) -> Floats:
    """Return columns of the areas of an answer, (areas, columns), NaN for no value."""
    rows = [[row[column] for column in columns] for row in told["areas"]]
    return np.array(rows, np.float64)


def _areas(path: Path, told: Told, times: list[str], bands: list[Floats]) -> dict[str, Any]:
    names = [row["area"] for row in told["areas"]]
    numbers = read_geotiff(path) - 1
    if np.nanmax(numbers, initial=0) >= len(names):
        raise DataError(f"{path} does not belong to its JSON file. Give the command again.")
    bits = next(bits for bits, most in _MOST_IN.items() if len(names) <= most)
    return {
        "names": names,
        "numbers": pack(numbers, 1.0, bits, none=True, offset=0.0),
        "times": times,
        "bands": [[[_short(end) for end in area] for area in one.tolist()] for one in bands],
    }


def _short(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
