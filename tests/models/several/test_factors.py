"""Factors of several targets: uncorrelated, at no distance and between near rows."""

import numpy as np
import pytest

from geogp.errors import DataError
from geogp.models.several.factors import Factors, completed

NAMES = ("a", "b", "c")


@pytest.fixture
def rows():
    """Return places and three targets, which are linear in two smooth functions and noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (3000, 2))
    smooth = np.column_stack([np.sin(3 * x[:, 0]), np.cos(4 * x[:, 1]), x[:, 0] * x[:, 1]])
    noise = rng.standard_normal((3000, 3)) @ np.array([[0.4, 0.3, 0], [0, 0.3, 0.2], [0, 0, 0.5]])
    return x, 50 + smooth @ np.array([[10, 6, -3], [2, 5, 1], [0, 4, 6.0]]) + 5 * noise


def test_factors_are_uncorrelated_together_and_between_near_rows(rows):
    x, y = rows
    factors = Factors.of(x, y, NAMES)
    z = factors.scores(y)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(z.T, bias=True), np.eye(3), atol=0.01)
    distance = ((x[:, None] - x[None]) ** 2).sum(-1) + 9 * np.eye(len(x))
    gap = z - z[distance.argmin(1)]
    half = gap.T @ gap / (2 * len(gap))
    assert np.abs(half - np.diag(np.diag(half))).max() < 0.01
    assert np.diag(half)[0] < 0.5 * np.diag(half)[2], "the first factor is the smoothest"


def test_targets_and_factors_are_each_others_inverse(rows):
    x, y = rows
    factors = Factors.of(x, y, NAMES)
    np.testing.assert_allclose(factors.mean(factors.scores(y)), y, rtol=1e-10)
    draws = np.random.default_rng(1).standard_normal((200_000, 3)) * [1.0, 2.0, 0.5]
    variance = factors.variance(np.array([[1.0, 4.0, 0.25]]))[0]
    np.testing.assert_allclose(factors.mean(draws).var(0), variance, rtol=0.02)
    covariance = factors.mixing @ np.diag([1.0, 4.0, 0.25]) @ factors.mixing.T
    np.testing.assert_allclose(factors.score_variance(covariance[None])[0], [1, 4, 0.25])


def test_targets_that_rows_lack_are_predicted_with_the_right_errors(rows):
    x, y = rows
    rng, known = np.random.default_rng(2), y.copy()
    lacks_b, lacks_more = rng.random(3000) < 0.3, rng.random(3000) < 0.1
    known[lacks_b, 1] = np.nan
    known[lacks_more, 1:] = np.nan
    lacks_b &= ~lacks_more
    filled = completed(x, known, NAMES)
    there = ~np.isnan(known)
    np.testing.assert_array_equal(filled.y[there], y[there])
    assert not filled.covariance[there.all(1)].any()
    for some, columns in ((lacks_b, [1]), (lacks_more, [1, 2])):
        errors = (y - filled.y)[some][:, columns]
        stated = filled.covariance[some][0][np.ix_(columns, columns)]
        np.testing.assert_allclose(errors.T @ errors / len(errors), stated, rtol=0.2, atol=2)
        assert stated[0, 0] < 0.5 * y[:, 1].var()
    drawn = filled.drawn(0)
    np.testing.assert_array_equal(drawn[there], y[there])
    spread = (drawn - filled.y)[lacks_b, 1].std()
    assert spread == pytest.approx(np.sqrt(filled.covariance[lacks_b][0][1, 1]), rel=0.1)
    np.testing.assert_array_equal(drawn, filled.drawn(0))


def test_complete_rows_stay(rows):
    x, y = rows
    filled = completed(x, y, NAMES)
    np.testing.assert_array_equal(filled.y, y)
    np.testing.assert_array_equal(filled.drawn(0), y)


def test_targets_that_tell_each_other_are_refused(rows):
    x, y = rows
    with pytest.raises(DataError, match="expected targets that vary, found b"):
        Factors.of(x, y * [1, 0, 1], NAMES)
    with pytest.raises(DataError, match="some of a, b, c determine another"):
        Factors.of(x, np.column_stack([y[:, :2], 3 - 2 * y[:, 0]]), NAMES)


def test_few_complete_rows_are_refused(rows):
    x, y = rows
    y[29:, 2] = np.nan
    with pytest.raises(DataError, match="30 rows or more that have all of a, b, c, found 29"):
        completed(x, y, NAMES)
