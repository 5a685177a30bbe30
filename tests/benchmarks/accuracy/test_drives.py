"""The benchmark of drive logs: the level, the errors of drives, and a whole small run."""

import json

import numpy as np
import pytest
from benchmark_scripts import load, told

from geogp import Prediction

drives = load("accuracy.drives")


def test_the_level_has_the_stated_sd_and_range():
    """The Matern correlation of smoothness 3/2 at a distance of one range is .483."""
    places = np.array([[0.0, 0.0], [drives.RANGE, 0.0]])
    draws = [drives.level_of(np.random.default_rng(seed))(places) for seed in range(1500)]
    assert np.std(draws) == pytest.approx(drives.LEVEL, rel=0.05)
    assert np.corrcoef(np.transpose(draws))[0, 1] == pytest.approx(0.483, abs=0.06)


def test_tests_of_a_drive_err_together():
    random = np.random.default_rng(0)
    log = drives.log_of(random, drives.level_of(random), 60)
    assert log[["x", "y"]].to_numpy().min() >= 0
    assert log[["x", "y"]].to_numpy().max() <= drives.SIDE
    error = (log["value"] - log["truth"]).to_numpy().reshape(60, -1)
    assert error.std() == pytest.approx(np.hypot(np.hypot(0.3, 0.25), 0.35), rel=0.1)
    apart = [np.mean(error[:, lag:] * error[:, : 600 - lag]) for lag in (10, 480)]
    assert apart[0] == pytest.approx(0.3**2 + 0.25**2 * np.exp(-10 / 120), rel=0.35)
    assert apart[1] < apart[0] - 0.02
    steps = np.diff(log.loc[log["drive"] == 3, ["x", "y"]].to_numpy(), axis=0)
    assert np.median(np.linalg.norm(steps, axis=1)) == pytest.approx(drives.STEP)


@pytest.mark.trial
@pytest.mark.parametrize("model", drives.MODELS)
def test_each_model_predicts_new_drives(model, monkeypatch):
    monkeypatch.setattr(drives, "SECONDS", 120)
    random = np.random.default_rng(0)
    level = drives.level_of(random)
    train, test = (drives.log_of(random, level, count) for count in (20, 10))
    law, field = drives.MODELS[model](train, test, 0)
    assert 0.7 < drives.inside(law, test["value"].to_numpy(), 0.95) <= 1
    assert field is None or drives.inside(field, test["truth"].to_numpy(), 0.95) > 0.6


def test_a_small_run_writes_a_table(tmp_path, monkeypatch):
    def model(sd, *, level):
        same = np.ones(240 // drives.ASKED)
        law = Prediction.of_moments(0 * same, sd**2 * same)
        return lambda *_: (law, law if level else None)

    monkeypatch.setattr(drives, "SECONDS", 120)
    monkeypatch.setattr(
        drives, "MODELS", {"wide": model(9, level=True), "narrow": model(1e-9, level=False)}
    )
    where = ["--out", str(tmp_path / "out"), "--table", str(tmp_path), "--drives", "4"]
    told("accuracy.drives", "--worlds", "2", *where)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [each["seed"] for each in found] == [0, 0, 1, 1]
    page = (tmp_path / "table.md").read_text()
    wide, narrow = page.splitlines()[-2:]
    assert wide.startswith(
        "| `wide` | 2 | 100.0 ± 0.0 % | 100.0 ± 0.0 % | 100.0 ± 0.0 % | 100.0 % |"
    )
    assert narrow.startswith("| `narrow` | 2 | 0.0 ± 0.0 %")
    assert "|  |  |  |" in narrow
    assert drives.page(found) == page
