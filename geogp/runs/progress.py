"""Listeners of the progress of a run, and the clock of its phases."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PHASES = ("read", "fit", "check", "predict", "write")
"""The phases of a map. A phase has several parts if there are several fits."""

MOST_PACE = 3.0
"""Largest factor of a pace: a phase that takes longer may do what the others do not."""


@dataclass
class PhaseClock:
    """The time that the phases of a map took, and the time that is left.

    `parts` is the number of parts of each phase. `expected` has the seconds of one part, as far as
    they are known from earlier maps on this machine; `rough` has the least and the most seconds
    of one part whose time is not known so well. `spent` has the seconds of finished parts.
    `work` has the units of work in one part. `phase` is the current phase, or empty.
    """

    now: Callable[[], float] = time.monotonic
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 1))
    expected: dict[str, float] = field(default_factory=dict)
    rough: dict[str, tuple[float, float]] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    phase: str = ""
    _began: float = 0.0
    _share: float = 0.0
    _steady: bool = True

    def begin(self, phase: str) -> None:
        """Begin a part of a phase; the current part ends."""
        self.end()
        self.phase, self._began, self._share, self._steady = phase, self.now(), 0.0, True

    def end(self) -> None:
        """End the current part."""
        if self.phase:
            self.spent.setdefault(self.phase, []).append(self.now() - self._began)
        self.phase = ""

    def advance(self, share: float) -> None:
        """Set the finished share of the current part.

        A share that falls shows that the part repeats its work, so it says nothing about the time.
        """
        self._steady &= share >= self._share
        self._share = share

    @property
    def elapsed(self) -> float:
        """Seconds of all parts so far."""
        current = self.now() - self._began if self.phase else 0.0
        return sum(map(sum, self.spent.values())) + current

    @property
    def left(self) -> float | None:
        """Seconds until the end of the last phase; None if they are not known."""
        times = [
            self.left_of(phase) for phase in {**dict.fromkeys(PHASES), self.phase: None} if phase
        ]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) if len(known) == len(times) else None

    @property
    def left_between(self) -> tuple[float, float] | None:
        """The least and the most seconds until the end of the last phase; None if not known.

        The rough times are multiplied by the pace so far: the time of the latest finished part,
        divided by the geometric mean of its rough times, within a factor of `MOST_PACE`. The epochs
        of a first fit do not count, because what follows the last of them may take longer than all
        together.
        """
        pace = self._pace()
        least, most = 0.0, 0.0
        for phase in PHASES:
            unknown = phase == "fit" and phase in self.rough and phase not in self.spent
            left = None if unknown else self.left_of(phase)
            bounds: tuple[float, float] | None = None if left is None else (left, left)
            if bounds is None and phase in self.rough:
                after = self.parts.get(phase, 1) - len(self.spent.get(phase, []))
                took = self.now() - self._began if phase == self.phase else 0.0
                low, high = (pace * after * seconds - took for seconds in self.rough[phase])
                bounds = None if high < 0 else (max(low, 0.0), high)
            if bounds is None:
                return None
            least, most = least + bounds[0], most + bounds[1]
        return least, most

    def _pace(self) -> float:
        """Return how many times longer than its rough times the latest finished part took."""
        pace = 1.0
        for phase, (low, high) in self.rough.items():
            done = self.spent.get(phase, [])
            if done:
                pace = sum(done) / len(done) / math.sqrt(low * high)
        return min(max(pace, 1 / MOST_PACE), MOST_PACE)

    def left_of(self, phase: str) -> float | None:
        """Return the seconds until the end of a phase, or None if they are not known."""
        done = self.spent.get(phase, [])
        whole = sum(done) / len(done) if done else self.expected.get(phase)
        after = self.parts.get(phase, 1) - len(done)
        if phase != self.phase:
            if after <= 0:
                return 0.0
            return None if whole is None else after * whole
        took = self.now() - self._began
        if self._steady and self._share > 0:
            current: float | None = took * (1 - self._share) / self._share
            whole = took / self._share if whole is None else whole
        else:
            current = whole - took if whole is not None and took < whole else None
        if current is None or whole is None:
            return None
        return current + max(after - 1, 0) * whole


class ProgressListener:
    """Receiver of a run's stages, progress and warnings; this base class ignores them."""

    def phases(self, clock: PhaseClock) -> None:
        """Receive the clock of a map before its first phase begins."""

    def stage(self, text: str) -> None:
        """Receive the name of a stage that begins."""

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        """Receive the progress within a stage."""

    def warn(self, text: str) -> None:
        """Receive a warning, which is also written to run.json."""


class RunListener(ProgressListener):
    """The one listener of a run: passes everything on to `outer`, and keeps what run.json says.

    Attributes
    ----------
    warnings
        All warnings so far.
    seconds
        The seconds of reading, fits, predictions and writing.
    clock
        The clock of the phases.
    """

    def __init__(self, outer: ProgressListener | None = None) -> None:
        self.outer = outer or ProgressListener()
        self.warnings: list[str] = []
        self.seconds = dict.fromkeys(("read", "fit", "predict", "write"), 0.0)
        self.clock = PhaseClock()

    def copy(self) -> "RunListener":
        """Return a listener that has heard the same, and keeps what follows apart."""
        other = RunListener(self.outer)
        other.warnings = list(self.warnings)
        return other

    def begin(self, phase: str, text: str) -> None:
        """Begin a part of a phase and a stage."""
        self.clock.begin(phase)
        self.stage(text)

    def stage(self, text: str) -> None:
        """Pass on the name of a stage that begins."""
        self.outer.stage(text)

    def progress(self, text: str, done: int, total: int, note: str = "") -> None:
        """Pass on the progress within a stage."""
        self.outer.progress(text, done, total, note)

    def warn(self, text: str) -> None:
        """Keep a warning and pass it on."""
        self.warnings.append(text)
        self.outer.warn(text)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds spent in the ``with`` block to the entry `name` of `seconds`."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - start
