"""Strata of the rows of a split; small strata are pooled.

Rows form classes by number of tests, distance, speed or quarter. A class with fewer than `MIN_ROWS`
rows joins the next class. All places with fewer than `MIN_ROWS` rows form one stratum, ``others``.
Each provider is a stratum.
If a stratum is still too small, its coverage is shown, but has no band.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.arrays import Floats, Mask
from geogp.errors import DataError
from geogp.geodata.places.stratum_column import names_of
from geogp.geodata.places.stratum_names import UNKNOWN
from geogp.geodata.tiles.targets import find_target

MIN_ROWS = 100
"""Smallest number of rows of a stratum whose coverage has a band.

If 95 of 100 rows lie inside their intervals, the exact 95 % bounds of the coverage are less than 7
percentage points from 95 %.
"""

LAYER = "layer_"
"""Prefix of the columns that name the area of each row; there is a column for each layer."""

COUNT_STARTS = (1, 2, 3, 5, 10, 20)
"""Lowest number of tests or devices of a row in each class."""

SHARING_CLASSES = (1.5, 2.5, 5.0)
"""Limits between classes of tests per device."""

EXPECTED_CLASSES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Limits between classes of the expected number of tests."""

DISTANCE_CLASSES = (1, 2, 5, 10)
"""Limits between classes of the distance to the nearest measured tile, in km."""

SPEED_CLASSES = {
    "download": (5, 7, 35, 100),
    "upload": (1, 3, 10, 30),
    "latency": (30, 50, 75, 100),
    "rsrp": (-115, -105, -95, -85),
    "rsrq": (-19, -17, -14, -12),
    "sinr": (-3, 1, 5, 13),
    "rssi": (-103, -97, -89),
    "signal": (-115, -105, -95, -85),
    "success": (50, 80, 90, 95),
}
"""Limits between classes of the predicted median, in the unit of the target.

The FCC's National Broadband Map has mobile tiers with download and upload speeds of 5/1, 7/1 and
35/3 Mbps. The classes of signals are those of the bars of Android phones, as in `thresholds`.
"""

_ELSEWHERE = "elsewhere"
_NOUNS = {"county": "counties"}


@dataclass(frozen=True)
class Stratum:
    """A stratum of a split, with a mask `rows` (n,); `members` names its classes or places."""

    name: str
    members: list[str]
    rows: Mask


def strata_of(rows: pd.DataFrame, median: Floats, target: str) -> dict[str, list[Stratum]]:
    """Return the strata of rows of test_predictions.parquet, by kind; small strata are pooled.

    A kind of strata is left out if its column is absent. Strata by devices are also left out if
    some numbers of devices are missing. Classes by speed or by count depend on predictions, such as
    the `median` (n,). Classes by measured speeds or counts would have a wrong coverage, even for
    correct predictions. Raises DataError if a distance or number of tests or devices is impossible.
    """
    stratum = rows["stratum"].to_numpy(str)
    found = {
        "all": [Stratum("all rows", ["all rows"], np.ones(len(rows), np.bool_))],
        "stratum": [
            Stratum(name, [name], stratum == name)
            for name in (*names_of(rows["stratum"]), UNKNOWN)
            if (stratum == name).any()
        ],
    }
    if "dispersion" in rows:
        found["expected"] = joined(ranges(rows["mean"].to_numpy(np.float64), EXPECTED_CLASSES))
    else:
        tests = rows["tests"].to_numpy(np.float64)
        found["tests"] = joined(count_groups(tests, "test"))
        if "devices" in rows and not some_devices_missing(rows):
            devices = rows["devices"].to_numpy(np.float64)
            found["devices"] = joined(count_groups(devices, "device"))
            found["tests_per_device"] = joined(ranges(tests / devices, SHARING_CLASSES))
    if "distance_km" in rows:
        found["distance"] = joined(distance_groups(rows["distance_km"].to_numpy(np.float64)))
    if target in SPEED_CLASSES and "dispersion" not in rows:
        about = find_target(target)
        values = about.scale.values(median)
        found["speed"] = joined(ranges(values, SPEED_CLASSES[target], f" {about.unit}"))
    found["quarter"] = joined(value_groups(rows["quarter"].to_numpy(str)))
    for name in rows.columns:
        if name == "county" or name.startswith(LAYER):
            found[name] = pooled(_places(rows[name]), _NOUNS.get(name, "areas"))
    if "provider" in rows:  # each for itself, even with few rows
        found["provider"] = pooled(rows["provider"].to_numpy(str), least=1)
    return found


def some_devices_missing(rows: pd.DataFrame) -> bool:
    """Return whether some numbers of devices are missing, as in files of other programs."""
    return "devices" in rows and "dispersion" not in rows and bool(rows["devices"].isna().any())


def count_groups(counts: Floats, noun: str) -> dict[str, Mask]:
    """Return a mask (n,) of the rows in each class of tests or devices, by class.

    `noun` names the counts in the message. Raises DataError if a count is below 1.
    """
    _check(counts >= 1, f"1 {noun} or more in each row")
    pairs = ((start, after - 1) for start, after in pairwise(COUNT_STARTS))
    names = [str(low) if low == high else f"{low} to {high}" for low, high in pairs]
    names.append(f"{COUNT_STARTS[-1]} or more")
    return _classes(names, np.searchsorted(COUNT_STARTS, counts, side="right") - 1)


def ranges(values: Floats, ends: Sequence[float], unit: str = "") -> dict[str, Mask]:
    """Return a mask (n,) of the rows in each range of values; `ends` are the limits."""
    named = [f"{end:g}" for end in ends]
    between = [f"{low} to {high}{unit}" for low, high in pairwise(named)]
    names = [f"below {named[0]}{unit}", *between, f"{named[-1]}{unit} or more"]
    return _classes(names, np.searchsorted(ends, values, side="right"))


def distance_groups(distance_km: Floats) -> dict[str, Mask]:
    """Return a mask (n,) of the rows in each class of distances in km, by class.

    Raises DataError if a distance is negative or not finite.
    """
    right = np.isfinite(distance_km) & (distance_km >= 0)
    _check(right, "distances of 0 km or more to the nearest measured tile")
    place = np.searchsorted((0, *DISTANCE_CLASSES), distance_km, side="left")
    between = [f"{low} to {high} km" for low, high in pairwise(DISTANCE_CLASSES)]
    first, last = DISTANCE_CLASSES[0], DISTANCE_CLASSES[-1]
    names = ["same tile", f"up to {first} km", *between, f"above {last} km"]
    return _classes(names, place)


def value_groups(values: NDArray[np.str_]) -> dict[str, Mask]:
    """Return a mask (n,) of the rows with each value, in the order of the values."""
    names, number = np.unique(values, return_inverse=True)
    return _classes(list(map(str, names)), number)


def joined(groups: dict[str, Mask], least: int = MIN_ROWS) -> list[Stratum]:
    """Return strata; each group with fewer than `least` rows is joined to the next group.

    Empty groups are left out. If the last group is too small, it is joined to the group before.
    """
    found: list[Stratum] = []
    for name, rows in groups.items():
        if rows.any():
            found.append(Stratum(name, [name], rows))
            if len(found) > 1 and found[-2].rows.sum() < least:
                found[-2:] = [_together(*found[-2:])]
    if len(found) > 1 and found[-1].rows.sum() < least:
        found[-2:] = [_together(*found[-2:])]
    return found


def pooled(values: NDArray[np.str_], noun: str = "areas", least: int = MIN_ROWS) -> list[Stratum]:
    """Return a stratum for each place; places with fewer than `least` rows form the last stratum.

    The last stratum is called, for example, ``others (12 areas)``.
    """
    found, number = np.unique(values, return_inverse=True)
    number = number.reshape(-1)
    small = np.bincount(number, minlength=len(found)) < least
    names = [str(name) for name in found]
    strata = [Stratum(names[k], [names[k]], number == k) for k in np.flatnonzero(~small)]
    others = [names[k] for k in np.flatnonzero(small)]
    if others:
        name = others[0] if len(others) == 1 else f"others ({len(others)} {noun})"
        while len(others) > 1 and name in names:  # a place already has this name
            name += " together"
        strata.append(Stratum(name, others, small[number]))
    return strata


def _check(right: Mask, expected: str) -> None:
    wrong = int((~right).sum())
    if wrong:
        raise DataError(
            f"expected {expected}, found other values in {wrong} rows. Run `geogp map` again with "
            "--fresh."
        )


def _together(first: Stratum, second: Stratum) -> Stratum:
    members = first.members + second.members
    return Stratum(f"{members[0]} … {members[-1]}", members, first.rows | second.rows)


def _classes(names: Sequence[str], place: NDArray[np.intp]) -> dict[str, Mask]:
    return {name: place == number for number, name in enumerate(names)}


def _places(column: "pd.Series[str]") -> NDArray[np.str_]:
    """Return the names of places; an empty name becomes ``elsewhere``."""
    return column.fillna("").astype(str).replace("", _ELSEWHERE).to_numpy(str)
