"""The cost of a batch, from measurements of single states and maps.

Seconds are those of one core. The time of each stage is a sum of non-negative rates times sizes,
fitted by least squares of the relative residuals; see `FORMULA`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from states_people import KNOWN_QUARTERS, rows_of

from geogp.models.catalogue.presets import find_preset

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

_ALL = ("fixed", "row", "tile")

Found = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """Rates of a stage: a constant, per row, and per tile."""

    fixed: float = 0.0
    row: float = 0.0
    tile: float = 0.0

    def of(self, rows: float, tiles: float, regions: float = 1.0) -> float:
        """Return the sum over `regions` regions with `rows` rows and `tiles` tiles in total."""
        return self.fixed * regions + self.row * rows + self.tile * tiles


def line_of(maps: list[Found], values: list[float], names: tuple[str, ...]) -> Line:
    """Fit the given rates out of ``fixed``, ``row``, ``tile`` to values above 0."""
    sizes = {"fixed": [1.0] * len(maps)}
    sizes |= {name: [float(one[f"{name}s"]) for one in maps] for name in ("row", "tile")}
    design = np.array([sizes[name] for name in names]).T / np.array(values)[:, None]
    widths = design.max(axis=0)
    rates, _ = scipy.optimize.nnls(design / widths, np.ones(len(maps)))
    return Line(**dict(zip(names, (rates / widths).tolist(), strict=True)))


def core_seconds(one: Found, stage: str) -> float:
    """Return the core seconds of a map's stage, its share of those of the process."""
    return float(one["stages"][stage] * one["cpu"]["map"] / one["seconds"]["map"])


@dataclass(frozen=True)
class ModelCost:
    """Rates of one model and preset.

    `fit` is per row and epoch, `fitted` the number of fitted rows per data row. `write`,
    `run_bytes` and `peak` are those of the model with any preset.
    """

    fit: float
    fitted: float
    predict: Line
    write: Line
    run_bytes: Line
    peak: Line


@dataclass(frozen=True)
class Costs:
    """All rates; `models` by model and preset."""

    read: Line
    models: dict[tuple[str, str], ModelCost]

    def seconds(
        self,
        kind: tuple[str, str],
        rows: float,
        tiles: float,
        *,
        epochs: int,
        regions: float = 1.0,
        fitted_rows: float | None = None,
    ) -> dict[str, float]:
        """Return core seconds by stage."""
        model = self.models[kind]
        fitted = model.fitted * rows if fitted_rows is None else fitted_rows
        return {
            "read": self.read.of(rows, tiles, regions),
            "fit": model.fit * fitted * epochs,
            "predict": model.predict.of(rows, tiles, regions),
            "write": model.write.of(rows, tiles, regions),
        }


def kind_of(one: Found) -> tuple[str, str]:
    """Return model and preset of a map."""
    return one["model"], one["preset"]


def costs_of(maps: list[Found]) -> Costs:
    """Return the rates that fit the given maps best."""
    models = {}
    for kind in dict.fromkeys(map(kind_of, maps)):
        own = [one for one in maps if kind_of(one) == kind]
        tiles = [one["tiles"] for one in own]
        if max(tiles) < SPREAD * min(tiles):
            continue  # the cost of a tile cannot be estimated
        passes = [one["fitted_rows"] * one["epochs"] for one in own]
        model = [one for one in maps if one["model"] == kind[0]]
        models[kind] = ModelCost(
            sum(core_seconds(one, "fit") for one in own) / sum(passes),
            sum(one["fitted_rows"] for one in own) / sum(one["rows"] for one in own),
            line_of(own, [core_seconds(one, "predict") for one in own], ("row", "tile")),
            line_of(model, [core_seconds(one, "write") for one in model], _ALL),
            line_of(model, [one["bytes"] for one in model], _ALL),
            line_of(model, [one["peak_bytes"] for one in model], _ALL),
        )
    reading = [core_seconds(one, "read") for one in maps]
    return Costs(line_of(maps, reading, ("fixed", "row")), models)


def residuals(maps: list[Found], costs: Costs) -> list[Found]:
    """Return measured and modelled costs of each map, for models and presets with rates."""
    found = []
    for one in maps:
        if kind_of(one) not in costs.models:
            continue
        model = costs.models[kind_of(one)]
        told = costs.seconds(
            kind_of(one),
            one["rows"],
            one["tiles"],
            epochs=one["epochs"],
            fitted_rows=one["fitted_rows"],
        )
        found.append(
            {
                "case": one["case"],
                "measured": {stage: core_seconds(one, stage) for stage in told},
                "predicted": told,
                "peak": (one["peak_bytes"], model.peak.of(one["rows"], one["tiles"])),
                "bytes": (one["bytes"], model.run_bytes.of(one["rows"], one["tiles"])),
            }
        )
    return found


@dataclass(frozen=True)
class Extent:
    """Rows, tiles and regions of a batch, with rows and tiles of regions that may be largest."""

    name: str
    rows: float
    tiles: float
    regions: float
    each: tuple[tuple[float, float], ...]


def extents(regions: Found) -> list[Extent]:
    """Return the United States in all quarters and in one quarter, and the world in one quarter."""
    rows = {code: float(rows_of(code)) for code in regions}
    drawn = {code: float(one["map_tiles"]) for code, one in regions.items()}
    full = {code: float(one["tiles"]) for code, one in regions.items()}
    many = {code: value / KNOWN_QUARTERS for code, value in rows.items()}
    name = f"{len(regions)} states"

    def whole(label: str, sizes: dict[str, float], tiles: dict[str, float]) -> Extent:
        each = tuple((sizes[code], tiles[code]) for code in regions)
        return Extent(label, sum(sizes.values()), sum(tiles.values()), len(regions), each)

    ratio = WORLD_LAND_KM2 / sum(one["km2"] for one in regions.values())
    share = WORLD_ROWS / (ratio * sum(many.values()))
    return [
        whole(f"{name}, {KNOWN_QUARTERS} quarters", rows, drawn),
        whole(f"{name}, {KNOWN_QUARTERS} quarters, zoom 16 throughout", rows, full),
        whole(f"{name}, one quarter", many, drawn),
        Extent(
            "the world, one quarter",
            WORLD_ROWS,
            ratio * sum(drawn.values()),
            ratio * len(regions),
            tuple((share * many[code], drawn[code]) for code in regions),
        ),
    ]


def bills(costs: Costs, regions: Found, bytes_a_row: float) -> list[Found]:
    """Return core-hours, bytes and peak memory of each extent, model and preset."""
    found = []
    for kind, model in costs.models.items():
        for extent in extents(regions):
            spent = costs.seconds(
                kind,
                extent.rows,
                extent.tiles,
                epochs=find_preset(kind[1], kind[0]).epochs,
                regions=extent.regions,
            )
            found.append(
                {
                    "model": kind[0],
                    "preset": kind[1],
                    "extent": extent.name,
                    "rows": extent.rows,
                    "tiles": extent.tiles,
                    "hours": {stage: value / 3600 for stage, value in spent.items()},
                    "source_bytes": bytes_a_row * extent.rows,
                    "run_bytes": model.run_bytes.of(extent.rows, extent.tiles, extent.regions),
                    "peak_bytes": max(model.peak.of(*one) for one in extent.each),
                }
            )
    return found
