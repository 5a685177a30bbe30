"""Number formats of reports, used as filters in templates and for tables on the terminal."""

import json
from typing import Any

from geogp.geodata.tiles.targets import find_target

MISSING = "\N{EN DASH}"
"""Text in place of a missing number."""

DEFAULT_ATTRIBUTION = (
    "Speedtest by Ookla Global Fixed and Mobile Network Performance Maps, CC BY-NC-SA 4.0"
)


def units_of(target: str) -> tuple[str, str]:
    """Return the unit of a number's modelled values, and the unit without log10 (or empty).

    Both are empty for a class.
    """
    about = find_target(target)
    if about.classes:
        return "", ""
    if about.counted:
        return "tests per tile and quarter", ""
    return about.scale.unit(about.unit), about.unit if about.scale.logarithmic else ""


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with fixed decimals, or a dash for None."""
    return MISSING if value is None else _minus(f"{value:,.{digits}f}")


def signed(value: float | None, digits: int = 3) -> str:
    """Write a difference with its sign, or a dash for None."""
    return MISSING if value is None else _minus(f"{round(value, digits) + 0.0:+.{digits}f}")


def percent(share: float | None) -> str:
    """Write a share in percent with one decimal, or a dash for None."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def span(shares: tuple[float, float]) -> str:
    """Write two shares in percent as the ends of a range."""
    return f"{100 * shares[0]:.1f} to {100 * shares[1]:.1f}"


def points(share: float | None) -> str:
    """Write a difference of shares in percentage points, or a dash for None."""
    return MISSING if share is None else f"{signed(100 * share, 1)} pt"


def count(n: int | None) -> str:
    """Write a whole number with separators, or a dash for None."""
    return MISSING if n is None else f"{n:,}"


def plain(value: Any) -> str:
    """Write a setting: a text unchanged, another value as JSON, an empty value as a dash."""
    if value is None or value in ([], {}):
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def own_measurements(tests: int, place: str) -> str:
    """Return what a map of a user's own measurements is of, for titles."""
    return f"{tests:,} own measurement{'s' if tests > 1 else ''}, {place}"


def sample_words(tests: int, devices: int | None) -> str:
    """Return a number of tests in words, with the number of devices if it is not None."""
    end = "" if devices is None else f" from {devices} device{'s' if devices > 1 else ''}"
    return f"{tests} test{'s' if tests > 1 else ''}{end}"


def estimate(one: Any, digits: int = 4) -> str:
    """Write a paired difference with its mark, and its standard error in parentheses."""
    if one.value is None:
        return MISSING
    error = "" if one.error is None else f" ({one.error:.{digits}f})"
    return f"{signed(one.value, digits)}{'*' if one.marked else ''}{error}"


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")
