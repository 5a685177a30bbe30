"""Settings of a request: names that a user chooses from, ranges of numbers, and what each is.

A request is a frozen dataclass whose fields say what they are, once::

    folds: int = setting("How often each split is run.", default=1, least=1, most=5)

`check_settings` checks its values by that, and the command makes its options of `settings_of`.
"""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any

from geogp.errors import RequestError

MOST_SEED = 2**63 - 1
"""What PyTorch takes."""

LEAST_DRAWS, MOST_DRAWS = 200, 100_000
"""Of a posterior; with fewer, ten draws or less decide where a region of 95 % ends."""

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


@dataclass(frozen=True)
class Setting:
    """What a setting is; `setting` makes it of a field of a request.

    Attributes
    ----------
    told
        What it is, for a user: the help of its option.
    default
        The value where none is given.
    noun
        What messages call it; None takes the name of the field.
    choices
        The texts that are allowed.
    least, most
        The ends of the range of a number, both in it.
    positive
        Whether the range is from 0, which is not in it, to `most`.
    unit
        Of a number.
    option
        Name of its option; None takes the name of the field, and "" stands for an argument.
    """

    told: str
    default: Any = None
    noun: str | None = None
    choices: Collection[str] = ()
    least: int | None = None
    most: int | None = None
    positive: bool = False
    unit: str = ""
    option: str | None = None

    def check(self, name: str, value: Any) -> None:
        """Refuse a value of the field of that name: not among the choices, or out of range.

        Raises
        ------
        RequestError
            It is such a value.
        """
        noun = self.noun or name
        if self.choices:
            one_of(noun, value, self.choices)
        elif self.most is not None and self.positive:
            above_zero(noun, value, self.most, self.unit)
        elif self.most is not None and self.least is not None:
            whole_number(noun, value, self.least, self.most)


def setting(told: str, *, default: Any = None, **more: Any) -> Any:
    """Return a field of a request that says what it is; see `Setting`."""
    return field(default=default, metadata={"setting": Setting(told, default, **more)})


def settings_of(request: type) -> dict[str, Setting]:
    """Return what the fields of a kind of request say, by name."""
    return {
        one.name: one.metadata["setting"] for one in fields(request) if "setting" in one.metadata
    }


def check_settings(request: Any) -> None:
    """Refuse a request with a value that is not among the choices, or out of range.

    Raises
    ------
    RequestError
        There is such a value.
    """
    for name, one in settings_of(type(request)).items():
        value = getattr(request, name)
        if value is not None:
            one.check(name, value)


def _shown(found: object) -> str:
    text = f"{found:g}" if isinstance(found, float) else str(found)
    return text if len(text) <= 40 else f"{text[:40]}... ({len(text)} characters)"
