"""FieldGP with laws of amounts: calibrated zeros, files, refusals and warnings."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

import geogp
from geogp.errors import DataError, RequestError


def rain(n, seed=0):
    """Return places and amounts, of which about 40 % are 0."""
    random = np.random.default_rng(seed)
    places = random.uniform(-1, 1, (n, 2))
    covariance = 0.8 * np.exp(-cdist(places, places) / 0.4) + 0.2 * np.eye(n)
    z = np.linalg.cholesky(covariance) @ random.standard_normal(n)
    return places, np.where(z < -0.25, 0.0, (z + 0.25) ** 2)


def checked(model, places, y, n):
    """Check probabilities of rows after the first n, and return their law."""
    law, new = model.predict_distribution(places[n:]), y[n:]
    zero = law.cdf(0.0)
    assert zero.mean() == pytest.approx((new == 0).mean(), abs=0.06)
    assert law.exceedance(1.0).mean() == pytest.approx((new > 1).mean(), abs=0.06)
    likely = zero > np.median(zero)
    for some in (likely, ~likely):
        assert zero[some].mean() == pytest.approx((new[some] == 0).mean(), abs=0.09)
    lower, upper = law.interval(0.95)
    assert lower.min() >= 0
    assert 0.94 < ((lower <= new) & (new <= upper)).mean() <= 1
    return law


def test_zeros_are_calibrated_by_an_exact_process(tmp_path):
    places, y = rain(800, seed=2)
    model = geogp.FieldGP(crs=None, law="positive").fit(places[:300], y[:300])
    assert model.path_ == "exact"
    law = checked(model, places, y, 300)
    plain = geogp.FieldGP(crs=None)
    with (
        pytest.warns(UserWarning, match="equal the smallest, 0,"),
        pytest.warns(UserWarning, match="begin below 0"),
    ):
        plain.fit(places[:300], y[:300])
    usual = plain.predict_distribution(places[300:])
    assert law.crps(y[300:]).mean() < 0.97 * usual.crps(y[300:]).mean()
    assert model.score(places[300:], y[300:]) == pytest.approx(-law.log_score(y[300:]).mean())
    np.testing.assert_array_equal(model.predict(places[300:]), law.median)
    model.save(tmp_path / "rain.safetensors")
    again = geogp.load_model(tmp_path / "rain.safetensors").predict_distribution(places[300:])
    np.testing.assert_array_equal(again.quantile(0.7), law.quantile(0.7))
    np.testing.assert_array_equal(again.cdf(0.0), law.cdf(0.0))


@pytest.mark.trial
def test_zeros_are_calibrated_by_the_field():
    places, y = rain(3_000, seed=4)
    model = geogp.FieldGP(crs=None, law="positive", epochs=3).fit(places[:2_300], y[:2_300])
    assert model.path_ == "basis"
    checked(model, places, y, 2_300)


def test_proportions_stay_between_0_and_1():
    places, y = rain(300, seed=1)
    share = (y / 2).clip(max=1.0)
    model = geogp.FieldGP(crs=None, law="proportion").fit(places, share)
    law = model.predict_distribution(places)
    lower, upper = law.interval(0.99)
    assert lower.min() >= 0
    assert upper.max() <= 1
    stated = law.exceedance(np.nextafter(1, 0)).mean()
    assert stated == pytest.approx((share == 1).mean(), abs=0.03)
    grid = model.grid((-1, -1, 1, 1), resolution=0.5)
    assert float(grid["lower_95"].min()) >= 0
    assert float(grid["upper_95"].max()) <= 1


def test_the_level_scatters_less_than_measurements():
    places, y = rain(200, seed=2)
    model = geogp.FieldGP(crs=None, law="positive").fit(places, y + 0.5)
    level, law = (model.predict_distribution(places, level=own) for own in (True, False))
    assert (np.diff(level.interval(0.5), axis=0) < np.diff(law.interval(0.5), axis=0)).all()


def test_the_law_is_a_parameter():
    model = geogp.FieldGP(law="positive")
    assert model.get_params()["law"] == "positive"
    assert repr(model) == "FieldGP(law='positive')"


def test_laws_that_do_not_fit_are_refused():
    places, y = rain(60)
    table = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "day": np.arange(60) % 12})
    with pytest.raises(RequestError, match="unknown law 'lognormal'; choose one of positive, prop"):
        geogp.FieldGP(crs=None, law="lognormal").fit(places, y)
    with pytest.raises(
        DataError, match=r"amounts of 0 or more for law='positive', found -0.49\d+ in row 4"
    ):
        geogp.FieldGP(crs=None, law="positive").fit(places, y - 1)
    grouped = geogp.FieldGP(x="x", y="y", crs=None, law="positive", group="day")
    with pytest.raises(RequestError, match=r"group cannot be given together.*found \d+ of 60"):
        grouped.fit(table, y)
    with pytest.raises(RequestError, match="law and error_variance cannot be given together"):
        geogp.FieldGP(crs=None, law="positive", error_variance="v").fit(table, y)
    model = geogp.FieldGP(crs=None, law="positive").fit(places, y)
    with pytest.raises(RequestError, match="with law='positive', the joint distribution"):
        model.joint(places)


def test_groups_share_an_error_of_positive_amounts():
    places, y = rain(120, seed=3)
    day = np.arange(120) % 12
    y = np.exp(y) * np.exp(np.random.default_rng(0).standard_normal(12))[day]
    table = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "day": day})
    model = geogp.FieldGP(x="x", y="y", crs=None, law="positive", group="day").fit(table, y)
    lower, upper = model.predict_distribution(table).interval(0.95)
    assert lower.min() > 0
    assert ((lower <= y) & (y <= upper)).mean() > 0.9


def test_a_usual_law_of_amounts_warns():
    places, y = rain(200)
    with (
        pytest.warns(UserWarning, match=r"34% of the measurements equal the smallest, 0, to"),
        pytest.warns(UserWarning, match="begin below 0, but no measurement is negative"),
    ):
        geogp.FieldGP(crs=None).fit(places, y)
    with pytest.warns(UserWarning, match="% of the 95 % intervals begin below 0, but no measure"):
        geogp.FieldGP(crs=None).fit(places, y + 0.01 * np.random.default_rng(0).uniform(size=200))


def test_a_law_that_fits_does_not_warn():
    places, y = rain(200)
    values = y + np.random.default_rng(0).standard_normal(200) - 2
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        geogp.FieldGP(crs=None).fit(places, values)
    assert [str(warning.message) for warning in told] == []


def measurements(kind, n=120):
    """Return places and rain, skewed amounts, shares that are often 1, or heights."""
    places, y = rain(n, seed=5)
    random = np.random.default_rng(6)
    smooth = np.sin(2 * places[:, 0]) + 0.3 * random.standard_normal(n)
    shares = 1 / (1 + np.exp(-3 * smooth))
    found = {
        "rain": y,
        "concentrations": np.exp(2 * smooth),
        "lost packets": np.where(shares > 0.9, 1.0, shares),
        "heights": smooth,
        "temperatures": 290 + smooth,
    }
    return places, found[kind]


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        ("rain", "positive"),
        ("concentrations", "positive"),
        ("lost packets", "proportion"),
        ("heights", None),
        ("temperatures", None),
    ],
)
def test_measurements_choose_their_law(kind, law, tmp_path):
    places, y = measurements(kind)
    model = geogp.FieldGP(crs=None, law="auto").fit(places, y)
    assert model.law_ == law
    if kind == "concentrations":
        own = geogp.FieldGP(crs=None, law=law).fit(places, y)
        np.testing.assert_array_equal(model.predict(places), own.predict(places))
    model.save(tmp_path / "law.safetensors")
    again = geogp.load_model(tmp_path / "law.safetensors")
    assert (again.law, again.law_) == ("auto", law)


def test_a_law_is_chosen_for_any_model_and_kind_of_table():
    places, y = measurements("concentrations")
    quarter = np.arange(120) % 4
    counts = np.column_stack([places, quarter, quarter + 1])
    names = {"time": "t", "time_unit": "quarter", "tests": "k"}
    model = geogp.FieldGP(crs=None, law="auto", epochs=1, **names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few rows
        model.fit(counts, y)
    assert (model.path_, model.law_) == ("basis", "positive")


def test_groups_choose_no_law_that_refuses_them():
    places, y = measurements("rain")
    table = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "day": np.arange(120) % 12})
    model = geogp.FieldGP(x="x", y="y", crs=None, law="auto", group="day")
    with pytest.raises(AttributeError, match="law_ is known after fit"):
        _ = model.law_
    with (
        pytest.warns(UserWarning, match="equal the smallest, 0"),
        pytest.warns(UserWarning, match="begin below 0"),
    ):
        model.fit(table, y)
    assert model.law_ is None
