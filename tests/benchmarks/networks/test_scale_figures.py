"""Networks of finite width beside their limits: the networks, their training, and a tiny study."""

import pytest
import torch
from benchmark_scripts import told

BENCH = "networks.scale_figures"


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


def test_a_tiny_study_makes_figures_and_table(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WIDTHS", (16, 32))
    monkeypatch.setattr(bench, "PRIOR_WIDTH", 16)
    options = ["--out", str(tmp_path / "out"), "--table", str(tmp_path / "made")]
    options += ["--networks", "30", "--wide", "10"]
    told(BENCH, *options)
    text = (tmp_path / "made" / "table.md").read_text()
    assert "10 to 30 networks for each line and panel" in text
    assert text.count("\n| ") == 18
    assert (tmp_path / "made" / "figures.webp").stat().st_size > 10_000
