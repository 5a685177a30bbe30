"""`FieldGP` on few single measurements: which model it fits, and unusual rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator_worlds import made_points

from geogp import DataError, FieldGP, RequestError, evaluate, load_model, precision

PLAIN = {"x": "east", "y": "north", "crs": None}


@pytest.fixture(scope="module")
def points():
    return made_points(300)


@pytest.fixture(scope="module")
def fitted(points):
    return FieldGP(**PLAIN, time="date").fit(points, points.value)


@pytest.mark.parametrize(
    ("settings", "exact"),
    [
        ({}, True),
        ({"preset": "standard"}, True),
        ({"epochs": 1}, False),
        ({"rank": 8}, False),
        ({"batch": 32}, False),
        ({"tests": "tests"}, False),
    ],
)
def test_settings_decide_the_path(settings, exact, fitted):
    assert FieldGP(**PLAIN, **settings).plan(fitted.scale_, 60).exact == exact
    assert fitted.path_ == "exact"


def test_a_preset_that_changes_nothing_is_named_once(points):
    with pytest.warns(UserWarning, match="preset='standard' changes nothing") as told:
        model = FieldGP(**PLAIN, preset="standard").fit(points[:60], points.value[:60])
    assert [one.filename for one in told] == [__file__]
    usual = FieldGP(**PLAIN).fit(points[:60], points.value[:60])
    np.testing.assert_array_equal(model.predict(points[60:]), usual.predict(points[60:]))


@pytest.mark.filterwarnings("ignore:.* training rows for .* weights")
def test_many_rows_are_fitted_by_a_basis(points, monkeypatch):
    monkeypatch.setattr("geogp.models.catalogue.fit_plan.MOST_ROWS", 59)
    monkeypatch.setattr("geogp.models.catalogue.fit_plan.are_few", lambda _: False)
    assert FieldGP(**PLAIN).fit(points[:60], points.value[:60]).path_ == "basis"


def test_all_rows_are_used_and_none_validates(fitted, points):
    assert not fitted.validation_.any()
    assert len(fitted.network_.mixture.rows) == len(points)
    masked = FieldGP(**PLAIN, time="date", validation=np.arange(300) % 5 == 0)
    masked.fit(points, points.value)
    np.testing.assert_allclose(masked.predict(points), fitted.predict(points), atol=1e-5)


def test_new_rows_are_predicted_and_a_saved_model_is_the_same(fitted, tmp_path):
    new = made_points(400, seed=9)
    scores = evaluate(fitted.predict_distribution(new), new.value).loc["all"]
    assert scores.rmse < 0.35
    assert 0.9 < scores.coverage_95 < 0.99
    fitted.save(tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert again.path_ == "exact"
    for other in (again, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict(new), fitted.predict(new))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a plane without noise", lambda table: table.assign(value=table.east - table.north)),
        ("a diagonal line", lambda table: table.assign(north=table.east)),
        ("places with several rows", lambda table: table.assign(**table[["east", "north"]] // 10)),
        ("large numbers", lambda table: table.assign(value=1e9 * table.value)),
        ("small numbers", lambda table: table.assign(value=1e-9 * table.value)),
    ],
)
def test_unusual_rows_have_finite_predictions(name, change, points):
    table = change(points[:80])
    law = FieldGP(**PLAIN).fit(table, table.value).predict_distribution(table)
    assert np.isfinite(law.mean).all(), name
    assert (law.sd > 0).all()
    assert np.abs(law.mean - table.value).max() <= 4 * table.value.std() + 1e-6


def test_arrays_with_counts_are_fitted_by_a_basis(points, monkeypatch):
    monkeypatch.setattr("geogp.models.catalogue.fit_plan.are_few", lambda _: False)
    days = np.linspace(0, 100, 60)
    array = np.column_stack([points[["east", "north"]][:60], days, points.tests[:60]])
    model = FieldGP(crs=None, time_unit="day", epochs=None)
    assert model.fit(array[:, :3], points.value[:60]).path_ == "exact"
    with pytest.warns(UserWarning, match="training rows for"):
        assert model.fit(array, points.value[:60]).path_ == "basis"


def test_before_a_fit_there_is_no_path_and_equal_values_are_refused(points):
    assert not hasattr(FieldGP(), "path_")
    with pytest.raises(DataError, match="the target has the same value in all 300 rows"):
        FieldGP(**PLAIN).fit(points, np.full(300, 0.1))


def test_single_precision_gives_the_same(points, fitted):
    with precision("single"):
        model = FieldGP(**PLAIN, time="date").fit(points, points.value)
        found = model.predict(points)
    np.testing.assert_allclose(found, fitted.predict(points), rtol=1e-6)


def test_repeated_places_have_no_joint_level(fitted, points):
    with pytest.raises(DataError, match="expected each place once at each time, found 1 repeated"):
        fitted.joint(points.iloc[[0, 0, 1]])


def test_covariates_may_depend_on_each_other(points):
    height = np.random.default_rng(0).standard_normal(300)
    table = points.assign(height=height, feet=3.28 * height, value=points.value + height)
    model = FieldGP(**PLAIN, time="date", covariates=["height", "feet"]).fit(table, table.value)
    assert model.coefficients_["mean"].sum() == pytest.approx(height.std(), rel=0.1)


def test_a_basis_is_refused_and_far_points_are_uncertain(fitted, points):
    with pytest.raises(
        RequestError, match=r"process, which has no basis\. Without group=, epochs="
    ):
        fitted.features(points)
    far = points[:1].assign(east=1e4)
    assert fitted.predict_distribution(far).sd > 2 * fitted.predict_distribution(points[:1]).sd
    with pytest.raises(DataError, match="at 10 places or more, found 9 rows"):
        FieldGP(**PLAIN).fit(points[:9], points.value[:9])


def test_a_mean_over_places_has_its_covariances(fitted, points):
    here = points[:50].assign(date=points.date.max())
    sums = fitted.joint(here).weighted_sums(np.full(50, 1 / 50))
    alone = fitted.predict_distribution(here, level=True)
    assert sums.mean[0] == pytest.approx(alone.mean.mean())
    independent = np.sqrt((alone.sd**2).sum()) / 50
    assert independent < sums.sd[0] < alone.sd.mean()


def test_a_table_of_one_time_has_no_time(points):
    same = points.assign(date=pd.Timestamp("2024-01-01"))
    with pytest.warns(UserWarning, match="all rows have the same time"):
        model = FieldGP(**PLAIN, time="date").fit(same, same.value)
    assert model.network_.mixture.rows.points.shape[1] == 2


@pytest.fixture(scope="module")
def stations():
    """Eight stations with 60 weeks, of which the first lacks 20, and the weeks after these."""
    random, weeks = np.random.default_rng(0), np.arange(66)
    places = random.uniform(0, 100, (8, 2))
    in_space = np.exp(-np.linalg.norm(places[:, None] - places[None], axis=2) / 60)
    in_time = np.exp(-abs(weeks[:, None] - weeks) / 8)
    roots = (np.linalg.cholesky(part) for part in (in_space, in_time))
    space, time = roots
    field = space @ random.standard_normal((8, 66)) @ time.T
    rows = {"east": places[:, 0].repeat(66), "north": places[:, 1].repeat(66)}
    rows |= {"week": np.tile(weeks, 8), "field": field.ravel()}
    return pd.DataFrame(rows).assign(value=field.ravel() + 0.2 * random.standard_normal(8 * 66))


def test_few_stations_fill_the_gaps_of_others_and_forecast(stations):
    gap = (stations["east"] == stations["east"][0]) & stations["week"].between(20, 39)
    known = stations[~gap & (stations["week"] < 60)]
    model = FieldGP(**PLAIN, time="week", time_unit="week").fit(known, known["value"])
    assert model.path_ == "exact"
    for asked, worst in ((stations[gap], 0.85), (stations[stations["week"] >= 60], 1.0)):
        law = model.predict_distribution(asked)
        error = law.mean - asked["value"]
        assert np.sqrt(np.mean(np.square(error))) < worst * known["value"].std()
        lower, upper = law.interval(0.95)
        assert np.mean((lower < asked["value"]) & (asked["value"] < upper)) > 0.85
    few = known[known["east"].isin(known["east"].unique()[1:4])]
    with pytest.raises(DataError, match="at 4 places or more, found 180 rows at 3 places"):
        model.fit(few, few["value"])


@pytest.fixture(scope="module")
def instruments():
    """A smooth field measured by good and by bad instruments, with the field's true values."""
    random = np.random.default_rng(4)
    table = pd.DataFrame(random.uniform(0, 100, (300, 2)), columns=["east", "north"])
    truth = 10 * np.sin(0.06 * table["east"]) + 10 * np.sin(0.045 * table["north"] + 1)
    sd = np.where(random.random(300) < 0.5, 0.5, 8.0)
    return table.assign(known=sd**2), truth + sd * random.standard_normal(300), truth


@pytest.fixture(scope="module")
def informed(instruments):
    table, values, _ = instruments
    return FieldGP(**PLAIN, error_variance="known").fit(table[:150], values[:150])


def test_known_errors_make_the_level_better(instruments, informed):
    table, values, truth = instruments
    unaware = FieldGP(**PLAIN).fit(table[:150], values[:150])
    errors = [
        np.sqrt(np.mean(np.square(model.predict(table[150:]) - truth[150:])))
        for model in (unaware, informed)
    ]
    assert errors[1] < 0.8
    assert errors[0] > 1.2
    level = informed.predict_distribution(table[150:], level=True)
    assert 0.7 < level.sd.mean() / errors[1] < 1.5
    # There is no other noise.
    law = informed.predict_distribution(table[["east", "north"]])
    assert law.noise_variance.max() < 0.5
    with pytest.warns(UserWarning, match="X has no column names"):
        array = informed.predict(table[["east", "north"]].to_numpy())
    np.testing.assert_array_equal(array, law.median)


def test_rows_with_huge_known_errors_change_little(instruments, informed):
    table, values, _ = instruments
    clear = table["known"][:150] < 1
    wild = table[:150].assign(known=np.where(clear, table["known"][:150], 1e8))
    noise = np.where(clear, 0, 1e4 * np.random.default_rng(1).standard_normal(150))
    model = FieldGP(**PLAIN, error_variance="known").fit(wild, values[:150] + noise)
    alone = FieldGP(**PLAIN, error_variance="known").fit(wild[clear], values[:150][clear])
    laws = [each.predict_distribution(table[150:], level=True) for each in (model, alone)]
    np.testing.assert_allclose(laws[0].mean, laws[1].mean, atol=0.5)
    assert np.median(laws[0].sd / laws[1].sd) == pytest.approx(1, abs=0.15)


def test_values_that_are_exactly_a_trend_are_predicted(points):
    table = points.assign(height=np.random.default_rng(0).standard_normal(300))
    values = 3 * table["height"] + 1
    model = FieldGP(**PLAIN, covariates=["height"]).fit(table, values)
    np.testing.assert_allclose(model.predict(table), values.clip(-12, 14), atol=0.5)


def test_a_prediction_has_the_error_that_its_table_knows(instruments, informed, tmp_path):
    table, values, _ = instruments
    law = informed.predict_distribution(table[150:])
    plain = informed.predict_distribution(table[150:].drop(columns="known"))
    np.testing.assert_allclose(law.noise_variance - plain.noise_variance, table["known"][150:])
    lower, upper = law.interval(0.95)
    assert 0.9 < np.mean((lower < values[150:]) & (values[150:] < upper)) <= 1
    informed.save(tmp_path / "known.safetensors")
    again = load_model(tmp_path / "known.safetensors")
    np.testing.assert_allclose(again.predict(table), informed.predict(table), rtol=1e-6)
    level = informed.predict_distribution(table[150:], level=True)
    assert not level.noise_variance.any()


def test_known_errors_that_cannot_be_used_are_refused(instruments):
    table, values, _ = instruments
    model = FieldGP(**PLAIN, error_variance="known")
    with pytest.raises(RequestError, match="column 'known' of known error variances"):
        model.fit(table.drop(columns="known"), values)
    with pytest.raises(DataError, match="expected error variances of 0 or more, found -1"):
        model.fit(table.assign(known=-1.0), values)
    with pytest.raises(RequestError, match="known error variances need an exact process"):
        FieldGP(**PLAIN, error_variance="known", epochs=1).fit(table, values)


@pytest.fixture(scope="module")
def drives():
    """Rows of 25 drives, each with an error of its own; the last five are new."""
    random = np.random.default_rng(2)
    start, step = random.uniform(20, 80, (25, 1, 2)), random.uniform(-0.5, 0.5, (25, 1, 2))
    places = (start + np.arange(40)[:, None] * step).reshape(-1, 2)
    drive = np.arange(25).repeat(40)
    values = np.sin(places[:, 0] / 20) + 0.5 * random.standard_normal(25)[drive]
    table = pd.DataFrame(places, columns=["east", "north"]).assign(
        drive=[f"drive {number}" for number in drive],
        at=pd.Timestamp("2024-01-01") + pd.to_timedelta(drive * 3600 + np.arange(1000) % 40, "s"),
    )
    return table, values + 0.2 * random.standard_normal(1000), drive < 20


@pytest.mark.parametrize("time", [None, "at"])
def test_rows_of_new_groups_are_inside(drives, time):
    table, values, known = drives
    model = FieldGP(**PLAIN, group="drive", time=time).fit(table[known], values[known])
    assert model.path_ == "exact"
    assert not model.validation_.any()
    new = table[~known].drop(columns="drive")
    law = model.predict_distribution(new)
    if time is None:
        assert 0.5 < np.sqrt(np.median(law.noise_variance)) < 1.0
    z = (values[~known] - law.mean) / law.sd
    assert 0.15 < np.mean(z**2) < 2.6  # nearly all means of squares of five normal numbers
    np.testing.assert_array_equal(model.predict(table[~known]), law.median)


def test_groups_are_read_as_labels_and_their_order_does_not_matter(drives):
    table, values, known = drives
    few = table[known][::8].reset_index(drop=True)
    first = FieldGP(**PLAIN, group="drive").fit(few, values[known][::8])
    numbers = few["drive"].map({name: -k for k, name in enumerate(few["drive"].unique())})
    other = FieldGP(**PLAIN, group="drive").fit(few.assign(drive=numbers), values[known][::8])
    np.testing.assert_allclose(first.predict(table[~known]), other.predict(table[~known]))


def test_rows_of_groups_may_be_means_of_tests(drives):
    table, values, known = drives
    some = table[known][::4].assign(tests=np.tile([1, 2, 4, 50], 50))
    noise = 0.8 * np.random.default_rng(5).standard_normal(len(some)) / np.sqrt(some["tests"])
    model = FieldGP(**PLAIN, group="drive", tests="tests").fit(some, values[known][::4] + noise)
    one, many = (
        model.predict_distribution(table[~known].assign(tests=tests)).noise_variance.mean()
        for tests in (1, 1000)
    )
    assert model.path_ == "exact"
    assert 0.4 < one - many < 1.0
    with pytest.raises(RequestError, match="group needs an exact process, which has no devices="):
        FieldGP(**PLAIN, group="drive", tests="tests", devices="tests").fit(some, some["tests"])


def test_groups_that_cannot_be_used_are_refused(drives):
    table, values, _ = drives
    with pytest.raises(RequestError, match="expected a table with the column 'drive' of groups"):
        FieldGP(**PLAIN, group="drive").fit(table.drop(columns="drive"), values)
    with pytest.raises(DataError, match="expected a group in each row of the column drive"):
        FieldGP(**PLAIN, group="drive").fit(table.assign(drive=None), values)
    with pytest.raises(RequestError, match="group and error_variance cannot be given together"):
        FieldGP(**PLAIN, group="drive", error_variance="known").fit(table, values)
    with pytest.raises(
        RequestError, match="group needs an exact process, which has no epochs=, rank="
    ):
        FieldGP(**PLAIN, group="drive", epochs=1, rank=8).fit(table, values)
    many = pd.concat([table] * 2, ignore_index=True)
    with pytest.raises(RequestError, match="for at most 1,500 groups, found 2,000"):
        FieldGP(**PLAIN, group="drive").fit(many.assign(drive=range(2000)), np.tile(values, 2))
    with pytest.raises(RequestError, match="at least 10 rows more than covariates, found 5"):
        FieldGP(**PLAIN, group="drive").fit(table[::200].iloc[:6], values[::200][:6])
