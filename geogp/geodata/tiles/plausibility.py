"""Limits for the numbers of a tile, and a check for swapped columns.

A single wrong cell can widen every interval of a map. The limits lie far above all measurements,
but below numbers that are typical of damaged or altered files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.tiles.quadkeys import format_quadkeys
from geogp.geodata.tiles.quarters import quarter_label


@dataclass(frozen=True)
class Limit:
    """The upper limit for a column of Ookla's files, the unit, and the reason for the limit.

    `may_be_zero` marks columns in which Ookla's files have a few zeros, which are impossible.
    """

    most: int
    unit: str
    source: str
    may_be_zero: bool = False


_ETHERNET = Limit(100_000_000, "kbps", "100 Gigabit Ethernet, IEEE 802.3ba")

_BOTH = {
    "avg_lat_ms": Limit(60_000, "ms", "a minute; a test stops earlier", may_be_zero=True),
    "tests": Limit(10_000_000, "tests", "1 % of a quarter's tests in the whole world"),
    "devices": Limit(10_000_000, "devices", "as many as tests"),
}

LIMITS = {
    "mobile": {
        "avg_d_kbps": Limit(20_000_000, "kbps", "peak rate of 5G, ITU-R M.2410"),
        "avg_u_kbps": Limit(10_000_000, "kbps", "peak rate of 5G, ITU-R M.2410"),
        **_BOTH,
    },
    "fixed": {"avg_d_kbps": _ETHERNET, "avg_u_kbps": _ETHERNET, **_BOTH},
}
"""Limits by service and column. `read_rows` checks that values are positive, or 0 if allowed."""

MAX_ROWS, MAX_SHARE = 5, 0.001
"""A quarter is refused if more than 5 rows, and more than 0.1 % of its rows, are beyond a limit."""

NAMED = 3  # number of values of a column that a message lists

MANY_TESTS, SLOW_KBPS = 1000, 1000
"""Columns look swapped if the median of tests is above the first number, and the median speed is
below the second.
"""

JUMP = 5
"""The columns of a quarter look swapped if, compared with the other quarters, the median of tests
is at least this many times as large, and the median of the target this many times smaller.
"""


@dataclass(frozen=True)
class Implausible:
    """An impossible value (above its limit, or 0): the column, the tile, and the value as text."""

    column: str
    quadkey: str
    value: str


@dataclass(frozen=True)
class LeftOut:
    """Rows of a file that are left out of a run, with the first values beyond a limit."""

    file: str
    quarter: int
    rows: int
    first: tuple[Implausible, ...]

    def described(self) -> dict[str, Any]:
        """Return the entry for run.json."""
        return asdict(self) | {"quarter": quarter_label(self.quarter)}

    def warning(self, service: str, target: str) -> str:
        """Return the warning for the user."""
        return (
            f"{self.rows} rows of {self.file} are left out of {target}, after the split, because "
            f"their values are impossible: {told(self.first, service)}."
        )


def beyond_limits(
    service: str, columns: Mapping[str, NDArray[Any]], codes: NDArray[np.uint64]
) -> tuple[NDArray[np.bool_], tuple[Implausible, ...]]:
    """Return which of n rows have an impossible value (above its limit, or 0), and the first ones.

    `columns` are the values (n,) as the file stores them, because a cast could make wrong values
    look right. Raises DataError if all rows are beyond a limit, or if more than 5 rows and more
    than 0.1 % of the rows are.
    """
    wrong = {
        name: (values > LIMITS[service][name].most) | (values == 0)
        for name, values in columns.items()
    }
    rows = np.logical_or.reduce(list(wrong.values()))
    first = []
    for name, beyond in wrong.items():
        at = np.flatnonzero(beyond)[:NAMED]
        tiles = format_quadkeys(codes[at])
        first += [
            Implausible(name, str(tile), str(value))
            for tile, value in zip(tiles, columns[name][at].tolist(), strict=True)
        ]
    count = int(rows.sum())
    if count and (count > max(MAX_ROWS, MAX_SHARE * len(rows)) or count == len(rows)):
        raise DataError(
            f"expected possible values, found impossible values in {count} of {len(rows)} rows of "
            f"the region, too many to leave out: {told(first, service)}."
        )
    return rows, tuple(first)


def told(first: Sequence[Implausible], service: str) -> str:
    """Return a text that lists values and their limits."""
    texts = []
    for one in first:
        limit = LIMITS[service][one.column]
        beyond = f"above {limit.most:,} {limit.unit} ({limit.source})"
        if float(one.value) == 0:
            beyond = f"not above 0 {limit.unit}"
        texts.append(f"{one.column} {one.value} in tile {one.quadkey}, {beyond}")
    return "; ".join(texts)


def exchanged_columns(name: str, medians: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return a warning for each file whose column `name` looks swapped with the column of tests.

    `medians` gives for each file the median of the column `name`, as stored, and the median of
    tests.
    """
    warnings = []
    for file, (value, tests) in medians.items():
        others = np.array([pair for other, pair in medians.items() if other != file])
        speeds = name.endswith("_kbps") and value < SLOW_KBPS
        found = tests > MANY_TESTS and (speeds or name == "tests")
        known = ""
        if len(others):
            usual, usual_tests = np.median(others, axis=0).tolist()
            jumps = tests >= JUMP * usual_tests and value * JUMP <= usual
            found, known = found or jumps, f" (other quarters: {usual:g} and {usual_tests:g})"
        if found:
            warnings.append(
                f"the columns {name} and tests of {file} seem to be swapped: their medians are "
                f"{value:g} and {tests:g}{known}. Compare the file with its source."
                if name != "tests"
                else f"the column tests of {file} seems to contain another quantity: its median "
                f"is {tests:g}. "
                "Compare the file with its source."
            )
    return warnings
