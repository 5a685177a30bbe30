"""What the command prints: progress and warnings on standard error, results on standard output."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, to_builtins
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from geogp.runs.progress import ProgressListener

if TYPE_CHECKING:
    from geogp.models.catalogue.model_names import ModelName
    from geogp.records.run_record import Strata
    from geogp.runs.pipeline.make_map import RunResult

_ERRORS = Console(stderr=True, soft_wrap=True)
_LINE_SHARE = 0.1
"""Away from a terminal, a line is printed each time this much more is done."""


class _Bars(ProgressListener):
    """Progress bars on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def stage(self, text: str) -> None:
        self._progress.console.print(escape(text))

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        if text not in self._tasks:
            self._tasks[text] = self._progress.add_task(escape(text), total=total, note="")
        self._progress.update(self._tasks[text], completed=done, total=total, note=escape(note))

    def warn(self, text: str) -> None:
        self._progress.console.print(f"[yellow]warning:[/yellow] {escape(text)}")


class _Lines(ProgressListener):
    """Plain lines where there is no terminal."""

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
        _ERRORS.print(escape(f"warning: {text}"))


@contextmanager
def working() -> Iterator[ProgressListener]:
    """Show how a job goes while it runs, and say how to go on when it is stopped."""
    try:
        with _watching() as listener:
            yield listener
    except KeyboardInterrupt:
        fail("interrupted; the same command continues where it stopped (without --fresh).")
        raise


@contextmanager
def _watching() -> Iterator[ProgressListener]:
    if not _ERRORS.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=_ERRORS) as progress:
        yield _Bars(progress)


def fail(message: str) -> None:
    """Print an error."""
    _ERRORS.print(f"[red]error:[/red] {escape(message)}")


def show(result: "RunResult", *, as_json: bool) -> None:
    """Print where a run is and how good it is."""
    if as_json:
        print(json.dumps({"run": str(result.path), "metrics": to_builtins(result.record.metrics)}))
        return
    console = Console(soft_wrap=True)
    if result.already_there:
        console.print("This run is complete already; --fresh starts over.")
    baseline = {} if result.record.baseline is UNSET else result.record.baseline
    for split, metrics in result.record.metrics.items():
        console.print(_table(split, metrics, baseline.get(split, {})))
    console.print(f"map:    {result.path / 'map.html'}", markup=False)
    console.print(f"report: {result.path / 'report.html'}", markup=False)


def show_simulation(out: Path, described: dict[str, Any], *, as_json: bool) -> None:
    """Print where a simulation is and what the best possible scores are."""
    if as_json:
        print(json.dumps({"simulation": str(out), **described}))
        return
    console = Console(soft_wrap=True)
    console.print(f"{described['rows']:,} rows in {out}", markup=False)
    for split, scores in described.get("oracles", {}).items():
        told = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        console.print(f"log score on the test rows ({split} split): {told}", markup=False)


def show_models(catalogue: "dict[str, ModelName]") -> None:
    """Print the models with what they are, as JSON."""
    print(json.dumps({"models": {name: row.summary for name, row in catalogue.items()}}))


def _table(split: str, metrics: "Strata", baseline: "Strata") -> Table:
    table = Table(title=f"test rows, {split} split", title_justify="left")
    for heading in ("stratum", "n", "log score", "baseline", "MAE", "CRPS", "95 % holds", "width"):
        table.add_column(heading, justify="left" if heading == "stratum" else "right")
    for stratum, found in metrics.items():
        if not found.n:
            table.add_row(stratum, "0", *["-"] * 6)
            continue
        table.add_row(
            stratum,
            f"{found.n:,}",
            f"{found.nll:.3f}",
            f"{baseline[stratum].nll:.3f}" if stratum in baseline else "-",
            f"{found.mae:.3f}",
            f"{found.crps:.3f}",
            f"{found.coverage_95:.1%}",
            f"{found.width_95:.2f}",
        )
    return table
