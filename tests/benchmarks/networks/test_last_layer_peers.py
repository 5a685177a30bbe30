"""Other methods beside the last layers: their predictions, and one tiny run."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load, run, told

BENCH = "networks.last_layer_peers"


@pytest.fixture(scope="module")
def baselines():
    return load("networks.network_baselines")


def _table(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (n, 2)) * [100.0, 0.01]
    return x, 40 + 9 * np.sin(x[:, 0] / 40) + random.standard_normal(n)


def test_every_method_predicts_in_the_unit_of_the_target(bench):
    """The noise has the variance 1, and the function a standard deviation of 6."""
    x, y = _table()
    rows = load("networks.last_layers").split(x, y, 0)
    truth = 40 + 9 * np.sin(rows["test"].x[:, 0] / 40)
    plan = bench.Plan(32, 60)
    for name in bench.PEERS:
        law = bench.predicted(name, rows, plan, 0, rows["test"].x)
        assert law.means.shape == (1, 40), name
        assert abs(law.mean() - truth).mean() < 1.2, name
        assert 0.4 < np.median(law.variances) < 4, name


def test_swag_draws_have_the_mean_and_covariance_of_the_path(baselines):
    """Half of the variance of each weight, and half of the deviations' covariance."""
    import torch

    torch.manual_seed(0)
    path = torch.randn(400, 3) @ torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 2.0]])
    drawn = torch.stack([baselines.draw_weights(path) for _ in range(20_000)]).numpy()
    last = path.numpy()[-baselines.SWAG_RANK :]
    means = path.numpy().cumsum(0) / np.arange(1, 401)[:, None]
    away = last - means[-baselines.SWAG_RANK :]
    expected = np.diag(path.numpy().var(0)) / 2 + away.T @ away / (2 * (len(away) - 1))
    np.testing.assert_allclose(drawn.mean(0), path.numpy().mean(0), atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.12)


def test_the_held_out_rows_choose_the_epoch(baselines):
    """With a rate that destroys the network, the first epochs are the best."""
    import torch

    random = np.random.default_rng(0)
    x = random.standard_normal((64, 2))
    rows = x, x[:, 0]
    losses = {}
    for chosen in (True, False):
        torch.manual_seed(0)
        recipe = baselines.Recipe(30, rate=0.9, decay=False, chosen=chosen)
        network = recipe.network(2)
        baselines.train(network, rows, rows, baselines.squared_error, recipe)
        output = baselines.outputs(network, x)
        losses[chosen] = float(baselines.squared_error(output, torch.from_numpy(rows[1])))
    assert losses[True] < losses[False]


def test_a_run_pairs_the_seeds(bench, tmp_path):
    x, y = _table(120)
    frame = pd.DataFrame(x, columns=["x0", "x1"]).assign(y=y)
    frame.to_parquet(tmp_path / "yacht.parquet")
    known = {
        "plans": {"yacht": {"batch": 32, "epochs": 2}},
        "seeds": {
            "yacht": [{"seed": k, "nll": dict.fromkeys(bench.LAST_LAYERS, k)} for k in (0, 1)]
        },
    }
    (tmp_path / "known.json").write_text(json.dumps(known))
    options = ["--data", tmp_path, "--tables", "yacht", "--seeds", "2"]
    options += ["--out", tmp_path / "out", "--table", tmp_path / "made"]
    options += ["--last-layers", tmp_path / "known.json"]
    told(BENCH, *options)
    text = (tmp_path / "made" / "table.md").read_text()
    assert "| yacht | `rich-bll` | 0.500 ± 0.500 |  |  |  |" in text


def test_a_seed_that_the_last_layers_lack(bench, tmp_path, capsys):
    known = {"plans": {"power": {"batch": 32, "epochs": 2}}, "seeds": {"power": []}}
    (tmp_path / "known.json").write_text(json.dumps(known))
    options = ["--data", str(tmp_path), "--tables", "power", "--out", str(tmp_path)]
    assert run(BENCH, *options, "--last-layers", str(tmp_path / "known.json")) == 3
    assert "has no seed 0 of power; run last_layers.py with more --seeds" in capsys.readouterr().err
