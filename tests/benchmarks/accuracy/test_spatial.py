"""The benchmark of public spatial data: scores in closed form, and a whole small run."""

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load
from scipy.stats import norm

import geogp

spatial = load("accuracy.spatial")


def test_scores_are_those_of_closed_forms():
    y = np.array([0.0, 1.0, -3.0, 2.5])
    law = geogp.Prediction(np.zeros(4), np.ones(4), np.zeros(4))
    found = spatial.scores(law, y, np.array([1.0, 2.0, 3.0, 4.0]))
    z = norm.ppf(0.975)
    outside = np.maximum(np.abs(y) - z, 0)
    assert found["mae"] == pytest.approx(np.abs(y).mean())
    assert found["rmse"] == pytest.approx(np.sqrt(np.square(y).mean()))
    crps = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    assert found["crps"] == pytest.approx(crps.mean(), abs=1e-6)
    assert found["interval"] == pytest.approx((2 * z + 40 * outside).mean(), rel=1e-6)
    assert found["coverage"] == 0.5
    assert [part["coverage"] for part in found["classes"]] == [1, 1, 0, 0]
    assert sum(part["n"] for part in found["classes"]) == 4


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    place = random.uniform(0, 1, (1_000, 2))
    z = np.sin(5 * place).sum(1) + 0.1 * random.standard_normal(1_000)
    table = pd.DataFrame({"x": place[:, 0], "y": place[:, 1], "t": np.arange(1_000) % 4, "z": z})
    table.assign(test=np.arange(1_000) % 5 == 0).to_parquet(tmp_path / "small.parquet")
    return tmp_path


@pytest.fixture
def seen(monkeypatch):
    """A model that keeps the tables it is given, and predicts the mean."""
    tables = []

    def mean(kind, train, test, options):
        tables.append((train, test))
        n, z = len(test), train[kind.value]
        law = geogp.Prediction(np.full(n, z.mean()), np.full(n, z.var()), np.zeros(n))
        return law, {"fit": 1.0, "predict": 0.5, "cpu": 1.5}

    monkeypatch.setitem(spatial.MODELS, "mean", mean)
    return tables


def test_a_small_run_writes_a_table(folder, seen):
    out = folder / "out"
    options = ["--data", str(folder), "--sets", "small", "--models", "mean", "--out", str(out)]
    pictures = ["--pictures", str(folder / "pictures")]
    assert spatial.main([*options, "--table", str(folder), *pictures]) == 0
    assert (folder / "pictures" / "small-mean.webp").stat().st_size > 2_000
    text = (folder / "table.md").read_text()
    assert "## small" in text
    assert "| `mean` |" in text
    assert spatial.main([*options, "--table", str(folder)]) == 0
    assert len(seen) == 1, "the second call reads the file of the fit"


def test_values_of_test_rows_are_not_given_to_a_model(folder, seen):
    options = spatial.argparse.Namespace(
        seed=0, validation="random", preset="quick", neighbours=20, sample=0, pictures=None
    )
    spatial.measure(folder / "small.parquet", "mean", options)
    ((train, test),) = seen
    assert list(train) == ["x", "y", "t", "z"]
    assert list(test) == ["x", "y", "t"]
    assert (len(train), len(test)) == (800, 200)


def test_an_absent_set_is_refused(folder, capsys):
    code = spatial.main(["--data", str(folder), "--sets", "none", "--table", str(folder)])
    assert code != 0
    assert "expected a file" in capsys.readouterr().err
