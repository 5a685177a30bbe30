"""One contract for every row of the catalogue."""

import logging

import pytest
import torch

from geogp.errors import RequestError
from geogp.models.catalogue import CATALOGUE, build, find_spec
from geogp.models.lowrank import Architecture
from geogp.models.objectives import Weights
from geogp.models.training import fit


@pytest.fixture(params=sorted(CATALOGUE))
def name(request) -> str:
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("placement", ["kmeans", "farthest", "uniform"])
def test_learns_and_predicts(
    *, name, dtype, placement, device, train, validation, with_settings, caplog
):
    sizes = Architecture(d=2, h=6, r=8, blocks=1, dtype=dtype)
    made = build(name, sizes, torch.from_numpy(train.x), placement=placement)
    model = made.to(device)
    with caplog.at_level(logging.WARNING):
        state = fit(model, train, validation, with_settings(epochs=2))
    assert not caplog.records
    prediction = model.predict(validation.x)
    assert len(prediction) == 60
    assert prediction.function_variance.min() >= 0
    assert prediction.noise_variance.min() > 0
    assert state.losses[1] < state.losses[0]
    assert state.epoch == 2


def test_every_parameter_has_a_finite_gradient(name, train, make_model):
    model = make_model(name)
    x, y = torch.from_numpy(train.x).float(), torch.from_numpy(train.y).float()
    with torch.no_grad():
        model.posterior.m.fill_(0.1)
    loss = CATALOGUE[name].objective(model.terms(x), y, len(y), Weights())
    loss.backward()
    for key, value in model.named_parameters():
        assert value.grad is not None, key
        assert torch.isfinite(value.grad).all(), key
        assert value.grad.any(), key


def test_a_seed_fixes_the_start_and_leaves_the_global_one(name, make_model):
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    first = make_model(name, seed=4).state_dict()
    assert torch.equal(torch.rand(3), expected)
    again, other = make_model(name, seed=4).state_dict(), make_model(name, seed=5).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    for key in ("posterior.lower", "basis.anchors"):
        assert not torch.equal(first[key], other[key])


def test_inducing_points_start_where_the_rows_are(name, train):
    """Rows in a corner: the points lie on them, seen through the network if there is one."""
    corner = torch.from_numpy(0.9 + 0.05 * train.x).float()
    model = build(name, Architecture(d=2, h=6, r=8, blocks=1), corner, seed=1)
    places = model.basis.anchors
    seen = corner if model.basis.backbone is None else model.basis.backbone(corner)
    low, high = seen.min(0).values - 1e-3, seen.max(0).values + 1e-3
    assert ((places >= low) & (places <= high)).all()


def test_names_say_what_they_are():
    assert set(CATALOGUE) >= {"dbk-rbf", "sv-rbf", "sv-dkl"}
    for name, spec in CATALOGUE.items():
        assert spec.name == name
        assert find_spec(name) is spec
        assert spec.summary


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("dbk-rfb", "dbk-rbf"),
        ("sv-dk", "sv-dkl"),
        ("svrbf", "sv-rbf"),
        ("§§§", "dbk-rbf, sv-rbf, sv-dkl"),
    ],
)
def test_unknown_names_are_answered_with_near_ones(wrong, nearest):
    with pytest.raises(RequestError, match=rf"unknown model '{wrong}'\. Nearest: {nearest}"):
        build(wrong, Architecture(d=2), None)
