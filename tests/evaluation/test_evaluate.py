"""Scores as a table: each row is that of its rows alone."""

import numpy as np
import pandas as pd
import pytest

from geogp.distributions.prediction import Prediction
from geogp.errors import DataError
from geogp.evaluation.evaluate import evaluate
from geogp.evaluation.metrics import score


@pytest.fixture
def law():
    random = np.random.default_rng(0)
    return Prediction(random.normal(0, 1, 60), np.full(60, 0.3), random.uniform(0.5, 1, 60))


def test_each_row_is_the_score_of_its_rows(law):
    y = np.random.default_rng(1).normal(0, 1, 60)
    groups = pd.Series(np.where(np.arange(60) < 20, "b", "a"), index=range(100, 160))
    found = evaluate(law, y, groups)
    assert found.index.tolist() == ["all", "a", "b"]
    for name, rows in {
        "all": np.ones(60, np.bool_),
        "a": groups == "a",
        "b": groups == "b",
    }.items():
        chosen = np.asarray(rows)
        expected = score(law[chosen], y[chosen])
        for column in found.columns:
            assert found.loc[name, column] == pytest.approx(getattr(expected, column))


def test_groups_may_be_absent_or_missing(law):
    assert evaluate(law, np.zeros(60)).index.tolist() == ["all"]
    groups = [None, *["a"] * 59]
    assert evaluate(law, np.zeros(60), groups).loc["a", "n"] == 59


@pytest.mark.parametrize(
    ("groups", "match"), [(["a"], "each of 60 rows"), (["all"] * 60, "group names other than")]
)
def test_groups_that_are_refused(law, groups, match):
    with pytest.raises(DataError, match=match):
        evaluate(law, np.zeros(60), groups)
