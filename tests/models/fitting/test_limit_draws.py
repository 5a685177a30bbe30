"""Targets drawn beyond limits: their law, and the rows from which each is predicted."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from geogp.distributions.prediction import Prediction
from geogp.models.fitting.limit_draws import ROUNDS, with_drawn_targets
from geogp.models.process.data import Data


class Told:
    """A model that predicts the same law everywhere, and remembers the rows of its fit."""

    def __init__(self, train, validation):
        self.rows = train, validation

    def predict(self, x, tests, devices):
        assert len(x) == len(tests) == len(devices)
        known = np.concatenate([data.x[:, 0] for data in self.rows])
        assert not np.isin(x[:, 0], known).any()
        assert not any(data.side.any() for data in self.rows)
        return Prediction.of_moments(np.full(len(x), 0.5), np.full(len(x), 0.49))


def rows(n, start=0):
    x = start + np.arange(n, dtype=float)[:, None]
    return Data(x, np.where(x[:, 0] % 2, 0.2, -5.0), side=np.where(x[:, 0] % 2, -1, 0))


def test_draws_follow_the_prediction_below_the_limit():
    fits = []

    def fit(*parts):
        fits.append(Told(*parts))
        return fits[-1]

    train, validation = rows(4000), rows(400, 4000)
    drawn = with_drawn_targets(fit, train, validation, 0)
    assert len(fits) == 2 * ROUNDS
    for before, after in zip((train, validation), drawn, strict=True):
        assert not after.side.any()
        np.testing.assert_array_equal(after.y[before.side == 0], -5.0)
        assert (after.y[before.side < 0] < 0.2).all()
        np.testing.assert_array_equal(after.groups, before.groups)
    y = drawn[0].y[train.side < 0]
    law = truncnorm(-np.inf, (0.2 - 0.5) / 0.7, 0.5, 0.7)
    assert y.mean() == pytest.approx(law.mean(), abs=0.03)
    assert y.std() == pytest.approx(law.std(), rel=0.05)


def test_a_limit_where_the_prediction_has_no_mass_gives_finite_draws():
    class Far(Told):
        def predict(self, x, tests, devices):
            law = super().predict(x, tests, devices)
            return Prediction.of_moments(law.mean + 1000, law.variance)

    drawn, _ = with_drawn_targets(Far, rows(100), rows(20, 100), 0)
    assert np.isfinite(drawn.y).all()


def test_a_single_validation_row_chooses_in_both_halves():
    told = []

    class Seen(Told):
        def __init__(self, train, validation):
            told.append((len(train.y), len(validation.y)))
            self.rows = train, rows(1, 10_000)  # the validation row is predicted, too

    stages = []
    drawn = with_drawn_targets(Seen, rows(101), rows(1, 101), 0, stages.append)
    assert stages[-1] == "drawing 51 rows at an end of the range: fit 4 of 4"
    assert {validation for _, validation in told} == {1}
    assert sorted(train for train, _ in told) == [50, 50, 51, 51]
    assert (drawn[1].y < 0.2).all()
