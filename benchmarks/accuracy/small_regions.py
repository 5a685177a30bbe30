"""Small regions: windows of real and of simulated tiles, with log score, baseline and coverage.

    python -m benchmarks accuracy.small_regions --source ookla-open-data --boundaries census

A window holds the 500 to 8,000 rows nearest to a random row, in some successive quarters. Each is
fitted with the preset `quick` under both splits. Each fit has its own file under --out, and the
same command continues where it stopped. Writes a Markdown and a JSON file.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.markdown import percent, table
from benchmarks.region_trial import prepare
from benchmarks.script import Figures, Floats, kept, parser, write_results
from geogp.commands.demo import demo_request
from geogp.errors import GeogpError, RequestError
from geogp.estimators.estimator_classes import FieldGP
from geogp.evaluation.baseline import quarter_baseline
from geogp.evaluation.splits.split_rows import SplitRows, split_groups, split_parts
from geogp.geodata.tiles.observations import Observations

REGIONS = {"PR": "2019Q1..2023Q4", "MO": "2020Q4", "GU": "2019Q1..2023Q4", "VI": "2019Q1..2023Q4"}
"""Real regions and their quarters."""

ORDER = ("PR", "MO", "PR", "MO", "GU", "VI")
"""Regions of successive windows, in a cycle."""

WINDOWS, SIMULATED = 20, 4
"""Number of windows of real tiles, and of the simulated region after them."""

FEWEST, MOST = 500, 8000
SIZES = (0, 1500, 4000, MOST + 1)
"""Bounds of the classes of size, in rows."""

SPLITS = ("blocks", "random")
LEVELS = (0.5, 0.8, 0.95)

Indices = NDArray[np.int64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """Rows of a region: positions among its observations."""

    number: int
    region: str
    table: pd.DataFrame
    seen: Observations
    rows: Indices


def windows(options: argparse.Namespace, target: str = "download") -> Iterator[Window]:
    """Yield all windows, which have the same rows in every call."""
    rng = np.random.default_rng(5)
    trials = {}
    for number in range(WINDOWS + SIMULATED):
        region = ORDER[number % len(ORDER)] if number < WINDOWS else "DEMO"
        if region not in trials:
            own = {"region": region, "quarters": REGIONS.get(region)}
            if number >= WINDOWS:
                demo = demo_request()
                own |= {"source": demo.source, "boundaries": demo.boundaries}
            asked = argparse.Namespace(**{**vars(options), **own})
            trials[region] = prepare(asked, options.out / "unfinished", target=target)
        trial = trials[region]
        yield Window(
            number,
            region,
            trial.inputs.table,
            trial.inputs.observations,
            cut(trial.inputs.observations, rng),
        )


def cut(seen: Observations, rng: np.random.Generator) -> Indices:
    """Return the rows of a random window."""
    most = int(np.exp(rng.uniform(np.log(FEWEST), np.log(MOST))))
    open_rows = np.arange(len(seen))
    quarters = np.unique(seen.quarter)
    if len(quarters) > 1:
        count = rng.integers(1, len(quarters) + 1)
        first = rng.integers(0, len(quarters) - count + 1)
        open_rows = np.flatnonzero(np.isin(seen.quarter, quarters[first : first + count]))
    centre = rng.choice(open_rows)
    away = np.maximum(
        abs(seen.longitude[open_rows] - seen.longitude[centre]),
        abs(seen.latitude[open_rows] - seen.latitude[centre]),
    )
    return np.sort(open_rows[np.argsort(away, kind="stable")[:most]])


class Trial(NamedTuple):
    """A model fitted to some rows of a window; `fitted` and `test` mark rows, (n,)."""

    model: FieldGP
    points: pd.DataFrame
    y: Floats
    fitted: Marks
    test: Marks


def trial_of(window: Window, how: str, seed: int) -> Trial:
    """Fit the field model to the rows of a split; raises RequestError if the split is refused."""
    seen, rows = window.seen, window.rows
    place = SplitRows(
        seen.quadkey[rows], seen.quarter[rows], seen.longitude[rows], seen.latitude[rows]
    )
    parts, groups = split_parts(how, place, seed), split_groups(how, place)
    fitted, test = np.isin(parts, ("train", "validation")), parts == "test"
    points, y = window.table.iloc[rows], seen.y[rows]
    model = FieldGP(
        time="quarter" if len(np.unique(place.quarter)) > 1 else None,
        tests="tests",
        devices="devices",
        random_state=seed,
        validation=parts[fitted] == "validation",
    )
    model.fit_watched(points[fitted], y[fitted], groups=None if groups is None else groups[fitted])
    return Trial(model, points, y, fitted, test)


def scored(window: Window, how: str, seed: int) -> Figures:
    """Fit the field model to a window and score it; a refused split has its message instead."""
    quarter = window.seen.quarter[window.rows]
    found = {"window": window.number, "region": window.region, "split": how, "seed": seed}
    found |= {"rows": len(window.rows), "quarters": len(np.unique(quarter))}
    try:
        model, points, y, fitted, test = trial_of(window, how, seed)
    except RequestError as error:
        return {**found, "refused": str(error)}
    law = model.predict_distribution(points[test])
    baseline = quarter_baseline(quarter[fitted], y[fitted], quarter[test]).prediction
    inside = {}
    for level in LEVELS:
        lower, upper = law.interval(level)
        inside[str(level)] = int(((y[test] >= lower) & (y[test] <= upper)).sum())
    return {
        **found,
        "test_rows": int(test.sum()),
        "log_score": float(law.log_score(y[test]).mean()),
        "baseline": float(baseline.log_score(y[test]).mean()),
        "inside": inside,
    }


def page(found: Sequence[Figures]) -> str:
    """Return the Markdown of the figures."""
    lines = []
    for how, (low, high) in product(SPLITS, pairwise(SIZES)):
        own = [f for f in found if f["split"] == how and low <= f["rows"] < high]
        fits = [f for f in own if "refused" not in f]
        if not fits:
            continue
        n = sum(f["test_rows"] for f in fits)
        gains = [f["baseline"] - f["log_score"] for f in fits]
        pooled = [percent(sum(f["inside"][str(level)] for f in fits) / n) for level in LEVELS]
        size = f"up to {high - 1:,}" if not low else f"{low:,} to {high - 1:,}"
        least, mean = min(gains), np.mean(gains)
        refused = len(own) - len(fits)
        lines.append(
            (how, size, len(fits), refused, f"{n:,}", *pooled, f"{mean:.3f}", f"{least:.3f}")
        )
    header = ("split", "rows", "fits", "refused", "test rows", "in the 50 %", "80 %", "95 %")
    header += ("gain", "least gain")
    seeds = len({f["seed"] for f in found})
    return f"""# Small regions

    python -m benchmarks accuracy.small_regions --source ookla-open-data --boundaries census

`field`, preset `quick`, download: {WINDOWS} windows of real tiles ({", ".join(REGIONS)}) and
{SIMULATED} of the simulated region, {seeds} {"seeds" if seeds > 1 else "seed"}. A gain
is the log score of the baseline (mean
and variance of each quarter) minus that of the model, in a window. Coverages are pooled. A split by
blocks is refused if a window has too few cells.

{table(header, lines, left=(0, 1))}"""


def main() -> None:
    """Fit the windows that have no file yet, and write the table."""
    asked = parser(__doc__, out="small-regions", table="small-regions", seeds=3)
    for name in ("--source", "--boundaries"):
        asked.add_argument(name, required=True)
    options = asked.parse_args()
    found = []
    for window in windows(options):
        for how, seed in product(SPLITS, range(options.seeds)):
            path = options.out / f"{window.number}-{how}-{seed}.json"
            try:
                found.append(kept(path, lambda: scored(window, how, seed)))  # noqa: B023
            except GeogpError as error:
                raise type(error)(f"window {window.number}, {how}, seed {seed}: {error}") from error
    write_results(options.table, page(found), found)
