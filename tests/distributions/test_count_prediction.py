"""Predictions of counts against SciPy's laws and sums and integrals by brute force."""

import numpy as np
import pytest
import scoringrules
from scipy import integrate, stats

from geogp.distributions.count_prediction import CountPrediction, predict_counts
from geogp.errors import DataError, NumericalError, RequestError

DISPERSIONS = [0.0, 0.3, 4.0]


def law_of(rate, dispersion):
    """SciPy's law of a count given its rate."""
    if dispersion == 0:
        return stats.poisson(rate)
    return stats.nbinom(1 / dispersion, 1 / (1 + dispersion * rate))


def known(rates, dispersion):
    """The prediction of counts whose rates are known."""
    rates = np.asarray(rates, float)
    return predict_counts(np.log(rates), np.zeros(len(rates)), np.full(len(rates), dispersion))


def mixed(m, s, dispersion, of):
    """Integrate `of(law)` over log rate ~ N(m, s²), by Simpson's rule on 8,001 points."""
    z = np.linspace(-9, 9, 8001)
    values = stats.norm.pdf(z) * of(law_of(np.exp(m + s * z), dispersion))
    return integrate.simpson(values, x=z)


@pytest.mark.parametrize("dispersion", DISPERSIONS)
class TestKnownRate:
    RATES = (0.02, 0.7, 5.0, 40.0, 900.0)

    def test_is_the_law_of_scipy(self, dispersion):
        prediction, law = known(self.RATES, dispersion), law_of(np.array(self.RATES), dispersion)
        np.testing.assert_allclose(prediction.mean, law.mean(), rtol=1e-12)
        np.testing.assert_allclose(prediction.variance, law.var(), rtol=1e-9)
        for probability in (0.001, 0.025, 0.5, 0.9, 0.975, 0.9999):
            expected = law.ppf(probability)
            np.testing.assert_array_equal(prediction.quantile(probability), expected)
        for y in (0, 1, 3, 38, 905):
            counts = np.full(5, float(y))
            np.testing.assert_allclose(prediction.cdf(counts), law.cdf(y), rtol=1e-9, atol=1e-14)
            np.testing.assert_allclose(prediction.exceedance(y), law.sf(y), rtol=1e-6, atol=1e-12)
            np.testing.assert_allclose(prediction.log_score(counts), -law.logpmf(y), rtol=1e-9)
        np.testing.assert_array_equal(prediction.cdf(np.full(5, -1.0)), 0.0)
        np.testing.assert_array_equal(prediction.median, law.median())

    @pytest.mark.parametrize("y", [0, 4, 60])
    def test_crps_is_the_sum_by_hand(self, dispersion, y):
        prediction, law = known(self.RATES, dispersion), law_of(np.array(self.RATES), dispersion)
        k = np.arange(40_000)[:, None]
        expected = ((law.cdf(k) - (y <= k)) ** 2).sum(0)
        # The widest is summed over some of its counts only.
        np.testing.assert_allclose(prediction.crps(np.full(5, float(y))), expected, rtol=1e-3)
        np.testing.assert_allclose(
            prediction.crps(np.full(5, float(y)))[:4], expected[:4], rtol=1e-6
        )

    def test_crps_is_that_of_scoringrules(self, dispersion):
        rates, y = np.array(self.RATES[:4]), np.array([1.0, 0.0, 9.0, 31.0])
        if dispersion:
            a = 1 / dispersion
            expected = scoringrules.crps_negbinom(y, a, prob=a / (a + rates))
        else:
            expected = scoringrules.crps_poisson(y, rates)
        np.testing.assert_allclose(known(rates, dispersion).crps(y), expected, rtol=1e-6)

    def test_crps_is_half_a_mean_of_distances(self, dispersion):
        """E|Y - y| - ½ E|Y - Y'| from samples (Gneiting and Raftery 2007, equation 21)."""
        random = np.random.default_rng(0)
        one, other = law_of(5.0, dispersion).rvs((2, 400_000), random_state=random)
        expected = np.abs(one - 7).mean() - 0.5 * np.abs(one - other).mean()
        assert known([5.0], dispersion).crps([7.0])[0] == pytest.approx(expected, abs=0.03)

    def test_intervals_hold_their_level_or_more(self, dispersion):
        prediction, law = known(self.RATES, dispersion), law_of(np.array(self.RATES), dispersion)
        for level in (0.5, 0.8, 0.95):
            lower, upper = prediction.interval(level)
            mass = law.cdf(upper) - law.cdf(lower - 1)
            assert (mass >= level - 1e-12).all()
            np.testing.assert_allclose(prediction.interval_mass(level), mass, rtol=1e-9)
            assert (law.cdf(lower - 1) < (1 - level) / 2).all()
            assert (law.sf(upper) <= (1 - level) / 2).all()


@pytest.mark.parametrize("dispersion", DISPERSIONS)
@pytest.mark.parametrize(("m", "s"), [(-2.0, 0.8), (1.0, 0.3), (4.0, 0.6), (5.5, 1.5)])
class TestUncertainRate:
    def test_probabilities_are_integrals_over_the_rate(self, m, s, dispersion):
        prediction = predict_counts(*(np.array([v]) for v in (m, s**2, dispersion)))
        for y in (0.0, 2.0, 55.0, 300.0):
            cdf = mixed(m, s, dispersion, lambda law, y=y: law.cdf(y))
            assert prediction.cdf([y])[0] == pytest.approx(cdf, abs=2e-8)
            mass = mixed(m, s, dispersion, lambda law, y=y: law.pmf(y))
            if mass > 1e-8:
                assert prediction.log_score([y])[0] == pytest.approx(-np.log(mass), abs=1e-5)

    def test_moments(self, m, s, dispersion):
        prediction = predict_counts(*(np.array([v]) for v in (m, s**2, dispersion)))
        mean = np.exp(m + s**2 / 2)
        assert prediction.mean[0] == pytest.approx(mean)
        assert prediction.function_variance[0] == pytest.approx(
            stats.lognorm(s, scale=np.exp(m)).var()
        )
        given = mixed(m, s, dispersion, lambda law: law.var())
        assert prediction.noise_variance[0] == pytest.approx(given, rel=1e-6)
        assert prediction.log_rate_mean[0] == pytest.approx(m)
        assert prediction.log_rate_variance[0] == pytest.approx(s**2)

    def test_quantiles_turn_the_distribution_around(self, m, s, dispersion):
        prediction = predict_counts(*(np.array([v]) for v in (m, s**2, dispersion)))
        for probability in (0.025, 0.5, 0.975):
            at = prediction.quantile(probability)
            assert prediction.cdf(at)[0] >= probability - 1e-9
            assert prediction.cdf(at - 1)[0] < probability + 1e-9


def test_crps_of_wide_distributions_is_the_whole_sum():
    """Sums beyond 4,096 counts take some of them; here against all."""
    prediction = predict_counts(*(np.array([v]) for v in (7.0, 0.5, 0.8)))
    k = np.arange(60_000.0)
    spread = CountPrediction(
        *(np.repeat(part, len(k)) for part in (prediction.mean, prediction.function_variance)),
        np.repeat(prediction.noise_variance, len(k)),
        dispersion=np.repeat(prediction.dispersion, len(k)),
    )
    F = np.concatenate(
        [spread[rows].cdf(k[rows]) for rows in np.array_split(np.arange(0, 60_000, 20), 8)]
    )
    at = k[::20] + 10
    expected = 20 * ((F - (at >= 1500)) ** 2).sum()
    assert prediction.crps([1500.0])[0] == pytest.approx(expected, rel=0.02)


def test_transforms_of_right_predictions_are_uniform():
    random = np.random.default_rng(1)
    m, s, dispersion = random.uniform(-3, 3, 20_000), 0.5, 0.7
    rate = np.exp(m + s * random.standard_normal(20_000)) * random.gamma(
        1 / dispersion, dispersion, 20_000
    )
    y = random.poisson(rate).astype(float)
    prediction = predict_counts(m, np.full(20_000, s**2), np.full(20_000, dispersion))
    assert stats.kstest(prediction.pit(y), "uniform").pvalue > 0.01
    plain = predict_counts(m, np.full(20_000, s**2), np.zeros(20_000))
    assert stats.kstest(plain.pit(y), "uniform").pvalue < 1e-6
    lower, upper = prediction.interval(0.95)
    held = np.mean((lower <= y) & (y <= upper))
    assert held == pytest.approx(prediction.interval_mass(0.95).mean(), abs=0.005)


def test_a_sum_of_tiles_is_that_of_samples():
    random = np.random.default_rng(2)
    counts = (
        stats.nbinom(1 / 2.0, 1 / (1 + 2.0 * 3.0)).rvs((200_000, 4), random_state=random).sum(1)
    )
    pooled = known([3.0], 2.0).pooled(4)
    assert pooled.mean[0] == pytest.approx(12)
    for y in (0, 5, 20):
        assert pooled.cdf([float(y)])[0] == pytest.approx((counts <= y).mean(), abs=0.005)


def test_parts_are_those_of_the_whole():
    random = np.random.default_rng(3)
    prediction = predict_counts(
        random.normal(0, 2, 50), random.uniform(0, 1, 50), random.uniform(0, 3, 50)
    )
    whole = prediction.quantile(0.9)
    rows = np.arange(0, 50, 3)
    fresh = CountPrediction(
        *(prediction.columns()[name] for name in ("mean", "function_variance", "noise_variance")),
        dispersion=prediction.dispersion,
    )
    np.testing.assert_array_equal(prediction[rows].quantile(0.9), whole[rows])
    np.testing.assert_array_equal(fresh[rows].quantile(0.9), whole[rows])


@pytest.mark.parametrize("wrong", [[-1.0], [0.5], [np.nan], [1.0, 2.0]])
def test_observations_that_are_no_counts_are_refused(wrong):
    with pytest.raises(DataError, match="expected 1 counts, whole numbers of 0 or more"):
        known([2.0], 0.0).log_score(wrong)


def test_parts_that_contradict_each_other_are_refused():
    one = np.ones(1)
    with pytest.raises(NumericalError, match="expected noise variances equal to mean"):
        CountPrediction(one, one, 2 * one, dispersion=0 * one)
    with pytest.raises(NumericalError, match="means above 0 and dispersions of 0 or more"):
        CountPrediction(one, one, one, dispersion=-one)
    with pytest.raises(NumericalError, match="not finite"):
        predict_counts(800 * one, one, one)
    with pytest.raises(NumericalError, match="for the mean of 10"):
        known([2.0], 0.0).power_mean(10.0)
    with pytest.raises(RequestError, match="between 0 and 1, found 1"):
        known([2.0], 0.0).quantile(1.0)


@pytest.mark.parametrize(
    ("rate", "sd", "y"), [(10.0, 1.5, 22500), (10.0, 1.5, 22000), (8.0, 1.5, 3000)]
)
def test_large_counts_of_a_wide_rate_keep_their_digits(rate, sd, y):
    """The law given the rate is hundreds of times narrower than that of the rate."""
    found = predict_counts(np.log([rate]), np.array([sd**2]), np.zeros(1)).log_score(np.array([y]))
    place = (np.log(y) - np.log(rate)) / sd

    def density(z):
        return stats.poisson.pmf(y, rate * np.exp(sd * z)) * stats.norm.pdf(z)

    ends = place - 0.2, place + 0.2
    exact = integrate.quad(density, *ends, points=[place], epsabs=0, epsrel=1e-10, limit=500)[0]
    assert found[0] == pytest.approx(-np.log(exact), abs=1e-6)
