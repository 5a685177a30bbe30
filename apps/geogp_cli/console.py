"""Output of the command: progress and warnings on standard error, results on standard output.

Texts may contain names from files, so their invisible characters are escaped, except for line
breaks, and their brackets are not read as markup.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape as without_markup
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from geogp.errors import visible_lines
from geogp.models.fitting.fit_progress import duration, duration_between
from geogp.runs.progress import PhaseClock, ProgressListener

_ERRORS = Console(stderr=True, soft_wrap=True, emoji=False)
_LINE_SHARE = 0.1
"""Without a terminal, a line is printed each time progress has grown by this share."""


_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    TextColumn("{task.fields[left]}"),
)


def escape(text: str) -> str:
    """Return a text for the terminal: with visible characters only, and without markup."""
    return without_markup(visible_lines(text))


def _left_in_words(clock: PhaseClock) -> str | None:
    """Return the time that is left, as well as it is known; None if it is not known."""
    left, between = clock.left, clock.left_between
    if left is not None:
        return f"about {duration(left)} left"
    return None if between is None else f"about {duration_between(*between)} left"


class _Lines(ProgressListener):
    """Prints progress as plain lines, with the time since the start, if there is no terminal."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._told = False
        self._shown: dict[str, float] = {}
        self._clock: PhaseClock | None = None

    def phases(self, clock: PhaseClock) -> None:
        self._clock = clock

    def stage(self, text: str) -> None:
        self._line(f"{text}{self._left()}")

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        if self._clock is not None:
            self._clock.advance(done / total)
        if done < total and done / total - self._shown.get(text, 0.0) < _LINE_SHARE:
            return
        self._shown[text] = done / total
        self._line(f"{text}: {done}/{total}{', ' * bool(note)}{note}{self._left()}")

    def end(self) -> None:
        """Print the whole time, if there were other lines."""
        if self._told:
            self._line("done")

    def _line(self, text: str) -> None:
        passed = timedelta(seconds=int(time.monotonic() - self._start))
        _ERRORS.print(escape(f"{passed} {text}"))
        self._told = True

    def warn(self, text: str) -> None:
        _ERRORS.print(f"[yellow]warning:[/yellow] {escape(text)}")

    def _left(self) -> str:
        """Return the time that is left in words; empty if it is not known."""
        left = None if self._clock is None else _left_in_words(self._clock)
        return "" if left is None else f" ({left})"


class _Bars(_Lines):
    """Shows progress on a terminal: one bar over all phases of a map, or a bar for each stage."""

    def __init__(self, progress: "_PhaseProgress") -> None:
        super().__init__()
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def phases(self, clock: PhaseClock) -> None:
        super().phases(clock)
        self._progress.follow(clock)

    def stage(self, text: str) -> None:
        _ERRORS.print(escape(text))

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        if self._clock is not None:
            self._clock.advance(done / total)
            self._progress.tell(f"{text}: {done}/{total}{', ' * bool(note)}{note}")
            return
        if text not in self._tasks:
            self._tasks[text] = self._progress.add_task(escape(text), total=total, left="")
        # A full bar would stand beside work that goes on.
        self._progress.update(
            self._tasks[text], completed=done, total=total, left=escape(note), visible=done < total
        )


class _PhaseProgress(Progress):
    """A display of bars; a bar that follows a clock moves with the time."""

    _clock: PhaseClock | None = None
    _note = ""

    def follow(self, clock: PhaseClock) -> None:
        """Show one bar over all phases of a clock."""
        self._clock = clock
        self._bar = self.add_task("", total=None, left="")

    def tell(self, note: str) -> None:
        """Show a note until the next phase begins."""
        assert self._clock is not None
        self._note, self._noted = note, self._clock.phase

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what is drawn, with the time that is left at this moment."""
        clock = self._clock
        if clock is not None and clock.phase:
            left, text = clock.left, _left_in_words(clock) or "time left not known"
            note = f"; {self._note}" if self._note and self._noted == clock.phase else ""
            self.update(
                self._bar,
                description=" > ".join(
                    f"[bold]{one}[/bold]" if one == clock.phase else one for one in clock.parts
                ),
                completed=clock.elapsed,
                total=None if left is None else clock.elapsed + left,
                left=escape(f"{text}{note}"),
            )
        return super().get_renderables()


@contextmanager
def working() -> Iterator[ProgressListener]:
    """Show the progress of a job."""
    if _ERRORS.is_terminal:
        with _PhaseProgress(*_COLUMNS, console=_ERRORS, transient=True) as progress:
            yield _Bars(progress)
    else:
        lines = _Lines()
        yield lines
        lines.end()


def fail(message: str) -> None:
    """Print an error."""
    _ERRORS.print(f"[red]error:[/red] {escape(message)}")


def table(
    title: str,
    headings: str | Iterable[str],
    rows: Iterable[Sequence[Any]],
    *,
    left: Collection[str] = (),
) -> Table:
    """Return a table that shows all cells as plain text; an empty row is drawn as a line.

    `headings` are the headings, or a text with the headings, separated by commas. The first column
    and the columns in `left` are left-aligned; all other columns are right-aligned.
    """
    found = Table(title=escape(title), title_justify="left")
    names = headings.split(", ") if isinstance(headings, str) else list(headings)
    for heading in names:
        side = "left" if heading in {names[0], *left} else "right"
        found.add_column(escape(heading), justify=side, overflow="fold")
    for row in rows:
        if row:
            found.add_row(*(escape(str(cell)) for cell in row))
        else:
            found.add_section()
    return found


def tell(*things: Table | Path | str) -> None:
    """Print results, one below the other, without interpreting markup in texts."""
    out = Console(soft_wrap=True, emoji=False)
    for one in things:
        is_table = isinstance(one, Table)
        out.print(one if is_table else visible_lines(str(one)), markup=is_table)
