"""Joint regions against exact orthant probabilities, and where they are known in closed form."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from geogp.errors import DataError, RequestError
from geogp.models.joint.excursions import FirstMisses, JointRegion


def drawn(mean, covariance, threshold=0.0, draws=40_000, seed=0) -> FirstMisses:
    """First misses of draws of a Gaussian, in batches."""
    random = np.random.default_rng(seed)
    found = FirstMisses((mean - threshold) / np.sqrt(np.diag(covariance)))
    for _ in range(draws // 1000):
        found.add(random.multivariate_normal(mean, covariance, 1000) >= threshold)
    return found


def exact(mean, covariance, threshold=0.0):
    """F of each point by orthant probabilities of the leading sets."""
    order = np.argsort(-(mean - threshold) / np.sqrt(np.diag(covariance)))
    found = np.empty(len(mean))
    for k in range(1, len(mean) + 1):
        inside = order[:k]
        # P(all above u) = P(all of -x below -u)
        law = multivariate_normal(-mean[inside], covariance[np.ix_(inside, inside)], seed=1)
        found[order[k - 1]] = law.cdf(np.full(k, -threshold))
    return found


def field(n=6, seed=2, length=2.0):
    random = np.random.default_rng(seed)
    place = np.arange(n)
    sd = random.uniform(0.5, 1.5, n)
    covariance = np.exp(-np.abs(place[:, None] - place) / length) * np.outer(sd, sd)
    return random.uniform(0.5, 3.5, n), covariance


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_the_excursion_function_is_that_of_orthant_probabilities(seed):
    mean, covariance = field(seed=seed)
    region = drawn(mean, covariance).region()
    wanted = exact(mean, covariance)
    np.testing.assert_allclose(region.excursion, wanted, atol=0.006)
    clear = np.abs(wanted - 0.95) > 0.006
    np.testing.assert_array_equal(region.inside[clear], wanted[clear] >= 0.95)
    assert 0.1 < wanted.min() < wanted.max()


def test_independent_points_multiply():
    mean = np.array([3.0, 2.5, 2.2, 2.0, 1.0, 0.5])
    region = drawn(mean, np.eye(6)).region(0.9)
    np.testing.assert_allclose(region.excursion, np.cumprod(norm.cdf(mean)), atol=0.006)
    assert region.inside.tolist() == [True] * 4 + [False] * 2


def test_points_that_move_together_are_as_sure_as_the_least():
    mean = np.array([3.0, 2.0, 1.7, 1.5, 0.5])
    region = drawn(mean, np.ones((5, 5)) + 1e-12 * np.eye(5)).region()
    np.testing.assert_allclose(region.excursion, norm.cdf(mean), atol=0.006)
    assert region.inside.tolist() == [True, True, True, False, False]


def test_the_region_lies_within_the_marginal_one_and_regions_are_nested():
    mean, covariance = field(40, length=5.0)
    found = drawn(mean, covariance, draws=2000)
    marginal = norm.cdf(mean / np.sqrt(np.diag(covariance)))
    before: JointRegion | None = None
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        region = found.region(level)
        assert not (region.inside & (marginal < level)).any()
        assert (region.excursion <= marginal).all()
        assert region.probability >= level
        assert region.lower <= region.probability <= region.upper
        assert region.fewest <= region.inside.sum() <= region.most
        if before is not None:
            assert not (region.inside & ~before.inside).any()
            np.testing.assert_array_equal(region.excursion, before.excursion)
        before = region


def test_a_higher_threshold_is_met_in_a_smaller_region():
    mean, covariance = field(20)
    sd = np.sqrt(np.diag(covariance))
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, 3000)
    sizes, before = [], np.ones(20)
    for threshold in (-3.0, -1.0, 0.0, 1.0, 3.0):
        found = FirstMisses((mean - threshold) / sd)
        found.add(draws >= threshold)
        region = found.region()
        sizes.append(int(region.inside.sum()))
        assert region.excursion.max() <= before.max()
        before = region.excursion
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 10
    assert sizes[-1] == 0


def test_an_empty_region_says_so():
    region = drawn(np.full(4, -2.0), np.eye(4), draws=1000).region()
    assert not region.inside.any()
    assert (region.probability, region.lower, region.upper) == (1.0, 1.0, 1.0)
    assert (region.fewest, region.most) == (0, 0)


def test_a_region_that_holds_everything():
    region = drawn(np.full(4, 9.0), np.eye(4), draws=1000).region()
    assert region.inside.all()
    assert (region.probability, region.fewest, region.most) == (1.0, 4, 4)
    assert 0.99 < region.lower < 1


def test_points_of_one_score_enter_together():
    found = FirstMisses(np.array([2.0, 5.0, 2.0, 1.0]))
    met = np.ones((1000, 4), bool)
    met[:30, 0] = False
    met[30:60, 2] = False
    met[60:200, 3] = False
    found.add(met)
    region = found.region(0.9)
    assert region.excursion[[1, 0, 2]] == pytest.approx([1.0, 0.94, 0.94], abs=1e-6)
    assert region.excursion[3] == pytest.approx(0.8)
    assert region.inside.tolist() == [True, True, True, False]


def test_the_interval_of_the_size_holds_the_size_of_many_draws():
    mean, covariance = field(60, length=8.0)
    truth = drawn(mean, covariance, draws=40_000).region().inside.sum()
    inside = 0
    for seed in range(60):
        region = drawn(mean, covariance, draws=1000, seed=seed + 1).region()
        inside += region.fewest <= truth <= region.most
    assert inside >= 53


def test_batches_do_not_matter():
    mean, covariance = field(8)
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, 700) >= 0
    whole, parts = (FirstMisses(mean / np.sqrt(np.diag(covariance))) for _ in range(2))
    whole.add(draws)
    for part in np.array_split(draws, 9):
        parts.add(part)
    np.testing.assert_array_equal(whole.region().excursion, parts.region().excursion)


def test_refusals():
    found = FirstMisses(np.zeros(3))
    with pytest.raises(
        DataError, match=r"expected draws .* for n = 3 points, found shape \(5, 2\)"
    ):
        found.add(np.ones((5, 2), bool))
    found.add(np.ones((199, 3), bool))
    with pytest.raises(RequestError, match="200 draws or more for a joint region, found 199"):
        found.region()
    with pytest.raises(RequestError, match="a level between 0 and 1, found 1"):
        found.region(1.0)
    with pytest.raises(DataError, match="no missing score"):
        FirstMisses(np.array([0.0, np.nan]))
