"""Levels of the providers of a run, and their differences, from one joint distribution.

The difference of two providers in an area is a sum over the tiles of both, with the weights w for
the first and -w for the second. So its variance includes the covariances between the providers. As
for changes between quarters, the distribution is that of the Gaussian process alone.
"""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse, special

from geogp.answers.answer import Answer, AnswerKind, Clock, Column, with_interval, with_rows
from geogp.answers.area_files import forget, write_json
from geogp.answers.areas import REACH
from geogp.answers.change import FAR_SHARE
from geogp.answers.requests import AreasRequest
from geogp.answers.tile_areas import TileAreas, tile_areas
from geogp.distributions.quantity import Quantity
from geogp.errors import RequestError
from geogp.maps.csv_tables import write_csv
from geogp.maps.target_quantities import quantity_of
from geogp.models.joint.level import JointLevel
from geogp.runs.reopen import Reopened
from geogp.value_scales import scale_of, suffix_of

NOTES = (
    (
        "Levels contain no measurement noise. They come from the joint distribution of all tiles "
        "of all providers, from the Gaussian process alone, so they can differ from the map. The "
        "intervals do not include the uncertainty of the learned basis."
    ),
    (
        "Of many areas, some have a high probability by chance. An area has no probability if most "
        "of its tiles are far from any measurement of one of the two providers."
    ),
)


@dataclass(frozen=True)
class ProviderLevels:
    """A table with a row for each area and each pair of providers, and the facts for JSON."""

    table: pd.DataFrame
    areas: TileAreas
    described: dict[str, Any]


def provider_levels(opened: Reopened, request: AreasRequest) -> ProviderLevels:
    """Return the levels of all providers in each area, and the difference of each pair.

    The columns are those of `compared`, with ``area`` and ``key``, ``tests`` and ``other_tests`` of
    the two providers, and ``far_share``, the share of the tiles that are far from any measurement
    of one of the two. If this share is above `FAR_SHARE`, ``probability_faster`` (or
    ``probability_stronger``) is empty. Raises
    RequestError if the run is not by provider, and the errors of `tile_areas` and
    `SpatialGP.joint`.
    """
    providers = opened.inputs.providers
    if not providers:
        raise RequestError(
            f"{opened.path} has no providers. Map the file of your tests with geogp map "
            "--by-provider, or leave --by-provider out."
        )
    areas = tile_areas(opened, request.by, request.crs)
    quantity = quantity_of(opened.settings.target)
    pairs = len(areas) * (len(providers) * (len(providers) + 1) // 2)
    level = opened.level(providers=providers, seed=request.seed, columns=pairs, calibrated=False)
    own = {name: opened.of_provider(name) for name in providers}
    tables = {name: areas.table(mapped) for name, mapped in own.items()}
    parts = []
    for (a, b), columns in compared(level, areas, quantity, providers).items():
        far = np.array(areas.totals(own[a].far | own[b].far)) / tables[a]["tiles"]
        better = f"probability_{quantity.scale.better}"
        columns[better] = np.where(far <= FAR_SHARE, columns[better], np.nan)
        area = tables[a][["area", "key", "tiles", "tests"]]
        parts.append(area.assign(other_tests=tables[b]["tests"], far_share=far, **columns))
    described = {
        "by": request.by,
        "at": opened.question.at,
        "zoom": opened.tiles.zoom,
        "providers": list(providers),
        "unit": quantity.unit,
        "mean": quantity.scale.average_facts,
        "warnings": list(opened.listener.warnings),
    }
    return ProviderLevels(pd.concat(parts, ignore_index=True), areas, described)


def compared(
    level: JointLevel, areas: TileAreas, quantity: Quantity, providers: tuple[str, ...]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return columns about each pair of providers, (k,); `level` has all tiles of each provider.

    ``level`` and ``other_level`` are geometric means over the tiles (of decibels: means), with 95 %
    intervals. ``difference`` is the level of ``provider`` compared with ``other``, with its 95 %
    interval, in per cent and in log10, or in dB. ``probability_faster`` is the probability that
    ``provider`` has the higher speed, or the lower latency; for signals it is
    ``probability_stronger``.
    """
    mean = areas.means(len(level) // len(providers))
    unit, scale = np.eye(len(providers)), quantity.scale

    def law(blocks: Any) -> tuple[Any, Any]:
        weights = sparse.csc_array(sparse.kron(blocks[:, None], mean))
        return level.sum_means(weights), np.sqrt(level.sum_variances(weights))

    alone = dict(zip(providers, map(law, unit), strict=True))
    by_pair = {}
    for a, b in combinations(range(len(providers)), 2):
        names = providers[a], providers[b]
        columns: dict[str, Any] = {"provider": names[0], "other": names[1]}
        for start, name in zip(("", "other_"), names, strict=True):
            for end, sign in (("", 0), ("_lower", -1), ("_upper", 1)):
                middle, sd = alone[name]
                value = scale.values(middle + sign * REACH * sd)
                columns[f"{start}level{end}_{quantity.suffix}"] = value
        change, sd = law(unit[a] - unit[b])
        ends = {"": change, "_lower": change - REACH * sd, "_upper": change + REACH * sd}
        for end, value in ends.items():
            columns[f"difference{end}_{scale.change_tag}"] = scale.changes(value)
        columns |= {f"difference_{scale.tag}": change, f"difference_sd_{scale.tag}": sd}
        better = change if quantity.bound == "lower" else -change
        by_pair[names] = columns | {f"probability_{scale.better}": special.ndtr(better / sd)}
    return by_pair


def answer_providers(opened: Reopened, request: AreasRequest, clock: Clock) -> tuple[Answer, ...]:
    """Return the comparison of providers as an answer, and write it into the run folder.

    Raises the errors of `provider_levels`, and OutputError if a file cannot be written.
    """
    levels = provider_levels(opened, request)
    facts = {"run": str(request.run), "for": "level", **levels.described, "notes": list(NOTES)}
    content = with_rows(facts | clock(), "areas", levels.table)
    name = f"providers_{levels.areas.tag}_{opened.settings.target}_{facts['at']}"
    files = opened.path / f"{name}.csv", opened.path / f"{name}.json"
    forget(files[1])
    write_csv(files[0], levels.table)
    write_json(files[1], content)
    return (replace(read_providers(name, content, levels.table), files=files),)


def read_providers(name: str, content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer with a name and a content."""
    unit = content["unit"]
    end, scale = suffix_of(unit), scale_of(unit)
    difference = [f"difference{side}_{scale.change_tag}" for side in ("", "_lower", "_upper")]
    return Answer(
        name,
        f"The providers by {content['by']}, {content['at']}",
        content,
        "areas",
        table,
        (
            Column("area", ("area",), "{}"),
            Column("provider", ("provider",), "{}"),
            Column(f"level, {unit}", (f"level_{end}",), "{:.1f}", minor=True),
            Column("other", ("other",), "{}"),
            Column(f"its level, {unit}", (f"other_level_{end}",), "{:.1f}", minor=True),
            *with_interval("difference", "95 % interval", difference, "+.1f", scale.change_unit),
            Column(
                f"probability of {scale.better}",
                (f"probability_{scale.better}",),
                "{:.3f}",
                minor=True,
            ),
            Column("far from data", ("far_share",), "{:.0%}", minor=True),
        ),
        before=(f"Each level is a {scale.averaged}.",),
        after=tuple(content["notes"]),
    )


PROVIDERS = AnswerKind("providers_*.json", "areas", read_providers)
