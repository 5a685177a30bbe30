"""Objects of xarray as rows and as rasters: the numbers of tables, with labels."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from estimator_worlds import TINY

from geogp import DeepBasisGP, FieldGP
from geogp.errors import DataError, RequestError
from geogp.estimators.estimator_classes import PlaceClassGP

pytestmark = pytest.mark.filterwarnings("ignore:.*rows at .* places are few")

PLAIN = {"x": "east", "y": "north", "crs": None}


@pytest.fixture(scope="module")
def stations():
    """Values of twelve stations in eight weeks."""
    random = np.random.default_rng(0)
    places = random.uniform(0, 9, (2, 12))
    return xr.Dataset(
        {"value": (("station", "week"), np.sin(places[0])[:, None] + random.normal(size=(12, 8)))},
        coords={
            "east": ("station", places[0]),
            "north": ("station", places[1]),
            "station": list("abcdefghijkl"),
            "week": pd.date_range("2024-01-01", periods=8, freq="7D"),
        },
    )


@pytest.fixture(scope="module")
def raster():
    """Values and heights on a raster whose north decreases."""
    random = np.random.default_rng(1)
    north, east = np.linspace(20, 18, 9), np.linspace(-66, -63, 12)
    height = random.gamma(2, 1, (9, 12))
    values = np.sin(north[:, None]) + np.cos(2 * east) + height
    return xr.Dataset(
        {"value": (("north", "east"), values), "height": (("north", "east"), height)},
        coords={"north": north, "east": east},
    )


@pytest.fixture(scope="module")
def fitted(raster):
    model = FieldGP(**PLAIN | {"crs": "EPSG:4326"}, covariates=["height"])
    return model.fit(raster, raster["value"])


def test_the_numbers_are_those_of_a_table(stations):
    table = stations.to_dataframe().reset_index()
    model = FieldGP(**PLAIN, time="week").fit(stations, stations["value"])
    usual = FieldGP(**PLAIN, time="week").fit(table, table["value"])
    median, sd = model.predict(stations, return_std=True)
    law = usual.predict_distribution(table)
    np.testing.assert_array_equal(median.to_numpy().ravel(), law.median)
    np.testing.assert_array_equal(sd.to_numpy().ravel(), law.sd)
    assert (median.dims, sd.dims) == (("station", "week"),) * 2
    xr.testing.assert_identical(median.coords.to_dataset(), stations.coords.to_dataset())
    assert model.score(stations, stations["value"]) == usual.score(table, table["value"])
    assert list(model.feature_names_in_) == ["east", "north", "week"]
    some = stations.isel(week=[0])
    level = usual.joint(some.to_dataframe().reset_index())
    np.testing.assert_array_equal(model.joint(some).mean, level.mean)


def test_the_order_of_dimensions_does_not_matter(stations):
    model = DeepBasisGP(**PLAIN, **TINY).fit(stations, stations["value"].T)
    usual = DeepBasisGP(**PLAIN, **TINY).fit(stations, stations["value"].to_numpy().ravel())
    median = model.predict(stations)
    xr.testing.assert_identical(median, usual.predict(stations))
    turned = model.predict(stations.transpose("week", "station"))
    xr.testing.assert_identical(turned.transpose("station", "week"), median)


def test_an_array_with_coordinates_is_both_x_and_y(raster):
    values = raster["value"]
    model = DeepBasisGP(**PLAIN, **TINY).fit(values, values)
    usual = DeepBasisGP(**PLAIN, **TINY).fit(raster, values.to_numpy().ravel())
    xr.testing.assert_identical(model.predict(values), usual.predict(raster))


def test_cells_without_measurements_are_left_out_by_the_user(stations):
    gaps = stations.copy()
    gaps["value"] = gaps["value"].where(gaps["value"] < 1.5)
    missing = int(np.isnan(gaps["value"]).sum())
    model = FieldGP(**PLAIN, time="week")
    assert missing > 0
    with pytest.raises(DataError, match=rf"NaN in {missing} of them.*dropna\('row'\)"):
        model.fit(gaps, gaps["value"])
    rows = gaps.stack(row=["station", "week"]).dropna("row")  # noqa: PD013 - of xarray
    found = model.fit(rows, rows["value"]).predict(rows)
    assert found.sizes == {"row": 96 - missing}
    table = rows.to_dataframe()[["east", "north"]].reset_index()
    assert (found.to_numpy() == model.predict(table)).all()
    assert np.isfinite(model.predict(gaps)).all()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda x, y: (x.drop_vars("east"), y), RequestError, "variables east, found value, "),
        (lambda x, y: (x, y[0]), DataError, "dimensions station, week of X, found .* week"),
        (lambda x, _: (x, x), DataError, "found a Dataset"),
        (lambda x, y: (x, y[::-1]), DataError, "the same coordinates.*station"),
        (lambda x, y: (x, y.assign_coords(station=range(12))), DataError, "the same coordinates"),
        (lambda x, y: (x.assign(east=x.east.where(x.east < 5)), y), DataError, "column east"),
        (lambda x, y: (x.isel(week=[]), y.isel(week=[])), DataError, "an empty table"),
    ],
)
def test_what_is_refused(stations, change, error, match):
    with pytest.raises(error, match=match):
        DeepBasisGP(**PLAIN, **TINY).fit(*change(stations, stations["value"]))


def test_classes_have_labels_but_no_standard_deviation(raster):
    model = PlaceClassGP(**PLAIN, **TINY, validation="random")
    model.fit(raster, (raster["value"] > raster["value"].mean()).astype(int))
    found = model.predict(raster)
    assert found.dims == ("north", "east")
    codes = model.predict_distribution(raster).codes
    np.testing.assert_array_equal(found.to_numpy().ravel(), codes)
    with pytest.raises(RequestError, match=r"classes have no standard deviation.*probabilities"):
        model.predict(raster, return_std=True)
    with pytest.raises(RequestError, match="counts and classes have no errors"):
        model.plot()


class TestGrid:
    def test_it_has_the_cells_of_the_object(self, fitted, raster):
        grid = fitted.grid(raster)
        xr.testing.assert_allclose(
            grid["median"].drop_vars("spatial_ref"), fitted.predict(raster).astype(np.float32)
        )
        law = fitted.predict_distribution(raster)
        assert grid["upper_95"].to_numpy().ravel() == pytest.approx(law.interval(0.95)[1])
        assert grid.rio.crs == "EPSG:4326"
        assert grid.rio.bounds() == pytest.approx((-66.136, 17.875, -62.864, 20.125), abs=1e-3)

    def test_functions_replace_variables(self, fitted, raster):
        flat = fitted.grid(raster, covariates={"height": lambda x, _: np.full(len(x), 2.0)})
        same = fitted.grid(raster.assign(height=xr.full_like(raster["height"], 2.0)))
        xr.testing.assert_identical(flat, same)
        assert np.abs(flat["median"] - fitted.grid(raster)["median"]).max() > 0.5

    def test_a_level_of_all_cells_may_be_one_number(self, fitted, raster):
        one = fitted.grid(raster.assign(height=2.0))
        full = fitted.grid(raster.assign(height=xr.full_like(raster["height"], 2.0)))
        xr.testing.assert_identical(one, full)

    def test_it_has_the_cells_of_coordinates_in_two_dimensions(self, raster):
        model = DeepBasisGP(**PLAIN, **TINY).fit(raster, raster["value"])
        north, east = xr.broadcast(raster["north"], raster["east"])
        turned = raster.drop_vars(["north", "east"]).rename(north="row", east="column")
        turned = turned.assign_coords(
            north=(("row", "column"), north.to_numpy()), east=(("row", "column"), east.to_numpy())
        )
        found, usual = model.grid(turned), model.grid(raster)
        assert found["median"].dims == ("row", "column")
        np.testing.assert_array_equal(found["median"], usual["median"])

    @pytest.mark.parametrize(
        ("change", "options", "match"),
        [
            (lambda x: x.rename(north="lat"), {}, "coordinates east, north, found .*lat"),
            (lambda x: x, {"resolution": 0.1}, "no resolution, because"),
            (lambda x: x.expand_dims(layer=2), {}, "height over the dimensions north, east.*layer"),
            (lambda x: x.drop_vars("height"), {}, "with a function for height"),
        ],
    )
    def test_what_is_refused(self, fitted, raster, change, options, match):
        with pytest.raises(RequestError, match=match):
            fitted.grid(change(raster), **options)

    def test_a_raster_of_too_many_cells_is_refused(self, fitted):
        large = xr.Dataset(coords={"north": np.arange(5000.0), "east": np.arange(5000.0)})
        with pytest.raises(RequestError, match="25,000,000 cells is too large"):
            fitted.grid(large.assign(height=0.0))
