"""Speed of reading simulated tiles and writing their map; needs geopandas."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from trial import Figures

import geogp
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quarters import parse_quarters


def region(slope: Callable[[list[int], list[float]], float], *, quick: bool) -> Figures:
    """Time the reading of simulated tiles and the writing of their map, at two sizes."""
    sizes, quarters = ([400, 800] if quick else [5_000, 20_000]), parse_quarters("2023Q3..2023Q4")
    seconds, place = [], simple_region()
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            made = simulate(place, rows=rows, quarters=quarters.all, seed=1)
            write_simulation(made, place, source)
            run = geogp.make_map(
                "DEMO",
                source=str(source),
                boundaries=str(source / "boundaries"),
                model="dbk-silu",
                preset="quick",
                epochs=1,
                out=Path(folder) / "run",
            )
            seconds.append(run.record.seconds)
    read, written = ([taken[part] for taken in seconds] for part in ("read", "write"))
    return {
        "ingest_rows_per_second": sizes[-1] / read[-1],
        "map_write_seconds": written[-1],
        "region_slopes": {"read": slope(sizes, read), "write": slope(sizes, written)},
    }
