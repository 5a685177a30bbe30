"""Common alternatives: gradient boosting, kriging and a sparse process of GPyTorch.

Needs `pip install geogp[bench]`.

Each peer gets the same rows (longitude, latitude, quarter, and the tests and devices of a row if
the method can use them) and returns a `Prediction` or quantiles. The strongest peers are in
`boosted_peers.py` and `gpboost_peer.py`.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks.field_case import LEVELS, Answer, Case, QuantileLaw
from benchmarks.peers.boosted_peers import boosted_with_neighbours
from benchmarks.peers.gpboost_peer import boosted_process
from benchmarks.peers.sparse_gps import fit_peer, predict_peer
from benchmarks.script import Floats
from geogp.distributions.prediction import Prediction
from geogp.models.field.predictive_law import Errors, fit_law
from geogp.models.fit_settings import FitSettings
from geogp.models.options import Weights
from geogp.models.process.data import Data

KRIGED_ROWS = 1_500
"""Number of training rows for kriging; the cost of a prediction grows with its square."""

RATE = 0.05
"""Learning rate of boosting."""

MAX_TREES = 2_000
PATIENCE = 50
"""Number of trees without a better validation score, after which boosting stops."""


def lightgbm_variance(case: Case, *, rate: float = RATE) -> Answer:
    """Boosted mean, weighted by tests, and boosted variance from out-of-fold residuals.

    The validation rows choose the number of trees. The inputs of the variance model are place,
    quarter and number of tests; its target is the logarithm of the squared out-of-fold residual.
    The validation rows also give location, scale and shape of the standardised residuals by number
    of tests. With another learning rate, the number of trees of the variance model changes by the
    same factor.
    """
    train, held, test, seed = case.train, case.validation, case.test, case.seed
    start = monotonic()
    x, weight = _with_tests(train), _weight(train.tests)
    mean = _early_stopped(
        _boosting(seed, rate), train, held, weight=weight, held_weight=_weight(held.tests)
    )
    outside = cross_val_predict(
        _boosting(seed, rate, trees=mean.best_iteration_),
        x,
        train.y,
        cv=KFold(5, shuffle=True, random_state=seed),
        params={"sample_weight": weight},
    )
    residual = np.log(np.square(train.y - outside) + 1e-4)
    spread = _boosting(seed, rate, trees=round(150 * RATE / rate)).fit(x, residual)

    def boosted(data: Data) -> tuple[Floats, Floats]:
        asked = _with_tests(data)
        return mean.predict(asked), np.exp(0.5 * spread.predict(asked))

    centre, sd = boosted(held)
    held_out = np.ones(len(held.y), np.bool_)
    errors = (held.y - centre) / sd
    law = fit_law(Errors(errors, _log_tests(held), held_out, ~held_out, held.groups))
    seconds = monotonic() - start
    location, scale, shape = law.parameters(_log_tests(test)).distribution()
    centre, sd = boosted(test)
    zero = np.zeros_like(sd)
    prediction = Prediction(centre + location * sd, zero, np.square(scale * sd), zero, shape)
    return Answer(seconds, prediction)


def lightgbm_quantile(case: Case) -> Answer:
    """Boosted quantiles by place, quarter and tests; validation rows choose the number of trees."""
    start = monotonic()
    fits = [
        _early_stopped(
            _boosting(case.seed, objective="quantile", alpha=level), case.train, case.validation
        )
        for level in LEVELS
    ]
    seconds = monotonic() - start
    found = np.column_stack([fit.predict(_with_tests(case.test)) for fit in fits])
    return Answer(seconds, quantiles=QuantileLaw(found))


def gpytorch_svgp(case: Case, *, epochs: int = 15, r: int = 512) -> Answer:
    """GPyTorch's sparse variational process, r inducing points over place and quarter."""
    train, test, seed = case.train, case.test, case.seed
    centre, scale = train.y.mean(), train.y.std()
    start = monotonic()
    settings = FitSettings(
        epochs=epochs, learning_rate=1e-2, seed=seed, weights=Weights(alpha=0, beta=1)
    )
    scaled = [Data(d.x, (d.y - centre) / scale) for d in (train, case.validation)]
    model, likelihood = fit_peer("gpytorch-svgp", *scaled, settings, r=r)
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
    """Krige the residuals from the mean of each quarter, on 1,500 random rows (GSTools).

    The variogram is exponential with a nugget, in kilometres and quarters, and fitted by least
    squares; the anisotropy between time and space is chosen by the fit of the variogram.
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
        middle, gamma, pairs = gstools.vario_estimate(
            scaled.T, residual, bins, sampling_size=2_000, return_counts=True
        )
        model = gstools.Exponential(dim=scaled.shape[1])
        # GSTools returns 0 if a bin has no pairs.
        some = pairs > 0
        _, _, score = model.fit_variogram(
            middle[some], gamma[some], nugget=True, return_r2=True, weights=np.sqrt(pairs[some])
        )
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


PEERS: dict[str, Callable[[Case], Answer]] = {
    "lightgbm": lightgbm_variance,
    "lightgbm-quantile": lightgbm_quantile,
    "lightgbm-neighbours": boosted_with_neighbours,
    "lightgbm-devices": partial(boosted_with_neighbours, devices=True),
    "lightgbm-kriging": partial(boosted_with_neighbours, devices=True, with_kriging=True),
    "gpboost": boosted_process,
    "gpytorch-svgp": gpytorch_svgp,
    "kriging": kriging,
}

SCHEDULES: dict[str, Callable[[Case], Answer]] = {
    **{f"lightgbm-{rate}": partial(lightgbm_variance, rate=rate) for rate in (0.1, 0.2)},
    **{f"gpytorch-svgp-{n}": partial(gpytorch_svgp, epochs=n) for n in (1, 2, 5, 30)},
    **{f"gpytorch-svgp-r128-{n}": partial(gpytorch_svgp, epochs=n, r=128) for n in (1, 5, 15)},
}
"""Peers with other learning rates, ranks and numbers of epochs than the default peers."""


def _log_tests(data: Data) -> Floats:
    return np.log(data.tests)[:, None]


def _with_tests(data: Data) -> Floats:
    return np.column_stack([data.x, _log_tests(data)])


def _weight(tests: Floats) -> Floats:
    return tests / (1 + tests / 4)


def _boosting(seed: int, rate: float = RATE, trees: int = MAX_TREES, **kind: Any) -> Any:
    """Return an unfitted LightGBM regression."""
    import lightgbm  # noqa: PLC0415

    return lightgbm.LGBMRegressor(
        n_estimators=trees,
        num_leaves=127,
        learning_rate=rate,
        min_child_samples=20,
        subsample=0.8,
        subsample_freq=1,
        random_state=seed,
        n_jobs=torch.get_num_threads(),
        verbose=-1,
        **kind,
    )


def _early_stopped(
    model: Any,
    train: Data,
    held: Data,
    *,
    weight: Floats | None = None,
    held_weight: Floats | None = None,
) -> Any:
    """Fit boosting with the number of trees that the validation rows choose."""
    import lightgbm  # noqa: PLC0415

    return model.fit(
        _with_tests(train),
        train.y,
        sample_weight=weight,
        eval_X=_with_tests(held),
        eval_y=held.y,
        eval_sample_weight=None if held_weight is None else [held_weight],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )


def _levels(train: Data) -> Callable[[Data], Floats]:
    """Return a function that maps rows to the training mean of their quarter."""
    if train.x.shape[1] == 2:
        mean = train.y.mean()
        return lambda data: np.full(len(data.y), mean)
    quarters, number = np.unique(train.x[:, 2], return_inverse=True)
    means = np.bincount(number, train.y) / np.bincount(number)
    return lambda data: np.interp(data.x[:, 2], quarters, means)


def _stretched(place: Floats, stretch: float) -> Floats:
    return place if place.shape[1] == 2 else place * [1.0, 1.0, stretch]
