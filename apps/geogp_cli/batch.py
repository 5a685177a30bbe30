"""The command `geogp batch`: options and printed output."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from geogp.choices import settings_of
from geogp.commands.batch.batch_plan import MAP_SETTINGS, BatchRequest, Execution
from geogp.errors import RequestError, named
from geogp.records.map_settings import MapSettings
from geogp_cli import console
from geogp_cli.setting_options import Command, CommandResult, answering, given, parameters_of

if TYPE_CHECKING:
    from geogp.commands.batch.batch_table import BatchRow
    from geogp.commands.batch.make_batch import BatchResult

_KEPT_BY_RESUME = {"resume", "as_json", *settings_of(Execution)} - {"fresh", "force"}
"""Options that may be used together with `--resume`."""


def _batch(
    context: typer.Context,
    request: dict[str, Any],
    maps: dict[str, Any],
    execution: Execution,
    places: Annotated[
        list[str] | None,
        typer.Argument(help="States, such as PR VI; the same as --states PR,VI."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder for the runs, which all workers share, or an address such as "
            "s3://bucket/batch."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Continue the batch in this folder or at this address, with the same settings."
        ),
    ] = None,
) -> CommandResult:
    """Map many states, services and targets; the same command continues a stopped batch."""
    asked = None
    if resume is not None:
        _check_resume(context)
    elif out is None or not (places or "states" in request):
        raise RequestError(
            "a batch needs states (PR VI, or --states PR,VI) and --out, or --resume PLACE to "
            "continue a batch."
        )
    elif places and "states" in request:
        raise RequestError(
            f"expected the states once, found {named(places)} and --states. Give all of them in "
            "one way."
        )
    else:
        request = {**request, "states": ",".join(places)} if places else request
        asked = BatchRequest(**request, maps=maps)

    from geogp.commands.batch.make_batch import make_batch

    with console.working() as listener:
        result = make_batch(asked, str(resume or out), execution, listener=listener)
    return CommandResult(result.described(), _told(result), result.exit_code)


def batch_command() -> Command:
    """Return the command with all options: for the batch, for the workers and for the maps."""
    context, _, _, _, *own = inspect.signature(_batch).parameters.values()
    apart = set(settings_of(MapSettings)) - set(MAP_SETTINGS)
    asks, maps = parameters_of(BatchRequest), parameters_of(MapSettings, apart, in_panels=False)
    works = parameters_of(Execution)

    def batch(context: typer.Context, **options: Any) -> CommandResult:
        request, shared, execution = (
            given({one.name: options.pop(one.name) for one in kind}) for kind in (asks, maps, works)
        )
        return _batch(context, request, shared, Execution(**execution), **options)

    batch.__doc__ = _batch.__doc__
    return answering(batch, [context, *asks, *own, *works, *maps])


def _check_resume(context: typer.Context) -> None:
    """Raise RequestError for options that have no effect with `--resume`."""
    named = sorted(
        name
        for name in context.params
        if name not in _KEPT_BY_RESUME
        and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    )
    if named:
        raise RequestError(
            "--resume continues a batch with the settings that it was started with. Leave out "
            f"{', '.join(named)}, or give the whole command again with --out."
        )


def _told(result: "BatchResult") -> list[Table | str]:
    """Return the printed output: a table of the runs, the failures, and the joined files."""
    headings = "run, state, log score, 95 % coverage or accuracy, seconds, attempts"
    rows = ((name, *_cells(row)) for name, row in result.rows.items())
    told: list[Table | str] = [
        console.table(result.place, headings, rows, left=headings.split(", "))
    ]
    told += [
        f"{name} failed ({row.kind}): {row.error}" for name, row in result.rows.items() if row.error
    ]
    for group, joined in result.national.items():
        if joined.error:
            told.append(f"national/{group} failed: {joined.error}")
            continue
        lacks = f", {len(joined.missing)} runs missing" if joined.missing else ""
        told.append(
            f"national/{group}: {len(joined.runs)} runs{lacks}, {joined.tiles or 0:,} tiles"
        )
    if result.exit_code:
        told.append(f"To make the failed runs again: geogp batch --resume {result.place}")
    return told


def _cells(row: "BatchRow") -> tuple[str, ...]:
    """Return the table row of a run; a cell has the scores of all splits, with commas between."""
    shares = row.coverage_95 or row.accuracy
    return (
        row.state if row.how is None else f"{row.state}, {row.how}",
        ", ".join("-" if one is None else f"{one:.3f}" for one in row.log_score.values()),
        ", ".join("-" if one is None else f"{one:.1%}" for one in shares.values()),
        "" if row.seconds is None else f"{row.seconds:.0f}",
        str(row.attempts or ""),
    )
