"""What a user would reach for first: gradient boosting, kriging and a sparse process of GPyTorch.

Needs `pip install geogp[bench]`.

Each peer takes the same rows and the same inputs (longitude, latitude, quarter; the tests of a
row where the method can use them) and returns a `Prediction`, or quantiles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peers import fit_peer, predict_peer
from sklearn.model_selection import KFold

from geogp.models.objectives import Weights
from geogp.models.prediction import Prediction
from geogp.models.schedule import FitSettings
from geogp.models.training import Data

Floats = NDArray[np.float64]

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Quantiles of `lightgbm-quantile`; its CRPS is twice their mean quantile loss over (0, 1)."""

KRIGED_ROWS = 1_500
"""Training rows that kriging can take: each prediction costs their square."""


@dataclass(frozen=True)
class Case:
    """Rows of one split, kilometres and quarters that a unit of each input stands for, a seed."""

    train: Data
    validation: Data
    test: Data
    units: Floats
    seed: int


@dataclass(frozen=True)
class Answer:
    """What a peer says of the test rows, and how long it took to fit."""

    seconds: float
    prediction: Prediction | None = None
    quantiles: Floats | None = None


def lightgbm_variance(case: Case) -> Answer:
    """Boosted mean, weighted by tests, and boosted variance from out-of-fold residuals.

    The variance model sees place, quarter and tests; its target is the logarithm of the squared
    out-of-fold residual, and one factor from the validation rows makes it a variance.
    """
    train, test, seed = case.train, case.test, case.seed
    start = monotonic()
    x, full = train.x, _with_tests(train)
    weight = train.tests / (1 + train.tests / 4)
    outside = np.empty(len(train.y))
    for kept, left in KFold(5, shuffle=True, random_state=seed).split(x):
        part = Data(full[kept], train.y[kept])
        outside[left] = _boosted(part, weight[kept], seed, 400).predict(full[left])
    mean = _boosted(Data(full, train.y), weight, seed, 400)
    residual = np.log(np.square(train.y - outside) + 1e-4)
    spread = _boosted(Data(full, residual), np.ones(len(residual)), seed, 150)
    asked = _with_tests(case.validation)
    raw = np.exp(spread.predict(asked))
    factor = float(np.mean(np.square(case.validation.y - mean.predict(asked)) / raw))
    seconds = monotonic() - start
    asked = _with_tests(test)
    noise = factor * np.exp(spread.predict(asked))
    return Answer(seconds, Prediction(mean.predict(asked), np.zeros_like(noise), noise))


def lightgbm_quantile(case: Case) -> Answer:
    """Boosted quantiles on place, quarter and tests, sorted where they cross."""
    import lightgbm  # noqa: PLC0415

    train, test, seed = case.train, case.test, case.seed
    start = monotonic()
    fits = [
        lightgbm.LGBMRegressor(
            objective="quantile", alpha=level, n_estimators=400, **_common(seed)
        ).fit(_with_tests(train), train.y)
        for level in LEVELS
    ]
    seconds = monotonic() - start
    found = np.column_stack([fit.predict(_with_tests(test)) for fit in fits])
    return Answer(seconds, quantiles=np.sort(found, 1))


def gpytorch_svgp(case: Case) -> Answer:
    """GPyTorch's sparse variational process, 512 inducing points over place and quarter."""
    train, test, seed = case.train, case.test, case.seed
    centre, scale = train.y.mean(), train.y.std()
    start = monotonic()
    settings = FitSettings(
        epochs=15, learning_rate=1e-2, seed=seed, weights=Weights(alpha=0, beta=1)
    )
    scaled = [Data(d.x, (d.y - centre) / scale) for d in (train, case.validation)]
    model, likelihood = fit_peer("gpytorch-svgp", *scaled, settings, r=512)
    seconds = monotonic() - start
    found = predict_peer(model, likelihood, test.x)
    return Answer(
        seconds,
        Prediction(
            centre + scale * found.mean,
            scale**2 * found.function_variance,
            scale**2 * found.noise_variance,
        ),
    )


def kriging(case: Case) -> Answer:
    """Krige what the mean of each quarter leaves, on a random 1,500 rows (GSTools).

    An exponential variogram with a nugget in kilometres and quarters, fitted by least squares;
    the anisotropy between time and space is chosen by the fit of the variogram.
    """
    import gstools  # noqa: PLC0415

    train, test, seed = case.train, case.test, case.seed
    start = monotonic()
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(train.y))[:KRIGED_ROWS]
    levels = _levels(train)
    residual = (train.y - levels(train))[rows]
    place = train.x[rows] * case.units
    best, best_score = None, -np.inf
    for stretch in (0.5, 2.0, 8.0):
        scaled = _stretched(place, stretch)
        bins = np.concatenate([[0.0, 0.3], np.geomspace(1.0, 40.0, 12)])
        middle, gamma = gstools.vario_estimate(scaled.T, residual, bins, sampling_size=2_000)
        model = gstools.Exponential(dim=scaled.shape[1])
        _, _, score = model.fit_variogram(middle, gamma, nugget=True, return_r2=True)
        if score > best_score:
            best, best_score, chosen = model, score, stretch
    krige = gstools.krige.Simple(
        best, _stretched(place, chosen).T, residual, exact=False, pseudo_inv=False
    )
    seconds = monotonic() - start
    field, error = krige(_stretched(test.x * case.units, chosen).T)
    noise = np.full(len(test.y), best.nugget)
    # The kriging variance of gstools includes the nugget.
    function = np.clip(error - best.nugget, 0, None)
    return Answer(seconds, Prediction(levels(test) + field, function, noise))


PEERS = {
    "lightgbm": lightgbm_variance,
    "lightgbm-quantile": lightgbm_quantile,
    "gpytorch-svgp": gpytorch_svgp,
    "kriging": kriging,
}


def quantile_crps(quantiles: Floats, y: Floats) -> Floats:
    """Return twice the integral of the quantile loss by the trapezoidal rule, (n,).

    At the ends the loss is that of the outermost quantile at level 0 and 1.
    """
    levels = np.array([0.0, *LEVELS, 1.0])
    padded = np.column_stack([quantiles[:, :1], quantiles, quantiles[:, -1:]])
    error = y[:, None] - padded
    loss = np.where(error >= 0, levels * error, (levels - 1) * error)
    return np.asarray(2 * np.trapezoid(loss, levels, axis=1))


def _with_tests(data: Data) -> Floats:
    return np.column_stack([data.x, np.log(data.tests)])


def _common(seed: int) -> dict[str, object]:
    return {
        "num_leaves": 127,
        "learning_rate": 0.05,
        "min_child_samples": 20,
        "subsample": 0.8,
        "subsample_freq": 1,
        "random_state": seed,
        "n_jobs": 1,
        "verbose": -1,
    }


def _boosted(data: Data, weight: Floats, seed: int, trees: int) -> Any:
    import lightgbm  # noqa: PLC0415

    model = lightgbm.LGBMRegressor(n_estimators=trees, **_common(seed))
    return model.fit(data.x, data.y, sample_weight=weight)


def _levels(train: Data) -> Callable[[Data], Floats]:
    """Return a function from rows to the training mean of their quarter."""
    if train.x.shape[1] == 2:
        mean = train.y.mean()
        return lambda data: np.full(len(data.y), mean)
    quarters, number = np.unique(train.x[:, 2], return_inverse=True)
    means = np.bincount(number, train.y) / np.bincount(number)
    return lambda data: np.interp(data.x[:, 2], quarters, means)


def _stretched(place: Floats, stretch: float) -> Floats:
    return place if place.shape[1] == 2 else place * [1.0, 1.0, stretch]
