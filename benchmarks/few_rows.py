"""Few rows: how the 95 % intervals of simulated regions hold fresh measurements.

    python benchmarks/few_rows.py

Each simulated region is mapped from few of its rows with the preset `quick`, once from rows
anywhere in it and once from rows in two clusters; the map's model then predicts 1,000 measurements
of the same simulation that it never saw, drawn as its rows were. Writes a Markdown and a JSON file.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from geogp.errors import GeogpError
from geogp.files import write_text
from geogp.geodata.simulation.simulated_tiles import Simulation, simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.runs.open_run import open_run
from geogp.runs.pipeline.make_map import make_map
from geogp.runs.settings import MapRequest

SIZES = (50, 100, 300)
LAYOUTS = ("anywhere", "two clusters")
QUARTERS = "2023Q3..2023Q4"
FRESH = 1000
HEADINGS = (
    "model",
    "rows",
    "where",
    "regions",
    "refused",
    "in the 50 %",
    "80 %",
    "95 % interval",
    "least (95 %)",
    "width",
    "log score",
    "mean alone",
)
ALL_ROWS = 6000
"""Rows of a simulation from which two clusters are cut."""


def draw(rows: int, layout: str, seed: int) -> tuple[Simulation, pd.DataFrame]:
    """Return a simulation of some rows, and the truth of `FRESH` other rows of the same law."""
    total = rows + FRESH if layout == LAYOUTS[0] else ALL_ROWS
    made = simulate(simple_region(), rows=total, quarters=parse_quarters(QUARTERS).all, seed=seed)
    rng = np.random.default_rng([seed, rows])
    place = made.truth[["longitude", "latitude"]].to_numpy()
    chosen = np.arange(total)
    if layout != LAYOUTS[0]:
        apart = [np.hypot(*(place - place[centre]).T) for centre in rng.integers(total, size=2)]
        chosen = np.argsort(np.min(apart, axis=0), kind="stable")[: rows + FRESH]
    chosen = rng.permutation(chosen)
    known = np.sort(chosen[:rows])
    tiles, truth = (table.iloc[known].reset_index(drop=True) for table in (made.tiles, made.truth))
    return replace(made, tiles=tiles, truth=truth), made.truth.iloc[chosen[rows:]]


def scored(rows: int, layout: str, seed: int, model: str) -> dict[str, Any]:
    """Map one region, and return how its intervals hold fresh measurements."""
    known, fresh = draw(rows, layout, seed)
    found: dict[str, Any] = {"rows": rows, "layout": layout, "seed": seed, "model": model}
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write_simulation(known, simple_region(), source)
        request = MapRequest(
            region="DEMO",
            source=str(source),
            boundaries=str(source / "boundaries"),
            model=model,
            preset="quick",
            zoom=11,
            out=Path(folder) / "run",
        )
        try:
            run = make_map(request)
            opened = open_run(run.path).reopen()
        except GeogpError as error:
            return {**found, "refused": str(error)}
        quarter = pd.PeriodIndex(fresh["quarter"], freq="Q")
        area = tile_areas_km2(fresh["latitude"].to_numpy())
        prediction = opened.model.predict_distribution(fresh.assign(quarter=quarter, area_km2=area))
    y = fresh["y"].to_numpy()
    for level in (50, 80, 95):
        lower, upper = prediction.interval(level / 100)
        found[f"coverage_{level}"] = float(((lower <= y) & (y <= upper)).mean())
    found["width_95"] = float((upper - lower).mean())
    found["log_score"] = float(prediction.log_score(y).mean())
    normal = 0.5 * np.log(2 * np.pi * known.truth["y"].var())
    deviation = y - known.truth["y"].mean()
    found["mean_alone"] = float(normal + (deviation**2).mean() / 2 / known.truth["y"].var())
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the Markdown of the figures."""
    lines = [
        "# Few rows",
        "",
        "    python benchmarks/few_rows.py",
        "",
        f"Simulated regions ({QUARTERS}, download), preset `quick`, each mapped from few rows and",
        f"scored on {FRESH:,} fresh measurements drawn as the rows were; pooled over the regions.",
        "Least: of a single region. Last column: the log score of one normal law that has mean and",
        "variance of the rows.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    data = pd.DataFrame(found)
    for (model, layout, rows), part in data.groupby(["model", "layout", "rows"], sort=False):
        good = part[part["coverage_95"].notna()]
        mean = good.mean(numeric_only=True)
        lines.append(
            f"| `{model}` | {rows} | {layout} | {len(part)} | {len(part) - len(good)} "
            f"| {mean['coverage_50']:.1%} | {mean['coverage_80']:.1%} | {mean['coverage_95']:.1%} "
            f"| {good['coverage_95'].min():.1%} | {mean['width_95']:.2f} "
            f"| {mean['log_score']:.3f} | {mean['mean_alone']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Map the regions and write their figures."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regions", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    parser.add_argument("--models", nargs="+", default=("field",))
    parser.add_argument("--table", type=Path, default=here / "results" / "few-rows")
    options = parser.parse_args(arguments)
    found = []
    for model in options.models:
        for layout in options.layouts:
            for rows in options.sizes:
                for seed in range(options.regions):
                    found.append(scored(rows, layout, seed, model))
                    print(json.dumps(found[-1]), flush=True)
    write_text(options.table / "table.md", table(found))
    write_text(options.table / "results.json", json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
