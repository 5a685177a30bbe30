"""Single precision: every model of the catalogue, and gradients that another thread computes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmark_scripts import load

import geogp
from geogp.errors import RequestError
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.joint.law import joint_posterior
from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.tensor_files import read_tensors

launches = load("speed.launches")

CLOSE = {"class-t-process": 0.06, "dbk-rbf": 0.02, "field": 0.02}
"""Largest difference of predictions, relative to the largest value, if it is not 0.002.

A model of these three ends its training at another epoch, or has a kernel with short lengths.
"""


def _predicted(name, *, precise):
    train, validation = launches.world(name, 400, 1), launches.world(name, 200, 2)
    with geogp.precision(precise):
        model, _ = launches.fitted(launches.made(name, train), train, validation)
        found = launches.predicted(model, validation.x)
        about = launches.MODELS[name].about
        joint = about.has_spread and about.family not in {"class", "count"}
        variance = joint_posterior(model, train).variance(validation.x[:5]) if joint else np.ones(5)
    return model, np.asarray(found), variance


@pytest.mark.parametrize("name", sorted(launches.MODELS))
def test_a_fit_in_single_precision_gives_nearly_the_same_predictions(name):
    _, expected, _ = _predicted(name, precise="double")
    model, found, variance = _predicted(name, precise="single")
    assert torch.float64 not in {value.dtype for value in launches.tensors_of(model)}
    assert found.dtype == variance.dtype == np.float64
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE.get(name, 0.002) * largest)
    assert not np.array_equal(found, expected)
    assert (variance > 0).all()


def test_tensors_are_of_single_precision_and_arrays_of_double_precision():
    given, outside = np.array([1.0, 2.0]), torch.ones(2, dtype=torch.float64)
    with geogp.precision("single"):
        made = [
            torch.as_tensor(given),
            torch.zeros(2, dtype=torch.float64),
            torch.ones(2).double(),
            outside + 1,
        ]
        arrays = [made[0].numpy(), outside.numpy()]
        with geogp.precision("double"):
            assert current_precision() == "double"
            inner = torch.ones(2).double()
        made.append(torch.ones(2).double())
    assert {one.dtype for one in made} == {torch.float32}
    assert {one.dtype for one in arrays} == {np.dtype(np.float64)}
    assert inner.dtype == torch.ones(2).double().dtype == torch.float64
    assert current_precision() == "double"


def test_tensors_made_outside_are_changed_in_place():
    outside = torch.ones(3, dtype=torch.float64)
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    weight.square().sum().backward()
    with geogp.precision("single"):
        outside.add_(1)
        outside[0] = 5
        outside[1:] *= 2
        torch.add(outside, outside, out=outside)
        assert weight.grad is not None
    assert outside.dtype == torch.float64
    assert outside.tolist() == [10.0, 8.0, 8.0]


@pytest.mark.parametrize("name", ["bll", "cox-nb", "nystrom-mixed", "field", "class-dnn"])
def test_a_model_of_single_precision_is_refused_outside_until_it_is_loaded(name, tmp_path):
    train, validation = launches.world(name, 120, 1), launches.world(name, 60, 2)
    with geogp.precision("single"):
        model, _ = launches.fitted(launches.made(name, train), train, validation)
        expected = launches.predicted(model, validation.x)
    with pytest.raises(RequestError, match=r"was fitted in single precision.*save and load it"):
        launches.predicted(model, validation.x)
    save_model(model, tmp_path / "model.safetensors")
    loaded, _ = load_model(tmp_path / "model.safetensors")
    np.testing.assert_allclose(
        launches.predicted(loaded, validation.x), expected, rtol=1e-3, atol=1e-4
    )
    double = launches.made(name, train)
    launches.fitted(double, train, validation)  # no tensor of single precision was kept for it


def test_saving_inside_the_block_does_not_round(tmp_path):
    train, validation = launches.world("nngp", 120, 1), launches.world("nngp", 60, 2)
    model = launches.made("nngp", train)
    launches.fitted(model, train, validation)
    save_model(model, tmp_path / "outside.safetensors")
    with geogp.precision("single"):
        save_model(model, tmp_path / "inside.safetensors")
    inside, outside = (
        read_tensors(tmp_path / f"{name}.safetensors")[0] for name in ("inside", "outside")
    )
    assert {one.dtype for one in outside.values()} == {torch.float32, torch.float64}
    for name, value in outside.items():
        torch.testing.assert_close(inside[name], value, rtol=0, atol=0)


def test_the_precision_ends_with_the_block_if_there_is_an_error():
    with pytest.raises(ZeroDivisionError), geogp.precision("single"):
        1 / 0  # noqa: B018 - raises the error
    assert current_precision() == "double"
    assert torch.ones(2).double().dtype == torch.float64


def test_another_name_is_refused():
    with (
        pytest.raises(RequestError, match="expected the precision double or single, found 'half'"),
        geogp.precision("half"),
    ):
        pass


@pytest.mark.parametrize("name", sorted(launches.MODELS))
def test_gradients_are_computed_where_no_mode_is_active(name, monkeypatch):
    backward, grad = torch.Tensor.backward, torch.autograd.grad

    def without_modes(function):
        def call(*args, **kwargs):
            with torch._C.DisableTorchFunction():
                return function(*args, **kwargs)

        return call

    monkeypatch.setattr(torch.Tensor, "backward", without_modes(backward))
    monkeypatch.setattr(torch.autograd, "grad", without_modes(grad))
    train, validation = launches.world(name, 120, 1), launches.world(name, 60, 2)
    with geogp.precision("single"):
        model, _ = launches.fitted(launches.made(name, train), train, validation)
        assert np.isfinite(launches.predicted(model, validation.x)).all()


def test_no_model_makes_tensors_that_ignore_the_precision():
    found = [
        path
        for path in Path(geogp.__file__).parent.glob("models/**/*.py")
        if "torch.from_numpy(" in path.read_text("utf-8")
    ]
    assert found == []
