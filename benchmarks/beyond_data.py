"""Measured data whose east has no training rows: satellite temperatures, and tiles of Ookla."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.spatial import TEMPERATURES
from benchmarks.answers.far_from_data import rows_of as ookla_rows
from benchmarks.beyond_cases import Draw, World, numbers, rows_of
from benchmarks.script import HERE

EAST = 0.3
"""Share of the rows in the east."""

CELLS = 10
"""Blocks of test rows are the cells of a grid with so many columns and rows."""

QUARTERS = "2023Q1..2023Q4"


def folder() -> Path:
    """Return the folder of the real data: GEOGP_REAL_DATA, or shared/data beside the checkout."""
    return Path(os.environ.get("GEOGP_REAL_DATA") or HERE.parents[1] / "shared" / "data")


def held_east(table: pd.DataFrame, columns: dict[str, Any], rng: Draw, n: int) -> World:
    """Return a world of random rows with a column ``value``, of which at most n are trained on."""
    table = table.sample(frac=1, random_state=rng)
    degrees = table[[columns["x"], columns["y"]]].to_numpy(np.float64)
    place = degrees * [np.cos(np.radians(degrees[:, 1].mean())), 1]
    beyond = place[:, 0] > np.quantile(place[:, 0], 1 - EAST)
    some = [
        np.flatnonzero(where)[:count]
        for where, count in zip((~beyond, beyond), numbers(n), strict=True)
    ]
    rows = rows_of(*(place[each] for each in some))
    chosen, test = table.iloc[np.concatenate(some)], rows.test
    span = place.max(0) - place.min(0)
    cells = (CELLS * (rows.points[test] - place.min(0)) / span).astype(int)
    blocks = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
    return World(chosen[~test], chosen[test], rows.classes[test], columns, blocks=blocks)


def satellite(path: Path, rng: Draw, n: int) -> World:
    """Return rows of the satellite temperatures of `spatial.py`."""
    kind = TEMPERATURES
    table = pd.read_parquet(path, columns=[kind.x, kind.y, kind.value]).dropna()
    table = table.rename(columns={kind.value: "value"})
    return held_east(table, {"x": kind.x, "y": kind.y, "crs": kind.crs}, rng, n)


def puerto_rico(path: Path, rng: Draw, n: int) -> World:
    """Return tiles of Ookla: log10 of the download speed in four quarters."""
    how = argparse.Namespace(source=path, boundaries=path.parent / "census", quarters=QUARTERS)
    table = ookla_rows(how, "PR", "download").rename(columns={"y": "value"})
    table["quarter"] = pd.PeriodIndex(table["quarter"]).asi8
    columns = {"x": "longitude", "y": "latitude", "crs": "EPSG:4326"}
    columns |= {"time": "quarter", "time_unit": "quarter", "tests": "tests", "devices": "devices"}
    names = ["longitude", "latitude", "quarter", "tests", "devices", "value"]
    return held_east(table[names], columns, rng, n)


DATA: dict[str, tuple[str, Callable[[Path, Draw, int], World]]] = {
    "satellite": ("spatial/heaton-satellite.parquet", satellite),
    "puerto-rico": ("ookla-open-data", puerto_rico),
}
"""Path of each source in the folder of the real data, and its reader."""
