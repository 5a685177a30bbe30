"""Laws of amounts: closed forms of log-normal laws, integrals, and probabilities of the ends."""

import json
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, lognorm, norm

from geogp.distributions.amounts import AmountPrediction, NormalScores
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, NumericalError, RequestError

LINE = np.array([-60.0, 60.0])
RAIN = NormalScores(
    "positive", np.array([-60.0, -0.5, 1.0, 2.0, 60.0]), np.array([-62, -2, 0.5, 1.5, 60.0]), -0.3
)
SHARE = NormalScores("proportion", LINE, 1.5 * LINE, -0.4, 1.1)


def predicted(mean, sd, scores):
    mean, sd = np.broadcast_arrays(np.asarray(mean, float), np.asarray(sd, float))
    return AmountPrediction.of(Prediction(mean, 0.4 * sd**2, 0.6 * sd**2), scores)


def test_a_straight_line_gives_a_log_normal_law():
    m, s, mean, sd = 0.3, 0.8, np.array([-1.0, 0.0, 2.0]), np.array([0.5, 1.0, 0.7])
    law = predicted(mean, sd, NormalScores("positive", LINE, m + s * LINE))
    true = lognorm(s * sd, scale=np.exp(m + s * mean))
    y = np.array([0.2, 1.5, 12.0])
    np.testing.assert_allclose(law.mean, true.mean(), rtol=1e-6)
    np.testing.assert_allclose(law.variance, true.var(), rtol=1e-4)
    np.testing.assert_allclose(law.function_variance, 0.4 * law.variance)
    np.testing.assert_allclose(law.quantile(0.9), true.ppf(0.9), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(y), true.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(law.exceedance(y), true.sf(y), atol=1e-12)
    np.testing.assert_allclose(law.log_score(y), -true.logpdf(y), rtol=1e-10)
    np.testing.assert_allclose(law.pit(y), true.cdf(y), rtol=1e-12)
    # The closed form of Baran and Lerch (2015).
    location, scale = m + s * mean, s * sd
    w = (np.log(y) - location) / scale
    crps = y * (2 * norm.cdf(w) - 1) - 2 * np.exp(location + scale**2 / 2) * (
        norm.cdf(w - scale) + norm.cdf(scale / np.sqrt(2)) - 1
    )
    np.testing.assert_allclose(law.crps(y), crps, rtol=5e-4)


@pytest.mark.parametrize("scores", [RAIN, SHARE], ids=["rain", "share"])
def test_scores_follow_from_the_distribution_function(scores):
    law = predicted([-0.8, 0.5], [0.6, 0.9], scores)
    most = 1.0 if scores is SHARE else 200.0
    for y in (0.0, 0.4, 0.9):
        for k in range(2):
            own = law[np.array([k])]
            ends = np.unique(np.array([0.0, 1e-3, 0.1, y, 1.0, 3.0, 10.0, most]).clip(max=most))
            integral = sum(
                quad(lambda x, own=own, y=y: (own.cdf(x)[0] - (y <= x)) ** 2, *piece)[0]
                for piece in pairwise(ends)
            )
            assert own.crps(y)[0] == pytest.approx(integral, rel=1e-3)
            expected = sum(
                quad(lambda x, own=own: own.exceedance(x)[0], *piece)[0] for piece in pairwise(ends)
            )
            assert own.mean[0] == pytest.approx(expected, rel=1e-3)


def test_the_density_is_the_slope_of_the_distribution_function():
    law = predicted([0.0, 0.4, -1.0], 0.8, RAIN)
    y, step = np.array([0.3, 2.0, 9.0]), 1e-6
    slope = (law.cdf(y + step) - law.cdf(y - step)) / (2 * step)
    np.testing.assert_allclose(law.log_score(y), -np.log(slope), rtol=1e-5)


def test_the_ends_of_the_range_have_the_probability_of_the_normal_scores_beyond():
    law = predicted([-1.0, 0.5, 1.3], 0.7, SHARE)
    z = norm(np.array([-1.0, 0.5, 1.3]), 0.7)
    np.testing.assert_allclose(law.cdf(0.0), z.cdf(-0.4), rtol=1e-12)
    np.testing.assert_allclose(np.exp(-law.log_score(0.0)), z.cdf(-0.4), rtol=1e-9)
    np.testing.assert_allclose(np.exp(-law.log_score(1.0)), z.sf(1.1), rtol=1e-9)
    assert (law.cdf(1.0) == 1).all()
    assert (law.cdf(-0.1) == 0).all()
    assert (law.exceedance(1.0) == 0).all()
    lower, upper = law.interval(0.5)
    assert lower[0] == 0.0
    assert upper[2] == 1.0
    mass = law.interval_mass(0.5)
    assert mass[0] == pytest.approx(z.cdf(-0.4)[0])
    np.testing.assert_array_less(0.5 - 1e-12, mass)
    np.testing.assert_allclose(predicted([9.0], 0.1, RAIN).interval_mass(0.8), 0.8)


def test_draws_have_the_distribution_and_their_pit_is_uniform():
    law = predicted(np.full(4000, -0.2), 0.8, RAIN)
    y = law.sample(1, random_state=3)[0]
    assert (y == 0).mean() == pytest.approx(law.cdf(0.0)[0], abs=0.03)
    assert y.mean() == pytest.approx(law.mean[0], rel=0.1)
    assert kstest(law.pit(y), "uniform").pvalue > 0.01
    np.testing.assert_array_equal(law.sample(2, random_state=3)[0], y)


def test_normal_scores_of_measurements_are_normal():
    random = np.random.default_rng(0)
    z = random.standard_normal(2500)
    y = np.where(z < -0.5, 0.0, np.exp(0.5 + 0.9 * z))
    scores = NormalScores.of("positive", y)
    assert scores.lower == pytest.approx(-0.5, abs=0.06)
    assert scores.upper == np.inf
    np.testing.assert_allclose(scores.score(y)[z > -0.4], z[z > -0.4], atol=0.2)
    np.testing.assert_array_equal(scores.score(np.zeros(1)), scores.lower)
    np.testing.assert_array_equal(scores.limits(y), -1 * (z < -0.5))
    np.testing.assert_allclose(scores.amount(scores.score(y)), y, rtol=1e-9)
    share = (z.clip(-1, 1.5) + 1) / 2.5
    limits = NormalScores.of("proportion", share).limits(share)
    np.testing.assert_array_equal(limits, 1 * (z >= 1.5) - (z <= -1))


def test_repeated_measurements_need_no_knot_each():
    y = np.array([0.1] * 50 + [0.2])
    scores = NormalScores.of("positive", y)
    np.testing.assert_allclose(scores.amount(scores.score(y)), y)
    rounded = NormalScores.of("positive", np.repeat([0.0, 0.2, 0.4, 5.0], [400, 900, 900, 3]))
    assert (np.diff(rounded.values) > 0).all()


def test_a_prediction_is_selected_and_widened_with_its_normal_scores():
    law = predicted([-0.4, 0.5, 1.0], 0.7, RAIN)
    np.testing.assert_array_equal(law[1:].quantile(0.8), law.quantile(0.8)[1:])
    np.testing.assert_allclose(law.widened(2).cdf(0.0), norm.cdf(-0.3, law.normal.mean, 1.4))
    np.testing.assert_array_equal(law.columns()["score_mean"], law.normal.mean)
    assert not law.has_power_mean
    with pytest.raises(NumericalError, match=r"expected predictions of logarithms for the mean"):
        law.power_mean(10)


def test_infinite_limits_are_stored_as_none():
    assert json.loads(json.dumps(RAIN.described())) == {
        "law": "positive",
        "scores": [-60.0, -0.5, 1.0, 2.0, 60.0],
        "values": [-62.0, -2.0, 0.5, 1.5, 60.0],
        "lower": -0.3,
        "upper": None,
    }


@pytest.mark.parametrize(
    ("law", "y", "match"),
    [
        ("positive", np.append(np.ones(30), -2.0), r"amounts of 0 or more .*found -2 in row 30"),
        ("proportion", np.append(np.ones(30), 12.5), r"from 0 to 1 .*found 12.5 in row 30"),
        ("positive", np.append(np.zeros(30), [1.0, 2.0]), r"10 or more .*not all equal, found 2\."),
        ("positive", np.ones(30), r"not all equal, found 30\."),
    ],
)
def test_other_measurements_are_refused(law, y, match):
    with pytest.raises(DataError, match=match):
        NormalScores.of(law, y)


def test_wrong_knots_and_levels_are_refused():
    with pytest.raises(DataError, match="two or more knots of one of the laws positive, prop"):
        NormalScores("gamma", LINE, LINE)
    with pytest.raises(DataError, match="increasing knots"):
        NormalScores("positive", LINE, -LINE)
    with pytest.raises(DataError, match="limits in order"):
        NormalScores("positive", LINE, LINE, 2.0, 1.0)
    with pytest.raises(RequestError, match="a level between 0 and 1"):
        predicted([0.0], 1.0, RAIN).interval_mass(95)
