"""The benchmark of amounts: its worlds, each model, and a whole small run."""

import json

import numpy as np
import pytest
from benchmark_scripts import load, told

from geogp import Prediction

amounts = load("accuracy.amounts")


@pytest.mark.parametrize("case", amounts.CASES)
def test_worlds_have_zeros_and_the_range_of_their_law(case):
    shares = []
    for seed in range(6):
        places, y = amounts.world(case, seed)
        assert places.shape == (2 * amounts.ROWS, 2)
        assert y.min() == 0
        assert case == "rain" or y.max() <= 1
        shares.append((y == 0).mean())
    low, high = {"rain": (0.25, 0.55), "loss": (0.4, 0.7)}[case]
    assert low - 0.15 < min(shares) < max(shares) < high + 0.15


@pytest.mark.trial
@pytest.mark.parametrize("model", ["law", "gpboost"])
def test_models_with_a_law_state_right_probabilities_of_zero(model):
    found = amounts.measure("rain", model, 3)
    assert found["outside"] == 0
    assert found["zero_gap"] < 0.1
    assert abs(found["typical_gap"]) < 0.08
    assert found["coverage_95"] == pytest.approx(found["mass_95"], abs=0.03)


def test_a_small_run_writes_a_table(tmp_path, monkeypatch):
    def model(case, places, y, new):
        assert len(places) == len(y)
        same = np.ones(len(new))
        return Prediction.of_moments(0 * same, same) if case == "rain" else None

    monkeypatch.setattr(amounts, "MODELS", {"standard": model})
    where = ["--out", str(tmp_path / "out"), "--table", str(tmp_path)]
    told("accuracy.amounts", "--worlds", "2", *where)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [each["case"] for each in found] == ["rain", "rain"]
    page = (tmp_path / "table.md").read_text()
    assert page.splitlines()[-1].startswith("| rain | `standard` | 2 |")
    assert "| 95.0 % | 100 % |" in page
    assert amounts.page(found) == page
