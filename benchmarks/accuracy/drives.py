"""Do intervals hold the tests of new drives? Logs of drives with a test in each second, simulated.

    python -m benchmarks accuracy.drives --worlds 20 --peers

In a square of 20 km, 40 drives of 600 tests each give the training rows, and 20 other drives the
test rows. The level is a Gaussian process with a Matérn correlation (smoothness 3/2, range 2 km).
Each drive has an error of its own: a constant, and an error that decays in the course of the drive.
`grouped` knows the drives, and all tests. `ungrouped` does not know the drives; of the tests, it
gets one in 16, so that its process is exact, too. With --peers, GPBoost gets the same rows and a
random effect of the drive. Each fit has its own file under --out. Writes a Markdown and a JSON
file.
"""

import argparse
from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import geogp
from benchmarks.markdown import percent, plus_minus, table
from benchmarks.script import (
    Figures,
    clock,
    costs,
    kept,
    machine,
    options_of,
    say,
    write_results,
)
from geogp.distributions.prediction import Prediction

Floats = NDArray[np.float64]
Laws = tuple[Prediction, Prediction | None]

SIDE, RANGE, LEVEL = 20.0, 2.0, 0.5
"""Side of the square and range of the level in km, and sd of the level."""

STEP, TURN = 0.012, 0.05
"""Distance in km, and sd of the change of the direction in radians, between two tests."""

OFFSET, WANDER, DECAY, NOISE = 0.3, 0.25, 120.0, 0.35
"""Sds of a drive's constant and decaying errors, seconds of the decay, and sd of single tests."""

WAVES = 2_000
"""Number of waves whose sum is the level."""

SECONDS, EVERY, ASKED = 600, 16, 8
"""Tests of a drive; one in so many is known to `ungrouped`, and one in so many is predicted."""

COLUMNS = {"x": "x", "y": "y", "crs": None}

COVERAGES = ("coverage_50", "coverage_80", "coverage_95")

HEADER = (
    *("model", "worlds", "tests in 50 %", "80 %", "95 %", "least", "CRPS"),
    *("level in 95 %", "its RMSE", "stated sd", "CPU seconds of a fit"),
)


def level_of(rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """Return a draw of the level, as a function of places (n, 2).

    It is a sum of waves (Rahimi and Recht 2008). The spectral density of a Matérn process of
    smoothness 3/2 in the plane is that of a Student t distribution with 3 degrees of freedom.
    """
    waves = rng.standard_normal((WAVES, 2)) / np.sqrt(rng.chisquare(3, (WAVES, 1)) / 3) / RANGE
    phase = rng.uniform(0, 2 * np.pi, WAVES)
    return lambda place: LEVEL * np.sqrt(2 / WAVES) * np.cos(place @ waves.T + phase).sum(1)


def drive(rng: np.random.Generator, level: Callable[[Floats], Floats]) -> pd.DataFrame:
    """Return the tests of a drive; it is reflected at the border of the square."""
    direction = rng.uniform(0, 2 * np.pi) + np.cumsum(TURN * rng.standard_normal(SECONDS))
    steps = STEP * np.column_stack([np.cos(direction), np.sin(direction)])
    place = SIDE - abs((rng.uniform(0, SIDE, 2) + steps.cumsum(0)) % (2 * SIDE) - SIDE)
    keeps = np.exp(-1 / DECAY)
    change = np.sqrt(1 - keeps**2) * rng.standard_normal(SECONDS)
    wander = rng.standard_normal()
    error = [wander := keeps * wander + new for new in change]
    truth = level(place)
    own = OFFSET * rng.standard_normal() + WANDER * np.array(error)
    value = truth + own + NOISE * rng.standard_normal(SECONDS)
    return pd.DataFrame({"x": place[:, 0], "y": place[:, 1], "truth": truth, "value": value})


def log_of(rng: np.random.Generator, level: Callable[[Floats], Floats], count: int) -> pd.DataFrame:
    """Return the tests of several drives."""
    return pd.concat([drive(rng, level).assign(drive=k) for k in range(count)], ignore_index=True)


def grouped(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> Laws:
    """Fit `FieldGP` with the drives; return the laws of tests and of the level."""
    model = geogp.FieldGP(**COLUMNS, group="drive", random_state=seed).fit(train, train["value"])
    return model.predict_distribution(test), model.predict_distribution(test, level=True)


def ungrouped(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> Laws:
    """Fit `FieldGP` without the drives to a part of the tests."""
    some = train[::EVERY]
    model = geogp.FieldGP(**COLUMNS, random_state=seed).fit(some, some["value"])
    return model.predict_distribution(test), model.predict_distribution(test, level=True)


def gpboost(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> Laws:
    """Fit GPBoost with a random effect of the drive to a part of the tests; test drives are new.

    Its level is not scored, because its predictions contain the effect of the drive.
    """
    from gpboost import GPModel  # noqa: PLC0415

    some, names = train[::EVERY], ["x", "y"]
    model = GPModel(
        gp_coords=some[names].to_numpy(),
        group_data=some["drive"].to_numpy(),
        cov_function="matern",
        cov_fct_shape=1.5,
        likelihood="gaussian",
        num_parallel_threads=torch.get_num_threads(),
        seed=seed,
    )
    model.fit(some["value"].to_numpy(), X=np.ones((len(some), 1)))
    found = model.predict(
        gp_coords_pred=test[names].to_numpy(),
        group_data_pred=-1 - test["drive"].to_numpy(),
        X_pred=np.ones((len(test), 1)),
        predict_var=True,
        predict_response=True,
    )
    return Prediction.of_moments(found["mu"], found["var"]), None


MODELS = {"grouped": grouped, "ungrouped": ungrouped, "gpboost": gpboost}


def inside(law: Prediction, y: Floats, share: float) -> float:
    """Return the share of values inside of an interval."""
    low, high = law.interval(share)
    return float(np.mean((low <= y) & (y <= high)))


def measure(model: str, options: argparse.Namespace) -> Figures:
    """Draw a world, fit a model, and return its scores on new drives."""
    rng = np.random.default_rng(options.seed)
    level = level_of(rng)
    train, new = log_of(rng, level, options.drives), log_of(rng, level, options.drives // 2)
    test = new[::ASKED]
    started = clock("cpu")
    tests, field = MODELS[model](train, test, options.seed)
    seconds = costs("cpu", started)
    y = test["value"].to_numpy()
    return {
        "model": model,
        "seed": options.seed,
        "drives": options.drives,
        **seconds,
        **{f"coverage_{level}": inside(tests, y, level / 100) for level in (50, 80, 95)},
        "crps": float(tests.crps(y).mean()),
        **({} if field is None else level_scores(field, test["truth"].to_numpy())),
        "machine": machine(),
    }


def level_scores(field: Prediction, truth: Floats) -> Figures:
    """Return the scores of the level."""
    return {
        "level_coverage": inside(field, truth, 0.95),
        "squared_error": float(np.square(field.mean - truth).mean()),
        "variance": float(np.square(field.sd).mean()),
    }


def page(found: list[Figures]) -> str:
    """Return the Markdown of all fits."""
    lines = []
    rows = pd.DataFrame(found)
    for model in [name for name in MODELS if name in set(rows["model"])]:
        own = rows[rows["model"] == model]
        mean, error = own.mean(numeric_only=True), own.sem(numeric_only=True)

        def share(name: str, mean: pd.Series = mean, error: pd.Series = error) -> str:
            return f"{plus_minus(100 * mean[name], 100 * error[name], 1)} %"

        level = ("",) * 3
        if pd.notna(mean["level_coverage"]):
            roots = np.sqrt(mean[["squared_error", "variance"]])
            level = share("level_coverage"), *(f"{root:.3f}" for root in roots)
        lines.append(
            (
                *(
                    f"`{model}`",
                    len(own),
                    *map(share, COVERAGES),
                    percent(own["coverage_95"].min()),
                ),
                *(f"{mean['crps']:.3f}", *level, f"{mean['cpu_seconds']:.0f}"),
            )
        )
    first = found[0]["drives"]
    return f"""# New drives

    python -m benchmarks accuracy.drives --worlds {rows["seed"].nunique()} --peers

Simulated logs: {first} drives of {SECONDS} tests in a square of {SIDE:g} km are known, and tests of
{first // 2} other drives are predicted. Each drive has an error of its own: a constant with sd
{OFFSET:g}, and an error with sd {WANDER:g} that decays within {DECAY:g} s. The sd of the level is
{LEVEL:g}, that of single tests {NOISE:g}. `grouped` is `FieldGP` with `group="drive"` on all tests;
`ungrouped` is `FieldGP` without it on one test in {EVERY}, and `gpboost` an exact Matérn process
with a random effect of the drive on the same tests. The standard errors are those between worlds;
`least` is the lowest coverage in a world.

{table(HEADER, lines, left=(0,))}"""


def main() -> None:
    """Make the missing fits, and write the table."""
    options = options_of(__doc__, out="drives", table="drives", worlds=20, drives=40, peers=False)
    models = list(MODELS) if options.peers else list(MODELS)[:2]
    found = []
    for seed, model in product(range(options.worlds), models):
        options.seed = seed
        path = options.out / f"{model}-{options.drives}-{seed}.json"
        found.append(kept(path, lambda model=model: measure(model, options)))
        say(path.name)
    write_results(options.table, page(found), found)


if __name__ == "__main__":
    main()
