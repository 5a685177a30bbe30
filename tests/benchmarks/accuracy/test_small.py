"""The benchmark of small sets: its models, its folds, and a whole small run."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load, told

from geogp import Prediction

small = load("accuracy.small")


@pytest.fixture(scope="module")
def case():
    return small.simulated("field 1.5", 70)[0]


@pytest.mark.trial
@pytest.mark.parametrize("model", small.MODELS)
def test_each_model_predicts_places_and_noise(case, model):
    if model == "gstat" and (why := small.gstat_peer.missing()):
        pytest.skip(f"gstat cannot be called: {why}")
    place, value, new, truth = case
    law = small.MODELS[model](place, value, new, 0)
    assert np.sqrt(np.mean(np.square(law.mean - truth))) < 0.7 * truth.std()
    lower, upper = law.interval(0.95)
    assert 0.85 < np.mean((lower < truth) & (truth < upper)) <= 1
    # A measurement at a measured place has its noise; least squares may find no nugget.
    least = 0 if model in {"kriging", "pykrige", "gstat"} else 0.01
    assert small.MODELS[model](place, value, place, 0).variance.min() > least


def test_simulated_sets_differ_and_repeat():
    place, value, new, truth = small.simulated("sines", 70)[0]
    assert place.shape == (70, 2)
    assert new.shape == (small.NEW, 2)
    assert truth.std() == pytest.approx(1.0, abs=0.2)
    np.testing.assert_array_equal(small.simulated("sines", 70)[0][1], value)
    assert not np.isin(small.simulated("field 0.5", 70)[0][1], value).any()


@pytest.mark.parametrize("split", small.SPLITS)
def test_each_row_of_a_classic_set_is_asked_once(tmp_path, split):
    random = np.random.default_rng(0)
    rows = pd.DataFrame(random.uniform(0, 5, (60, 3)), columns=["x", "y", "value"])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    parts = small.classic(tmp_path / "rows.csv", split)
    asked = np.concatenate([truth for *_, truth in parts])
    assert sorted(asked) == pytest.approx(sorted(rows["value"]))
    for place, value, new, truth in parts:
        assert len(place) == len(value) == 60 - len(new) == 60 - len(truth)
    apart = np.mean([new.std(0).mean() for _, _, new, _ in parts])
    assert (apart < 0.6) == (split == "blocks")


def test_a_small_run_writes_a_table(tmp_path, monkeypatch):
    def mean(_place, value, new, _seed):
        same = np.ones(len(new))
        return Prediction.of_moments(value.mean() * same, value.var() * same)

    def wide(place, value, new, seed):
        law = mean(place, value, new, seed)
        return Prediction.of_moments(law.mean, 2 * law.variance)

    monkeypatch.setattr(small, "MODELS", {"field": mean, "wide": wide})
    (tmp_path / "classics").mkdir()
    rows = pd.DataFrame({"x": np.arange(30.0), "y": np.arange(30) % 7.0, "value": np.arange(30.0)})
    rows.to_csv(tmp_path / "classics" / "line.csv", index=False)
    where = ["--classics", str(tmp_path / "classics"), "--out", str(tmp_path / "out")]
    told("accuracy.small", "--sizes", "70", *where, "--table", str(tmp_path))
    text = (tmp_path / "table.md").read_text()
    assert "| blocks | line | 2" in text
    found = pd.DataFrame(json.loads((tmp_path / "results.json").read_text()))
    assert len(found) == 2 * (len(small.WORLDS) + 2)
    sines = found.query("set == 'sines, 70'").set_index("model")
    ratio = sines.crps["field"] / sines.crps["wide"]
    assert 0.9 < ratio < 1
    assert sines.coverage_95["wide"] >= sines.coverage_95["field"]
    again = [
        "--earlier",
        "--worlds",
        "sines",
        "--sizes",
        "310",
        *where[2:],
        "--table",
        str(tmp_path),
    ]
    told("accuracy.small", *again, "--models", "field")
    larger = pd.DataFrame(json.loads((tmp_path / "results.json").read_text()))
    assert len(larger) == len(found) + 1
    assert (larger["split"] == "large").sum() == 1
    assert "| large | sines, 310 | 310 | 0." in (tmp_path / "table.md").read_text()


def test_without_r_gstat_is_left_out_and_the_page_says_so(tmp_path, monkeypatch, capsys):
    def mean(_place, value, new, _seed):
        return Prediction.of_moments(np.full(len(new), value.mean()), np.ones(len(new)))

    monkeypatch.setattr(small, "MODELS", {"field": mean, "gstat": mean})
    monkeypatch.setattr(small.gstat_peer.shutil, "which", lambda _: None)
    where = ["--out", str(tmp_path / "out"), "--table", str(tmp_path)]
    told("accuracy.small", "--sizes", "70", "--worlds", "sines", *where)
    assert "gstat is left out: there is no Rscript." in capsys.readouterr().err
    text = (tmp_path / "table.md").read_text()
    assert "Not measured: `gstat`." in text
    assert "| simulated | `gstat`" not in text


def test_a_folder_without_sets_is_refused(tmp_path, capsys):
    assert load("__main__").main(["accuracy.small", "--classics", str(tmp_path)]) == 2
    assert "expected CSV files" in capsys.readouterr().err
