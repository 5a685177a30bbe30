"""The progress of a fit and the time that is left, printed for a user who waits."""

import math
import sys
from time import monotonic
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from geogp.models.fitting.loop import FitState

_LINE_SHARE = 0.1
"""Where a line cannot change, a line is printed each time progress has grown by this share."""


def duration_between(least: float, most: float) -> str:
    """Return a range of seconds in words, such as ``3 to 6 min``; one number if they are near."""
    unit, name = (60, "min") if most >= 120 else (1, "s")
    low, high = max(1, round(least / unit)), max(1, math.ceil(most / unit))
    return f"{low} to {high} {name}" if low < high else f"{high} {name}"


class FitProgress:
    """Prints stages and epochs of a fit to standard error; a context from the start to the end.

    In a terminal or a notebook, one line changes with each epoch. Elsewhere, such as in the log of
    a job, epochs have up to ten lines.
    """

    def __init__(self, name: str) -> None:
        self._name, self._out = name, sys.stderr
        self._can_change = self._out.isatty() or "ipykernel" in sys.modules
        self._open, self._shown = 0, 0.0

    def __enter__(self) -> Self:
        self._start = monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        took = duration(monotonic() - self._start)
        self.stage(f"fitted in {took}" if kind is None else f"stopped after {took}")

    def stage(self, text: str) -> None:
        """Print the name of a stage that begins."""
        self._shown = 0.0
        self._print(text, ends=True)

    def epoch(self, state: "FitState", epochs: int) -> None:
        """Print the number of finished epochs, and the time that the others take at most."""
        share = state.epoch / epochs
        if not self._can_change and share < 1 and share - self._shown < _LINE_SHARE:
            return
        self._shown = share
        left = state.seconds / state.epoch * (epochs - state.epoch)
        rest = f"at most {duration(left)} left" if share < 1 else "finishing"
        score = f"validation log score {state.validation_nll[-1]:.4f}"
        text = f"epoch {state.epoch} of {epochs}, {score}, {rest}"
        self._print(text, ends=not self._can_change)

    def _print(self, text: str, *, ends: bool) -> None:
        line = f"{self._name}: {text}"
        if self._open:
            line = "\r" + line.ljust(self._open)
        self._open = 0 if ends else len(line.lstrip("\r"))
        print(line, end="\n" if ends else "", file=self._out, flush=True)


def duration(seconds: float) -> str:
    """Return a time in words, such as ``2 min 5 s``.

    Examples
    --------
    >>> duration(0.2), duration(125), duration(4000)
    ('1 s', '2 min 5 s', '1 h 6 min')
    """
    whole = max(1, round(seconds))
    minutes, hours = whole // 60, whole // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
