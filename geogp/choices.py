"""Names that a user chooses from, and ranges of numbers."""

import difflib
from collections.abc import Iterable
from numbers import Integral

from geogp.errors import RequestError

MOST_SEED = 2**63 - 1
"""What PyTorch takes."""

MOST_DRAWS = 100_000
"""Of a posterior."""

MOST_TESTS = 1_000_000
"""Behind one average."""

MOST_KM = 20_000
"""No two places on Earth are farther apart."""


def one_of(what: str, found: str, allowed: Iterable[str]) -> None:
    """Refuse a name that is not among those allowed, and say which come near.

    Raises
    ------
    RequestError
        It is not.
    """
    names = list(allowed)
    if found not in names:
        near = difflib.get_close_matches(found, names, n=2, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise RequestError(f"unknown {what} {found!r}; choose one of {', '.join(names)}.{hint}")


def whole_number(what: str, found: object, least: int, most: int) -> None:
    """Refuse what is no whole number of a range, ends included.

    Raises
    ------
    RequestError
        It is not.
    """
    if isinstance(found, Integral) and least <= int(found) <= most:
        return
    whole = "" if isinstance(found, Integral) else ", a whole number"
    raise RequestError(f"expected {what} from {least:,} to {most:,}{whole}, found {_shown(found)}.")


def above_zero(what: str, found: float, most: float, unit: str) -> None:
    """Refuse a number that is not above 0, or is above the largest of its range.

    Raises
    ------
    RequestError
        It is such a number, or none (nan).
    """
    if not 0 < found <= most:
        raise RequestError(
            f"expected {what} above 0 {unit}, at most {most:,}, found {_shown(found)}."
        )


def _shown(found: object) -> str:
    text = f"{found:g}" if isinstance(found, float) else str(found)
    return text if len(text) <= 40 else f"{text[:40]}... ({len(text)} characters)"
