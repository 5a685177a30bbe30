"""alpha and beta chosen by validation, as a part of the main job."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from run_worlds import Heard, run_json

from geogp.errors import DataError
from geogp.models.catalogue import fit_plan
from geogp.models.fitting.tuning import GRID
from geogp.models.presets import PRESETS
from geogp.runs.pipeline.run_map import run_map

pytestmark = pytest.mark.trial


def epochs_of_search(heard):
    return sum(text.startswith("weights") for text, _ in heard.parts)


@pytest.fixture
def tiny(monkeypatch):
    """A small network: the search fits it sixteen times."""
    monkeypatch.setitem(PRESETS, "quick", replace(PRESETS["quick"], h=8, r=8))


def test_the_preset_decides_unless_asked(small, tmp_path):
    run = run_json(run_map(small.request(tmp_path / "run", model="dbk-silu", epochs=1)))
    assert run["weights"] == {"alpha": 0.01, "beta": 0.01, "chosen_by": "preset"}


def test_the_field_model_has_none(finished):
    assert run_json(finished)["weights"] == {"chosen_by": "none"}


def test_chosen_once_for_both_splits_and_continued(small, tmp_path, tiny):
    request = small.request(tmp_path / "run", tune_weights=True, split="both", model="dbk-silu")
    stopped, again = Heard(lambda *_: epochs_of_search(stopped) == 11), Heard()
    with pytest.raises(KeyboardInterrupt):
        run_map(request, stopped)
    found = run_json(run_map(request, again))["weights"]
    # Two epochs of each of 16 fits, none of them twice.
    assert epochs_of_search(stopped) + epochs_of_search(again) == 2 * len(GRID) ** 2
    scores = [trial["validation_nll"] for trial in found["trials"]]
    assert len(scores) == 16
    assert scores == sorted(scores)
    assert np.isfinite(scores).all()
    assert {name: found["trials"][0][name] for name in ("alpha", "beta")} == {
        name: found[name] for name in ("alpha", "beta")
    }
    request = small.request(tmp_path / "whole", tune_weights=True, split="both", model="dbk-silu")
    whole = run_json(run_map(request))
    assert {**whole["weights"], "seconds": 0} == {**found, "seconds": 0}
    assert whole["seconds"]["fit"] > whole["weights"]["seconds"] > 0
    # What the run states everywhere is what was chosen, not the preset's.
    assert whole["settings"]["model"]["weights"] == "validation"
    with xr.open_dataset(tmp_path / "whole" / "grid.nc", engine="h5netcdf") as grid:
        stated = json.loads(grid.attrs["weights"])
    assert stated == {name: found[name] for name in ("alpha", "beta")}


def test_the_chosen_weights_are_those_of_the_fit(small, tmp_path, monkeypatch, tiny):
    used = []
    fit = fit_plan.fit

    def watched(model, rows, held, settings, **options):
        used.append(settings.weights)
        return fit(model, rows, held, settings, **options)

    monkeypatch.setattr(fit_plan, "fit", watched)
    request = small.request(tmp_path / "run", tune_weights=True, epochs=1, model="dbk-silu")
    found = run_json(run_map(request))["weights"]
    assert {(w.alpha, w.beta) for w in used} == {(found["alpha"], found["beta"])}


def test_a_model_without_weights_says_so(small, tmp_path):
    heard = Heard()
    run = run_json(run_map(small.request(tmp_path / "run", tune_weights=True, model="vbll"), heard))
    assert epochs_of_search(heard) == 0
    assert run["weights"] == {"chosen_by": "none"}
    assert any("vbll has no weights to choose" in text for text in heard.warnings)
    assert any("vbll has no weights to choose" in text for text in run["warnings"])


def test_a_damaged_search_is_refused(small, tmp_path, tiny):
    request = small.request(tmp_path / "run", tune_weights=True, model="pp-dkl")
    with pytest.raises(KeyboardInterrupt):
        run_map(request, Heard(lambda text, _: text.startswith("fit")))
    (path,) = (tmp_path / "run").rglob("weights.json")
    assert set(json.loads(path.read_text())) == {"beta", "chosen_by", "seconds", "trials"}
    path.write_text("{")
    with pytest.raises(DataError, match=r"is damaged: .* --fresh"):
        run_map(request)


@pytest.mark.parametrize("name", ["dbk-exact", "dbk-exact-rbf", "sv-rbf", "sv-dkl"])
def test_models_that_start_far_from_their_noise_reach_the_baseline(name, small, tmp_path):
    """The quick preset on 1,200 rows; started at the papers' 0.01 they end at 1.4 to 7."""
    run = run_json(run_map(small.request(tmp_path / "run", epochs=40, zoom=11, model=name)))
    own, other = run["metrics"]["random"]["all"], run["baseline"]["random"]["all"]
    assert own["nll"] < other["nll"] + 0.1
    assert 0.9 < own["coverage_95"] <= 1
