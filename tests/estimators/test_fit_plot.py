"""The figure of a fitted estimator: its map, and errors that say of which rows they are."""

import numpy as np
import pytest
from estimator_worlds import TINY, made_points
from matplotlib import pyplot as plt

from geogp import CountGP, DeepBasisGP, FieldGP, load_model
from geogp.errors import RequestError
from geogp.estimators import fit_plot

PLAIN = {"x": "east", "y": "north", "crs": None}


@pytest.fixture(scope="module")
def points():
    return made_points(1400)


@pytest.fixture(scope="module")
def exact(points):
    return FieldGP(**PLAIN).fit(points[:80], points.value[:80])


@pytest.fixture(scope="module")
def deep(points):
    model = DeepBasisGP(**PLAIN, **TINY, time="date")
    return model.fit(points[:1100], points.value[:1100])


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def errors_of(figure):
    """Medians and errors in the last panel, in the order of the medians."""
    drawn = [line.get_xydata() for line in figure.axes[2].lines[:2]]
    together = np.concatenate(drawn)
    return together[together[:, 0].argsort()]


def test_an_exact_process_predicts_each_row_from_the_others(exact, points):
    rows = points[:80]
    figure = exact.plot()
    found = errors_of(figure)
    assert len(found) == 80
    assert "each from the others" in figure.axes[2].get_title()
    law, values = exact.network_.left_out_rows()[:2]
    assert np.sort(values) == pytest.approx(np.sort(rows.value))
    inside = np.abs(rows.value - exact.predict(rows)).mean()
    assert np.abs(values - law.median).mean() > 1.1 * inside
    for row in (3, 40):  # its parameters are learned from all rows, as 1 of 80 says little of them
        others = rows.drop(index=row)
        alone = FieldGP(**PLAIN).fit(others, others.value).predict_distribution(rows[row : row + 1])
        place = np.abs(values - rows.value[row]).argmin()  # rows that validate stand last
        assert law.median[place] == pytest.approx(alone.median[0], abs=0.3 * alone.sd[0])
        assert law.sd[place] == pytest.approx(alone.sd[0], rel=0.15)


def test_the_maps_are_those_of_grid(exact):
    figure = exact.plot()
    west, south, east, north = exact.scale_.bounds
    grid = exact.grid(exact.scale_.bounds, resolution=max(east - west, north - south) / 80)
    for axis, layer in zip(
        figure.axes, (grid["median"], grid["upper_95"] - grid["lower_95"]), strict=False
    ):
        (mesh,) = axis.collections
        np.testing.assert_array_equal(mesh.get_array().ravel(), layer.to_numpy().ravel())
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("east", "north")
        assert len(axis.lines[0].get_xdata()) == 80


def test_test_rows_that_are_given_are_shown(deep, points):
    test = points[1100:]
    figure = deep.plot(test, test.value)
    law = deep.predict_distribution(test)
    order = law.median.argsort()
    errors = (test.value.to_numpy() - law.median)[order]
    np.testing.assert_array_equal(errors_of(figure)[:, 1], errors)
    low, high = law.interval(0.95)
    share = np.mean((low <= test.value) & (test.value <= high))
    assert f"errors of test rows\n{share:.1%} of 300" in figure.axes[2].get_title()
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), test.east)


def test_training_rows_are_called_so_and_the_map_is_of_the_last_time(deep, points, monkeypatch):
    monkeypatch.setattr(fit_plot, "MOST_SHOWN", 1000)
    figure = deep.plot()
    assert "errors of training rows; those of others are larger" in figure.axes[2].get_title()
    (mesh,) = figure.axes[0].collections
    last = points.date[:1100].max()
    west, south, east, north = deep.scale_.bounds
    side = max(east - west, north - south) / 80
    grid = deep.grid(deep.scale_.bounds, resolution=side, time=last)
    np.testing.assert_array_equal(mesh.get_array().ravel(), grid["median"].to_numpy().ravel())
    early = deep.plot(time=points.date.min()).axes[0].collections[0].get_array()
    assert np.abs(early - mesh.get_array()).max() > 0


def test_many_training_rows_are_drawn_at_random(points, monkeypatch):
    monkeypatch.setattr(fit_plot, "MOST_SHOWN", 50)
    model = DeepBasisGP(**PLAIN, **TINY).fit(points, points.value)
    drawn = model.plot().axes[0].lines[0].get_xdata()
    assert len(drawn) == 50
    assert set(drawn) <= set(points.east)
    assert not set(drawn) <= set(points.east[:100])


def test_degrees_are_narrower_than_high(points):
    far = points.assign(east=points.east / 100 + 179.5, north=points.north / 100 + 60)
    far["east"] = (far.east + 180) % 360 - 180
    model = DeepBasisGP(**{**PLAIN, "crs": "EPSG:4326"}, **TINY).fit(far, far.value)
    axis = model.plot().axes[0]
    west, _, east, _ = model.scale_.bounds
    assert axis.get_aspect() == pytest.approx(2, rel=0.02)
    assert ((west <= axis.lines[0].get_xdata()) & (axis.lines[0].get_xdata() <= east)).all()


def test_what_is_refused(deep, exact, points, tmp_path):
    with pytest.raises(RequestError, match="both X and y, or none"):
        deep.plot(points)
    with pytest.raises(RequestError, match="not fitted yet"):
        FieldGP().plot()
    exact.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    with pytest.raises(RequestError, match=r"no training rows for a figure.*plot\(X, y\)"):
        again.plot()
    assert len(errors_of(again.plot(points[80:100], points.value[80:100]))) == 20
    counts = CountGP(**PLAIN, **TINY).fit(points, points.tests)
    with pytest.raises(RequestError, match="counts and classes have no errors around a median"):
        counts.plot()
