"""Laws of shapes: a known law is found again, and what the field model does with one."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from geogp.distributions.shapes import GAUSSIAN
from geogp.errors import NumericalError
from geogp.models.catalogue.build_model import build
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.core.architecture import Architecture
from geogp.models.core.lowrank import Rows
from geogp.models.field.field_model import FieldNetwork
from geogp.models.field.shape_laws import (
    DISTANCES,
    FEW_RESIDUALS,
    NO_LAW,
    ShapeLaw,
    fit_shape,
    width_factor,
)
from geogp.models.field.vecchia import Sites, distance_to_others

BY_TESTS = np.array([[0.2, -0.1, 0.0], [0.3, -0.1, 0.0], [-0.5, 0.2, 0.0], [-0.3, 0.1, 0.0]])
BY_BOTH = np.array([[0.2, -0.1, 0.1], [0.3, -0.1, 0.2], [-0.5, 0.2, 0.1], [-0.1, 0.1, -0.15]])
RANGES = np.array([[0.0, 3.0], [-1.0, 2.0]])


def _drawn(law: ShapeLaw, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals of a law, their tests and distances."""
    random = np.random.default_rng(seed)
    tests = np.exp(random.uniform(0, 3, n)).round()
    distance = np.exp(random.uniform(-1, 2, n))
    location, scale, shape = law.at(tests, distance)
    return location + scale * shape.quantile(random.uniform(0, 1, n)), tests, distance


def _pit(law: ShapeLaw, values: np.ndarray, tests: np.ndarray, distance) -> np.ndarray:
    location, scale, shape = law.at(tests, distance)
    return shape.cdf((values - location) / scale)


def _coverage(pit: np.ndarray) -> np.ndarray:
    return np.array([np.mean(np.abs(pit - 0.5) < level / 2) for level in (0.5, 0.8, 0.95)])


def test_a_fit_finds_the_law_again():
    """Location, scale and shape all change with tests and distance."""
    truth = ShapeLaw(BY_BOTH, RANGES)
    values, tests, distance = _drawn(truth, 120_000)
    found = fit_shape(values, tests, distance)
    np.testing.assert_allclose(found.coefficients, truth.coefficients, atol=0.03)
    np.testing.assert_allclose(found.ranges, RANGES, atol=0.06)
    near = np.abs(np.log(distance)) < 0.1
    for k in (1, 5):
        (a,), (b,), s = found.at(np.array([float(k)]), 1.0)
        same = values[(tests == k) & near]
        assert a == pytest.approx(same.mean(), abs=0.05)
        assert b == pytest.approx(same.std(), rel=0.05)
        assert s.quantile(np.array([0.1])) == pytest.approx(
            (np.quantile(same, 0.1) - a) / b, abs=0.06
        )


def test_each_half_by_distance_is_calibrated_as_it_is_not_by_tests_alone():
    truth = ShapeLaw(BY_BOTH, RANGES)
    nominal = [0.5, 0.8, 0.95]
    both = fit_shape(*_drawn(truth, 20_000, seed=1))
    values, tests, distance = _drawn(truth, 50_000, seed=2)
    alone = fit_shape(values, tests, 1.0)
    for half in (distance < np.exp(0.5), distance >= np.exp(0.5)):
        rows = values[half], tests[half]
        np.testing.assert_allclose(
            _coverage(_pit(both, *rows, distance[half])), nominal, atol=0.012
        )
        assert np.abs(_coverage(_pit(alone, *rows, 1.0)) - nominal).max() > 0.04


def test_a_distance_that_plays_no_part_gets_no_weight():
    values, tests, distance = _drawn(ShapeLaw(BY_TESTS, RANGES), 50_000)
    found = fit_shape(values, tests, distance)
    near, far = (found.at(np.full(20, 5.0), d) for d in (0.4, 7.0))
    np.testing.assert_allclose(far[0], near[0], atol=0.08)
    np.testing.assert_allclose(far[1], near[1], rtol=0.06)
    alone = fit_shape(values, tests, 1.0)
    assert not alone.coefficients[:, 2].any()
    np.testing.assert_allclose(found.coefficients[:, 1], alone.coefficients[:, 1], atol=0.01)


def test_the_unit_of_the_distance_is_of_no_account():
    values, tests, distance = _drawn(ShapeLaw(BY_BOTH, RANGES), 5_000)
    found, miles = (fit_shape(values, tests, distance * unit) for unit in (1.0, 0.6214))
    for one, other in zip(
        found.at(tests, distance)[:2], miles.at(tests, distance * 0.6214)[:2], strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(values))
    turned = fit_shape(values[order], tests[order], distance[order])
    np.testing.assert_allclose(turned.coefficients, found.coefficients, atol=1e-5)


def test_a_law_stays_within_what_it_has_seen():
    law = ShapeLaw(BY_BOTH, np.array([[0.5, 2.0], [-0.5, 1.0]]))
    ends = law.at(np.exp([0.5, 2.0]), np.exp([-0.5, 1.0]))
    beyond = law.at(np.array([1.0, np.inf]), np.array([0.01, 1e4]))
    for inside, outside in zip(ends[:2], beyond[:2], strict=True):
        np.testing.assert_allclose(outside, inside)
    np.testing.assert_allclose(list(beyond[2].columns.values()), list(ends[2].columns.values()))


def test_a_map_of_one_number_of_tests_has_few_shapes_near_the_exact_ones():
    distance = np.exp(np.random.default_rng(0).uniform(-2, 3, 10_000))
    tests = np.full(len(distance), 4.0)
    _, scale, shape = ShapeLaw(BY_BOTH, RANGES).at(tests, distance)
    assert len(np.unique(scale)) == len(np.unique(shape.columns["tailweight"])) == DISTANCES
    normal = np.zeros((4, 3))
    normal[1, 2] = 0.2
    _, scale, _ = ShapeLaw(normal, RANGES).at(tests, distance)
    away = np.abs(np.log(scale) - 0.2 * np.clip(np.log(distance), -1, 2))
    half_step = 0.5 * 3 / (DISTANCES - 1)
    assert away.max() == pytest.approx(0.2 * half_step, rel=0.01)


def test_few_rows_do_not_bend_the_normal():
    outlier = np.array([0.1, -0.2, 0.3, -5.0])
    few, many = (
        fit_shape(np.tile(outlier, n), np.ones(4 * n), np.tile([1.0, 2.0, 1.5, 3.0], n))
        for n in (1, 500)
    )
    assert abs(few.coefficients[2, 0]) < 0.5 * abs(many.coefficients[2, 0])
    one = fit_shape(np.array([2.0]), np.ones(1), 1.0)
    assert np.abs(one.coefficients).max() < 0.1


def test_distances_that_differ_by_rounding_alone_are_the_same():
    random = np.random.default_rng(0)
    distance = 2 + 1e-14 * random.integers(0, 9, 500)
    found = fit_shape(random.standard_normal(500), np.ones(500), distance)
    assert not found.coefficients[:, 1:].any()
    assert np.abs(found.coefficients[:, 0]).max() < 0.2


def test_tails_heavier_than_the_bound_keep_their_coverage():
    """Location and scale fit the bounded shape, not the one beyond the bound."""
    values = stats.t(3).rvs(50_000, random_state=0)
    (a,), (b,), shape = fit_shape(values, np.ones(len(values)), 1.0).at(np.ones(1), 1.0)
    for level in (0.5, 0.8, 0.95):
        low, high = a + b * shape.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        assert np.mean((values > low) & (values < high)) == pytest.approx(level, abs=0.03)


def test_no_law_is_the_normal():
    location, scale, shape = NO_LAW.at(np.array([1.0, 9.0, np.inf]), np.array([0.1, 1.0, 50.0]))
    np.testing.assert_allclose(location, 0, atol=1e-12)
    assert scale == pytest.approx(np.ones(3))
    assert shape is GAUSSIAN


@pytest.mark.parametrize("values", [np.array([]), np.array([0.0, np.nan])])
def test_residuals_that_are_not_finite_are_refused(values):
    with pytest.raises(NumericalError, match="expected finite residuals"):
        fit_shape(values, np.ones(len(values)), 1.0)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_tests_and_distances_out_of_range_are_refused(wrong):
    values = np.array([0.0, 1.0])
    with pytest.raises(NumericalError, match="expected finite distances above 0"):
        fit_shape(values, np.ones(2), np.array([1.0, wrong]))
    with pytest.raises(NumericalError, match="expected finite tests above 0"):
        fit_shape(values, np.array([1.0, wrong]), 1.0)


class TestDistanceToOthers:
    @pytest.mark.parametrize("n", [2, 5, 16, 17, 60])
    def test_against_all_distances(self, n):
        random = np.random.default_rng(n)
        places = random.uniform(0, 10, (n, 2))
        at = np.vstack([places, random.uniform(0, 10, (5, 2))])
        found = distance_to_others(KDTree(places), at)
        for value, row in zip(found, cdist(at, places), strict=True):
            assert value == pytest.approx(np.sort(row[row > 0])[:16].mean(), rel=1e-12)

    def test_a_single_place_tells_nothing(self):
        assert distance_to_others(KDTree(np.zeros((1, 2))), np.eye(2)).tolist() == [1, 1]

    def test_a_crowded_place_counts_once(self):
        sites = Sites.of(np.repeat([[0.0, 0.0], [3.0, 4.0]], [150, 1], axis=0))
        assert len(sites) == 4
        assert distance_to_others(sites.places, np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [
            5,
            5,
        ]


SIZES = Architecture(d=3, h=6, r=5, blocks=1, dtype="float64", units=(20.0, 10.0, 4.0))


def _model(places: np.ndarray, seed: int = 0) -> tuple[FieldNetwork, np.ndarray]:
    """A model that holds three quarters of rows at places (s, 2), and their inputs."""
    x = np.column_stack([np.repeat(places, 3, 0), np.tile([-1.0, 0.0, 1.0], len(places))])
    model = build("field", SIZES, np.random.default_rng(seed).uniform(-1, 1, (50, 3)), seed=seed)
    assert isinstance(model, FieldNetwork)
    random = np.random.default_rng(seed)
    model.keep_rows(_rows(model, x, random.standard_normal(len(x))), 0)
    return model, x


def _rows(model: FieldNetwork, x: np.ndarray, y: np.ndarray) -> Rows:
    return Rows(model.scaled(x), torch.from_numpy(y), torch.full((len(x),), 3.0).double())


class TestFieldModel:
    """Half the places are dense, half far apart; the residuals of the second are wider."""

    @pytest.fixture(scope="class")
    @classmethod
    def finished(cls) -> tuple[FieldNetwork, np.ndarray, np.ndarray]:
        """A finished model, other inputs, and the standard deviations it had before."""
        random = np.random.default_rng(3)
        near, far = ((-0.52, -0.48), (0.0, 1.0))
        places = np.vstack([random.uniform(*near, (100, 2)), random.uniform(*far, (40, 2))])
        model, _ = _model(places)
        asked = np.vstack([random.uniform(*near, (600, 2)), random.uniform(*far, (600, 2))])
        x = np.column_stack([asked, np.zeros(len(asked))])
        plain = model.predict(x, 3)
        wider = np.where(x[:, 0] < 0, 0.6, 1.5) * random.standard_normal(len(x))
        model.finish(_rows(model, x, plain.mean + plain.sd * wider))
        return model, x, plain.sd

    def test_the_sparse_half_is_wider(self, finished):
        model, x, plain = finished
        scale = model.predict(x, 3).sd / plain
        dense = x[:, 0] < 0
        assert scale[dense].mean() == pytest.approx(0.6, rel=0.07)
        assert scale[~dense].mean() == pytest.approx(1.5, rel=0.07)

    def test_the_level_has_the_scale_of_its_place_and_the_normal_shape(self, finished):
        model, x, _ = finished
        level, most = model.predict(x, level=True), model.predict(x, np.inf)
        assert level.shape is GAUSSIAN
        np.testing.assert_array_equal(level.function_variance, most.function_variance)
        assert level.function_variance[600:].mean() > 2 * level.function_variance[:600].mean()

    def test_a_row_has_the_same_shape_whatever_else_is_asked(self, finished):
        model, x, _ = finished
        whole, some = model.predict(x, 3), model.predict(x[::7], 3)
        np.testing.assert_allclose(some.sd, whole.sd[::7], rtol=1e-10)
        np.testing.assert_array_equal(
            list(some.shape.columns.values()), list(whole[::7].shape.columns.values())
        )
        scaled = model.scaled(x)
        alone = model.predict_scaled(scaled, torch.full((len(x),), 3.0).double(), alone=True)
        np.testing.assert_array_equal(
            list(alone.shape.columns.values()), list(whole.shape.columns.values())
        )
        np.testing.assert_allclose(alone.noise_variance, whole.noise_variance, rtol=1e-12)

    def test_save_and_load(self, finished, tmp_path):
        model, x, _ = finished
        save_model(model, tmp_path / "m.safetensors")
        same, _ = load_model(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(same.shape_law.coefficients, model.shape_law.coefficients)
        np.testing.assert_array_equal(same.shape_law.ranges, model.shape_law.ranges)
        assert same.shape_law.ranges[1, 1] > same.shape_law.ranges[1, 0]
        first, second = model.predict(x, 3), same.predict(x, 3)
        np.testing.assert_array_equal(second.sd, first.sd)
        np.testing.assert_array_equal(
            list(second.shape.columns.values()), list(first.shape.columns.values())
        )

    def test_a_held_place_does_not_count_itself(self):
        model, x = _model(np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 1.0]]))
        found = model.distance_to_others(model.scaled(x[::3]))
        diagonal = np.hypot(10, 10)
        np.testing.assert_allclose(found, [10, (10 + diagonal) / 2, (10 + diagonal) / 2])

    def test_with_one_place_distance_plays_no_part(self):
        model, x = _model(np.zeros((1, 2)))
        random = np.random.default_rng(0)
        asked = np.column_stack([random.uniform(-1, 1, (50, 2)), np.zeros(50)])
        model.finish(_rows(model, asked, random.standard_normal(50)))
        assert model.shape_law.coefficients[:, 0].any()
        assert not model.shape_law.coefficients[:, 1:].any()
        assert np.isfinite(model.predict(x, 3).sd).all()

    def test_before_it_holds_rows_a_model_has_the_normal_shape(self):
        x = np.random.default_rng(0).uniform(-1, 1, (9, 3))
        model = build("field", SIZES, x)
        assert model.predict(x).shape is GAUSSIAN


def test_of_few_residuals_the_width_alone_is_learned():
    """A field model that is finished by fewer rows keeps its middle, and its normal shape."""
    random = np.random.default_rng(0)
    x, y = random.uniform(-1, 1, (1200, 2)), random.standard_normal(1200) + 2.0
    model = build("field", Architecture(d=2, h=8, r=4, blocks=1, units=(10.0, 10.0)), x)
    model.take_target(y)
    learned = {}
    for n in (FEW_RESIDUALS - 1, FEW_RESIDUALS):
        tests = torch.ones(n, dtype=torch.float64)
        model.finish(Rows(model.scaled(x[:n]), model.standardised(y[:n]), tests))
        learned[n] = np.argwhere(model.shape_law.coefficients).tolist()
    few, many = learned.values()
    assert few == [[1, 0]]  # the logarithm of the scale
    assert [0, 0] in many


def test_the_factor_is_the_width_of_a_student_law():
    residuals = np.full(90, 1.5)
    scale = np.sqrt((10 + 90 * 1.5**2) / 100)
    expected = scale * stats.t.ppf(0.975, 100) / stats.norm.ppf(0.975)
    assert width_factor(residuals) == pytest.approx(expected)
