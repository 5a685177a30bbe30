"""Are probabilities of amounts right? Rain with dry days, and shares of packets lost, simulated.

    python -m benchmarks accuracy.amounts --worlds 20 --peers

In a square of side 2, a Gaussian process z with a Matérn correlation (smoothness 3/2, range .15 to
.4) and a nugget of .1 to .4 has 400 training rows and 400 test rows. `rain` is the square or the
exponential of what z has above a limit, and 0 below it, which 25 to 55 % of the rows are. `loss` is
a share from 0 to 1, with 0 in 40 to 70 % of the rows and 1 in up to 5 %. `law` is `FieldGP` with
law="positive" or "proportion", and `plain` is `FieldGP` without a law. With --peers, GPBoost fits
its power of a normal process with a limit at zero, to rain only. Each fit has its own file under
--out. Writes a Markdown and a JSON file.
"""

from itertools import product

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import expit, ndtri

import geogp
from benchmarks.markdown import plus_minus, table
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
from geogp.distributions.amounts import AmountPrediction, NormalScores
from geogp.distributions.prediction import Prediction

Floats = NDArray[np.float64]

CASES = {"rain": "positive", "loss": "proportion"}

ROWS = 400
"""Number of training rows, and of test rows."""

POWERS = np.geomspace(1e-8, 1e3, 2_000)
"""Values of the normal process between which GPBoost's power is interpolated."""

BINS = np.linspace(0, 1, 6)
"""Limits of the bins of stated probabilities of 0."""


def world(case: str, seed: int) -> tuple[Floats, Floats]:
    """Return places (2n, 2) and amounts (2n,)."""
    rng = np.random.default_rng([seed, list(CASES).index(case)])
    places = rng.uniform(-1, 1, (2 * ROWS, 2))
    lag = np.sqrt(3) * cdist(places, places) / rng.uniform(0.15, 0.4)
    nugget = rng.uniform(0.1, 0.4)
    covariance = (1 - nugget) * (1 + lag) * np.exp(-lag) + nugget * np.eye(len(lag))
    z = np.linalg.cholesky(covariance) @ rng.standard_normal(len(lag))
    if case == "rain":
        limit = ndtri(rng.uniform(0.25, 0.55))
        above = np.maximum(z - limit, 0)
        wet = above**2 if rng.uniform() < 0.5 else np.exp(1.2 * above) - 0.5
        return places, np.where(z > limit, wet, 0.0)
    limit, full = ndtri(rng.uniform(0.4, 0.7)), ndtri(1 - rng.uniform(0, 0.05))
    share = expit(-3 + 2 * (z - limit))
    return places, np.where(z > full, 1.0, np.where(z > limit, share, 0.0))


def law(case: str, places: Floats, y: Floats, new: Floats) -> Prediction:
    """Fit `FieldGP` with the law of the case."""
    model = geogp.FieldGP(crs=None, law=CASES[case]).fit(places, y)
    return model.predict_distribution(new)


def plain(case: str, places: Floats, y: Floats, new: Floats) -> Prediction:  # noqa: ARG001
    """Fit `FieldGP` without a law."""
    return geogp.FieldGP(crs=None).fit(places, y).predict_distribution(new)


def gpboost(case: str, places: Floats, y: Floats, new: Floats) -> Prediction | None:
    """Fit GPBoost's power of a censored normal process; None for shares, which it has no law for.

    The latent variance does not contain the noise of the power's base, whose sd is `sigma`.
    """
    from gpboost import GPModel  # noqa: PLC0415

    if case != "rain":
        return None
    ones = np.ones((ROWS, 1))
    model = GPModel(
        gp_coords=places,
        cov_function="matern",
        cov_fct_shape=1.5,
        likelihood="zero_censored_power_transformed_normal",
        num_parallel_threads=torch.get_num_threads(),
    )
    model.fit(y, X=ones)
    sigma, power = np.ravel(model.get_aux_pars(format_pandas=False))[:2]
    found = model.predict(gp_coords_pred=new, X_pred=ones, predict_var=True, predict_response=False)
    normal = Prediction(found["mu"], found["var"], np.full(ROWS, sigma**2))
    scores = NormalScores("positive", POWERS, power * np.log(POWERS), lower=0.0)
    return AmountPrediction.of(normal, scores)


MODELS = {"law": law, "plain": plain, "gpboost": gpboost}

HEADER = (
    *("amounts", "model", "worlds", "CRPS", "Brier of 0", "stated - seen P(0), by bin"),
    *("stated - seen P(y > typical)", "in 95 %", "stated", "ends outside the range"),
    "CPU seconds of a fit",
)


def measure(case: str, model: str, seed: int) -> Figures:
    """Draw a world, fit a model, and return its scores on new places."""
    places, y = world(case, seed)
    started = clock("cpu")
    predicted = MODELS[model](case, places[:ROWS], y[:ROWS], places[ROWS:])
    seconds = costs("cpu", started)
    if predicted is None:
        return {}
    new = y[ROWS:]
    zero, typical = predicted.cdf(0.0), float(np.median(y[y > 0]))
    low, high = predicted.interval(0.95)
    most = np.inf if case == "rain" else 1.0
    bins = np.digitize(zero, BINS[1:-1])
    gaps = pd.DataFrame({"stated": zero, "seen": new == 0}).groupby(bins)
    apart = (gaps["stated"].sum() - gaps["seen"].sum()).abs().sum() / ROWS
    return {
        "case": case,
        "model": model,
        "seed": seed,
        **seconds,
        "crps": float(predicted.crps(new).mean()) / float(y.std()),
        "brier": float(np.square(zero - (new == 0)).mean()),
        "zero_gap": float(apart),
        "typical_gap": float(predicted.exceedance(typical).mean() - (new > typical).mean()),
        "coverage_95": float(((low <= new) & (new <= high)).mean()),
        "mass_95": float(predicted.interval_mass(0.95).mean()),
        "outside": float(((low < 0) | (high > most)).mean()),
        "machine": machine(),
    }


def page(found: list[Figures]) -> str:
    """Return the Markdown of all fits."""
    rows, lines = pd.DataFrame(found), []
    for (case, model), own in rows.groupby(["case", "model"], sort=False):
        mean, error = own.mean(numeric_only=True), own.sem(numeric_only=True)

        def figure(
            name: str,
            decimals: int = 3,
            by: float = 1,
            mean: pd.Series = mean,
            error: pd.Series = error,
        ) -> str:
            return plus_minus(by * mean[name], by * error[name], decimals)

        lines.append(
            (
                *(case, f"`{model}`", len(own), figure("crps"), figure("brier")),
                *(figure("zero_gap"), figure("typical_gap"), f"{figure('coverage_95', 1, 100)} %"),
                f"{100 * mean['mass_95']:.1f} %",
                *(f"{100 * mean['outside']:.0f} %", f"{mean['cpu_seconds']:.1f}"),
            )
        )
    return f"""# Amounts and proportions

    python -m benchmarks accuracy.amounts --worlds {rows["seed"].nunique()} --peers

Simulated: a normal process at {ROWS} training rows and {ROWS} test rows; `rain` is 0 below a limit
and a power or an exponential above it, and `loss` is a share of packets, often 0 and sometimes 1.
CRPS is divided by the standard deviation of the amounts. The test rows are in five bins of their
stated probability of 0: the sixth column is the mean difference from the share of zeros in a bin,
which chance alone makes about .03. `typical` is the median of all amounts above 0. An interval that
begins at 0 contains the probability of 0, and may so state more than 95 %. `law` is `FieldGP` with
`law="positive"` or `law="proportion"`, `plain` is `FieldGP` without it, and `gpboost` is GPBoost's
zero-censored power-transformed normal process. The standard errors are those between worlds.

{table(HEADER, lines, left=(0, 1))}"""


def main() -> None:
    """Make the missing fits, and write the table."""
    options = options_of(__doc__, out="amounts", table="amounts", worlds=20, peers=False)
    models = list(MODELS) if options.peers else list(MODELS)[:2]
    found = []
    for case, model, seed in product(CASES, models, range(options.worlds)):
        path = options.out / f"{case}-{model}-{seed}.json"
        scores = kept(path, lambda case=case, model=model, seed=seed: measure(case, model, seed))
        found += [scores] if scores else []
        say(path.name)
    write_results(options.table, page(found), found)


if __name__ == "__main__":
    main()
