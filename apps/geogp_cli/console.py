"""Output of the command: progress and warnings on standard error, results on standard output."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from geogp.runs.progress import ProgressListener

_ERRORS = Console(stderr=True, soft_wrap=True)
_LINE_SHARE = 0.1
"""Without a terminal, a line is printed each time progress has grown by this share."""


class _Lines(ProgressListener):
    """Prints progress as plain lines if there is no terminal."""

    def __init__(self) -> None:
        self._shown: dict[str, float] = {}

    def stage(self, text: str) -> None:
        _ERRORS.print(escape(text))

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        if done < total and done / total - self._shown.get(text, 0.0) < _LINE_SHARE:
            return
        self._shown[text] = done / total
        _ERRORS.print(escape(f"{text}: {done}/{total}, {note}"))

    def warn(self, text: str) -> None:
        _ERRORS.print(f"[yellow]warning:[/yellow] {escape(text)}")


class _Bars(_Lines):
    """Shows progress as bars on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        if text not in self._tasks:
            self._tasks[text] = self._progress.add_task(escape(text), total=total, note="")
        self._progress.update(self._tasks[text], completed=done, total=total, note=escape(note))


@contextmanager
def working() -> Iterator[ProgressListener]:
    """Show the progress of a job; if the user interrupts the job, print how to continue."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    try:
        if _ERRORS.is_terminal:
            with Progress(*columns, console=_ERRORS) as progress:
                yield _Bars(progress)
        else:
            yield _Lines()
    except KeyboardInterrupt:
        fail("interrupted; to continue, give the same command again without --fresh.")
        raise


def fail(message: str) -> None:
    """Print an error."""
    _ERRORS.print(f"[red]error:[/red] {escape(message)}")


def table(
    title: str,
    headings: str,
    rows: Iterable[Sequence[Any]],
    *,
    left: Collection[str] = (),
) -> Table:
    """Return a table that shows all cells as plain text; an empty row is drawn as a line.

    `headings` contains the headings, separated by commas. The first column and the columns in
    `left` are left-aligned; all other columns are right-aligned.
    """
    found = Table(title=escape(title), title_justify="left")
    names = headings.split(", ")
    for heading in names:
        side = "left" if heading in {names[0], *left} else "right"
        found.add_column(heading, justify=side, overflow="fold")
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
        out.print(one if is_table else str(one), markup=is_table)
