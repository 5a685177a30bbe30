"""The change of the level between two quarters, from one joint distribution of both quarters.

The change of an area is a sum over the tiles of both quarters, with the weights w in the second
quarter and -w in the first quarter. So its variance includes the covariances between the quarters.

The levels are those of the map and of `areas.py`, so the change of an area is the difference of its
two levels. The networks that refine single predictions of the map predict from rows of all
quarters, and so can flatten a change d. With d' the change by the Gaussian process alone, the
variance of the change is that of the joint distribution plus (d - d')²
(`benchmarks/answers/change.py`).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import scipy
from msgspec import Meta, Struct, field
from numpy.typing import NDArray
from scipy import sparse, special

from geogp.answers.answer import (
    AREA_COLUMNS,
    Answer,
    AnswerKind,
    AreaLayer,
    Clock,
    Column,
    TileLayer,
    of_target,
    with_interval,
    with_rows,
)
from geogp.answers.area_files import answer_grid, forget, write_areas
from geogp.answers.areas import REACH
from geogp.answers.map_medians import beside_the_level, drawn_question, median_changes
from geogp.answers.requests import ChangeRequest
from geogp.answers.tile_areas import TileAreas, tile_areas
from geogp.distributions.quantity import Quantity
from geogp.errors import RequestError
from geogp.evaluation.scores import Real
from geogp.geodata.tiles.quarters import quarter_index, quarter_label
from geogp.maps.figures.choropleth import Panel, choropleth
from geogp.maps.qgis_styles import write_styles
from geogp.maps.rasters import write_geotiffs
from geogp.maps.scales import CHANGE_PALETTE, PROBABILITY_PALETTE, change_scale_of, share_scale
from geogp.maps.target_quantities import quantity_of
from geogp.maps.views import WHAT_CHANGED, View
from geogp.models.joint.level import JointLevel
from geogp.records.checked_types import checked
from geogp.records.record_types import Name, Quarter, Text
from geogp.runs.pipeline.draw import tests_on
from geogp.runs.question import check_quarter
from geogp.runs.reopen import Reopened
from geogp.value_scales import scale_of, suffix_of

Floats = NDArray[np.float64]

WRONG_SHARE = 0.05
"""Largest false discovery rate of directions: a direction is wrong if the level did not change."""

SAMPLED = 100
"""Largest number of tiles from which the prior variance of an area's change is computed."""

LEAST_KNOWN = 0.01
"""Smallest share of the prior variance that the rows must explain for a direction."""

FAR_SHARE = 0.5
"""An area gets no direction if a larger share of its tiles is far from any measurement."""

NOTES = (
    "The change is the change of the level; it contains no measurement noise.",
    (
        "Changes and intervals come from the joint distribution of all tiles in both quarters. "
        "The levels are those of the map and of geogp areas. The intervals also contain the "
        "difference from the change by the Gaussian process alone. They do not include the "
        "uncertainty of the learned basis."
    ),
    (
        f"Under the model, at most {100 * WRONG_SHARE:g} % of the directions are expected to be "
        "wrong; the direction of an unchanged area counts as wrong. More can be wrong near large "
        "areas that changed. An area gets no direction if most of its tiles are far from any "
        "measurement."
    ),
)

_BEFORE = (
    "These values are changes of the level: the value to expect, without measurement noise. Means "
    "of tests also change by chance."
)


@dataclass(frozen=True)
class TileChanges:
    """The change of the level at each tile, on the scale of the model, (n,): mean and sd.

    The standard deviation comes from draws; with `draws` draws, its relative standard error is 1 /
    sqrt(2 draws).
    """

    mean: Floats
    sd: Floats

    @property
    def rose(self) -> Floats:
        """The probability that the level rose."""
        probability: Floats = special.ndtr(self.mean / self.sd)
        return probability


@dataclass(frozen=True)
class LevelChanges:
    """Changes of the level: a table of areas (see `describe_changes`), and the tiles."""

    table: pd.DataFrame
    areas: TileAreas
    tiles: TileChanges
    described: dict[str, Any]

    @property
    def frame(self) -> gpd.GeoDataFrame:
        """The table with the polygon of each area, and both quarters."""
        quarters = {"quarter_from": self.described["from"], "quarter_to": self.described["to"]}
        return gpd.GeoDataFrame(
            self.table.assign(**quarters), geometry=list(self.areas.shapes), crs=4326
        )


def level_changes(opened: Reopened, request: ChangeRequest) -> LevelChanges:
    """Return the change of the level of each area and each tile between two quarters.

    Raises RequestError if the quarters are not in order, or the model cannot predict one of them;
    and the errors of `tile_areas` and `SpatialGP.joint`.
    """
    tiles = opened.tiles
    quarters = _quarters(opened, request)
    areas = tile_areas(opened, request.by, request.crs)
    width = max(request.draws, len(areas))
    level = opened.level(*quarters, seed=request.seed, columns=width)
    opened.warn_of_smooth_level(level, "changes")
    quantity = quantity_of(opened.settings.target)
    columns = describe_changes(level, areas, quantity, request.at_least)
    columns |= median_changes(opened, areas.means(len(tiles)), quarters)
    opened.listener.stage(f"{request.draws} draws for single tiles")
    changes = tile_changes(level, request.draws, request.seed)
    table = areas.table(opened)
    near = table["far_share"].to_numpy() <= FAR_SHARE
    rose = columns["probability_rose"]
    columns["wrong_share"] = np.ones(len(rose))
    tag = quantity.scale.tag
    apart = _apart(level, areas.means(len(tiles)))
    joint = np.sqrt(np.maximum(columns[f"change_sd_{tag}"] ** 2 - apart**2, 0.0))
    estimates = columns[f"change_{tag}"], joint
    z = unchanged_scores(level, areas, estimates, request.seed, apart=apart)
    columns["wrong_share"][near] = wrong_shares(z[near])
    called = columns["wrong_share"] <= WRONG_SHARE
    columns["direction"] = np.where(called, np.where(rose > 0.5, "rose", "fell"), "")
    seen = opened.mapped
    for name, quarter in zip(("from", "to"), quarters, strict=True):
        tests = tests_on(tiles, seen.taken(seen.quarter == quarter))
        table[f"tests_{name}"] = areas.totals(tests)
    described = {
        "from": quarter_label(quarters[0]),
        "to": quarter_label(quarters[1]),
        "by": request.by,
        "zoom": tiles.zoom,
        "tiles": len(tiles),
        f"at_least_{quantity.scale.change_tag}": request.at_least,
        "draws": request.draws,
        **opened.about,
        "unit": quantity.unit,
        "map_predicts": drawn_question(opened).words(),
        "mean": quantity.scale.average_facts,
        "rose": int((called & (rose > 0.5)).sum()),
        "fell": int((called & (rose <= 0.5)).sum()),
        "wrong_share_limit": WRONG_SHARE,
        "warnings": list(opened.listener.warnings),
    }
    return LevelChanges(table.assign(**columns), areas, changes, described)


def describe_changes(
    level: JointLevel, areas: TileAreas, quantity: Quantity, at_least: float | None
) -> dict[str, Any]:
    """Return columns about the change of each area, (k,); `level` has all tiles at two times.

    ``level_from`` and ``level_to`` are means over the tiles in the two quarters, on the scale of
    the model: ``level_mean`` of `geogp.answers.areas.describe_levels`. ``change`` is their
    difference, with the ends of its 95 % interval, in log10 and in per cent, or in dB.
    ``probability_rose`` is the probability of a change above 0, and ``probability_rose_at_least``
    of a change of `at_least` per cent (or dB) or more.
    """
    scale = quantity.scale
    count = len(level) // 2
    mean = areas.means(count)
    first, last = (mean.T @ half for half in np.split(level.mean, 2))
    if scale.most is not None:
        first, last = scale.values(first), scale.values(last)
    change = last - first
    variance = level.sum_variances(sparse.vstack([-mean, mean], format="csc"))
    sd = np.hypot(np.sqrt(variance), _apart(level, mean))
    columns: dict[str, Any] = {
        f"level_from_{quantity.suffix}": scale.values(first),
        f"level_to_{quantity.suffix}": scale.values(last),
    }
    ends = {"": change, "_lower": change - REACH * sd, "_upper": change + REACH * sd}
    for end, values in ends.items():
        columns[f"change{end}_{scale.change_tag}"] = scale.changes(values)
    columns |= {f"change{end}_{scale.tag}": values for end, values in ends.items()}
    columns[f"change_sd_{scale.tag}"] = sd
    columns["probability_rose"] = special.ndtr(change / sd)
    if at_least is not None:
        least = scale.differences(at_least)
        columns["probability_rose_at_least"] = special.ndtr((change - least) / sd)
    return columns


def _apart(level: JointLevel, mean: sparse.csc_array) -> Floats:
    """Return how far the change of each area is from that by the Gaussian process alone, (k,)."""
    before, after = np.split(level.mean - level.process_mean, 2)
    found: Floats = mean.T @ (after - before)
    return found


def tile_changes(level: JointLevel, draws: int, seed: int) -> TileChanges:
    """Return the change at each tile, from joint draws of the level at all tiles at two times."""
    first, last = np.split(level.mean, 2)
    n, mean, squares = len(first), (last - first).astype(np.float32), np.zeros(len(first))
    for paths in level.paths(draws, seed=seed):
        squares += np.square(paths[:, n:] - paths[:, :n] - mean).sum(0, np.float64)
    before, after = np.split(level.mean - level.process_mean, 2)
    return TileChanges(last - first, np.hypot(np.sqrt(squares / draws), after - before))


def unchanged_scores(
    level: JointLevel,
    areas: TileAreas,
    estimates: tuple[Floats, Floats],
    seed: int = 0,
    *,
    apart: Floats | float = 0.0,
) -> Floats:
    """Return the estimated changes, (k,), in standard deviations of an unchanged area's estimate.

    `estimates` are the changes and their joint standard deviations, on the scale of the model. Let
    s² be the posterior variance of the change of an area, t² its prior variance, and d how far the
    change is `apart` from that by the Gaussian process alone. Under the model, the estimate has the
    variance s² (1 - s² / t²) + d² if the area did not change. t² comes from at most
    `SAMPLED` tiles of the area, and an area about which nothing is known has the score 0.
    """
    count, random = len(level) // 2, np.random.default_rng([seed, 4])
    prior = np.empty(len(areas))
    for k, inside in enumerate(areas.tiles):
        tiles = random.permutation(inside)[:SAMPLED]
        m, n = len(tiles), len(inside)
        parts = level.prior_covariance(np.concatenate([tiles, tiles + count])).reshape(2, m, 2, m)
        own = np.trace(parts, axis1=1, axis2=3)
        # The variance of a change: both times, less twice the covariance.
        total, diagonal = (
            block[0, 0] + block[1, 1] - block[0, 1] - block[1, 0]
            for block in (parts.sum((1, 3)), own)
        )
        between = (total - diagonal) / max(m * (m - 1), 1)
        prior[k] = between * (1 - 1 / n) + diagonal / m / n
    change, sd = estimates
    known = (1 - sd**2 / prior).clip(min=0)
    spread = np.hypot(sd * np.sqrt(known + 1e-12), apart)
    scores: Floats = np.where(known > LEAST_KNOWN, change / spread, 0.0)
    return scores


def wrong_shares(z: Floats) -> Floats:
    """Return the false discovery rate at which each area just gets a direction, (k,).

    `z` (k,) are standard normal for areas that did not change. The rates are the adjusted p-values
    of Benjamini and Hochberg (1995), for p = 2 P(Z > |z|).
    """
    p = 2 * special.ndtr(-np.abs(z))
    rates: Floats = scipy.stats.false_discovery_control(p) if len(p) else p
    return rates


def _quarters(opened: Reopened, request: ChangeRequest) -> tuple[int, int]:
    """Return the indices of both quarters; warn if a quarter has no measurement."""
    end = opened.question.quarter if request.end is None else quarter_index(request.end)
    start = quarter_index(request.start)
    if start >= end:
        raise RequestError(
            f"expected --from before --to, found {quarter_label(start)} and {quarter_label(end)}."
        )
    quarters, timeless = opened.inputs.observations.quarters, opened.plan.model.scale.times is None
    for option, quarter in (("--from", start), ("--to", end)):
        check_quarter(quarter, quarters, opened.plan.model.name, timeless=timeless, option=option)
        if quarter not in quarters:
            opened.listener.warn(f"there is no measurement of {quarter_label(quarter)} ({option}).")
    return start, end


def answer_change(opened: Reopened, request: ChangeRequest, clock: Clock) -> tuple[Answer, ...]:
    """Return the change of the level as an answer, and write it into the run folder.

    Raises the errors of `level_changes`, and OutputError if a file cannot be written.
    """
    changes = level_changes(opened, request)
    opened.listener.stage("writing tables and maps")
    facts = {"run": str(request.run), "for": "level", **changes.described, "notes": list(NOTES)}
    content = with_rows(facts | clock(), "areas", changes.frame.drop(columns="geometry"))
    end = f"{opened.settings.target}_{facts['from']}_{facts['to']}"
    name = f"change_{changes.areas.tag}_{end}"
    forget(opened.path / f"{name}.json")
    tiles, picture = _write_tiles(opened, changes, end), _picture(opened, changes)
    files = write_areas(opened, changes.areas, changes.frame, content, name, picture=picture)
    return (replace(read_change(name, content, changes.table), files=(*files, *tiles)),)


def _picture(opened: Reopened, changes: LevelChanges) -> bytes:
    """Return a PNG file of the changes of the areas, and of the probabilities of a rise."""
    table, facts = changes.table, changes.described
    quantity = quantity_of(opened.settings.target)
    unit, subject = quantity.scale.change_unit, quantity.subject
    change = table[f"change_{quantity.scale.change_tag}"].to_numpy()
    rose = table["probability_rose"].to_numpy()
    colours = change_scale_of(unit)(change, label=f"change of the level, {unit}")
    return choropleth(
        opened.inputs.region,
        opened.tiles,
        changes.areas.shapes,
        (
            Panel(change, colours, "change"),
            Panel(
                rose,
                share_scale(rose, label="probability of a rise", palette=PROBABILITY_PALETTE),
                "probability that the level rose",
            ),
        ),
        title=f"Change of {subject} by area, {facts['from']} to {facts['to']}",
        subtitle=f"{opened.inputs.region.name}; level; black outline: areas with a direction",
        marked=table["direction"].to_numpy() != "",
        attribution=opened.inputs.ingested.attribution,
    )


def _write_tiles(opened: Reopened, changes: LevelChanges, end: str) -> list[Path]:
    """Write rasters of the change of each tile, with names that end in `end`; return their paths.

    What nobody measured near is never called certain: there, the probability has no data.
    """
    between = f"from {changes.described['from']} to {changes.described['to']}"
    rose = np.where(opened.far, np.nan, changes.tiles.rose)
    variables, scale = {}, quantity_of(opened.settings.target).scale
    of = "log10 of the level" if scale.logarithmic else "the level"
    for name, values, label, unit in (
        (
            f"change_{scale.change_tag}",
            scale.changes(changes.tiles.mean),
            f"median change of the level {between}",
            scale.change_unit,
        ),
        (
            "change_sd",
            changes.tiles.sd,
            f"standard deviation of the change {between} of {of}",
            scale.cf_unit,
        ),
        (
            "probability_rose",
            rose,
            f"probability that the level rose {between}; no data far from any measurement",
            "1",
        ),
    ):
        attributes = {"long_name": label, "units": unit}
        variables[f"{name}_{end}"] = values.astype(np.float32), np.nan, attributes
    grid = answer_grid(opened, variables)
    return write_styles(grid, opened.path) + write_geotiffs(grid, opened.path)


_Percent = Annotated[float, Meta(gt=-100, le=1e100)]


class _Facts(Struct, frozen=True):
    """What people see of the facts of an answer."""

    by: Name
    start: Quarter = field(name="from")
    end: Quarter = field(name="to")
    areas: Annotated[list[Any], Meta(min_length=1)]
    map_predicts: Text = ""


def read_change(name: str, content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer with a name and a content; raise DataError if a fact is wrong."""
    facts = checked(content, _Facts, "the JSON file")
    times, by, unit = f"{facts.start} to {facts.end}", Path(facts.by).name, str(content["unit"])
    scale = scale_of(unit)
    tag, of_change = scale.change_tag, scale.change_unit
    change = [f"change{side}_{tag}" for side in ("", "_lower", "_upper")]
    median = f"map_median_change_{tag}" if f"map_median_change_{tag}" in table else None
    end = "_".join(name.split("_")[-3:])
    changes, sds = f"change_{tag}_{end}", f"change_sd_{end}"
    by_area = View(
        name,
        "",
        f"Change by {by}, {times}{of_target(content)}",
        f"change of the level by {by}, {of_change}",
        CHANGE_PALETTE,
        change_scale_of(of_change),
        "The answer of geogp change. Striped: no direction, because the change may be chance.",
        of_change,
        WHAT_CHANGED,
    )
    by_tile = replace(
        by_area,
        name=f"change_tiles_{end}",
        title=f"Change of the level, {times}{of_target(content)}",
        label=f"median change of the level, {of_change}",
        hint="The answer of geogp change for single tiles. Most of these changes are uncertain: "
        "click a tile for its interval.",
    )
    middle, low, high = change
    kind: Any = _Percent if scale.logarithmic else Real
    return Answer(
        name,
        f"The change of the level by {facts.by}, {times}{of_target(content)}",
        content,
        "areas",
        table,
        _columns(facts, unit, median, content.get(f"at_least_{tag}")),
        before=(
            f"{_BEFORE} Each level is a {scale.averaged}."
            + (beside_the_level(facts.map_predicts) if median else ""),
        ),
        after=(_directions(content),),
        areas=AreaLayer(
            by_area, "change of the level", times, (low, middle, high), kind, median, directed=True
        ),
        tiles=TileLayer(by_tile, (facts.start, facts.end), changes, sds),
        other_names=(changes, sds, f"probability_rose_{end}"),
    )


def _columns(
    facts: _Facts, unit: str, median: str | None, least: float | None
) -> tuple[Column, ...]:
    """Return the columns of a table of changes, with the map's medians if `median` names them."""
    scale = scale_of(unit)
    of_change, suffix = scale.change_unit, suffix_of(unit)
    change = [f"change{side}_{scale.change_tag}" for side in ("", "_lower", "_upper")]
    area, tiles, _, far = AREA_COLUMNS
    values = [
        Column(f"{label} {quarter}, {unit}", (f"{name}_{end}_{suffix}",), "{:.1f}", minor=True)
        for label, name in (("map's median", "map_median"), ("level", "level"))
        for quarter, end in ((facts.start, "from"), (facts.end, "to"))
        if median or name == "level"
    ]
    columns = [area, tiles, far, *values]
    columns += with_interval("change", "95 % interval", change, "+.1f", of_change)
    if median:
        columns.append(Column("change of map's median", (median,), f"{{:+.1f}} {of_change}"))
    columns.append(Column("probability of a rise", ("probability_rose",), "{:.3f}", minor=True))
    if least is not None:
        label = f"probability of {least:g} {of_change} or more"
        columns.append(Column(label, ("probability_rose_at_least",), "{:.3f}"))
    return *columns, Column("direction", ("direction",), "{}")


def _directions(content: dict[str, Any]) -> str:
    """Return in words how many areas have a direction."""
    count = len(content["areas"])
    called = [row["direction"] for row in content["areas"] if row["direction"]]
    rose, fell = called.count("rose"), called.count("fell")
    text = f"Of {count:,} {'areas' if count > 1 else 'area'}, {rose:,} rose and {fell:,} fell"
    text += "." if called else " for certain."
    if len(called) < count:
        others = "The others" if called else "They may have changed, but"
        text += f" {others} are far from data, or their direction is not certain enough."
    if called:
        limit = f"{WRONG_SHARE:.0%}"
        text += f" Under the model, at most {limit} of directions are expected to be wrong."
    return text


CHANGE = AnswerKind("change_*.json", "areas", read_change, drawn=True)
