"""Whether measuring the tiles of `geogp next` reduces the error of the level, in known worlds.

    geogp demo --out runs/demo
    python -m benchmarks answers.next_tiles runs/demo

The covariance of the level depends on place and time of measurements and on the fitted parameters,
not on measured values. So one choice of tiles is tried in many worlds. Each world has the tiles,
quarters and numbers of tests of the demo's rows, with new values from the demo's model: the same
smooth field, new effects of single tiles and new noise. In each world the posterior is computed
from the rows. Then the chosen tiles are measured, with noise from the same distribution, and the
level of all tiles is compared with the truth. Basis and parameters are those fitted to the demo.
Writes JSON and a Markdown table.
"""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.answers.areas import with_targets
from benchmarks.markdown import mean_and_error, table
from benchmarks.script import Figures, Floats, parser, write_results
from geogp.answers.run import open_run
from geogp.errors import DataError
from geogp.geodata.simulation.truth import (
    Grid,
    PlanePlaces,
    TruthLaw,
    field,
    laws_of,
    measurement_variance,
    places_of,
    tile_process,
)
from geogp.geodata.tiles.quadkeys import ZOOM, format_quadkeys, tiles_at, tiles_to_codes
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.field.fitted import FittedField
from geogp.models.joint.design import (
    LevelCovariance,
    SequentialDesign,
    choose,
    covariance_of,
    widest,
)
from geogp.models.joint.level import JointLevel, joint_level
from geogp.runs.reopen import Reopened

Indices = NDArray[np.int64]

GREEDY, WIDEST, TOP, RANDOM = "greedy", "widest, updated", "widest at once", "random"


@dataclass(frozen=True)
class Truth:
    """The distribution of the demo, and the places of its rows."""

    law: TruthLaw
    grid: Grid
    places: PlanePlaces  # the centres of the region's tiles
    quarters: tuple[int, ...]  # quarters of the rows and of the map
    tile: Indices  # number of the tile of each row
    when: Indices  # position of the quarter of each row in `quarters`
    tests: Indices  # number of tests of each row
    now: int  # number of the map's quarter

    @classmethod
    def of(cls, opened: Reopened, seed: int = 0) -> "Truth":
        """Compute the distribution of a simulated run; compare it with the source's truth."""
        region, model, scale = opened.inputs.region, opened.model.network_, opened.plan.model.scale
        if opened.tiles.zoom != ZOOM or scale.times is None:
            raise DataError(f"expected a map of zoom {ZOOM} with several quarters.")
        assert isinstance(model, FittedField), "only the model field contains its rows"
        grid = Grid.of(region)
        law = laws_of(grid, seed)["download"]
        places = places_of(region, grid, law.urban_smoothing_km)
        x = model.rows.x.cpu().double().numpy()
        west, south, east, north = region.bounds
        longitude = ((east - west) * x[:, 0] + west + east) / 2
        latitude = ((north - south) * x[:, 1] + south + north) / 2
        first, last = scale.times
        quarter = np.rint(((last - first) * x[:, 2] + first + last) / 2).astype(np.int64)
        codes = tiles_to_codes(grid.tiles.column, grid.tiles.row)
        order = np.argsort(codes)
        wanted = tiles_to_codes(*tiles_at(longitude, latitude))
        tile = order[np.searchsorted(codes[order], wanted)]
        if not (codes[tile] == wanted).all():
            raise DataError("rows of the model lie on no tile of the region.")
        quarters = tuple(sorted({*quarter.tolist(), opened.question.quarter}))
        tests = model.rows.counts[:, 0].cpu().numpy().astype(np.int64)
        when = np.searchsorted(quarters, quarter)
        now = quarters.index(opened.question.quarter)
        found = cls(law, grid, places, quarters, tile, when, tests, now)
        found.check(Path(opened.settings.source or "") / "truth.parquet")
        return found

    def check(self, path: Path) -> None:
        """Compare the field at the rows with the truth stored beside the source."""
        kept = pd.read_parquet(path).set_index(["quadkey", "quarter"])["field_true"]
        codes = tiles_to_codes(self.grid.tiles.column, self.grid.tiles.row)
        keys = format_quadkeys(codes[self.tile])
        labels = [quarter_label(self.quarters[k]) for k in self.when]
        expected = kept.loc[list(zip(keys, labels, strict=True))].to_numpy()
        quarter = np.asarray(self.quarters)[self.when]
        own = field(self.law, self.places.take(self.tile), quarter)
        if not np.allclose(own, expected, atol=1e-3):
            raise DataError(f"the field differs from that of {path}: is the run that of the demo?")

    def draw(self, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw values of the rows, and the level of all tiles in the map's quarter."""
        values, level = np.zeros(len(self.tile)), np.zeros(len(self.grid.tiles))
        effects = tile_process(self.law, self.grid.shape, self.quarters, random)
        for number, effect in enumerate(effects):
            here = effect[self.grid.down, self.grid.across]
            rows = self.when == number
            values[rows] = here[self.tile[rows]]
            if number == self.now:
                level = field(self.law, self.places, self.quarters[number]) + here
        places = self.places.take(self.tile)
        values += field(self.law, places, np.asarray(self.quarters)[self.when])
        noise = np.sqrt(measurement_variance(self.law, places, self.tests))
        return values + noise * random.standard_normal(len(values)), level


@dataclass(frozen=True)
class Measured:
    """Tiles measured one after the other, for any measured values."""

    tiles: Indices  # numbers of the tiles, (k,)
    h: Floats  # each measurement reduces the covariance by h h', (k, n); see `design.py`
    gains: Floats  # reduction of the variance by each tile, (k,)
    noise: Floats  # noise variances at the tiles, (k,)

    @classmethod
    def of(
        cls, covariance: LevelCovariance, weights: Floats, noise: Floats, tiles: Indices
    ) -> "Measured":
        """Measure tiles in the given order."""
        measuring = SequentialDesign(covariance, weights, noise)
        found = [measuring.measure(int(tile)) for tile in tiles]
        h, gains = (np.array(part) for part in zip(*found, strict=True))
        return cls(tiles, h, gains, noise[tiles])

    def mean(self, before: Floats, y: Floats) -> Floats:
        """Return the mean of the level (n,) given values y (k,) of the tiles."""
        mean = before.copy()
        for tile, h, v, value in zip(self.tiles, self.h, self.noise, y, strict=True):
            # h at the tile is d / s with d the variance before and s² = d + v.
            s = (h[tile] + np.sqrt(h[tile] ** 2 + 4 * v)) / 2
            mean += h * ((value - mean[tile]) / s)
        return mean


def policies(
    covariance: LevelCovariance, noise: Floats, count: int, random_sets: int, seed: int
) -> dict[str, list[Measured]]:
    """Choose tiles by each rule, and several sets of random tiles."""
    n = len(covariance)
    given = covariance, np.ones(n), noise
    random = np.random.default_rng([seed, 7])
    chosen = {
        GREEDY: [choose(*given, count, seed=seed).tiles],
        WIDEST: [widest(*given, count).tiles],
        TOP: [np.argsort(-covariance.variance, kind="stable")[:count]],
        RANDOM: [random.permutation(n)[:count] for _ in range(random_sets)],
    }
    return {name: [Measured.of(*given, tiles) for tiles in sets] for name, sets in chosen.items()}


def try_world(
    truth: Truth,
    level: JointLevel,
    sets: dict[str, list[Measured]],
    tests: int,
    random: np.random.Generator,
) -> Figures:
    """Draw a world; return squared error and log score of the level before and after."""
    model = level.model
    assert isinstance(model, FittedField), "the benchmark is for the field model"
    values, true = truth.draw(random)
    y_mean, y_sd = float(model.y_mean), float(model.y_sd)
    given = with_targets(model, (values - y_mean) / y_sd)
    before = joint_level(given, None, level.x, calibrated=False).mean
    variance = level.single_variances()
    parameters = model.parameters
    counts = torch.cat([parameters.counts_of(float(tests), None, 1), parameters.well_measured(1)])
    shift = y_sd * parameters.law.shift(counts).detach().numpy()
    many = np.full(len(true), tests)
    noise = np.sqrt(measurement_variance(truth.law, truth.places, many))
    measured = true + noise * random.standard_normal(len(true))
    corrected = measured - float(shift[0] - shift[1])
    found: Figures = {"before": _scores(true, before, variance)}
    for name, many_sets in sets.items():
        scores = [
            _scores(
                true,
                one.mean(before, corrected[one.tiles]),
                variance - np.square(one.h).sum(0),
            )
            for one in many_sets
        ]
        found[name] = {key: float(np.mean([s[key] for s in scores])) for key in scores[0]}
    return found


def _scores(true: Floats, mean: Floats, variance: Floats) -> dict[str, float]:
    square = np.square(true - mean)
    log = 0.5 * (np.log(2 * np.pi * variance) + square / variance)
    return {"mse": float(square.mean()), "nll": float(log.mean())}


def summary(worlds: list[Figures], name: str) -> dict[str, dict[str, float]]:
    """Return reductions of error and score by measuring: means over worlds, standard errors.

    ``behind`` is the mean difference from the reduction by the tiles of `GREEDY`, paired by world.
    """
    found = {}
    for key in ("mse", "nll"):
        less = np.array([world["before"][key] - world[name][key] for world in worlds])
        behind = np.array([world[name][key] - world[GREEDY][key] for world in worlds])
        names = ("less", "se", "behind", "behind_se")
        figures = (*mean_and_error(less), *mean_and_error(behind))
        found[key] = dict(zip(names, figures, strict=True))
    return found


def page(result: Figures) -> str:
    """Return the Markdown table of a result."""
    before = result["before"]
    percent = 100 / before["mse"]
    lines = []
    for name, found in result["policies"].items():
        mse, nll = found["mse"], found["nll"]
        parts = [
            f"{percent * mse['less']:.2f} % ± {percent * mse['se']:.2f}",
            f"{nll['less']:.5f} ± {nll['se']:.5f}",
        ]
        if name != GREEDY:
            parts[0] += f" ({percent * mse['behind']:+.2f} ± {percent * mse['behind_se']:.2f})"
            parts[1] += f" ({nll['behind']:+.5f} ± {nll['behind_se']:.5f})"
        lines.append((name, f"{found['variance']:.2%}", *parts))
    header = ("tiles", "stated variance", "squared error", "log score of the level")
    return f"""# Where to measure next, on the demo region

{result["count"]} of {result["tiles"]:,} tiles, {result["tests"]} tests each;
{result["worlds"]} worlds with a known truth, {result["random_sets"]} random sets;
made by `benchmarks/answers/next_tiles.py`. Before, the mean squared error of the level over all
tiles is {before["mse"]:.5f} (log10 squared), the stated variance
{before["variance"]:.5f}. The table has the reductions of each by the measurements,
in per cent, and that of the log score; ±: standard
error over worlds; in brackets the larger reduction by greedy tiles, paired by world.

{table(header, lines)}"""


def run(
    path: Path, *, count: int, worlds: int, random_sets: int, tests: int | None, seed: int
) -> Figures:
    """Choose tiles, try them in all worlds, and return the figures to write."""
    started = monotonic()
    opened = open_run(path, device="cpu").reopen(tests=tests)
    truth = Truth.of(opened)
    asked = int(opened.question.tests or 1)
    inputs = opened.model.inputs(
        opened.inputs.places.of_tiles(opened.tiles, opened.question.quarter)
    )
    level = joint_level(opened.model.network_, None, inputs, calibrated=False, seed=seed)
    covariance = covariance_of(level)
    noise = level.measured(float(asked)).noise_variance
    sets = policies(covariance, noise, count, random_sets, seed)
    total = float(covariance.variance.sum())
    print(f"chosen after {monotonic() - started:.0f} s", flush=True)
    tried = []
    for number in range(worlds):
        random = np.random.default_rng([seed, 11, number])
        tried.append(try_world(truth, level, sets, asked, random))
        print(f"world {number + 1} after {monotonic() - started:.0f} s", flush=True)
    found: Figures = {}
    for name, many in sets.items():
        share = [float(one.gains.sum()) / total for one in many]
        found[name] = {"variance": float(np.mean(share)), **summary(tried, name)}
        found[name]["variance_highest"] = max(share)
    before = {key: float(np.mean([one["before"][key] for one in tried])) for key in ("mse", "nll")}
    return {
        "count": count,
        "tests": asked,
        "tiles": len(covariance),
        "rows": len(truth.tile),
        "worlds": worlds,
        "random_sets": random_sets,
        "seed": seed,
        "before": {**before, "variance": total / len(covariance)},
        "policies": found,
        "by_world": tried,
        "seconds": round(monotonic() - started, 1),
    }


def main() -> None:
    """Run the benchmark, and write JSON and table."""
    asked = parser(__doc__, table="next", count=50, worlds=40, random_sets=20, seed=0, tests=int)
    asked.add_argument("path", type=Path, help="a run of `geogp demo`")
    options = vars(asked.parse_args())
    folder = options.pop("table")
    result = run(**options)
    write_results(folder, page(result), result, "demo")
    print(page(result))
