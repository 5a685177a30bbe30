"""Heavy-tailed shapes against SciPy, scoringrules and quadrature."""

import numpy as np
import pytest
import scoringrules
from scipy import integrate, special, stats

from geogp.distributions.burr import BURR_PRIOR, Burr, BurrScale
from geogp.distributions.heavy_shapes import Mixture, StudentT, log_gamma_step
from geogp.distributions.prediction import Prediction
from geogp.distributions.shape_columns import shape_from
from geogp.distributions.shapes import BURR_COLUMNS, GAUSSIAN, RowShapes
from geogp.distributions.sinh_arcsinh import SinhArcsinh, shape_of
from geogp.distributions.student_sum import NormalPlusStudent, student_scales
from geogp.errors import RequestError

DFS = [2.2, 3.0, 4.5, 30.0, 1e3]
AT = np.array([-8.0, -3.0, -0.4, 0.0, 0.7, 2.5, 8.0])
P = np.array([1e-10, 1e-4, 0.025, 0.3, 0.5, 0.9, 0.999])


class TestStudentT:
    @pytest.fixture(params=DFS)
    def df(self, request) -> float:
        return request.param

    @pytest.fixture
    def law(self, df) -> stats.rv_continuous:
        return stats.t(df, scale=np.sqrt((df - 2) / df))

    def test_against_scipy(self, df, law):
        shape = StudentT(df)
        assert law.var() == pytest.approx(1)
        np.testing.assert_allclose(shape.cdf(AT), law.cdf(AT), rtol=1e-9)
        np.testing.assert_allclose(shape.survival(AT), law.sf(AT), rtol=1e-9)
        np.testing.assert_allclose(shape.log_density(AT), law.logpdf(AT), rtol=1e-10)
        np.testing.assert_allclose(shape.quantile(P), law.ppf(P), rtol=1e-8, atol=1e-12)

    def test_crps_against_scoringrules_and_quadrature(self, df, law):
        found = StudentT(df).crps(AT)
        reference = scoringrules.crps_t(AT, df, 0.0, np.sqrt((df - 2) / df))
        np.testing.assert_allclose(found, reference, rtol=1e-8, atol=1e-10)
        x = 0.7
        below = integrate.quad(lambda t: law.cdf(t) ** 2, -np.inf, x, limit=500)[0]
        above = integrate.quad(lambda t: law.sf(t) ** 2, x, np.inf, limit=500)[0]
        assert StudentT(df).crps(np.array([x]))[0] == pytest.approx(below + above, abs=1e-6)


def test_a_t_of_very_many_degrees_of_freedom_is_the_normal():
    many = StudentT(1e9)
    for name in ("cdf", "survival", "log_density", "crps"):
        np.testing.assert_allclose(getattr(many, name)(AT), getattr(GAUSSIAN, name)(AT), rtol=3e-6)
    np.testing.assert_allclose(many.quantile(P), GAUSSIAN.quantile(P), rtol=1e-7, atol=1e-12)


def test_the_mean_of_a_power_of_a_t_variable_does_not_exist():
    t = np.array([0.0, 0.1, -2.0])
    one, sum_ = StudentT(5.0), NormalPlusStudent(np.ones(3), np.ones(3), 5.0)
    for shape in (one, sum_):
        np.testing.assert_array_equal(shape.exponential_mean(t), [1.0, np.inf, np.inf])
        assert not shape.has_power_mean
    assert GAUSSIAN.has_power_mean
    assert not RowShapes([GAUSSIAN, one], np.array([0, 1])).has_power_mean


@pytest.mark.parametrize("a", [0.6, 3.0, 49.0, 51.0, 400.0])
def test_the_step_of_the_log_gamma_function(a):
    exact = special.gammaln(a + 0.5) - special.gammaln(a)
    assert log_gamma_step(a) == pytest.approx(exact, rel=1e-12)


class MixtureOfRows(Mixture):
    """A mixture with given weights, and given scales of each row."""

    def __init__(self, weights, scales):
        self.weights, self.given = weights, scales / np.sqrt(scales**2 @ weights)[:, None]

    def scales(self, rows):
        return self.given[rows]


class TestMixture:
    WEIGHTS = np.array([0.2, 0.5, 0.3])

    @pytest.fixture
    def scales(self) -> np.ndarray:
        return np.random.default_rng(0).uniform(0.1, 6, (7, 3))

    @pytest.fixture
    def mixture(self, scales) -> MixtureOfRows:
        return MixtureOfRows(self.WEIGHTS, scales)

    @pytest.fixture
    def sd(self, scales) -> np.ndarray:
        return scales / np.sqrt((scales**2 * self.WEIGHTS).sum(1))[:, None]

    def test_against_sums_of_scipys_normals(self, mixture, sd):
        x = AT[:, None]
        w = self.WEIGHTS
        np.testing.assert_allclose(mixture.cdf(AT), stats.norm.cdf(x / sd) @ w, rtol=1e-12)
        np.testing.assert_allclose(mixture.survival(AT), stats.norm.sf(x / sd) @ w, rtol=1e-12)
        density = (stats.norm.pdf(x / sd) / sd) @ w
        np.testing.assert_allclose(mixture.log_density(AT), np.log(density), rtol=1e-10)

    def test_crps_against_scoringrules_and_quadrature(self, mixture, sd):
        weights = np.broadcast_to(self.WEIGHTS, sd.shape)
        reference = scoringrules.crps_mixnorm(AT, np.zeros_like(sd), sd, weights)
        np.testing.assert_allclose(mixture.crps(AT), reference, rtol=1e-10)
        one = MixtureOfRows(self.WEIGHTS, sd[:1])
        y = 0.7
        grid = np.linspace(-40, 40, 400_001)
        error = stats.norm.cdf(grid[:, None] / sd[0]) @ self.WEIGHTS - (grid >= y)
        area = np.trapezoid(error**2, grid)
        assert one.crps(np.array([y]))[0] == pytest.approx(area, abs=2e-4)

    def test_quantiles_undo_the_cdf_far_into_the_tails(self, mixture):
        found = mixture.quantile(P)
        np.testing.assert_allclose(mixture.cdf(found), P, rtol=1e-11)
        np.testing.assert_array_equal(mixture.quantile(np.full(7, 0.5)), 0)
        far = mixture.quantile(np.full(7, 1e-200))
        np.testing.assert_allclose(mixture.cdf(far), 1e-200, rtol=1e-9)

    def test_quantiles_of_scales_that_lie_far_apart(self):
        wide = MixtureOfRows(np.array([0.999, 1e-3]), np.array([[1e-3, 1e3], [1.0, 1.0]]))
        for p in (1e-4, 4.99e-4, 5.01e-4, 0.2, 0.9999):
            found = wide.quantile(np.full(2, p))
            np.testing.assert_allclose(wide.cdf(found), p, rtol=1e-9)

    def test_chunks_are_the_whole(self, mixture, monkeypatch):
        whole = mixture.crps(AT), mixture.quantile(P)
        monkeypatch.setattr("geogp.distributions.heavy_shapes.VALUES_AT_ONCE", 10)
        # Products of matrices of other sizes may round otherwise.
        np.testing.assert_allclose(mixture.crps(AT), whole[0], rtol=1e-13)
        np.testing.assert_allclose(mixture.quantile(P), whole[1], rtol=1e-13)


class TestNormalPlusStudent:
    @pytest.mark.parametrize("df", [2.1, 2.5, 3.0, 4.0, 10.0, 30.0, 100.0, 1e4])
    def test_without_the_normal_it_is_the_t_to_8_standard_deviations(self, df):
        x = np.linspace(-8, 8, 161)
        found = NormalPlusStudent(np.zeros(161), np.ones(161), df)
        exact = StudentT(df)
        density = np.exp(found.log_density(x) - exact.log_density(x))
        np.testing.assert_allclose(density, 1, atol=1e-5)
        np.testing.assert_allclose(found.survival(x), exact.survival(x), rtol=1e-5)
        np.testing.assert_allclose(found.crps(x), exact.crps(x), rtol=1e-5)

    @pytest.mark.parametrize(("df", "share"), [(2.3, 0.5), (4.0, 0.9), (12.0, 0.3)])
    def test_the_sum_against_its_convolution(self, df, share):
        x = np.array([0.0, 1.5, -6.0, 8.0])
        shape = NormalPlusStudent(np.full(4, 1 - share), np.full(4, share), df)
        law = stats.t(df, scale=np.sqrt(share * (df - 2) / df))
        normal = stats.norm(scale=np.sqrt(1 - share))

        def integral(function):
            def at(f, value):
                return function(value - f) * normal.pdf(f)

            return [integrate.quad(at, -12, 12, args=(v,), limit=400)[0] for v in x]

        np.testing.assert_allclose(np.exp(shape.log_density(x)), integral(law.pdf), rtol=2e-5)
        np.testing.assert_allclose(shape.survival(x), integral(law.sf), rtol=2e-5)

    @pytest.mark.parametrize("df", [2.1, 4.0, 300.0])
    @pytest.mark.parametrize("p", [1e-9, 0.025, 0.5, 0.75, 0.995])
    def test_quantiles_of_many_rows(self, df, p):
        share = np.random.default_rng(0).uniform(1e-6, 1, 1000)
        shape = NormalPlusStudent(1 - share, share, df)
        found = shape.quantile(np.full(1000, p))
        np.testing.assert_allclose(shape.cdf(found), p, rtol=1e-11)
        alone = [shape[[row]].quantile(np.array([p]))[0] for row in (0, 500, 999)]
        np.testing.assert_allclose(found[[0, 500, 999]], alone, rtol=1e-11, atol=1e-14)
        same = NormalPlusStudent(np.ones(1000), np.ones(1000), df).quantile(np.full(1000, p))
        assert np.ptp(same) <= 1e-14

    @pytest.mark.parametrize("df", [2.001, 2.1, 3.0, 20.0, 1e3, 1e8])
    def test_weights_sum_to_1_and_the_variance_is_1(self, df):
        w, v = student_scales(df)
        assert len(w) < 80
        assert w.sum() == pytest.approx(1, abs=1e-12)
        assert w @ v == pytest.approx(1, abs=1e-12)

    def test_very_many_degrees_of_freedom_are_the_normal(self):
        many = NormalPlusStudent(np.full(7, 0.3), np.full(7, 2.0), 1e9)
        for name in ("cdf", "log_density", "crps"):
            reference = getattr(GAUSSIAN, name)(AT)
            np.testing.assert_allclose(getattr(many, name)(AT), reference, rtol=2e-6)

    def test_a_prediction_keeps_its_variance_and_its_rows(self):
        function, noise = np.array([0.1, 2.0, 0.0]), np.array([0.4, 0.4, 0.4])
        whole = Prediction(
            np.zeros(3), function, noise, None, NormalPlusStudent(function, noise, 3)
        )
        y = np.array([0.5, -4.0, 1.0])
        part = whole[np.array([2, 0])]
        np.testing.assert_allclose(part.log_score(y[[2, 0]]), whole.log_score(y)[[2, 0]])
        drawn = np.random.default_rng(1)
        e = drawn.standard_t(3, 10**6) * np.sqrt(0.4 / 3)
        f = drawn.standard_normal(10**6) * np.sqrt(2.0)
        for p in (0.025, 0.25, 0.9):
            assert whole.quantile(p)[1] == pytest.approx(np.quantile(f + e, p), abs=0.02)

    @pytest.mark.parametrize("df", [2.0, np.nan, np.inf, -1.0])
    def test_degrees_of_freedom_out_of_range_are_refused(self, df):
        one = np.ones(1)
        for make in (lambda: StudentT(df), lambda: NormalPlusStudent(one, one, df)):
            with pytest.raises(RequestError, match="degrees of freedom above 2"):
                make()

    def test_variances_out_of_range_are_refused(self):
        with pytest.raises(RequestError, match="noise variances above 0"):
            NormalPlusStudent(np.ones(2), np.array([1.0, 0.0]), 4.0)


_BURR = {name: np.full(4, 2.0) for name in BURR_COLUMNS}


class TestColumns:
    """Shapes come back from the columns of a table as they were."""

    FUNCTION, NOISE = np.array([0.2, 0.4, 0.1, 1.0]), np.array([0.3, 0.3, 0.3, 0.5])

    @pytest.mark.parametrize(
        "shape",
        [
            GAUSSIAN,
            SinhArcsinh(-0.3, 0.8),
            StudentT(3.7),
            shape_of(np.array([0.0, -0.3, 0.0, 0.5]), np.array([1.0, 0.8, 1.0, 1.3])),
            RowShapes([GAUSSIAN, StudentT(4.0), SinhArcsinh(0.1, 0.9)], np.array([1, 0, 2, 1])),
            NormalPlusStudent(FUNCTION, NOISE, 3.3),
            BurrScale(Burr(2.0, 0.7), 20, 33.3).shape,
            RowShapes([StudentT(4.0), BurrScale(BURR_PRIOR, 9, 5.0).shape], np.array([1, 0, 1, 1])),
        ],
        ids=lambda shape: type(shape).__name__,
    )
    def test_round_trip(self, shape):
        table = {
            name: np.broadcast_to(value, (4,)).astype(np.float64)
            for name, value in shape.columns.items()
        }
        assert list(table)[:2] == ["skewness", "tailweight"]
        again = shape_from(table, self.FUNCTION, self.NOISE)
        assert type(again) is type(shape)
        y, p = np.array([-5.0, 0.1, 2.0, 0.4]), np.array([0.1, 0.5, 0.9, 0.975])
        for name, at in (("log_density", y), ("crps", y), ("quantile", p)):
            np.testing.assert_array_equal(getattr(again, name)(at), getattr(shape, name)(at))

    def test_without_columns_it_is_the_normal(self):
        assert shape_from({}, self.FUNCTION, self.NOISE) is GAUSSIAN
        assert shape_from({}, np.empty(0), np.empty(0)) is GAUSSIAN

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"noise_df": np.array([3.0, 4.0, 3.0, 3.0])}, "to have the same noise_df"),
            (
                {"noise_df": np.full(4, 3.0), "skewness": np.full(4, 0.1)},
                "no other shape parameter",
            ),
            ({"df": np.full(4, 3.0), "skewness": np.full(4, 0.1)}, "one kind of shape"),
            ({"df": np.full(4, 1.0)}, "degrees of freedom above 2"),
            ({**_BURR, "df": np.full(4, 3.0)}, "one kind of shape"),
            ({**_BURR, "noise_df": np.full(4, 3.0)}, "no other shape parameter"),
            ({"burr_c": np.full(4, 2.0)}, "expected c and d above 0"),
        ],
    )
    def test_refusals(self, columns, message):
        with pytest.raises(RequestError, match=message):
            shape_from(columns, self.FUNCTION, self.NOISE)
