"""The parts of the law of errors, added one after another, on windows of real tiles.

    python -m benchmarks accuracy.ablation --source ookla-open-data --boundaries census

The windows are those of `small_regions` with enough rows for a law, and each third of Puerto Rico
by longitude. Rows of Puerto Rico that are test rows of seed 0 in `accuracy.field` are left out.
Each window is fitted to downloads and to uploads, under both splits. All variants predict the same
test rows from the same fit, so that only the errors differ. Each fit has its own file under --out,
and the same command continues where it stopped. Writes a Markdown and a JSON file.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from unittest import mock

import numpy as np

from benchmarks.accuracy import small_regions
from benchmarks.accuracy.small_regions import SPLITS, Window, trial_of
from benchmarks.markdown import mean_and_error, percent, plus_minus, table
from benchmarks.script import Figures, kept, options_of, write_results
from geogp.errors import RequestError
from geogp.evaluation.splits.split_rows import SplitRows, split_parts
from geogp.models.field import fit as field_fit
from geogp.models.field.near_cache import NearCache
from geogp.models.field.near_network import SHARE
from geogp.models.field.prediction_errors import FieldErrors
from geogp.models.field.predictive_law import SIMPLE, Errors, earns_covariates, fit_law

WITHOUT = "PR"
"""Region whose published test rows are left out of the windows."""

THIRDS = ((0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1))
"""Parts of this region that are windows of their own, as quantiles of the longitude."""

VARIANTS = {
    "process": "normal errors with the variances of the process",
    "simple": "a law whose scale depends on distance and nearby errors",
    "linear": "a law that is linear in all covariates",
    "corrected": "its two small networks",
    "near": f"five networks of near rows, with a share of {SHARE}",
    "chosen": "`field`: all of these or the simple law, by their gain",
}
"""Variants, each with more parts than the one before, but for the last."""

STEPS = (*pairwise(list(VARIANTS)[:-1]), ("simple", "chosen"), ("near", "chosen"))
"""Pairs of variants that are compared."""

TARGETS = ("download", "upload")

FIRST_SEED = 10
"""First seed of the splits; that of the published test rows would have no test rows left."""

LEAST_ROWS = 1_250
"""Smallest number of rows of a window. With fewer, the training rows are less than 1,000, and a fit
has no law of errors but one factor (`few_rows.py` in `geogp.models.fitting`).
"""

SIZES = (LEAST_ROWS, 2000, 8001, 10**9)
"""Bounds of the classes of size, in rows."""


def windows(options: argparse.Namespace, target: str) -> Iterator[Window]:
    """Yield all windows of real tiles that are large enough."""
    number = 0
    whole: Window | None = None
    for window in small_regions.windows(options, target):
        if window.number >= small_regions.WINDOWS:
            break
        rows = window.rows
        if window.region == WITHOUT:
            whole = whole or window
            rows = rows[~_published(window)[rows]]
        number = window.number
        if len(rows) >= LEAST_ROWS:
            yield replace(window, rows=rows)
    assert whole is not None, "there are windows of this region"
    unseen = np.flatnonzero(~_published(whole))
    east = whole.seen.longitude[unseen]
    for low, high in THIRDS:
        ends = np.quantile(east, [low, high])
        number += 1
        yield replace(whole, number=number, rows=unseen[(east >= ends[0]) & (east <= ends[1])])


def _published(window: Window) -> small_regions.Marks:
    """Return which rows of a whole region are test rows of a split of seed 0."""
    seen = window.seen
    place = SplitRows(seen.quadkey, seen.quarter, seen.longitude, seen.latitude)
    tested = [split_parts(how, place, 0) == "test" for how in SPLITS]
    return np.logical_or.reduce(tested)


def variants_of(errors: FieldErrors, seen: Errors) -> dict[str, FieldErrors]:
    """Return the laws of all variants, from those of a fit with all parts and its errors."""
    law = errors.law
    without = replace(errors, networks_share=0.0)
    simple = replace(without, law=fit_law(seen, scale=SIMPLE))
    return {
        "simple": simple,
        "linear": replace(without, law=replace(law, outputs=np.zeros_like(law.outputs))),
        "corrected": without,
        "near": errors,
        "chosen": errors if earns_covariates(seen) else simple,
    }


def scored(window: Window, how: str, seed: int) -> Figures:
    """Fit the field model to a window, and score all variants of its errors."""
    found = {"window": window.number, "region": window.region, "split": how, "seed": seed}
    found |= {"rows": len(window.rows)}
    learned: list[Errors] = []

    def earns(errors: Errors) -> bool:
        learned.append(errors)
        return True

    try:
        with mock.patch.object(field_fit, "earns_covariates", earns):
            model, points, y, _, test = trial_of(window, how, seed)
    except RequestError as error:
        return {**found, "refused": str(error)}
    field = model.network_
    variants = {"process": FieldErrors.none(field.parameters)}
    variants |= variants_of(field.errors, learned[0])
    scores = {}
    for name, errors in variants.items():
        model.network_ = replace(field, errors=errors, cache=NearCache())
        law = model.predict_distribution(points[test])
        lower, upper = law.interval(0.95)
        inside = (y[test] >= lower) & (y[test] <= upper)
        scores[name] = {
            "log_score": float(law.log_score(y[test]).mean()),
            "crps": float(law.crps(y[test]).mean()),
            "inside": int(inside.sum()),
        }
    return {**found, "test_rows": int(test.sum()), "scores": scores}


def gain(fits: Sequence[Figures], before: str, after: str) -> str:
    """Return the gain in the log score, with its standard error over windows.

    Errors of several seeds of one window depend on each other, so they are averaged first.
    """
    by_window: dict[int, list[float]] = {}
    for one in fits:
        scores = [one["scores"][name]["log_score"] for name in (before, after)]
        by_window.setdefault(one["window"], []).append(scores[0] - scores[1])
    return plus_minus(*mean_and_error([np.mean(gains) for gains in by_window.values()]))


def page(found: Sequence[Figures]) -> str:
    """Return the Markdown of the figures."""
    steps, coverages = [], []
    for target, how, (low, high) in product(TARGETS, SPLITS, pairwise(SIZES)):
        fits = [f for f in found if (f["target"], f["split"]) == (target, how)]
        fits = [f for f in fits if low <= f["rows"] < high and "refused" not in f]
        if not fits:
            continue
        size = f"from {low:,}" if high == SIZES[-1] else f"{low:,} to {high - 1:,}"
        number = len({f["window"] for f in fits})
        steps.append((target, how, size, number, *(gain(fits, *step) for step in STEPS)))
        n = sum(f["test_rows"] for f in fits)
        pooled = [percent(sum(f["scores"][v]["inside"] for f in fits) / n) for v in VARIANTS]
        coverages.append((target, how, size, f"{n:,}", *pooled))
    seeds = len({f["seed"] for f in found})
    listed = "\n".join(f"- {name}: {text}" for name, text in VARIANTS.items())
    compared = [f"{after} over {before}" for before, after in STEPS]
    return f"""# Parts of the law of errors

Made by `benchmarks/accuracy/ablation.py`: `field`, preset `quick`, windows of real tiles
({", ".join(small_regions.REGIONS)}), {seeds} {"seeds" if seeds > 1 else "seed"}. Each variant has
one part more than the one before, but for the last:

{listed}

Gain in the log score, mean over windows with its standard error. A positive number is better.
Windows of one region can share rows.

{table(("target", "split", "rows", "windows", *compared), steps, left=(0, 1, 2))}
Coverage of 95 % intervals, pooled:

{table(("target", "split", "rows", "test rows", *VARIANTS), coverages, left=(0, 1, 2))}"""


def main() -> None:
    """Fit the windows that have no file yet, and write the table."""
    options = options_of(
        __doc__, out="ablation", table="ablation", seeds=3, source=str, boundaries=str
    )
    found = []
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    for target in TARGETS:
        for window, how, seed in product(windows(options, target), SPLITS, seeds):
            path = options.out / f"{target}-{window.number}-{how}-{seed}.json"
            found.append(
                kept(path, lambda: {"target": target} | scored(window, how, seed))  # noqa: B023
            )
    write_results(options.table, page(found), found)
