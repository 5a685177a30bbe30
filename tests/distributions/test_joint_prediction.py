"""Joint predictions of several targets: a Gaussian copula of known marginals."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import geogp
from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.distributions.sinh_arcsinh import shape_of
from geogp.errors import DataError, NumericalError, RequestError

NAMES = ("download", "upload", "latency")
R = np.array([[1.0, 0.7, -0.5], [0.7, 1.0, -0.3], [-0.5, -0.3, 1.0]])
MEAN = np.array([1.5, 0.8, 1.6])
SD = np.array([0.4, 0.3, 0.2])


def normal(n=4, t=3):
    """Return normal marginals at n points, so that all targets are jointly normal."""
    parts = [
        Prediction(np.full(n, MEAN[k]), np.full(n, SD[k] ** 2 / 2), np.full(n, SD[k] ** 2 / 2))
        for k in range(t)
    ]
    return JointPrediction(NAMES[:t], tuple(parts), np.tile(R[:t, :t], (n, 1, 1)))


@pytest.fixture
def skewed():
    n = 3
    shape = shape_of(np.full(n, 0.4), np.full(n, 0.8))
    first = Prediction(np.arange(n, dtype=float), np.full(n, 0.5), np.full(n, 0.5), shape=shape)
    second = Prediction(np.zeros(n), np.full(n, 0.2), np.full(n, 0.1))
    return JointPrediction(("a", "b"), (first, second), np.tile(R[:2, :2], (n, 1, 1)))


def test_with_normal_marginals_the_density_is_that_of_scipy():
    law = multivariate_normal(MEAN, R * np.outer(SD, SD))
    y = law.rvs(4, random_state=1)
    np.testing.assert_allclose(normal().joint_log_score(y), -law.logpdf(y), rtol=1e-10)


@pytest.mark.parametrize("t", [1, 2, 3])
def test_probabilities_of_boxes_are_those_of_scipy(t):
    low, high = MEAN[:t] - SD[:t] * [0.3, 1.0, 2.0][:t], MEAN[:t] + SD[:t] * [2.0, 0.5, 1.5][:t]
    law = multivariate_normal(MEAN[:t], (R * np.outer(SD, SD))[:t, :t], seed=0)
    expected = law.cdf(high, lower_limit=low)
    found = normal(t=t).probability(at_least=low, at_most=high)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_target_without_limits_does_not_matter():
    joint = normal()
    one = joint.probability(at_least={"download": 1.7})
    np.testing.assert_allclose(one, joint.marginal("download").exceedance(1.7), rtol=1e-12)
    both = joint.probability(at_least={"download": 1.7}, at_most={"latency": 1.6})
    np.testing.assert_allclose(
        both, joint.probability([1.7, None, None], [None, None, 1.6]), rtol=1e-12
    )


def test_limits_may_differ_between_points():
    limits = np.array([1.0, 1.4, 1.8, 2.2])
    found = normal().probability(at_least={"download": limits, "upload": 0.5})
    assert (np.diff(found) < 0).all()
    single = [normal(1).probability(at_least={"download": one, "upload": 0.5})[0] for one in limits]
    np.testing.assert_allclose(found, single, rtol=1e-12)


def test_draws_have_the_marginals_and_the_correlation(skewed):
    draws = skewed.sample(40_000, random_state=3)
    assert draws.shape == (40_000, 3, 2)
    scores = np.stack([skewed.normal_scores(draw) for draw in draws[:4_000]])
    for point in range(3):
        assert np.corrcoef(scores[:, point].T)[0, 1] == pytest.approx(0.7, abs=0.03)
        for k, name in enumerate(("a", "b")):
            marginal = skewed.marginal(name)
            inside = draws[:, point, k] <= marginal.quantile(0.2)[point]
            assert inside.mean() == pytest.approx(0.2, abs=0.01)
    share = ((draws[:, 0, 0] > 0.5) & (draws[:, 0, 1] > 0.1)).mean()
    assert skewed.probability(at_least=[0.5, 0.1])[0] == pytest.approx(share, abs=0.01)


def test_the_density_integrates_to_1_and_missing_targets_are_integrated_out(skewed):
    one = skewed[:1]
    marginal = one.marginal("b")
    grid = np.linspace(-15, 25, 4001)
    y = np.column_stack([grid, np.full(len(grid), 0.3)])
    rows = JointPrediction(
        one.names,
        tuple(part[np.zeros(len(grid), int)] for part in one.marginals),
        np.tile(one.correlation, (len(grid), 1, 1)),
    )
    total = np.trapezoid(np.exp(-rows.joint_log_score(y)), grid)
    alone = -one.joint_log_score([[np.nan, 0.3]])[0]
    assert np.log(total) == pytest.approx(alone, abs=1e-6)
    assert alone == pytest.approx(-marginal.log_score([0.3])[0], rel=1e-12)
    assert one.joint_log_score([[np.nan, np.nan]])[0] == 0


def test_independent_targets_have_the_sum_of_the_scores(skewed):
    apart = JointPrediction(skewed.names, skewed.marginals, np.tile(np.eye(2), (3, 1, 1)))
    y = np.array([[0.1, 0.2], [1.5, -0.4], [2.2, 0.0]])
    expected = sum(apart.marginals[k].log_score(y[:, k]) for k in range(2))
    np.testing.assert_allclose(apart.joint_log_score(y), expected, rtol=1e-12)
    product = apart.marginals[0].exceedance(0.4) * apart.marginals[1].exceedance(0.1)
    np.testing.assert_allclose(apart.probability(at_least=[0.4, 0.1]), product, rtol=1e-9)


def test_the_energy_score_of_one_target_is_the_crps():
    joint, y = normal(50, t=1), np.linspace(0.5, 2.5, 50)
    found = joint.energy_score(y[:, None], draws=2000)
    np.testing.assert_allclose(found, joint.marginals[0].crps(y), atol=0.02)
    assert np.isnan(joint.energy_score(np.full((50, 1), np.nan), draws=1)).all()


def test_the_energy_score_prefers_the_right_correlation():
    right = normal(2000)
    wrong = JointPrediction(NAMES, right.marginals, np.tile(np.eye(3), (2000, 1, 1)))
    y = right.sample(random_state=5)[0]
    gap = wrong.energy_score(y, scale=SD) - right.energy_score(y, scale=SD)
    assert gap.mean() > 3 * gap.std() / np.sqrt(len(gap))


def test_columns_are_those_of_the_marginals(skewed):
    lower, upper = skewed.interval(0.8)
    for k, marginal in enumerate(skewed.marginals):
        np.testing.assert_array_equal(lower[:, k], marginal.interval(0.8)[0])
        np.testing.assert_array_equal(upper[:, k], marginal.interval(0.8)[1])
        for name in ("mean", "median", "sd"):
            np.testing.assert_array_equal(getattr(skewed, name)[:, k], getattr(marginal, name))
    assert len(skewed[[0, 2]]) == 2
    assert "a, median" in skewed._repr_html_()
    assert geogp.JointPrediction is JointPrediction


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda joint: joint.marginal("speed"), "expected one of the targets download, upload"),
        (lambda joint: joint.marginal(3), "or its number from 0, found 3"),
        (lambda joint: joint.probability(), "a limit for one target or more, found none"),
        (lambda joint: joint.probability([2, 0, 0], [1, 1, 1]), "found a lower limit above"),
        (lambda joint: joint.probability({"speed": 1}), "expected limits of .*, found speed"),
        (lambda joint: joint.probability([1, 2]), "a limit .or None. for each of .*, found 2"),
        (lambda joint: joint.interval(95), "Give 95 % as 0.95"),
        (lambda joint: joint.sample(0), "a size"),
    ],
)
def test_wrong_requests_are_refused(call, message):
    with pytest.raises(RequestError, match=message):
        call(normal())


def test_wrong_measurements_are_refused():
    with pytest.raises(DataError, match=r"expected measurements of shape \(4, 3\)"):
        normal().joint_log_score(np.zeros((4, 2)))
    with pytest.raises(DataError, match="measurements"):
        normal().joint_log_score([["fast", "slow", "slow"]] * 4)
    for limit in (np.nan, np.zeros(3)):
        with pytest.raises(DataError, match="expected 4 limits of upload, one for each row"):
            normal().probability({"upload": limit})
    with pytest.raises(DataError, match="found infinity"):
        normal().joint_log_score(np.full((4, 3), np.inf))
    with pytest.raises(DataError, match="expected 3 scales above 0"):
        normal().energy_score(np.zeros((4, 3)), scale=[1, 1, 0])


def test_impossible_correlations_are_refused():
    parts = normal(2, t=2).marginals
    with pytest.raises(NumericalError, match="positive definite"):
        JointPrediction(NAMES[:2], parts, np.tile([[1.0, 1.2], [1.2, 1.0]], (2, 1, 1)))
    with pytest.raises(NumericalError, match="correlations of shape"):
        JointPrediction(NAMES[:2], parts, np.eye(2))
