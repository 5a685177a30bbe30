"""Finished run folders for the tests in a real browser: one made here, and those of GEOGP_RUNS."""

import json
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import xarray as xr
from shapely.geometry import MultiPolygon, box
from shapely.geometry.base import BaseGeometry

sys.path.insert(0, str(Path(__file__).parents[1]))

import pandas as pd
from run_worlds import Small, write_small

from geogp.answers.run import open_run
from geogp.distributions.prediction import Prediction
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.simulation.simulated_tiles import simple_region
from geogp.maps.frame import Frame
from geogp.runs.pipeline.map_predictor import MapPredictor
from geogp.runs.pipeline.repair import repair_of
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.pipeline.splits import map_calibration_rows
from geogp.runs.reopen import Reopened

GIVEN = [Path(text) for text in os.environ.get("GEOGP_RUNS", "").split(os.pathsep) if text]
"""Folders of runs to check besides the one made here."""

ACROSS = "across 180 degrees"


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its page and its grid."""

    path: Path

    @cached_property
    def page(self) -> str:
        return (self.path / "map.html").read_text("utf-8")

    @cached_property
    def data(self) -> dict[str, Any]:
        found = re.search(
            r'<script type="application/json" id="geogp-data">(.*?)</script>', self.page, re.DOTALL
        )
        return json.loads(found[1])

    @cached_property
    def grid(self) -> xr.Dataset:
        with xr.open_dataset(self.path / "grid.nc", mask_and_scale=False) as opened:
            return opened.load()

    @cached_property
    def opened(self) -> Reopened:
        return open_run(self.path, device="cpu").reopen()

    def values(self, name: str) -> np.ndarray:
        """Return a variable of the grid, (height, width), named without its unit."""
        unit = "ms" if self.data["target"] == "latency" else "mbps"
        return np.asarray(self.grid[f"{name}_{unit}"].to_numpy(), np.float64)

    @property
    def inside(self) -> np.ndarray:
        return self.grid["tests"].to_numpy() >= 0

    @cached_property
    def asker(self) -> MapPredictor:
        """What predicts the map's tiles, with the run's repair."""
        opened = self.opened
        settings, inputs, model = opened.settings, opened.inputs, opened.model
        rows = map_calibration_rows(settings, inputs)
        repair = repair_of(settings.conformal, inputs, model, rows)
        return MapPredictor(inputs, opened.question, model, repair, self.data["frame"]["zoom"])

    def law(self, at: tuple[int, int]) -> Prediction:
        """Return what the model predicts for a cell of the grid, (row, column)."""
        inside = np.zeros_like(self.inside)
        inside[at] = True
        tile = cells_of(inside, Frame(**self.data["frame"]))
        return self.asker.predict(tile, [self.asker.question.quarter])

    @property
    def frame(self) -> Frame:
        return Frame(**self.data["frame"])

    def places(self, tiles: Tiles) -> pd.DataFrame:
        """Return tiles as the model takes them, in the quarter of the map."""
        question = self.opened.question
        columns = {"provider": question.provider}
        return self.opened.inputs.places.of_tiles(tiles, question.quarter, **columns)


def cells_of(inside: np.ndarray, frame: Frame) -> Tiles:
    """Return the tiles of the cells of a frame that are marked, row by row."""
    row, column = np.nonzero(inside)
    return Tiles(column + frame.column, row + frame.row, frame.zoom)


def make_run(folder: Path) -> Run:
    """Make a small run, in two quarters and four counties, in some seconds."""
    small, region = write_small(folder / "source"), simple_region()
    west, south, east, north = region.bounds
    x, y = np.linspace(west, east, 3), np.linspace(south, north, 3)
    squares = [box(x[i], y[j], x[i + 1], y[j + 1]) for i in range(2) for j in range(2)]
    names = ["Añasco", "O'Brien", "St. Mary", "Vega"]
    write_counties(small, names, squares)
    result = run_map(small.request(folder / "run", split="random", far_km=4.0))
    return Run(result.path)


def make_run_across(folder: Path) -> Run:
    """Make a small run of a region across 180 degrees, its boundaries cut there as Census's are."""
    west, east = box(179.7, -17.1, 180, -16.7), box(-180, -17.1, -179.6, -16.7)
    islet = box(-179.05, -16.72, -179.0, -16.68)
    parts = MultiPolygon([west, east, islet])
    towns = MultiPolygon([box(179.9, -17, 180, -16.85), box(-180, -17, -179.85, -16.85)])
    region = Region.from_geometry("DEMO", "Taveuni", parts, towns, 2020)
    small = write_small(folder / "source", region)
    states = gpd.read_parquet(small.folder / "boundaries" / "states.parquet")
    states.set_geometry([parts], crs=states.crs).to_parquet(
        small.folder / "boundaries" / "states.parquet"
    )
    across = MultiPolygon([box(179.9, -17.1, 180, -16.7), box(-180, -17.1, -179.9, -16.7)])
    sides = [box(179.7, -17.1, 179.9, -16.7), across, box(-179.9, -17.1, -179.6, -16.7)]
    write_counties(small, ["Lau", "Middle", "Vuna"], sides)
    return Run(run_map(small.request(folder / "across", split="random", zoom=14)).path)


def write_counties(small: Small, names: list[str], shapes: list[BaseGeometry]) -> None:
    counties = gpd.GeoDataFrame({"NAME": names}, geometry=shapes, crs=4269)
    counties.to_parquet(small.folder / "boundaries" / "counties_DEMO.parquet")


def places_of(run: Run, rounds: int = 1) -> dict[str, tuple[int, int]]:
    """Return cells of the grid, (row, column), by what kind of place they are."""
    grid, inside = run.grid, run.inside
    tests, far = grid["tests"].to_numpy(), grid["far"].to_numpy()
    kinds = {
        "measured": tests > 0,
        "unmeasured": tests == 0,
        "far": far == 1,
        "near": inside & (far == 0),
    }
    if "urban" in grid:
        kinds |= {"urban": grid["urban"].to_numpy() == 1, "rural": grid["urban"].to_numpy() == 0}
    random, found = np.random.default_rng(5), {}
    for kind, where in kinds.items():
        row, column = np.nonzero(where)
        for turn in range(rounds if len(row) else 0):
            k = random.integers(len(row))
            found[f"{kind} {turn}"] = (int(row[k]), int(column[k]))
    row, column = np.nonzero(inside)
    ends = {"north": row.argmin(), "south": row.argmax(), "west": column.argmin()}
    ends["east"] = column.argmax()
    return found | {kind: (int(row[k]), int(column[k])) for kind, k in ends.items()}


MAKERS = {"small": make_run, ACROSS: make_run_across}
"""Runs made here."""

DEMO = "demo"
