"""Estimators in threads, processes and copies, and at unusual places and values."""

import copy
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from geogp import ClassGP, DeepBasisGP, FieldGP, KernelGP, load_model, split
from geogp.errors import DataError

PLAIN = {"x": "east", "y": "north", "crs": None, "epochs": 1, "rank": 8}
FEW = pytest.mark.filterwarnings("ignore:.*rows at .* places are few")

pytestmark = FEW


@pytest.fixture(scope="module")
def points():
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.uniform(0, 1, (120, 2)), columns=["east", "north"])
    noise = 0.1 * random.standard_normal(120)
    return table.assign(value=np.sin(5 * table.east) + np.cos(4 * table.north) + noise)


def _settings():
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.random.get_rng_state().sum().item(),
        str(np.geterr()),
        sys.float_info.min / 2 > 0,
    )


def test_two_fits_at_once_equal_two_fits_one_after_the_other(points):
    def fitted(seed):
        model = DeepBasisGP(**PLAIN, random_state=seed).fit(points, points.value)
        return model.predict_distribution(points)

    before, together = _settings(), {}
    threads = [
        threading.Thread(target=lambda seed=seed: together.update({seed: fitted(seed)}))
        for seed in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _settings() == before
    for seed in (0, 1):
        alone = fitted(seed)
        np.testing.assert_array_equal(together[seed].mean, alone.mean)
        np.testing.assert_array_equal(together[seed].sd, alone.sd)


def test_copies_predict_the_same(points):
    model = DeepBasisGP(**PLAIN).fit(points, points.value)
    law = model.predict_distribution(points)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        found = other.predict_distribution(points)
        np.testing.assert_array_equal(found.mean, law.mean)
        np.testing.assert_array_equal(found.sd, law.sd)
    assert not clone(model).__sklearn_is_fitted__()
    assert pickle.loads(pickle.dumps(clone(model))).get_params() == model.get_params()


@pytest.mark.trial
def test_processes_give_the_scores_of_one_process(points):
    model = DeepBasisGP(**PLAIN)
    alone, together = (
        cross_val_score(model, points, points.value, cv=2, n_jobs=jobs) for jobs in (1, 2)
    )
    np.testing.assert_array_equal(alone, together)


def test_a_grid_search_over_a_pipeline_finds_the_covariate(points):
    table = points[:80].assign(
        height=np.random.default_rng(1).normal(size=80), other=1.0 * points.index[:80]
    )
    pipeline = make_pipeline(
        StandardScaler().set_output(transform="pandas"), FieldGP(x="east", y="north", crs=None)
    )
    names = "fieldgp__covariates"
    search = GridSearchCV(
        pipeline, {names: [None, ["other"], ["height"]]}, cv=2, error_score="raise"
    )
    search.fit(table.drop(columns="value"), table.value + table.height)
    assert search.best_params_ == {names: ["height"]}
    error = search.predict(table.drop(columns="value")) - (table.value + table.height)
    assert np.sqrt(np.mean(error**2)) < 0.2


@pytest.mark.parametrize("validation", ["random", "blocks"])
@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_the_unit_of_a_plane_does_not_matter(size, validation, points):
    model = DeepBasisGP(**PLAIN, validation=validation)
    usual = model.fit(points, points.value).predict(points)
    other = points.assign(east=points.east * size, north=points.north * size)
    found = clone(model).fit(other, points.value).predict(other)
    # Other rows validate, as their choice depends on coordinates.
    assert np.sqrt(np.mean((found - usual) ** 2)) < 0.2 * points.value.std()


def test_a_split_of_tiny_extents_has_both_parts(points):
    tiny = points.assign(east=points.east * 1e-9, north=points.north * 1e-9)
    train, test = split(tiny, "random", x="east", y="north")
    assert 0 < len(test) < 40
    assert len(train) + len(test) == 120


def test_a_measurement_that_alone_decides_the_fit_is_told(points):
    far = points.value.where(points.index != 7, 1e12)
    with pytest.warns(UserWarning, match=r"the measurement 1e\+12 in row 7 is .* from the median"):
        DeepBasisGP(**PLAIN).fit(points, far)


class TestDegrees:
    def test_the_date_line_is_no_border(self):
        random = np.random.default_rng(3)
        east, north = random.uniform(0, 4, 400), random.uniform(-20, -16, 400)
        truth = np.sin(3 * east) + np.cos(2 * north)
        y = truth + 0.1 * random.standard_normal(400)
        errors = []
        for west in (178, 168):
            x = np.column_stack([(east + west + 180) % 360 - 180, north])
            model = KernelGP(epochs=4, rank=64, validation="random").fit(x[:300], y[:300])
            errors.append(np.sqrt(np.mean((model.predict(x[300:]) - truth[300:]) ** 2)))
        assert max(errors) < 0.1
        assert errors[0] == pytest.approx(errors[1], rel=0.3)

    def test_a_pole_is_refused_with_a_crs_to_use(self):
        random = np.random.default_rng(0)
        x = np.column_stack([random.uniform(-180, 180, 60), random.uniform(88, 90, 60)])
        with pytest.raises(DataError, match=r"near a pole.*EPSG:3413"):
            DeepBasisGP(epochs=1, rank=8).fit(x, x[:, 1])

    def test_degrees_and_metres_are_told_apart(self, points):
        metres = points.assign(east=500_000 + points.east, north=4e6 + points.north)
        with pytest.raises(DataError, match=r"in metres.*projected CRS"):
            DeepBasisGP(**PLAIN | {"crs": "EPSG:4326"}).fit(metres, points.value)
        degrees = points.assign(east=-66 - points.east, north=18 + points.north)
        model = DeepBasisGP(**PLAIN | {"crs": "EPSG:32161"})
        with pytest.raises(DataError, match="look like longitudes and latitudes"):
            model.fit(degrees, points.value)
        model.fit(metres, points.value)
        with pytest.raises(DataError, match="look like longitudes and latitudes"):
            model.predict(degrees)

    def test_places_near_the_origin_of_a_crs_are_no_degrees(self, points):
        polar = points.assign(east=1e5 * (points.east - 0.5), north=1e5 * (points.north - 0.5))
        model = DeepBasisGP(**PLAIN | {"crs": "EPSG:3413"}).fit(polar, points.value)
        assert np.isfinite(model.predict(pd.DataFrame({"east": [0.0], "north": [0.0]}))).all()


class TestInNotebooks:
    def test_an_estimator_shows_its_parameters_and_whether_it_is_fitted(self, points):
        model = DeepBasisGP(**PLAIN | {"x": "<b>"})
        html = model._repr_html_()
        assert "DeepBasisGP (not fitted)" in html
        assert "<td>x</td><td>&#x27;&lt;b&gt;&#x27;</td>" in html
        assert "random_state" not in html
        fitted = model.set_params(x="east").fit(points, points.value)
        assert "DeepBasisGP (fitted)" in fitted._repr_html_()

    def test_a_pipeline_shows_it(self):
        pipeline = make_pipeline(StandardScaler(), KernelGP(rank=12345))
        assert "12345" in pipeline._repr_html_()


class TestVerbose:
    @pytest.mark.parametrize(
        ("model", "told"),
        [
            (DeepBasisGP(**PLAIN | {"epochs": 3}), ["epoch 1 of 3", "cross-validation", "fitted"]),
            (FieldGP(x="east", y="north", crs=None), ["covariances of 120", "left out", "fitted"]),
        ],
    )
    def test_it_prints_and_changes_no_number(self, model, told, points, capsys):
        usual = clone(model).fit(points, points.value).predict(points)
        assert capsys.readouterr() == ("", "")
        shown = clone(model.set_params(verbose=True))
        assert shown.verbose
        np.testing.assert_array_equal(shown.fit(points, points.value).predict(points), usual)
        out, err = capsys.readouterr()
        assert out == ""
        places = [err.index(text) for text in told]
        assert places == sorted(places)

    def test_each_member_of_an_ensemble_has_its_lines(self, points, capsys):
        model = ClassGP(columns=["east", "north"], members=2, epochs=1, rank=8, verbose=True)
        model.fit(points, points.value > 0)
        assert "ClassGP 2 of 2: epoch 1 of 1" in capsys.readouterr().err

    def test_files_keep_it_and_old_files_have_none(self, points, tmp_path):
        DeepBasisGP(**PLAIN, verbose=True).fit(points, points.value).save(tmp_path / "new")
        assert load_model(tmp_path / "new").verbose
        fixtures = Path(__file__).parents[1] / "fixtures"
        assert not load_model(fixtures / "run-0.2" / "field" / "model.safetensors").verbose
