"""Levels of areas: counties, strata, hexagons, or polygons of the user."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import scipy
from msgspec import Meta, Struct, field
from numpy.typing import NDArray
from scipy import special

from geogp.answers.answer import (
    AREA_COLUMNS,
    Answer,
    AnswerKind,
    AreaLayer,
    Clock,
    Column,
    band_of,
    with_interval,
    with_rows,
)
from geogp.answers.area_files import write_areas
from geogp.answers.map_medians import beside_the_level, drawn_question, mean_medians
from geogp.answers.requests import AreasRequest
from geogp.answers.tile_areas import TileAreas, tile_areas
from geogp.answers.tile_weights import tile_weights
from geogp.distributions.quantity import Quantity
from geogp.errors import RequestError
from geogp.evaluation.scores import Real
from geogp.geodata.tiles.targets import find_target
from geogp.maps.figures.choropleth import Panel, choropleth
from geogp.maps.scales import SPEED_PALETTE, WIDTH_PALETTE, value_scale, width_scale
from geogp.maps.target_quantities import quantity_of
from geogp.maps.views import View, width_label
from geogp.models.joint.level import JointLevel
from geogp.records.checked_types import checked
from geogp.records.record_types import AboveZero, Name, Quarter, QuestionText, Some, Text
from geogp.reports.words import sample_words
from geogp.runs.reopen import Reopened, weights_tag
from geogp.value_scales import ValueScale, scale_of, suffix_of

Floats = NDArray[np.float64]

REACH = float(special.ndtri(0.975))
"""Number of standard deviations from the middle of a 95 % interval to its end."""

_ENDS = (0.025, 0.5, 0.975)


@dataclass(frozen=True)
class AreaLevels:
    """Levels of the areas that contain the centre of a tile; see `describe_levels`.

    `kind` is the main quantity of the table, ``level_mean`` or ``tile_mean``. `described` has the
    common JSON entries.
    """

    table: pd.DataFrame
    areas: TileAreas
    kind: str
    described: dict[str, Any]

    @property
    def frame(self) -> gpd.GeoDataFrame:
        """The table with the polygon of each area, the quarter, and the tests per tile."""
        described = self.described
        table = self.table.assign(
            quarter=described["at"], tests_per_tile=described["tests_per_tile"]
        )
        return gpd.GeoDataFrame(table, geometry=list(self.areas.shapes), crs=4326)


def area_levels(opened: Reopened, request: AreasRequest) -> AreaLevels:
    """Return the level of each area; raise the errors of `tile_areas` and `SpatialGP.joint`."""
    tiles = opened.tiles
    areas = tile_areas(opened, request.by, request.crs)
    if opened.settings.calibrated:
        opened.listener.warn(
            "the conformal repair of this run applies to single measurements. Means over areas, "
            "with and without noise, come from the model without the repair."
        )
    people = (
        None
        if request.weights is None
        else tile_weights(opened, request.weights, request.by, request.crs)
    )
    level = opened.level(seed=request.seed, columns=max(request.draws, len(areas)))
    quantity, tests = quantity_of(opened.settings.target), opened.question.tests
    if request.question != "level" and find_target(opened.settings.target).is_share:
        raise RequestError(
            "means of tests are not defined for shares of tests that succeeded: --for level gives "
            "the probability of success. Leave --for out."
        )
    if request.question == "level":
        opened.listener.stage(f"{request.draws} draws for medians, arithmetic means and ranks")
        kind, measured = "level_mean", level
        columns = describe_levels(level, areas, quantity, request)
        columns |= _medians(opened, areas.means(len(level)), "map_median", quantity)
    else:
        kind, measured = "tile_mean", level.measured(float(tests or 1), opened.question.devices)
        columns = describe_means(measured, areas, quantity)
    if people is not None:
        of = kind.replace("mean", "weighted")
        columns |= {"weight": areas.totals(people)}
        columns |= _means(measured, areas.shares(people), of, quantity)
        if kind == "level_mean":
            columns |= _medians(opened, areas.shares(people), "map_weighted", quantity)
    described = {
        "by": request.by,
        "weights": request.weights,
        "at": opened.question.at,
        "zoom": tiles.zoom,
        "tiles": len(tiles),
        "tiles_elsewhere": len(tiles) - len(np.unique(np.concatenate(areas.tiles))),
        "tests_per_tile": tests,
        "devices_per_tile": opened.question.devices,
        "map_predicts": drawn_question(opened).words(),
        "draws": request.draws,
        "unit": quantity.unit,
        "mean": quantity.scale.average_facts,
        "function_sd": median_sds(level),
        "warnings": list(opened.listener.warnings),
    }
    return AreaLevels(areas.table(opened).assign(**columns), areas, kind, described)


def describe_levels(
    level: JointLevel, areas: TileAreas, quantity: Quantity, request: AreasRequest
) -> dict[str, Any]:
    """Return columns about the level of each area, (k,).

    Each quantity has three columns, for the value and the ends of its 95 % interval; the column
    names end in the unit. ``level_mean`` is the mean over the tiles on the scale of the model: of
    log10 (a geometric mean), or of decibels. ``level_median`` is the median over the tiles, and
    ``level_arithmetic`` the arithmetic mean if ``level_mean`` is another one. The interval of
    ``level_mean`` comes from the exact variance of a sum (`JointLevel`); other intervals are
    quantiles of draws. ``independent_sd_log10`` (or ``_db``) is the standard deviation of
    ``level_mean`` on the scale of the model for independent tiles. This standard deviation is too
    small, because tiles are correlated.

    If the areas do not overlap, ``rank`` is the rank of ``level_mean``, 1 for the highest value,
    and ``rank_lower`` and ``rank_upper`` are the ends of the 95 % interval of the rank of each
    single area.
    """
    weights, unit = areas.means(len(level)), quantity.suffix
    columns: dict[str, Any] = _means(level, weights, "level_mean", quantity)
    mean = columns[f"level_mean_{unit}"]
    drawn = _drawn(level, areas, request, quantity.scale)
    ranked = drawn.pop("rank")
    if areas.are_apart:
        low, _, high = np.quantile(ranked, _ENDS, axis=0, method="inverted_cdf")
        ends = {"rank": _ranks(mean[None])[0], "rank_lower": low, "rank_upper": high}
        columns |= {name: values.astype(np.int64) for name, values in ends.items()}
    for name, values in drawn.items():
        low, middle, high = np.quantile(values, _ENDS, axis=0)
        columns |= {
            f"{name}_{unit}": middle,
            f"{name}_lower_{unit}": low,
            f"{name}_upper_{unit}": high,
        }
    squares = np.asarray(weights.multiply(weights).T @ level.single_variances(), np.float64)
    return columns | {f"independent_sd_{quantity.scale.tag}": np.sqrt(squares)}


def describe_means(measured: JointLevel, areas: TileAreas, quantity: Quantity) -> dict[str, Floats]:
    """Return columns about the mean of new measurements with noise, one for each tile, (k,).

    The columns of ``tile_mean`` are like those of ``level_mean`` in `describe_levels`.
    """
    return _means(measured, areas.means(len(measured)), "tile_mean", quantity)


def _means(level: JointLevel, weights: Any, name: str, quantity: Quantity) -> dict[str, Floats]:
    """Return columns about means with weights (n, k): NaN for an area without weight.

    The noise of new measurements is 0 unless `JointLevel.measured` has set it.
    """
    known = np.isfinite(weights.sum(0))
    mean, sd = np.full((2, len(known)), np.nan)
    mean[known] = level.sum_means(weights[:, known])
    sd[known] = np.sqrt(level.sum_variances(weights[:, known], noise=True))
    unit, scale = quantity.suffix, quantity.scale
    columns = {
        f"{name}_{unit}": scale.values(mean),
        f"{name}_lower_{unit}": scale.values(mean - REACH * sd),
        f"{name}_upper_{unit}": scale.values(mean + REACH * sd),
    }
    if scale.logarithmic:
        columns[f"{name}_{scale.tag}"] = mean
    return columns | {f"{name}_sd_{scale.tag}": sd}


def _medians(opened: Reopened, weights: Any, name: str, quantity: Quantity) -> dict[str, Floats]:
    """Return a column of means of the medians of the map; none if the map shows the level."""
    means = mean_medians(opened, weights, opened.question.quarter)
    return {} if means is None else {f"{name}_{quantity.suffix}": quantity.scale.values(means)}


def _drawn(
    level: JointLevel, areas: TileAreas, request: AreasRequest, scale: ValueScale
) -> dict[str, Floats]:
    """Return rank, median and arithmetic mean of each area, for each posterior draw.

    Where values are those of the model, the arithmetic mean is the level's mean, and left out.
    """
    weights = areas.means(len(level))
    median, mean, rank = [], [], []
    for paths in level.paths(request.draws, seed=request.seed):
        # float32 is exact enough for draws, and faster.
        values = scale.values(paths.astype(np.float32))
        median.append(np.stack([np.median(values[:, tiles], 1) for tiles in areas.tiles], 1))
        mean.append((weights.T @ values.T).T)
        rank.append(_ranks((weights.T @ paths.T).T))
    parts = {"level_median": median, "rank": rank}
    if scale.logarithmic:
        parts["level_arithmetic"] = mean
    return {name: np.concatenate(each) for name, each in parts.items()}


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value in its row, 1 for the highest value, (b, k)."""
    return np.asarray(scipy.stats.rankdata(-values, axis=1), np.float64)


def median_sds(level: JointLevel) -> dict[str, float]:
    """Return the median standard deviation of the level at the tiles, from two calculations.

    ``closed_form`` uses the closed-form posterior, ``stated`` the model's own prediction. The two
    differ most for PPGP and dPPGP, whose own variance also contains noise.
    """
    return {
        "closed_form": float(np.median(np.sqrt(level.closed_form_variances()))),
        "stated": float(np.median(np.sqrt(level.stated_variances()))),
    }


def answer_areas(opened: Reopened, request: AreasRequest, clock: Clock) -> tuple[Answer, ...]:
    """Return the levels of areas as an answer, and write it into the run folder.

    The names of the files contain areas, target, question and quarter, such as
    ``areas_county_download_level_2023Q4.csv``; with weights also these. Raises the errors of
    `area_levels`, and OutputError if a file cannot be written.
    """
    levels = area_levels(opened, request)
    facts = {"run": str(request.run), "for": request.question, **levels.described, **clock()}
    name = f"areas_{levels.areas.tag}_{opened.settings.target}_{request.question}_{facts['at']}"
    name += weights_tag(request.weights)
    content = with_rows(facts, "areas", levels.frame.drop(columns="geometry"))
    picture = _picture(opened, request, levels)
    files = write_areas(opened, levels.areas, levels.frame, content, name, picture=picture)
    return (replace(read_areas(name, content, levels.table), files=tuple(files)),)


def _picture(opened: Reopened, request: AreasRequest, levels: AreaLevels) -> bytes:
    """Return a PNG file of the means of the areas, and of the widths of their intervals."""
    table, quantity = levels.table, quantity_of(opened.settings.target)
    values = table[f"{levels.kind}_{quantity.suffix}"].to_numpy()
    scale, unit = quantity.scale, quantity.unit
    widths = 2 * REACH * table[f"{levels.kind}_sd_{scale.tag}"].to_numpy()
    means = value_scale(values, label=unit, palette=SPEED_PALETTE, unit=unit)
    of = "level" if request.question == "level" else opened.question.words()
    return choropleth(
        opened.inputs.region,
        opened.tiles,
        levels.areas.shapes,
        (
            Panel(values, means, "mean"),
            Panel(
                widths,
                width_scale(widths, label=width_label(unit), palette=WIDTH_PALETTE, unit=unit),
                "uncertainty",
            ),
        ),
        title=f"{scale.average.capitalize()} of {quantity.subject} by area",
        subtitle=f"{opened.inputs.region.name}, {opened.question.label()}; {of}",
        attribution=opened.inputs.ingested.attribution,
    )


class _Facts(Struct, frozen=True):
    """What people see of the facts of an answer."""

    question: QuestionText = field(name="for")
    by: Name
    at: Quarter
    unit: Annotated[str, Meta(pattern="^([A-Za-z]+|%)$", description="a unit")]
    areas: Annotated[list[Any], Meta(min_length=1)]
    weights: Name | None = None
    tests: Some | None = field(name="tests_per_tile", default=None)
    devices: Some | None = field(name="devices_per_tile", default=None)
    map_predicts: Text = ""


def read_areas(name: str, content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer with a name and a content; raise DataError if a fact is wrong."""
    facts = checked(content, _Facts, "the JSON file")
    unit, by = facts.unit, Path(facts.by).name
    level = facts.question == "level"
    what, kind = ("level without noise", "level") if level else ("mean of measurements", "tile")
    sample = sample_words(facts.tests, facts.devices) if facts.tests else ""
    scale = scale_of(unit)
    means = f"Each mean is a {scale.averaged}."
    if level:
        before = (
            "These values are the level: the value to expect, without measurement noise. "
            f"`--for tile-mean` gives means of tests, with noise. {means}"
            + _beside_the_level(facts, table)
        )
    else:
        before = (
            f"These values are means of {sample or 'the usual number of tests'} in each tile, with "
            f"noise. `--for level` gives the level, without noise. {means}"
        )
    quantity, column = what if level or not sample else f"{what} ({sample})", f"{kind}_mean"
    beside = _median_column("map_median", unit, table)
    columns = _value_columns(what, f"{kind}_mean", beside, unit)
    if level:
        label = f"level of the middle tile, {unit}"
        columns += with_interval(label, "95 % interval", band_of("level_median", unit), ".1f")
    if facts.weights:
        of, column = f" by {Path(facts.weights).name}", f"{kind}_weighted"
        quantity += of
        beside = _median_column("map_weighted", unit, table)
        columns += _value_columns(what, column, beside, unit, of)
    view = View(
        name,
        "",
        f"{quantity[0].upper()}{quantity[1:]} by {by}",
        f"{quantity} by {by}, {unit}",
        SPEED_PALETTE,
        partial(value_scale, unit=unit),
        "The answer of geogp areas, for the quarters for which it was asked.",
        unit,
        scale.question,
    )
    middle, low, high = band_of(column, unit)
    kind_of_value: Any = AboveZero if scale.logarithmic else Real
    return Answer(
        name,
        f"The {what} by {facts.by}, {facts.at}",
        content,
        "areas",
        table,
        (*AREA_COLUMNS, Column("tests", ("tests",), "{:,}", minor=True), *columns),
        before=(before,),
        areas=AreaLayer(view, quantity, facts.at, (low, middle, high), kind_of_value, beside),
    )


def _value_columns(
    what: str, name: str, beside: str | None, unit: str, of: str = ""
) -> list[Column]:
    """Return the columns of a value, its interval and, if there are any, the map's medians."""
    columns = with_interval(f"{what}{of}, {unit}", f"95 % interval{of}", band_of(name, unit), ".1f")
    return columns + ([Column(f"map's median{of}, {unit}", (beside,), "{:.1f}")] if beside else [])


def _median_column(name: str, unit: str, table: pd.DataFrame) -> str | None:
    """Return a column with the map's medians; None in a table that has none."""
    column = f"{name}_{suffix_of(unit)}"
    return column if column in table else None


def _beside_the_level(facts: _Facts, table: pd.DataFrame) -> str:
    """Return a sentence on the map's medians, with the ratios of levels to them, or nothing."""
    column = _median_column("map_median", facts.unit, table)
    if column is None:
        return ""
    scale = scale_of(facts.unit)
    pair = table[[band_of("level_mean", facts.unit)[0], column]].to_numpy(np.float64)
    level, median = scale.modelled(pair[np.isfinite(pair).all(1)].T)
    ends = np.quantile(scale.changes(median - level), [0, 1])
    apart = " to ".join(dict.fromkeys(f"{end:+.0f}" for end in ends))
    sentence = beside_the_level(facts.map_predicts)
    return f"{sentence} It differs from the level by {apart} {scale.change_unit}."


AREAS = AnswerKind("areas_*.json", "areas", read_areas, drawn=True)
