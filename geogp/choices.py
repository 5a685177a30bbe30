"""Settings of a request: choices, ranges of numbers, and help texts.

A request is a frozen dataclass with the settings of a command. Each field describes a setting::

    folds: int = setting("How often each split is run.", default=1, least=1, most=5)

`check_settings` checks the values of a request. The options of a command come from `settings_of`.
"""

import difflib
import inspect
from collections.abc import Collection, Iterable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_type_hints

from geogp.arguments import check_kind, fits, of_kind, value_shown
from geogp.errors import RequestError, named, quoted, shown

AVERAGE, COUNT, CLASS = "average", "count", "class"
"""Kinds of targets: averages of tests, numbers of tests, and classes of tiles."""

REQUIRED: Any = inspect.Parameter.empty
"""Default of a setting that the user must give."""

MAX_SEED = 2**63 - 1
"""Largest seed that PyTorch accepts."""

FORCE_TOLD = (
    "Overwrite files that this command did not write. Runs and inputs are never overwritten."
)
"""Help text of ``--force``."""

MIN_DRAWS, MAX_DRAWS = 200, 100_000
"""Limits of the number of random draws; with 200, only 10 draws lie outside a 95 % region."""

MAX_TESTS = 1_000_000
"""Largest allowed number of tests behind one average."""

MAX_KM = 20_000
"""Largest allowed distance in km, about half of the Earth's circumference."""


def nearest(found: object, names: Iterable[str], most: int) -> list[str]:
    """Return up to `most` names that are similar to `found`, the most similar first."""
    return difflib.get_close_matches(str(found), list(names), n=most, cutoff=0.5)


_WHOLE = 40
"""A list of so many allowed names is shown as a whole; of a longer list, only the beginning."""


def one_of(what: str, found: object, allowed: Iterable[str]) -> None:
    """Raise RequestError if `found` is not an allowed name; the message has similar names."""
    names = list(allowed)
    check_kind(what, found, str)
    if found not in names:
        near = nearest(found, names, 2)
        listed = named(names, len(names) if len(names) <= _WHOLE else 10)
        hint = f" Did you mean {' or '.join(map(shown, near))}?" if near else ""
        raise RequestError(f"unknown {what} {quoted(found)}; choose one of {listed}.{hint}")


def whole_number(what: str, found: Any, least: int, most: int) -> None:
    """Raise RequestError unless `found` is a whole number from `least` to `most`."""
    whole = fits(found, int)
    if whole and least <= found <= most:
        return
    kind = "" if whole else ", a whole number"
    raise RequestError(
        f"expected {what} from {least:,} to {most:,}{kind}, found {value_shown(found)}."
    )


def above_zero(what: str, found: Any, most: float, unit: str) -> None:
    """Raise RequestError unless `found` is a number above 0 and at most `most`."""
    if not (fits(found, float) and 0 < found <= most):
        raise RequestError(
            f"expected {what} above 0 {unit}, at most {most:,}, found {value_shown(found)}."
        )


@dataclass(frozen=True)
class Setting:
    """The description of a setting: its help text, default value, names and allowed values.

    `told` is the help text of the option. `default` is the default value, or `REQUIRED` if the user
    must give a value. The name in messages (`noun`) and the name on the command line (`option`)
    default to the name of the field. If `option` is "", the setting is a command-line argument
    without a name. If `positive` is true, a number must be above 0 and at most `most`; otherwise,
    it must be from `least` to `most`. If `is_place`, a text is a path or an address.
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
    is_place: bool = False

    def option_name(self, name: str) -> str:
        """Return the option on the command line, such as ``--far-km``."""
        return self.option or f"--{name.replace('_', '-')}"

    def check(self, name: str, value: Any) -> None:
        """Raise RequestError if a value is out of range or not one of the choices."""
        noun = self.noun or name
        if self.choices:
            one_of(noun, value, self.choices)
        elif self.most is not None and self.positive:
            above_zero(noun, value, self.most, self.unit)
        elif self.most is not None and self.least is not None:
            whole_number(noun, value, self.least, self.most)


def setting(help_text: str, *, default: Any = None, **more: Any) -> Any:
    """Return a dataclass field with a default value and a description, a `Setting`."""
    about = {"setting": Setting(help_text, default, **more)}
    return field(metadata=about) if default is REQUIRED else field(default=default, metadata=about)


def settings_of(request: type) -> dict[str, Setting]:
    """Return the description of each setting of a request, by the name of the field."""
    # Inherited groups of options, which are keyword-only, follow the request's own options.
    own = sorted(fields(request), key=lambda one: bool(one.kw_only) and one.default is not MISSING)
    return {one.name: one.metadata["setting"] for one in own if "setting" in one.metadata}


def check_settings(request: Any) -> None:
    """Raise RequestError if a value in a request is of a wrong kind, out of range or no choice.

    Values become those that `of_kind` returns: for example, a list becomes a tuple.
    """
    kinds = get_type_hints(type(request))
    for name, one in settings_of(type(request)).items():
        value = of_kind(one.noun or name, getattr(request, name), kinds[name])
        object.__setattr__(request, name, value)
        if value == () and one.default is None:
            raise RequestError(f"expected one {one.noun or name} or more, found none.")
        if value is not None:
            one.check(name, value)


def check_sample(tests: float | None, devices: float | None) -> None:
    """Raise RequestError if `devices` is above `tests`; do nothing if one of them is None."""
    if tests is not None and devices is not None and devices > tests:
        raise RequestError(
            "expected no more devices than tests, because each test comes from one device; found "
            f"{devices} devices and {tests} tests."
        )
