"""Scores of class probabilities, compared with scikit-learn and with loops."""

import numpy as np
import pytest
from sklearn import metrics as peers

from geogp.errors import DataError
from geogp.evaluation.class_scores import (
    calibration_terms,
    class_row_scores,
    class_scores,
    reliability_of_class,
)

RNG = np.random.default_rng(0)
P = RNG.dirichlet([0.4] * 5, 400)
Y = np.array([RNG.choice(5, p=row) for row in P])


def test_the_scores_are_those_of_scikit_learn():
    found = class_scores(P, Y)
    assert found.n == 400
    assert found.accuracy == pytest.approx(peers.accuracy_score(Y, P.argmax(1)))
    assert found.nll == pytest.approx(peers.log_loss(Y, P))
    each = [peers.brier_score_loss(k == Y, P[:, k]) for k in range(5)]
    assert found.brier == pytest.approx(sum(each))


def test_the_ranked_probability_score_is_the_crps_of_the_number_of_the_class():
    found = class_row_scores(P, Y)
    number = np.arange(5)
    # E|X - y| - E|X - X'| / 2 (Gneiting and Raftery 2007).
    away = (P * np.abs(number - Y[:, None])).sum(1)
    apart = np.einsum("nj,nk,jk->n", P, P, np.abs(number - number[:, None]))
    assert found["rps"].to_numpy() == pytest.approx(away - apart / 2)
    sure, next_to_it = class_row_scores(np.eye(5)[[2, 1]], [2, 2])["rps"]
    assert (sure, next_to_it) == (0, 1)


def test_an_impossible_class_has_an_infinite_score():
    assert class_scores([[1.0, 0.0]], [1]).nll == np.inf


def test_the_calibration_error_by_a_loop():
    confidence, hit, error = P.max(1), P.argmax(1) == Y, 0.0
    for k in range(15):
        rows = (k / 15 < confidence) & (confidence <= (k + 1) / 15)
        if rows.any():
            error += rows.mean() * abs(hit[rows].mean() - confidence[rows].mean())
    assert class_scores(P, Y).ece == pytest.approx(error)
    assert calibration_terms(confidence, hit).mean() == pytest.approx(error)
    assert class_scores(np.full((10, 2), 0.5), [0, 1] * 5).ece == pytest.approx(0)
    assert calibration_terms(np.ones(4), [1, 1, 1, 0]).mean() == pytest.approx(0.25)


def test_the_tables_of_reliability_count_every_row_once():
    one = reliability_of_class(P, Y, 2, bins=4)
    assert one["n"].sum() == 400
    assert ((one["lower"] < one["stated"]) & (one["stated"] <= one["upper"])).all()
    assert (one["n"] * one["observed"]).sum() == (Y == 2).sum()
    assert (one["n"] * one["stated"]).sum() == pytest.approx(P[:, 2].sum())


def test_true_probabilities_have_little_error_and_sharper_ones_have_more():
    sharper = P**3 / (P**3).sum(1, keepdims=True)
    assert class_scores(P, Y).ece < 0.06 < class_scores(sharper, Y).ece


@pytest.mark.parametrize(
    ("p", "y", "match"),
    [
        ([[0.5, 0.6]], [0], "sum 1"),
        ([[1.5, -0.5]], [0], "from 0 to 1"),
        ([[0.5, 0.5]], [2], "from 0 to 1, found int64"),
        ([[0.5, 0.5]], [0.0], "found float64"),
        ([[0.5, 0.5]], [0, 1], r"found shapes \(1, 2\) and \(2,\)"),
        ([0.5, 0.5], [0], "shape"),
    ],
)
def test_what_are_no_probabilities_or_classes_is_refused(p, y, match):
    with pytest.raises(DataError, match=match):
        class_scores(p, y)
