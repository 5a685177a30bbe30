"""Targets of which only a limit is known, drawn from the predictions of other rows."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from geogp.distributions.prediction import Prediction
from geogp.models.process.data import Data
from geogp.models.process.model import Model

Floats = NDArray[np.float64]

ROUNDS = 2
"""How often all limited targets are drawn from fits to half of the rows."""

LEAST_PROBABILITY = 1e-9
"""Draws are between the quantiles with this probability and its complement."""


def with_drawn_targets(
    fit: Callable[[Data, Data], Model],
    train: Data,
    validation: Data,
    seed: int,
    stage: Callable[[str], None] | None = None,
) -> tuple[Data, Data]:
    """Return rows without limits: their targets are drawn, given the limits and other rows.

    The first draws are from N(0, 1), the distribution of all targets. In each round, `fit` learns
    from each random half of the rows, with the targets drawn last, and predicts the limited rows of
    the other half. A target is drawn from the part of its prediction that its limit allows. A
    single validation row is in both halves. `stage` is told when a fit begins.
    """
    rng = np.random.default_rng([seed, 13])
    data = train.joined(validation)
    n = len(data.y)
    held_out = np.arange(n) >= len(train.y)
    half = np.zeros(n, np.bool_)
    y = _drawn(data, Prediction.of_moments(np.zeros(n), np.ones(n)), rng)
    for turn in range(2 * ROUNDS):
        if turn % 2:
            half = ~half
        else:
            half = np.zeros(n, np.bool_)
            for part in (~held_out, held_out):
                half[rng.permutation(np.flatnonzero(part))[::2]] = True
        if stage is not None:
            count = np.count_nonzero(data.side)
            stage(f"drawing {count:,} rows at an end of the range: fit {turn + 1} of {2 * ROUNDS}")
        chooses = held_out & ~half if (held_out & ~half).any() else held_out
        rows = _measured(data, y)
        model = fit(rows.at(~half & ~held_out), rows.at(chooses))
        limited = half & (data.side != 0)
        law = model.predict(data.x[limited], data.tests[limited], data.devices[limited])
        y[limited] = _drawn(data.at(limited), law, rng)
    return _measured(train, y[~held_out]), _measured(validation, y[held_out])


def _measured(data: Data, y: Floats) -> Data:
    return replace(data, y=y, side=np.zeros(len(y), np.int8))


def _drawn(data: Data, law: Prediction, rng: np.random.Generator) -> Floats:
    """Return the targets, (n,), with draws from `law` beyond the limits."""
    share = law.cdf(data.y)
    low, high = np.where(data.side > 0, share, 0.0), np.where(data.side > 0, 1.0, share)
    probability = low + (high - low) * rng.uniform(size=len(share))
    probability = probability.clip(LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    draws = law.mean + law.sd * law.shape.quantile(probability)
    return np.where(data.side == 0, data.y, draws)
