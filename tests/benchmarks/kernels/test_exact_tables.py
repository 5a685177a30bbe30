"""The benchmark of exact processes: its data, its refusal, and one tiny study."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import SCRIPTS, told

BENCH = "kernels.exact_tables"

TINY = ("--steps", "3", "--likelihood-rows", "30", "--seeds", "2", "--sizes", "40")


def test_the_mean_has_a_wave_on_its_steps(bench):
    x = np.array([-0.9, 0.2])
    wave = 0.01 * np.sin(50 * np.sin(10 * x))
    np.testing.assert_allclose(bench.step_mean(x), np.array([0.3, -0.6]) + wave, atol=1e-12)


def test_the_noise_is_as_the_paper_says_and_seeds_differ(bench):
    parts, other = bench.draw(20_000, 1), bench.draw(20_000, 2)
    train = parts["train"]
    assert (train.y - bench.step_mean(train.x[:, 0])).std() == pytest.approx(0.1, rel=0.03)
    assert len(parts["test"].y) == 1000
    assert not np.array_equal(train.y, other["train"].y)


def test_the_split_is_seven_one_two(bench, tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x0": np.arange(1000.0), "y": np.arange(1000.0)}).to_csv(path)
    parts = bench.Table(path).split(3, bench.SHARES)
    assert {name: len(part.y) for name, part in parts.items()} == {
        "train": 700,
        "validation": 100,
        "test": 200,
    }
    rows = np.concatenate([part.x[:, 0] for part in parts.values()])
    np.testing.assert_array_equal(np.sort(rows), np.arange(1000))


def test_a_tiny_study_continues_and_refuses_what_is_too_large(bench, tmp_path, monkeypatch, capsys):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (90, 2))
    path = tmp_path / "waves.parquet"
    pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "y": x.sum(1)}).to_parquet(path)
    options = [*TINY, "--data", str(path), "--out", str(tmp_path / "out")]
    options += ["--table", str(tmp_path / "made")]
    monkeypatch.setattr(bench, "MOST_ROWS", 50)
    told(BENCH, *options)
    assert "GP takes at most 50 rows, found 62" in capsys.readouterr().err
    found = json.loads((tmp_path / "made" / "results.json").read_text())
    assert {one["model"] for one in found if one["table"] == "figure 3"} == set(bench.MODELS)
    assert {one["model"] for one in found if one["table"] == "waves"} == {*bench.MODELS} - set(
        bench.EXACT
    )
    assert {one["seed"] for one in found} == {0, 1}
    text = (tmp_path / "made" / "table.md").read_text()
    mean = np.mean([f["nll"] for f in found if (f["table"], f["model"]) == ("waves", "sGP")])
    assert "| waves | 62 | sGP | 62 | 2 | " in text
    assert f"| {mean:.3f} ± " in text
    assert "| 40 | GP | 30 | 2 | " in text
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("a fit is made again"))
    told(BENCH, *options)


def test_the_committed_table_is_that_of_the_committed_results(bench):
    folder = SCRIPTS / "results" / "exact"
    held = json.loads((folder / "results.json").read_text())
    text = (folder / "table.md").read_text()
    for one in held:
        assert one["steps"] == held[0]["steps"]
        assert f"| {one['model']} |" in text
    pol = next(f for f in held if (f["table"], f["model"]) == ("pol", "sDKL"))
    assert f"| {pol['nll']:.3f} |" in text


@pytest.mark.parametrize("models", [("GP", "DKL"), ("sGP", "DBK", "DBK-c")])
def test_the_second_device_gives_the_figures_of_the_cpu(models, on_both):
    here, there = on_both(BENCH, *TINY, "--models", *models)
    assert there == here
