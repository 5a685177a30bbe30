"""Where to measure next: tiles of a finished run's map, as GeoJSON, figure and JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from numpy.typing import NDArray

from geogp.choices import MOST_SEED, MOST_TESTS, whole_number
from geogp.errors import RequestError
from geogp.files import write_bytes, write_text
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.quadkeys import format_quadkeys, tile_bounds, tiles_to_codes
from geogp.maps.figures.numbered import numbered_figure
from geogp.maps.grid import quantity_of
from geogp.models.joint.design import CANDIDATES, Chosen, choose, covariance_of, widest
from geogp.models.joint.joint_level import JointLevel
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.drawing import tests_on
from geogp.runs.progress import Watcher
from geogp.runs.reopen import BY_COUNTY, Reopened, reopen
from geogp.runs.run_folder import held_run
from geogp.runs.run_places import AS_TOLD, ReadFrom
from geogp.runs.settings import MOST_TILES

Floats = NDArray[np.float64]

STEM = "next_tiles"

_SHOWN_LABELS = 12


@dataclass(frozen=True)
class NextRequest:
    """Which tiles to choose, from which run.

    Attributes
    ----------
    run
        A finished run folder.
    tiles
        Tiles to choose.
    among
        A stratum of the run, such as ``urban``: whose variance counts. None counts all.
    within
        Label of the area whose tiles count, as county names; None counts all.
    by
        Whose areas `within` names: ``county``, ``urban``, or polygons as ``FILE`` or
        ``FILE:COLUMN``.
    tests
        Tests of each new measurement; None takes the median of the region's rows.
    at
        The quarter of measurement; None takes that of the run's map.
    candidates
        Tiles whose gain is worked out exactly.
    seed
        Of the order of the tiles and of estimates.
    device
        ``auto``, ``cpu`` or ``cuda``.
    read_from
        Where the run's tiles and boundaries are, where not as its run.json says.

    Raises
    ------
    RequestError
        An unknown stratum, or a number out of range.
    """

    run: Path
    tiles: int = 50
    among: str | None = None
    within: str | None = None
    by: str = BY_COUNTY
    tests: int | None = None
    at: str | None = None
    candidates: int = CANDIDATES
    seed: int = 0
    device: str = "auto"
    read_from: ReadFrom = AS_TOLD

    def __post_init__(self) -> None:
        whole_number("tiles", self.tiles, 1, MOST_TILES)
        whole_number("candidates", self.candidates, 1, 2 * MOST_TILES)
        if self.by != BY_COUNTY and self.within is None:
            raise RequestError(f"--by {self.by} names areas; say which one counts with --in.")
        if self.tests is not None:
            whole_number("tests", self.tests, 1, MOST_TESTS)
        if self.candidates < 2 * self.tiles:
            raise RequestError(
                f"expected {2 * self.tiles} candidates or more for {self.tiles} tiles, found "
                f"{self.candidates}."
            )
        whole_number("a seed", self.seed, 0, MOST_SEED)


@dataclass(frozen=True)
class NextResult:
    """What was chosen, and where it was written.

    Attributes
    ----------
    files
        The GeoJSON, PNG and JSON files.
    table
        A row for each chosen tile, in order; see `describe_tiles`.
    described
        What holds for all, as JSON can hold it.
    """

    files: tuple[Path, ...]
    table: pd.DataFrame
    described: dict[str, Any]


def choose_tiles(request: NextRequest, watcher: Watcher | None = None) -> NextResult:
    """Choose where to measure next, and write it into the run's folder.

    Each tile that counts, counts the same, whatever its area on the ground; the tiles to measure
    may be any of the region.

    Parameters
    ----------
    request
        What to choose.
    watcher
        Hears of stages, progress and warnings.

    Raises
    ------
    RequestError
        The folder is no finished run; no tile counts; more tiles than there are; the model counts
        tests; it does not fit into memory; or another process holds the run.
    DataError
        A file is damaged, or differs from that which the run was made from.
    OutputError
        The files cannot be written.
    """
    with held_run(request.run), arithmetic():
        return _choose(request, watcher or Watcher())


def _choose(request: NextRequest, watcher: Watcher) -> NextResult:
    started = monotonic()
    opened = reopen(
        request.run,
        watcher,
        device=request.device,
        tests=request.tests,
        at=request.at,
        read_from=request.read_from,
    )
    counted = _counted(opened, request)
    watcher.stage(f"the level of {len(opened.tiles):,} tiles together")
    level = opened.level(seed=request.seed)
    noise = level.noise_of(float(opened.job.question.tests or 1))
    watcher.stage(f"choosing {request.tiles} tiles")
    covariance = covariance_of(level, request.tiles)
    weights = counted.astype(np.float64)

    def heard(done: int) -> None:
        watcher.progress("choosing tiles", done, request.tiles, "")

    given = covariance, weights, noise, request.tiles
    chosen = choose(*given, candidates=request.candidates, seed=request.seed, heard=heard)
    total = float(weights @ covariance.variance)
    table = describe_tiles(opened, level, chosen, total)
    described = {
        "run": str(request.run),
        "at": opened.job.question.described()["at"],
        "zoom": opened.tiles.zoom,
        "tests": opened.job.question.tests,
        "counted": _words(request),
        "counted_tiles": int(counted.sum()),
        "tiles": len(opened.tiles),
        "variance_before": total,
        "variance_after": total - float(chosen.gains.sum()),
        "removed": float(chosen.gains.sum()) / total,
        "removed_by_widest": float(widest(*given).gains.sum()) / total,
        "unit": "variance of the level in log10, summed over the tiles that count",
        "evaluated": chosen.evaluated,
        "warnings": opened.job.warnings,
    }
    files = _write(opened, covariance.variance, chosen, table, described)
    described["seconds"] = round(monotonic() - started, 1)
    return NextResult(files, table, described)


def describe_tiles(
    opened: Reopened, level: JointLevel, chosen: Chosen, total: float
) -> pd.DataFrame:
    """Return a row for each chosen tile, in order.

    ``gain_log10`` is the variance, in log10 squared and summed over the tiles that count, that
    measuring it takes given those before; ``removed`` the share of all variance that is gone then.
    The standard deviations are those of the tile's own level now, and once all chosen tiles are
    measured. ``tests`` are those of all quarters.
    """
    tiles, at = opened.tiles, chosen.tiles
    longitude, latitude = (part[at] for part in tiles.centres)
    codes = tiles_to_codes(tiles.column[at], tiles.row[at], tiles.zoom)
    unit = quantity_of(opened.job.request.target).suffix
    columns: dict[str, Any] = {
        "rank": np.arange(1, len(at) + 1),
        "quadkey": format_quadkeys(codes, tiles.zoom).astype(object),
        "longitude": (longitude + 180) % 360 - 180,
        "latitude": latitude,
        "stratum": opened.job.region.stratum(longitude, latitude).astype(object),
        "tests": tests_on(tiles, opened.job.observations)[at],
        f"level_{unit}": 10 ** level.mean[at],
        "sd_before_log10": np.sqrt(chosen.before),
        "sd_after_log10": np.sqrt(chosen.after),
        "gain_log10": chosen.gains,
        "gain": chosen.gains / total,
        "removed": np.cumsum(chosen.gains) / total,
    }
    table = pd.DataFrame(columns)
    if opened.job.boundaries.counties is not None:
        county = opened.job.boundaries.counties.label(longitude, latitude)
        table.insert(4, "county", county.astype(object))
    return table


def described_tiles(result: NextResult) -> dict[str, Any]:
    """Return a result as JSON can hold it, the tiles as a list of rows."""
    return {
        **result.described,
        "files": [str(path) for path in result.files],
        "chosen": result.table.to_dict(orient="records"),
    }


def _counted(opened: Reopened, request: NextRequest) -> NDArray[np.bool_]:
    """Tell which tiles count."""
    region, (longitude, latitude) = opened.job.region, opened.tiles.centres
    counted = np.ones(len(opened.tiles), bool)
    if request.among is not None:
        if region.strata is None:
            raise RequestError(
                f"--among {request.among} needs strata, and {region.name} was mapped without: no "
                "urban areas were at hand, nor were there any --strata."
            )
        if request.among not in region.strata_names:
            raise RequestError(
                f"unknown --among {request.among!r}; choose one of "
                f"{', '.join(region.strata_names)}."
            )
        counted &= region.stratum(longitude, latitude) == request.among
    if request.within is not None:
        layer = opened.layer(request.by)
        known = {label.casefold(): k for k, label in enumerate(layer.labels)}
        number = known.get(request.within.casefold())
        if number is None:
            some = ", ".join(layer.labels[:_SHOWN_LABELS])
            more = len(layer) - _SHOWN_LABELS
            raise RequestError(
                f"no area {request.within!r} in {layer.name}; there are {some}"
                f"{f' and {more} more' if more > 0 else ''}."
            )
        counted &= layer.index(longitude, latitude) == number
    if not counted.any():
        raise RequestError(f"{region.name} has no {_words(request)}: choose another area.")
    return counted


def _words(request: NextRequest) -> str:
    if request.among is None and request.within is None:
        return "all tiles"
    kind = f"{request.among} tiles" if request.among else "tiles"
    return kind if request.within is None else f"{kind} of {request.within}"


def _write(
    opened: Reopened,
    variance: Floats,
    chosen: Chosen,
    table: pd.DataFrame,
    described: dict[str, Any],
) -> tuple[Path, ...]:
    """Write GeoJSON, figure and JSON, and return their paths."""
    job = opened.job
    paths = tuple(opened.path / f"{STEM}.{end}" for end in ("geojson", "png", "json"))
    tiles, unit = opened.tiles, quantity_of(job.request.target).unit
    frame = gpd.GeoDataFrame(table, geometry=_squares(tiles, chosen.tiles), crs=4326)
    write_text(paths[0], frame.to_json(drop_id=True) + "\n")
    picture = numbered_figure(
        job.region,
        tiles,
        np.sqrt(variance),
        table[["longitude", "latitude"]].to_numpy(),
        label=f"standard deviation of the level, log10 {unit}",
        title=f"Where to measure next: {len(table)} tiles",
        subtitle=(
            f"{job.region.name}, {job.question.label()}; they take {described['removed']:.1%} of "
            f"the variance of {described['counted']}"
        ),
    )
    write_bytes(paths[1], picture)
    content = {**described, "chosen": table.to_dict(orient="records")}
    write_text(paths[2], json.dumps(content, indent=1) + "\n")
    return paths


def _squares(tiles: Tiles, chosen: NDArray[np.int64]) -> NDArray[Any]:
    """Return tiles as polygons in degrees, longitudes from -180 to 180."""
    turn = 1 << tiles.zoom
    edges = tile_bounds(tiles.column[chosen] % turn, tiles.row[chosen], tiles.zoom)
    found: NDArray[Any] = shapely.box(edges.west, edges.south, edges.east, edges.north)
    return found
