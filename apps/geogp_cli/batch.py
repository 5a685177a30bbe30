"""The command `geogp batch`: parse, call, print."""

import inspect
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from geogp.choices import settings_of
from geogp.commands.batch.batch_plan import PLACED, VARIED, BatchRequest
from geogp.commands.batch.batch_plan import each_quarter as singly
from geogp.commands.batch.execution import Execution
from geogp.errors import RequestError
from geogp.runs.settings import MapRequest
from geogp_cli import console, place
from geogp_cli.setting_options import Command, given, parameters_of, with_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geogp.commands.batch.ledger import Ledger, LedgerEntry
    from geogp.commands.batch.make_batch import BatchProgressListener, BatchResult

_ERRORS = Console(stderr=True, soft_wrap=True)

_NOT_FOR_MANY = {*VARIED, *PLACED, "region_file", "region_name"}
"""Settings of a map that a batch has in its own way, or not at all."""

_SHOWN = 20
"""Rows of the table on a terminal, at most."""

_KEPT_BY_RESUME = {"resume", "as_json", *settings_of(Execution)} - {"fresh"}
"""Options that may stand beside `--resume`."""


def _batch(
    context: typer.Context,
    execution: Execution,
    maps: dict[str, Any],
    states: Annotated[
        str | None, typer.Option(help="GA,NM: postal codes, names or FIPS numbers; or all.")
    ] = None,
    services: Annotated[str, typer.Option(help="mobile, fixed, or both with a comma.")] = "mobile",
    targets: Annotated[
        str, typer.Option(help="download, upload, latency, tests; several with commas.")
    ] = "download",
    quarters: place.Quarters = None,
    each_quarter: Annotated[
        bool, typer.Option("--each-quarter", help="A run of each of --quarters, not one of all.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(help="Where the runs go: a folder, or an address such as s3://bucket/batch."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with the batch of this place; nothing else to say.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ] = False,
) -> None:
    """Map many states, services and targets at once; the same command goes on."""
    if resume is None:
        if states is None or out is None:
            raise RequestError(
                "a batch needs --states and --out; or --resume PLACE to go on with one."
            )
        many = singly(quarters) if each_quarter else (quarters,)
        lists = (_listed(text) for text in (states, services, targets))
        request = BatchRequest(*lists, many, maps)
    else:
        _check_resume(context)

    from geogp.commands.batch.make_batch import make_batch, resume_batch

    with _watching(resume or out) as listener:
        if resume is None:
            result = make_batch(request, out, execution, listener=listener)
        else:
            result = resume_batch(resume, execution, listener=listener)
    if as_json:
        print(json.dumps(result.described()))
    else:
        _show(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def batch_command() -> Command:
    """Return the command: options of its own, of who works, and of the maps."""
    context, _, _, *own, as_json = inspect.signature(_batch).parameters.values()
    works, maps = parameters_of(Execution), parameters_of(MapRequest, leave=_NOT_FOR_MANY)

    def batch(context: typer.Context, **options: Any) -> None:
        of_works, of_maps = (
            {one.name: options.pop(one.name) for one in of} for of in (works, maps)
        )
        _batch(context, Execution(**given(of_works)), given(of_maps), **options)

    batch.__doc__ = _batch.__doc__
    return with_parameters(batch, [context, *own, *works, as_json, *maps])


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _check_resume(context: typer.Context) -> None:
    """Refuse what would be ignored: a batch that goes on is as it was asked for."""
    named = sorted(
        name
        for name in context.params
        if name not in _KEPT_BY_RESUME
        and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    )
    if named:
        raise RequestError(
            f"--resume goes on with the batch as it was asked for; leave out {', '.join(named)}, "
            "or give the whole command again with --out."
        )


@contextmanager
def _watching(place: str | None) -> Iterator["BatchProgressListener"]:
    """Show how a batch goes while it runs, and say how to go on when it is stopped."""
    try:
        if _ERRORS.is_terminal:
            with Live(console=_ERRORS, refresh_per_second=4, transient=True) as live:
                yield _table_listener(live)
        else:
            yield _line_listener()
    except KeyboardInterrupt:
        console.fail(f"interrupted; `geogp batch --resume {place}` continues where it stopped.")
        raise


def _line_listener() -> "BatchProgressListener":
    """Return what prints a line for each change."""
    from geogp.commands.batch.make_batch import BatchProgressListener

    class Lines(BatchProgressListener):
        """Plain lines where there is no terminal."""

        def __init__(self) -> None:
            self._names: set[str] = set()
            self._ended: set[str] = set()

        def begin(self, ledger: "Ledger", names: "Sequence[str]") -> None:
            self._names = set(names)
            kept = {name for name in names if ledger.entries[name].state == "done"}
            self._ended = kept
            _ERRORS.print(f"{len(names)} runs, {len(kept)} of them there already", markup=False)

        def changed(self, name: str, entry: "LedgerEntry") -> None:
            if entry.state in {"done", "failed"}:
                self._ended.add(name)
            count = f"[{len(self._ended)}/{len(self._names)}]"
            _ERRORS.print(f"{count} {name}: {_told(entry)}", markup=False, highlight=False)

        def stage(self, text: str) -> None:
            _ERRORS.print(text, markup=False)

    return Lines()


def _table_listener(live: Live) -> "BatchProgressListener":
    """Return what keeps a table on the screen."""
    from geogp.commands.batch.make_batch import BatchProgressListener

    class Rows(BatchProgressListener):
        """A live table: what runs, what failed, and counts of the rest."""

        def __init__(self) -> None:
            self._entries: dict[str, LedgerEntry] = {}
            self._texts: dict[str, str] = {}
            self._since: dict[str, float] = {}
            self._stage = ""

        def begin(self, ledger: "Ledger", names: "Sequence[str]") -> None:
            self._entries = {name: ledger.entries[name] for name in names}
            self._draw()

        def changed(self, name: str, entry: "LedgerEntry") -> None:
            self._entries[name] = entry
            self._since[name] = time.monotonic()
            self._texts.pop(name, None)
            self._draw()

        def working(self, name: str, text: str) -> None:
            self._texts[name] = text
            self._draw()

        def stage(self, text: str) -> None:
            self._stage = text
            self._draw()

        def _draw(self) -> None:
            live.update(_progress(self._entries, self._texts, self._since, self._stage))

    return Rows()


def _progress(
    entries: dict[str, "LedgerEntry"], texts: dict[str, str], since: dict[str, float], stage: str
) -> Group:
    """Return the counts of all runs and a table of those that run or failed, and of the last."""
    states = [entry.state for entry in entries.values()]
    counts = ", ".join(
        f"{states.count(state)} {state}" for state in ("done", "running", "waiting", "failed")
    )
    order = {"running": 0, "failed": 1, "done": 2}
    shown = sorted(
        (name for name, entry in entries.items() if entry.state in order and name in since),
        key=lambda name: (order[entries[name].state], -since[name]),
    )
    table = Table(box=None)
    for heading in ("run", "state", "seconds", "", "worker"):
        table.add_column(heading, overflow="ellipsis", no_wrap=True)
    for name in shown[:_SHOWN]:
        entry = entries[name]
        running = entry.state == "running"
        seconds = time.monotonic() - since[name] if running else entry.seconds
        said = texts.get(name, "") if running else entry.error or ""
        table.add_row(
            escape(name),
            entry.state if entry.attempts < 2 else f"{entry.state} ({entry.attempts})",
            "" if seconds is None else f"{seconds:.0f}",
            escape(said),
            escape(entry.worker or ""),
        )
    return Group(Text(f"{len(entries)} runs: {counts}"), table, Text(stage))


def _told(entry: "LedgerEntry") -> str:
    """Return a line for a run."""
    if entry.state == "running":
        return "begun" if entry.attempts < 2 else f"begun again ({entry.attempts})"
    if entry.state == "done":
        peak = "" if entry.peak_bytes is None else f", peak {entry.peak_bytes / 1e9:.2f} GB"
        return f"{entry.how} in {entry.seconds or 0:.0f} s{peak}, {entry.worker}"
    again = " It is tried again." if entry.state == "waiting" else ""
    return f"failed: {entry.error}{again}"


def _show(result: "BatchResult") -> None:
    out = Console(soft_wrap=True)
    table = Table(title=result.place, title_justify="left")
    for heading in ("run", "state", "", "seconds", "peak GB", "attempts"):
        table.add_column(heading, overflow="fold")
    for name, entry in result.entries.items():
        table.add_row(
            escape(name),
            entry.state,
            entry.how or "",
            "" if entry.seconds is None else f"{entry.seconds:.0f}",
            "" if entry.peak_bytes is None else f"{entry.peak_bytes / 1e9:.2f}",
            str(entry.attempts or ""),
        )
    out.print(table)
    for name, entry in result.entries.items():
        if entry.error:
            out.print(f"{name} failed ({entry.kind}): {entry.error}", markup=False)
    for group, joined in result.national.items():
        if joined.error:
            out.print(f"national/{group} failed: {joined.error}", markup=False)
            continue
        lacks = f", {len(joined.missing)} missing" if joined.missing else ""
        out.print(
            f"national/{group}: {len(joined.runs)} runs{lacks}, {joined.tiles or 0:,} tiles",
            markup=False,
        )
    if result.exit_code:
        out.print(f"geogp batch --resume {result.place} tries the failed ones again.", markup=False)
