"""Simulated states side by side, as one source: what a batch is tried on."""

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import geopandas as gpd
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from shapely.affinity import translate

from geogp.files import write_bytes
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import ROW_GROUP, write_simulation
from geogp.geodata.tiles.quarters import parse_quarters

STEP = 1.3
"""Degrees from one state to the next, which is a little more than its width."""

BOUNDARIES = "boundaries"


def states_side_by_side(codes: Sequence[str], *, shift: float = 0.0) -> list[Region]:
    """Return copies of the demo's region, each farther east than the one before."""
    demo = simple_region()
    return [
        Region.from_geometry(
            code,
            f"State {code}",
            translate(demo.boundary, shift + STEP * place),
            translate(demo.strata.area, shift + STEP * place),
            2020,
        )
        for place, code in enumerate(codes)
    ]


def write_states(
    folder: Path, states: Sequence[Region], rows: int, quarters: str = "2023Q3..2023Q4"
) -> Path:
    """Write one source with the tiles and boundaries of several states, `rows` rows each."""
    parts = []
    for place, state in enumerate(states):
        part = folder / f".{place}"
        made = simulate(state, rows=rows, quarters=parse_quarters(quarters).all, seed=place)
        write_simulation(made, state, part)
        parts.append(part)
    for name in sorted(
        {p.relative_to(part) for part in parts for p in part.rglob("*_tiles.parquet")}
    ):
        table = pa.concat_tables([pq.read_table(part / name) for part in parts])
        stream = io.BytesIO()
        pq.write_table(table.sort_by("quadkey"), stream, row_group_size=ROW_GROUP)
        write_bytes(folder / name, stream.getvalue())
    boundaries = folder / BOUNDARIES
    boundaries.mkdir(parents=True, exist_ok=True)
    tables = [gpd.read_parquet(part / BOUNDARIES / "states.parquet") for part in parts]
    together = pd.concat(tables, ignore_index=True)
    together["STATEFP"] = [f"{place:02d}" for place in range(len(together))]
    together.to_parquet(boundaries / "states.parquet")
    for part in parts:
        for path in (part / BOUNDARIES).glob("urban_areas_*.parquet"):
            shutil.move(path, boundaries / path.name)
        shutil.move(part / "simulation.json", folder / "simulation.json")
        shutil.rmtree(part)
    return folder
