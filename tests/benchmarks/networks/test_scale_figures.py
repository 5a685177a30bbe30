"""Networks of finite width beside their limits: the networks, their training, and a tiny study."""

import json

import numpy as np
import pytest
import torch
from benchmark_scripts import SCRIPTS, load


@pytest.fixture(scope="module")
def bench():
    return load("networks.scale_figures")


@pytest.mark.parametrize("stage", ["all", "residual"])
def test_the_start_is_that_of_the_kernel(bench, stage):
    """The second moment of many narrow networks is near K at two inputs."""
    generator = torch.Generator().manual_seed(0)
    networks = bench.Networks(3000, 64, torch.ones(3000, dtype=torch.float64), generator, stage)
    x = torch.tensor([[0.3], [-1.0]], dtype=torch.float64)
    found = networks.output(x)
    expected = bench.kernel(stage)(x, x)
    error = (found.T @ found / 3000 - expected).abs().max()
    assert error < 0.1 * expected.max()


@pytest.mark.parametrize("stage", ["all", "residual"])
def test_the_gradients_are_those_of_the_tangent_kernel(bench, stage):
    """Inner products of the gradients of one wide network, at two inputs."""
    one = torch.ones(1, dtype=torch.float64)
    networks = bench.Networks(1, 4000, one, torch.Generator().manual_seed(0), stage)
    x = torch.tensor([[0.3], [-1.0]], dtype=torch.float64)
    rows = []
    for value in networks.parameters:
        value.requires_grad_()
    for output in networks.output(x)[0]:
        gradients = torch.autograd.grad(output, networks.parameters, retain_graph=True)
        rows.append(torch.cat([part.flatten() for part in gradients]))
    phi = torch.stack(rows)
    expected = bench.kernel(stage).tangent(x, x)
    assert (phi @ phi.T - expected).abs().max() < 0.05 * expected.max()


@pytest.mark.parametrize(("how", "left"), [("train_readout", 1e-9), ("train", 0.011)])
def test_trained_networks_fit(bench, how, left):
    x = torch.from_numpy(bench.TRAIN)
    y = torch.sin(x[:, 0])
    s = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    networks = bench.Networks(3, 200, s, torch.Generator().manual_seed(1))
    before = (networks.output(x) - y).abs().max()
    assert getattr(networks, how)(x, y) < left
    assert (networks.output(x) - y).abs().max() < min(2.5 * left, 0.1 * before)


def test_the_readout_moves_as_little_as_gradient_flow_lets_it(bench):
    """The change is a combination of the features of the rows."""
    x = torch.from_numpy(bench.TRAIN)
    s = torch.ones(1, dtype=torch.float64)
    networks = bench.Networks(1, 50, s, torch.Generator().manual_seed(1))
    start = networks.parameters[-1].clone()
    networks.train_readout(x, torch.sin(x[:, 0]))
    change, features = (networks.parameters[-1] - start)[0], networks.hidden(x)[0]
    projected = features.T @ torch.linalg.lstsq(features.T, change).solution
    torch.testing.assert_close(projected, change, rtol=1e-6, atol=1e-8)


def test_a_tiny_study_is_kept_and_makes_figures_and_table(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WIDTHS", (16, 32))
    monkeypatch.setattr(bench, "PRIOR_WIDTH", 16)
    options = ["--out", str(tmp_path / "out"), "--table", str(tmp_path / "made")]
    options += ["--networks", "30", "--wide", "10"]
    assert bench.main(options) == 0
    text = (tmp_path / "made" / "table.md").read_text()
    assert "10 to 30 networks for each line and panel" in text
    assert text.count("\n| ") == 18
    assert (tmp_path / "made" / "figures.webp").stat().st_size > 10_000
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.json")}
    assert bench.main(options) == 0
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.json")}


def test_the_committed_table_is_that_of_its_figures(bench):
    committed = SCRIPTS / "results" / "scale-figures"
    held = json.loads((committed / "results.json").read_text())["groups"]
    assert bench.page(held) == (committed / "table.md").read_text()
    # Wide networks have the law of the limit.
    widest = [one for one in held if one["width"] == max(bench.WIDTHS)]
    for one in widest:
        z = bench.standard(one)
        share = np.mean(abs(z) > bench.stats.t.ppf(0.95, 2 * one["a"]))
        assert abs(share - 0.1) < 4 * np.sqrt(0.09 / len(z))
