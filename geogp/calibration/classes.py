"""Coverage by class (stratum, quarter, tests per tile), judged for all classes at once.

With many classes some miss their level by chance. Each coverage therefore has a band that holds
for all checks of a split together: with p_k the observed coverage of check k and p*_k that of
a bootstrap sample of blocks, s_k = sd(p*_k), and q the 95 % quantile of max_k |p*_k - p_k| / s_k,

    p_k - q s_k  to  p_k + q s_k    for all k (the studentised maximum; Davison and Hinkley 1997).

Blocks of tiles, not rows, are drawn, as rows of one place err alike. s_k is never below
the binomial standard deviation of the stated level, so that a class without a miss has a band too;
it is taken over the samples that hold the class. A class that lies in fewer than 20 blocks is not
judged: so few say little of how rows of a block err alike.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.calibration.splits import cell_indices
from geogp.errors import DataError

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]

CLASS_LEVELS = (0.5, 0.8, 0.95)
"""Levels that are checked."""

TESTS_CLASSES = ((1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, None))
"""Least and most tests of a tile in a quarter, in each class."""

EXPECTED_CLASSES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Where classes of the expected number of tests part."""

LEAST_ROWS = 30
"""Classes with fewer rows are put together with the next one of their kind."""

FEW_BLOCKS = 20
"""Classes in fewer blocks are not judged."""

DRAWS = 1000
_TWO_SIDED = 1.96
TOLERANCE = 0.03
"""A coverage that is off by no more is not marked, however narrow its band."""


@dataclass(frozen=True)
class Check:
    """One coverage and its band.

    Attributes
    ----------
    level
        The stated level.
    observed
        Share of the class's rows inside the central interval of the level.
    lower, upper
        Band that holds for all checks of the split together with 95 %; None where the class lies
        in too few blocks.
    off
        Whether the level lies outside the band and is missed by more than 3 points.
    error
        Standard error s_k of `observed`; None where the class lies in too few blocks.
    """

    level: float
    observed: float
    lower: float | None
    upper: float | None
    off: bool
    error: float | None

    @property
    def outside(self) -> bool:
        """Whether the level lies outside the band."""
        if self.lower is None or self.upper is None:
            return False
        return not self.lower <= self.level <= self.upper


@dataclass(frozen=True)
class ClassReport:
    """Coverage of one class of rows.

    Attributes
    ----------
    kind
        ``stratum``, ``quarter``, ``tests`` or ``expected``.
    name
        Such as ``2020Q1`` or ``3 to 4``.
    n
        Its rows.
    checks
        One for each level.
    """

    kind: str
    name: str
    n: int
    checks: list[Check]


def _tests_name(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def tests_groups(tests: NDArray[np.int64]) -> dict[str, Rows]:
    """Return the rows of each class of tests (n,), by its name."""
    return {
        _tests_name(least, most): (tests >= least) & (tests <= (np.inf if most is None else most))
        for least, most in TESTS_CLASSES
    }


def expected_groups(mean: Floats) -> dict[str, Rows]:
    """Return the rows of each class of expected counts (n,), by its name."""
    place = np.searchsorted(EXPECTED_CLASSES, mean, side="right")
    ends = [f"{end:g}" for end in EXPECTED_CLASSES]
    between = [f"{low} to {high}" for low, high in pairwise(ends)]
    names = [f"below {ends[0]}", *between, f"{ends[-1]} or more"]
    return {name: place == number for number, name in enumerate(names)}


def value_groups(values: NDArray[np.str_]) -> dict[str, Rows]:
    """Return the rows of each value (n,), in the order of the values."""
    return {str(value): values == value for value in np.unique(values)}


def blocks_of(longitude: Floats, latitude: Floats) -> NDArray[np.int64]:
    """Return the number of the cell of 0.1 by 0.1 degrees that each row lies in, (n,)."""
    _, number = np.unique(cell_indices(longitude, latitude), axis=0, return_inverse=True)
    return number.reshape(-1)


def merged(groups: dict[str, Rows], least: int = LEAST_ROWS) -> dict[str, Rows]:
    """Return groups with those of fewer than `least` rows joined to the next, in order.

    A last one that is too small is joined to the one before it; empty groups vanish.
    """
    found: list[tuple[list[str], Rows]] = []
    open_names: list[str] = []
    open_rows: Rows | None = None
    for name, rows in groups.items():
        if not rows.any():
            continue
        open_names.append(name)
        open_rows = rows if open_rows is None else open_rows | rows
        if open_rows.sum() >= least:
            found.append((open_names, open_rows))
            open_names, open_rows = [], None
    if open_rows is not None:
        if found:
            names, rows = found.pop()
            open_names, open_rows = names + open_names, rows | open_rows
        found.append((open_names, open_rows))
    return {_joined(names): rows for names, rows in found}


def class_reports(
    pit: Floats,
    groups: dict[str, dict[str, Rows]],
    blocks: NDArray[np.int64],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[ClassReport]:
    """Work out the coverage of classes of rows, with bands that hold for all of them at once.

    Parameters
    ----------
    pit
        P(Y <= y) of each row's prediction at what was measured, (n,).
    groups
        Rows (n,) of each class by its name, by kind.
    blocks
        Number of the block of each row, (n,).
    draws, seed
        Bootstrap samples, and what they are drawn from.

    Raises
    ------
    DataError
        A class has no row, or a value of `pit` is no probability.
    """
    if len(pit) and not ((pit >= 0) & (pit <= 1)).all():
        raise DataError("expected probabilities from 0 to 1 as integral transforms.")
    classes = [(kind, name, rows) for kind, of in groups.items() for name, rows in of.items()]
    empty = [name for _, name, rows in classes if not rows.any()]
    if empty:
        raise DataError(f"expected classes with rows, found none in {', '.join(empty)}.")
    hits = np.abs(pit[:, None] - 0.5) <= 0.5 * np.array(CLASS_LEVELS)
    number = int(blocks.max()) + 1 if len(blocks) else 0
    sizes = np.zeros((number, len(classes)))
    inside = np.zeros((number, len(classes), len(CLASS_LEVELS)))
    for k, (_, _, rows) in enumerate(classes):
        np.add.at(sizes[:, k], blocks[rows], 1)
        np.add.at(inside[:, k], blocks[rows], hits[rows])
    n = sizes.sum(0)
    observed = inside.sum(0) / n[:, None]
    error, half = _errors(sizes, inside, observed, draws, seed)
    return [
        ClassReport(
            kind,
            name,
            int(n[k]),
            [
                _check(level, observed[k, j], error[k, j], half[k, j])
                for j, level in enumerate(CLASS_LEVELS)
            ],
        )
        for k, (kind, name, _) in enumerate(classes)
    ]


def table_classes(rows: pd.DataFrame, pit: Floats) -> list[ClassReport]:
    """Work out coverage by quarter and by tests for rows of test_predictions.parquet.

    Counts of tests are classed by what was expected: by what was counted, no prediction could
    hold its levels.
    """
    place = (rows[name].to_numpy(np.float64) for name in ("longitude", "latitude"))
    groups = {
        "quarter": merged(value_groups(rows["quarter"].to_numpy(str))),
        **(
            {"expected": merged(expected_groups(rows["mean"].to_numpy(np.float64)))}
            if "dispersion" in rows
            else {"tests": merged(tests_groups(rows["tests"].to_numpy(np.int64)))}
        ),
    }
    return class_reports(pit, groups, blocks_of(*place))


def _errors(
    sizes: Floats, inside: Floats, observed: Floats, draws: int, seed: int
) -> tuple[Floats, Floats]:
    """Return s_k and q s_k of all classes, each (classes, levels); NaN for those in few blocks."""
    number = len(sizes)
    judged = (sizes > 0).sum(0) >= FEW_BLOCKS
    error = np.full(observed.shape, np.nan)
    if not judged.any():
        return error, error
    sizes, inside, observed = sizes[:, judged], inside[:, judged], observed[judged]
    level = np.array(CLASS_LEVELS)
    floor = np.sqrt(level * (1 - level) / sizes.sum(0)[:, None])
    weights = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), draws)
    drawn = (weights @ sizes)[:, :, None]
    share = np.einsum("db,bkl->dkl", weights.astype(np.float64), inside) / np.maximum(drawn, 1)
    away = np.where(drawn > 0, np.abs(share - observed), 0.0)
    sd = np.maximum(np.sqrt(np.square(away).sum(0) / (drawn > 0).sum(0)), floor)
    # Where no sample differs from the whole there is still the binomial deviation.
    q = max(float(np.quantile((away / sd).max((1, 2)), 0.95)), _TWO_SIDED)
    error[judged] = sd
    return error, q * error


def _check(level: float, observed: float, error: float, half: float) -> Check:
    if np.isnan(half):
        return Check(level, float(observed), None, None, off=False, error=None)
    off = abs(observed - level) > max(half, TOLERANCE)
    lower, upper = max(0.0, observed - half), min(1.0, observed + half)
    return Check(level, float(observed), float(lower), float(upper), bool(off), float(error))


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
