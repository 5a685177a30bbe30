"""How fast simulated tiles are read and their map is written; needs geopandas."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.runs.pipeline.make_map import make_map
from geogp.runs.settings import MapRequest


def region(*, quick: bool) -> dict[str, Any]:
    """Time the reading of simulated tiles and the writing of their map, at two sizes."""
    sizes, quarters = ([400, 800] if quick else [5_000, 20_000]), parse_quarters("2023Q3..2023Q4")
    read, written = [], []
    place = simple_region()
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            made = simulate(place, rows=rows, quarters=quarters.all, seed=1)
            write_simulation(made, place, source)
            request = MapRequest(
                region="DEMO",
                source=str(source),
                boundaries=str(source / "boundaries"),
                model="dbk-silu",
                preset="quick",
                epochs=1,
                out=Path(folder) / "run",
            )
            seconds = make_map(request).record.seconds
        read.append(seconds["read"])
        written.append(seconds["write"])
    return {
        "ingest_rows_per_second": sizes[-1] / read[-1],
        "map_write_seconds": written[-1],
        "region_slopes": {"read": _slope(sizes, read), "write": _slope(sizes, written)},
    }


def _slope(sizes: list[int], seconds: list[float]) -> float:
    """Return the exponent with which a time grows with a size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
