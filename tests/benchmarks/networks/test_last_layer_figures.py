"""The figures of the last layers in one dimension: the tangent kernel, and the committed table."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch
from benchmark_scripts import SCRIPTS, load, told


@pytest.fixture(scope="module")
def bench():
    return load("networks.last_layer_figures")


def test_the_tangent_process_has_the_gradients_of_the_network(bench):
    """Features by autograd, and the variance by weights instead of rows."""
    rows = {"train": bench.draw(80, 0), "validation": bench.draw(20, 1)}
    model, _, _ = bench.fitted(rows, bench.Plan(32, 3), 0)
    x, new = rows["train"].x, bench.grid()[::40]
    readout = model.posterior.m.detach().double().requires_grad_()
    network = deepcopy(model.network).double()
    parameters = [*network.parameters(), readout]

    def features(at: np.ndarray) -> torch.Tensor:
        found = []
        for one in model.scaled(at).double():
            hidden = torch.cat([network(one[None])[0], torch.ones(1, dtype=torch.float64)])
            gradients = torch.autograd.grad(hidden @ readout, parameters)
            found.append(torch.cat([part.flatten() for part in gradients]))
        return torch.stack(found)

    Phi, phi = features(x), features(new)
    noise = model.noise().double().detach()
    precision = Phi.T @ Phi / noise + torch.eye(Phi.shape[1], dtype=torch.float64)
    expected = (phi * torch.linalg.solve(precision, phi.T).T).sum(1) * model.y_sd.square()
    found = bench.tangent_variance(model, x, new)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4)


def test_a_small_run_writes_figure_and_table(bench, tmp_path):
    told("networks.last_layer_figures", "--table", tmp_path, "--rows", "200", "--epochs", "3")
    assert (tmp_path / "figures.webp").stat().st_size > 10_000
    made = json.loads((tmp_path / "results.json").read_text())
    assert list(made["regression"]) == list(bench.VARIANTS)
    for part in bench.PARTS:  # theorem 3.3, and the network without a posterior
        assert made["regression"]["bll"][part] <= made["regression"]["rich"][part]
        assert made["classes"]["class-dnn"][part] == 0


def test_the_committed_table_is_that_of_its_figures(bench):
    committed = SCRIPTS / "results" / "last-layer-figures"
    held = json.loads((committed / "results.json").read_text())
    assert bench.page(held) == (committed / "table.md").read_text()
