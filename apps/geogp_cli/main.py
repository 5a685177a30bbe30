"""The command `geogp` and its subcommands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import UNSET, to_builtins
from rich.table import Table
from typer.core import TyperGroup

from geogp import __version__
from geogp.answers.requests import BY_REGION
from geogp.choices import FORCE_TOLD
from geogp.commands.data_requests import FetchRequest, PointsRequest, SimulationRequest
from geogp.records.map_settings import MapSettings
from geogp.runs.progress import ProgressListener
from geogp.runs.run_names import PAGES, find_run
from geogp_cli import cache, console, questions
from geogp_cli.batch import batch_command
from geogp_cli.compare import compare
from geogp_cli.setting_options import CommandResult, answering, option_of, takes

if TYPE_CHECKING:
    from geogp.records.run_record import Strata
    from geogp.runs.finished_run import RunResult


class _WithAdvice(TyperGroup):
    """The commands; if a command gets one word too many, the error explains quotes."""

    def invoke(self, ctx: typer.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            message = getattr(error, "message", "")  # of a UsageError, which typer does not export
            if "unexpected extra argument" in message:
                advice = 'A name of several words needs quotes, such as "Puerto Rico".'
                error.message = f"{message}. {advice}"  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    cls=_WithAdvice,
    help="Honest maps of network quality from Ookla's tiles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Out, Seed, Fresh, Device, Source, Boundaries = (
    option_of(MapSettings, name)
    for name in ("out", "seed", "fresh", "device", "source", "boundaries")
)


@app.command(name="map")
@takes(MapSettings)
def map_command(request: MapSettings, listener: ProgressListener) -> CommandResult:
    """Fit a model, draw a map and write a report, all in one run folder."""
    from geogp.answers.shown_map import make_shown_map

    return _scores(make_shown_map(request, listener))


@app.command()
@answering
def demo(
    out: Out = Path("runs/demo"), device: Device = "auto", seed: Seed = 0, fresh: Fresh = False
) -> CommandResult:
    """Map the demo region, in about a minute on two cores."""
    from geogp.commands.demo import demo_request

    request = demo_request(out=out, device=device, seed=seed, fresh=fresh)
    with console.working() as listener:
        from geogp.answers.shown_map import make_shown_map

        return _scores(make_shown_map(request, listener))


@app.command()
@answering
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    latex: Annotated[
        bool, typer.Option("--latex", help="Also write report.tex, a table for a paper.")
    ] = False,
    gpkg: Annotated[
        bool, typer.Option("--gpkg", help="Also write tiles.gpkg, the tiles as a GeoPackage.")
    ] = False,
) -> CommandResult:
    """Write the report of a finished run again."""
    with console.working() as listener:
        from geogp.answers.pages import remake_report

        made = _scores(remake_report(run, latex=latex, listener=listener))
    if not gpkg:
        return made
    from geogp.answers.area_files import write_tiles

    package = write_tiles(run)
    described = {**made.described, "tiles": str(package)}
    return CommandResult(described, (*made.told, f"tiles:  {package}"))


@app.command(name="open")
@answering
def open_command(
    run: Annotated[str, typer.Argument(help=BY_REGION)],
    only_print: Annotated[
        bool, typer.Option("--print", help="Only print the paths of the pages.")
    ] = False,
) -> CommandResult:
    """Open the map of a finished run in a browser, and print the paths of map and report."""
    from geogp.commands.open_pages import open_in_browser, pages_of

    pages = pages_of(find_run(run))
    opened = not only_print and open_in_browser(next(iter(pages.values())))
    described = {**{name: str(path) for name, path in pages.items()}, "opened": opened}
    return CommandResult(described, _paths(pages))


app.command()(answering(compare))


@app.command()
@takes(SimulationRequest)
def simulate(request: SimulationRequest, listener: ProgressListener) -> CommandResult:
    """Simulate tiles in the format of Ookla's files, with known true values."""
    from geogp.commands.simulate import make_simulation

    described = make_simulation(request, listener)
    told = [f"{described['rows']:,} rows in {request.out}"]
    for split, scores in described.get("oracles", {}).items():
        scores_text = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        told.append(f"log score on the test rows ({split} split): {scores_text}")
    return CommandResult({"simulation": str(request.out), **described}, told)


@app.command()
@answering
def models() -> CommandResult:
    """List the models: of which paper they are, what they predict, and which are recommended."""
    from geogp.models.names import CLASS_MODELS, MODELS

    every = MODELS | CLASS_MODELS
    described = {
        name: {
            "summary": row.summary,
            "paper": row.paper,
            "target": row.kind,
            "family": row.family,
            "recommended": row.recommended,
        }
        for name, row in every.items()
    }
    rows = [
        (name, row.paper, row.kind, "recommended" if row.recommended else "study")
        for name, row in every.items()
    ]
    headings = "model", "paper", "target", "use"
    return CommandResult(
        {"models": described}, [console.table("models", headings, rows, left=headings)]
    )


app.command()(questions.areas)
# A place in the south begins with a minus, as options do.
app.command(context_settings={"ignore_unknown_options": True})(questions.at)
app.command(name="batch")(batch_command())
app.command(name="next")(questions.next_command)
app.command()(questions.exceedance)
app.command()(questions.change)
app.command("verify")(questions.verify_run)
app.command()(questions.figures)


@app.command()
@answering
def doctor(
    source: Source = None,
    boundaries: Boundaries = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not contact any server.")] = False,
) -> CommandResult:
    """Print facts for a bug report: versions, devices, cache, and whether sources answer."""
    from geogp.commands.doctor import examine
    from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES, PUBLIC_SOURCE

    found = examine(source or PUBLIC_SOURCE, boundaries or PUBLIC_BOUNDARIES, ask=not offline)
    return CommandResult(found.described(), (found.text(),))


@app.command()
@takes(FetchRequest)
def fetch(request: FetchRequest, listener: ProgressListener) -> CommandResult:
    """Download the tiles and boundaries of a region to the cache.

    The same command continues a stopped download. If the source of a quarter does not answer, the
    exit code is 4.
    """
    from geogp.commands.fetch import fetch as bring
    from geogp.errors import NetworkError

    described = bring(request, listener)
    table = console.table(
        f"{described['region']}, {described['service']}",
        "quarter, from, rows, row groups, MB read of stored, share",
        (
            (
                one["quarter"],
                f"{'source' if one['fresh'] else 'cache'}{', complete' if one['whole'] else ''}",
                f"{one['rows']:,} of {one['rows_in_source']:,}",
                f"{one['groups_read']:,} of {one['groups_in_source']:,}",
                f"{one['bytes_read'] / 1e6:.2f} of {one['bytes_stored'] / 1e6:.2f}",
                f"{one['bytes_read'] / one['bytes_stored']:.1%}",
            )
            for one in described["quarters"]
        ),
        left=("from",),
    )
    missing, unreached = described["missing"], described["unreached"]
    told: list[Table | str] = [table]
    if missing:
        told.append(f"not at the source: {', '.join(missing)}")
    if unreached:
        told.append(f"not reached: {', '.join(unreached)}")
    return CommandResult(described, told, NetworkError.exit_code if unreached else 0)


@app.command()
@takes(PointsRequest)
def points(request: PointsRequest, listener: ProgressListener) -> CommandResult:
    """Check a file of your own tests, as `geogp map --points` reads it; or write a template."""
    from geogp.commands.points_file import describe_points, write_template

    if request.template:
        made = write_template(request)
        return CommandResult(made, (made["template"],))
    found = describe_points(request, listener)
    wide, high = found["extent_km"]
    told: list[Table | str] = [
        console.table(
            f"What geogp understood of {request.file}",
            "subject, understood",
            (*found["understood"].items(), *_left_out(found["left_out"])),
            left=("subject", "understood"),
        ),
        console.table(
            f"{found['tests']:,} tests of {found['target']} in {found['tiles']:,} tiles, "
            f"{wide:,.0f} km wide and {high:,.0f} km high",
            "quarter, tests",
            ((quarter, f"{tests:,}") for quarter, tests in found["quarters"].items()),
        ),
    ]
    return CommandResult(found, told)


def _left_out(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [("left out", f"{count:,} rows: {reason}") for reason, count in counts.items()]


app.add_typer(cache.app, name="cache")


@app.command()
@answering
def gallery(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Finished run folders, or folders that contain run folders."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("gallery"),
    force: Annotated[bool, typer.Option("--force", help=FORCE_TOLD)] = False,
) -> CommandResult:
    """Write one page that shows many runs, with small maps, key numbers and links."""
    from geogp.commands.gallery import make_gallery

    with console.working() as listener:
        made = make_gallery(runs, out=out, force=force, listener=listener)
    described = {
        "gallery": str(made.page),
        "runs": [str(run) for run in made.runs],
        "skipped": [{"folder": str(path), "reason": reason} for path, reason in made.skipped],
    }
    left_out = f", {len(made.skipped)} left out" if made.skipped else ""
    return CommandResult(described, (f"{len(made.runs)} runs{left_out}", f"gallery: {made.page}"))


def _scores(result: "RunResult") -> CommandResult:
    """Return the output of a finished map: the folder of the run and its scores."""
    metrics, baseline = result.record.metrics, result.record.baseline
    told: list[Table | str] = []
    if result.already_there:
        told.append("This run is complete already. To make this run again, add --fresh.")
    targets = [] if result.record.targets is UNSET else result.record.targets
    for split, own in metrics.items():
        if not targets:
            told.append(_table(split, own, {} if baseline is UNSET else baseline.get(split, {})))
        told += [
            _table(split, one.metrics[split], one.baseline[split], f": {one.name}")
            for one in targets
        ]
    if targets:
        told += _tiers(result.path)
    if result.record.map is not UNSET and result.record.map.one_colour:
        told.append(result.record.map.one_colour)
    told += _places(result.path)
    told += _paths({name: result.path / file for name, file in PAGES.items()})
    described = {"run": str(result.path), "metrics": to_builtins(metrics)}
    if targets:
        described["targets"] = to_builtins(targets)
    return CommandResult(described, told)


def _places(run: Path) -> list[str]:
    """Return what the report says of each kind of place; nothing for classes."""
    from geogp.files import read_json
    from geogp.reports.place_checks import TITLES

    told = read_json(run / "report.json").get("reliance", {})  # absent in version 0.1
    return [f"{title}: {told[title]}" for title in TITLES.values() if title in told]


def _tiers(run: Path) -> list[Table]:
    """Return a table of the tiers of several targets for each split, as the report has them."""
    from geogp.files import read_json

    tables = []
    for split, found in read_json(run / "report.json")["splits"].items():
        asked, tiers = found["together"]["definitions"], found["together"]["tiers"]
        rows = (
            (one["meets"], asked[one["meets"]], f"{one['observed']:.1%}", f"{one['stated']:.1%}")
            for one in tiers
            if one["group"] == "all"
        )
        title = f"tiers of test rows, {split} split"
        headings = "tier, asks for, reached, stated"
        tables.append(console.table(title, headings, rows, left=("tier", "asks for")))
    return tables


def _paths(pages: dict[str, Path]) -> list[str]:
    return [f"{f'{name}:':<7} {path}" for name, path in pages.items()]


_FIGURES = {
    "mae": ("MAE", ".3f"),
    "crps": ("CRPS", ".3f"),
    "coverage_95": ("95 % coverage", ".1%"),
    "width_95": ("width", ".2f"),
    "accuracy": ("accuracy", ".1%"),
    "brier": ("Brier score", ".3f"),
    "ece": ("ECE", ".3f"),
}
"""Heading and format of the scores that a table shows, if a run has them."""


def _table(split: str, metrics: "Strata", baseline: "Strata", of: str = "") -> Table:
    from geogp.geodata.places.stratum_names import ALL

    shown = [name for name in _FIGURES if name in next(iter(metrics.values())).figures]
    strata = any(found.n for name, found in metrics.items() if name != ALL)
    headings = ["stratum", "n", "log score", "baseline", *(_FIGURES[name][0] for name in shown)]
    rows = (
        (
            stratum,
            f"{found.n:,}",
            f"{found.nll:.3f}",
            f"{baseline[stratum].nll:.3f}" if stratum in baseline else "-",
            *(format(found.figures[name], _FIGURES[name][1]) for name in shown),
        )
        if found.n
        else (stratum, "0", *["-"] * (2 + len(shown)))
        for stratum, found in metrics.items()
        if strata or stratum == ALL
    )
    return console.table(f"test rows, {split} split{of}", headings, rows)


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Honest maps of network quality from Ookla's tiles."""
