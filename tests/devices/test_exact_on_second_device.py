"""An exact process on a second device: the numbers of the CPU, and no tensor left behind."""

import numpy as np
import pytest
from benchmark_scripts import load

from geogp.errors import RequestError
from geogp.models.papers.deep_basis.exact_gp import ExactGP, ExactSettings, check_rows, fit_exact
from geogp.models.process import memory

launches, device = load("speed.launches"), load("speed.second_device")

SETTINGS = ExactSettings(steps=6, likelihood_rows=40, check_every=3)


@pytest.fixture
def rows():
    return {n: launches.world("sgp", n, n) for n in (90, 30)}


def _arrays(model: ExactGP, x: np.ndarray) -> np.ndarray:
    found = model.predict(x)
    return np.stack([found.mean, found.function_variance, found.noise_variance])


@pytest.mark.parametrize("h", [None, 5])
def test_a_fit_on_the_device_gives_the_numbers_of_the_cpu(h, rows, monkeypatch):
    monkeypatch.setattr("geogp.models.papers.deep_basis.exact_gp.CHUNK_ROWS", 7)
    train, validation = rows[90], rows[30]
    here = ExactGP(2, h=h)
    expected = fit_exact(here, train, SETTINGS, validation)
    with device.second_device() as counts:
        there = ExactGP(2, h=h).to(device.DEVICE)
        found = fit_exact(there, train, SETTINGS, validation)
        assert (found.likelihood, found.best_step) == (expected.likelihood, expected.best_step)
        for value in (*there.parameters(), *there.buffers(), *there._conditioned):
            assert value.device == device.DEVICE
        counts.clear()
        predicted = _arrays(there, validation.x)
        assert [line.split(" at ")[0] for line in counts.waits] == [
            "copy to the device",
            "copy to the CPU",
        ]
        assert counts.waits.total() == 2
    np.testing.assert_array_equal(predicted, _arrays(here, validation.x))


def test_a_fitted_process_takes_its_training_rows_along(rows):
    model = ExactGP(2, h=5)
    fit_exact(model, rows[90], SETTINGS)
    expected = _arrays(model, rows[30].x)
    with device.second_device():
        moved = model.to(device.DEVICE)
        np.testing.assert_array_equal(_arrays(moved, rows[30].x), expected)


@pytest.mark.parametrize("h", [None, 5])
def test_the_gradient_does_not_wait_for_the_device(h, rows):
    with device.second_device() as counts:
        model = ExactGP(2, h=h).to(device.DEVICE)
        model.take_scales(rows[90])
        x, y = model.scaled(rows[90].x), model.standardised(rows[90].y)
        found = -model.log_marginal_likelihood(x, y)
        counts.clear()
        found.backward()
        assert not counts.waits
        assert counts.launches["cholesky_inverse"] == 1
        assert {value.grad.device for value in model.parameters()} == {device.DEVICE}


def test_the_memory_is_that_of_the_device_of_the_matrices(rows, monkeypatch):
    free = {"cpu": 1e12, device.NAME: 1e4}
    monkeypatch.setattr(memory, "available_bytes", lambda there: free[there.type])
    check_rows(90)
    with device.second_device():
        there = ExactGP(2).to(device.DEVICE)
        there.take_scales(rows[90])
        scaled = there.scaled(rows[90].x), there.standardised(rows[90].y)
        for refused in (
            lambda: fit_exact(there, rows[90], SETTINGS),
            lambda: there.condition(rows[90]),
            lambda: there.log_marginal_likelihood(*scaled),
        ):
            with pytest.raises(RequestError, match=r"of 90 rows needs .* memory on testgpu:0, but"):
                refused()
