"""Small sets of single measurements: `FieldGP` and what a geostatistician would use.

    python -m benchmarks accuracy.small --classics classics

The 30 simulated sets have 70 to 300 rows, and 500 new measurements to predict. The classics are
files of `classics.R`, which makes them from packages of R; each row is predicted once, in ten folds
that are random or are blocks of near places. Without --classics there are only simulated sets. The
models are those of `MODELS`; without R and its package gstat, `gstat` is left out. Each set and
model has its own file under --out. Writes a Markdown and a JSON file. With --earlier, figures of
the JSON file that are not measured again stay:

    python -m benchmarks accuracy.small --earlier --sizes 2000 --worlds sines --models field gpboost
"""

import json
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.cluster.vq import kmeans2

import geogp
from benchmarks.beyond_cases import Term, covariance
from benchmarks.markdown import percent, table
from benchmarks.peers import gstat_peer
from benchmarks.script import (
    Figures,
    Floats,
    clock,
    costs,
    kept,
    machine,
    parser,
    say,
    write_results,
)
from geogp.errors import RequestError
from geogp.evaluation.metrics import row_scores

SIDE = 100.0
"""Width of a simulated set."""

SIZES = (70, 155, 300)
"""Numbers of rows of the simulated sets."""

NEW = 500
"""Number of new measurements of a simulated set."""

NOISE = 0.2
"""Standard deviation of the noise of a simulated set; the field's is about 1."""

FOLDS = 10
"""Number of parts of a classic set."""

SPLITS = ("random", "blocks")
"""How the rows of a classic set are divided."""

SMOOTHNESS = (0.5, 1.5, 2.5)
"""Smoothness of the simulated fields."""

Draw = np.random.Generator
Model = Callable[[Floats, Floats, Floats, int], geogp.Prediction]


def sines(_rng: Draw, place: Floats) -> Floats:
    """Return the sum of two sines at places (n, 2)."""
    total: Floats = np.sin(place[:, 0] * 0.12) + np.sin(place[:, 1] * 0.09 + 1)
    return total


def field_of(smoothness: float, ranges: tuple[float, float]) -> Callable[[Draw, Floats], Floats]:
    """Return a function that draws a Gaussian field at places (n, 2)."""

    def drawn(rng: Draw, place: Floats) -> Floats:
        K = covariance((Term(1.0, ranges, smoothness),), place, place)
        K[np.diag_indices(len(K))] += 1e-9
        return np.linalg.cholesky(K) @ rng.standard_normal(len(K))

    return drawn


WORLDS: dict[str, Callable[[Draw, Floats], Floats]] = {
    "sines": sines,
    **{f"field {nu:g}": field_of(nu, (25.0, 25.0)) for nu in SMOOTHNESS},
    **{f"stretched {nu:g}": field_of(nu, (40.0, 13.0)) for nu in SMOOTHNESS},
    **{f"short {nu:g}": field_of(nu, (10.0, 10.0)) for nu in SMOOTHNESS},
}
"""Each simulated field; it is drawn for each number of rows."""


def field(place: Floats, value: Floats, new: Floats, _seed: int) -> geogp.Prediction:
    """Fit `FieldGP` with its defaults."""
    names = ["x", "y"]
    model = geogp.FieldGP(x="x", y="y", crs=None)
    model.fit(pd.DataFrame(place, columns=names), value)
    return model.predict_distribution(pd.DataFrame(new, columns=names))


def scikit_learn(place: Floats, value: Floats, new: Floats, seed: int) -> geogp.Prediction:
    """Fit a Gaussian process, Matérn 3/2 with a range in each direction, from three starts."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
    from sklearn.gaussian_process.kernels import (  # noqa: PLC0415
        ConstantKernel,
        Matern,
        WhiteKernel,
    )

    width = np.ptp(place, axis=0).max()
    kernel = ConstantKernel() * Matern([0.3, 0.3], (1e-3, 1e2), nu=1.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed
    )
    model.fit(place / width, value)
    mean, sd = model.predict(new / width, return_std=True)
    return geogp.Prediction.of_moments(mean, sd**2)


def gpboost(place: Floats, value: Floats, new: Floats, seed: int) -> geogp.Prediction:
    """Fit an exact process, Matérn 3/2, by GPBoost."""
    import gpboost  # noqa: PLC0415

    model = gpboost.GPModel(
        gp_coords=place,
        cov_function="matern",
        cov_fct_shape=1.5,
        likelihood="gaussian",
        num_parallel_threads=torch.get_num_threads(),
        seed=seed,
    )
    model.fit(value, X=np.ones((len(value), 1)))
    found = model.predict(
        gp_coords_pred=new,
        X_pred=np.ones((len(new), 1)),
        predict_var=True,
        predict_response=True,
    )
    return geogp.Prediction.of_moments(found["mu"], found["var"])


def ordinary_kriging(place: Floats, value: Floats, new: Floats, _seed: int) -> geogp.Prediction:
    """Fit an exponential or a spherical variogram by least squares, and krige (GSTools).

    Where neither converges, the variogram has the variance of the values, and a fifth of the width
    as its range.
    """
    import gstools  # noqa: PLC0415

    width = float(np.ptp(place, axis=0).max())
    bins = np.linspace(0, 0.5 * width, 13)
    middle, gamma, pairs = gstools.vario_estimate(place.T, value, bins, return_counts=True)
    fitted = []
    for kind in (gstools.Exponential, gstools.Spherical):
        model = kind(dim=2, len_scale=0.2 * width)
        some = pairs > 0
        weights = np.sqrt(pairs[some])
        try:
            score = model.fit_variogram(
                middle[some], gamma[some], return_r2=True, weights=weights, max_eval=5_000
            )[2]
        except RuntimeError:  # the least squares do not converge
            score = -np.inf
            model = kind(dim=2, len_scale=0.2 * width, var=float(np.var(value)))
        fitted.append((score, model))
    best = max(fitted, key=lambda each: each[0])[1]
    # With a nugget of 0, rows at almost one place have a singular matrix.
    best.nugget = max(best.nugget, 1e-6 * float(np.var(value)))
    krige = gstools.krige.Ordinary(best, place.T, value, exact=False, cond_err="nugget")
    mean, variance = krige(new.T)
    # The variance of GSTools contains the nugget.
    return geogp.Prediction.of_moments(mean, np.maximum(variance, best.nugget))


def pykrige(place: Floats, value: Floats, new: Floats, _seed: int) -> geogp.Prediction:
    """Krige with the exponential or spherical variogram that PyKrige fits best to 12 distances."""
    from pykrige.ok import OrdinaryKriging  # noqa: PLC0415

    fitted = [
        OrdinaryKriging(
            *place.T, value, variogram_model=kind, nlags=12, weight=True, exact_values=False
        )
        for kind in ("exponential", "spherical")
    ]
    best = min(fitted, key=_misfit)
    # With a nugget of 0, rows at almost one place have a singular matrix.
    best.variogram_model_parameters[-1] += 1e-6 * float(np.var(value))
    mean, variance = best.execute("points", *new.T)
    nugget = best.variogram_model_parameters[-1]
    # The variance of PyKrige contains the nugget.
    return geogp.Prediction.of_moments(np.asarray(mean), np.maximum(variance, nugget))


def _misfit(model: Any) -> float:
    """Return the squares of residuals of a variogram of PyKrige."""
    parameters = model.variogram_model_parameters
    stated = model.variogram_function(parameters, model.lags)
    return float(np.square(stated - model.semivariance).sum())


def gstat(place: Floats, value: Floats, new: Floats, _seed: int) -> geogp.Prediction:
    """Krige with the variogram of gstat."""
    return gstat_peer.krige([(place, value, new)])[0][0]


MODELS: dict[str, Model] = {
    "field": field,
    "scikit-learn": scikit_learn,
    "gpboost": gpboost,
    "kriging": ordinary_kriging,
    "pykrige": pykrige,
    "gstat": gstat,
}


def folds(place: Floats, split: str, seed: int = 0) -> Floats:
    """Return the fold of each row: random, or by clusters of near places."""
    if split == "random":
        return np.random.default_rng(seed).permutation(len(place)) % FOLDS
    scaled = place / np.ptp(place, axis=0).max()
    return kmeans2(scaled, FOLDS, minit="++", rng=seed)[1]


def simulated(name: str, rows: int) -> list[tuple[Floats, Floats, Floats, Floats]]:
    """Return places and values of the rows, and places and values of the new measurements."""
    rng = np.random.default_rng([list(WORLDS).index(name), rows])
    place = rng.uniform(0, SIDE, (rows + NEW, 2))
    value = WORLDS[name](rng, place) + NOISE * rng.standard_normal(rows + NEW)
    return [(place[:rows], value[:rows], place[rows:], value[rows:])]


def classic(path: Path, split: str) -> list[tuple[Floats, Floats, Floats, Floats]]:
    """Return the parts of a classic set as `simulated` does."""
    rows = pd.read_csv(path)
    place, value = rows[["x", "y"]].to_numpy(float), rows["value"].to_numpy(float)
    fold = folds(place, split)
    return [
        (place[fold != k], value[fold != k], place[fold == k], value[fold == k])
        for k in np.unique(fold)
    ]


def _timed(
    model: str, asked: list[tuple[Floats, Floats, Floats]]
) -> list[tuple[geogp.Prediction, float]]:
    """Return the predictions of each part and their CPU seconds; R knows those of its process."""
    if model == "gstat":
        return gstat_peer.krige(asked)
    found = []
    for part in asked:
        started = clock("cpu")
        found.append((MODELS[model](*part, 0), costs("cpu", started)["cpu_seconds"]))
    return found


def measure(
    name: str, split: str, model: str, parts: list[tuple[Floats, Floats, Floats, Floats]]
) -> Figures:
    """Fit a model to the rows of each part, and return the scores of its new measurements."""
    made = _timed(model, [part[:3] for part in parts])
    laws, seconds = zip(*made, strict=True)
    truths = [truth for *_, truth in parts]
    rows = pd.concat([row_scores(*pair, (95,)) for pair in zip(laws, truths, strict=True)])
    sd = float(np.concatenate(truths).std())
    return {
        "set": name,
        "split": split,
        "model": model,
        "rows": len(parts[0][1]),
        "n": len(rows),
        "rmse": float(np.sqrt(np.square(rows["error"]).mean())) / sd,
        "crps": float(rows["crps"].mean()) / sd,
        "log_score": float(rows["nll"].mean()) - float(np.log(sd)),
        "coverage_95": float(rows["coverage_95"].mean()),
        "cpu_seconds": float(np.mean(seconds)),
        "machine": machine(),
    }


def page(found: Iterable[Figures]) -> str:
    """Return the page: a summary of each kind of set, and the scores of each set."""
    figures = pd.DataFrame(found)
    scores = figures.pivot_table(index=["split", "set"], columns="model", values="crps", sort=False)
    models = [model for model in MODELS if model in scores]
    own = scores["field"]
    summary, lines = [], []
    for split, model in product(figures["split"].unique(), models):
        some = figures.query("split == @split and model == @model")
        if some.empty:
            continue
        ratio = own[split] / scores.loc[split, model]
        own_ratio = (f"{ratio.median():.3f}", f"{ratio.max():.3f}")
        summary.append(
            (
                split,
                f"`{model}`",
                len(some),
                *(f"{some[name].mean():.3f}" for name in ("rmse", "crps", "log_score")),
                percent(np.average(some["coverage_95"], weights=some["n"])),
                f"{some['cpu_seconds'].median():.2f}",
                *(("", "") if model == "field" else own_ratio),
            )
        )
    for (split, name), row in scores.iterrows():
        mine = figures.query("split == @split and set == @name and model == 'field'").iloc[0]
        values = ["" if np.isnan(row[model]) else f"{row[model]:.3f}" for model in models]
        lines.append((split, name, mine["rows"], *values, percent(mine["coverage_95"])))
    header = (
        *("split", "model", "sets", "RMSE", "CRPS", "log score", "in the 95 % interval"),
        *("CPU seconds of a fit (median)", "CRPS of `field` / its CRPS: median", "largest"),
    )
    absent = [f"`{model}`" for model in MODELS if model not in models]
    absent = f" Not measured: {', '.join(absent)}." if absent else ""
    each = ("split", "set", "rows", *(f"`{model}`" for model in models), "`field` in 95 %")
    return f"""# Small sets

    python -m benchmarks accuracy.small --classics classics

`simulated` sets are predicted at 500 new places, and so are `large` ones of more rows. The rows of
the classic sets are predicted in {FOLDS} folds, which are random or blocks of near places. Scores
are in standard deviations of the measurements, and means over the sets; the coverage is that of all
measurements. `scikit-learn` has
a Matérn 3/2 process with a range in each direction and three starts, `gpboost` one with the same
range in all directions, `kriging` is ordinary kriging by GSTools with an exponential or a spherical
variogram fitted by least squares, or with a set range where these do not converge. `pykrige` is
ordinary kriging by PyKrige with the exponential or the spherical variogram that it fits better, and
`gstat` that of R with the variogram of its `fit.variogram`: exponential, spherical or Matérn of any
smoothness.{absent} The seconds of `gstat` are without the start of R.

{table(header, summary, (0, 1))}
CRPS of each set:

{table(each, lines, (0, 1))}"""


def main() -> None:
    """Make the missing fits, and write the table."""
    options = parser(
        __doc__,
        out="small",
        table="small",
        models=list(MODELS),
        sizes=SIZES,
        worlds=list(WORLDS),
        classics=Path,
        earlier=False,
    ).parse_args()
    if "gstat" in options.models and (why := gstat_peer.missing()):
        say(f"gstat is left out: {why}.")
        options.models.remove("gstat")
    sets = [
        (f"{name}, {rows}", "simulated" if rows <= max(SIZES) else "large", simulated(name, rows))
        for name, rows in product(options.worlds, options.sizes)
    ]
    if options.classics:
        paths = sorted(options.classics.glob("*.csv"))
        if not paths:
            raise RequestError(f"expected CSV files in {options.classics}, found none.")
        sets += [(path.stem, split, classic(path, split)) for split in SPLITS for path in paths]
    found = [
        kept(
            options.out / f"{split}-{name}-{model}.json",
            lambda case=case, model=model: measure(case[0], case[1], model, case[2]),
        )
        for case in sets
        for name, split in [case[:2]]
        for model in options.models
    ]
    if options.earlier:
        made = {(one["split"], one["set"], one["model"]) for one in found}
        earlier = json.loads((options.table / "results.json").read_text())
        keys = ((one["split"], one["set"], one["model"]) for one in earlier)
        found = [one for one, key in zip(earlier, keys, strict=True) if key not in made] + found
    write_results(options.table, page(found), found)
    print(page(found))
