"""Limits for the values of a tile, and a check for swapped columns.

A single wrong value can widen all intervals of a map. The limits are far above all real
measurements, but below the typical values of damaged or altered files.
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
    """The limits for a column of Ookla's files or of own tests, their unit, and their reason.

    Without the lower limit `least`, values must be above 0. If `may_be_zero` is true, rows with a
    zero are left out; otherwise, a zero is an error.
    """

    most: int
    unit: str
    source: str
    may_be_zero: bool = False
    least: int | None = None

    def beyond(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask (n,) of impossible values; others check that numbers are not negative."""
        low = values == 0 if self.least is None else values < self.least
        return np.asarray((values > self.most) | low, np.bool_)

    def holds(self, values: NDArray[np.float64]) -> bool:
        """Return whether no value is above the limit, nor below a lower limit."""
        low = -np.inf if self.least is None else self.least
        return not np.any((values > self.most) | (values < low))

    def named(self, end: int) -> str:
        """Return a limit in words, with its unit and its reason."""
        return f"{end:,} {self.unit} ({self.source})"


_ETHERNET = Limit(100_000_000, "kbps", "100 Gigabit Ethernet, IEEE 802.3ba")

_BOTH = {
    "avg_lat_ms": Limit(60_000, "ms", "a minute; a test stops earlier", may_be_zero=True),
    "tests": Limit(10_000_000, "tests", "1 % of a quarter's tests in the whole world"),
    "devices": Limit(10_000_000, "devices", "as many as tests"),
}

_SIGNALS = {
    # Values that a phone can report: 3GPP TS 36.133, 9.1.4 (RSRP) and TS 38.133, 10.1.6 to 10.1.16
    # (SS-RSRP, SS-RSRQ, SS-SINR). LTE has narrower ranges of RSRQ and SINR.
    "rsrp_dbm": Limit(-31, "dBm", "reporting range of RSRP, 3GPP TS 38.133", least=-156),
    "rsrq_db": Limit(20, "dB", "reporting range of SS-RSRQ, 3GPP TS 38.133", least=-43),
    "sinr_db": Limit(40, "dB", "reporting range of SS-SINR, 3GPP TS 38.133", least=-23),
    # The noise of the 200 kHz of a GSM carrier is -121 dBm; 0 dBm overloads a receiver.
    "rssi_dbm": Limit(0, "dBm", "from thermal noise to an overloaded receiver", least=-120),
    "signal_dbm": Limit(0, "dBm", "as weak as RSRP, and as strong as RSSI", least=-156),
}
"""Limits of signals."""

_SHARES = {"success_percent": Limit(100, "%", "all tests", least=0)}

LIMITS = {
    "mobile": {
        "avg_d_kbps": Limit(20_000_000, "kbps", "peak rate of 5G, ITU-R M.2410"),
        "avg_u_kbps": Limit(10_000_000, "kbps", "peak rate of 5G, ITU-R M.2410"),
        **_BOTH,
        **_SIGNALS,
        **_SHARES,
    },
    "fixed": {"avg_d_kbps": _ETHERNET, "avg_u_kbps": _ETHERNET, **_BOTH, **_SIGNALS, **_SHARES},
}
"""Limits by service and column; `read_rows` checks that columns of tiles are not negative."""

MAX_ROWS, MAX_SHARE = 5, 0.001
"""A quarter is refused if over 5 rows, and over 0.1 % of its rows, have impossible values."""

NAMED = 3  # number of values of a column that a message lists

MANY_TESTS, SLOW_KBPS = 1000, 1000
"""Columns look swapped if tests have a median above 1000, and speeds a median below 1000 kbps."""

JUMP = 5
"""Columns look swapped if both medians differ from other quarters by this factor or more.

The median of tests must rise by this factor or more, and the median of the target must fall.
"""


@dataclass(frozen=True)
class Implausible:
    """An impossible value (above its limit, or 0): the column, the tile, and the value as text."""

    column: str
    quadkey: str
    value: str


@dataclass(frozen=True)
class LeftOut:
    """The rows of a file that a run leaves out, with some of their impossible values."""

    file: str
    quarter: int
    rows: int
    first: tuple[Implausible, ...]

    def described(self) -> dict[str, Any]:
        """Return a description of the left-out rows for run.json."""
        return asdict(self) | {"quarter": quarter_label(self.quarter)}

    def warning(self, service: str, target: str) -> str:
        """Return the warning about the left-out rows."""
        return (
            f"{self.rows} rows of {self.file} are left out of {target}, after the split, because "
            f"their values are impossible: {told(self.first, service)}."
        )


def beyond_limits(
    service: str, columns: Mapping[str, NDArray[Any]], codes: NDArray[np.uint64]
) -> tuple[NDArray[np.bool_], tuple[Implausible, ...]]:
    """Return a mask (n,) of the rows with an impossible value, and the first of these values.

    A value is impossible if it is 0 or above its limit. `columns` are the values (n,) as stored in
    the file, because a conversion could hide wrong values. Raises DataError if all rows have an
    impossible value, or if more than 5 rows and more than 0.1 % of the rows have one.
    """
    wrong = {name: LIMITS[service][name].beyond(values) for name, values in columns.items()}
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
    """Return a text that lists impossible values and their limits."""
    texts = []
    for one in first:
        limit = LIMITS[service][one.column]
        beyond = f"above {limit.named(limit.most)}"
        if limit.least is not None and float(one.value) < limit.least:
            beyond = f"below {limit.named(limit.least)}"
        elif limit.least is None and float(one.value) == 0:
            beyond = f"not above 0 {limit.unit}"
        texts.append(f"{one.column} {one.value} in tile {one.quadkey}, {beyond}")
    return "; ".join(texts)


def exchanged_columns(name: str, medians: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return a warning for each file whose column `name` looks swapped with the column of tests.

    `medians` gives, for each file, the medians of the column `name`, as stored, and of tests.
    """
    warnings = []
    for file, (value, tests) in medians.items():
        others = np.array([pair for other, pair in medians.items() if other != file])
        speeds = name.endswith("_kbps") and value < SLOW_KBPS
        suspicious = tests > MANY_TESTS and (speeds or name == "tests")
        known = ""
        if len(others):
            usual, usual_tests = np.median(others, axis=0).tolist()
            jumps = tests >= JUMP * usual_tests and value * JUMP <= usual
            suspicious, known = (
                suspicious or jumps,
                f" (other quarters: {usual:g} and {usual_tests:g})",
            )
        if suspicious:
            warnings.append(
                f"the columns {name} and tests of {file} seem to be swapped: their medians are "
                f"{value:g} and {tests:g}{known}. Compare the file with its source."
                if name != "tests"
                else f"the column tests of {file} seems to contain another quantity: its median "
                f"is {tests:g}. "
                "Compare the file with its source."
            )
    return warnings
