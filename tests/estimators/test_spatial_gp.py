"""Estimators: fit, predict, score; the manners of scikit-learn; what is refused."""

import pickle
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from estimator_worlds import TINY, made_points
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from geogp import CountGP, DeepBasisGP, FieldGP, KernelGP, evaluate, list_models, load_model, split
from geogp.errors import DataError, RequestError
from geogp.geodata.simulation.simulated_tiles import simple_region
from geogp.models.fitting.few_rows import FEW_ROWS

PLAIN = {"x": "east", "y": "north", "crs": None}


@pytest.fixture(scope="module")
def points():
    return made_points(1500)


@pytest.fixture(scope="module")
def fitted(points):
    """A fitted field model; tests must not change it."""
    model = FieldGP(**PLAIN, time="date", tests="tests")
    return model.fit(points[:1200], points.value[:1200])


@pytest.fixture(scope="module")
def deep(points):
    return DeepBasisGP("sv-rbf", **PLAIN, **TINY).fit(points[:1100], points.value[:1100])


def test_the_same_rows_give_the_same_numbers(points):
    one, other = (FieldGP(**PLAIN, **TINY).fit(points, points.value) for _ in range(2))
    assert (one.predict(points) == other.predict(points)).all()


def test_order_and_other_columns_do_not_matter_for_what_validates(points):
    shuffled = points.sample(frac=1, random_state=1).assign(other="x")
    one = DeepBasisGP("dbk-silu", **PLAIN, **TINY).fit(points, points.value)
    other = DeepBasisGP("dbk-silu", **PLAIN, **TINY).fit(shuffled, shuffled.value)
    assert set(points.index[one.validation_]) == set(shuffled.index[other.validation_])


@pytest.mark.parametrize("how", ["blocks", "random"])
def test_about_a_tenth_validates(points, how):
    model = DeepBasisGP("dbk-silu", **PLAIN, **TINY, validation=how).fit(points, points.value)
    assert 0.05 < model.validation_.mean() < 0.2


def test_a_mask_says_which_rows_validate(points):
    mask = np.arange(len(points)) % 7 == 0
    model = DeepBasisGP("dbk-silu", **PLAIN, **TINY, validation=mask).fit(points, points.value)
    assert (model.validation_ == mask).all()


def test_a_table_and_an_array_agree(points):
    columns = ["east", "north", "days", "tests"]
    table = points.assign(days=(points.date - points.date.min()).dt.total_seconds() / 86400)
    names = {**PLAIN, "time": "days", "time_unit": "day", "tests": "tests"}
    one = FieldGP(**names, **TINY).fit(table, table.value)
    other = FieldGP(**names, **TINY).fit(table[columns].to_numpy(float), table.value.to_numpy())
    assert one.predict(table) == pytest.approx(other.predict(table[columns].to_numpy(float)))


def test_more_tests_scatter_less(points):
    noise = np.random.default_rng(0).standard_normal(len(points)) / points.tests
    fitted = FieldGP(**PLAIN, time="date", tests="tests").fit(points, points.value + noise)
    few, many = (fitted.predict_distribution(points.assign(tests=n)[:50]).sd for n in (1, 8))
    level = fitted.predict_distribution(points[:50], level=True)
    assert (many < few).mean() > 0.9
    assert (level.noise_variance == 0).all()


def test_rows_without_a_column_of_tests_are_of_one_test(fitted, points):
    one = fitted.predict_distribution(points.assign(tests=1)[:20])
    none = fitted.predict_distribution(points.drop(columns="tests")[:20])
    assert (one.sd == none.sd).all()


def test_predictions_are_medians_and_scores_are_densities(fitted, points):
    law = fitted.predict_distribution(points[1200:])
    assert (fitted.predict(points[1200:]) == law.median).all()
    assert law.cdf(law.median) == pytest.approx(0.5, abs=1e-6)
    expected = -law.log_score(points.value[1200:]).mean()
    assert fitted.score(points[1200:], points.value[1200:]) == pytest.approx(expected)


def test_samples_follow_the_law(fitted, points):
    law = fitted.predict_distribution(points[:20])
    drawn = law.sample(4000, random_state=1)
    assert drawn.shape == (4000, 20)
    assert np.abs(np.median(drawn, 0) - law.median).max() < 0.1 * law.sd.max()
    inside = (drawn > law.interval(0.8)[0]) & (drawn < law.interval(0.8)[1])
    assert inside.mean() == pytest.approx(0.8, abs=0.01)
    assert (law.sample(3, random_state=5) == law.sample(3, random_state=5)).all()
    with pytest.raises(RequestError, match="a size from 1"):
        law.sample(0)


class TestJoint:
    @pytest.fixture
    def law(self, fitted, points):
        return fitted.joint(points[:30].assign(date=points.date.max()))

    def test_sums_are_those_of_draws(self, law):
        weights = np.column_stack([np.full(30, 1 / 30), np.arange(30) < 5])
        sums = law.weighted_sums(weights)
        drawn = np.concatenate(list(law.paths(4000))) @ weights
        assert sums.mean == pytest.approx(drawn.mean(0), abs=5 * (sums.sd / 60).max())
        assert sums.covariance == pytest.approx(np.cov(drawn.T), rel=0.15, abs=0.01)
        own = sums.sample(4000)
        assert np.cov(own.T) == pytest.approx(sums.covariance, rel=0.15, abs=0.01)

    @pytest.mark.parametrize("kind", ["fitted", "deep"])
    def test_drawn_functions_follow_the_law(self, kind, points, request):
        places = points[:12].assign(date=points.date.max())
        law = request.getfixturevalue(kind).joint(places)
        drawn = law.sample(8000, random_state=2)
        assert drawn.shape == (8000, 12)
        covariance = law.weighted_sums(np.eye(12)).covariance
        sd = np.sqrt(np.diagonal(covariance))
        assert np.abs((drawn.mean(0) - law.mean) / sd).max() < 4.5 / np.sqrt(8000)
        # The standard error of a covariance is at most sqrt(2 / 8000) of both deviations.
        error = (np.cov(drawn.T) - covariance) / np.outer(sd, sd)
        assert np.abs(error).max() < 4.5 * np.sqrt(2 / 8000)
        assert np.abs(covariance / np.outer(sd, sd) - np.eye(12)).max() > 0.2
        assert (law.sample(20, random_state=5) == np.concatenate(list(law.paths(20, seed=5)))).all()
        with pytest.raises(RequestError, match="sample paths from 1"):
            law.sample(0)

    def test_one_sum_and_its_interval(self, law):
        found = law.weighted_sums(np.full(30, 1 / 30))
        lower, upper = found.interval(0.95)
        assert upper - lower == pytest.approx(2 * 1.959964 * found.sd)
        with pytest.raises(RequestError, match="between 0 and 1"):
            found.interval(95)

    def test_a_point_twice_at_one_time_is_refused(self, fitted, points):
        assert len(fitted.joint(points[:5])) == 5
        with pytest.raises(DataError, match="each tile once at each time, found 1 repeated"):
            fitted.joint(pd.concat([points[:5], points[:1]]))

    def test_other_models_need_their_rows(self, deep, points, tmp_path):
        assert deep.joint(points[:5]).weighted_sums(np.ones(5)).sd > 0
        deep.save(tmp_path / "m.safetensors")
        again = load_model(tmp_path / "m.safetensors")
        with pytest.raises(RequestError, match=r"give these rows with rows="):
            again.joint(points[:5])
        known = points[: len(deep.validation_)][~deep.validation_]
        told = again.joint(points[:5], rows=(known, known["value"]))
        expected = deep.joint(points[:5]).weighted_sums(np.ones(5))
        np.testing.assert_allclose(told.weighted_sums(np.ones(5)).covariance, expected.covariance)
        with pytest.raises(DataError, match="expected the training rows of sv-rbf"):
            again.joint(points[:5], rows=(known[:7], known["value"][:7]))

    def test_rows_that_a_model_holds_are_not_taken_again(self, fitted, points):
        here = points[:5].assign(date=points["date"].max())
        with pytest.raises(RequestError, match="field already contains its training rows"):
            fitted.joint(here, rows=(points, points["value"]))

    def test_models_without_a_level_refuse(self, points):
        counts = CountGP(**PLAIN, **TINY).fit(points, points.tests)
        with pytest.raises(RequestError, match="counts"):
            counts.joint(points[:5])
        plain = DeepBasisGP("dnn", **PLAIN, **TINY).fit(points, points.value)
        with pytest.raises(RequestError, match="level"):
            plain.predict_distribution(points[:5], level=True)


class TestGrids:
    def test_a_box(self, fitted):
        found = fitted.grid((0, 0, 100, 60), time="2025-06-01", resolution=10)
        assert dict(found.sizes) == {"y": 6, "x": 10}
        assert found.y.to_numpy().tolist() == [55, 45, 35, 25, 15, 5]
        when = pd.Timestamp("2025-06-01")
        place = pd.DataFrame({"east": [25.0], "north": [45.0], "date": [when]})
        expected = fitted.predict_distribution(place)
        cell = found.sel(x=25, y=45)
        assert float(cell["median"]) == pytest.approx(expected.median[0], abs=1e-5)
        assert float(cell["upper_95"]) == pytest.approx(expected.interval()[1][0], abs=1e-5)

    def test_tests_and_devices_are_as_in_a_prediction(self, fitted):
        place = pd.DataFrame({"east": [0.5], "north": [0.5], "date": pd.Timestamp("2025-06-01")})
        inputs, widths = fitted.inputs(place), []
        for devices in (None, 1, 8):
            grid = fitted.grid(
                (0, 0, 1, 1), time="2025-06-01", resolution=1, tests=8, devices=devices
            )
            lower, upper = fitted.network_.predict(inputs, 8, devices).interval()
            widths.append(float((grid["upper_95"] - grid["lower_95"]).item()))
            assert widths[-1] == pytest.approx((upper - lower)[0], rel=1e-4)
        assert widths[1] != pytest.approx(widths[2], rel=1e-3), "the number of devices matters"

    @pytest.mark.filterwarnings("ignore:Use `@` matmul")  # of rioxarray's
    def test_a_region_is_written_as_a_raster(self, tmp_path):
        region = simple_region()
        west, south, east, north = region.bounds
        random = np.random.default_rng(0)
        places = random.uniform((west, south), (east, north), (1100, 2))
        model = DeepBasisGP("dbk-silu", **TINY).fit(places, places[:, 0] - west)
        found = model.grid(region, zoom=11)
        assert found.rio.crs.to_epsg() == 3857
        assert np.isfinite(found["median"]).sum() == len(region.tiles(11))
        found["median"].rio.to_raster(tmp_path / "median.tif")
        with xr.open_dataset(tmp_path / "median.tif", engine="rasterio") as raster:
            assert raster["band_data"].shape == (1, *found["median"].shape)

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ({"region": (0, 0, 0, 1), "time": 2.0}, "expected time_unit"),
            ({"region": (0, 0, 0, 1), "time": "2025Q1"}, "west < east"),
            ({"region": (0, 0, 1, 1)}, "expected time="),
            ({"region": (0, 0, 1, 1), "time": "2025Q1", "resolution": 0}, "above 0"),
            ({"region": (0, 0, 1, 1), "time": "2025Q1", "resolution": 1e-6}, "too large"),
            ({"region": simple_region(), "time": "2025Q1"}, "a box of west"),
            (
                {"region": "PR", "time": "2025Q1"},
                "expected a region, or west, south, east, north, found 'PR'",
            ),
            ({"region": (0, 0, 1, 1), "time": "2025Q1", "tests": 0}, "tests from 1"),
            ({"region": (0, 0, 1, 1), "time": "2025Q1", "devices": 0}, "devices from 1"),
            (
                {"region": (0, 0, 1, 1), "time": "2025Q1", "tests": 4, "devices": 5},
                "no more devices than tests, .* found 5 devices and 4 tests",
            ),
        ],
    )
    def test_what_is_refused(self, fitted, arguments, match):
        with pytest.raises(RequestError, match=match):
            fitted.grid(**arguments)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        (kind, name)
        for kind in (FieldGP, DeepBasisGP, KernelGP)
        for name in list_models(kind.families[0])
    ],
)
def test_every_model_fits_predicts_and_comes_back_from_a_file(kind, model, points, tmp_path):
    named = {} if kind is FieldGP else {"model": model}
    estimator = kind(**named, **PLAIN, time="date", **TINY, preset="quick")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "columns with the same value|training rows for")
        estimator.fit(points, points.value)
    estimator.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert again.get_params() == estimator.get_params() | {"device": "auto"}
    one, other = (each.predict_distribution(points[:40]) for each in (estimator, again))
    assert (one.mean == other.mean).all()
    assert (one.sd == other.sd).all()


@pytest.mark.trial
@pytest.mark.parametrize("model", list_models("count"))
def test_counts_follow_their_exposure(model, tmp_path):
    random = np.random.default_rng(0)
    table = made_points(1500).assign(area=random.choice([1.0, 4.0], 1500))
    table["count"] = random.poisson(table.area * np.exp(0.5 * np.sin(table.east / 15)))
    estimator = CountGP(model, **PLAIN, exposure="area", epochs=20, rank=16)
    estimator.fit(table, table["count"])
    with pytest.raises(RequestError, match="expected a column 'area'"):
        estimator.predict(table.drop(columns="area"))
    small, large = (estimator.predict_distribution(table.assign(area=a)).mean for a in (1, 4))
    typical = estimator.predict_distribution(table.assign(area=table.area.mean()))
    assert estimator.grid((0, 0, 100, 60), resolution=20)["mean"].mean() == pytest.approx(
        typical.mean.mean(), rel=0.1
    )
    assert large == pytest.approx(4 * small)
    assert np.corrcoef(small, np.exp(0.5 * np.sin(table.east / 15)))[0, 1] > 0.8
    drawn = estimator.predict_distribution(table[:50]).sample(2000)
    assert drawn.mean(0) == pytest.approx(estimator.predict_distribution(table[:50]).mean, rel=0.2)
    estimator.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert (again.predict(table) == estimator.predict(table)).all()


@pytest.mark.trial
def test_intervals_of_a_thousand_points_hold():
    """A tenth of them, in blocks, tells the width of the law alone, not its middle or lean."""
    inside, rows = 0.0, 0
    for seed in range(2):
        table = made_points(2000, seed=seed)
        train, test = split(table, x="east", y="north", time="date", random_state=seed)
        model = FieldGP(**PLAIN, time="date", epochs=20, random_state=seed).fit(train, train.value)
        found = evaluate(model.predict_distribution(test), test.value).loc["all"]
        inside, rows = inside + found.n * found.coverage_95, rows + found.n
    assert 0.92 < inside / rows < 0.98


def test_few_rows_say_that_their_width_is_from_folds(points):
    with pytest.warns(UserWarning, match=r"100 rows at 100 places are few"):
        DeepBasisGP("dbk-silu", **PLAIN, **TINY).fit(points[:100], points.value[:100])
    assert FEW_ROWS > 100


def test_what_there_is_to_say_of_rows_is_said_before_they_are_fitted(points):
    heard: list[str] = []

    def stop(state, epochs):
        raise InterruptedError(*heard)

    model = DeepBasisGP("dbk-silu", **PLAIN, rank=300)
    with pytest.raises(InterruptedError, match="rows for 300 weights"):
        model.fit_watched(points[:320], points[["value"]][:320], progress=stop, warn=heard.append)
    assert "shape (n, 1)" in heard[0]


def test_all_rows_are_one_step_of_a_model_that_is_fitted_to_all(points):
    """Where they are fewer than the batch, the learning rate stays that of the batch."""
    scale = DeepBasisGP("dbk-exact", **PLAIN, epochs=1).fit(points, points.value).scale_
    for batch, rows in ((64, 900), (1200, 1200), (None, 900)):
        plan = DeepBasisGP("dbk-exact", **PLAIN, batch=batch).plan(scale, 900)
        assert plan.preset.batch == rows
    assert DeepBasisGP("dbk-silu", **PLAIN, batch=64).plan(scale, 900).preset.batch == 64


class TestManners:
    def test_clone_and_parameters(self):
        model = FieldGP(x="a", epochs=3)
        assert clone(model).get_params() == model.get_params()
        assert repr(model) == "FieldGP(x='a', epochs=3)"
        assert model.set_params(epochs=4).epochs == 4
        with pytest.raises(RequestError, match="found 'wrong'"):
            model.set_params(wrong=1)

    def test_pickling(self, deep, points):
        assert pickle.loads(pickle.dumps(FieldGP(x="a"))).x == "a"
        again = pickle.loads(pickle.dumps(deep))
        assert (again.predict(points[:9]) == deep.predict(points[:9])).all()

    def test_cross_validation_by_groups(self, points):
        scores = cross_val_score(
            DeepBasisGP("sv-rbf", **PLAIN, **TINY),
            points,
            points.value,
            groups=points.east // 10,
            cv=GroupKFold(4),
        )
        assert np.isfinite(scores).all()

    def test_what_is_not_fitted_says_so(self, points):
        with pytest.raises(RequestError, match="not fitted yet"):
            FieldGP(**PLAIN).predict(points)

    @pytest.mark.trial
    @pytest.mark.filterwarnings("ignore::UserWarning")  # of few rows, and of no inheritance
    def test_scikit_learns_checks(self):
        """Those that make sense for points on a plane pass; the others are known, with reasons."""
        found = check_estimator(
            DeepBasisGP("sv-rbf", crs=None, time_unit="day", validation="random", **TINY),
            expected_failed_checks=UNFIT,
            on_skip=None,
            on_fail=None,
        )
        status = {check["check_name"]: check["status"] for check in found}
        assert {name for name, one in status.items() if one == "failed"} == set()
        assert {name for name, one in status.items() if one == "xfail"} == set(UNFIT)
        assert sum(one == "passed" for one in status.values()) > 30


OTHER_COLUMNS = "its table has columns that are no place, time or count of tests"
NO_DEPENDENCE = f"it looks for a class of scikit-learn's ({NotFittedError.__name__} and others)"

UNFIT = {
    "check_estimators_unfitted": NO_DEPENDENCE,
    "check_supervised_y_2d": NO_DEPENDENCE,
    "check_n_features_in_after_fitting": OTHER_COLUMNS,
    "check_positive_only_tag_during_fit": OTHER_COLUMNS,
    "check_estimators_dtypes": OTHER_COLUMNS,
    "check_dtype_object": OTHER_COLUMNS,
    "check_regressors_train": OTHER_COLUMNS,
    "check_regressor_data_not_an_array": OTHER_COLUMNS,
    "check_regressors_no_decision_function": OTHER_COLUMNS,
    "check_regressors_int": OTHER_COLUMNS,
    "check_fit2d_1sample": OTHER_COLUMNS,
}
"""Checks that do not suit a spatial model, and why."""


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"model": "field"}, "fits models of the families deep"),
        ({"model": "sv-dlk"}, "Nearest: sv-dkl"),
        ({"noise": "student-t"}, "no student-t noise"),
        ({"preset": "quik"}, "unknown preset"),
        ({"validation": "half"}, "blocks or random, or a mask"),
        ({"validation": np.zeros(3, bool)}, "a mask of 1500 rows"),
        ({"crs": "EPSG:0"}, "such as EPSG:4326"),
        ({"device": "tpu"}, "auto, cpu or cuda"),
        ({"random_state": -1}, "random_state"),
        ({"time": "date", "time_unit": "days"}, "unknown time_unit 'days'; choose one of"),
        ({"epochs": 0}, "epochs from 1"),
        ({"batch": -1}, "batch from 1"),
        ({"rank": 0.5}, "rank as a whole number or None, found 0.5"),
        ({"crs": "EPSG:4807"}, "counted from Greenwich"),
        ({"x": "nowhere"}, "expected a column 'nowhere'"),
    ],
)
def test_parameters_that_are_refused(points, parameters, match):
    with pytest.raises(RequestError, match=match):
        DeepBasisGP(**{**PLAIN, **parameters}).fit(points, points.value)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (lambda t: t.value[:5], "expected 1500 measurements"),
        (lambda t: t.value.where(t.index > 3), "finite measurements y"),
        (lambda t: t.value * 0, "same value in all"),
        (lambda _: None, "requires y"),
        (lambda t: t.date.astype(str), "measurements y to be numbers"),
    ],
)
def test_targets_that_are_refused(points, y, match):
    with pytest.raises(DataError, match=match):
        DeepBasisGP(**PLAIN, **TINY).fit(points, y(points))


def test_one_time_makes_a_model_of_place(points):
    with pytest.warns(UserWarning, match="all rows have the same time"):
        model = DeepBasisGP("sv-rbf", **PLAIN, **TINY, time="date").fit(
            points.assign(date=points.date[0]), points.value
        )
    assert model.grid((0, 0, 1, 1), resolution=1)["median"].size == 1


def test_points_of_a_geodataframe_need_no_columns(points):
    places = gpd.GeoDataFrame(geometry=gpd.points_from_xy(points.east, points.north))
    one = DeepBasisGP("sv-rbf", crs=None, **TINY).fit(places, points.value)
    other = DeepBasisGP("sv-rbf", **PLAIN, **TINY).fit(points, points.value)
    assert (one.predict(places) == other.predict(points)).all()


def test_times_of_another_kind_are_refused(fitted, points):
    days = points.assign(date=np.arange(len(points)))
    with pytest.raises(RequestError, match="expected time_unit"):
        fitted.predict(days)
    numbers = FieldGP(**PLAIN, time="date", time_unit="day", **TINY).fit(days, points.value)
    with pytest.raises(RequestError, match=r"expected times that are numbers.*found dates"):
        numbers.predict(points)
    with pytest.raises(RequestError, match="found quarters"):
        numbers.grid((0, 0, 1, 1), time="2024Q1", resolution=1)


def test_all_of_a_quarter_is_one_time_for_a_model_of_quarters(points):
    quarters = points.assign(date=points.date.dt.to_period("Q"))
    model = FieldGP(**PLAIN, time="date", **TINY).fit(quarters, points.value)
    last = points.assign(date=quarters.date.dt.end_time)
    assert (model.predict(last) == model.predict(quarters)).all()


def test_an_array_after_a_table_is_a_warning(deep, points):
    with pytest.warns(UserWarning, match="no column names"):
        found = deep.predict(points[["east", "north"]].to_numpy())
    assert found == pytest.approx(deep.predict(points))


def test_a_fit_to_an_array_forgets_the_names_of_a_table(points):
    model = DeepBasisGP("sv-rbf", crs=None, x="east", y="north", **TINY)
    model.fit(points, points.value)
    array = points[["east", "north"]].to_numpy()
    model.fit(array, points.value)
    assert not hasattr(model, "feature_names_in_")
    assert len(model.predict(array)) == len(points)


def test_names_of_columns_come_back_from_a_file(deep, points, tmp_path):
    deep.save(tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert list(again.feature_names_in_) == list(points.columns)


def test_a_subclass_keeps_its_parameters_and_comes_back_as_what_it_derives_from(points, tmp_path):
    class Mine(DeepBasisGP):
        def __init__(self, model="sv-rbf", *, extra=1, **kw):
            super().__init__(model, **kw)
            self.extra = extra

    mine = Mine(**PLAIN, epochs=np.int64(1), rank=8).fit(points, points.value)
    assert mine.extra == 1
    mine.set_params(model="sv-rbf")
    mine.save(tmp_path / "m.safetensors")
    assert type(load_model(tmp_path / "m.safetensors")) is DeepBasisGP


def test_a_column_of_tests_that_is_not_there_is_a_warning(points):
    with pytest.warns(UserWarning, match="no column 'test'"):
        FieldGP(**PLAIN, tests="test", **TINY).fit(points, points.value)


def test_a_column_of_devices_that_is_not_there_is_a_warning(points):
    points = points[:1100]
    model = FieldGP(**PLAIN, tests="tests", devices="n_dev", **TINY)
    with pytest.warns(UserWarning, match="no column 'n_dev': geogp assumes one device"):
        model.fit(points, points.value)
    model.fit(points.assign(n_dev=1), points.value)
    with pytest.warns(UserWarning, match="no column 'n_dev': .* typical number of devices"):
        found = model.predict_distribution(points)
    typical = points.assign(
        n_dev=points.tests ** float(model.network_.parameters.law.devices_power)
    )
    assert (found.sd == model.predict_distribution(typical).sd).all()
    model.predict(points[["east", "north"]])  # a new place has no counts, which is no warning


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (lambda t: t[["value"]], "found shape"),
        (lambda t: t.value[:3], "found shape"),
        (lambda t: t.value * np.nan, "values not finite"),
    ],
)
def test_scores_of_what_was_not_measured_are_refused(deep, points, y, match):
    law = deep.predict_distribution(points)
    for score in (law.crps, law.log_score, law.pit):
        with pytest.raises(DataError, match=match):
            score(y(points))


def test_split_and_fit_together(points):
    train, test = split(points, x="east", y="north", time="date")
    assert set(train.index) | set(test.index) == set(points.index)
    assert not set(train.index) & set(test.index)
