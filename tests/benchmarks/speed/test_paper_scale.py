"""The papers' recipe against ours, at tiny sizes."""

import json

import numpy as np
import pytest
from benchmark_scripts import started


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale")
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (600, 2))
    y = np.sin(4 * x[:, 0]) + 0.1 * random.standard_normal(600)
    np.savez(folder / "rows.npz", x=x, y=y, tests=np.ones(600))
    options = ["--npz", folder / "rows.npz", "--share", "0.5", "--h", "8", "--r", "16"]
    options += ["--batch", "60", "--rate", "0.01", "--seeds", "2"]
    options += ["--epochs", "3", "--plain-epochs", "4"]
    started("speed.paper_scale", *options, "--table", folder / "out")
    return folder / "out"


def test_both_recipes_are_measured_on_the_same_rows(found):
    held = json.loads((found / "results.json").read_text())
    assert held["asked"] == {"rows": 300, "h": 8, "r": 16, "batch": 60, "rate": 0.01, "seeds": 2}
    ours, plain = held["recipes"]["ours"], held["recipes"]["plain"]
    assert (ours["epochs"], plain["epochs"]) == (3, 4)
    for recipe in (ours, plain):
        for one in recipe["fits"]:
            seconds = [at for at, _ in one["trace"]]
            assert len(seconds) == recipe["epochs"]
            assert seconds == sorted(seconds)
            assert one["seconds"] >= seconds[-1]
        assert recipe["fits"][0]["test_nll"] != recipe["fits"][1]["test_nll"]
        for key in ("seconds", "test_nll", "validation_nll"):
            assert recipe[key] == pytest.approx(sum(one[key] for one in recipe["fits"]) / 2)
    compared = held["compared"]
    assert compared["share_of_time"] == pytest.approx(ours["seconds"] / plain["seconds"])
    assert compared["test_gain"] == pytest.approx(plain["test_nll"] - ours["test_nll"])
    for part in ("test", "validation"):
        gain = plain[f"{part}_nll"] - ours[f"{part}_nll"]
        assert compared[f"{part}_gain"] == pytest.approx(gain)
        assert compared["reached"][part] is (gain >= 0)
    for one in plain["fits"]:
        assert one["validation_nll"] == min(score for _, score in one["trace"])
    for one in ours["fits"]:
        assert one["validation_nll"] <= min(score for _, score in one["trace"])


@pytest.mark.real
def test_rows_are_simulated_inside_the_state(real_data, tmp_path):
    path = tmp_path / "rows.npz"
    census = real_data / "census"
    options = ["--boundaries", census, "--state", "VI", "--rows", "2000", "--npz", path]
    started("speed.paper_scale", *options)
    with np.load(path) as rows:
        assert rows["x"].shape == (2000, 2)
        assert np.abs(rows["x"]).max() <= 1
        assert len(rows["y"]) == len(rows["tests"]) == 2000
