"""Levels of areas from a finished run: county, urban area, or any polygons a user brings."""

import io
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, stats

from geogp.choices import MOST_DRAWS, MOST_SEED, MOST_TESTS, whole_number
from geogp.commands.csv_tables import write_csv
from geogp.errors import RequestError
from geogp.files import write_bytes
from geogp.geodata.places.region import Tiles
from geogp.maps.figures.choropleth import choropleth
from geogp.maps.grid import Quantity, quantity_of
from geogp.models.joint.joint_level import JointLevel
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.drawing import tests_on
from geogp.runs.pipeline.job import Job
from geogp.runs.progress import Watcher
from geogp.runs.reopen import BY_COUNTY, reopen, tag_of
from geogp.runs.run_folder import held_run
from geogp.runs.run_places import AS_TOLD, ReadFrom

Floats = NDArray[np.float64]

AREA_QUESTIONS = ("level", "tile-mean")
"""Values of ``--for``: what the figure and the printed table show."""

LEAST_DRAWS = 200

_REACH = float(stats.norm.ppf(0.975))
_ENDS = (0.025, 0.975)


@dataclass(frozen=True)
class AreasRequest:
    """What to say of areas, from which run.

    Attributes
    ----------
    run
        A finished run folder.
    by
        ``county``, ``urban``, or polygons as ``FILE`` or ``FILE:COLUMN``.
    question
        ``level``, what measurements scatter around, or ``tile-mean``, the mean over the tiles of
        one average of `tests` tests each, with its noise.
    tests
        Tests of each tile mean; None takes the median of the region's rows.
    at
        The quarter; None takes that of the run's map.
    draws
        Draws from the posterior, for medians and arithmetic means.
    seed
        Of the draws.
    device
        ``auto``, ``cpu`` or ``cuda``.
    read_from
        Where the run's tiles and boundaries are, where not as its run.json says.

    Raises
    ------
    RequestError
        An unknown question, or a number out of range.
    """

    run: Path
    by: str = BY_COUNTY
    question: str = AREA_QUESTIONS[0]
    tests: int | None = None
    at: str | None = None
    draws: int = 400
    seed: int = 0
    device: str = "auto"
    read_from: ReadFrom = AS_TOLD

    def __post_init__(self) -> None:
        if self.question not in AREA_QUESTIONS:
            raise RequestError(
                f"unknown --for {self.question!r}; choose one of {', '.join(AREA_QUESTIONS)}."
            )
        if self.tests is not None:
            whole_number("tests", self.tests, 1, MOST_TESTS)
        whole_number("draws", self.draws, LEAST_DRAWS, MOST_DRAWS)
        whole_number("a seed", self.seed, 0, MOST_SEED)


@dataclass(frozen=True)
class AreasResult:
    """What was found, and where it was written.

    Attributes
    ----------
    files
        The CSV, GeoParquet and PNG files.
    table
        A row for each area with a tile; see `describe_areas`.
    described
        What holds for all areas, as JSON can hold it.
    """

    files: tuple[Path, ...]
    table: pd.DataFrame
    described: dict[str, Any]


def make_areas(request: AreasRequest, watcher: Watcher | None = None) -> AreasResult:
    """Work out levels of areas from a run's model, and write them into the run's folder.

    Parameters
    ----------
    request
        What to say of which areas.
    watcher
        Hears of stages and warnings.

    Raises
    ------
    RequestError
        The folder is no finished run, its boundaries have no such layer, no tile lies in an area,
        the model counts tests, there is not enough memory, or another process holds the run.
    DataError
        A file is damaged, or differs from that which the run was made from.
    OutputError
        The files cannot be written.
    """
    with held_run(request.run), arithmetic():
        return _areas(request, watcher or Watcher())


def _areas(request: AreasRequest, watcher: Watcher) -> AreasResult:
    started = monotonic()
    opened = reopen(
        request.run,
        watcher,
        device=request.device,
        tests=request.tests,
        at=request.at,
        read_from=request.read_from,
    )
    job, tiles = opened.job, opened.tiles
    layer = opened.layer(request.by)
    longitude, latitude = tiles.centres
    number = layer.index(longitude, latitude)
    if not (number >= 0).any():
        raise RequestError(f"no tile of {job.region.name} lies in an area of {request.by}.")
    if job.request.calibrated:
        job.warn(
            "the conformal repair of this run is of single measurements: means over areas are "
            "those of the model, with and without noise."
        )
    watcher.stage(f"the level of {len(tiles):,} tiles together")
    level = opened.level(seed=request.seed, columns=max(request.draws, len(layer)))
    measured = level.measured(float(job.question.tests or 1))
    watcher.stage(f"{request.draws} draws for medians and arithmetic means")
    quantity = quantity_of(job.request.target)
    table = describe_areas(level, measured, number, quantity, request)
    shown = table.index.to_numpy()
    table.insert(0, "area", [layer.labels[k] for k in shown])
    tests = tests_on(tiles, job.observations)
    table.insert(2, "measured_tiles", _sums(tests > 0, number, shown))
    table.insert(3, "tests", _sums(tests, number, shown))
    described = {
        "run": str(request.run),
        "by": request.by,
        "for": request.question,
        "at": job.question.described()["at"],
        "zoom": tiles.zoom,
        "tiles": len(tiles),
        "tiles_elsewhere": int((number < 0).sum()),
        "tests_per_tile": job.question.tests,
        "draws": request.draws,
        "unit": quantity.unit,
        "mean": "geometric: of log10, over tiles",
        "function_sd": median_sds(level),
        "warnings": job.warnings,
        "seconds": round(monotonic() - started, 1),
    }
    shapes = [layer.shapes[k] for k in shown]
    files = _write(job, request, (tiles, table, shapes), tag_of(request.by, layer))
    return AreasResult(files, table, described)


def describe_areas(
    level: JointLevel,
    measured: JointLevel,
    number: NDArray[np.int64],
    quantity: Quantity,
    request: AreasRequest,
) -> pd.DataFrame:
    """Return a row for each area with a tile, by the number of the area.

    Columns, with the unit at the end of the name: ``level_mean``, the mean over the tiles of log10
    raised to the power of ten, that is the geometric mean; ``level_median``, the median over the
    tiles; ``level_arithmetic``, their arithmetic mean; ``tile_mean``, as ``level_mean`` but of one
    average of so many tests a tile, noise included; each with the ends of its 95 % interval. The
    means' intervals are exact under the model (variance of a sum, `JointLevel`), the others
    quantiles of draws. ``independent_sd_log10`` is what the standard deviation of ``level_mean``
    would be, were the tiles independent: too little.

    Parameters
    ----------
    level, measured
        The law of the level, and of tile means.
    number
        The number of the area that holds each tile; negative for none.
    quantity
        Names and unit of the target.
    request
        Number of draws and their seed.
    """
    areas, where = np.unique(number[number >= 0], return_inverse=True)
    inside = np.flatnonzero(number >= 0)
    count = np.bincount(where)
    weights = sparse.csc_array((1 / count[where], (inside, where)), shape=(len(number), len(areas)))
    sd = np.sqrt(level.sum_variances(weights))
    noisy = np.sqrt(measured.sum_variances(weights, noise=True))
    columns: dict[str, Any] = {"tiles": count}
    unit = quantity.suffix
    columns |= _mean_columns("level_mean", unit, level.sum_means(weights), sd)
    order = np.split(inside[np.argsort(where, kind="stable")], np.cumsum(count)[:-1])
    for name, drawn in _drawn(level, order, request).items():
        low, middle, high = np.quantile(drawn, (_ENDS[0], 0.5, _ENDS[1]), axis=0)
        columns |= {
            f"{name}_{unit}": middle,
            f"{name}_lower_{unit}": low,
            f"{name}_upper_{unit}": high,
        }
    columns |= _mean_columns("tile_mean", unit, measured.sum_means(weights), noisy)
    squares = np.asarray(weights.multiply(weights).T @ level.single_variances(), np.float64)
    columns["independent_sd_log10"] = np.sqrt(squares)
    return pd.DataFrame(columns, index=areas)


def _mean_columns(name: str, unit: str, mean: Floats, sd: Floats) -> dict[str, Floats]:
    return {
        f"{name}_{unit}": 10**mean,
        f"{name}_lower_{unit}": 10 ** (mean - _REACH * sd),
        f"{name}_upper_{unit}": 10 ** (mean + _REACH * sd),
        f"{name}_log10": mean,
        f"{name}_sd_log10": sd,
    }


def _drawn(
    level: JointLevel, areas: list[NDArray[np.int64]], request: AreasRequest
) -> dict[str, Floats]:
    """Return median and arithmetic mean over the tiles of each area, draw by draw."""
    median, mean = [], []
    for paths in level.paths(request.draws, seed=request.seed):
        values = 10**paths
        median.append(np.stack([np.median(values[:, tiles], 1) for tiles in areas], 1))
        mean.append(np.stack([values[:, tiles].mean(1) for tiles in areas], 1))
    return {"level_median": np.concatenate(median), "level_arithmetic": np.concatenate(mean)}


def _sums(
    values: NDArray[Any], number: NDArray[np.int64], areas: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the sums of values of tiles over some areas."""
    inside = number >= 0
    total = np.bincount(number[inside], values[inside], minlength=int(areas.max()) + 1)
    return total[areas].astype(np.int64)


def _write(
    job: Job,
    request: AreasRequest,
    found: tuple[Tiles, pd.DataFrame, list[Any]],
    tag: str,
) -> tuple[Path, ...]:
    """Write CSV, GeoParquet and figure, and return their paths."""
    tiles, table, shapes = found
    quantity = quantity_of(job.request.target)
    table = table.assign(quarter=job.question.described()["at"], tests_per_tile=job.question.tests)
    paths = tuple(request.run / f"areas_{tag}.{end}" for end in ("csv", "parquet", "png"))
    write_csv(paths[0], table)
    stream = io.BytesIO()
    gpd.GeoDataFrame(table, geometry=shapes, crs=4326).to_parquet(stream, index=False)
    write_bytes(paths[1], stream.getvalue())
    kind = "level_mean" if request.question == "level" else "tile_mean"
    of = "level" if request.question == "level" else f"tile averages of {job.question.tests} tests"
    picture = choropleth(
        job.region,
        tiles,
        shapes,
        table[f"{kind}_{quantity.suffix}"].to_numpy(),
        2 * _REACH * table[f"{kind}_sd_log10"].to_numpy(),
        unit=quantity.unit,
        title=f"Geometric mean of {quantity.subject} by area",
        subtitle=f"{job.region.name}, {job.question.label()}; {of}",
    )
    write_bytes(paths[2], picture)
    return paths


def described_table(result: AreasResult) -> dict[str, Any]:
    """Return a result as JSON can hold it, the areas as a list of rows."""
    rows = result.table.to_dict(orient="records")
    return {
        **result.described,
        "files": [str(path) for path in result.files],
        "areas": rows,
    }


def median_sds(level: JointLevel) -> dict[str, float]:
    """Return the median standard deviation of the function at the tiles by two accounts.

    ``closed_form`` is that of the closed-form posterior, ``stated`` that of the model's own
    prediction. They differ most for PPGP and dPPGP, whose function variance also carries noise,
    and less where a posterior was learned by steps.
    """
    # Of averages of endless tests: the level, whose own variance may be 0.
    stated = level.model.predict(level.x, np.inf)
    return {
        "closed_form": float(np.median(np.sqrt(level.single_variances() / level.factor**2))),
        "stated": float(np.median(np.sqrt(stated.function_variance))),
    }
