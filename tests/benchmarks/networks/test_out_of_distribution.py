"""Rows from elsewhere: the rules, the order of the methods, and one tiny run."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import run, told

BENCH = "networks.out_of_distribution"


@pytest.fixture
def folder(tmp_path):
    """Two tables: rows near 0, and rows of the same kind near 5."""
    random = np.random.default_rng(0)
    for name, centre in (("near", 0.0), ("far", 5.0)):
        x = centre + random.standard_normal((200, 2))
        y = x[:, 0] + 0.1 * random.standard_normal(200)
        pd.DataFrame(x, columns=["x0", "x1"]).assign(y=y).to_parquet(tmp_path / f"{name}.parquet")
    return tmp_path


def test_far_rows_are_found(bench, folder, monkeypatch):
    """Every method with a variance of its own, and the distance, finds rows far away."""
    monkeypatch.setattr(bench, "PEERS", ("gp",))
    near, far = (bench.Table(folder / f"{name}.parquet") for name in ("near", "far"))
    inside, outside = (bench.Data(one.x, one.y) for one in (near, far))
    found = bench.measure(inside, outside, bench.Plan(32, 60), 0)
    assert (found["train"], found["test"], found["outside"]) == (144, 20, 200)
    assert min(found["auroc"].values()) > 0.9
    assert set(found["nll"]) == {*bench.LAST_LAYERS, "gp"}
    # Rows of the training's own kind cannot be told apart.
    same = bench.measure(
        inside.at(np.arange(200) < 100), inside.at(np.arange(200) >= 100), bench.Plan(32, 5), 0
    )
    assert all(0.15 < value < 0.85 for value in same["auroc"].values())


def test_a_column_divides_one_table(bench, folder, monkeypatch):
    options = ["--inside", str(folder / "near.parquet"), "--column", "x1", "--share", "0.8"]
    monkeypatch.setattr("sys.argv", [BENCH, *options])
    inside, outside, rule = bench.sources(bench.options_asked())
    assert (len(inside.y), len(outside.y)) == (160, 40)
    assert inside.x[:, 1].max() < outside.x[:, 1].min()
    assert rule == "outliers of `near` have x1 above its 0.8-quantile"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ([], "either --outside with a second table, or --column"),
        (["--column", "x7"], "expected one of the columns"),
        (["--column", "x1", "--share", "0.99"], "expected 20 rows or more on both sides"),
        (["--outside", "other.parquet"], "expected the columns"),
    ],
)
def test_refusals(bench, folder, capsys, rest, message):
    pd.DataFrame({"x0": [1.0], "y": [1.0]}).to_parquet(folder / "other.parquet")
    rest = [str(folder / one) if one.endswith(".parquet") else one for one in rest]
    assert run(BENCH, "--inside", str(folder / "near.parquet"), *rest) == 2
    assert message in capsys.readouterr().err


def test_a_second_rule_joins_the_table(bench, folder, monkeypatch):
    monkeypatch.setattr(bench, "PEERS", ())
    options = ["--inside", folder / "near.parquet", "--seeds", "2", "--epochs", "2"]
    options += ["--out", folder / "out", "--table", folder / "made"]
    told(BENCH, *options, "--outside", folder / "far.parquet")
    told(BENCH, *options, "--column", "x0")
    made = json.loads((folder / "made" / "results.json").read_text())
    assert [one["name"] for one in made["cases"]] == ["near, far", "near, x0"]
    text = (folder / "made" / "table.md").read_text()
    assert "Seeds: near, far 2, near, x0 2; the paper has 10." in text
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("fitted again"))
    told(BENCH, *options, "--column", "x0")
    assert (folder / "made" / "table.md").read_text() == text
