"""Few rows: coverage of new measurements by the 95 % intervals in simulated regions.

    python -m benchmarks.accuracy.few_rows

Each simulated region is mapped from few of its rows with the preset `quick`, once from rows
anywhere in the region and once from rows in two clusters. The map's model then predicts 1,000
measurements of the same simulation that were not used in the fit and are drawn like its rows.
Writes a Markdown and a JSON file.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

import geogp
from benchmarks.trial import Figures, command, parser, table, write_results
from geogp.errors import GeogpError
from geogp.evaluation.metrics import score
from geogp.geodata.simulation.simulated_tiles import Simulation, simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.quarters import parse_quarters

SIZES = (50, 100, 300)
LAYOUTS = ("anywhere", "two clusters")
QUARTERS = "2023Q3..2023Q4"
FRESH = 1000
ALL_ROWS = 6000
"""Rows of a simulation from which two clusters are cut."""

HEADER = (
    *("model", "rows", "where", "regions", "refused", "in the 50 %", "80 %", "95 % interval"),
    *("least (95 %)", "width", "log score", "mean alone"),
)


def draw(rows: int, layout: str, seed: int) -> tuple[Simulation, pd.DataFrame]:
    """Return a simulation of some rows, and the truth of `FRESH` other rows drawn like them."""
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
    fresh = made.truth.assign(devices=made.tiles["devices"])
    return replace(made, tiles=tiles, truth=truth), fresh.iloc[chosen[rows:]]


def scored(rows: int, layout: str, seed: int, model: str) -> Figures:
    """Map one region, and return coverage and scores on new measurements."""
    known, fresh = draw(rows, layout, seed)
    found: Figures = {"rows": rows, "layout": layout, "seed": seed, "model": model}
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write_simulation(known, simple_region(), source)
        try:
            run = geogp.make_map(
                "DEMO",
                source=str(source),
                boundaries=str(source / "boundaries"),
                model=model,
                preset="quick",
                zoom=11,
                out=Path(folder) / "run",
            )
        except GeogpError as error:
            return {**found, "refused": str(error)}
        quarter = pd.PeriodIndex(fresh["quarter"], freq="Q")
        area = tile_areas_km2(fresh["latitude"].to_numpy())
        prediction = run.model.predict_distribution(fresh.assign(quarter=quarter, area_km2=area))
    y, own = fresh["y"].to_numpy(), known.truth["y"]
    scores = score(prediction, y)
    alone = 0.5 * np.log(2 * np.pi * own.var()) + ((y - own.mean()) ** 2).mean() / 2 / own.var()
    return {
        **found,
        "coverage_50": scores.coverage_50,
        "coverage_80": scores.coverage_80,
        "coverage_95": scores.coverage_95,
        "width_95": scores.width_95,
        "log_score": scores.nll,
        "mean_alone": float(alone),
    }


def page(found: Sequence[Figures]) -> str:
    """Return the Markdown of the figures."""
    lines = []
    data = pd.DataFrame(found)
    for (model, layout, rows), part in data.groupby(["model", "layout", "rows"], sort=False):
        good = part[part["coverage_95"].notna()]
        mean = good.mean(numeric_only=True)
        lines.append(
            (
                *(f"`{model}`", rows, layout, len(part), len(part) - len(good)),
                *(f"{mean[f'coverage_{level}']:.1%}" for level in (50, 80, 95)),
                *(f"{good['coverage_95'].min():.1%}", f"{mean['width_95']:.2f}"),
                *(f"{mean['log_score']:.3f}", f"{mean['mean_alone']:.3f}"),
            )
        )
    return f"""# Few rows

    python -m benchmarks.accuracy.few_rows

Simulated regions ({QUARTERS}, download), preset `quick`, each mapped from few rows and
scored on {FRESH:,} new measurements drawn like the rows; pooled over the regions.
`least (95 %)` is the lowest coverage in a single region. The last column is the log score
of one normal distribution with mean and variance of the rows.

{table(HEADER, lines, left=(0, 2))}"""


@command
def main() -> None:
    """Map the regions and write their figures."""
    asked = parser(__doc__, table="few-rows", regions=20)
    asked.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    asked.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    asked.add_argument("--models", nargs="+", default=("field",))
    options = asked.parse_args()
    found = []
    cases = product(options.models, options.layouts, options.sizes, range(options.regions))
    for model, layout, rows, seed in cases:
        found.append(scored(rows, layout, seed, model))
        print(json.dumps(found[-1]), flush=True)
    write_results(options.table, page(found), found)


if __name__ == "__main__":
    sys.exit(main())
