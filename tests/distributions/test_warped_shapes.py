"""Repaired shapes against SciPy's quadrature, their definition, and tables."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from geogp.distributions.heavy_shapes import HeavyTails, StudentT
from geogp.distributions.prediction import Prediction
from geogp.distributions.shape_columns import shape_from
from geogp.distributions.shapes import GAUSSIAN, SHAPE_COLUMNS, RowShapes, Shape
from geogp.distributions.sinh_arcsinh import SinhArcsinh, shape_of
from geogp.distributions.student_sum import NormalPlusStudent
from geogp.distributions.warped_shapes import WarpedShape
from geogp.distributions.warps import (
    KNOTS,
    LADDER,
    MARGIN,
    MIN_SLOPE,
    REPAIR_COLUMNS,
    Warp,
    covering_knots,
)
from geogp.errors import RequestError

AT = np.array([-6.0, -2.0, -0.4, 0.0, 0.3, 1.1, 4.5])
WIDER = KNOTS * np.linspace(1.2, 1.9, len(KNOTS))
NARROWER = KNOTS * np.linspace(0.9, 0.6, len(KNOTS))
SHORT = np.where(np.arange(len(KNOTS)) < 9, KNOTS * 1.4 + 0.1 * np.sin(3 * KNOTS), np.nan)
CELLS = {"wider": WIDER, "narrower": NARROWER, "short": SHORT}
BASES = {
    "gaussian": GAUSSIAN,
    "skewed": SinhArcsinh(-0.4, 0.75),
    "light": SinhArcsinh(0.3, 1.4),
    "student": StudentT(5.0),
    "sum": NormalPlusStudent(np.full(1, 0.3), np.full(1, 0.7), 6.0),
}


def _at(base: Shape, knots: np.ndarray, values: np.ndarray) -> WarpedShape:
    """Return the shape for as many rows as there are values."""
    n = len(values)
    rows = base[np.zeros(n, np.intp)]
    return WarpedShape(rows, Warp(knots[None]), np.zeros(n, np.intp))


@pytest.fixture(params=itertools.product(BASES, CELLS), ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[Shape, np.ndarray]:
    base, cell = request.param
    return BASES[base], CELLS[cell]


def _call(name: str, base: Shape, knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    return getattr(_at(base, knots, values), name)(values)


def _kinks(base: Shape, knots: np.ndarray) -> np.ndarray:
    held = knots[np.isfinite(knots)]
    return np.sort(base[np.zeros(2 * len(held) + 1, np.intp)].from_normal(np.r_[-held, 0, held]))


def _integral(function, base, knots, low: float, high: float) -> float:
    """Integrate between the kinks of the warp, and in steps beyond, by 40 points a piece."""
    inner = _kinks(base, knots)
    steps = np.geomspace(0.5, 300, 25)
    edges = np.unique(
        np.clip(np.r_[inner[0] - steps, inner, inner[-1] + steps, low, high], low, high)
    )
    x, w = np.polynomial.legendre.leggauss(40)
    width = np.diff(edges)[:, None] / 2
    nodes = ((edges[:-1, None] + width) + width * x).ravel()
    return float(function(nodes) @ (width * w).ravel())


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_normal_scores_are_those_of_the_quantiles(base):
    """Both ways, far into both tails."""
    z = np.array([-30.0, -9.0, -2.0, 0.0, 0.7, 5.0, 9.0, 30.0])
    rows = base[np.zeros(len(z), np.intp)]
    np.testing.assert_allclose(rows.normal_score(rows.from_normal(z)), z, rtol=1e-7, atol=1e-9)
    p = np.array([1e-6, 0.02, 0.4, 0.5, 0.8, 0.97, 0.999, 0.9999])
    np.testing.assert_allclose(
        rows.from_normal(stats.norm.ppf(p)), rows.quantile(p), rtol=1e-8, atol=1e-9
    )


def test_normal_scores_from_the_smaller_tail():
    plain = SinhArcsinh(-0.4, 0.75)
    x = plain.from_normal(np.array([-30.0, -9.0, 0.3, 9.0, 30.0]))
    np.testing.assert_allclose(HeavyTails.normal_score(plain, x), plain.normal_score(x), rtol=1e-9)


def test_central_intervals_of_the_ladder_are_those_of_the_knots(case):
    base, knots = case
    for level, q in zip(LADDER, knots, strict=True):
        if np.isfinite(q):
            ends = _call("quantile", base, knots, np.array([(1 - level) / 2, (1 + level) / 2]))
            expected = base[np.zeros(2, np.intp)].from_normal(np.array([-q, q]))
            np.testing.assert_allclose(ends, expected, rtol=1e-9)


def test_cdf_and_quantile_undo_each_other(case):
    base, knots = case
    p = np.array([1e-9, 1e-3, 0.02, 0.3, 0.5, 0.52, 0.9, 0.995, 0.9999])
    x = _call("quantile", base, knots, p)
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(_call("cdf", base, knots, x), p, rtol=1e-6)
    np.testing.assert_allclose(_call("survival", base, knots, x), 1 - p, rtol=1e-6)


def test_the_density_is_the_derivative_of_the_cdf_and_integrates_to_1(case):
    base, knots = case

    def density(x):
        return np.exp(_call("log_density", base, knots, x))

    step = 1e-5
    slope = (_call("cdf", base, knots, AT + step) - _call("cdf", base, knots, AT - step)) / (
        2 * step
    )
    np.testing.assert_allclose(density(AT)[1:-1], slope[1:-1], rtol=1e-5)
    assert _integral(density, base, knots, -300, 300) == pytest.approx(1, abs=2e-6)


def test_crps_is_the_integral_of_the_squared_error_of_the_cdf(case):
    base, knots = case
    found = _call("crps", base, knots, AT)
    for value, score in zip(AT.tolist(), found.tolist(), strict=True):
        below = _integral(lambda x: _call("cdf", base, knots, x) ** 2, base, knots, -300, value)
        above = _integral(lambda x: _call("survival", base, knots, x) ** 2, base, knots, value, 300)
        assert score == pytest.approx(below + above, rel=1e-5)


def test_crps_against_an_adaptive_integral():
    """SciPy's own choice of points, on one case."""
    shape = WarpedShape(BASES["skewed"], Warp(WIDER[None]), np.zeros(1, np.intp))
    for value in (-1.0, 0.2, 3.0):
        edges = np.unique(np.r_[-60.0, _kinks(BASES["skewed"], WIDER), value, 60.0])
        expected = sum(
            integrate.quad(
                lambda x, y=value: (shape.cdf(np.array([x]))[0] - (x >= y)) ** 2, low, high
            )[0]
            for low, high in itertools.pairwise(edges.tolist())
        )
        assert shape.crps(np.array([value]))[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["gaussian", "skewed", "light"])
@pytest.mark.parametrize("cell", CELLS)
def test_mean_of_an_exponential_against_the_integral(name, cell):
    base, knots = BASES[name], CELLS[cell]
    for t in (-0.8, 0.5, 1.5):

        def weighted(x, t=t):
            return np.exp(t * x + _call("log_density", base, knots, x))

        found = _call("exponential_mean", base, knots, np.array([t]))[0]
        assert found == pytest.approx(_integral(weighted, base, knots, -80, 80), rel=1e-4)


def test_knots_of_the_normal_change_nothing():
    for base in BASES.values():
        rows = base[np.zeros(len(AT), np.intp)]
        for knots in (KNOTS, np.full(len(KNOTS), np.nan), np.where(KNOTS < 1, KNOTS, np.nan)):
            for name in ("cdf", "survival", "log_density", "crps"):
                np.testing.assert_allclose(
                    _call(name, base, knots, AT), getattr(rows, name)(AT), rtol=2e-6, atol=1e-9
                )


def test_beyond_the_ladder_a_tail_keeps_its_power():
    """P(|X| > x) of Student's t falls by 2^df from x to 2x, repaired or not."""
    far = np.array([1e6, 2e6])
    tails = _call("survival", BASES["student"], WIDER, far)
    assert tails[0] / tails[1] == pytest.approx(2**5, rel=1e-4)


def test_a_normal_base_is_stretched_beyond_the_ladder():
    p = stats.norm.cdf(-5.0)
    expected = -5.0 * WIDER[-1] / KNOTS[-1]
    assert _call("quantile", GAUSSIAN, WIDER, np.array([p]))[0] == pytest.approx(expected)


def test_quantiles_of_many_rows_at_few_probabilities():
    """The way by a spline, which many rows take, against rows one by one."""
    random, n = np.random.default_rng(1), 1200
    shape = NormalPlusStudent(random.uniform(0.1, 1, n), random.uniform(0.1, 1, n), 5.0)
    p = random.choice([0.01, 0.6, 0.99], n)
    found = shape.quantile(p)
    some = np.arange(0, n, 37)
    np.testing.assert_allclose(found[some], shape[some].quantile(p[some]), rtol=1e-9)
    np.testing.assert_allclose(shape.cdf(found), p, rtol=1e-7)


def test_rows_have_their_own_base_and_cell():
    bases = shape_of(np.array([0.0, -0.4, 0.3, -0.4, 0.0]), np.array([1.0, 0.75, 1.4, 0.75, 1.0]))
    assert isinstance(bases, RowShapes)
    number = np.array([0, 1, 2, 2, 1])
    warp = Warp(np.stack(list(CELLS.values())))
    shape = WarpedShape(bases, warp, number)
    at = np.array([0.1, 0.35, 0.5, 0.8, 0.97])
    some = np.array([True, False, True, True, False])
    for name in ("quantile", "cdf", "survival", "log_density", "crps", "exponential_mean"):
        found = getattr(shape, name)(at)
        one = [
            getattr(WarpedShape(bases[[i]], warp, number[[i]]), name)(at[[i]])[0] for i in range(5)
        ]
        np.testing.assert_allclose(found, one, rtol=1e-12)
        np.testing.assert_allclose(getattr(shape[some], name)(at[some]), found[some], rtol=1e-12)
    np.testing.assert_array_equal(shape.kinds(5)[[1, 3]] == shape.kinds(5)[3], [False, True])


def test_a_prediction_takes_a_repaired_shape():
    mean, variance = np.array([1.0, 2.0]), np.array([0.25, 1.0])
    shape = WarpedShape(GAUSSIAN, Warp((KNOTS * 2)[None]), np.zeros(2, np.intp))
    p = Prediction(mean, 0.6 * variance, 0.4 * variance, shape=shape)
    wide = Prediction(mean, 2.4 * variance, 1.6 * variance)
    y = np.array([0.3, 4.2])
    for name in ("pit", "exceedance", "log_score", "crps"):
        np.testing.assert_allclose(getattr(p, name)(y), getattr(wide, name)(y), rtol=1e-7)
    np.testing.assert_allclose(p.interval(0.95), wide.interval(0.95))
    np.testing.assert_allclose(p.power_mean(10.0), wide.power_mean(10.0), rtol=1e-7)


@pytest.mark.parametrize("name", ["rows", "sum", "student"])
def test_a_table_keeps_the_repair(name):
    random, n = np.random.default_rng(3), 40
    function, noise = random.uniform(0.1, 1, n), random.uniform(0.1, 1, n)
    base = {
        "rows": shape_of(random.choice([0.0, -0.2], n), random.choice([1.0, 0.8], n)),
        "sum": NormalPlusStudent(function, noise, 5.0),
        "student": StudentT(4.0),
    }[name]
    number = random.integers(0, 3, n)
    shape = WarpedShape(base, Warp(np.stack(list(CELLS.values()))), number)
    columns = Prediction(np.zeros(n), function, noise, shape=shape).columns()
    assert set(REPAIR_COLUMNS) < set(columns)
    kept = {k: v for k, v in columns.items() if k in SHAPE_COLUMNS or k in REPAIR_COLUMNS}
    again = shape_from(kept, function, noise)
    x = random.normal(size=n)
    for method in ("cdf", "log_density", "crps"):
        np.testing.assert_allclose(getattr(again, method)(x), getattr(shape, method)(x), rtol=1e-12)
    part = {k: v for k, v in kept.items() if k not in REPAIR_COLUMNS}
    np.testing.assert_allclose(shape_from(part, function, noise).cdf(x), base.cdf(x), rtol=1e-12)


def test_a_table_with_rows_that_are_not_repaired():
    knots = np.stack([WIDER, np.full(len(KNOTS), np.nan)])
    columns = dict(zip(REPAIR_COLUMNS, knots.T, strict=True))
    one = np.ones(2)
    shape = shape_from(columns, one, one)
    np.testing.assert_allclose(
        shape.cdf(np.array([-1.0, -1.0])),
        [_call("cdf", GAUSSIAN, WIDER, -np.ones(1))[0], stats.norm.cdf(-1)],
    )
    empty = {name: np.full(2, np.nan) for name in REPAIR_COLUMNS}
    assert shape_from(empty, one, one) is GAUSSIAN
    del columns["repair_95"]
    with pytest.raises(
        RequestError, match="all columns of a repair, or none of them; missing: repair_95"
    ):
        shape_from(columns, one, one)


def test_flat_knots_are_raised_and_never_lowered():
    flat = np.stack([np.full(len(KNOTS), 1.0), WIDER, SHORT])
    raised = covering_knots(flat)
    assert (np.diff(raised[0]) > 0).all()
    np.testing.assert_allclose(np.diff(raised[0]), MIN_SLOPE * np.diff(KNOTS))
    np.testing.assert_allclose(raised[1:], flat[1:] * (1 + MARGIN), rtol=1e-15)
    Warp(raised)


@pytest.mark.parametrize(
    "knots",
    [
        WIDER[:-1],
        WIDER[::-1],
        np.where(np.arange(len(KNOTS)) == 3, np.nan, WIDER),
        np.where(np.arange(len(KNOTS)) == 11, np.inf, WIDER),
        np.r_[0.0, WIDER[1:]],
    ],
)
def test_other_knots_are_refused(knots):
    with pytest.raises(RequestError, match="expected knots"):
        Warp(knots[None])


def test_a_cell_that_does_not_exist_is_refused():
    with pytest.raises(RequestError, match="expected cells from 0 to 0, found 1 to 1"):
        WarpedShape(GAUSSIAN, Warp(WIDER[None]), np.ones(1, np.intp))


def test_a_repair_of_a_repair_is_refused():
    shape = _at(GAUSSIAN, WIDER, np.zeros(1))
    with pytest.raises(RequestError, match="already repaired"):
        WarpedShape(shape, Warp(WIDER[None]), np.zeros(1, np.intp))


def test_a_mean_of_a_power_far_beyond_the_tails_is_infinite():
    """In those rows alone."""
    found = _call("exponential_mean", SinhArcsinh(1.5, 0.6), WIDER, np.array([0.1, 60.0]))
    assert np.isfinite(found[0])
    assert found[1] == np.inf
    heavy = _at(StudentT(5.0), WIDER, np.zeros(2))
    assert not heavy.has_power_mean
    np.testing.assert_array_equal(heavy.exponential_mean(np.array([0.0, 0.1])), [1, np.inf])
