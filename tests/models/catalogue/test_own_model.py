"""A model of one's own: a row that is added, and a fit in closed form without steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build, find_spec
from geogp.models.catalogue.rows import CATALOGUE, add_model
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import Fit
from geogp.models.names import MODELS, ModelName, list_models
from geogp.models.process.architecture import Architecture
from geogp.models.process.posteriors import condition

SIZES = Architecture(d=2, h=6, r=8, blocks=1, dtype="float64")


class Conditioned(Fit):
    """The posterior of the weights given the rows, for untrained features and known noise."""

    def finish(self, held_out):  # noqa: ARG002
        with torch.no_grad():
            self.process.posterior.update_closed_forms(self.process.weighted_rows(self.rows))
        return self.process


@pytest.fixture
def own(monkeypatch):
    """The row of a model that is dbk-mml without training."""
    for names in (CATALOGUE, MODELS):
        monkeypatch.setitem(names, "own", None)  # is taken away at the end
        del names["own"]
    spec = replace(CATALOGUE["dbk-mml"], name="own", fit=Conditioned)
    add_model(ModelName("own", "a model of these tests"), spec)
    return spec


@pytest.mark.usefixtures("own")
def test_a_fit_in_closed_form_has_the_posterior_of_its_rows(train, validation):
    process = build("own", SIZES, train.x, seed=0)
    model, state = fit(process, train, validation, FitSettings(epochs=3))
    rows = process.as_rows(train)
    m, L = condition(process.weighted_rows(rows), torch.zeros(8, dtype=torch.float64))
    torch.testing.assert_close(model.posterior.m, m, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(model.posterior.L, L, rtol=1e-12, atol=1e-14)
    assert (state.epoch, state.losses) == (0, [])
    score = model.predict(validation.x).log_score(validation.y).mean()
    assert state.best_nll == pytest.approx(float(score), rel=1e-12)


@pytest.mark.usefixtures("own")
def test_a_model_of_ones_own_is_listed_saved_and_loaded(train, validation, tmp_path):
    assert "own" in list_models("deep")
    model, _ = fit(build("own", SIZES, train.x, seed=0), train, validation, FitSettings(epochs=1))
    save_model(model, tmp_path / "own.safetensors")
    same, _ = load_model(tmp_path / "own.safetensors")
    np.testing.assert_array_equal(same.predict(validation.x).mean, model.predict(validation.x).mean)


@pytest.mark.usefixtures("own")
def test_settings_of_steps_are_refused(train, validation):
    process = build("own", SIZES, train.x, seed=0)
    with pytest.raises(RequestError, match=r"expected solve_mean=False, because .* of own does"):
        fit(process, train, validation, FitSettings(epochs=1, solve_mean=True))


def test_names_that_differ_or_exist_and_unknown_families_are_refused(own):
    with pytest.raises(RequestError, match=r"one name in the description .* 'other' and 'own'"):
        add_model(ModelName("other", ""), own)
    for name in ("field", "class-dbk"):
        with pytest.raises(RequestError, match=f"geogp has a model '{name}'"):
            add_model(ModelName(name, ""), replace(own, name=name))
    with pytest.raises(RequestError, match="family"):
        add_model(ModelName("own", "", family="deeep"), own)


def test_a_model_can_be_added_again(own):
    add_model(ModelName("own", "another summary"), own)
    assert MODELS["own"].summary == "another summary"
    add_model(ModelName("own", "", family="class"), own)
    assert "own" not in MODELS
    assert "own" not in CATALOGUE
    add_model(ModelName("own", ""), own)
    assert find_spec("own") is own


def test_a_file_of_a_model_that_is_not_added_says_so(own, train, validation, tmp_path):
    model, _ = fit(build("own", SIZES, train.x, seed=0), train, validation, FitSettings(epochs=1))
    save_model(model, tmp_path / "own.safetensors")
    del CATALOGUE["own"], MODELS["own"]
    with pytest.raises(DataError, match=r"the model 'own', .* add it with add_model first"):
        load_model(tmp_path / "own.safetensors")
