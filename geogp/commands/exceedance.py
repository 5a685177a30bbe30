"""Where a finished run's level meets thresholds: shares of area with intervals, joint regions."""

import json
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, special

from geogp.choices import MOST_DRAWS, MOST_SEED, whole_number
from geogp.commands.csv_tables import write_csv
from geogp.errors import RequestError
from geogp.files import write_text
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.maps.figures.excursion_figures import write_excursions
from geogp.models.joint.excursions import LEAST_DRAWS, FirstMisses, JointRegion
from geogp.models.joint.joint_level import JointLevel
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.progress import Watcher
from geogp.runs.reopen import WHOLE, Reopened, reopen, tag_of
from geogp.runs.run_folder import held_run
from geogp.runs.run_places import AS_TOLD, ReadFrom

Floats = NDArray[np.float64]

QUESTION = "level"
"""The value of ``--for``."""

LEVEL = 0.95
"""Level of intervals and joint regions."""

NOTES = (
    "The level is what measurements scatter around, without their noise. Shares are of area, and "  # noqa: ISC004
    "intervals are quantiles over draws of all tiles together.",
    "With 95 % the level is on its side of the threshold everywhere in a joint region. Each region "  # noqa: ISC004
    "holds by itself; the two hold together with 90 % or more.",
    "The basis counts as known: what was uncertain in learning it is not included.",
)

_ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


@dataclass(frozen=True)
class ExceedanceRequest:
    """Which thresholds to hold the level of which run against.

    Attributes
    ----------
    run
        A finished run folder.
    threshold
        Values in the unit of the target; None takes those of the run's map.
    by
        Shares of polygons besides those of the region: ``county``, ``urban``, ``FILE`` or
        ``FILE:COLUMN``; None for no more.
    question
        ``level``.
    at
        The quarter; None takes that of the run's map.
    draws
        Draws from the posterior, 200 or more.
    seed
        Of the draws.
    device
        ``auto``, ``cpu`` or ``cuda``.
    read_from
        Where the run's tiles and boundaries are, where not as its run.json says.

    Raises
    ------
    RequestError
        Another question, or a number out of range.
    """

    run: Path
    threshold: tuple[float, ...] | None = None
    by: str | None = None
    question: str = QUESTION
    at: str | None = None
    draws: int = 500
    seed: int = 0
    device: str = "auto"
    read_from: ReadFrom = AS_TOLD

    def __post_init__(self) -> None:
        if self.question != QUESTION:
            raise RequestError(
                f"--for {self.question} is not answered jointly: averages of tests follow other "
                "laws than the normal one. Choose --for level, or map probabilities tile by tile "
                "with geogp map --threshold."
            )
        whole_number("draws", self.draws, LEAST_DRAWS, MOST_DRAWS)
        whole_number("a seed", self.seed, 0, MOST_SEED)


@dataclass(frozen=True)
class Excursion:
    """What was found for one threshold.

    Attributes
    ----------
    threshold
        The threshold.
    shares
        A row for each area: ``layer``, ``area``, ``tiles``, ``area_km2``, and of the share of its
        area that falls short ``mean``, ``lower``, ``upper``, ``error`` (standard error of the
        mean over draws) and ``closed_form`` (mean without draws).
    met, short
        Where the level meets the threshold, and where it falls short, everywhere at once.
    """

    threshold: Threshold
    shares: pd.DataFrame
    met: JointRegion
    short: JointRegion


@dataclass(frozen=True)
class ExceedanceResult:
    """What was found, and where it was written.

    Attributes
    ----------
    files
        JSON, CSV, GeoTIFF and PNG files.
    excursions
        By threshold, smallest first.
    described
        A JSON object for each threshold.
    """

    files: tuple[Path, ...]
    excursions: tuple[Excursion, ...]
    described: tuple[dict[str, Any], ...]


def make_exceedance(request: ExceedanceRequest, watcher: Watcher | None = None) -> ExceedanceResult:
    """Hold the level of a run against thresholds, and write what is found into its folder.

    Parameters
    ----------
    request
        Which run and thresholds.
    watcher
        Hears of stages and warnings.

    Raises
    ------
    RequestError
        The folder is no finished run, its model counts tests, a threshold is out of range, there
        is no such layer, not enough memory, or another process holds the run.
    DataError
        A file is damaged, or differs from that which the run was made from.
    OutputError
        A file cannot be written.
    """
    with held_run(request.run), arithmetic():
        return _exceedance(request, watcher or Watcher())


def _exceedance(request: ExceedanceRequest, watcher: Watcher) -> ExceedanceResult:
    started = monotonic()
    run = reopen(
        request.run, watcher, device=request.device, at=request.at, read_from=request.read_from
    )
    given = request.threshold or (run.run.get("drawing") or {}).get("thresholds")
    thresholds = thresholds_of(run.job.request.target, given)
    areas, weights = area_weights(run, request.by)
    watcher.stage(f"the level of {len(run.tiles):,} tiles together")
    level = run.level(seed=request.seed, columns=request.draws)
    if not run.job.about.has_tiles:
        own = ", with a variance of its own in each tile" if level.own.any() else ""
        run.job.warn(
            f"{run.job.spec.name} has no process of single tiles: its level is a smooth "
            f"field{own}, and shares of tiles and joint regions are surer than they should be."
        )
    watcher.stage(f"{request.draws} draws of all tiles")
    found = excursions(level, thresholds, areas, weights, draws=request.draws, seed=request.seed)
    watcher.stage("writing shares and joint regions")
    common = {
        "run": str(request.run),
        "for": request.question,
        "at": run.job.question.described()["at"],
        "zoom": run.tiles.zoom,
        "tiles": len(run.tiles),
        "draws": request.draws,
        "seed": request.seed,
        "level": LEVEL,
        "notes": list(NOTES),
        "warnings": run.job.warnings,
        "seconds": round(monotonic() - started, 1),
    }
    described = tuple({**common, **_described(one)} for one in found)
    files = [
        path
        for one, told in zip(found, described, strict=True)
        for path in _write(run, request.run, one, told)
    ]
    return ExceedanceResult(tuple(files), found, described)


def area_weights(run: Reopened, by: str | None) -> tuple[pd.DataFrame, sparse.csc_array]:
    """Return the areas, and for each the share of its area that lies in each tile.

    Tiles differ in area by latitude. The region comes first, then its strata (its urban and
    its rural part) where those are known, then the polygons of a layer that hold
    the centre of a tile.

    Returns
    -------
    DataFrame
        `layer`, `area`, `tiles` and `area_km2`, k rows.
    csc_array
        (n, k); columns sum to 1.

    Raises
    ------
    RequestError
        There is no such layer, or no tile lies in it.
    """
    tiles = run.tiles
    longitude, latitude = tiles.centres
    km2 = tile_areas_km2(latitude, tiles.zoom)
    stratum = run.job.region.stratum(longitude, latitude)
    members = [(WHOLE, run.job.region.name, np.arange(len(tiles)))]
    members += [
        (WHOLE, name, np.flatnonzero(stratum == name)) for name in run.job.region.strata_names
    ]
    if by is not None:
        layer = run.layer(by)
        kind = tag_of(by, layer)
        number = layer.index(longitude, latitude)
        if not (number >= 0).any():
            raise RequestError(f"no tile of {run.job.region.name} lies in an area of {by}.")
        members += [
            (kind, label, np.flatnonzero(number == k)) for k, label in enumerate(layer.labels)
        ]
    members = [one for one in members if len(one[2])]
    sizes = [len(inside) for _, _, inside in members]
    total = np.array([km2[inside].sum() for _, _, inside in members])
    rows = np.concatenate([inside for _, _, inside in members])
    columns = np.repeat(np.arange(len(members)), sizes)
    weights = sparse.csc_array(
        (km2[rows] / total[columns], (rows, columns)), shape=(len(tiles), len(members))
    )
    table = pd.DataFrame(
        {
            "layer": [kind for kind, _, _ in members],
            "area": [name for _, name, _ in members],
            "tiles": sizes,
            "area_km2": total,
        }
    )
    return table, weights


def excursions(
    level: JointLevel,
    thresholds: tuple[Threshold, ...],
    areas: pd.DataFrame,
    weights: sparse.csc_array,
    *,
    draws: int,
    seed: int = 0,
) -> tuple[Excursion, ...]:
    """Hold draws of the level at all tiles against thresholds, all in one pass.

    Draws come in batches; of each only the shares and the first misses are kept.

    Parameters
    ----------
    level
        The joint law of the level at n tiles, log10 of the unit.
    thresholds
        Those of the target.
    areas
        k areas; columns are added to it.
    weights
        Share of each area's size that lies in each tile, (n, k).
    draws, seed
        Number of draws, and what they are drawn from.
    """
    sd = np.sqrt(level.single_variances())
    scores = [one.sign * (level.mean - one.log10) / sd for one in thresholds]
    met, short = ([FirstMisses(side * z) for z in scores] for side in (1.0, -1.0))
    parts: list[list[Floats]] = [[] for _ in thresholds]
    for paths in level.paths(draws, seed=seed):
        for k, threshold in enumerate(thresholds):
            above = threshold.holds(paths)
            met[k].add(above)
            short[k].add(~above)
            parts[k].append(np.asarray((weights.T @ (~above).T.astype(np.float64)).T))
    return tuple(
        Excursion(
            threshold,
            _shares(areas, np.concatenate(parts[k]), weights.T @ special.ndtr(-scores[k])),
            met[k].region(LEVEL),
            short[k].region(LEVEL),
        )
        for k, threshold in enumerate(thresholds)
    )


def _shares(areas: pd.DataFrame, drawn: Floats, closed_form: Floats) -> pd.DataFrame:
    lower, upper = np.quantile(drawn, _ENDS, axis=0)
    return areas.assign(
        mean=drawn.mean(0),
        lower=lower,
        upper=upper,
        error=drawn.std(0, ddof=1) / np.sqrt(len(drawn)),
        closed_form=closed_form,
    )


def _described(found: Excursion) -> dict[str, Any]:
    """Return one threshold's part of the JSON object."""
    threshold = found.threshold
    weights = {"met": (found.met, threshold.met), "short": (found.short, threshold.missed)}
    return {
        "target": threshold.target,
        "threshold": threshold.value,
        "meets": threshold.met,
        "falls_short": threshold.missed,
        "share_falling_short": found.shares.to_dict(orient="records"),
        "joint_regions": {
            name: {
                "is": words,
                "tiles": int(region.inside.sum()),
                "tiles_interval": [region.fewest, region.most],
                "probability": region.probability,
                "probability_interval": [region.lower, region.upper],
            }
            for name, (region, words) in weights.items()
        },
    }


def _write(run: Reopened, folder: Path, found: Excursion, described: dict[str, Any]) -> list[Path]:
    """Write the files of one threshold, and return their paths."""
    tag = found.threshold.tag
    paths = [folder / f"exceedance_{tag}.json"]
    write_text(paths[0], json.dumps(described, indent=1, allow_nan=False) + "\n")
    for name, table in found.shares.groupby("layer", sort=False):
        end = "" if name == WHOLE else f"_{name}"
        paths.append(folder / f"exceedance_{tag}{end}.csv")
        write_csv(paths[-1], table.drop(columns="layer"))
    job = run.job
    return paths + write_excursions(
        folder,
        job.region,
        run.tiles,
        (found.met, found.short),
        found.threshold,
        subtitle=f"{job.region.name}, {job.question.label()}; level",
    )
