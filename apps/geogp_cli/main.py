"""Parse, call, print: the `geogp` command."""

from pathlib import Path
from typing import Annotated

import typer

from geogp import __version__
from geogp.runs.settings import MapRequest
from geogp_cli import cache, console, place
from geogp_cli.areas import areas
from geogp_cli.batch import batch_command
from geogp_cli.compare import compare
from geogp_cli.doctor import doctor
from geogp_cli.entry import run
from geogp_cli.exceedance import exceedance
from geogp_cli.fetch import fetch
from geogp_cli.figures import figures
from geogp_cli.gallery import gallery
from geogp_cli.next import next_command
from geogp_cli.setting_options import option_of, takes

app = typer.Typer(
    help="Honest maps of network quality from Ookla's tiles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")
]
Out, Seed, Fresh = (option_of(MapRequest, name) for name in ("out", "seed", "fresh"))


@app.command(name="map")
@takes(MapRequest)
def map_command(request: MapRequest, as_json: Json = False) -> None:
    """Fit, predict, draw, report: one map in one run folder."""
    _map(request, as_json=as_json)


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    device: place.Device = "auto",
    seed: Seed = 0,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run the main job on the embedded region, in about a minute on two cores."""
    from geogp.commands.demo import demo_request

    _map(demo_request(out=out, device=device, seed=seed, fresh=fresh), as_json=as_json)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    latex: Annotated[
        bool, typer.Option("--latex", help="Write report.tex too: a table for a paper.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the report of a finished run again."""
    from geogp.runs.pipeline.make_map import remake_report

    console.show(remake_report(run, latex=latex), as_json=as_json)


app.command()(compare)


@app.command()
def simulate(
    out: Annotated[Path, typer.Option(help="Folder for tiles, boundaries and the truth.")],
    like: Annotated[
        str | None, typer.Option(help="A state whose boundaries are used. Default: a made-up one.")
    ] = None,
    boundaries: place.Boundaries = None,
    region_file: place.RegionFile = None,
    region_name: place.RegionName = None,
    rows: Annotated[int, typer.Option(help="Number of rows, over all quarters.")] = 36_000,
    quarters: Annotated[str, typer.Option(help="Quarters.")] = "2022Q1..2023Q4",
    service: place.Service = "mobile",
    made_up_towns: Annotated[
        bool,
        typer.Option("--made-up-towns", help="Draw urban areas where the region has none at hand."),
    ] = False,
    no_oracles: Annotated[
        bool, typer.Option("--no-oracles", help="Leave the best possible scores out: far quicker.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make tiles in Ookla's schema with a known truth."""
    from geogp.commands.data_requests import SimulationRequest
    from geogp.geodata.places.region_choice import RegionChoice

    demo = like is None and region_file is None and region_name is None

    request = SimulationRequest(
        out=out,
        like=None if demo else RegionChoice(like, region_file, region_name, boundaries),
        rows=rows,
        quarters=quarters,
        service=service,
        seed=seed,
        made_up_towns=made_up_towns,
        oracles=not no_oracles,
    )
    from geogp.commands.simulate import make_simulation

    with console.working() as listener:
        described = make_simulation(request, listener)
    console.show_simulation(out, described, as_json=as_json)


@app.command()
def models(as_json: Json = False) -> None:
    """List the models, one name a line."""
    from geogp.models.catalogue.model_names import MODELS

    if as_json:
        console.show_models(MODELS)
        return
    for name in MODELS:
        print(name)


app.command()(areas)
app.command(name="batch")(batch_command())
app.command(name="next")(next_command)
app.command()(exceedance)
app.command()(figures)
app.command()(doctor)
app.command()(fetch)
app.add_typer(cache.app, name="cache")
app.command()(gallery)


def _map(request: MapRequest, *, as_json: bool) -> None:
    from geogp.runs.pipeline.make_map import make_map

    with console.working() as listener:
        result = make_map(request, listener)
    console.show(result, as_json=as_json)


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


if __name__ == "__main__":
    run()
