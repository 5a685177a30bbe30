"""Start values of the covariance: a known process is found, noisy rows change nothing."""

import numpy as np
import pytest
import torch

from geogp.models.catalogue.build_model import build
from geogp.models.core.architecture import Architecture
from geogp.models.field import covariance_start as starting
from geogp.models.field.field_model import FieldNetwork
from geogp.models.training.training_data import Data

RANGE_KM = 12.0


def _model(n: int, noise: float, seed: int = 0) -> FieldNetwork:
    """Return a model that stores rows of an exponential process plus noise, in 60 by 60 km."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (n, 2))
    h = np.hypot(*(30 * (x[:, None] - x)).transpose(2, 0, 1))
    y = np.linalg.cholesky(np.exp(-h / RANGE_KM) + 1e-9 * np.eye(n)) @ random.standard_normal(n)
    y = y + noise * random.standard_normal(n)
    sizes = Architecture(d=2, h=8, r=6, blocks=1, dtype="float64", units=(30.0, 30.0))
    model = build("field", sizes, x, seed=0)
    data = Data(x, y)
    model.take_target(data.y)
    model.keep_rows(model.as_rows(data), 0)
    return model


def _state(model: FieldNetwork) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def test_the_correlation_of_a_precise_process_is_found():
    model = _model(1_500, 0.0)
    model.begin(0)
    with torch.no_grad():
        points = torch.tensor([[0.0, 0.0, 0.0]] + [[h, 0.0, 0.0] for h in (2.0, 6.0, 12.0, 24.0)])
        k = model.tiles(points.double(), points.double())[0]
        nugget = k[0] - model.tiles.log_sills[:2].exp().sum()
        noise = model.law(model.basis(torch.zeros(1, 2).double()).phi, torch.ones(1, 2).double())
    found = k[1:] / k[0]
    expected = np.exp(-np.array([2.0, 6.0, 12.0, 24.0]) / RANGE_KM)
    np.testing.assert_allclose(found, expected, atol=0.15)
    assert float(nugget + noise) < 0.01 * float(k[0])
    assert all(value.grad is None for value in model.parameters())


def test_the_start_raises_the_likelihood_of_all_rows():
    model, usual = _model(1_500, 0.0), _model(1_500, 0.0)
    model.begin(0)

    def loss(of: FieldNetwork) -> float:
        with torch.no_grad():
            block = of.block(torch.arange(len(of.sites.sites)), factor=torch.zeros(6, 0).double())
        return float((block.residual.square().sum() / 2 + block.log_scale) / 1_500)

    assert loss(model) < loss(usual) - 0.5


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_noisy_rows_keep_the_usual_values(noise):
    model = _model(600, noise)
    before = _state(model)
    model.begin(0)
    assert all(torch.equal(before[name], value) for name, value in _state(model).items())


def test_a_seed_gives_the_same_values():
    models = [_model(600, 0.0) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        model.begin(seed)
    states = [_state(model)["tiles.log_ranges"] for model in models]
    assert torch.equal(states[0], states[1])
    model, before = models[2], _model(600, 0.0)
    changed = {k for k, v in _state(model).items() if not torch.equal(v, _state(before)[k])}
    assert changed
    assert not any(name.startswith(("basis", "posterior")) for name in changed)


def test_a_covariance_that_does_not_factorise_is_no_better_start(monkeypatch):
    """The line search then sees a high value, and the parameters stay finite."""
    model = _model(300, 0.0)
    whole = FieldNetwork.block
    calls = []

    def sometimes(self, *arguments, **others):
        calls.append(1)
        if len(calls) > 6 * 5 + 8 and len(calls) % 9 == 0:
            raise starting.NumericalError("it does not factorise")
        return whole(self, *arguments, **others)

    monkeypatch.setattr(FieldNetwork, "block", sometimes)
    before = _state(model)["tiles.log_ranges"]
    model.begin(0)
    assert len(calls) > 50, "some calls failed"
    assert not torch.equal(model.tiles.log_ranges, before)
    assert all(bool(value.isfinite().all()) for value in model.parameters())


def test_one_place_is_enough():
    model = _model(40, 0.0)
    rows = model.rows.as_rows()
    model.keep_rows(rows._replace(x=rows.x[:1].expand(40, 2).contiguous()), 0)
    model.begin(0)
    assert all(bool(value.isfinite().all()) for value in model.parameters())


def test_copies_of_rows_change_nothing():
    """Copies look like measurements without noise."""
    model = _model(300, 0.0)
    rows = model.rows.as_rows()
    twice = rows.at(torch.arange(300).repeat(2))
    model.keep_rows(twice, 0)
    before = _state(model)
    model.begin(0)
    assert all(torch.equal(before[name], value) for name, value in _state(model).items())
