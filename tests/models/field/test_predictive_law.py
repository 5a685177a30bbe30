"""The law of prediction errors: a known law is found again, and what the field model does with it.

Errors are drawn by the formulas of `PredictiveLaw`, written out here.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import errors_apart, field_of
from scipy import stats

from geogp.distributions.shapes import GAUSSIAN, Shape
from geogp.distributions.sinh_arcsinh import (
    MAX_SKEWNESS,
    MAX_TAILWEIGHT,
    MIN_TAILWEIGHT,
    moments,
)
from geogp.errors import DataError, NumericalError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.field import left_out
from geogp.models.field.fit import FieldFit
from geogp.models.field.fitted import FittedField
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.predictive_law import (
    GROUP_ROWS,
    ROWS_OF_LIGHT_TAILS,
    SHAPE_STEP,
    SIMPLE,
    Errors,
    Parameters,
    PredictiveLaw,
    earns_covariates,
    fit_law,
    no_law,
)
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.process.architecture import Architecture
from geogp.models.process.model import Model
from geogp.models.process.rows import Rows

# By 1, two covariates and their squares: location, log scale, skewness and log tail weight.
BY_BOTH = np.array(
    [
        [0.2, -0.1, 0.1, 0.0, 0.0],
        [0.3, -0.1, 0.2, 0.05, -0.1],
        [-0.4, 0.2, 0.1, 0.0, 0.0],
        [-0.1, 0.1, -0.15, 0.0, 0.0],
    ]
)
BY_FIRST = BY_BOTH * np.array([1, 1, 0, 1, 0])
NOMINAL = np.array([0.5, 0.8, 0.95])


def _covariates(n: int, seed: int = 0) -> np.ndarray:
    """Two covariates in units of their own."""
    random = np.random.default_rng([seed, 1])
    return np.column_stack([random.uniform(0, 3, n), 50 + 20 * random.standard_normal(n)])


def _ranges(covariates: np.ndarray) -> np.ndarray:
    low, high = np.quantile(covariates, [0.01, 0.99], axis=0)
    clamped = np.clip(covariates, low, high)
    return np.array([low, high, clamped.mean(0), clamped.std(0)])


TRUTH_RANGES = _ranges(_covariates(200_000))


def _parameters(coefficients: np.ndarray, covariates: np.ndarray) -> np.ndarray:
    """Location, log scale, skewness and log tail weight, unbent and unrounded, (4, n)."""
    low, high, mean, sd = TRUTH_RANGES
    u = (np.clip(covariates, low, high) - mean) / sd
    return coefficients @ np.vstack([np.ones(len(u)), u.T, u.T**2])


def _bent(skewness: np.ndarray, log_tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bound = np.where(log_tail < 0, np.log(MIN_TAILWEIGHT), np.log(MAX_TAILWEIGHT))
    return MAX_SKEWNESS * np.tanh(skewness / MAX_SKEWNESS), bound * np.tanh(log_tail / bound)


def _drawn(coefficients: np.ndarray, n: int, seed: int = 0) -> Errors:
    """Errors of a law, all of them held out."""
    covariates = _covariates(n, seed)
    a, log_b, skewness, log_tail = _parameters(coefficients, covariates)
    skewness, log_tail = _bent(skewness, log_tail)
    z = np.random.default_rng([seed, 2]).standard_normal(n)
    w = np.sinh((np.arcsinh(z) + skewness) / np.exp(log_tail))
    return errors_apart(a + np.exp(log_b) * w, covariates)


def _law(coefficients: np.ndarray) -> PredictiveLaw:
    return replace(
        no_law(2),
        coefficients=coefficients,
        ranges=TRUTH_RANGES,
        most_tail=np.log(MAX_TAILWEIGHT),
    )


def _at(law: PredictiveLaw, covariates: np.ndarray) -> tuple[np.ndarray, np.ndarray, Shape]:
    """Mean, standard deviation and shape of the errors of a law."""
    return law.parameters(covariates).distribution()


def _pit(law: PredictiveLaw, seen: Errors) -> np.ndarray:
    mean, sd, shape = _at(law, seen.covariates)
    return shape.cdf((seen.errors - mean) / sd)


def _coverage(pit: np.ndarray) -> np.ndarray:
    return np.array([np.mean(np.abs(pit - 0.5) < level / 2) for level in NOMINAL])


@pytest.fixture(scope="module")
def fitted() -> PredictiveLaw:
    """A law with networks, fitted to 20,000 errors."""
    return fit_law(_drawn(BY_BOTH, 20_000, 1))


@pytest.fixture
def short_networks(monkeypatch) -> None:
    """Fit networks in one iteration. The coefficients are fitted before them, and stay the same."""
    monkeypatch.setattr("geogp.models.field.predictive_law.ITERATIONS", 1)


@pytest.mark.usefixtures("short_networks")
def test_a_fit_finds_the_law_again():
    seen = _drawn(BY_BOTH, 80_000)
    found = fit_law(seen)
    np.testing.assert_allclose(found.ranges, _ranges(seen.covariates), rtol=1e-12)
    np.testing.assert_allclose(found.coefficients, BY_BOTH, atol=0.025)
    near = np.abs((seen.covariates - [1.0, 60.0]) / [0.1, 2.0]).max(1) < 1
    (mean,), (sd,), shape = _at(found, np.array([[1.0, 60.0]]))
    same = seen.errors[near]
    error = same.std() / np.sqrt(len(same))
    assert mean == pytest.approx(same.mean(), abs=3 * error)
    assert sd == pytest.approx(same.std(), rel=0.15)
    assert np.mean(same < mean + sd * shape.quantile(0.1)) == pytest.approx(0.1, abs=0.03)


def test_a_law_states_mean_sd_and_distribution_of_its_errors():
    """Against draws at one place; ε = 0.2 and log δ = -0.28 are multiples of the step."""
    law = replace(no_law(2), most_tail=0.0)
    low = np.log(MIN_TAILWEIGHT)
    law.coefficients[:, 0] = (
        *(0.3, np.log(1.4)),
        MAX_SKEWNESS * np.arctanh(0.2 / MAX_SKEWNESS),
        low * np.arctanh(-0.28 / low),
    )
    (mean,), (sd,), shape = _at(law, np.zeros((1, 2)))
    z = stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    errors = 0.3 + 1.4 * np.sinh((np.arcsinh(z) + 0.2) / np.exp(-0.28))
    assert mean == pytest.approx(errors.mean(), abs=1e-3)
    assert sd == pytest.approx(errors.std(), rel=1e-3)
    p = np.array([0.05, 0.5, 0.9])
    np.testing.assert_allclose(mean + sd * shape.quantile(p), np.quantile(errors, p), atol=1e-3)


def test_each_of_many_rows_has_the_moments_and_shape_of_its_own_parameters():
    """Rows share the moments of distinct shapes; here each row has its own."""
    covariates = _covariates(3000)
    a, log_b, *shape = _parameters(BY_BOTH, covariates)
    skewness, log_tail = (SHAPE_STEP * np.round(part / SHAPE_STEP) for part in _bent(*shape))
    tailweight = np.exp(log_tail).clip(MIN_TAILWEIGHT, MAX_TAILWEIGHT)
    own = np.array([moments(*pair) for pair in zip(skewness, tailweight, strict=True)])
    assert 10 < len(np.unique(own, axis=0)) < 1000
    mean, sd, found = _at(_law(BY_BOTH), covariates)
    np.testing.assert_allclose(mean, a + np.exp(log_b) * own[:, 0], rtol=1e-12)
    np.testing.assert_allclose(sd, np.exp(log_b) * own[:, 1], rtol=1e-12)
    np.testing.assert_allclose(found.columns["skewness"], skewness, rtol=1e-12)
    np.testing.assert_allclose(found.columns["tailweight"], tailweight, rtol=1e-12)
    nothing = _at(_law(BY_BOTH), covariates[:0])
    assert [len(part) for part in nothing[:2]] == [0, 0]


def test_the_networks_are_added_to_the_linear_parameters():
    """a at one covariate, with the formula written out; the other parameters are 0."""
    law = no_law(1)
    law.ranges[:] = [[-2], [2], [0.5], [2.0]]
    law.coefficients[0] = [0.1, 0.2, 0.0]
    law.hidden[:2] = [[0.3, -1.0], [0.7, 2.0]]
    law.outputs[0, :2] = [0.4, -0.6]
    asked = np.array([[-9.0], [0.0], [1.2]])
    u = (np.array([-2, 0, 1.2]) - 0.5) / 2
    expected = 0.1 + 0.2 * u + 0.4 * np.tanh(0.3 - u) - 0.6 * np.tanh(0.7 + 2 * u)
    mean, sd, _ = _at(law, asked)
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    np.testing.assert_allclose(sd, 1, rtol=1e-12)


def test_networks_find_a_scale_that_no_sum_of_squares_has():
    """log b = 1.5 u1 u2: without networks, each quadrant would have the same scale."""
    random = np.random.default_rng(0)
    covariates = random.uniform(-1, 1, (20_000, 2))
    errors = np.exp(1.5 * covariates.prod(1)) * random.standard_normal(20_000)
    seen = errors_apart(errors, covariates)
    found = fit_law(seen)
    linear = replace(found, outputs=0 * found.outputs)
    for same in (covariates.prod(1) > 0, covariates.prod(1) < 0):
        np.testing.assert_allclose(_coverage(_pit(found, seen)[same]), NOMINAL, atol=0.03)
        assert np.abs(_coverage(_pit(linear, seen)[same]) - NOMINAL).max() > 0.05


def test_networks_leave_linear_parameters_nearly_as_they_are(fitted):
    asked = _covariates(1000, 3)
    linear = replace(fitted, outputs=0 * fitted.outputs)
    for one, other in zip(_at(fitted, asked)[:2], _at(linear, asked)[:2], strict=True):
        assert np.abs(one - other).mean() < 0.03


def test_each_half_by_a_covariate_is_calibrated_as_it_is_not_without_it(fitted):
    seen = _drawn(BY_BOTH, 20_000, 2)
    without = replace(seen, covariates=seen.covariates[:, :1])
    alone = fit_law(without)
    for half in (seen.covariates[:, 1] < 50, seen.covariates[:, 1] >= 50):
        np.testing.assert_allclose(_coverage(_pit(fitted, seen)[half]), NOMINAL, atol=0.012)
        assert np.abs(_coverage(_pit(alone, without)[half]) - NOMINAL).max() > 0.04


@pytest.mark.usefixtures("short_networks")
def test_a_covariate_without_effect_gets_almost_none():
    seen = _drawn(BY_FIRST, 25_000)
    found = fit_law(seen)
    assert np.abs(found.coefficients[:, [2, 4]]).max() < 0.02
    alone = fit_law(replace(seen, covariates=seen.covariates[:, :1]))
    np.testing.assert_allclose(found.coefficients[:, [0, 1, 3]], alone.coefficients, atol=0.01)


@pytest.mark.usefixtures("short_networks")
def test_order_and_unit_of_covariates_are_of_no_account():
    seen = _drawn(BY_BOTH, 5_000)
    found, other = fit_law(seen), fit_law(replace(seen, covariates=0.62 * seen.covariates - 7))
    np.testing.assert_allclose(other.coefficients, found.coefficients, atol=2e-4)
    order = np.random.default_rng(0).permutation(5_000)
    turned = fit_law(errors_apart(seen.errors[order], seen.covariates[order]))
    np.testing.assert_allclose(turned.coefficients, found.coefficients, atol=2e-4)


@pytest.mark.usefixtures("short_networks")
@pytest.mark.parametrize("jitter", [0.0, 1e-14])
def test_a_constant_covariate_has_no_effect(jitter):
    seen = _drawn(BY_FIRST, 5_000)
    constant = 2 + jitter * np.random.default_rng(0).integers(0, 9, 5_000)
    with_it = np.column_stack([seen.covariates[:, 0], constant])
    alone = fit_law(replace(seen, covariates=with_it[:, :1]))
    found = fit_law(replace(seen, covariates=with_it))
    assert np.abs(found.coefficients[:, [2, 4]]).max() < 1e-30
    np.testing.assert_allclose(found.coefficients[:, [0, 1, 3]], alone.coefficients, atol=1e-6)
    expected = _at(found, with_it)
    with_it[:, 1] = 1e9
    for one, other in zip(_at(found, with_it)[:2], expected[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.usefixtures("short_networks")
def test_the_law_is_that_of_held_out_rows():
    """Training rows share the effects of covariates and have constants of their own."""
    training, held = _drawn(BY_FIRST, 30_000), _drawn(BY_FIRST, 3_000, 5)
    training = replace(training, held_out=~training.held_out)
    wider = replace(held, errors=0.4 + 1.5 * held.errors)
    found = fit_law(training.joined(wider))
    of_both = fit_law(training.joined(held))
    np.testing.assert_allclose(of_both.coefficients[:, 1:], BY_FIRST[:, 1:], atol=0.02)
    np.testing.assert_allclose(of_both.coefficients[:, 0], BY_FIRST[:, 0], atol=0.1)
    mean, sd, _ = _at(found, held.covariates)
    plain_mean, plain_sd, _ = _at(of_both, held.covariates)
    np.testing.assert_allclose(sd.mean(), 1.5 * plain_sd.mean(), rtol=0.04)
    np.testing.assert_allclose(mean.mean(), 0.4 + 1.5 * plain_mean.mean(), atol=0.08)
    np.testing.assert_allclose(found.coefficients[1, 1], BY_FIRST[1, 1], atol=0.02)


@pytest.mark.usefixtures("short_networks")
def test_few_errors_stay_near_the_normal():
    outlier = np.array([0.1, -0.2, 0.3, -5.0])
    few, many = (fit_law(errors_apart(np.tile(outlier, n), np.zeros((4 * n, 1)))) for n in (1, 500))
    assert abs(few.coefficients[3, 0]) < 0.2 * abs(many.coefficients[3, 0])
    one = fit_law(errors_apart(np.array([2.0]), np.ones((1, 3))))
    assert np.abs(one.coefficients).max() < 0.1


@pytest.mark.usefixtures("short_networks")
def test_errors_of_large_groups_count_for_less():
    seen = _drawn(BY_BOTH, 500)
    size = [
        np.square(fit_law(replace(seen, groups=np.arange(500) // n)).coefficients).sum()
        for n in (1, GROUP_ROWS, 60, 500)
    ]
    assert size[1] == size[0]
    assert size[2] < 0.8 * size[1]
    assert size[3] < 0.5 * size[2]


@pytest.mark.usefixtures("short_networks")
def test_a_group_of_repeated_rows_counts_as_much_as_each_row_once():
    errors = stats.t(3).rvs(10 * GROUP_ROWS, random_state=0) + 0.4
    once, often = (errors_apart(np.tile(errors, n), np.zeros((n * len(errors), 1))) for n in (1, 4))
    group = np.arange(len(errors)) // GROUP_ROWS
    found = fit_law(replace(often, groups=np.tile(group, 4))).coefficients
    expected = fit_law(replace(once, groups=group)).coefficients
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert np.abs(fit_law(often).coefficients - expected).max() > 0.1


def test_rows_of_a_group_count_as_at_most_fifteen():
    groups = np.random.default_rng(0).permutation(np.repeat([7, 0, 3, 9], [60, 10, 15, 16]))
    weights = replace(_drawn(BY_BOTH, 101), groups=groups).weights
    sums = {name: weights[groups == name].sum() for name in (7, 0, 3, 9)}
    assert sums == pytest.approx({7: 15, 0: 10, 3: 15, 9: 15})
    assert np.ptp(weights[groups == 7]) == 0


def test_groups_count_as_much_in_total_as_the_rows_left_out_alone():
    sizes = [40, 60, 10]
    group = np.repeat(np.arange(3), sizes)
    groups = np.concatenate([group, 3 + np.arange(90)])
    seen = replace(_drawn(BY_BOTH, 200), groups=groups, alone=groups >= 3)
    sums = [seen.weights[groups == name].sum() for name in range(3)]
    assert sums == pytest.approx([30, 30, 10])
    assert (seen.weights[seen.alone] == 1).all()


def test_groups_of_both_kinds_of_rows_are_counted():
    seen = _drawn(BY_BOTH, 110)
    groups = np.repeat([0, 1, 2], [60, 10, 40])
    both = replace(seen, groups=groups, held_out=groups == 0)
    assert both.group_rows(both.held_out) == GROUP_ROWS
    assert both.group_rows(~both.held_out) == pytest.approx((10**2 + 15**2) / 25)
    assert both.group_rows(groups == 3) == 1
    twice = both.joined(replace(seen, alone=np.ones(110, bool)))
    assert twice.groups.tolist() == [*groups, *range(3, 113)]
    assert twice.alone.tolist() == [False] * 110 + [True] * 110
    some = twice.at(twice.alone)
    np.testing.assert_array_equal(some.errors, seen.errors)
    np.testing.assert_array_equal(some.groups, np.arange(3, 113))


@pytest.mark.usefixtures("short_networks")
def test_few_held_out_groups_move_the_law_less_than_many():
    """The law of held-out rows is that of the training rows unless many groups say otherwise."""
    training, held = _drawn(BY_BOTH, 2000), _drawn(BY_BOTH, 400)
    training = replace(training, held_out=np.zeros(2000, np.bool_))
    wide = replace(held, errors=3 * held.errors)
    few, many = (
        fit_law(training.joined(replace(wide, groups=groups))).coefficients[1, 0]
        for groups in (np.arange(400) // 200, np.arange(400))
    )
    own = fit_law(training).coefficients[1, 0]
    assert own < few < many - 0.2
    assert many > own + 0.6


def test_the_scale_of_a_simple_law_depends_on_distance_and_near_scatter_alone():
    random = np.random.default_rng(4)
    n = 6_000
    covariates = random.standard_normal((n, 11))
    used = covariates[:, SIMPLE]
    scale = 0.4 * np.exp(0.2 * covariates[:, 0] + used @ [0.4, 0.3])
    errors = scale * random.standard_t(4, n) + 0.05 * covariates[:, 1]
    law = fit_law(errors_apart(errors, covariates), scale=SIMPLE)
    found = law.parameters(covariates)
    assert (found.a == 0).all()
    assert (found.skewness == 0).all()
    assert np.ptp(found.log_tail) == 0
    assert found.log_tail[0] < -0.1
    design = np.column_stack([np.ones(n), np.clip(used, *np.quantile(used, [0.01, 0.99], axis=0))])
    slopes, residual, *_ = np.linalg.lstsq(design, found.log_b)
    assert residual == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(slopes[1:], [0.4, 0.3], atol=0.04)
    mean, sd, shape = _at(law, covariates)
    z = (errors - mean) / sd
    inside = (z >= shape.quantile(0.025)) & (z <= shape.quantile(0.975))
    assert inside.mean() == pytest.approx(0.95, abs=0.01)


def _of_groups(count: int, size: int, effect: float, seed: int) -> Errors:
    """Errors of groups with covariates of their own, of which the mean gives the scale."""
    random = np.random.default_rng(seed)
    covariates = random.standard_normal((count, 11)).repeat(size, 0)
    errors = np.exp(effect * covariates[:, 5]) * random.standard_normal(count * size)
    return replace(errors_apart(errors, covariates), groups=np.arange(count).repeat(size))


@pytest.mark.usefixtures("short_networks")
def test_all_covariates_are_used_if_they_tell_the_scale():
    for seed in range(3):
        assert earns_covariates(_of_groups(80, 15, 0.5, seed))
        assert not earns_covariates(_of_groups(8, 100, 0.0, seed))
    assert not earns_covariates(_of_groups(1, 1200, 0.5, 0))


@pytest.mark.usefixtures("short_networks")
def test_rows_left_out_alone_do_not_make_a_law_that_knows_groups_by_heart_earn_its_place():
    """Each of eight groups has a scale of its own, and covariates that tell which group it is."""
    earned = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        group = np.arange(8).repeat(100)
        scale = np.exp(random.normal(0, 0.7, 8))[group]
        covariates = np.column_stack([random.normal(0, 1, (8, 3))[group], np.zeros((800, 8))])
        seen = errors_apart(scale * random.standard_normal(800), covariates)
        seen = replace(seen, groups=group, alone=random.random(800) < 0.25)
        seen = replace(seen, held_out=np.zeros(800, bool))
        earned.append(earns_covariates(seen))
    assert sum(earned) <= 3


@pytest.mark.usefixtures("short_networks")
def test_a_gain_below_the_least_does_not_earn_its_place(monkeypatch):
    """The gain of a known scale of spread 0.25 is at most its entropy, 0.25² nats."""
    seen = _of_groups(400, 4, 0.25, 0)
    assert earns_covariates(seen)
    monkeypatch.setattr("geogp.models.field.predictive_law.LEAST_GAIN", 0.25**2)
    assert not earns_covariates(seen)


@pytest.mark.usefixtures("short_networks")
def test_of_many_errors_some_decide(monkeypatch):
    """Also if most of them are of one group, which alone has no other fold."""
    sizes, fitted = [], fit_law

    def counted(seen: Errors, *, scale: Sequence[int] = ()) -> PredictiveLaw:
        sizes.append(len(seen.errors))
        return fitted(seen, scale=scale)

    module = "geogp.models.field.predictive_law."
    monkeypatch.setattr(module + "fit_law", counted)
    monkeypatch.setattr(module + "MOST_TRIED", 100)
    seen = _of_groups(40, 10, 0.5, 0)
    earns_covariates(seen)
    assert sum(sizes) == 2 * 4 * 100
    earns_covariates(replace(seen, groups=(seen.groups == 0).astype(np.int64)))
    assert len(sizes) == 2 * 5 + 2 * 2
    assert sum(sizes[-4:]) == 2 * 100


@pytest.mark.usefixtures("short_networks")
def test_covariates_of_a_simple_law_alone_earn_no_other():
    seen = _of_groups(80, 15, 0.0, 0)
    scale = np.exp(0.5 * seen.covariates[:, SIMPLE[0]])
    assert not earns_covariates(replace(seen, errors=scale * seen.errors))


def test_faded_laws_lie_between_their_own_and_the_normal():
    law = Parameters(*np.array([[0.4, 0.4, 0.4], [-0.2] * 3, [0.6] * 3, [-0.3] * 3]))
    faded = law.faded(np.array([1.0, 0.5, 0.0]))
    np.testing.assert_array_equal(np.transpose(faded)[0], np.transpose(law)[0])
    np.testing.assert_allclose(np.transpose(faded)[1], [0.2, -0.1, 0.3, -0.15], rtol=1e-12)
    mean, sd, shape = faded.distribution()
    assert (mean[2], sd[2]) == pytest.approx((0, 1), abs=1e-12)
    assert shape.columns["skewness"][2] == 0
    assert shape.columns["tailweight"][2] == 1


@pytest.mark.usefixtures("short_networks")
def test_light_tails_need_many_errors():
    light = np.zeros((4, 5))
    light[3, 0] = 0.4
    few, many = (fit_law(_drawn(light, n)) for n in (ROWS_OF_LIGHT_TAILS - 1, ROWS_OF_LIGHT_TAILS))
    at = _covariates(1000)
    tails = [_at(law, at)[2].columns["tailweight"] for law in (few, many)]
    assert np.max(tails[0]) <= 1
    assert np.mean(tails[1]) == pytest.approx(np.exp(_bent(0.0, np.array(0.4))[1]), rel=0.15)


def test_tails_heavier_than_the_bound_keep_their_coverage():
    values = stats.t(3).rvs(20_000, random_state=0)
    seen = errors_apart(values, np.zeros((20_000, 1)))
    np.testing.assert_allclose(_coverage(_pit(fit_law(seen), seen)), NOMINAL, atol=0.03)


def test_a_law_stays_within_what_it_has_seen():
    low, high = TRUTH_RANGES[:2]
    law = _law(BY_BOTH)
    ends, beyond = (
        _at(law, np.array(pair)) for pair in ([low, high], [low - [9, 500], high + 1e6])
    )
    for inside, outside in zip(ends[:2], beyond[:2], strict=True):
        np.testing.assert_array_equal(outside, inside)
    np.testing.assert_array_equal(list(beyond[2].columns.values()), list(ends[2].columns.values()))
    inner = _at(law, np.array([low, high]) + np.array([[0.1, 2], [-0.1, -2]]))
    assert (inner[1] != ends[1]).all()


def test_a_map_has_few_shapes_near_the_exact_ones():
    covariates = _covariates(10_000)
    mean, sd, shape = _at(_law(BY_BOTH), covariates)
    found = np.column_stack([shape.columns["skewness"], np.log(shape.columns["tailweight"])])
    assert len(np.unique(found, axis=0)) < 500
    a, log_b, *exact = _parameters(BY_BOTH, covariates)
    away = np.abs(found - np.column_stack(_bent(*exact)))
    assert 0.4 * SHAPE_STEP < away.max() < 0.500001 * SHAPE_STEP
    # Location and scale are not rounded: at Z = 0, W = sinh(ε / δ).
    median = a + np.exp(log_b) * np.sinh(found[:, 0] / np.exp(found[:, 1]))
    np.testing.assert_allclose(mean + sd * shape.quantile(np.full(10_000, 0.5)), median, atol=1e-9)


def test_a_row_has_the_same_law_whatever_else_is_asked():
    covariates = _covariates(1000)
    whole, some = _at(_law(BY_BOTH), covariates), _at(_law(BY_BOTH), covariates[::7])
    for all_rows, each in zip(whole[:2], some[:2], strict=True):
        np.testing.assert_allclose(each, all_rows[::7], rtol=1e-12)
    np.testing.assert_array_equal(
        list(some[2].columns.values())[:2], list(whole[2][::7].columns.values())[:2]
    )


def test_no_law_is_the_normal():
    mean, sd, shape = _at(no_law(3), np.array([[1.0, -1e9, 0.0], [np.e, 1e9, 2.0]]))
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    np.testing.assert_allclose(sd, 1, rtol=1e-12)
    assert shape is GAUSSIAN


@pytest.mark.parametrize(
    ("errors", "covariate"), [([], []), ([0.0, np.nan], [1, 2]), ([0.0, 1.0], [1, np.inf])]
)
def test_errors_and_covariates_that_are_not_finite_are_refused(errors, covariate):
    seen = errors_apart(np.array(errors), np.array(covariate)[:, None])
    with pytest.raises(NumericalError, match="expected finite errors and covariates"):
        fit_law(seen)


SIZES = Architecture(d=3, h=6, r=5, blocks=1, dtype="float64", units=(20.0, 10.0, 4.0))


def _model(places: np.ndarray, seed: int = 0) -> tuple[FittedField, np.ndarray]:
    """A field given rows of three quarters at places (s, 2), and the inputs of the rows."""
    x = np.column_stack([np.repeat(places, 3, 0), np.tile([-1.0, 0.0, 1.0], len(places))])
    random = np.random.default_rng(seed)
    parameters = build("field", SIZES, random.uniform(-1, 1, (50, 3)), seed=seed)
    assert isinstance(parameters, FieldParameters)
    random = np.random.default_rng(seed)
    return field_of(parameters, _rows(parameters, x, random.standard_normal(len(x)))), x


def _rows(parameters: FieldParameters, x: np.ndarray, y: np.ndarray) -> Rows:
    return Rows(parameters.scaled(x), torch.from_numpy(y), torch.full((len(x), 2), 3.0).double())


def _finished(field: FittedField, held_out: Rows) -> FittedField:
    """The field with the errors that a fit of its rows learns; it keeps its rows and weights.

    Its predictions can then be compared with earlier ones, whose errors are normal.
    """
    fit, weights = FieldFit(field.parameters), field.parameters.state_dict()
    fit.start(field.rows.rows, field.rows.seed, resumed=True)
    kept = {name: value.clone() for name, value in weights.items()}
    errors = fit.finish(held_out).errors
    field.parameters.load_state_dict(kept)
    return replace(field, errors=errors)


class TestFieldModel:
    """Half the places are dense, half far apart; the errors of the second are wider."""

    @pytest.fixture(scope="class")
    @classmethod
    def finished(cls) -> tuple[FittedField, np.ndarray, np.ndarray]:
        """A finished model, other inputs, and the standard deviations it had before."""
        random = np.random.default_rng(3)
        near, far = ((-0.52, -0.48), (0.0, 1.0))
        places = np.vstack([random.uniform(*near, (100, 2)), random.uniform(*far, (40, 2))])
        model, _ = _model(places)
        asked = np.vstack([random.uniform(*near, (600, 2)), random.uniform(*far, (600, 2))])
        x = np.column_stack([asked, np.zeros(len(asked))])
        plain = model.predict(x, 3, 3)
        wider = np.where(x[:, 0] < 0, 0.6, 1.5) * random.standard_normal(len(x))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(left_out, "MOST_ROWS", 50)
            held_out = _rows(model.parameters, x, plain.mean + plain.sd * wider)
            return _finished(model, held_out), x, plain.sd

    def test_the_sparse_half_is_wider(self, finished):
        model, x, plain = finished
        scale = model.predict(x, 3, 3).sd / plain
        dense = x[:, 0] < 0
        assert scale[dense].mean() == pytest.approx(0.6, rel=0.1)
        assert scale[~dense].mean() == pytest.approx(1.5, rel=0.1)

    def test_the_level_has_the_scale_of_its_place_and_the_normal_shape(self, finished):
        model, x, _ = finished
        counts = model.parameters.well_measured(1)[0].tolist()
        level, most = model.predict(x, level=True), model.predict(x, *counts)
        assert level.shape is GAUSSIAN
        np.testing.assert_allclose(level.function_variance, most.function_variance, rtol=1e-9)
        assert level.function_variance[600:].mean() > 2 * level.function_variance[:600].mean()

    def test_a_row_has_the_same_shape_whatever_else_is_asked(self, finished):
        model, x, _ = finished
        whole, some = model.predict(x, 3, 3), model.predict(x[::7], 3, 3)
        np.testing.assert_allclose(some.sd, whole.sd[::7], rtol=1e-10)
        for name in ("skewness", "tailweight"):
            columns = (found.columns[name] for found in (some.shape, whole[::7].shape))
            np.testing.assert_array_equal(*columns)

    def test_save_and_load(self, finished, tmp_path):
        model, x, _ = finished
        outputs = 0.01 * np.random.default_rng(0).standard_normal(model.errors.law.outputs.shape)
        law = replace(model.errors.law, outputs=outputs)
        model = replace(model, errors=replace(model.errors, law=law))
        save_model(model, tmp_path / "m.safetensors")
        same, _ = load_model(tmp_path / "m.safetensors")
        found, expected = same.errors.law, model.errors.law
        assert expected.coefficients.any()
        np.testing.assert_array_equal(found.coefficients, expected.coefficients)
        np.testing.assert_array_equal(found.ranges, expected.ranges)
        np.testing.assert_array_equal(found.hidden, expected.hidden)
        np.testing.assert_array_equal(found.outputs, expected.outputs)
        assert found.most_tail == expected.most_tail
        first, second = model.predict(x, 3, 3), same.predict(x, 3, 3)
        np.testing.assert_array_equal(second.sd, first.sd)
        np.testing.assert_array_equal(
            list(second.shape.columns.values()), list(first.shape.columns.values())
        )

    def test_a_held_place_does_not_count_itself(self):
        model, x = _model(np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 1.0]]))
        points = numpy_of(model.parameters.points(model.parameters.scaled(x[::3])))
        found = model.rows.distance_to_others(points)
        diagonal = np.hypot(10, 10)
        np.testing.assert_allclose(found, [10, (10 + diagonal) / 2, (10 + diagonal) / 2])

    def test_a_widened_model_forgets_its_law(self, finished):
        model, x, plain = finished
        found = model.widened(1.3).predict(x, 3, 3)
        np.testing.assert_allclose(found.sd, 1.3 * plain, rtol=1e-10)
        assert found.shape is GAUSSIAN

    def test_before_its_errors_are_learned_a_field_has_the_normal_shape(self):
        model, x = _model(np.random.default_rng(0).uniform(-1, 1, (9, 2)))
        assert model.predict(x).shape is GAUSSIAN

    def test_parameters_without_rows_do_not_predict(self):
        x = np.random.default_rng(0).uniform(-1, 1, (9, 3))
        parameters = build("field", SIZES, x)
        assert not isinstance(parameters, Model)
        assert not hasattr(parameters, "predict")


def test_after_the_data_the_law_is_that_of_the_last_quarter():
    """The variance grows there, and the law of errors does not change with it."""
    random = np.random.default_rng(3)
    sizes = Architecture(d=3, h=6, r=5, blocks=1, dtype="float64", units=(20.0, 10.0, 4.0))
    x = np.column_stack([random.uniform(-1, 1, (300, 2)), random.choice([-1.0, 0, 1], 300)])
    parameters, y = build("field", sizes, x, seed=0), random.standard_t(4, 300)
    fit = FieldFit(parameters)
    fit.start(_rows(parameters, x[:200], y[:200]), 0, resumed=True)
    fitted = fit.finish(_rows(parameters, x[200:], y[200:]))
    model = replace(fitted, drift=torch.tensor([0.4, 0.0], dtype=torch.float64))
    # All places far from rows, so that no near row is forgotten as time goes on.
    away = random.uniform(200, 300, (50, 2))
    last, later = (model.predict(np.column_stack([away, np.full(50, t)]), 3, 3) for t in (1.0, 3.0))
    np.testing.assert_array_equal(
        list(later.shape.columns.values()), list(last.shape.columns.values())
    )
    assert (later.variance > last.variance).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"near_places": torch.tensor([6, 65])}, r"numbers of near places within .* \[6, 65\]"),
        ({"near_places": torch.tensor([-3, 16])}, r"numbers of near places within .* \[-3, 16\]"),
        ({"order_seed": torch.tensor(-1)}, "expected a seed of 0 or more .* found -1"),
        ({"law_outputs": None}, "law_outputs"),
    ],
)
def test_numbers_of_a_file_that_no_fit_gives_are_refused(change, message, tmp_path):
    model, _ = _model(np.random.default_rng(0).uniform(-1, 1, (9, 2)))
    save_model(model, tmp_path / "m.safetensors")
    tensors, described = read_tensors(tmp_path / "m.safetensors")
    changed = {name: value for name, value in (tensors | change).items() if value is not None}
    write_tensors(tmp_path / "m.safetensors", changed, described)
    with pytest.raises(DataError, match=message):
        load_model(tmp_path / "m.safetensors")
