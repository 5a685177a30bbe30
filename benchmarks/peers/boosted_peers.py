"""Gradient boosting with neighbours, devices and kriging as inputs, and five-fold bagging."""

from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
import torch

from benchmarks.field_case import Answer, Case
from benchmarks.peers.local_kriging import fit_covariance
from benchmarks.script import Floats
from geogp.distributions.prediction import Prediction
from geogp.models.field.near_summaries import (
    Indices,
    Measurements,
    Summaries,
    folds,
    left_out_summaries,
    near_summaries,
)
from geogp.models.field.predictive_law import Errors, PredictiveLaw, fit_law
from geogp.models.process.data import Data

MEMBERS = 5
"""Number of members, each fitted without one fifth of the training rows or of their groups."""

COMMON = {
    "n_estimators": 3_000,
    "learning_rate": 0.03,
    "colsample_bytree": 0.5,
    "subsample": 0.8,
    "subsample_freq": 1,
    "reg_lambda": 5.0,
    "verbose": -1,
}
MEAN = COMMON | {"num_leaves": 63, "min_child_samples": 40}
VARIANCE = COMMON | {"objective": "gamma", "num_leaves": 31, "min_child_samples": 100}
"""Settings of LightGBM."""

PATIENCE = 50
"""Number of trees without a lower loss on the left-out part, after which a member stops."""

SMALLEST_SQUARE = 1e-6
"""Added to squared errors, because the density of a gamma distribution has no value at 0."""


@dataclass(frozen=True)
class Bagged:
    """Members fitted without one part of the training rows each, and predictions of these parts."""

    members: list[Any]
    outside: Floats

    def predict(self, x: Floats) -> Floats:
        """Return the mean of the members' predictions, (n,)."""
        return np.mean([member.predict(x) for member in self.members], axis=0)


def boosted_with_neighbours(
    case: Case, *, devices: bool = False, with_kriging: bool = False
) -> Answer:
    """Boosted mean and variance with neighbours, and optionally devices and kriging, as inputs.

    Each member of the mean predicts the part of the training rows that stopped it. These squared
    errors are the targets of the members of the variance (gamma deviance), whose inputs are those
    of the mean and the predicted mean. The errors of these parts and of the validation rows give
    the distribution of the standardised errors, by tests, devices, standard deviation and mean.
    """
    start = monotonic()
    train, held, test, seed = case.train, case.validation, case.test, case.seed
    counts, rows_of = partial(counts_of, devices=devices), partial(_rows, case, devices=devices)
    rows = rows_of(train)
    makers: list[Summaries] = [near_summaries]
    if with_kriging:
        makers.append(fit_covariance(rows, seed).features)
    single = len(np.unique(train.groups)) == len(train.y)
    alone = np.full(len(train.y), single)
    near = [left_out_summaries(make, rows, train.groups, alone, seed) for make in makers]
    x = np.column_stack([train.x, counts(train), *near])
    parts = list(folds(train.groups, seed, MEMBERS))
    mean = bagged(MEAN, x, train.y, rows.weight, parts)
    squares = np.square(train.y - mean.outside) + SMALLEST_SQUARE
    inputs = np.column_stack([x, mean.outside])
    variance = bagged(VARIANCE, inputs, squares, np.ones_like(squares), parts)

    def boosted(data: Data) -> tuple[Floats, Floats]:
        near = [make(rows, rows_of(data), None) for make in makers]
        x = np.column_stack([data.x, counts(data), *near])
        centre = mean.predict(x)
        return centre, np.sqrt(variance.predict(np.column_stack([x, centre])))

    outside = errors_of(train, counts(train), mean.outside, np.sqrt(variance.outside), of_fit=True)
    law = fit_law(outside.joined(errors_of(held, counts(held), *boosted(held))))
    seconds = monotonic() - start
    return Answer(seconds, with_law(law, counts(test), *boosted(test)))


def errors_of(
    data: Data, counts: Floats, centre: Floats, sd: Floats, *, of_fit: bool = False
) -> Errors:
    """Return standardised errors, with counts, sd and mean; `of_fit` is for training rows."""
    known, n = _covariates(counts, centre, sd), len(sd)
    held_out, alone = np.full(n, not of_fit), np.zeros(n, np.bool_)
    return Errors((data.y - centre) / sd, known, held_out, alone, data.groups)


def with_law(law: PredictiveLaw, counts: Floats, centre: Floats, sd: Floats) -> Prediction:
    """Return predictions with location, scale and shape from a distribution of errors."""
    location, scale, shape = law.parameters(_covariates(counts, centre, sd)).distribution()
    zero = np.zeros_like(sd)
    return Prediction(centre + location * sd, zero, np.square(scale * sd), zero, shape)


def bagged(
    settings: dict[str, Any],
    x: Floats,
    y: Floats,
    weight: Floats,
    parts: list[tuple[Indices, Indices]],
) -> Bagged:
    """Fit a member without each part; the part chooses its number of trees."""
    import lightgbm  # noqa: PLC0415

    members, outside = [], np.empty(len(y))
    threads = torch.get_num_threads()
    for k, (others, own) in enumerate(parts):
        member = lightgbm.LGBMRegressor(random_state=k, n_jobs=threads, **settings)
        member.fit(
            x[others],
            y[others],
            sample_weight=weight[others],
            eval_X=x[own],
            eval_y=y[own],
            eval_sample_weight=[weight[own]],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )
        members.append(member)
        outside[own] = member.predict(x[own])
    return Bagged(members, outside)


def counts_of(data: Data, *, devices: bool) -> Floats:
    """Return log tests, (n, 1); with devices also log devices and log tests per device, (n, 3)."""
    tests = np.log(data.tests)
    if not devices:
        return tests[:, None]
    log_devices = np.log(data.devices)
    return np.column_stack([tests, log_devices, tests - log_devices])


def weights_of(data: Data, *, devices: bool) -> Floats:
    """Return a row's weight, which is bounded, because tests of a row share the tile's conditions.

    With devices, the geometric mean of tests and devices counts: tests of a device are alike.
    """
    count = np.sqrt(data.tests * data.devices) if devices else data.tests
    return count / (1 + count / 4)


def _rows(case: Case, data: Data, *, devices: bool) -> Measurements:
    place = data.x * case.units
    # Rounding gives all rows of a quarter the same time.
    time = np.round(place[:, 2], 6) if place.shape[1] > 2 else np.zeros(len(place))
    return Measurements(place[:, :2], time, data.y, weights_of(data, devices=devices))


def _covariates(counts: Floats, centre: Floats, sd: Floats) -> Floats:
    return np.column_stack([counts, np.log(sd), centre])
