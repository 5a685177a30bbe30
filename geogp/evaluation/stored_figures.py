"""Checks that the scores in a run.json agree with each other.

A report recomputes the scores of the model. The scores of the baseline depend on the training rows,
which a run folder does not contain. So this module checks that the scores of all rows equal
the combined scores of the strata, and of the folds. It also checks that baseline and model have the
same numbers of rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from geogp.errors import DataError, named
from geogp.evaluation.metrics import pooled
from geogp.evaluation.scores import TOLERANCE, ClassScores, Scores, agree
from geogp.evaluation.splits.row_parts import CALIBRATION, LEFT_OUT, PARTS, TEST
from geogp.geodata.places.stratum_column import ALL, STRATA, UNKNOWN
from geogp.geodata.tiles.targets import TARGETS

NOT_MEANS = {"ece"}
"""Scores of all rows that do not follow from the scores of parts of the rows."""

AnyKind = type[Scores] | type[ClassScores]

Table = Mapping[str, Mapping[str, Any]]
"""Scores, by stratum and name of the score."""


def check_figures(run: Mapping[str, Any]) -> None:
    """Raise DataError if the scores in the content of a run.json contradict each other."""
    settings, kind = run.get("settings", {}), _kind_of(run)
    splits, metrics = settings.get("splits"), run["metrics"]
    if not metrics:
        raise DataError("expected scores of one split or more under metrics, found none.")
    _expect("metrics", metrics, metrics if splits is None else splits)
    for key in {"baseline", "baseline_by_stratum", "n", "folds"} & set(run):
        _expect(key, run[key], metrics)
    strata = settings.get("strata") or STRATA
    if len({*strata, ALL, UNKNOWN}) < 4:
        raise DataError(f"expected two strata with different names, found {named(strata)}.")
    for split in metrics:
        folds = run["folds"][split] if "folds" in run else []
        if folds and settings.get("folds", len(folds)) != len(folds):
            raise DataError(
                f"expected {settings['folds']} folds under folds.{split}, found {len(folds)}."
            )
        if folds and "n" in run and run["n"][split] != folds[0]["n"]:
            raise DataError(f"n.{split} differs from the first entry of folds.{split}.")
        for number, fold in enumerate(folds):
            _check_pair(f"folds.{split}[{number}]", fold, (), strata, kind)
            _check_rows(f"folds.{split}[{number}]", fold["metrics"], fold["n"])
        keys = ("metrics", "baseline", "baseline_by_stratum")
        one = {key: run[key][split] for key in keys if key in run}
        _check_pair(split, one, folds, strata, kind)
        if not folds and "n" in run:
            _check_rows(split, one["metrics"], run["n"][split])
    parts = (*PARTS, CALIBRATION, LEFT_OUT)
    totals = {sum(n.get(name, 0) for name in parts) for n in run.get("n", {}).values()}
    if len(totals) > 1:
        raise DataError(
            f"expected the same total number of rows under n in all splits, found {sorted(totals)}."
        )


def _check_pair(
    place: str,
    held: Mapping[str, Any],
    folds: Sequence[Mapping[str, Any]],
    strata: Sequence[str],
    kind: AnyKind,
) -> None:
    """Raise DataError if the scores of model and baselines contradict each other."""
    rows: list[str] = []
    for key in ("metrics", "baseline", "baseline_by_stratum"):
        if key not in held:
            continue
        where = f"{key} of {place}"
        _expect(where, held[key], (ALL, *strata))
        _check_whole(where, held[key], strata, [fold[key] for fold in folds if key in fold], kind)
        own = [f"{figures['n']} rows of {name}" for name, figures in held[key].items()]
        rows = rows or own
        _expect(where, own, rows)


def _check_whole(
    where: str,
    table: Table,
    strata: Sequence[str],
    folds: Sequence[Table],
    kind: AnyKind,
) -> None:
    """Raise DataError if scores are missing or do not combine to the scores of all rows."""
    names = [field.name for field in fields(kind)]
    for name, figures in table.items():
        empty = [key for key in names if figures[key] is None]
        if len(empty) != (0 if figures["n"] else len(names) - 1):
            raise DataError(
                f"expected scores under {where}, {name}: numbers if there are rows, else null. "
                f"Found {len(empty)} nulls for {figures['n']} rows."
            )
        if folds:
            parts = [_scores(fold[name], kind) for fold in folds]
            _same(f"{where}, {name}", "the folds", pooled(parts), figures)
    parts = [_scores(table[name], kind) for name in strata]
    known = sum(part.n for part in parts)
    if known > table[ALL]["n"]:
        raise DataError(
            f"{where} has {known} rows in its strata, but {table[ALL]['n']} rows in total."
        )
    if known == table[ALL]["n"]:
        _same(f"{where}, {ALL}", "the strata", pooled(parts), table[ALL])


def _check_rows(place: str, metrics: Table, parts: Mapping[str, int]) -> None:
    if metrics[ALL]["n"] != parts[TEST]:
        raise DataError(
            f"metrics of {place} are for {metrics[ALL]['n']} rows, but n counts {parts[TEST]} "
            "test rows."
        )


def _kind_of(run: Mapping[str, Any]) -> AnyKind:
    """Return the type of the scores of a run, which its target determines."""
    return ClassScores if TARGETS[run["target"]].classes else Scores


def _scores(figures: Mapping[str, Any], kind: AnyKind) -> Any:
    return kind(**{field.name: figures[field.name] for field in fields(kind)})


def _same(where: str, of: str, expected: Scores | ClassScores, found: Mapping[str, Any]) -> None:
    """Raise DataError if found scores differ from expected scores; tolerances are relative."""
    for key, value in vars(expected).items():
        other = found[key]
        tolerance = TOLERANCE * max(1.0, abs(value or 0.0))
        if key not in NOT_MEANS and not agree(value, other, tolerance):
            raise DataError(f"{key} of {where} is {other}, but {of} together have {value}.")


def _expect(where: str, found: Iterable[str], expected: Iterable[str]) -> None:
    if set(found) != set(expected):
        raise DataError(
            f"expected {', '.join(expected)} under {where}, found {named(found) or 'nothing'}."
        )
