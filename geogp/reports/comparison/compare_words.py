"""What a comparison of runs says in sentences."""

import json

from msgspec import to_builtins

from geogp.evaluation.paired import FEW_BLOCKS, Estimate
from geogp.records.run_record import RunRecord, RunSettings, given
from geogp.reports import words

Runs = list[tuple[str, RunRecord]]
"""Names of runs, and what their run.json holds."""

_SCORE_NAMES = {"log_score": "log score", "crps": "CRPS", "absolute_error": "absolute error"}


def different_settings(runs: Runs) -> dict[str, dict[str, str]]:
    """Return the settings in which runs differ, each run's value in words."""
    settings = {name: to_builtins(given(run.settings, RunSettings())) for name, run in runs}
    keys = dict.fromkeys(key for held in settings.values() for key in held)
    found = {}
    for key in keys:
        told = [
            json.dumps(held.get(key), default=str, sort_keys=True) for held in settings.values()
        ]
        if len(set(told)) > 1:
            found[key] = {name: words.plain(held.get(key)) for name, held in settings.items()}
    return found


def notes_on_runs(runs: Runs, absent: dict[str, list[str]]) -> list[str]:
    """Say in what runs differ that bears on a comparison.

    Parameters
    ----------
    runs
        All of them.
    absent
        Names of runs without a split, by split.
    """
    notes = []
    seeds = {str(given(run.seed, None)) for _, run in runs}
    if len(seeds) > 1:
        told = ", ".join(f"{name} {given(run.seed, None)}" for name, run in runs)
        notes.append(
            f"The runs have different seeds ({told}). A seed decides which rows are test rows, so "
            "few are common, and each run was fitted on other rows: part of a difference is the "
            "training rows'."
        )
    quarters = {tuple(given(run.quarters, [])) for _, run in runs}
    if len(quarters) > 1:
        told = ", ".join(f"{name} {len(given(run.quarters, []))}" for name, run in runs)
        notes.append(f"The runs learned from different quarters; their numbers: {told}.")
    notes += [
        f"The split {split} is left out: {', '.join(names)} did not run it."
        for split, names in absent.items()
    ]
    return notes


def nothing_common(runs: Runs) -> str:
    """Say that runs have no test row in common, and why that may be."""
    seeds = [given(run.seed, None) for _, run in runs]
    told = ", ".join(f"{name} (seed {given(run.seed, None)})" for name, run in runs)
    return f"expected test rows that all runs have, found none for any split of {told}. " + (
        _OTHER_SEEDS if len(set(seeds)) > 1 else _SAME_SEED
    )


_OTHER_SEEDS = (
    "Runs of different seeds have different test rows; compare runs of one seed, split and data."
)
_SAME_SEED = "Compare runs of the same split, quarters and folds."


def no_rows(title: str, seeds: list[int | None]) -> str:
    """Say that no test row of a split is common to all runs."""
    why = _OTHER_SEEDS if len(set(seeds)) > 1 else _SAME_SEED
    return f"{title}: left out, as no test row is common to all runs. {why}"


def notes_on_rows(title: str, common: int, beyond: dict[str, int]) -> list[str]:
    """Say how many rows of which runs are not used."""
    more = {name: n for name, n in beyond.items() if n}
    if not more:
        return []
    told = ", ".join(f"{name} {words.count(n)}" for name, n in more.items())
    used = f"{title}: {words.count(common)} test rows are common to all runs and used"
    return [f"{used}; some runs have more, which are not: {told}."]


def notes_on_values(
    title: str, *, other_strata: dict[str, int], infinite: dict[str, int]
) -> list[str]:
    """Say where strata differ from the reference's, and where log scores are infinite."""
    return [
        *(
            f"{title}: {name} has another stratum than the reference in {words.count(n)} rows; the "
            "reference's is used."
            for name, n in other_strata.items()
            if n
        ),
        *(
            f"{title}: {name} gives {words.count(n)} measured values no probability at all, so its "
            "log score is infinite, and no mean of it or difference from it is given."
            for name, n in infinite.items()
            if n
        ),
    ]


_SAME_ROWS = (
    "All figures are of the same rows: those that every run tested. A difference is run minus "
    "reference, row by row, then averaged; for log score, CRPS and absolute error (of the "
    "median) below 0 is better than the reference. A difference of coverage is neither good "
    "nor bad by its sign: it is to be read beside the coverages."
)
_ERRORS = (
    "Standard errors come from {} bootstrap samples of blocks of 0.1 degrees, as rows of one place "
    "err alike; a mean is the sum of the differences in the drawn blocks over their rows. The "
    "interval is the difference plus and minus the 97.5 % quantile of Student's t times the "
    "standard error, with one degree of freedom less than effective blocks (the square of the sum "
    "of their rows over the sum of squares), and holds for one difference by itself. Errors tell "
    "how sure a difference is over the places of this region with these fits; that another seed "
    "would fit each model anew is not counted."
)
_MARKS = (
    "A * marks a difference of log score, CRPS or absolute error that is beyond chance: its "
    "95 % interval excludes 0, and it passes Holm's procedure over all other runs, these three "
    "scores and all strata of the split, so that the probability of any mark by chance alone "
    f"is 5 % or less in a split. Strata of fewer than {FEW_BLOCKS} effective blocks have no "
    "standard errors; they, and differences of coverage, are not marked."
)
_GAIN = (
    "The gain is the log score of the run's baseline, which knows the mean and variance of each "
    "quarter, minus the run's; it is given where the common rows are all rows that the run tested."
)
_COUNTS = (
    "Tests are counts: the log score is that of the probability of the count, and intervals "
    "of whole numbers hold their level or more if the predictions are right."
)


def method(draws: int, *, counts: bool) -> list[str]:
    """Say how differences and their standard errors were worked out."""
    said = [_SAME_ROWS, _ERRORS.format(words.count(draws)), _MARKS, _GAIN]
    return [*said, _COUNTS] if counts else said


def finding(title: str, run: str, reference: str, differences: dict[str, Estimate]) -> str:
    """Say in a sentence how a run differs from the reference over all rows of a split."""
    told = [f"{label} {estimate(differences[score])}" for score, label in _SCORE_NAMES.items()]
    return f"{title}: {run} against {reference}: {', '.join(told)}. {_verdict(differences)}"


def _verdict(differences: dict[str, Estimate]) -> str:
    marked = [
        differences[score].value or 0.0 for score in _SCORE_NAMES if differences[score].marked
    ]
    if all(differences[score].error is None for score in _SCORE_NAMES):
        return "How sure this is cannot be told."
    if not marked:
        return "No difference beyond chance."
    if len({value < 0 for value in marked}) > 1:
        return "Better in one and worse in another, beyond chance (*)."
    return f"{'Better' if marked[0] < 0 else 'Worse'} beyond chance where marked (*)."


def estimate(one: Estimate, digits: int = 4) -> str:
    """Write a difference, its mark, and its standard error in parentheses."""
    if one.value is None:
        return words.MISSING
    star = "*" if one.marked else ""
    error = "" if one.error is None else f" ({one.error:.{digits}f})"
    return f"{words.signed(one.value, digits)}{star}{error}"


def interval(one: Estimate, digits: int = 4) -> str:
    """Write the interval of a difference."""
    if one.value is None:
        return ""
    if one.lower is None or one.upper is None:
        return "in few blocks"
    return f"{words.signed(one.lower, digits)} to {words.signed(one.upper, digits)}"


def points(one: Estimate) -> str:
    """Write a difference of coverage in percentage points, its standard error in parentheses."""
    error = "" if one.error is None else f" ({100 * one.error:.1f})"
    return f"{words.points(one.value)}{error}"
