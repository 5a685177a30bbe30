"""The benchmark of Bayesian last layers on tables: its parts, and one tiny run."""

import argparse
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import run, told
from scipy import stats

from geogp.errors import RequestError

BENCH = "networks.last_layers"


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.standard_normal((300, 3)) * [100.0, 1.0, 0.01]
    return x, 40 + 9 * np.sin(x[:, 0] / 100) + 9 * x[:, 1] + random.standard_normal(300)


@pytest.fixture(scope="module")
def measured(bench, table) -> dict:
    return bench.measure(bench.split(*table, 1), bench.Plan(32, 4), 1)


def test_rows_are_split_as_in_the_paper(bench, table):
    parts = bench.split(*table, 3)
    assert [len(part.y) for part in parts.values()] == [216, 54, 30]
    together = np.concatenate([part.y for part in parts.values()])
    np.testing.assert_array_equal(np.sort(together), np.sort(table[1]))


def test_inputs_are_standardised_and_both_models_share_a_network(bench, table):
    rows = bench.split(*table, 0)
    rich, plain, best = bench.fitted(rows, bench.Plan(32, 2), 0)
    scaled = rich.scaled(rows["train"].x).numpy()
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-6)
    x = rows["test"].x
    found, other = rich.predict(x), plain.predict(x)
    np.testing.assert_array_equal(found.mean, other.mean)
    assert (found.function_variance >= other.function_variance * (1 - 1e-9)).all()
    assert best in {1, 2}


def test_a_second_training_uses_the_validation_rows_and_keeps_the_noise(bench, table):
    rows = bench.split(*table, 0)
    first, second = bench.Plan(32, 3), bench.Plan(32, 3, retrained=True)
    once, again = (bench.fitted(rows, plan, 0)[0] for plan in (first, second))
    noise = [model.noise().item() * model.y_sd.item() ** 2 for model in (once, again)]
    assert noise[1] == pytest.approx(noise[0], rel=1e-6)
    both = np.concatenate([rows["train"].y, rows["validation"].y])
    assert again.y_sd.item() == pytest.approx(both.std(), rel=1e-6)
    found = bench.measure(rows, second, 0)
    assert found["n"] == 270
    assert found["noise_var"] == pytest.approx(noise[0], rel=1e-6)


def test_every_enrichment_raises_the_variance_within_its_bound(bench, measured):
    share = 51 / measured["n"]
    train = measured["share_train"]
    assert 0 == train["map"] < train["bll-raw"] < train["bll"] < train["rich"] <= share
    assert train["bll-raw"] < train["rich-raw"] <= train["rich"]


def test_the_prior_in_the_unit_of_the_target(bench, table):
    """B'B / s² = A'A + I / s², from the networks' own features."""
    import torch

    rows = bench.split(*table, 0)
    rich, _, _ = bench.fitted(rows, bench.Plan(32, 2), 0)
    V = bench.factors(rich, rows["train"], 0)["rich-raw"].numpy()
    with torch.no_grad():
        phi = rich.basis(rich.scaled(rows["train"].x)).phi.double().numpy()
    AA = (rich.enrichment @ rich.enrichment.T).numpy() - np.eye(51)
    prior = AA + np.eye(51) / rich.y_sd.item() ** 2
    A = phi @ prior @ phi.T + rich.noise().item() * np.eye(len(phi))
    expected = phi @ (prior - prior @ phi.T @ np.linalg.solve(A, phi @ prior)) @ phi.T
    np.testing.assert_allclose(phi @ V @ V.T @ phi.T, expected, rtol=1e-4, atol=1e-6)


def test_the_noise_of_seen_rows_is_small_and_leaves_more_to_gain(bench, table):
    """After 300 epochs on 108 rows, their errors are far below those of new rows."""
    rows = bench.split(table[0][:150], table[1][:150], 0)
    found = bench.measure(rows, bench.Plan(32, 300), 0)
    assert found["noise_seen"] < 0.7 * found["noise_var"]
    gains = [found[key]["map"] - found[key]["rich"] for key in ("nll", "nll_seen")]
    assert gains[1] > gains[0]
    text = bench.page({"yacht": [found]}, {"yacht": bench.PLANS["yacht"]})
    assert f"| yacht | 1 | {found['rmse'] ** 2 / found['noise_seen']:.2f} |" in text


def test_scores_are_those_of_scipy(bench):
    random = np.random.default_rng(0)
    error, variance = random.standard_normal(50), random.uniform(0.5, 2, 50)
    expected = -stats.norm.logpdf(error, scale=np.sqrt(variance)).mean()
    assert bench.nll(error**2, variance) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("c", "share"), [(1.0, 0.1), (2.0, 0.14), (0.5, 0.3)])
def test_what_a_share_can_gain(bench, c, share):
    square = np.full(3, 0.7 * c)
    gain = bench.nll(square, 0.7) - bench.nll(square, 0.7 * (1 + share))
    assert bench.gain_of_share(c, share) == pytest.approx(gain, rel=1e-12)


def test_paired_differences(bench, measured):
    rows = [{"nll": {"rich": a, "bll": b}} for a, b in ((1.0, 2.0), (3.0, 3.5), (0.0, 0.3))]
    mean, error = bench.paired(rows, "rich", "bll")
    assert mean == pytest.approx(-0.6)
    assert error == pytest.approx(stats.sem([-1.0, -0.5, -0.3]))


def test_a_run_continues_and_writes_both_files(bench, table, tmp_path, monkeypatch):
    frame = pd.DataFrame(table[0], columns=["x0", "x1", "x2"]).assign(y=table[1])
    frame.to_parquet(tmp_path / "yacht.parquet")
    monkeypatch.setitem(bench.PLANS, "yacht", replace(bench.PLANS["yacht"], epochs=2))
    options = ["--data", tmp_path, "--tables", "yacht", "--seeds", "2"]
    options += ["--out", tmp_path / "out", "--table", tmp_path / "made"]
    told(BENCH, *options)
    made = json.loads((tmp_path / "made" / "results.json").read_text())
    assert [row["seed"] for row in made["seeds"]["yacht"]] == [0, 1]
    text = (tmp_path / "made" / "table.md").read_text()
    assert "| yacht | 216 |" in text
    assert "at most so many epochs: yacht 2 (batch 32" in text
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("fitted again"))
    told(BENCH, *options)
    assert (tmp_path / "made" / "table.md").read_text() == text


def test_a_table_that_is_not_there(bench, tmp_path, capsys):
    assert run(BENCH, "--data", str(tmp_path), "--tables", "power") == 2
    assert "expected a parquet, CSV or npz file, found none" in capsys.readouterr().err


def test_the_plan_of_the_paper(bench, capsys):
    options = argparse.Namespace(paper=True)
    assert bench.chosen(options, "wine") == bench.Plan(32, 1000, 1000, retrained=True)
    assert run(BENCH, "--data", "none", "--paper", "--tables", "yacht") == 2
    assert "the paper does not have the table yacht" in capsys.readouterr().err


def test_the_target_of_wine_is_its_quality(bench, tmp_path):
    frame = pd.DataFrame({"x0": [1.0, 2.0], "x10": [3.0, 4.0], "y": [5.0, 6.0]})
    for name in ("wine", "concrete"):
        frame.to_parquet(tmp_path / f"{name}.parquet")
    wine, other = (bench.paper_table(tmp_path, name) for name in ("wine", "concrete"))
    assert (wine.columns, other.columns) == (("x0", "y"), ("x0", "x10"))
    np.testing.assert_array_equal(wine.x, [[1, 5], [2, 6]])
    np.testing.assert_array_equal(wine.y, [3, 4])
    frame.drop(columns="x10").to_parquet(tmp_path / "wine.parquet")
    with pytest.raises(RequestError, match="expected the target x10"):
        bench.paper_table(tmp_path, "wine")


def test_a_larger_share_of_the_rows_comes_near_all_of_them(bench, table):
    """The factor of 80 % of the rows is nearer to that of all rows than that of 30 %."""
    rows = bench.split(*table, 0)
    rich, _, _ = bench.fitted(rows, bench.Plan(32, 2), 0)
    found = bench.factors(rich, rows["train"], 0)
    at = [
        bench.function_variance(rich, found[name], rows["train"].x)
        for name in ("rich", "s80", "s30")
    ]
    away = [abs(np.log(one / at[0])).mean() for one in at[1:]]
    assert 0 < away[0] < away[1]
