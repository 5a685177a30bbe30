"""Conformal repair against its definition, its finite-sample law and made-up worlds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from geogp.distributions.heavy_shapes import StudentT
from geogp.distributions.prediction import Prediction
from geogp.distributions.sinh_arcsinh import SinhArcsinh, shape_of
from geogp.distributions.warped_shapes import WarpedShape
from geogp.distributions.warps import KNOTS, LADDER, MARGIN, REPAIR_COLUMNS
from geogp.errors import DataError, RequestError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.conformal.conformal_cells import Cell, RepairPlaces, partition
from geogp.evaluation.conformal.conformal_repair import (
    NO_REPAIR,
    check_coverage,
    coverage_band,
    fit_repair,
    ladder_knots,
    normal_scores,
    rank,
)
from geogp.evaluation.conformal.local_quantiles import NEAREST, NearbyScores
from geogp.evaluation.conformal.repair_methods import METHODS
from geogp.evaluation.splits.split_names import SPLITS
from geogp.records.repair_records import CalibrationRecord
from geogp.reports.rendering import say
from geogp.runs.pipeline.repair import with_repair


def _normal(n: int, sd: float = 1.0) -> Prediction:
    return Prediction(np.zeros(n), np.full(n, 0.3 * sd**2), np.full(n, 0.7 * sd**2))


class _Places(RepairPlaces):
    """Places of which tests take some."""

    def __getitem__(self, rows):
        columns = (self.stratum, self.tests, self.longitude, self.latitude)
        return _Places(*(column[rows] for column in columns))


def _places(n: int, random: np.random.Generator, rural: float = 0.3) -> _Places:
    return _Places(
        np.where(random.random(n) < rural, "rural", "urban"),
        np.ceil(random.lognormal(0.8, 1.0, n)),
        random.uniform(-67, -65, n),
        random.uniform(18, 18.5, n),
    )


def _inside(prediction: Prediction, y: np.ndarray, level: float) -> np.ndarray:
    low, high = prediction.interval(level)
    return (low <= y) & (y <= high)


@pytest.mark.parametrize("m", [19, 20, 98, 99, 100, 500])
def test_intervals_are_those_of_sorted_residuals(m):
    """For a normal prediction: mean ± sd times the k-th smallest of |y - mean| / sd."""
    random = np.random.default_rng(m)
    prediction = Prediction(random.normal(size=m), random.uniform(0.1, 1, m), np.full(m, 0.2))
    y = prediction.mean + prediction.sd * random.standard_t(3, m) * 1.7
    repair = fit_repair("marginal", prediction, y, _places(m, random))
    new = Prediction(np.array([1.0, 3.0]), np.array([0.5, 1.0]), np.array([0.1, 0.0]))
    repaired = repair.apply(new, _places(2, random))
    ordered = np.sort(np.abs(y - prediction.mean) / prediction.sd)
    held = repair.ladder
    for level in LADDER:
        k = int(np.ceil(round((m + 1) * level, 9)))
        assert (level in held) == (k <= m)
        if k <= m:
            low, high = repaired.interval(level)
            half = ordered[k - 1] * (1 + MARGIN) * new.sd
            np.testing.assert_allclose(high, new.mean + half, rtol=1e-12)
            np.testing.assert_allclose(low, new.mean - half, rtol=1e-12)
    np.testing.assert_allclose(repaired.quantile(0.5), new.quantile(0.5))


def test_ranks_of_whole_products_are_not_rounded_up():
    """100 times 0.99 is not below or above 99 for a computer's sake; nor are others."""
    for m in range(1, 3000):
        for level in LADDER:
            hundredths = round(100 * level)
            assert rank(m, level) == -(-(m + 1) * hundredths // 100)


def test_intervals_of_skewed_predictions_stay_central_in_probability():
    random, m = np.random.default_rng(1), 400
    shape = SinhArcsinh(-0.4, 0.8)
    prediction = Prediction(np.zeros(m), np.full(m, 0.5), np.full(m, 0.5), shape=shape)
    y = 1.8 * shape.quantile(random.uniform(0, 1, m))
    places = _places(m, random)
    repaired = fit_repair("marginal", prediction, y, places).apply(prediction, places)
    low, high = repaired.interval(0.9)
    np.testing.assert_allclose(prediction.cdf(low), prediction.exceedance(high), rtol=1e-9)
    away = np.sort(np.abs(prediction.pit(y) - 0.5))[rank(m, 0.9) - 1]
    assert high[0] == pytest.approx(prediction.quantile(0.5 + away)[0], rel=1e-8)


BASES = {
    "normal": shape_of(0.0, 1.0),
    "skewed": SinhArcsinh(-0.4, 0.8),
    "student": StudentT(4.0),
}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("method", ["marginal", "strata"])
def test_the_row_that_an_interval_ends_at_lies_inside(base, method):
    """Its end is worked out from its score and rounds in its own way, on every processor."""
    random, m = np.random.default_rng(15), 1200
    places = _places(m, random)
    mean = random.uniform(-3, 3, m)
    prediction = Prediction(mean, random.uniform(0.001, 1, m), np.full(m, 0.01), shape=base)
    y = mean + prediction.sd * base.quantile(random.uniform(0, 1, m)) * 1.7
    repair = fit_repair(method, prediction, y, places)
    repaired, number = repair.apply(prediction, places), repair.cell_of(places)
    inside = {level: _inside(repaired, y, level) for level in LADDER}
    for place, cell in enumerate(repair.cells):
        rows = number == place
        for level, knot in zip(LADDER, cell.knots, strict=True):
            if np.isfinite(knot):
                assert inside[level][rows].sum() == rank(cell.n, level)
    # The three ways in which reports count agree row by row.
    for level in LADDER:
        size = normal_scores(repaired, y)
        np.testing.assert_array_equal(size <= KNOTS[LADDER.index(level)], inside[level])
        away = np.abs(repaired.pit(y) - 0.5)
        np.testing.assert_array_equal(away <= 0.5 * level, inside[level])


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("method", ["marginal", "local"])
def test_ties_lie_inside_the_intervals_that_end_at_them(base, method):
    """All rows have one score: each interval ends at every row, and has to hold every one."""
    random, m = np.random.default_rng(16), 300
    places, mean = _places(m, random), random.uniform(-3, 3, m)
    prediction = Prediction(mean, random.uniform(0.001, 1, m), np.full(m, 0.01), shape=base)
    y = mean + prediction.sd * base.from_normal(np.full(m, 1.3))
    repaired = fit_repair(method, prediction, y, places).apply(prediction, places)
    assert all(_inside(repaired, y, level).all() for level in LADDER)


def test_coverage_over_draws_of_both_is_from_p_to_p_and_one_in_m_plus_1():
    """2,000 repeats of predictions with a wrong scale, of a heavy-tailed truth."""
    random = np.random.default_rng(7)
    m, n, repeats = 59, 20, 2000
    levels = (0.5, 0.8, 0.9, 0.95)
    hits = np.empty((repeats, len(levels)))
    places = _places(m + n, random)
    stated = _normal(m + n, sd=0.4)
    for repeat in range(repeats):
        y = random.standard_t(2.5, m + n)
        repair = fit_repair("marginal", stated[:m], y[:m], places[:m])
        size = normal_scores(repair.apply(stated[m:], places[m:]), y[m:])
        hits[repeat] = [np.mean(size <= KNOTS[LADDER.index(level)]) for level in levels]
    for level, shares in zip(levels, hits.T, strict=True):
        error = 4 * shares.std() / np.sqrt(repeats)
        assert shares.mean() == pytest.approx(rank(m, level) / (m + 1), abs=error)
        assert level - error <= shares.mean() <= level + 1 / (m + 1) + error


def test_numbers_inside_are_beta_binomial():
    """The share of draws in the bands, and the distribution function of the number inside."""
    random = np.random.default_rng(11)
    m, n, repeats, level = 40, 100, 4000, 0.9
    scores = np.abs(random.standard_cauchy((repeats, m + n)))
    q = np.sort(scores[:, :m], axis=1)[:, rank(m, level) - 1]
    inside = (scores[:, m:] <= q[:, None]).sum(1)
    k = rank(m, level)
    law = stats.betabinom(n, k, m + 1 - k)
    for count in (75, 85, 90, 95):
        assert np.mean(inside <= count) == pytest.approx(law.cdf(count), abs=0.03)
    band = coverage_band(m, n, level, 0.9)
    share = np.mean((inside / n >= band.lower) & (inside / n <= band.upper))
    assert 0.9 - 0.02 <= share <= 0.96


@pytest.mark.trial
def test_bands_hold_for_all_cells_together():
    """In 60 worlds of two strata nearly all shares of all cells and levels lie in the bands."""
    random, n = np.random.default_rng(5), 600
    all_inside = 0
    for _ in range(60):
        places = _places(2 * n, random)
        y = np.where(places.stratum == "rural", 3.0, 0.5) * random.standard_t(4, 2 * n)
        stated = _normal(2 * n)
        repair = fit_repair("strata", stated[:n], y[:n], places[:n])
        checks = check_coverage(repair, repair.apply(stated[n:], places[n:]), y[n:], places[n:])
        all_inside += all(check.inside for check in checks)
        assert len(checks) == 4 * len(repair.cells)
        assert sum(check.test for check in checks) == 4 * n
        assert not all(c.inside for c in check_coverage(repair, stated[n:], y[n:], places[n:]))
    assert all_inside >= 57


def test_bands_widen_with_the_number_of_checks_and_narrow_with_rows():
    one, many = coverage_band(200, 300, 0.9), coverage_band(200, 300, 0.9, checks=40)
    assert many.lower < one.lower < 0.9 < one.upper < many.upper
    law = stats.betabinom(300, 181, 20)
    assert one == (law.ppf(0.005) / 300, law.ppf(0.995) / 300)
    large = coverage_band(20_000, 30_000, 0.9)
    assert large.upper - large.lower < 0.02


@pytest.mark.parametrize("shape", [shape_of(0.0, 1.0), SinhArcsinh(-0.4, 0.8), StudentT(4.0)])
def test_scores_at_the_quantiles_of_the_prediction_change_nothing(shape):
    m = 999
    prediction = Prediction(np.zeros(m), np.full(m, 0.5), np.full(m, 0.5), shape=shape)
    # |z| at the levels i / 1000, so that the k-th of them is t_p.
    y = shape.from_normal(stats.norm.ppf((1 + np.arange(1, 1000) / 1000) / 2))
    repair = fit_repair("marginal", prediction, y, _places(m, np.random.default_rng(0)))
    np.testing.assert_allclose(repair.cells[0].knots, KNOTS * (1 + MARGIN), rtol=1e-11)


def test_ties_do_not_make_a_repair_of_infinite_density():
    scores = np.repeat([0.5, 1.0, 2.0], 50)
    knots = ladder_knots(scores)
    assert (np.diff(knots) > 0).all()
    ranks = [np.sort(scores)[rank(150, level) - 1] for level in LADDER]
    assert (knots >= ranks).all()
    assert (knots <= np.array(ranks) * (1 + 2 * MARGIN) + 0.01 * KNOTS).all()


def test_cells_part_all_rows_and_small_classes_are_pooled():
    tests = np.repeat([1.0, 2.0, 3.0, 7.0, 12.0, 40.0], [150, 30, 80, 120, 90, 20])
    n = len(tests)
    stratum = np.array(["urban"] * n + ["rural"] * 130)
    tests = np.r_[tests, np.tile([1.0, 5.0], 65)]
    zero = np.zeros(len(tests))
    groups = partition(RepairPlaces(stratum, tests, zero, zero))
    assert list(groups) == [
        ("rural", 1, None) if name == "rural" else name
        for name in [
            ("urban", 1, 1),
            ("urban", 2, 4),
            ("urban", 5, 9),
            ("urban", 10, None),
            "rural",
        ]
    ]
    assert [int(rows.sum()) for rows in groups.values()] == [150, 110, 120, 110, 130]
    assert (sum(rows.astype(int) for rows in groups.values()) == 1).all()


def test_a_small_stratum_is_not_told_apart():
    random = np.random.default_rng(0)
    places = _places(2000, random, rural=0.03)
    assert (places.stratum == "rural").sum() < 100
    groups = partition(places)
    assert {stratum for stratum, _, _ in groups} == {"all"}
    assert all(rows.sum() >= 100 for rows in groups.values())
    repair = fit_repair("strata", _normal(2000), random.normal(size=2000), places)
    assert repair.cells[0].name.startswith("all, 1 test")
    unknown = RepairPlaces(np.full(3, "unknown"), np.ones(3), np.zeros(3), np.zeros(3))
    assert repair.cell_of(unknown).tolist() == [0, 0, 0]


def test_every_stratum_and_class_is_repaired_by_its_own_rows():
    random, n = np.random.default_rng(2), 20_000
    places = _places(n, random)
    scale = np.where(places.stratum == "rural", 2.5, 0.7) * np.where(places.tests == 1, 1.5, 1.0)
    y = scale * random.standard_normal(n)
    test = np.arange(n) >= n // 2
    stated = _normal(n)
    for method, good in (("marginal", False), ("strata", True)):
        repair = fit_repair(method, stated[~test], y[~test], places[~test])
        repaired = repair.apply(stated[test], places[test])
        for stratum in ("urban", "rural"):
            rows = places[test].stratum == stratum
            off = abs(_inside(repaired, y[test], 0.9)[rows].mean() - 0.9)
            assert (off < 0.02) == good
    shape = repaired.shape
    assert isinstance(shape, WarpedShape)
    assert len(shape.warp.knots) == len(repair.cells) == 11


def test_local_repair_mends_each_half_of_a_world():
    """In the west intervals are too narrow by 3, in the east too wide by 2; three worlds."""
    random, n = np.random.default_rng(3), 4000
    stated, train = _normal(n), np.arange(n) < n // 2
    shares: dict[str, list[list[float]]] = {"marginal": [], "local": []}
    for _ in range(3):
        places = _places(n, random)
        west = places.longitude < -66
        y = np.where(west, 3.0, 0.5) * random.standard_normal(n)
        # Around the border the nearest rows are of both halves.
        far = (np.abs(places.longitude + 66) > 0.3)[~train]
        for method, found in shares.items():
            repair = fit_repair(method, stated[train], y[train], places[train])
            inside = _inside(repair.apply(stated[~train], places[~train]), y[~train], 0.9)
            found.append([inside[half[~train] & far].mean() for half in (west, ~west)])
    np.testing.assert_allclose(np.mean(shares["local"], axis=0), 0.9, atol=0.025)
    overconfident, timid = np.mean(shares["marginal"], axis=0)
    assert overconfident < 0.83
    assert timid > 0.98


def test_local_quantiles_against_a_plain_loop():
    random, m = np.random.default_rng(4), 500
    places, scores = _places(m, random), random.exponential(size=m)
    nearby = NearbyScores(places.longitude, places.latitude, scores)
    at = np.array([[-66.3, 18.2], [-65.0, 18.5], [-60.0, 20.0]])
    found = nearby.knots(*at.T)
    radians = np.radians(np.column_stack([places.longitude, places.latitude]))
    for (longitude, latitude), knots in zip(np.radians(at), found, strict=True):
        half = (
            np.sin((radians[:, 1] - latitude) / 2) ** 2
            + np.cos(latitude)
            * np.cos(radians[:, 1])
            * np.sin((radians[:, 0] - longitude) / 2) ** 2
        )
        distance = 2 * 6371.0088 * np.arcsin(np.sqrt(half))
        nearest = np.argsort(distance)[:NEAREST]
        reach = distance[nearest[-1]]
        weights = 1 - 0.75 * (np.sin(distance[nearest] / 2 / 6371.0088) ** 2) / (
            np.sin(reach / 2 / 6371.0088) ** 2
        )
        assert weights.sum() ** 2 / (weights**2).sum() >= 0.64 * NEAREST
        order = np.argsort(scores[nearest])
        below = np.cumsum(weights[order])
        for level, knot in zip(LADDER, knots, strict=True):
            reached = below >= level * (weights.sum() + 1)
            expected = scores[nearest][order][reached.argmax()] if reached.any() else np.nan
            np.testing.assert_allclose(knot, expected, atol=0.01)


def test_equal_weights_are_the_unweighted_repair():
    """All calibration rows at one place, the new one there too."""
    random, m = np.random.default_rng(6), NEAREST
    scores = random.exponential(size=m)
    found = NearbyScores(np.zeros(m), np.zeros(m), scores).knots(np.zeros(1), np.zeros(1))
    np.testing.assert_array_equal(found[0], ladder_knots(scores))


@pytest.mark.parametrize("method", METHODS)
def test_tables_bring_a_repair_back(method):
    random, m = np.random.default_rng(8), 1500
    places = _places(m, random)
    skewness = np.where(places.tests > 2, -0.2, 0.0)
    shape = shape_of(skewness, np.where(places.tests > 2, 0.8, 1.0))
    prediction = Prediction(np.zeros(m), np.full(m, 0.5), np.full(m, 0.5), shape=shape)
    y = random.standard_t(3, m)
    repair = fit_repair(method, prediction, y, places)
    repaired = repair.apply(prediction, places)
    table = pd.DataFrame({**repaired.columns(), "y": y})
    assert (set(REPAIR_COLUMNS) <= set(table)) == (method != "none")
    read = prediction_of(table)
    np.testing.assert_allclose(read.log_score(y), repaired.log_score(y), rtol=1e-9)
    np.testing.assert_allclose(read.crps(y), repaired.crps(y), rtol=1e-9)
    if method != "none":
        assert (repaired.pit(y) != prediction.pit(y)).mean() > 0.9


def test_a_repair_lowers_the_scores_of_wrong_predictions():
    """Truth N(0, 4) and t3, predicted as N(0, 1): CRPS and log score near those of the truth."""
    random, n = np.random.default_rng(10), 8000
    places, stated, train = _places(n, random), _normal(n), np.arange(n) < n // 2
    y = 2 * random.standard_normal(n)
    repaired = fit_repair("marginal", stated[train], y[train], places[train]).apply(
        stated[~train], places[~train]
    )
    truth = _normal(n // 2, 2.0)
    for name in ("crps", "log_score"):
        own, best, before = (
            getattr(p, name)(y[~train]).mean() for p in (repaired, truth, stated[~train])
        )
        assert best - 1e-3 < own < best + 0.02
        assert before > own + 0.02


def test_what_cannot_be_repaired_is_refused():
    random, m = np.random.default_rng(12), 200
    places, y = _places(m, random), random.normal(size=m)
    with pytest.raises(
        RequestError,
        match="unknown conformal repair 'jackknife'; choose one of none, marginal, strata, local",
    ):
        fit_repair("jackknife", _normal(m), y, places)
    with pytest.raises(DataError, match=r"at least 19 calibration rows.*found 18"):
        fit_repair("marginal", _normal(18), y[:18], places[:18])
    with pytest.raises(DataError, match=r"at least 157 .*local.*found 156.*choose marginal"):
        fit_repair("local", _normal(156), y[:156], places[:156])
    repair = fit_repair("marginal", _normal(m), y, places)
    with pytest.raises(RequestError, match="already repaired"):
        repair.apply(repair.apply(_normal(m), places), places)


@pytest.mark.parametrize("method", ["marginal", "local"])
def test_rows_that_no_interval_reaches_are_refused(method):
    random, m = np.random.default_rng(13), 200
    y = np.where(np.arange(m) < 195, 1e3, 0.0)
    with pytest.raises(DataError, match="expected normal scores below 37"):
        fit_repair(method, _normal(m), y, _places(m, random)).apply(_normal(m), _places(m, random))


def test_places_of_unknown_stratum_have_no_cell_where_strata_are_told_apart():
    random, m = np.random.default_rng(14), 1000
    repair = fit_repair("strata", _normal(m), random.normal(size=m), _places(m, random))
    unknown = RepairPlaces(np.full(3, "unknown"), np.ones(3), np.zeros(3), np.zeros(3))
    with pytest.raises(DataError, match="found 3 places of unknown stratum"):
        repair.apply(_normal(3), unknown)


def test_nothing_is_done_without_a_repair():
    prediction = _normal(4)
    places = _places(4, np.random.default_rng(0))
    assert NO_REPAIR.apply(prediction, places) is prediction
    assert fit_repair("none", prediction, np.zeros(4), places) is NO_REPAIR


def test_words_name_cells_and_state_the_scatter_of_the_smallest():
    def told(repair):
        return with_repair(CalibrationRecord(), repair).statements

    knots = (1.0,) * len(LADDER)
    cells = (Cell("urban", 1, 1, 1000, knots), Cell("rural", 2, 2, 234, knots))
    strata = told(replace(NO_REPAIR, method="strata", n=1234, cells=cells))
    low, high = stats.beta.ppf([0.025, 0.975], 224, 11)
    assert len(strata) == 7
    assert "1,234 calibration rows" in strata[0]
    assert "urban, 1 test (1,000 rows); rural, 2 tests (234 rows)" in strata[1]
    scatter = f"of the 95 % intervals is {100 * low:.1f} to {100 * high:.1f} % in 95 of 100 draws"
    assert f"(rural, 2 tests, 234 rows), the coverage {scatter}" in strata[3]
    assert "approximate" in " ".join(told(replace(NO_REPAIR, method="local", n=500)))
    assert "not repaired" in told(NO_REPAIR)[0]
    assert len({say("conformal", "promise", "strata", split) for split in SPLITS}) == len(SPLITS)
    assert "not repaired" in say("conformal", "level")
