"""The cost of a batch, from measurements of single states and maps.

Seconds are those of one core. The time of each stage is a sum of non-negative rates times sizes,
fitted by least squares of the relative residuals; see `FORMULA`. Sizes are the numbers of regions,
rows and tiles, in this order, and rates belong to them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize

from benchmarks.script import Floats
from benchmarks.speed.states_people import KNOWN_QUARTERS, rows_of
from geogp.models.presets import find_preset

WORLD_ROWS = 10_000_000
"""Assumed rows of a quarter of the whole world, about 4 million mobile and 6 million fixed."""

WORLD_LAND_KM2 = 134_700_000
"""Land without Antarctica (CIA World Factbook: 148.94 minus 14.2 million km²)."""

FORMULA = """\
Seconds of one core for a region of n rows and T tiles, at E epochs of the preset:

    read     a0 + a1 n
    fit      b f n E            f: rows of all fits of the preset in an epoch, per data row
    predict  c1 n + c2 T
    write    d0 + d1 n + d2 T

b, c and f are estimated for each model and preset with two maps or more, the largest with ten times
the tiles of the smallest; d for each model; a from all maps. Bytes of a run and peak memory are
e0 + e1 n + e2 T each, for each model. Rates are 0 or more, by least squares of relative residuals.
"""

SPREAD = 10
"""Least ratio of tiles in the largest and the smallest map, to estimate the cost of a tile."""

Found = dict[str, Any]
Kind = tuple[str, str]
"""Model and preset."""


def sizes_of(one: Found) -> Floats:
    """Return the sizes of a map."""
    return np.array([1.0, one["rows"], one["tiles"]])


def rates_of(maps: list[Found], values: list[float], estimated: str = "region row tile") -> Floats:
    """Return the rates that fit values above 0 best; those that are not `estimated` are 0."""
    used = [name in estimated for name in ("region", "row", "tile")]
    design = np.array([sizes_of(one) for one in maps])[:, used] / np.array(values)[:, None]
    widths = design.max(axis=0)
    rates = np.zeros(3)
    rates[used] = scipy.optimize.nnls(design / widths, np.ones(len(maps)))[0] / widths
    return rates


def core_seconds(one: Found, stage: str) -> float:
    """Return the core seconds of a map's stage: its share of the core seconds of the process."""
    return float(one["stages"][stage] * one["cpu"]["map"] / one["seconds"]["map"])


@dataclass(frozen=True)
class Cost:
    """Rates of a model and preset; `read` is that of all, `write` and the last two of the model.

    `fit` is per row and epoch, `fitted` the number of fitted rows per data row.
    """

    fit: float
    fitted: float
    read: Floats
    predict: Floats
    write: Floats
    run_bytes: Floats
    peak: Floats

    def seconds(self, sizes: Floats, passes: float) -> dict[str, float]:
        """Return core seconds by stage; `passes` is the number of fitted rows of all epochs."""
        read, predict, write = (float(r @ sizes) for r in (self.read, self.predict, self.write))
        return {"read": read, "fit": self.fit * passes, "predict": predict, "write": write}


def kind_of(one: Found) -> Kind:
    """Return model and preset of a map."""
    return one["model"], one["preset"]


def passes_of(one: Found) -> float:
    """Return the number of fitted rows of all epochs of a map."""
    return float(one["fitted_rows"] * one["epochs"])


def costs_of(maps: list[Found]) -> dict[Kind, Cost]:
    """Return the rates that fit the given maps best."""
    read = rates_of(maps, [core_seconds(one, "read") for one in maps], "region row")
    found = {}
    for kind in dict.fromkeys(map(kind_of, maps)):
        own = [one for one in maps if kind_of(one) == kind]
        tiles = [one["tiles"] for one in own]
        if max(tiles) < SPREAD * min(tiles):
            continue  # the cost of a tile cannot be estimated
        model = [one for one in maps if one["model"] == kind[0]]
        found[kind] = Cost(
            sum(core_seconds(one, "fit") for one in own) / sum(map(passes_of, own)),
            sum(one["fitted_rows"] for one in own) / sum(one["rows"] for one in own),
            read,
            rates_of(own, [core_seconds(one, "predict") for one in own], "row tile"),
            rates_of(model, [core_seconds(one, "write") for one in model]),
            rates_of(model, [one["bytes"] for one in model]),
            rates_of(model, [one["peak_bytes"] for one in model]),
        )
    return found


def residuals(maps: list[Found], costs: dict[Kind, Cost]) -> list[Found]:
    """Return measured and modelled costs of each map, for models and presets with rates."""
    found = []
    for one in maps:
        if kind_of(one) in costs:
            cost, sizes = costs[kind_of(one)], sizes_of(one)
            told = cost.seconds(sizes, passes_of(one))
            found.append(
                {
                    "case": one["case"],
                    "measured": {stage: core_seconds(one, stage) for stage in told},
                    "predicted": told,
                    "peak": (one["peak_bytes"], cost.peak @ sizes),
                    "bytes": (one["bytes"], cost.run_bytes @ sizes),
                }
            )
    return found


def batches(regions: Found) -> dict[str, tuple[Floats, float]]:
    """Return the sizes of the regions of each batch, (n, 3), and how often each of them occurs."""
    rows = np.array([rows_of(code) for code in regions], np.float64)
    full, drawn, land = (
        np.array([one[name] for one in regions.values()], np.float64)
        for name in ("tiles", "map_tiles", "km2")
    )
    quarter, times = rows / KNOWN_QUARTERS, WORLD_LAND_KM2 / land.sum()
    whole = f"{len(regions)} states, {KNOWN_QUARTERS} quarters"
    found = {
        whole: (rows, drawn, 1.0),
        f"{whole}, zoom 16 throughout": (rows, full, 1.0),
        f"{len(regions)} states, one quarter": (quarter, drawn, 1.0),
        "the world, one quarter": (quarter * WORLD_ROWS / times / quarter.sum(), drawn, times),
    }
    return {
        name: (np.column_stack([np.ones_like(some), some, tiles]), often)
        for name, (some, tiles, often) in found.items()
    }


def bills(costs: dict[Kind, Cost], regions: Found, bytes_a_row: float) -> list[Found]:
    """Return core-hours, bytes and peak memory of each batch, model and preset."""
    found = []
    for kind, cost in costs.items():
        epochs = find_preset(kind[1], kind[0]).epochs
        for name, (each, times) in batches(regions).items():
            total = times * each.sum(axis=0)
            spent = cost.seconds(total, cost.fitted * total[1] * epochs)
            found.append(
                {
                    "model": kind[0],
                    "preset": kind[1],
                    "extent": name,
                    "rows": total[1],
                    "tiles": total[2],
                    "hours": {stage: value / 3600 for stage, value in spent.items()},
                    "source_bytes": bytes_a_row * total[1],
                    "run_bytes": cost.run_bytes @ total,
                    "peak_bytes": max(each @ cost.peak),
                }
            )
    return found
