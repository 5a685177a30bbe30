"""Scores of several runs on their common test rows, and differences between the runs.

Rows are joined by split, quadkey, quarter, fold and provider, never by their order. One run is the
reference; a difference is computed row by row, as run minus reference.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import RequestError, named, quoted
from geogp.evaluation.assessment import counted
from geogp.evaluation.metrics import rows_by_group
from geogp.evaluation.paired import DRAWS, FEW_BLOCKS, Estimate, mark, paired_estimates
from geogp.evaluation.simultaneous_coverage import blocks_of
from geogp.evaluation.splits.split_names import SPLITS
from geogp.geodata.places.stratum_names import ALL
from geogp.geodata.tiles.targets import target_names
from geogp.records.run_record import given
from geogp.reports.comparison.comparison_rows import (
    RunContent,
    ScoreNames,
    check_comparable,
    check_same_rows,
    group_scores,
    score_names,
    scores_of,
    shared_splits,
    table_of,
)
from geogp.reports.rendering import say, say_all
from geogp.reports.words import DEFAULT_ATTRIBUTION, plain, units_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run from its run.json; None for a fact that run.json does not contain."""

    name: str
    model: str | None
    preset: str | None
    seed: int | None
    conformal: str | None
    device: str | None
    geogp: str | None
    fit_seconds: float | None
    predict_seconds: float | None


@dataclass(frozen=True)
class StratumComparison:
    """The comparison of runs in one stratum of one split.

    `n` is the number of common rows, and `blocks` the number of blocks of 0.1 degrees with such
    rows. `figures` has the means of each run by the names in `ScoreNames`; a mean that is not
    finite is None. The absolute error is the error of the median; coverages are shares of rows
    inside the central intervals. `gain` is the log score of the baseline minus the log score of the
    run. `gain` is None unless the common rows are all test rows of the run, because run.json has
    the score of the baseline only for all test rows. `differences` has the differences (run minus
    reference) by run, then by score or share.
    """

    n: int
    blocks: int
    figures: dict[str, dict[str, float | None]]
    differences: dict[str, dict[str, Estimate]]


@dataclass(frozen=True)
class SplitComparison:
    """The comparison of runs in one split; `name`, `title` and `question` are as in `splits.Split`.

    `n` is the number of test rows that all runs share; `beyond` is the number of other test rows of
    each run. `strata` are ``all``, ``urban`` and ``rural``, if they have rows.
    """

    name: str
    title: str
    question: str
    n: int
    beyond: dict[str, int]
    strata: dict[str, StratumComparison]


@dataclass(frozen=True)
class Comparison:
    """The content of a comparison, in values that can be written as JSON.

    `unit` is the unit of errors and widths. `runs` starts with the reference. `settings` contains
    the settings that differ, each with the value of every run as text. `findings`, `notes` and
    `method` are sentences. `attribution` names the source of the data. `splits` has comparisons by
    split; splits with training rows near test rows come last.
    """

    region: str
    service: str | None
    target: str
    unit: str
    reference: str
    runs: list[RunFacts]
    settings: dict[str, dict[str, str]]
    findings: list[str]
    notes: list[str]
    method: list[str]
    attribution: str
    splits: dict[str, SplitComparison]


def compare(runs: Sequence[RunContent], *, reference: str | None = None) -> Comparison:
    """Return the comparison of runs on their common test rows.

    `runs` are two or more runs with different names; `reference` is the name of a run, by default
    the first run.

    Raises RequestError if there are fewer than two runs or no common row, the reference is unknown,
    or runs differ in target, service or region. Raises DataError if keys, columns or values are
    missing, a row occurs twice, runs have different measurements of the same rows, or scores differ
    from run.json. Raises NumericalError if a mean or variance is out of range.
    """
    runs = _reference_first(runs, reference)
    check_comparable(runs)
    tables = {one.name: table_of(one) for one in runs}
    shared, absent = shared_splits(runs)
    seeds = {one.name: given(one.run.seed, None) for one in runs}
    quarters = {one.name: given(one.run.quarters, []) for one in runs}
    notes = say_all("compare", "unlike", seeds, quarters, absent)
    splits = {}
    for split in shared:
        parts = {name: table[table["split"] == split] for name, table in tables.items()}
        found, split_notes = _compare_split(split, runs, parts)
        notes += split_notes
        if found is not None:
            splits[split] = found
    if not splits:
        which = ", ".join(f"{name} (seed {seed})" for name, seed in seeds.items())
        raise RequestError(
            "expected test rows that all runs have in common, found none in any split of "
            f"{which}. " + say("compare", "no_rows", list(seeds.values()))
        )
    first, names = runs[0].run, score_names(runs[0].run.target)
    return Comparison(
        region=first.region_in_words,
        service=first.service,
        target=target_names(first.target)[0],
        unit=units_of(first.target)[0],
        reference=runs[0].name,
        runs=[_facts(one) for one in runs],
        settings=_different_settings(runs),
        findings=[
            say(
                "compare",
                "finding",
                split.title,
                run,
                runs[0].name,
                {title: found[score] for score, title in names.scores.items()},
            )
            for split in splits.values()
            for run, found in split.strata[ALL].differences.items()
        ],
        notes=notes,
        method=say_all(
            "compare",
            "method",
            DRAWS,
            FEW_BLOCKS,
            names,
            counts=counted(runs[0].predictions),
        ),
        attribution=given(first.attribution, "") or DEFAULT_ATTRIBUTION,
        splits=splits,
    )


def _reference_first(runs: Sequence[RunContent], reference: str | None) -> list[RunContent]:
    names = [one.name for one in runs]
    if len(runs) < 2:
        raise RequestError(f"expected two runs or more to compare, found {len(runs)}.")
    if len(set(names)) < len(names):
        raise RequestError(f"expected runs of different names, found {named(names)}.")
    if reference is None:
        return list(runs)
    if reference not in names:
        raise RequestError(
            f"expected one of the runs as reference ({named(names)}), found {quoted(reference)}."
        )
    return sorted(runs, key=lambda one: one.name != reference)


def _compare_split(
    split: str, runs: Sequence[RunContent], tables: dict[str, pd.DataFrame]
) -> tuple[SplitComparison | None, list[str]]:
    """Return the comparison of one split (None if no row is common), and notes."""
    title = SPLITS[split].title
    common = reduce(lambda a, b: a[a.isin(b)], (table.index for table in tables.values()))
    beyond = {name: len(table) - len(common) for name, table in tables.items()}
    if not len(common):
        why = say("compare", "no_rows", [given(one.run.seed, None) for one in runs])
        return None, [f"{title}: left out, because no test row is common to all runs. {why}"]
    joined = {name: table.loc[common] for name, table in tables.items()}
    check_same_rows(title, joined)
    target = runs[0].run.target
    scores = {name: scores_of(table, target) for name, table in joined.items()}
    base = next(iter(joined.values()))
    notes = say_all(
        "compare",
        "rows",
        title,
        len(common),
        beyond,
        {
            name: int((table["stratum"].to_numpy() != base["stratum"].to_numpy()).sum())
            for name, table in joined.items()
        },
        {name: int((~np.isfinite(found["log_score"])).sum()) for name, found in scores.items()},
    )
    blocks = blocks_of(*(base[name].to_numpy(np.float64) for name in ("longitude", "latitude")))
    strata = {}
    for stratum, chosen in rows_by_group(base["stratum"], len(base)).items():
        if chosen.any():
            part = {name: group_scores(found, chosen) for name, found in scores.items()}
            stored = {
                one.name: given(one.run.baseline, {}).get(split, {}).get(stratum)
                for one in runs
                if not beyond[one.name]
            }
            gains = {k: v.nll for k, v in stored.items() if v is not None and v.n == chosen.sum()}
            strata[stratum] = _stratum(part, blocks[chosen], gains, score_names(target))
    _mark(strata, [*score_names(target).scores])
    sides = {one.run.block_side for one in runs}
    question = SPLITS[split].asked(sides.pop() if len(sides) == 1 else None)
    return SplitComparison(split, title, question, len(common), beyond, strata), notes


def _different_settings(runs: Sequence[RunContent]) -> dict[str, dict[str, str]]:
    """Return the settings in which runs differ, each with the value of every run as text."""
    held = {one.name: one.run.settings.flat for one in runs}
    found = {}
    for key in dict.fromkeys(key for settings in held.values() for key in settings):
        values = {name: settings.get(key) for name, settings in held.items()}
        distinct = {json.dumps(value, default=str, sort_keys=True) for value in values.values()}
        if len(distinct) > 1:
            found[key] = {name: plain(value) for name, value in values.items()}
    return found


def _stratum(
    scores: dict[str, pd.DataFrame],
    blocks: NDArray[np.int64],
    baselines: dict[str, float | None],
    about: ScoreNames,
) -> StratumComparison:
    """Return the comparison in a stratum; `baselines` has the known log scores of baselines."""
    names = [*about.differences]
    (_, base), *others = scores.items()
    with np.errstate(invalid="ignore"):  # infinity - infinity is NaN
        columns = [
            found[names].to_numpy(np.float64) - base[names].to_numpy(np.float64)
            for _, found in others
        ]
    estimates = iter(paired_estimates(np.hstack(columns), blocks))
    return StratumComparison(
        n=len(base),
        blocks=len(np.unique(blocks)),
        figures={
            name: _figures(found[[*about.titles]], baselines.get(name))
            for name, found in scores.items()
        },
        differences={run: {name: next(estimates) for name in names} for run, _ in others},
    )


def _figures(scores: pd.DataFrame, baseline: float | None) -> dict[str, float | None]:
    means = {str(name): float(scores[name].mean()) for name in scores}
    found = {name: value if np.isfinite(value) else None for name, value in means.items()}
    ours = found["log_score"]
    return found | {"gain": None if baseline is None or ours is None else baseline - ours}


def _mark(strata: dict[str, StratumComparison], scores: Sequence[str]) -> None:
    """Mark the significant differences in all strata, as one family of tests."""
    differences = [one for found in strata.values() for one in found.differences.values()]
    family = iter(mark([one[score] for one in differences for score in scores]))
    for one in differences:
        one |= {score: next(family) for score in scores}


def _facts(one: RunContent) -> RunFacts:
    run, seconds = one.run, given(one.run.seconds, {})
    return RunFacts(
        name=one.name,
        model=run.model,
        preset=run.preset,
        seed=given(run.seed, None),
        conformal=run.settings.checks.conformal,
        device=given(run.device, None),
        geogp=given(run.geogp, None),
        fit_seconds=seconds.get("fit"),
        predict_seconds=seconds.get("predict"),
    )
