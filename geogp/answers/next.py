"""Chooses the tiles where new measurements reduce the variance of the level most."""

from dataclasses import dataclass, replace
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
import torch
from numpy.typing import NDArray

from geogp.answers.answer import Answer, AnswerKind, Clock, Column, of_another, of_target, with_rows
from geogp.answers.area_files import forget, write_json
from geogp.answers.requests import NextRequest
from geogp.choices import one_of
from geogp.errors import RequestError, named, quoted
from geogp.files import write_bytes, write_text
from geogp.geodata.places.file_choice import existing_path
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.quadkeys import tile_bounds
from geogp.geodata.tiles.targets import find_target
from geogp.maps.figures.numbered import numbered_figure
from geogp.maps.target_quantities import quantity_of
from geogp.models.joint.design import (
    Chosen,
    LevelCovariance,
    check_choice,
    choose,
    covariance_of,
    widest,
)
from geogp.models.numerics.threads import aside
from geogp.reports.words import sample_words
from geogp.runs.pipeline.draw import tests_on
from geogp.runs.reopen import Reopened
from geogp.value_scales import DECIBELS, LOG10, PERCENT

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NextTiles:
    """The chosen tiles, best first: a table (see `describe_tiles`), and outlines in degrees.

    `variance` is the variance of the level at every tile of the map. `described` has the JSON
    entries that are common to all tiles.
    """

    table: pd.DataFrame
    squares: NDArray[Any]
    variance: Floats
    described: dict[str, Any]

    @property
    def frame(self) -> gpd.GeoDataFrame:
        """The table with the outline of each tile."""
        return gpd.GeoDataFrame(self.table, geometry=self.squares, crs=4326)


def next_tiles(opened: Reopened, request: NextRequest) -> NextTiles:
    """Return the best tiles for new measurements; any tile that is not far from data may be chosen.

    The variance to reduce is the sum over the tiles that the request selects, with equal weights.
    Tiles far from any measurement are left out, because their variance rests on the model alone.
    Raises RequestError if no tile is selected, or if there are too few tiles or too little memory.
    """
    if find_target(opened.settings.target).is_share:
        raise RequestError(
            "geogp next needs a noise that is the same for all values; that of a share of tests "
            "follows from the share. geogp areas shows where intervals are wide."
        )
    counted, near = _counted(opened, request), ~opened.far
    check_choice(near, request.tiles, request.candidates)
    covariance, noise, mean = _given(opened, request)
    question = opened.question
    opened.listener.stage(f"choosing {request.tiles} tiles")
    weights, hear = counted.astype(np.float64), opened.listener.progress
    choice = covariance, weights, noise, request.tiles
    with aside(lambda: widest(*choice, among=near), torch.device("cpu")) as widest_tiles:
        chosen = choose(
            *choice,
            among=near,
            candidates=request.candidates,
            seed=request.seed,
            heard=lambda done: hear("choosing tiles", done, request.tiles, ""),
        )
    total = float(weights @ covariance.variance)
    scale = quantity_of(opened.settings.target).scale
    unit = "log10" if scale.logarithmic else scale.change_unit
    table = describe_tiles(opened, mean, chosen, total)
    described = {
        "at": opened.question.at,
        "zoom": opened.tiles.zoom,
        "tests": question.tests,
        "devices": question.devices,
        "counted": _words(opened, request),
        "counted_tiles": int(counted.sum()),
        "tiles": len(opened.tiles),
        "far_tiles": int(opened.far.sum()),
        "variance_before": total,
        "variance_after": total - float(chosen.gains.sum()),
        "removed": float(chosen.gains.sum()) / total,
        "removed_by_widest": float(widest_tiles().gains.sum()) / total,
        "unit": f"variance of the level in {unit}, summed over the chosen area",
        "evaluated": chosen.evaluated,
        "warnings": list(opened.listener.warnings),
    }
    squares = _squares(opened.tiles, chosen.tiles)
    return NextTiles(table, squares, covariance.variance, described)


def describe_tiles(opened: Reopened, mean: Floats, chosen: Chosen, total: float) -> pd.DataFrame:
    """Return one row for each chosen tile, in order; `mean` is that of the level, (n,).

    ``gain_log10`` is the further reduction of the summed variance, in log10 squared, if the tile is
    measured after all previous tiles. ``removed`` is the share of the summed variance that
    measurements of the tile and of all previous tiles remove. The two standard deviations describe
    the level of the tile itself, before and after measurements of all chosen tiles. For decibels,
    names end in ``db``, and the gain is in dB squared.
    """
    tiles, at = opened.tiles, chosen.tiles
    longitude, latitude = (degrees[at] for degrees in tiles.centres)
    quantity = quantity_of(opened.settings.target)
    tag = quantity.scale.tag
    columns: dict[str, Any] = {
        "rank": np.arange(1, len(at) + 1),
        "quadkey": tiles[at].quadkeys,
        "longitude": (longitude + 180) % 360 - 180,
        "latitude": latitude,
        "stratum": opened.inputs.region.stratum(longitude, latitude).astype(object),
        "tests": tests_on(tiles, opened.mapped)[at],
        f"level_{quantity.suffix}": quantity.scale.values(mean[at]),
        f"sd_before_{tag}": np.sqrt(chosen.before),
        f"sd_after_{tag}": np.sqrt(chosen.after),
        f"gain_{tag}": chosen.gains,
        "gain": chosen.gains / total,
        "removed": np.cumsum(chosen.gains) / total,
    }
    table = pd.DataFrame(columns)
    counties = opened.inputs.boundaries.counties
    if counties is not None:
        table.insert(4, "county", counties.label(longitude, latitude).astype(object))
    return table


def _given(opened: Reopened, request: NextRequest) -> tuple[LevelCovariance, Floats, Floats]:
    """Return the covariance of the level, the noise of a measurement (n,), and the mean (n,).

    The rest of the level, which is large, is not kept.
    """
    level, question = opened.level(seed=request.seed), opened.question
    noise = level.noise_of(float(question.tests or 1), question.devices)
    return covariance_of(level, request.tiles), noise, level.mean


def _counted(opened: Reopened, request: NextRequest) -> NDArray[np.bool_]:
    """Return a mask of the tiles whose variance is to be reduced, (n,)."""
    region, (longitude, latitude) = opened.inputs.region, opened.tiles.centres
    counted = ~opened.far
    if request.among is not None:
        if region.strata is None:
            raise RequestError(
                f"--among {request.among} needs strata, but {region.name} was mapped without "
                f"strata: no urban areas were found, and --strata was not given. Leave --among out."
            )
        one_of("--among", request.among, region.strata_names)
        counted &= region.stratum(longitude, latitude) == request.among
    if request.within is not None:
        layer = opened.layer(request.by, request.crs)
        known = {label.casefold(): k for k, label in enumerate(layer.labels)}
        number = known.get(request.within.casefold())
        if number is None:
            raise RequestError(
                f"no area {quoted(request.within)} in {layer.name}; the areas are "
                f"{named(layer.labels)}."
            )
        counted &= layer.index(longitude, latitude) == number
    if not counted.any():
        raise RequestError(f"{region.name} has no {_words(opened, request)}. Choose another area.")
    return counted


def _words(opened: Reopened, request: NextRequest) -> str:
    """Return in words which tiles' variance is to be reduced."""
    kind = f"{request.among} tiles" if request.among else "tiles"
    if request.within is not None:
        kind += f" of {request.within}"
    elif request.among is None:
        kind = "all tiles"
    if not opened.far.any():
        return kind
    return f"{kind} within {opened.settings.far_km:g} km of a measurement"


def _squares(tiles: Tiles, chosen: NDArray[np.int64]) -> NDArray[Any]:
    """Return tiles as polygons in degrees, longitudes from -180 to 180."""
    turn = 1 << tiles.zoom
    edges = tile_bounds(tiles.column[chosen] % turn, tiles.row[chosen], tiles.zoom)
    squares: NDArray[Any] = shapely.box(edges.west, edges.south, edges.east, edges.north)
    return squares


_ENDS = ("geojson", "png", "json")


def check_next(request: NextRequest) -> None:
    """Raise RequestError if the areas are a file that the answer would overwrite."""
    areas = existing_path(request.by)
    own = [path for end in _ENDS for path in request.run.glob(f"next_tiles*.{end}")]
    if areas is not None and areas.resolve() in {path.resolve() for path in own}:
        raise RequestError(
            f"expected areas in a file that geogp next does not write, found {areas}. Copy the "
            "file to another name."
        )


def answer_next(opened: Reopened, request: NextRequest, clock: Clock) -> tuple[Answer, ...]:
    """Return the chosen tiles as an answer, and write them into the run folder.

    Raises the errors of `next_tiles`, and OutputError if a file cannot be written.
    """
    chosen, quantity = next_tiles(opened, request), quantity_of(opened.settings.target)
    facts = {"run": str(request.run), **opened.about, **chosen.described}
    picture = numbered_figure(
        opened.inputs.region,
        opened.tiles,
        np.sqrt(chosen.variance),
        chosen.table[["longitude", "latitude"]].to_numpy(),
        label=f"standard deviation of the level, {quantity.scale.unit(quantity.unit)}",
        title=f"Where to measure next: {len(chosen.table)} tiles",
        subtitle=(
            f"{opened.inputs.region.name}, {opened.question.label()}; the chosen tiles remove "
            f"{facts['removed']:.1%} of the variance of {facts['counted']}"
        ),
        attribution=opened.inputs.ingested.attribution,
    )
    content = with_rows(facts | clock(), "chosen", chosen.table)
    name = f"next_tiles_{facts['target']}" if of_another(facts) else "next_tiles"
    files = tuple(opened.path / f"{name}.{end}" for end in _ENDS)
    forget(files[2])
    write_text(files[0], chosen.frame.to_json(drop_id=True) + "\n")
    write_bytes(files[1], picture)
    write_json(files[2], content)
    return (replace(read_next(name, content, chosen.table), files=files),)


def read_next(name: str, content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer with a name and a content."""
    places = [place for place in ("county", "stratum") if place in table]
    scales = [one for one in (LOG10, DECIBELS, PERCENT) if f"sd_before_{one.tag}" in table]
    scale = scales[0]
    before, after = (
        f"{label}{'' if scale.logarithmic else f', {scale.change_unit}'}"
        for label in ("standard deviation", "after")
    )
    return Answer(
        name,
        f"Where to measure next, {content['at']}{of_target(content)}",
        content,
        "chosen",
        table,
        (
            Column("rank", ("rank",), "{}"),
            Column("longitude", ("longitude",), "{:.4f}"),
            Column("latitude", ("latitude",), "{:.4f}"),
            *(Column(place, (place,), "{}") for place in places),
            Column("tests so far", ("tests",), "{:,}"),
            Column(before, (f"sd_before_{scale.tag}",), "{:.3f}", minor=True),
            Column(after, (f"sd_after_{scale.tag}",), "{:.3f}", minor=True),
            Column("variance removed", ("removed",), "{:.2%}"),
        ),
        after=_sentences(content),
        most=10,
    )


def _sentences(content: dict[str, Any]) -> tuple[str, str]:
    """Return in words what is measured, and what the measurements do to the variance."""
    many = (
        f"{sample_words(content['tests'], content['devices'])} in each tile"
        if content["tests"]
        else "as many tests in each tile as in the data"
    )
    removed = (
        f"Measuring all {len(content['chosen'])} tiles removes {content['removed']:.2%} of the "
        f"variance of the level, summed over {content['counted']} ({content['counted_tiles']:,}). "
        "Always choosing the tile with the widest interval left would remove "
        f"{content['removed_by_widest']:.2%} instead."
    )
    return f"Each measurement has {many}.", removed


NEXT = AnswerKind("next_tiles*.json", "chosen", read_next)
