"""Public functions with arguments of wrong kinds: each refuses them with an error of geogp."""

import inspect
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import geogp
from geogp.arguments import check_kind, of_kind, rows_of
from geogp.errors import DataError, GeogpError, RequestError
from geogp.records.map_settings import MapSettings

NOTHING = object()

WRONG = {
    "None": None,
    "text": "nonsense",
    "text with a NUL": "a\0b",
    "an empty list": [],
    "a list of text": ["x"],
    "lists of two lengths": [[1], [2, 3]],
    "a dictionary": {},
    "a truth": True,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "a negative number": -1,
    "half": 1.5,
    "a huge number": 1e300,
    "a huge whole number": 10**30,
    "a complex number": 1j,
    "bytes": b"x",
    "an array": np.array([1.0, 2.0]),
    "a set": {1},
    "a date": pd.Timestamp("2024-01-01"),
    "a table": pd.DataFrame({"a": [1]}),
    "an object": NOTHING,
}
"""Values of many kinds; no argument below accepts them, except those in its row of the tables."""


@pytest.fixture(scope="module")
def points():
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.uniform(0, 9, (60, 2)), columns=["east", "north"])
    return table.assign(value=np.sin(table.east) + 0.1 * random.standard_normal(60))


@pytest.fixture(scope="module")
def made(points):
    """Fitted estimators and their results, by name."""
    plain = {"x": "east", "y": "north", "crs": None, "epochs": 1, "rank": 8}
    box = geogp.read_covariate(
        pd.DataFrame({"longitude": [1.0, 2], "latitude": [1.0, 2], "value": [1.0, 2]})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        deep = geogp.DeepBasisGP(**plain).fit(points, points.value)
        count = geogp.CountGP(**plain).fit(points, (points.value > 0) * 3)
        classes = geogp.ClassGP(columns=["east", "north"], epochs=1, rank=8)
        classes.fit(points, points.value > 0)
    level = deep.joint(points.head(5))
    return {
        "deep": deep,
        "class": classes,
        "law": deep.predict_distribution(points),
        "counts": count.predict_distribution(points),
        "classes": classes.predict_distribution(points),
        "level": level,
        "sums": level.weighted_sums(np.ones(5)),
        "covariate": box,
        "points": points,
    }


def _used(name):
    with geogp.precision(name):
        pass


NUMBERS = {"half", "a huge number", "a huge whole number", "a negative number"}
TEXT, LISTS = {"text"}, {"an empty list", "a list of text"}

CALLS = {
    "load_model": (lambda _, v: geogp.load_model(v), set()),
    "open_run": (lambda _, v: geogp.open_run(v), set()),
    "open_run(device)": (lambda _, v: geogp.open_run(".", device=v), set()),
    "open_run(read_from)": (lambda _, v: geogp.open_run(".", read_from=v), set()),
    "list_models": (lambda _, v: geogp.list_models(v), {"None"}),
    "precision": (lambda _, v: _used(v), set()),
    "read_region": (lambda _, v: geogp.read_region(v, boundaries="nowhere"), set()),
    "read_region(vintage)": (lambda _, v: geogp.read_region("PR", urban_vintage=v), set()),
    "read_tiles": (lambda _, v: geogp.read_tiles(v, source="nowhere"), set()),
    "read_tiles(target)": (lambda _, v: geogp.read_tiles("PR", target=v), set()),
    "read_tiles(source)": (lambda _, v: geogp.read_tiles("PR", source=v), set()),
    "read_covariate": (lambda _, v: geogp.read_covariate(v), set()),
    "covariate.at": (lambda m, v: m["covariate"].at(v, [1.0, 2.0]), {"an array"}),
    "split": (lambda _, v: geogp.split(v), set()),
    "split(how)": (lambda m, v: geogp.split(m["points"], v), set()),
    "split(x)": (lambda m, v: geogp.split(m["points"], x=v, y="north"), set()),
    "split(time)": (lambda m, v: _split(m, time=v), {"None"} | TEXT),
    "split(fold)": (lambda m, v: _split(m, fold=v), set()),
    "split(random_state)": (lambda m, v: _split(m, random_state=v), set()),
    "split(cell)": (lambda m, v: _split(m, cell=v), {"None", "half"}),
    "split(buffer_km)": (lambda m, v: _split(m, buffer_km=v), {"half"}),
    "evaluate": (lambda m, v: geogp.evaluate(v, m["points"].value), set()),
    "evaluate(y)": (lambda m, v: geogp.evaluate(m["law"], v), set()),
    "evaluate(groups)": (lambda m, v: geogp.evaluate(m["law"], m["points"].value, v), {"None"}),
    "fit(X)": (lambda m, v: _new().fit(v, m["points"].value), set()),
    "fit(y)": (lambda m, v: _new().fit(m["points"], v), set()),
    "predict": (lambda m, v: m["deep"].predict(v), set()),
    "predict(return_std)": (lambda m, v: m["deep"].predict(m["points"], v), {"a truth"}),
    "score(y)": (lambda m, v: m["deep"].score(m["points"], v), set()),
    "level": (lambda m, v: m["deep"].predict_distribution(m["points"], level=v), {"a truth"}),
    "save": (lambda m, v: m["deep"].save(v), TEXT),
    "joint": (lambda m, v: m["deep"].joint(v), set()),
    "joint(seed)": (lambda m, v: m["deep"].joint(m["points"].head(3), seed=v), set()),
    "joint(rows)": (lambda m, v: m["deep"].joint(m["points"].head(3), rows=v), {"None"}),
    "grid": (lambda m, v: m["deep"].grid(v), set()),
    "grid(tests)": (lambda m, v: _grid(m, tests=v), set()),
    "grid(zoom)": (lambda m, v: _grid(m, zoom=v), set()),
    "grid(resolution)": (
        lambda m, v: _grid(m, resolution=v),
        {"None", "half", "a huge number", "a huge whole number"},
    ),
    "grid(covariates)": (lambda m, v: _grid(m, covariates=v), {"None", "a dictionary"}),
    "grid(provider)": (lambda m, v: _grid(m, provider=v), {"None"}),
    "class.fit(X)": (lambda m, v: geogp.ClassGP(epochs=1).fit(v, m["points"].value > 0), set()),
    "class.predict": (lambda m, v: m["class"].predict(v), set()),
    "quantile": (lambda m, v: m["law"].quantile(v), set()),
    "interval": (lambda m, v: m["law"].interval(v), set()),
    "sample": (lambda m, v: m["law"].sample(v), set()),
    "sample(random_state)": (lambda m, v: m["law"].sample(random_state=v), set()),
    "cdf": (lambda m, v: m["law"].cdf(v), NUMBERS | {"infinity"}),
    "crps": (lambda m, v: m["law"].crps(v), NUMBERS - {"a huge number"}),
    "widened": (lambda m, v: m["law"].widened(v), {"half", "a huge whole number"}),
    "counts.cdf": (lambda m, v: m["counts"].cdf(v), NUMBERS | {"infinity"}),
    "counts.log_score": (lambda m, v: m["counts"].log_score(v), set()),
    "classes.log_score": (lambda m, v: m["classes"].log_score(v), set()),
    "weighted_sums": (lambda m, v: m["level"].weighted_sums(v), set()),
    "paths": (lambda m, v: m["level"].paths(v), set()),
    "level.sample": (lambda m, v: m["level"].sample(v), set()),
    "level.sample(random_state)": (lambda m, v: m["level"].sample(random_state=v), set()),
    "sums.interval": (lambda m, v: m["sums"].interval(v), set()),
    "sums.sample": (lambda m, v: m["sums"].sample(v), set()),
    "Region.from_geometry": (lambda _, v: geogp.Region.from_geometry("A", "B", v), set()),
}
"""Calls with one value, and the names of the values that they accept."""


def _new(**parameters):
    return geogp.DeepBasisGP(
        **{"x": "east", "y": "north", "crs": None, "epochs": 1, "rank": 8, **parameters}
    )


def _split(made, **options):
    return geogp.split(made["points"], **{"x": "east", "y": "north", **options})


def _grid(made, **options):
    return made["deep"].grid((0, 0, 9, 9), **{"resolution": 3, **options})


def _refused(call, value):
    """Check that a call raises an error of geogp, which says something."""
    with pytest.raises(GeogpError) as found:
        call(value)
    assert len(str(found.value)) > 20


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_is_refused(name, made, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    call, accepted = CALLS[name]
    for what, value in WRONG.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if what in accepted:
                call(made, value)
            else:
                _refused(lambda wrong: call(made, wrong), value)


PARAMETERS = {
    "x": set(),
    "crs": {"None"},
    "time": {"None"},
    "time_unit": {"None"},
    "validation": set(),
    "preset": set(),
    "epochs": {"None"},
    "rank": {"None"},
    "batch": {"None"},
    "random_state": set(),
    "verbose": {"a truth"},
    "model": set(),
    "alpha": {"None", "half"},
    "noise": set(),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_wrong_parameter_is_refused(name, points):
    for what in WRONG.keys() - PARAMETERS[name] - {"a huge number", "a huge whole number"}:
        model = _new(**{name: WRONG[what]})
        _refused(lambda _, model=model: model.fit(points, points.value), None)


SETTINGS = {name for name in inspect.signature(MapSettings).parameters if name != "region_file"}
TRUTHS = {"by_provider", "tune_weights", "self_contained", "fresh"}


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_wrong_setting_of_a_map_is_refused(name):
    wrong = {"a dictionary", "a complex number", "bytes", "an object", "a set", "a table"}
    for what in wrong | (set() if name in TRUTHS else {"a truth"}):
        _refused(lambda value: MapSettings(**{"region": "PR", name: value}), WRONG[what])


def test_a_wrong_number_of_arguments_is_a_type_error():
    with pytest.raises(TypeError, match=r"load_model\(\) missing 1 required"):
        geogp.load_model()


@pytest.mark.parametrize(
    ("argument", "match"),
    [
        ("sample_weight", "no weights of rows.*tests and devices"),
        ("return_std", r"classes have no standard deviation, but predict_proba\(X\)"),
        ("return_cov", r"joint\(X\)\.weighted_sums"),
    ],
)
def test_arguments_of_other_libraries_have_an_advice(argument, match, made, points):
    rows = points[["east", "north"]]
    call = {
        "sample_weight": partial(made["deep"].fit, points, points.value),
        "return_std": partial(made["class"].predict, rows),
        "return_cov": partial(made["deep"].predict, points),
    }[argument]
    with pytest.raises(RequestError, match=match):
        call(**{argument: True})


def test_values_of_numpy_and_lists_are_of_a_kind():
    assert of_kind("n", np.int64(3), int | None) == 3
    assert of_kind("n", [1, np.float32(2)], tuple[float, ...] | None) == (1, 2)
    assert of_kind("n", 7.0, tuple[float, ...] | None) == (7.0,)
    assert of_kind("n", "a", Path) == Path("a")
    with pytest.raises(RequestError, match="expected n as a whole number, found True"):
        check_kind("n", value=True, kind=int)


class TestMissingValues:
    """A missing value is refused, whatever says that it is missing."""

    @pytest.mark.parametrize("kind", ["mask", "nullable", "object", "NaN"])
    def test_in_x(self, kind, made, points):
        x, kept = points[["east", "north"]], points.index != 3
        given = {
            "mask": np.ma.masked_array(x, np.arange(120).reshape(60, 2) == 3),
            "nullable": x.astype("Float64").assign(east=x.east.astype("Float64").where(kept)),
            "object": x.astype(object).assign(east=x.east.astype(object).where(kept, None)),
            "NaN": x.assign(east=x.east.where(kept)),
        }[kind]
        for call in (made["deep"].predict, lambda v: _new().fit(v, points.value)):
            _refused(call, given)

    @pytest.mark.parametrize("kind", ["mask", "nullable", "object"])
    def test_in_y(self, kind, made, points):
        y = points.value
        given = {
            "mask": np.ma.masked_array(y, y.index == 3),
            "nullable": y.astype("Float64").where(y.index != 3),
            "object": y.astype(object).where(y.index != 3, None),
        }[kind]
        calls = (
            lambda v: _new().fit(points, v),
            lambda v: made["deep"].score(points, v),
            made["law"].crps,
            lambda v: geogp.evaluate(made["law"], v),
        )
        for call in calls:
            _refused(call, given)

    def test_a_mask_that_hides_nothing_is_no_mask(self, made, points):
        x = points[["east", "north"]].to_numpy()
        with pytest.warns(UserWarning, match="X has no column names"):
            found = made["deep"].predict(np.ma.masked_array(x, np.zeros(x.shape, bool)))
        np.testing.assert_array_equal(found, made["deep"].predict(points))


def test_tables_of_xarray_are_converted_for_classes(points):
    table = xr.Dataset({name: ("row", points[name]) for name in ("east", "north")})
    for given in (table, table.to_array().T):
        with pytest.raises(DataError, match=r"to_dataframe\(\)\.reset_index\(\)"):
            geogp.ClassGP(epochs=1).fit(given, points.value > 0)


class TestThirdColumn:
    """A third column of an array is a time, and only if the estimator has a unit of times."""

    def test_an_array_of_depths_is_refused(self, points):
        x = points[["east", "north"]].assign(depth=7.0 * points.index).to_numpy()
        with pytest.raises(RequestError, match="is the time, never a height or a depth"):
            _new().fit(x, points.value)

    def test_a_column_of_a_table_is_no_time_unless_named(self, made, points):
        table = points.assign(depth=points.index % 7)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _new().fit(table, points.value)
        assert found.scale_.times is None
        np.testing.assert_array_equal(found.predict(table), made["deep"].predict(points))


@pytest.mark.parametrize("largest", [1e300, -1e200, 1e31])
def test_extreme_numbers_are_refused(largest, made, points):
    far = points.assign(east=points.east.where(points.index != 3, largest))
    for call in (made["deep"].predict, made["deep"].joint, lambda v: _new().fit(v, points.value)):
        with pytest.raises(DataError, match="expected numbers in x from -1e"):
            call(far)
    with pytest.raises(DataError, match="expected measurements y from -1e"):
        _new().fit(points, points.value.where(points.index != 3, largest))
    with pytest.raises(GeogpError, match=r"times as far|numbers in x"):
        made["deep"].grid((0, 0, abs(largest), abs(largest)))


def test_points_far_beyond_the_fit_are_refused(made, points):
    with pytest.raises(DataError, match="times as far away as the edge of the box"):
        made["deep"].predict(points.assign(east=1e20))


def test_rows_have_one_value_or_one_each():
    assert rows_of(1, 3, "values").shape == ()
    with pytest.raises(DataError, match=r"expected 3 finite values.*shape \(2,\)"):
        rows_of([1, 2], 3, "values")
