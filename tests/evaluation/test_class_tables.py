"""Shares of classes as a baseline, and errors of calibration by class."""

import numpy as np
import pandas as pd
import pytest

from geogp.errors import DataError
from geogp.evaluation.class_scores import class_calibration_errors, class_scores
from geogp.evaluation.class_tables import check_class_columns, group_shares, table_scores
from geogp.evaluation.threshold_reliability import class_events, exceedance_reports

RNG = np.random.default_rng(0)


def test_shares_by_a_loop():
    group, code = RNG.integers(0, 3, 200), RNG.choice(4, 200, p=[0.5, 0.3, 0.2, 0.0])
    asked = np.array([0, 1, 2, 7, 0])
    every = np.array([(code == k).sum() + 1 for k in range(4)]) / 204
    for row, found in zip(asked, group_shares(group, code, asked, 4), strict=True):
        own = code[group == row]
        expected = [((own == k).sum() + every[k]) / (len(own) + 1) for k in range(4)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert group_shares(group, code, asked, 4).min() > 0


def test_probabilities_that_drew_the_classes_are_calibrated():
    p = RNG.dirichlet([1.0] * 3, 20_000)
    y = (p.cumsum(1) < RNG.random((len(p), 1))).sum(1)
    assert max(class_calibration_errors(p, y)) < 0.02
    wrong = np.column_stack([p[:, 0] + p[:, 1], 0 * p[:, 1], p[:, 2]])
    first, second, third = class_calibration_errors(wrong, y)
    assert first == pytest.approx(p[:, 1].mean(), abs=0.02)
    assert second == pytest.approx((y == 1).mean())
    assert third < 0.02


def test_scores_by_stratum_are_those_of_the_rows():
    p = RNG.dirichlet([1.0] * 3, 60)
    table = pd.DataFrame(p, columns=list("abc"))
    table["y"], table["stratum"] = RNG.integers(0, 3, 60).astype(float), "urban"
    table.loc[:9, "stratum"] = "unknown"
    found = table_scores(table, list("abc"))
    assert found["all"] == class_scores(p, table["y"].astype(int))
    assert found["urban"] == class_scores(p[10:], table["y"][10:].astype(int))
    assert (found["rural"].n, found["rural"].nll) == (0, None)


def test_events_are_each_class_and_the_higher_ones():
    events = class_events(("low", "middle", "high", "top"))
    assert [one.met for one in events] == ["low", "middle", "high", "top", "at least high"]
    y, p = np.array([0.0, 1.0, 2.0, 3.0]), np.array([[0.1, 0.2, 0.3, 0.4]])
    assert events[1].holds(y).tolist() == [False, True, False, False]
    assert events[4].holds(y).tolist() == [False, False, True, True]
    assert [float(one.probability(p)[0]) for one in events] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.7]
    )


def test_reliability_of_events_states_mean_and_share():
    n = 4000
    p = RNG.dirichlet([1.0] * 3, n)
    y = (p.cumsum(1) < RNG.random((n, 1))).sum(1)
    rows = pd.DataFrame(
        {
            "y": y.astype(float),
            "longitude": RNG.uniform(0, 5, n),
            "latitude": RNG.uniform(0, 5, n),
            "quarter": "2023Q4",
            "stratum": "urban",
        }
    )
    events = class_events(("a", "b", "c"))
    found = exceedance_reports(rows, lambda event: event.probability(p), events, draws=200)
    assert [one.meets for one in found if one.group == "all"] == ["a", "b", "c"]
    for code, one in enumerate(one for one in found if one.group == "all"):
        assert one.stated == pytest.approx(p[:, code].mean())
        assert one.observed == pytest.approx((y == code).mean())
        assert one.brier == pytest.approx(((p[:, code] - (y == code)) ** 2).mean())
        assert not one.difference.off


def test_a_table_without_columns_is_refused():
    with pytest.raises(DataError, match="lacks the columns split"):
        check_class_columns(pd.DataFrame({"y": [1.0]}), [])
