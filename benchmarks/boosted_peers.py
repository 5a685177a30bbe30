"""Gradient boosting as a good practitioner uses it on a map: neighbours, devices, kriging."""

from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
import torch
from field_peers import Answer, Case
from local_kriging import kriged
from neighbour_features import Features, Indices, Rows, folds, is_single, neighbour_features, own_features
from trial import Floats

from geogp.distributions.prediction import Prediction
from geogp.models.field.predictive_law import Errors, fit_law
from geogp.models.training.training_data import Data

MEMBERS = 5
MAX_TREES, PATIENCE = 3_000, 50
RATE, VARIANCE_RATE = 0.03, 0.03
SMALLEST_SQUARE = 1e-6
"""Added to squared errors, because a gamma distribution has no zero."""


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
    """Boosted mean and variance from neighbours; five members, each stopped by its left-out part.

    A part is a fifth of the training rows, or of their groups. Predictions of the left-out parts
    give squared errors, the target of the variance (gamma deviance), whose inputs are those of the
    mean and the predicted mean. The law of the standardised errors comes from the left-out parts
    and the validation rows, by tests, devices, standard deviation and mean.
    """
    start = monotonic()
    train, seed = case.train, case.seed
    makers: list[Features] = [neighbour_features]
    if with_kriging:
        makers.append(partial(kriged, seed=seed))
    counts = partial(_counts, devices=devices)
    rows, held_rows = _rows(train, case.units, devices), _rows(case.validation, case.units, devices)
    found = [own_features(make, rows, train.groups, seed) for make in makers]
    x = np.column_stack([train.x, counts(train), *found])

    def inputs(data: Data, asked: Rows) -> Floats:
        near = [make(rows, asked, None) for make in makers]
        return np.column_stack([data.x, counts(data), *near])

    parts = list(folds(train.groups, seed, MEMBERS))
    mean = bagged(x, train.y, parts, seed, weight=rows.weight, learning_rate=RATE, **MEAN)
    squares = np.square(train.y - mean.outside) + SMALLEST_SQUARE
    variance = bagged(
        np.column_stack([x, mean.outside]),
        squares,
        parts,
        seed,
        objective="gamma",
        learning_rate=VARIANCE_RATE,
        **VARIANCE,
    )

    def boosted(x: Floats) -> tuple[Floats, Floats]:
        centre = mean.predict(x)
        return centre, np.sqrt(variance.predict(np.column_stack([x, centre])))

    def errors(data: Data, centre: Floats, sd: Floats, *, held_out: bool) -> Errors:
        covariates = np.column_stack([counts(data), np.log(sd), centre])
        marks = np.full(len(sd), held_out)
        return Errors((data.y - centre) / sd, covariates, marks, 1.0 if held_out else _size(train))

    held = case.validation
    seen = errors(train, mean.outside, np.sqrt(variance.outside), held_out=False)
    law = fit_law(seen.joined(errors(held, *boosted(inputs(held, held_rows)), held_out=True)))
    seconds = monotonic() - start
    test = case.test
    centre, sd = boosted(inputs(test, _rows(test, case.units, devices)))
    asked = errors(test, centre, sd, held_out=True)
    location, scale, shape = law.at(asked.covariates)
    zero = np.zeros_like(sd)
    prediction = Prediction(centre + location * sd, zero, np.square(scale * sd), zero, shape)
    return Answer(seconds, prediction)

MEAN = dict(num_leaves=63, min_child_samples=40, colsample_bytree=0.5, subsample=0.8, subsample_freq=1, reg_lambda=5.0)
VARIANCE = dict(num_leaves=31, min_child_samples=100, colsample_bytree=0.5, subsample=0.8, subsample_freq=1, reg_lambda=5.0)

def bagged(
    x: Floats,
    y: Floats,
    parts: list[tuple[Indices, Indices]],
    seed: int,
    weight: Floats | None = None,
    **kind: Any,
) -> Bagged:
    """Fit a member without each part; the part chooses its number of trees."""
    import lightgbm  # noqa: PLC0415

    members, outside = [], np.empty(len(y))
    w = np.ones(len(y)) if weight is None else weight
    for k, (others, own) in enumerate(parts):
        member = lightgbm.LGBMRegressor(
            n_estimators=MAX_TREES,
            random_state=seed + k,
            n_jobs=torch.get_num_threads(),
            verbose=-1,
            **kind,
        )
        member.fit(
            x[others],
            y[others],
            sample_weight=w[others],
            eval_X=x[own],
            eval_y=y[own],
            eval_sample_weight=[w[own]],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )
        members.append(member)
        outside[own] = member.predict(x[own])
    return Bagged(members, outside)


def _rows(data: Data, units: Floats, devices: bool) -> Rows:
    place = data.x * units
    time = np.round(place[:, 2], 6) if place.shape[1] > 2 else np.zeros(len(place))
    return Rows(place[:, :2], time, data.y, _weight(data, devices))


def _weight(data: Data, devices: bool) -> Floats:
    tests = data.tests
    return tests / (1 + tests / 4)


def _counts(data: Data, devices: bool) -> Floats:
    """Return log tests, (n, 1); with devices also log devices and log tests per device, (n, 3)."""
    tests = np.log(data.tests)
    if not devices:
        return tests[:, None]
    log_devices = np.log(data.devices)
    return np.column_stack([tests, log_devices, tests - log_devices])


def _size(data: Data) -> float:
    """Return the rows of a group, on average over rows."""
    _, rows = np.unique(data.groups, return_counts=True)
    return float(np.square(rows).sum() / rows.sum())
