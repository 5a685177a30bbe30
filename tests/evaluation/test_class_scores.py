"""Scores of class probabilities, compared with scikit-learn and with loops."""

import numpy as np
import pytest
from sklearn import metrics as peers

from geogp.errors import DataError
from geogp.evaluation.class_scores import (
    auroc,
    calibration_error,
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
    assert calibration_error(P, Y) == pytest.approx(error)
    assert class_scores(P, Y).ece == pytest.approx(error)
    assert calibration_terms(confidence, hit).mean() == pytest.approx(error)
    assert calibration_error(np.full((10, 2), 0.5), [0, 1] * 5) == pytest.approx(0)
    assert calibration_error(np.tile([1.0, 0.0], (4, 1)), [0, 0, 0, 1]) == pytest.approx(0.25)


def test_the_tables_of_reliability_count_every_row_once():
    one = reliability_of_class(P, Y, 2, bins=4)
    assert one["n"].sum() == 400
    assert ((one["lower"] < one["stated"]) & (one["stated"] <= one["upper"])).all()
    assert (one["n"] * one["observed"]).sum() == (Y == 2).sum()
    assert (one["n"] * one["stated"]).sum() == pytest.approx(P[:, 2].sum())


def test_true_probabilities_have_little_error_and_sharper_ones_have_more():
    sharper = P**3 / (P**3).sum(1, keepdims=True)
    assert calibration_error(P, Y) < 0.06 < calibration_error(sharper, Y)


@pytest.mark.parametrize("digits", [6, 0])
def test_the_area_under_the_curve_with_and_without_ties(digits):
    score, outlier = np.round(RNG.normal(size=300), digits), RNG.random(300) < 0.3
    expected = peers.roc_auc_score(outlier, score)
    assert auroc(score, outlier) == pytest.approx(expected)
    assert auroc(-score, outlier) == pytest.approx(1 - expected)


def test_infinite_scores_are_the_highest():
    assert auroc([np.inf, 1.0, np.inf], [True, False, False]) == pytest.approx(0.75)


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


@pytest.mark.parametrize(
    ("score", "outlier", "match"),
    [
        ([1.0, np.nan], [True, False], "no NaN"),
        ([1.0], [True, False], "as many scores"),
        ([1.0, 2.0], [True, True], "found 2 outliers of 2 rows"),
    ],
)
def test_an_area_that_is_not_defined_is_refused(score, outlier, match):
    with pytest.raises(DataError, match=match):
        auroc(score, outlier)
