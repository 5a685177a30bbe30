"""Parse, call, print: the `geogp` command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geogp import __version__
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

if TYPE_CHECKING:
    from geogp.runs.settings import MapRequest

app = typer.Typer(
    help="Honest maps of network quality from Ookla's tiles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")
]
Seed = Annotated[int, typer.Option(help="Fixes splits and fits.")]
Out = Annotated[Path | None, typer.Option(help="The run folder. Default: runs/<what is mapped>.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over, whatever the folder holds.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Model = Annotated[
    str,
    typer.Option(
        help="A model's name; `geogp models` lists them. auto: field, or cox-nb for tests."
    ),
]


@app.command(name="map")
def map_command(
    region: place.Region = None,
    source: Annotated[
        str | None, typer.Option(help="Ookla's files: a folder or address. Default: the bucket.")
    ] = None,
    boundaries: place.Boundaries = None,
    region_file: place.RegionFile = None,
    region_name: place.RegionName = None,
    urban_vintage: place.UrbanVintage = "auto",
    strata: place.Strata = None,
    service: Annotated[str, typer.Option(help="mobile or fixed.")] = "mobile",
    target: Annotated[str, typer.Option(help="download, upload, latency or tests.")] = "download",
    quarters: Annotated[
        str | None, typer.Option(help="2019Q1..2023Q4, 2021Q3, or several. Default: all.")
    ] = None,
    model: Model = "auto",
    preset: Annotated[str, typer.Option(help="quick, standard or paper.")] = "standard",
    split: Annotated[
        str | None,
        typer.Option(
            help="random, blocks, buffer, county, latest (several with commas), both (the first "
            "two) or all. Default: the preset's."
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(help="Run each split so often, with other rows held out (1 to 5).")
    ] = 1,
    buffer_km: Annotated[
        float, typer.Option(help="The split buffer leaves out training rows this near to tests.")
    ] = 5.0,
    layer: Annotated[
        list[str] | None,
        typer.Option(help="Polygons to tell test rows by, FILE or FILE:COLUMN; repeatable."),
    ] = None,
    conformal: Annotated[
        str, typer.Option(help="Repair of intervals: none, marginal, strata or local.")
    ] = "none",
    inputs: Annotated[str, typer.Option(help="auto, place or place-quarter.")] = "auto",
    epochs: Annotated[int | None, typer.Option(help="Default: the preset's.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds for the fits; picks the rank of models with anchors."),
    ] = None,
    noise: Annotated[
        str, typer.Option(help="gaussian, or student-t: bad rows pull less (some models).")
    ] = "gaussian",
    tune_weights: Annotated[
        bool,
        typer.Option("--tune-weights", help="Choose alpha and beta by validation (16 short fits)."),
    ] = False,
    device: Device = "auto",
    seed: Seed = 0,
    zoom: Annotated[int, typer.Option(help="Zoom of the map's tiles.")] = 16,
    far_km: Annotated[
        float, typer.Option(help="Mark tiles farther than this from any measured tile.")
    ] = 10.0,
    question: Annotated[
        str,
        typer.Option("--for", help="What the map predicts: tile-mean, single-test or level."),
    ] = "tile-mean",
    tests: Annotated[
        int | None, typer.Option(help="Tests of a tile mean. Default: the region's median.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="Quarter of the map. Default: the latest with data.")
    ] = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(
            help="Map the probability of at least so many Mbps (latency: at most so many ms); "
            "repeatable. Default: 5, 7, 35; upload 1, 3; latency 50, 100."
        ),
    ] = None,
    self_contained: Annotated[
        bool,
        typer.Option("--self-contained", help="A map.html that asks no network: no base map."),
    ] = False,
    out: Out = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Fit, predict, draw, report: one map in one run folder."""
    from geogp.geodata.store.addresses import PUBLIC_SOURCE
    from geogp.runs.settings import MapRequest

    request = MapRequest(
        region=region,
        source=source or PUBLIC_SOURCE,
        boundaries=boundaries,
        region_file=region_file,
        region_name=region_name,
        urban_vintage=urban_vintage,
        strata=strata,
        service=service,
        target=target,
        quarters=quarters,
        model=model,
        preset=preset,
        split=split,
        folds=folds,
        buffer_km=buffer_km,
        layers=tuple(layer or ()),
        conformal=conformal,
        inputs=inputs,
        epochs=epochs,
        noise=noise,
        budget=budget,
        tune_weights=tune_weights,
        device=device,
        seed=seed,
        zoom=zoom,
        far_km=far_km,
        out=out,
        fresh=fresh,
        question=question,
        tests=tests,
        at=at,
        threshold=tuple(threshold) if threshold else None,
        self_contained=self_contained,
    )
    _map(request, as_json=as_json)


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    device: Device = "auto",
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
    service: Annotated[str, typer.Option(help="mobile or fixed.")] = "mobile",
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

    with console.working() as watcher:
        described = make_simulation(request, watcher)
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
app.command(name="batch")(batch_command(map_command))
app.command(name="next")(next_command)
app.command()(exceedance)
app.command()(figures)
app.command()(doctor)
app.command()(fetch)
app.add_typer(cache.app, name="cache")
app.command()(gallery)


def _map(request: "MapRequest", *, as_json: bool) -> None:
    from geogp.runs.pipeline.make_map import make_map

    with console.working() as watcher:
        result = make_map(request, watcher)
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
