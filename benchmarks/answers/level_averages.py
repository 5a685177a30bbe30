"""The level of the map, compared with the averages of well-measured tiles.

    python -m benchmarks answers.level_averages PR --source ookla-open-data --boundaries census \
        --quarters 2022Q3..2023Q4

Fits the estimator of ``field`` to the training rows of each fold of two splits, at random and by
blocks. The measured averages of the test rows are compared with two predictions: the mean of the
level, and the mean for the row's own numbers of tests and devices.

Writes JSON of each fold in ``--out`` (a fold there is not made again), a table and figures.
"""

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import sparse

import geogp
from benchmarks.answers.far_from_data import rows_of
from benchmarks.markdown import percent, table
from benchmarks.script import Figures, kept, options_of, say, write_results
from geogp.evaluation.paired import paired_estimates
from geogp.evaluation.splits.split_names import BLOCKS, CELL_DEGREES, RANDOM
from geogp.evaluation.splits.split_rows import cell_indices
from geogp.maps.figures.figure_style import TEXT, WIDTH, marks_of, paper_style
from geogp.runs.pipeline.arithmetic import arithmetic

BINS = {"1": (1, 1), "2 to 4": (2, 4), "5 to 9": (5, 9), "10 to 49": (10, 49), "50+": (50, np.inf)}
"""Smallest and largest number of tests of each bin."""

WELL = {"10+": (10, np.inf), "10 to 49": (10, 49), "50+": (50, np.inf)}
"""Smallest and largest number of tests of each class of well-measured tiles."""

PREDICTIONS = {"level": "level", "own": "mean for own tests, devices"}
"""What is predicted, in the words of the figure."""


RATIOS = (0.6, 0.7, 0.8, 1, 1.2, 1.4)
"""Marks of the axis of the figure of well-measured tiles."""


def groups_of(rows: pd.DataFrame, classes: Figures = BINS | WELL) -> dict[tuple[str, str], Any]:
    """Return the masks of the rows of each stratum, and of all, in each class; none is empty."""
    strata = sorted(set(rows["stratum"]))
    masks = {
        (name, tests): (rows["tests"].between(*ends) & rows["stratum"].isin(among)).to_numpy()
        for name, among in [("all", strata), *((name, [name]) for name in strata)]
        for tests, ends in classes.items()
    }
    return {key: mask for key, mask in masks.items() if mask.any()}


def trial(rows: pd.DataFrame, how: str, fold: int) -> Figures:
    """Fit to the training rows of a fold; return its test rows with their predictions.

    ``stated`` has the number of rows of each well-measured group, and the standard deviation of
    the mean of their levels in the joint distribution.
    """
    train, test = geogp.split(rows, how=how, fold=fold)
    with arithmetic():
        model = geogp.FieldGP(
            x="longitude", y="latitude", time="quarter", tests="tests", devices="devices",
            preset="quick", validation=how,
        ).fit(train.drop(columns="y"), train["y"])  # fmt: skip
        x = test.drop(columns="y")
        level, own = model.predict_distribution(x, level=True), model.predict_distribution(x)
        well = x[x["tests"] >= WELL["10+"][0]]
        groups = groups_of(well, WELL)
        weights = sparse.csc_array(np.stack([mask / mask.sum() for mask in groups.values()], 1))
        sds = np.sqrt(model.joint(well).sum_variances(weights))
    low, high = own.interval(0.95)
    laws = {"level": level.mean, "own": own.mean, "low": low, "high": high}
    sizes = [int(mask.sum()) for mask in groups.values()]
    return {
        "rows": test[["y", "tests", "stratum", "block"]].assign(**laws).to_dict("list"),
        "stated": list(zip(*zip(*groups, strict=True), sizes, sds.tolist(), strict=True)),
    }


def summary(trials: list[Figures]) -> list[Figures]:
    """Return measured minus predicted of each group over all folds, and the coverage.

    Each difference is followed by the ends of its 95 % interval, from a bootstrap over blocks. The
    error of the level can be common to all folds, so their standard deviations are averaged.
    """
    rows = pd.concat([pd.DataFrame(one["rows"]) for one in trials], ignore_index=True)
    stated: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for stratum, name, n, sd in (each for one in trials for each in one["stated"]):
        stated.setdefault((stratum, name), []).append((n, sd))
    found = []
    for key, mask in groups_of(rows).items():
        part, block = rows[mask], rows["block"][mask].to_numpy()
        differences = part[["y"]].to_numpy() - part[list(PREDICTIONS)].to_numpy()
        both = paired_estimates(differences, block)
        one: Figures = {"stratum": key[0], "tests": key[1], "rows": len(part)}
        one["blocks"] = len(set(block))
        for name, each in zip(PREDICTIONS, both, strict=True):
            one[name] = each.value, each.lower, each.upper
        one["coverage"] = float(part["y"].between(part["low"], part["high"]).mean())
        if key in stated and both[0].error is not None:
            sizes, sds = zip(*stated[key], strict=True)
            one["stated_sd"] = float(np.average(sds, weights=sizes))
            one["score"] = one["level"][0] / float(np.hypot(both[0].error, one["stated_sd"]))
        found.append(one)
    return found


def cells_of(value: float, lower: float | None, upper: float | None) -> tuple[str, str]:
    """Return a difference with its interval, if this is known, and the ratio that it stands for."""
    interval = "" if lower is None else f" ({lower:+.3f} to {upper:+.3f})"
    return f"{value:+.3f}{interval}", f"{10**value:.2f}"


def page(found: Figures) -> str:
    """Return the Markdown page of all splits."""
    lines = [
        (
            *(split, one["stratum"], one["tests"], f"{one['rows']:,}", one["blocks"]),
            *cells_of(*one["level"]),
            *((f"{one['stated_sd']:.3f}", f"{one['score']:+.1f}") if "score" in one else ("", "")),
            *(*cells_of(*one["own"]), percent(one["coverage"])),
        )
        for split, groups in found["splits"].items()
        for one in groups
    ]
    header = (
        *("split", "stratum", "tests", "rows", "blocks", "measured less level", "ratio"),
        *("stated sd", "score", "measured less own mean", "ratio", "coverage"),
    )
    return f"""# The level and the averages of tiles: {found["region"]}, {found["target"]}

Made by `benchmarks/answers/level_averages.py` from mobile tiles of {found["quarters"]}, with
`field` and the preset `quick`, in {found["folds"]} folds of each split. A row is the measured
average of a tile in one quarter, which the fit has not seen. The level is the mean of well-measured
averages; averages of few tests are expected below it.

![Measured averages of well-measured tiles, as ratios to the level]({found["region"]}-well.png)

![Measured less predicted, by the number of tests]({found["region"]}.webp)

- Measured less level: mean of log10 of the measured average, less the predicted mean of the level.
  The 95 % interval is from a bootstrap over blocks of {CELL_DEGREES:g} degrees. The ratio is 10 to
  the power of the difference.
- Stated sd: standard deviation of the mean of the levels, from their joint distribution. Score: the
  difference divided by the root of the sum of squares of stated sd and bootstrap standard error.
- Measured less own mean: the same for the predicted mean for the row's own numbers of tests and
  devices. Coverage: share of the rows inside the 95 % interval of this prediction.

{table(header, lines, left=(0, 1, 2))}"""


def panel(axes: Axes, groups: list[Figures], of: str) -> None:
    """Draw measured less predicted of each stratum, by the number of tests."""
    binned = [one for one in groups if one["tests"] in BINS and one["stratum"] != "all"]
    axes.axhline(0, color="black", lw=0.6, ls=":")
    for number, (stratum, mark) in enumerate(
        marks_of(dict.fromkeys(one["stratum"] for one in binned)).items()
    ):
        drawn = [one for one in binned if one["stratum"] == stratum and one[of][1] is not None]
        value, low, high = np.array([one[of] for one in drawn]).reshape(-1, 3).T
        at = [list(BINS).index(one["tests"]) + 0.12 * number for one in drawn]
        style: Any = {"color": mark.colour, "ls": mark.dashes, "marker": mark.marker, "lw": 1}
        axes.errorbar(at, value, (value - low, high - value), label=stratum, ms=4, **style)


def figure(found: Figures) -> Figure:
    """Return the figure: a row of panels for each split, a column for each prediction."""
    with paper_style():
        drawn = Figure(figsize=(WIDTH, 5), layout="constrained")
        grid = drawn.subplots(len(found["splits"]), 2, sharex=True, sharey=True, squeeze=False)
        for row, (split, groups) in zip(grid, found["splits"].items(), strict=True):
            for axes, (of, title) in zip(row, PREDICTIONS.items(), strict=True):
                panel(axes, groups, of)
                axes.set_title(f"split {split}: {title}", fontsize=TEXT)
                axes.grid(axis="y")
            row[0].set_ylabel("measured less predicted, log10")
        grid[-1, 0].set_xticks(range(len(BINS)), list(BINS))
        drawn.suptitle(f"Measured averages less predictions: {found['region']}, {found['target']}")
        drawn.supxlabel("tests in the average; bars are 95 % intervals over blocks", fontsize=TEXT)
        grid[0, 0].legend(loc="lower right")
    return drawn


def well_figure(found: Figures) -> Figure:
    """Return the figure of well-measured tiles: measured averages as ratios to the level."""
    places = {place: n for n, place in enumerate(product(("rural", "urban"), ("50+", "10+")))}
    with paper_style():
        drawn = Figure(figsize=(WIDTH, 2.4), layout="constrained")
        axes = drawn.subplots()
        axes.axvline(1, color="black", lw=0.6, ls=":")
        for number, (split, mark) in enumerate(marks_of(found["splits"]).items()):
            groups = found["splits"][split]
            # Too few blocks have no interval.
            kept = [g for g in groups if (g["stratum"], g["tests"]) in places and g["level"][2]]
            levels = np.array([one["level"] for one in kept], float).reshape(-1, 3)
            middle, low, high = 10**levels.T
            at = [places[one["stratum"], one["tests"]] - 0.2 * number + 0.1 for one in kept]
            style: Any = {"color": mark.colour, "marker": mark.marker, "lw": 1, "ms": 4}
            bars = (middle - low, high - middle)
            axes.errorbar(middle, at, xerr=bars, ls="", label=f"split {split}", **style)
        axes.set_yticks(range(len(places)), [f"{one}, {tests} tests" for one, tests in places])
        axes.set_xscale("log")
        axes.set_xticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS])
        axes.minorticks_off()
        axes.set_xlabel("measured average / level; geometric means, 95 % intervals over blocks")
        axes.grid(axis="x")
        axes.legend(loc="upper left")
    return drawn


def main() -> None:
    """Make the folds of both splits, and write JSON, table and figures."""
    stored = "level-averages"
    options = options_of(__doc__, out=stored, table=stored, region=True, target="download", folds=3)
    rows = rows_of(options, options.region, options.target)
    cells = cell_indices(rows["longitude"], rows["latitude"], CELL_DEGREES)
    rows["block"] = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
    found = {key: getattr(options, key) for key in ("region", "target", "folds")}
    ends = rows["quarter"].astype(str).agg(["min", "max"])
    found |= {"quarters": "..".join(dict.fromkeys(ends)), "splits": {}}
    for how in (RANDOM.name, BLOCKS.name):
        trials = []
        for fold in range(options.folds):
            name = f"{options.region}-{options.target}-{found['quarters']}-{how}-{fold}.json"
            trials.append(kept(options.out / name, partial(trial, rows, how, fold)))
            say(name)
        found["splits"][how] = summary(trials)
    write_results(options.table, page(found), found, options.region)
    figure(found).savefig(options.table / f"{options.region}.webp", dpi=130)
    well_figure(found).savefig(options.table / f"{options.region}-well.png", dpi=130)
    print(page(found))
