"""The `geogp` command: parse, call, print."""

import json
from pathlib import Path
from typing import Annotated

import typer

from geogp import __version__
from geogp.commands.data_requests import SimulationRequest
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
from geogp_cli.place import Json
from geogp_cli.setting_options import option_of, takes

app = typer.Typer(
    help="Honest maps of network quality from Ookla's tiles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Out, Seed, Fresh = (option_of(MapRequest, name) for name in ("out", "seed", "fresh"))


@app.command(name="map")
@takes(MapRequest)
def map_command(request: MapRequest, as_json: Json = False) -> None:
    """Fit a model, draw a map and write a report, all in one run folder."""
    _map(request, as_json=as_json)


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    device: place.Device = "auto",
    seed: Seed = 0,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Map the demo region, in about a minute on two cores."""
    from geogp.commands.demo import demo_request

    _map(demo_request(out=out, device=device, seed=seed, fresh=fresh), as_json=as_json)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    latex: Annotated[
        bool, typer.Option("--latex", help="Also write report.tex, a table for a paper.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the report of a finished run again."""
    from geogp.runs.pipeline.make_map import remake_report

    console.show(remake_report(run, latex=latex), as_json=as_json)


app.command()(compare)


@app.command()
@takes(SimulationRequest)
def simulate(request: SimulationRequest, as_json: Json = False) -> None:
    """Simulate tiles in Ookla's schema, with a known truth."""
    from geogp.commands.simulate import make_simulation

    with console.working() as listener:
        described = make_simulation(request, listener)
    if as_json:
        print(json.dumps({"simulation": str(request.out), **described}))
        return
    console.tell(f"{described['rows']:,} rows in {request.out}")
    for split, scores in described.get("oracles", {}).items():
        scores_text = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        console.tell(f"log score on the test rows ({split} split): {scores_text}")


@app.command()
def models(as_json: Json = False) -> None:
    """List the names of the models, one on each line."""
    from geogp.models.catalogue.model_names import MODELS

    if as_json:
        print(json.dumps({"models": {name: row.summary for name, row in MODELS.items()}}))
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
