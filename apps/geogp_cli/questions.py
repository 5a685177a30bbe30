"""The commands on a finished run: `areas`, `at`, `change`, `exceedance`, `next` and `figures`."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geogp.commands import run_requests
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.runs.progress import ProgressListener
from geogp.runs.question import sample_words
from geogp_cli import console
from geogp_cli.setting_options import Answer, takes

if TYPE_CHECKING:
    from geogp.commands.answers.run_answer import RunAnswer

_SHOWN = 10
"""Number of chosen tiles that `geogp next` prints."""

_SHOWN_PLACES = 40
"""Number of rows that `geogp at` prints."""


@takes(run_requests.AreasRequest)
def areas(request: run_requests.AreasRequest, listener: ProgressListener) -> Answer:
    """Compute the level, or the mean of tests, of counties, strata or other areas."""
    from geogp.commands.answers.areas import make_areas

    result = make_areas(request, listener)
    if request.by_provider:
        return _providers(result)
    described, level = result.described, request.question == "level"
    kinds, unit = ("level_mean", "level_median") if level else ("tile_mean",), described["unit"]
    weighted: tuple[str, ...] = ()
    if described["weights"] is not None:
        kinds += (kinds[0].replace("mean", "weighted"),)
        weighted = (f"mean by {Path(described['weights']).name}", "95 % interval")
    tests, devices = described["tests_per_tile"], described["devices_per_tile"]
    many = sample_words(tests, devices) if tests else "the usual number of tests"
    first = (
        "These values are the level: the speed to expect, without measurement noise. "
        "`--for tile-mean` gives means of tests, with noise."
        if level
        else f"These values are means of {many} in each tile, with noise. `--for level` gives the "
        "level, without noise."
    )
    headings = ("area", "tiles", "measured", "far", "tests", "mean", "95 % interval")
    median = ("median", "95 % interval") if level else ()
    table = console.table(
        f"{described['at']}, {unit}. mean: geometric mean over the tiles",
        (*headings, *median, *weighted),
        (
            (
                *_area(row),
                f"{row['tests']:,}",
                *(cell for kind in kinds for cell in _interval(row, kind, unit.lower())),
            )
            for row in result.table.to_dict(orient="records")
        ),
    )
    return Answer(result.described_with("areas"), (first, table, *result.files))


def _providers(result: "RunAnswer") -> Answer:
    """Return the comparison of the providers in each area."""
    described, unit = result.described, result.described["unit"].lower()
    table = console.table(
        f"{described['at']}, {described['unit']}. level: geometric mean over the tiles",
        "area, provider, level, other, its level, difference, 95 % interval, P(faster)",
        (
            (
                row["area"],
                *(row["provider"], f"{row[f'level_{unit}']:.1f}"),
                *(row["other"], f"{row[f'other_level_{unit}']:.1f}"),
                *_percents(row, "difference"),
                "-" if math.isnan(p := row["probability_faster"]) else f"{p:.3f}",
            )
            for row in result.table.to_dict(orient="records")
        ),
        left=("provider", "other"),
    )
    return Answer(result.described_with("areas"), (table, *described["notes"], *result.files))


@takes(run_requests.ChangeRequest)
def change(request: run_requests.ChangeRequest, listener: ProgressListener) -> Answer:
    """Compute the change of the level of areas and tiles between two quarters."""
    from geogp.commands.answers.change import make_change

    result = make_change(request, listener)
    described, least = result.described, request.at_least
    headings = "area, tiles, far, from, to, change, 95 % interval, P(rose)"
    table = console.table(
        f"{described['from']} to {described['to']}, {described['unit']}. from, to: geometric means "
        "over the tiles",
        f"{headings}{'' if least is None else f', P(rose by {least:g} %)'}, direction",
        (
            (*_change(row, described["unit"].lower()), row["direction"])
            for row in result.table.to_dict(orient="records")
        ),
        left=("direction",),
    )
    first = (
        "These values are changes of the level: the speed to expect, without measurement noise. "
        "Means of tests also change by chance."
    )
    last = _directions(described["rose"], described["fell"], len(result.table))
    if described["rose"] + described["fell"]:
        limit = f"{described['wrong_share_limit']:.0%}"
        last += f" Under the model, at most {limit} of directions are expected to be wrong."
    return Answer(result.described_with("areas"), (first, table, last, *result.files))


def _directions(rose: int, fell: int, areas: int) -> str:
    """Return in words how many areas have a direction."""
    open_ones = areas - rose - fell
    text = f"Of {areas:,} {'areas' if areas > 1 else 'area'}, {rose:,} rose and {fell:,} fell."
    if not open_ones:
        return text
    return f"{text} The others are far from data, or their direction is not certain enough."


def _change(row: dict[str, Any], unit: str) -> tuple[str, ...]:
    """Return the cells of an area's change."""
    least = row.get("probability_rose_at_least")
    name, tiles, _, far = _area(row)
    return (
        *(name, tiles, far),
        *(f"{row[f'level_{when}_{unit}']:.1f}" for when in ("from", "to")),
        *_percents(row, "change"),
        f"{row['probability_rose']:.3f}",
        *(() if least is None else (f"{least:.3f}",)),
    )


def _percents(row: dict[str, Any], name: str) -> tuple[str, str]:
    """Return a value in per cent and its interval."""
    percents = (row[f"{name}{side}_percent"] for side in ("", "_lower", "_upper"))
    value, low, high = (f"{one:+.{1 if abs(one) < 10 else 0}f}" for one in percents)
    return f"{value} %", f"{low} to {high} %"


def _area(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the name of an area, its tiles, its measured tiles, and its share of far tiles."""
    tiles, measured = (f"{row[name]:,}" for name in ("tiles", "measured_tiles"))
    return row["area"], tiles, measured, f"{row['far_share']:.0%}"


def _interval(row: dict[str, float], name: str, end: str) -> tuple[str, str]:
    low, high = (row[f"{name}_{side}_{end}"] for side in ("lower", "upper"))
    if math.isnan(low):  # an area without weight
        return "-", "-"
    return f"{row[f'{name}_{end}']:.1f}", f"{low:.1f} to {high:.1f}"


@takes(run_requests.AtRequest)
def at(request: run_requests.AtRequest, listener: ProgressListener) -> Answer:
    """Predict at an address, or at the places of a file, from a finished run."""
    from geogp.runs.run_names import find_run

    request = replace(request, run=find_run(str(request.run)))
    from geogp.commands.points.predict_at import answer_at

    answer = answer_at(request, listener)
    told, described = answer.described_with("answers"), answer.described
    rows, end = told["answers"], described["unit"].lower()
    thresholds = described["thresholds"]
    one = described["places"] == 1  # one place has room for more columns
    levels = (50, 80, 95) if one else (95,)
    headings = [
        *(() if one else ("place",)),
        *("quarter", f"median {described['unit']}"),
        *(f"{level} % interval" for level in levels),
        *thresholds.values(),
        *(() if one else (f"tests in {described['near_km']:g} km", "nearest")),
    ]
    times = len(described["quarters"])
    table = console.table(
        f"{described['region']}, {described['target']}: {described['speaks_of']}",
        headings,
        (
            (
                *(() if one else (str(place // times + 1),)),
                row["quarter"],
                *_predicted(row, end, thresholds, levels),
                *(() if one else _near(row)),
            )
            for place, row in enumerate(rows[:_SHOWN_PLACES])
        ),
    )
    texts = []
    if one:
        tests, measured = _near(rows[0])
        stratum = "" if rows[0]["stratum"] == "unknown" else f"{rows[0]['stratum']}; "
        texts.append(
            f"{stratum}{tests} tests of all quarters within "
            f"{described['near_km']:g} km; the nearest measured tile is {measured} away."
        )
    if described["zoom"] < ZOOM:
        texts.append(
            f"The map has tiles of zoom {described['zoom']}, so distances to tests are distances "
            "to the centres of these tiles."
        )
    if described["outside"]:
        texts.append(
            f"{described['outside']:,} of {described['places']:,} places lie outside the region "
            "and have no prediction."
        )
    if len(rows) > _SHOWN_PLACES:
        texts.append(f"first {_SHOWN_PLACES} of {len(rows):,} rows; --out FILE.csv has all rows.")
    return Answer(told, (table, *texts, *answer.files))


def _predicted(
    row: dict[str, Any], end: str, thresholds: dict[str, str], levels: tuple[int, ...]
) -> tuple[str, ...]:
    if not row["in_region"]:
        word = "no position" if math.isnan(row["latitude"]) else "outside"
        return (word, *["-"] * (len(levels) + len(thresholds)))
    bounds = ([row[f"{side}_{level}_{end}"] for side in ("lower", "upper")] for level in levels)
    return (
        f"{row[f'median_{end}']:.3g}",
        *(f"{low:.3g} to {high:.3g}" for low, high in bounds),
        *(f"{row[name]:.1%}" for name in thresholds),
    )


def _near(row: dict[str, Any]) -> tuple[str, str]:
    if not row["in_region"]:
        return "-", "-"
    return f"{row['tests_near']:,}", f"{row['nearest_measured_km']:.1f} km"


@takes(run_requests.ExceedanceRequest)
def exceedance(request: run_requests.ExceedanceRequest, listener: ProgressListener) -> Answer:
    """Compute the share of the area below each threshold, and regions that meet the threshold."""
    from geogp.commands.answers.exceedance import make_exceedance

    result = make_exceedance(request, listener)
    told = [one for described in result.described for one in _shares(described)]
    files = [str(path) for path in result.files]
    first = (
        "These shares are about the level: the speed to expect, without measurement noise. For the "
        "probability that one measurement meets a threshold, see geogp map --threshold."
    )
    return Answer({"files": files, "thresholds": list(result.described)}, (first, *told, *files))


def _shares(described: dict[str, Any]) -> list[Any]:
    """Return the table of shares of one threshold, and a sentence for each joint region."""
    name = described["weights"]
    ends = ("",) if name is None else ("", "weighted_")
    weighted = () if name is None else (f"share of {Path(name).name}", "95 % interval")
    table = console.table(
        f"{described['at']}, share of the area where the level is {described['falls_short']}",
        ("area", "tiles", "km²", "share", "95 % interval", *weighted),
        (
            (
                row["area"],
                f"{row['tiles']:,}",
                f"{row['area_km2']:,.0f}",
                *(cell for end in ends for cell in _share(row, end)),
            )
            for row in described["share_falling_short"]
        ),
    )
    return [table, *(_words(one, described) for one in described["joint_regions"].values())]


def _share(row: dict[str, Any], end: str) -> tuple[str, str]:
    mean, low, high = (row[f"{end}{name}"] for name in ("mean", "lower", "upper"))
    if mean is None:
        return "-", "-"
    return f"{100 * mean:.1f} %", f"{100 * low:.1f} to {100 * high:.1f} %"


def _words(region: dict[str, Any], described: dict[str, Any]) -> str:
    """Return a sentence about the size and the probability of a joint region."""
    low, high = region["tiles_interval"]
    if not region["tiles"]:
        return (
            f"{region['is']}: the joint region has no tile (other random draws give up to "
            f"{high:,})."
        )
    return (
        f"{region['is']}: the joint region has {region['tiles']:,} of {described['tiles']:,} tiles "
        f"(other random draws give {low:,} to {high:,}). In {100 * region['probability']:.1f} % of "
        f"{described['draws']} draws, the level is {region['is']} in all of these tiles."
    )


@takes(run_requests.NextRequest)
def next_command(request: run_requests.NextRequest, listener: ProgressListener) -> Answer:
    """Choose the tiles whose measurement would reduce the variance of the level most."""
    from geogp.runs.run_names import find_run

    request = replace(request, run=find_run(str(request.run)))
    from geogp.commands.answers.next_tiles import choose_tiles

    result = choose_tiles(request, listener)
    described, chosen = result.described, result.table
    tests, devices = described["tests"], described["devices"]
    many = (
        f"{sample_words(tests, devices)} in each tile"
        if tests
        else "as many tests in each tile as in the data"
    )
    places = [name for name in ("county", "stratum") if name in chosen]
    shown = min(_SHOWN, len(chosen))
    table = console.table(
        f"{described['at']}, {many}; first {shown} of {len(chosen)} tiles",
        ", ".join(
            ["rank, longitude, latitude", *places, "tests so far, sd, after, variance removed"]
        ),
        (
            (
                str(row["rank"]),
                f"{row['longitude']:.4f}",
                f"{row['latitude']:.4f}",
                *(row[name] for name in places),
                f"{row['tests']:,}",
                f"{row['sd_before_log10']:.3f}",
                f"{row['sd_after_log10']:.3f}",
                f"{row['removed']:.2%}",
            )
            for row in chosen.head(_SHOWN).to_dict(orient="records")
        ),
        left=places,
    )
    text = (
        f"Measuring all {len(chosen)} tiles removes {described['removed']:.2%} of the variance of "
        f"the level, summed over {described['counted']} ({described['counted_tiles']:,}). Always "
        "choosing the tile with the widest interval left would remove "
        f"{described['removed_by_widest']:.2%} instead."
    )
    return Answer(result.described_with("chosen"), (table, text, *result.files))


@takes(run_requests.FiguresRequest)
def figures(request: run_requests.FiguresRequest, listener: ProgressListener) -> Answer:
    """Draw figures for papers: kernel, basis, interval widths, spread and reliability."""
    from geogp.runs.run_names import find_run

    request = replace(request, run=find_run(str(request.run)))
    from geogp.commands.paper_figures import make_figures

    made = make_figures(request, listener)
    files = [str(path) for path in made.files]
    left_out = (f"{name} is left out: {reason}." for name, reason in made.left_out.items())
    described = {"files": files, "captions": made.captions, "left_out": made.left_out}
    return Answer(described, (*files, *left_out))
