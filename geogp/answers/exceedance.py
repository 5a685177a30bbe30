"""Compares a map with thresholds: three answers to what share falls short, and joint regions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse, special

from geogp.answers.answer import (
    Answer,
    AnswerKind,
    Clock,
    Column,
    of_target,
    with_interval,
    with_rows,
)
from geogp.answers.area_files import forget, write_json
from geogp.answers.map_medians import drawn_question
from geogp.answers.requests import ExceedanceRequest
from geogp.answers.tile_areas import tile_areas
from geogp.answers.tile_weights import tile_weights
from geogp.arrays import Floats, Mask
from geogp.geodata.places.area_kinds import BY_STRATUM
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.targets import target_names
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.geodata.tiles.tiers import Tier, tiers_of
from geogp.maps.csv_tables import write_csv
from geogp.maps.figures.excursion_figures import write_excursions
from geogp.maps.one_colour import one_side
from geogp.models.joint.excursions import FirstMisses, JointRegion
from geogp.models.joint.level import JointLevel
from geogp.models.several.joint_targets import JointTargets
from geogp.records.record_names import LEVEL as OF_LEVEL
from geogp.records.record_names import QUESTIONS
from geogp.runs.reopen import WHOLE, Reopened, weights_tag

LEVEL = 0.95
"""Probability of the intervals and of the joint regions."""

_ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)

NOTES = (
    (
        "The level is the value around which measurements scatter; it contains no measurement "
        "noise. Each share is a share of the area. The interval of the share of the level comes "
        "from draws from the joint distribution of all tiles."
    ),
    (
        "With a probability of 95 %, the level is on the stated side of the threshold in all "
        "tiles of a joint region at once. This probability holds for each joint region "
        "alone. For both joint regions together, the probability is 90 % or more. Tiles far from "
        "any measurement (--far-km of the map) are in no joint region."
    ),
    "The intervals do not include the uncertainty of the learned basis.",
)

TIER_NOTE = (
    "The levels of several targets have the correlations of the draws here. Those of geogp at "
    "--for level and of a map of levels are learned from left-out measurements, and may differ by "
    "some hundredths."
)

_BEFORE = (
    "Three questions have three answers. The level is the value to expect, without measurement "
    "noise; its share of the area has a 95 % interval. The median of a tile is the middle of what "
    "the map predicts for it, so a tile counts wholly or not. The mean probability is that of one "
    "measurement, with its noise, which can fall short where the level does not."
)

_ONE = dict(zip(QUESTIONS, ("a tile average", "a single test", "the level"), strict=True))
"""One of the values that a map predicts, by its question."""


class Compared(NamedTuple):
    """What the level is compared with, for `excursions`.

    `score` (n,) is the standard normal quantile of the probability that a tile meets it, and
    `holds` says which draws do, (b, n).
    """

    threshold: Threshold | Tier
    score: Floats
    holds: Callable[[Floats], Mask]


@dataclass(frozen=True)
class Excursion:
    """The comparison of the level with one threshold, or of several levels with one tier.

    `shares` has one row per area (see `area_weights`). ``mean``, ``lower`` and ``upper`` describe
    the share of the area where the level does not reach the threshold. ``error`` is the standard
    error of ``mean`` (a mean over draws), and ``closed_form`` is the mean without draws.
    ``median_short`` is the share of the area in tiles whose median in the map falls short, and
    ``probability_short`` the mean over the area of the probability that a value as in the map falls
    short. The same columns with ``weighted_`` describe the share of the weights, such as people.
    `met` is the joint
    region where the level reaches the threshold; `short` is the region where it does not.
    `one_sided` says so if nearly all medians of the map are on one side; see `one_side`.
    """

    threshold: Threshold | Tier
    shares: pd.DataFrame
    met: JointRegion
    short: JointRegion
    one_sided: str | None = None


def threshold_shares(opened: Reopened, request: ExceedanceRequest) -> tuple[Excursion, ...]:
    """Compare a run's level with each threshold; return the results, smallest threshold first.

    With tiers, compare the levels of several targets with each tier. Raises RequestError for a
    threshold out of range or tiers of one target, and the errors of `area_weights` and
    `tile_weights`.
    """
    settings = opened.settings
    tiers = () if request.tier is None else tiers_of(opened.record.target, request.tier)
    thresholds = (
        thresholds_of(settings.target, request.threshold, settings.service)
        if request.threshold
        else opened.thresholds
    )
    people = (
        None
        if request.weights is None
        else tile_weights(opened, request.weights, request.by, request.crs)
    )
    areas, weights = area_weights(opened, request.by, people, request.crs)
    seed, draws = request.seed, request.draws
    opened.listener.stage(f"{draws} draws of all tiles")
    if tiers:
        together = opened.levels(seed=seed, columns=draws)
        wanted = compared_tiers(opened, together, tiers)
        paths = together.paths(draws, seed=seed)
        law: Any = opened.map_joint(drawn_question(opened))
    else:
        level = opened.level(seed=seed, columns=draws)
        opened.warn_of_smooth_level(level, "shares and joint regions")
        wanted, paths = compared(level, thresholds), level.paths(draws, seed=seed)
        law = opened.map_law(drawn_question(opened))
    found = excursions(paths, wanted, areas, weights, far=opened.far)
    pairs = zip(found, wanted, strict=True)
    return tuple(with_map_shares(excursion, one.holds, law, weights) for excursion, one in pairs)


def compared(level: JointLevel, thresholds: tuple[Threshold, ...]) -> list[Compared]:
    """Return the comparison of a level with each threshold."""
    sd = np.sqrt(level.single_variances())
    return [
        Compared(one, one.sign * (level.mean - one.modelled) / sd, one.holds) for one in thresholds
    ]


def compared_tiers(
    opened: Reopened, levels: JointTargets, tiers: tuple[Tier, ...]
) -> list[Compared]:
    """Return the comparison of the levels of several targets with each tier.

    The probabilities have the correlations of the draws, which are not those of measurements.
    """
    question = replace(drawn_question(opened), name=OF_LEVEL, tests=None, devices=None)
    joint = replace(opened.map_joint(question), correlation=levels.correlation)
    targets = target_names(opened.record.target)
    return [
        Compared(one, special.ndtri(one.probability(joint)), partial(one.holds, targets=targets))
        for one in tiers
    ]


def with_map_shares(
    excursion: Excursion, holds: Callable[[Floats], Mask], law: Any, weights: sparse.csc_array
) -> Excursion:
    """Return an excursion whose shares also have what the predictions `law` of the map say.

    `holds` is as in `Compared`, and `weights` as in `area_weights`.
    """
    threshold = excursion.threshold
    columns = {
        "median_short": weights.T @ (~holds(law.median)).astype(np.float64),
        "probability_short": weights.T @ (1 - threshold.probability(law)),
    }
    shares = _with_columns(excursion.shares, columns)
    sided = one_side(law.median, threshold) if isinstance(threshold, Threshold) else None
    return replace(excursion, shares=shares, one_sided=sided)


def area_weights(
    opened: Reopened, by: str | None, people: Floats | None = None, crs: str | None = None
) -> tuple[pd.DataFrame, sparse.csc_array]:
    """Return a table of k areas, and the share of each tile in the size of each area, (n, k).

    The table has the column ``layer``, the columns of `TileAreas.table`, and ``area_km2``. The rows
    are the region, the strata of the region (urban and rural), then the areas of ``--by`` that
    contain the centre of a tile. With the weights `people` (n,), the table has the column
    ``weight``, and k more columns (n, 2 k) have the share of each tile in the weight of each area.
    Raises the errors of `tile_areas`.
    """
    tiles = opened.tiles
    km2 = tile_areas_km2(tiles.centres[1], tiles.zoom)
    kinds = [tile_areas(opened, BY_STRATUM)]
    if by not in {None, BY_STRATUM}:
        kinds.append(tile_areas(opened, by, crs))
    sizes = {"area_km2": km2} if people is None else {"area_km2": km2, "weight": people}
    tables = [
        areas.table(opened).assign(**{name: areas.totals(size) for name, size in sizes.items()})
        for areas in kinds
    ]
    for areas, table in zip(kinds, tables, strict=True):
        table.insert(0, "layer", WHOLE if areas.tag == BY_STRATUM else areas.tag)
    weights = sparse.hstack(
        [areas.shares(size) for size in sizes.values() for areas in kinds], format="csc"
    )
    return pd.concat(tables, ignore_index=True), weights


def excursions(
    paths: Iterable[Floats],
    wanted: Sequence[Compared],
    areas: pd.DataFrame,
    weights: sparse.csc_array,
    *,
    far: Mask | None = None,
) -> tuple[Excursion, ...]:
    """Compare posterior draws of the level with all thresholds, in one pass over the draws.

    The joint regions leave out tiles far from any measurement, `far` (n,). To save memory, only the
    shares and the `FirstMisses` of a draw are stored. `areas` and `weights` are as in
    `area_weights`.
    """
    out = np.zeros(weights.shape[0], np.bool_) if far is None else far
    met, short = (
        [FirstMisses(np.where(out, -np.inf, side * one.score)) for one in wanted]
        for side in (1.0, -1.0)
    )
    parts: list[list[Floats]] = [[] for _ in wanted]
    for drawn in paths:
        for k, one in enumerate(wanted):
            above = one.holds(drawn)
            met[k].add(above)
            short[k].add(~above)
            parts[k].append(np.asarray((weights.T @ (~above).T.astype(np.float64)).T))
    return tuple(
        Excursion(
            one.threshold,
            _shares(areas, np.concatenate(parts[k]), weights.T @ special.ndtr(-one.score)),
            met[k].region(LEVEL),
            short[k].region(LEVEL),
        )
        for k, one in enumerate(wanted)
    )


def _shares(areas: pd.DataFrame, drawn: Floats, closed_form: Floats) -> pd.DataFrame:
    lower, upper = np.quantile(drawn, _ENDS, axis=0)
    columns = {
        "mean": drawn.mean(0),
        "lower": lower,
        "upper": upper,
        "error": drawn.std(0, ddof=1) / np.sqrt(len(drawn)),
        "closed_form": closed_form,
    }
    return _with_columns(areas, columns)


def _with_columns(areas: pd.DataFrame, columns: Mapping[str, Floats]) -> pd.DataFrame:
    """Return k areas with columns (k,), or (2 k,) with the shares of the weights."""
    k = len(areas)
    table = areas.assign(**{name: values[:k] for name, values in columns.items()})
    more = {f"weighted_{name}": values[k:] for name, values in columns.items() if len(values) > k}
    return table.assign(**more)


def answer_exceedance(
    opened: Reopened, request: ExceedanceRequest, clock: Clock
) -> tuple[Answer, ...]:
    """Return an answer for each threshold, and write them into the run folder.

    Raises the errors of `threshold_shares`, and OutputError if a file cannot be written.
    """
    compared = threshold_shares(opened, request)
    opened.listener.stage("writing shares and joint regions")
    facts = {
        "run": str(request.run),
        **opened.about,
        "predicted": drawn_question(opened).name,
        "speaks_of": drawn_question(opened).words(),
        "at": opened.question.at,
        "zoom": opened.tiles.zoom,
        "tiles": len(opened.tiles),
        "draws": request.draws,
        "seed": request.seed,
        "weights": request.weights,
        "level": LEVEL,
        "notes": list(NOTES),
        "warnings": list(opened.listener.warnings),
        **clock(),
    }
    return tuple(_written(opened, excursion, facts) for excursion in compared)


def _written(opened: Reopened, excursion: Excursion, facts: dict[str, Any]) -> Answer:
    """Write the files of one threshold, and return its answer.

    The names contain target, level, quarter and threshold, such as
    ``exceedance_download_level_2023Q4_35_mbps.csv``; with weights also these.
    """
    folder, threshold = opened.path, excursion.threshold
    content = with_rows(facts | _described(excursion), "share_falling_short", excursion.shares)
    start = "tier" if isinstance(threshold, Tier) else opened.settings.target
    tag = f"{start}_{OF_LEVEL}_{facts['at']}_{threshold.tag}"
    tag += weights_tag(facts["weights"])
    name = f"exceedance_{tag}"
    files = [folder / f"{name}.json"]
    forget(files[0])
    for layer, table in excursion.shares.groupby("layer", sort=False):
        end = "" if layer == WHOLE else f"_{layer}"
        files.append(folder / f"{name}{end}.csv")
        write_csv(files[-1], table.drop(columns="layer"))
    files += write_excursions(
        folder,
        opened.inputs.region,
        opened.tiles,
        (excursion.met, excursion.short),
        threshold,
        tag=tag,
        subtitle=f"{opened.inputs.region.name}, {opened.question.label()}; level",
        about_data=opened.inputs.ingested.credits,
    )
    write_json(files[0], content)
    return replace(read_exceedance(name, content, excursion.shares), files=tuple(files))


def _described(excursion: Excursion) -> dict[str, Any]:
    """Return the facts of one threshold."""
    threshold = excursion.threshold
    regions = {"met": (excursion.met, threshold.met), "short": (excursion.short, threshold.missed)}
    return {
        "target": threshold.target,
        "threshold": threshold.value,
        **(
            {"definition": threshold.definition, "notes": [*NOTES, TIER_NOTE]}
            if isinstance(threshold, Tier)
            else {}
        ),
        "meets": threshold.met,
        "falls_short": threshold.missed,
        "one_sided": excursion.one_sided,
        "joint_regions": {
            name: {
                "is": words,
                "tiles": int(region.inside.sum()),
                "tiles_interval": [region.fewest, region.most],
                "probability": region.probability,
                "probability_interval": [region.lower, region.upper],
            }
            for name, (region, words) in regions.items()
        },
    }


def read_exceedance(name: str, content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer with a name and a content."""
    tag, one = name.removeprefix("exceedance_"), _ONE.get(content.get("predicted", ""))
    columns = _share_columns(one)
    if content.get("weights"):
        columns += _share_columns(one, by=Path(content["weights"]).name)
    return Answer(
        name,
        f"What is {content['falls_short']}, {content['at']}{of_target(content)}",
        content,
        "share_falling_short",
        table,
        (
            Column("area", ("area",), "{}"),
            Column("tiles", ("tiles",), "{:,}", minor=True),
            Column("km²", ("area_km2",), "{:,.0f}", minor=True),
            *columns,
        ),
        before=(
            *([f"The tier: {content['definition']}."] if "definition" in content else []),
            f"{_BEFORE} The map predicts {content['speaks_of']}." if one else _BEFORE,
        ),
        after=(
            *(_words(region, content) for region in content["joint_regions"].values()),
            *filter(None, [content.get("one_sided")]),
        ),
        other_names=(
            *(f"{name}_{layer}" for layer in table["layer"]),
            f"excursion_{tag}",
            f"excursion_short_{tag}",
        ),
    )


def _share_columns(one: str | None, by: str = "") -> list[Column]:
    """Return the columns of the shares of the area, or of the weights `by`.

    `one` is a value that the map predicts; it is None for answers of geogp before 0.2. The title of
    the table says what falls short means.
    """
    share, end, start = (f"share by {by}", f" by {by}", "weighted_") if by else ("area", "", "")
    ends = [f"{start}{name}" for name in ("mean", "lower", "upper")]
    columns = with_interval(f"{share} whose level is", f"95 % interval{end}", ends, ".1%")
    if one is None:
        return columns
    return [
        *columns,
        Column(f"{share} of tiles whose median is", (f"{start}median_short",), "{:.1%}"),
        Column(f"mean probability of {one}{end}", (f"{start}probability_short",), "{:.1%}"),
    ]


def _words(region: dict[str, Any], content: dict[str, Any]) -> str:
    """Return a sentence about the size and the probability of a joint region."""
    low, high = region["tiles_interval"]
    if not region["tiles"]:
        return (
            f"{region['is']}: the joint region has no tile (other random draws give up to "
            f"{high:,})."
        )
    return (
        f"{region['is']}: the joint region has {region['tiles']:,} of {content['tiles']:,} tiles "
        f"(other random draws give {low:,} to {high:,}). In {100 * region['probability']:.1f} % of "
        f"{content['draws']} draws, the level is {region['is']} in all of these tiles."
    )


EXCEEDANCE = AnswerKind("exceedance_*.json", "share_falling_short", read_exceedance)
