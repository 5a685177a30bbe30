"""Coverage and wrong directions of changes, over simulated regions with known changes.

    python -m benchmarks answers.change --replicates 8

Each replicate simulates a square of tiles with the library, plants changes, fits the estimator of
``field`` with the preset ``quick`` to the measurements, and compares the changes of areas between
two quarters with the truth. The worlds are:

- none: no change at all, of any tile;
- some: a third of the areas steps up or down, and nothing else changes;
- all: the same step everywhere, beside the natural changes of the next world;
- natural: trend, local changes and changes of single tiles, as `geogp simulate` makes them.

Before, many replicates are drawn from the distribution of the model itself, whose parameters are
known, as in `areas.py`; only the posterior is computed.

Writes JSON and a Markdown table of all replicates in the folder ``--out``. A replicate that is
there already is not made again.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse, special
from shapely.geometry import box

import geogp
from benchmarks.answers.areas import estimates, uncalibrated
from benchmarks.answers.areas import make_world as make_own_world
from benchmarks.markdown import mean_and_error, percent, plus_minus, table
from benchmarks.script import Figures, Floats, all_kept, kept, options_of, say, write_results
from geogp.answers.areas import REACH
from geogp.answers.change import (
    WRONG_SHARE,
    describe_changes,
    unchanged_scores,
    wrong_shares,
)
from geogp.answers.tile_areas import TileAreas
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simulate
from geogp.geodata.simulation.truth import Grid, TruthLaw, field, laws_of, places_of, tile_process
from geogp.geodata.tiles.observations import quarter_periods
from geogp.geodata.tiles.quadkeys import tiles_to_codes
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.maps.target_quantities import quantity_of
from geogp.runs.pipeline.arithmetic import arithmetic

WORLDS = ("none", "some", "all", "natural")
QUARTERS = parse_quarters("2022Q1..2023Q4").all
OWN = "the model's own"
BEFORE, AFTER = 1, 6
"""Positions of the two compared quarters."""

STEP = 4
"""Position of the first quarter after a planted step."""

SIZES = (0.05, 0.1, 0.2, 0.4)
"""Sizes of planted steps in log10: factors of 1.12, 1.26, 1.58 and 2.51."""

SIDE, AREAS = 40, 4
"""Number of tiles and of areas on each side of the square."""

ROWS = 4000
TILE_DEGREES = 360 / 2**16
TARGET = "download"

LAWS = {"": "stated", "joint_": "without d²", "process_": "process"}
"""The compared intervals: the beginnings of their keys, and their names."""

BINS = (0.0, 0.025, 0.075, 0.15, 0.3, np.inf)
"""Edges of the sizes of true changes, in log10."""


class World(NamedTuple):
    """Measurements, tiles with their areas, and the true level (tiles, quarters), in log10."""

    rows: pd.DataFrame
    tiles: pd.DataFrame
    areas: TileAreas
    level: Floats


def still(law: TruthLaw) -> TruthLaw:
    """Return a law in which nothing changes with time."""
    sills = {"sill_constant": law.sill_constant + law.sill_changing, "sill_changing": 0.0}
    return replace(law, trend=0.0, urban_trend=0.0, interaction_sd=0.0, **sills)


def make_world(name: str, seed: int) -> World:
    """Simulate a square; the true level has the planted changes."""
    south, west = 18.0, -66.0
    square = box(west, south, west + SIDE * TILE_DEGREES, south + SIDE * TILE_DEGREES * 0.951)
    region = Region.from_geometry("XX", "Square", square)
    grid = Grid.of(region)
    law, random = laws_of(grid, seed)[TARGET], np.random.default_rng([seed, 7])
    if name in {"none", "some"}:
        law = still(law)
    places = places_of(region, grid, law.urban_smoothing_km)
    number = np.minimum(grid.down * AREAS // grid.shape[0], AREAS - 1) * AREAS
    number += np.minimum(grid.across * AREAS // grid.shape[1], AREAS - 1)
    step = planted(name, random)
    truth = []
    for position, effect in enumerate(tile_process(law, grid.shape, QUARTERS, random)):
        level = field(law, places, QUARTERS[position]) + effect[grid.down, grid.across]
        truth.append(level + step[number] * (position >= STEP))
    level = np.stack(truth, 1)
    # The counts of tests come from the library, the values from the true level above.
    made = simulate(region, rows=ROWS, quarters=QUARTERS, seed=seed)
    codes = tiles_to_codes(grid.tiles.column, grid.tiles.row)
    order = np.argsort(codes)
    tile = order[np.searchsorted(codes[order], made.tiles["quadkey"].to_numpy())]
    when = made.tiles["quarter"].to_numpy() - QUARTERS[0]
    sd = made.truth["sd_measurement_true"].to_numpy()
    longitude, latitude = grid.tiles.centres
    rows = pd.DataFrame(
        {
            "longitude": longitude[tile],
            "latitude": latitude[tile],
            "quarter": quarter_periods(made.tiles["quarter"].to_numpy()),
            "tests": made.tiles["tests"].to_numpy(),
            "devices": made.tiles["devices"].to_numpy(),
            "y": level[tile, when] + sd * random.standard_normal(len(tile)),
        }
    )
    labels = [str(k) for k in range(AREAS**2)]
    inside = [np.flatnonzero(number == k) for k in range(AREAS**2)]
    areas = TileAreas.with_tiles("square", labels, labels, [square] * len(labels), inside)
    return World(rows, pd.DataFrame({"longitude": longitude, "latitude": latitude}), areas, level)


def planted(name: str, random: np.random.Generator) -> Floats:
    """Return the planted step of each area, in log10, (areas,)."""
    count = AREAS**2
    step = np.zeros(count)
    if name == "some":
        chosen = random.permutation(count)[: count // 3]
        step[chosen] = random.choice(SIZES, len(chosen)) * random.choice([-1, 1], len(chosen))
    elif name == "all":
        step += random.choice(SIZES) * random.choice([-1, 1])
    return step


def trial(name: str, seed: int) -> Figures:
    """Fit a model to one world; return the truth, the estimates and the directions called."""
    world = make_world(name, seed)
    with arithmetic():
        model = geogp.FieldGP(
            x="longitude", y="latitude", time="quarter", tests="tests", devices="devices",
            preset="quick", random_state=seed,
        ).fit(world.rows.drop(columns="y"), world.rows["y"])  # fmt: skip
        both = [
            world.tiles.assign(quarter=quarter_periods(np.full(len(world.tiles), QUARTERS[at])))
            for at in (BEFORE, AFTER)
        ]
        laws = [
            model.joint(pd.concat(both, ignore_index=True), seed=seed, calibrated=calibrated)
            for calibrated in (False, True)
        ]
    weights = world.areas.means(len(world.tiles))
    process, stated = (
        describe_changes(law, world.areas, quantity_of(TARGET), None) for law in laws
    )
    found = stated["change_log10"]
    apart, nothing = found - process["change_log10"], sparse.csc_array(weights.shape)
    joint, before, after = (
        laws[1].sum_variances(sparse.vstack(parts, format="csc"))
        for parts in ((-weights, weights), (weights, nothing), (nothing, weights))
    )
    return {
        "world": name,
        "seed": seed,
        "true": (weights.T @ (world.level[:, AFTER] - world.level[:, BEFORE])).tolist(),
        "found": found.tolist(),
        "sd": stated["change_sd_log10"].tolist(),
        "found_process": process["change_log10"].tolist(),
        "sd_process": process["change_sd_log10"].tolist(),
        "sd_joint": np.sqrt(joint).tolist(),
        "sd_independent": np.sqrt(before + after + apart**2).tolist(),
        "rose": stated["probability_rose"].tolist(),
        "z": unchanged_scores(
            laws[1], world.areas, (found, np.sqrt(joint)), seed, apart=apart
        ).tolist(),
    }


def known_parameters(replicates: int, seed: int = 0) -> Figures:
    """Return the figures of replicates from the model's own distribution, with known parameters."""
    world = make_own_world(side=20, rows=1500, quarters=8, seed=seed, before=3)
    level = uncalibrated(world)
    estimate, truth = estimates(world, level, replicates, seed)
    half = len(world.tiles) // 2
    apart = np.zeros(world.weights.shape)
    apart[:half] = world.weights[:half]
    parts = apart, world.weights - apart
    sd, alone = (
        np.tile(np.sqrt(variance), (replicates, 1))
        for variance in (
            level.sum_variances(world.weights),
            sum(level.sum_variances(part) for part in parts),
        )
    )
    rose = special.ndtr(estimate / sd)
    K = level.prior_covariance(np.arange(len(level)))
    prior = np.einsum("nk,nm,mk->k", world.weights, K, world.weights)
    columns = {
        "true": truth,
        "found": estimate,
        "sd": sd,
        "sd_independent": alone,
        "rose": rose,
        "z": estimate / sd / np.sqrt(1 - sd**2 / prior),
    }
    return summary(
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    )


def summary(trials: list[Figures]) -> Figures:
    """Return coverage, wrong directions and power over the replicates of one world."""
    true, found, sd, alone, rose, z = (
        np.array([one[name] for one in trials])
        for name in ("true", "found", "sd", "sd_independent", "rose", "z")
    )
    called = np.array([wrong_shares(row) <= WRONG_SHARE for row in z])
    up, none = rose > 0.5, np.abs(true) < 1e-9
    wrong = called & ((up != (true > 0)) | none)
    size = np.abs(true)
    power = {}
    for low, high in pairwise(BINS):
        inside = (size >= low) & (size < high) & ~none
        if inside.any():
            right = (called & ~wrong)[inside]
            power[f"{low:g} to {high:g}"] = [int(inside.sum()), float(right.mean())]
    error = np.abs(found - true)
    parts: Figures = {}
    if "found_process" in trials[0]:
        by_process, process_sd, joint_sd = (
            np.array([one[name] for one in trials])
            for name in ("found_process", "sd_process", "sd_joint")
        )
        by_process -= true
        parts = {
            "process_coverage": float((np.abs(by_process) < REACH * process_sd).mean()),
            "process_sd": float(np.sqrt(np.square(process_sd).mean())),
            "process_rmse": float(np.sqrt(np.square(by_process).mean())),
            "process_bias": float((np.sign(true) * by_process).mean()),
            "joint_coverage": float((error < REACH * joint_sd).mean()),
            "joint_sd": float(np.sqrt(np.square(joint_sd).mean())),
        }
    return parts | {
        "replicates": len(trials),
        "score_sd": float(np.sqrt(np.square(z[none]).mean())) if none.any() else None,
        "areas": int(true.size),
        "coverage": float((error < REACH * sd).mean()),
        "coverage_error": mean_and_error((error < REACH * sd).mean(1))[1],
        "coverage_independent": float((error < REACH * alone).mean()),
        "rmse": float(np.sqrt(np.square(error).mean())),
        "bias": float((np.sign(true) * (found - true)).mean()),
        "sd": float(np.sqrt(np.square(sd).mean())),
        "sd_independent": float(np.sqrt(np.square(alone).mean())),
        "called": float(called.mean()),
        "wrong": float((wrong.sum(1) / called.sum(1).clip(1)).mean()),
        "wrong_of_all_called": float(wrong.sum() / max(called.sum(), 1)),
        "wrong_expected": float((1 - np.maximum(rose, 1 - rose))[called].mean())
        if called.any()
        else 0.0,
        "power": power,
    }


def page(found: dict[str, Figures]) -> str:
    """Return the Markdown page of the summaries."""
    lines = [
        (
            name,
            one["replicates"],
            one["areas"],
            f"{plus_minus(100 * one['coverage'], 100 * one['coverage_error'], 1)} %",
            percent(one["coverage_independent"]),
            f"{one['sd']:.3f}",
            f"{one['rmse']:.3f}",
            f"{one['bias']:+.3f}",
            "" if one["score_sd"] is None else f"{one['score_sd']:.2f}",
            percent(one["called"]),
            percent(one["wrong"]),
            percent(one["wrong_of_all_called"]),
            percent(one["wrong_expected"]),
        )
        for name, one in found.items()
    ]
    header = (
        *("world", "replicates", "areas", "coverage", "coverage, quarters as independent"),
        *(
            "sd",
            "RMSE",
            "bias",
            "score, unchanged areas",
            "called",
            "wrong, mean of replicates",
            "wrong, of all",
            "wrong, expected",
        ),
    )
    parts = [
        (
            name,
            *(percent(one[f"{law}coverage"]) for law in LAWS),
            *(f"{one[f'{law}sd']:.3f}" for law in LAWS),
            *(f"{one[key]:.3f}" for key in ("rmse", "process_rmse")),
            *(f"{one[key]:+.3f}" for key in ("bias", "process_bias")),
        )
        for name, one in found.items()
        if "process_coverage" in one
    ]
    compared = [f"{words}, {law}" for words in ("coverage", "sd") for law in LAWS.values()]
    compared += [f"{words}, {law}" for words in ("RMSE", "bias") for law in ("stated", "process")]
    sizes = [f"{low:g} to {high:g}" for low, high in pairwise(BINS)]
    power = [
        (
            name,
            *(
                f"{percent(one['power'][size][1])} of {one['power'][size][0]}"
                if size in one["power"]
                else ""
                for size in sizes
            ),
        )
        for name, one in found.items()
    ]
    return f"""# Changes of areas in simulated regions with known changes

Made by `benchmarks/answers/change.py`.
Each replicate has {SIDE}² tiles, {AREAS**2} areas and {ROWS:,} rows
in {len(QUARTERS)} quarters, and compares quarter {BEFORE + 1} with quarter {AFTER + 1}. The model
`field` (preset `quick`) is fitted to each replicate. Only the replicates of "{OWN}" are draws from
the distribution of the model itself, with known parameters (400 tiles, 9 areas, 1,500 rows), where
no network changes the map. Changes, intervals and directions are those of `geogp change`: the
changes of the map, with the variance of the joint distribution and the square of d, the difference
from the change by the Gaussian process alone.

- Coverage: share of the 95 % intervals that contain the true change of the area's mean level (mean
  over the replicates ± standard error). The next column shows intervals that treat the two quarters
  as independent.
- sd and RMSE: root mean squares of the stated standard deviation and of the error, in log10. Bias:
  mean error, below 0 if the stated change is smaller than the true change.
- Score, unchanged areas: root mean square of the estimates of areas without any change, in the
  standard deviations from which directions are called; 1 if they are right.
- Called: share of the areas that get a direction. A direction is wrong if the true change has the
  other direction, or is 0.
- Wrong, mean of replicates: the false discovery rate, which should be at most 5 %.
- Wrong, expected: mean posterior probability that a called direction is wrong, if the level of no
  area stays exactly the same.

{table(header, lines)}
The next table compares this with intervals without d², and with the Gaussian process alone.

{table(("world", *compared), parts)}
The last table has the share of areas that get the right direction, by the size of the true change
in log10 (0.1 is a factor of 1.26).

{table(("world", *sizes), power)}"""


def main() -> None:
    """Make the replicates of all worlds, and write JSON and table."""
    options = options_of(__doc__, out="change", table="change", replicates=8, first=0, own=4000)
    for seed in range(options.first, options.first + options.replicates):
        for name in WORLDS:
            kept(options.out / f"{name}-{seed}.json", partial(trial, name, seed))
            say(name, seed)
    # Several processes may share a folder.
    trials = {name: all_kept(options.out, f"{name}-*.json") for name in WORLDS}
    own = {OWN: known_parameters(options.own)}
    found = own | {name: summary(made) for name, made in trials.items()}
    write_results(options.table, page(found), found)
    print(page(found))
