"""The rank that a fit of given length allows."""

import numpy as np
import pytest

from geogp.errors import RequestError
from geogp.models.catalogue import budget
from geogp.models.catalogue.budget import MAX_RANK, rank_for
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

SETTINGS = FitSettings(epochs=2, batch=1000, optimiser="lbfgs")


def _data(n: int) -> Data:
    x = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    return Data(x, np.sin(3 * x[:, 0]))


def _rank(seconds: float, monkeypatch, cost, rows: int = 5000) -> budget.RankChoice:
    """The choice where a fit of rank r takes cost(r) seconds."""
    monkeypatch.setattr(budget, "_seconds", lambda r, *_: cost(r))
    return rank_for(seconds, lambda r: r, _data(rows), SETTINGS)


def test_it_is_the_largest_rank_within_the_budget(monkeypatch):
    choice = _rank(60.0, monkeypatch, lambda r: 0.02 * r + 1e-4 * r**2)
    expected = 0.02 * np.arange(50, 4001, 50) + 1e-4 * np.arange(50, 4001, 50.0) ** 2
    assert choice.r == 50 + 50 * np.flatnonzero(expected <= 60)[-1]
    assert choice.seconds == pytest.approx(0.02 * choice.r + 1e-4 * choice.r**2)
    assert choice.seconds <= 60


def test_costs_that_grow_slower_than_r_count_as_linear(monkeypatch):
    assert _rank(30.0, monkeypatch, lambda r: 1.0 if r == 100 else 1.5).r == 3000


def test_there_is_a_largest_rank(monkeypatch):
    assert _rank(1e9, monkeypatch, lambda r: 1e-3 * r).r == MAX_RANK


def test_a_budget_that_no_rank_meets_is_refused(monkeypatch):
    with pytest.raises(RequestError, match=r"2 s is too short: even rank 50 takes about 50 s"):
        _rank(2.0, monkeypatch, float)


def test_the_rank_is_not_above_the_number_of_inputs(monkeypatch):
    assert _rank(1e9, monkeypatch, lambda r: 1e-3 * r, rows=420).r == 400


def test_the_time_is_measured_on_the_model_itself():
    data = _data(300)

    def make(r: int):
        return build("nystrom-mixed", Architecture(d=2, r=r), data.x, placement="kmeans++")

    few = rank_for(1e9, make, data, SETTINGS)
    assert few.r == 300
    assert few.seconds > 0
