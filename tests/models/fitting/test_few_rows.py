"""Few rows: the width of intervals is estimated by cross-validation over places."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse, stats

from geogp.distributions.shapes import GAUSSIAN
from geogp.errors import DataError
from geogp.models.catalogue import fit_plan
from geogp.models.catalogue.build import build
from geogp.models.catalogue.fit_plan import FitPlan
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import few_rows
from geogp.models.fitting.few_rows import (
    FEW_PLACES,
    FEW_ROWS,
    are_few,
    fold_residuals,
    width_factor,
)
from geogp.models.fitting.loop import fit
from geogp.models.joint.law import two_variances
from geogp.models.joint.level import joint_level
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.presets import Preset
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

SETTINGS = FitSettings(epochs=1, batch=32)


def _data(rows: int, places: int, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    place = rng.uniform(-1, 1, (places, 2))
    x = place[np.arange(rows) % places]
    tests = rng.integers(1, 9, rows).astype(float)
    return Data(x, rng.standard_normal(rows), tests, np.ceil(0.6 * tests))


@pytest.mark.parametrize(
    ("rows", "places", "few"),
    [
        (FEW_ROWS, FEW_PLACES, False),
        (FEW_ROWS - 1, FEW_PLACES, True),
        (FEW_ROWS, FEW_PLACES - 1, True),
    ],
)
def test_few_rows_or_few_places_are_few(rows, places, few):
    assert are_few(_data(rows, places)) is few


def test_the_factor_is_the_width_of_a_student_law():
    scale = np.sqrt((10 + 90 * 1.5**2) / 100)
    expected = scale * stats.t.ppf(0.975, 100) / stats.norm.ppf(0.975)
    assert width_factor(np.full(90, 1.5)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["field", "dbk-rbf", "nngp"])
def test_a_widened_model_is_normal_and_so_many_times_as_wide(name, monkeypatch, tmp_path):
    data = _data(60, 20)
    architecture = Architecture(d=2, h=4, r=5, blocks=1, units=(20.0, 10.0))
    settings = replace(SETTINGS, optimiser="lbfgs" if name == "nngp" else "adamw")
    preset = Preset(
        **vars(settings), h=4, r=5, least_steps=0, placement="kmeans", split="random", refit=False
    )
    plan = FitPlan(name, preset, architecture, torch.device("cpu"))
    model, _ = fit(plan.build(data), data, data, settings)
    plain = model.widened(1.0).predict(data.x, data.tests, data.devices)
    z = 2 * np.random.default_rng(1).standard_normal(120)
    monkeypatch.setattr(fit_plan, "fold_residuals", lambda *_: z)

    widened, _ = plan.fit(data, data)

    s = np.sqrt((10 + (z**2).sum()) / (10 + 120))
    factor = s * stats.t.ppf(0.975, 130) / stats.norm.ppf(0.975)
    save_model(widened, tmp_path / "model.safetensors")
    wide = load_model(tmp_path / "model.safetensors")[0].predict(data.x, *data.counts.T)
    np.testing.assert_allclose(wide.sd, factor * plain.sd, rtol=1e-9)
    np.testing.assert_allclose(wide.mean, plain.mean, rtol=1e-9)
    if name == "field":
        assert plain.shape is GAUSSIAN
        assert wide.shape is GAUSSIAN
    # A quantile of the normal law, from the moments alone.
    lower, upper = wide.interval(0.95)
    assert plain.shape is not GAUSSIAN or np.allclose(upper - lower, 2 * 1.959964 * wide.sd)


def test_each_row_is_predicted_by_a_fit_without_its_place(monkeypatch):
    data = _data(90, 30)
    seen = []

    def watch(model, train, held, _settings):
        seen.append((train, held))
        return model, None

    class Mean:
        def widened(self, factor):
            assert factor == 1.0
            return self

        def predict(self, x, tests, devices):
            train = seen[-1][0]
            assert len(x) == len(tests)
            np.testing.assert_array_equal(devices, np.ceil(0.6 * tests))
            return stats_of(train.y.mean(), 2.0, len(x))

    def stats_of(mean, sd, n):
        return type("P", (), {"mean": np.full(n, mean), "sd": np.full(n, sd)})

    monkeypatch.setattr(few_rows, "fit", watch)
    found = fold_residuals(lambda _: Mean(), data, SETTINGS)

    assert len(seen) == few_rows.FOLDS
    predicted = np.zeros(90)
    for train, choosing in seen:
        known = set(map(tuple, train.x)) | set(map(tuple, choosing.x))
        assert not set(map(tuple, train.x)) & set(map(tuple, choosing.x))
        rows = np.array([tuple(x) not in known for x in data.x])
        assert len(train.y) + len(choosing.y) + rows.sum() == 90
        np.testing.assert_allclose(found[rows], (data.y[rows] - train.y.mean()) / 2.0)
        predicted += rows
    np.testing.assert_array_equal(predicted, 1)

    order = np.random.default_rng(3).permutation(90)
    again = fold_residuals(lambda _: Mean(), data.at(order), SETTINGS)
    np.testing.assert_allclose(again, found[order])


def test_noise_learned_from_held_rows_does_not_hide_their_residuals():
    # The noise of `dnn` is the mean square of the rows that choose its epoch.
    data = _data(100, 50)
    places = np.unique(data.x, axis=0)
    louder = np.where((data.x[:, None] == places[:5]).all(2).any(1), 8.0, 1.0)
    architecture = Architecture(d=2, h=4, r=5, blocks=1)

    def z(y):
        def make(part):
            return build("dnn", architecture, torch.from_numpy(part.x))

        return fold_residuals(make, Data(data.x, y, data.tests), SETTINGS)

    assert (z(data.y * louder) ** 2).mean() > 1.5 * (z(data.y) ** 2).mean()


def test_the_level_of_areas_is_as_wide_as_that_of_the_map(make_model):
    model, data = make_model("sv-rbf"), _data(60, 20)
    fit(model, data, data, SETTINGS)
    x = np.random.default_rng(2).uniform(-1, 1, (7, 2))
    plain = joint_level(model, data, x).single_variances()
    before = two_variances(model, data, x)
    model = model.widened(2.0)
    level = joint_level(model, data, x)
    np.testing.assert_allclose(level.single_variances(), 4 * plain, rtol=1e-9)
    one = sparse.csc_array(np.eye(7)[:, :1])
    np.testing.assert_allclose(level.sum_variances(one), 4 * plain[:1], rtol=1e-9)
    np.testing.assert_allclose(level.sum_covariance(one), 4 * plain[:1, None], rtol=1e-9)
    after = two_variances(model, data, x)
    assert after == pytest.approx({name: 2 * sd for name, sd in before.items()})


def test_too_few_places_are_refused():
    with pytest.raises(DataError, match=r"10 places or more, found 40 rows at 9"):
        fold_residuals(lambda _: None, _data(40, 9), SETTINGS)


def test_a_model_saved_without_a_widening_is_read(make_model, tmp_path):
    model, path = make_model("dbk-rbf"), tmp_path / "model.safetensors"
    save_model(model, path)
    tensors, described = read_tensors(path)
    del tensors["widening"]
    write_tensors(path, tensors, described)
    x = np.zeros((3, 2))
    np.testing.assert_array_equal(load_model(path)[0].predict(x).sd, model.predict(x).sd)
