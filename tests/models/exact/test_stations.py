"""Kriging of stations: the answers of the covariances of all rows, and whole fits."""

import numpy as np
import pandas as pd
import pytest
import torch

import geogp
from geogp.estimators.point_scale import PointScale
from geogp.models.exact.kriging import ExactRows, Kriging
from geogp.models.exact.passes import MOST_ROWS as MOST_EXACT
from geogp.models.exact.stations import MOST_ROWS, StationKriging, are_stations, station_words
from geogp.models.process.data import Data


def station_rows(*, errors, tests=False, seed=0):
    """Return rows of 6 places at up to 30 times; three rows repeat a place and time."""
    random = np.random.default_rng(seed)
    places, times = random.uniform(0, 10, (6, 2)), np.sort(random.uniform(0, 5, 30))
    points = np.array([(*place, time) for time in times for place in places])
    points = points[random.uniform(size=len(points)) < 0.8]
    points = np.concatenate([points, points[:3]])
    n = len(points)
    trend = np.column_stack([np.ones(n), random.standard_normal(n)])
    known = torch.as_tensor(random.uniform(0, 0.5, n)) if errors else None
    y = random.standard_normal(n)
    counts = torch.as_tensor(random.integers(1, 9, n).astype(float)) if tests else None
    return ExactRows(*map(torch.as_tensor, (points, trend, y)), known, tests=counts)


def asked(rows, seed=1):
    """Return points at new times and places, before, between and after the rows, and at rows."""
    random = np.random.default_rng(seed)
    points = np.column_stack([random.uniform(0, 10, (12, 2)), random.uniform(-1, 7, 12)])
    points[3:6] = rows.points[[5, 50, 5]].numpy()
    points[5, 2] = 6.0
    trend = np.column_stack([np.ones(12), random.standard_normal(12)])
    return torch.as_tensor(points), torch.as_tensor(trend)


@pytest.mark.parametrize(("errors", "tests"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("smoothness", "nested"), [(0.5, False), (2.5, False), (1.5, True)])
def test_answers_are_those_of_the_covariances_of_all_rows(smoothness, nested, errors, tests):
    rows = station_rows(errors=errors, tests=tests)
    law = rows.law(smoothness, nested=nested)
    theta = law.centre + 0.3 * np.random.default_rng(2).standard_normal(len(law.centre))
    dense, filtered = Kriging(law, theta, rows), StationKriging(law, theta, rows)
    for name in ("sill", "log_evidence", "variance", "noise"):
        assert getattr(filtered, name) == pytest.approx(getattr(dense, name), rel=1e-7)
    for name in ("beta", "inner"):
        np.testing.assert_allclose(getattr(filtered, name), getattr(dense, name), rtol=1e-7)
    points, trend = asked(rows)
    for name in ("field", "joint"):
        for own, other in zip(
            getattr(filtered, name)(points, trend), getattr(dense, name)(points, trend), strict=True
        ):
            np.testing.assert_allclose(own, other, atol=1e-7)
    for own, other in zip(filtered.left_out(), dense.left_out(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)
    np.testing.assert_allclose(
        filtered.prior(points, points[:4]), dense.prior(points, points[:4]), rtol=1e-9
    )


def test_few_places_with_many_times_are_stations():
    def points(places, times):
        east, time = np.meshgrid(np.arange(places), np.arange(times), indexing="ij")
        return np.column_stack([east.ravel(), 0 * east.ravel(), time.ravel()])

    assert are_stations(points(10, 800))
    assert not are_stations(points(61, 100))
    assert not are_stations(points(60, 1_200))
    assert not are_stations(points(10, 1))
    assert not are_stations(points(10, MOST_ROWS // 10 + 1))
    assert not are_stations(points(10, 800)[:, :2])
    assert station_words(points(10, 800)) == 4 * 800 * 400


def weekly(stations, weeks, seed=0):
    """Return a table of weekly values at stations, with the level, and the level's changes."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 100, (stations, 2))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    factor = np.linalg.cholesky(np.exp(-apart / 60) + 1e-9 * np.eye(stations))
    state, keeps, levels = random.standard_normal(stations), np.exp(-1 / 5), []
    for _ in range(weeks):
        change = factor @ random.standard_normal(stations)
        state = keeps * state + np.sqrt(1 - keeps**2) * change
        levels.append(state)
    level = np.concatenate(levels)
    week, station = (part.ravel() for part in np.indices((weeks, stations)))
    value = level + 0.4 * random.standard_normal(len(level))
    return pd.DataFrame(
        {
            "x": places[station, 0],
            "y": places[station, 1],
            "week": week,
            "station": station,
            "level": level,
            "value": value,
        }
    )


def test_gaps_are_filled_by_other_stations_and_forecasts_are_honest(tmp_path):
    table = weekly(8, 430)
    gap = (table["station"] == 2) & table["week"].between(200, 239)
    late = table["week"] >= 410
    train = table[~gap & ~late]
    assert len(train) > 3_000
    model = geogp.FieldGP(x="x", y="y", crs=None, time="week", time_unit="week")
    model.fit(train, train["value"])
    assert model.path_ == "exact"
    level = model.predict_distribution(table[gap], level=True)
    missed = np.square(level.mean - table["level"][gap]).mean()
    assert missed < 0.7 * table["level"].var()
    for asked_rows in (gap, late):
        law = model.predict_distribution(table[asked_rows])
        lower, upper = law.interval(0.95)
        inside = (lower <= table["value"][asked_rows]) & (table["value"][asked_rows] <= upper)
        assert inside.mean() > 0.87
    far = model.predict_distribution(table[late], level=True).sd
    assert far[-8:].mean() > 1.15 * far[:8].mean()
    model.save(tmp_path / "stations.safetensors")
    again = geogp.load_model(tmp_path / "stations.safetensors").predict(table[gap])
    np.testing.assert_allclose(again, model.predict(table[gap]), rtol=1e-12)
    joint = model.joint(table[gap].iloc[:5])
    np.testing.assert_allclose(joint.mean, level.mean[:5], rtol=1e-6)


@pytest.mark.parametrize("timed", [False, True])
def test_rows_just_beyond_the_limit_are_not_stations_because_of_covariates(timed):
    """The limit counts rows, not rows beyond the number of covariates."""
    n, random = MOST_EXACT + 1, np.random.default_rng(0)
    table = pd.DataFrame(random.uniform(size=(n, 3)), columns=["x", "y", "c"])
    table["t"] = np.arange(n) % 8
    names = {"time": "t", "time_unit": "week"} if timed else {}
    model = geogp.FieldGP(x="x", y="y", crs=None, covariates=["c"], **names)
    scale = PointScale.of_points(model.columns().read(table), None, covariates=("c",))
    data = Data(scale.inputs(model.columns().read(table)), random.standard_normal(n))
    plan = model.plan(scale, n)
    assert not plan._is_exact(data)
    assert plan._is_exact(data.at(np.arange(n - 1)))
