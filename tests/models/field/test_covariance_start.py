"""Start values of the covariance: a known process is found, noisy rows change nothing."""

import numpy as np
import pytest
import torch
from field_worlds import field_of

from geogp.models.catalogue.build import build
from geogp.models.field import covariance_start as starting
from geogp.models.field.conditioning import block_at, rows_at
from geogp.models.field.covariance_start import start_covariance
from geogp.models.field.fitted import FittedField
from geogp.models.field.predictive_law import SIMPLE
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

RANGE_KM = 12.0


@pytest.fixture
def short_search(monkeypatch) -> None:
    """End each search after a few iterations."""
    monkeypatch.setattr(starting, "ITERATIONS", 2)
    monkeypatch.setattr(starting, "MORE_ITERATIONS", 2)


def _model(n: int, noise: float, seed: int = 0) -> FittedField:
    """Return a model that stores rows of an exponential process plus noise, in 60 by 60 km."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (n, 2))
    h = np.hypot(*(30 * (x[:, None] - x)).transpose(2, 0, 1))
    y = np.linalg.cholesky(np.exp(-h / RANGE_KM) + 1e-9 * np.eye(n)) @ random.standard_normal(n)
    y = y + noise * random.standard_normal(n)
    sizes = Architecture(d=2, h=8, r=6, blocks=1, dtype="float64", units=(30.0, 30.0))
    parameters = build("field", sizes, x, seed=0)
    parameters.take_target(y)
    return field_of(parameters, parameters.as_rows(Data(x, y)))


def _state(model: FittedField) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.parameters.named_parameters()}


@pytest.fixture(scope="module")
def precise() -> FittedField:
    """A model that has started from rows without noise; tests must not change it."""
    model = _model(700, 0.0)
    start_covariance(model.parameters, model.rows, 0)
    return model


def test_the_correlation_of_a_precise_process_is_found(precise):
    model = precise
    with torch.no_grad():
        points = torch.tensor([[0.0, 0.0, 0.0]] + [[h, 0.0, 0.0] for h in (2.0, 6.0, 12.0, 24.0)])
        k = model.parameters.tiles(points.double(), points.double())[0]
        nugget = k[0] - model.parameters.tiles.log_sills[:2].exp().sum()
        noise = model.parameters.law(
            model.parameters.basis(torch.zeros(1, 2).double()).phi, torch.ones(1, 2).double()
        )
    found = k[1:] / k[0]
    expected = np.exp(-np.array([2.0, 6.0, 12.0, 24.0]) / RANGE_KM)
    np.testing.assert_allclose(found, expected, atol=0.15)
    assert float(nugget + noise) < 0.01 * float(k[0])
    assert all(value.grad is None for value in model.parameters.parameters())
    assert model.parameters.is_precise()


def test_the_start_raises_the_likelihood_of_all_rows(precise):
    def loss(of: FittedField) -> float:
        with torch.no_grad():
            at = rows_at(of.rows, torch.arange(len(of.rows.sites)))
            block = block_at(of.parameters, of.rows, at, torch.zeros(6, 0).double())
        return float((block.residual.square().sum() / 2 + block.log_scale) / 700)

    assert loss(precise) < loss(_model(700, 0.0)) - 0.5


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_noisy_rows_keep_the_usual_values(noise):
    model = _model(600, noise)
    before = _state(model)
    start_covariance(model.parameters, model.rows, 0)
    assert not model.parameters.is_precise()
    assert all(torch.equal(before[name], value) for name, value in _state(model).items())


def test_a_seed_gives_the_same_values(short_search):
    models = [_model(300, 0.0) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        start_covariance(model.parameters, model.rows, seed)
    states = [_state(model)["tiles.log_ranges"] for model in models]
    assert torch.equal(states[0], states[1])
    model, before = models[2], _model(300, 0.0)
    changed = {k for k, v in _state(model).items() if not torch.equal(v, _state(before)[k])}
    assert changed
    assert not any(name.startswith(("basis", "posterior")) for name in changed)


def test_a_covariance_that_does_not_factorise_is_no_better_start(monkeypatch):
    """The line search then sees a high value, and the parameters stay finite."""
    model = _model(300, 0.0)
    calls, failed = [], []

    def sometimes(*arguments):
        calls.append(1)
        if len(calls) in {2, 31, 47}:
            failed.append(1)
            raise starting.NumericalError("it does not factorise")
        return block_at(*arguments)

    monkeypatch.setattr(starting, "block_at", sometimes)
    before = _state(model)["tiles.log_ranges"]
    start_covariance(model.parameters, model.rows, 0)
    assert len(failed) == 3
    assert not torch.equal(model.parameters.tiles.log_ranges, before)
    assert all(bool(value.isfinite().all()) for value in model.parameters.parameters())


def test_one_place_is_enough():
    model = _model(40, 0.0)
    rows = model.rows.rows
    one = rows._replace(x=rows.x[:1].expand(40, 2).contiguous())
    model = field_of(model.parameters, one)
    start_covariance(model.parameters, model.rows, 0)
    assert all(bool(value.isfinite().all()) for value in model.parameters.parameters())


def test_copies_of_rows_change_nothing():
    """Copies look like measurements without noise."""
    model = _model(300, 0.0)
    model = field_of(model.parameters, model.rows.rows.at(torch.arange(300).repeat(2)))
    before = _state(model)
    start_covariance(model.parameters, model.rows, 0)
    assert all(torch.equal(before[name], value) for name, value in _state(model).items())


def _drawn(n_places: int, times: int, covariance, noise: float, units) -> FittedField:
    """Return a model that stores rows of a process with covariance(east, north, t) plus noise."""
    random = np.random.default_rng(1)
    places = random.uniform(-1, 1, (n_places, 2))
    x = np.column_stack([places.repeat(times, 0), np.tile(np.linspace(-1, 1, times), n_places)])
    x = x[:, : len(units)]
    away = (x[:, None] - x) * units
    K = covariance(away[..., 0], away[..., 1], away[..., 2] if len(units) > 2 else 0.0)
    y = np.linalg.cholesky(K + 1e-9 * np.eye(len(x))) @ random.standard_normal(len(x))
    y = y + noise * random.standard_normal(len(x))
    sizes = Architecture(d=len(units), h=8, r=6, blocks=1, dtype="float64", units=tuple(units))
    parameters = build("field", sizes, x, seed=0)
    parameters.take_target(y)
    return field_of(parameters, parameters.as_rows(Data(x, y)))


def _correlation(model: FittedField, away: np.ndarray | list[list[float]]) -> np.ndarray:
    at = torch.from_numpy(np.vstack([np.zeros(3), away]))
    with torch.no_grad():
        k = model.parameters.tiles(at, at)[0]
    return (k[1:] / k[0]).numpy()


def _memory(model: FittedField) -> float:
    return float(model.parameters.tiles.log_memories[0].detach().exp())


def test_a_smooth_process_with_a_direction_is_found():
    """Matérn 3/2; the correlation falls three times as fast to the north as to the east."""

    def covariance(east, north, t):
        r = np.sqrt(3) * np.hypot(east, 3 * north) / 15.0
        return (1 + r) * np.exp(-r)

    model = _drawn(1_500, 1, covariance, 0.0, (30.0, 30.0))
    start_covariance(model.parameters, model.rows, 0)
    assert float(model.parameters.tiles.form.smoothness) == pytest.approx(1.5, abs=0.3)
    away = [[5.0, 0, 0], [15.0, 0, 0], [0, 5.0, 0], [0, 2.0, 0]]
    expected = [covariance(east, north, t) for east, north, t in away]
    found = _correlation(model, away)
    np.testing.assert_allclose(found, expected, atol=0.2)
    # One draw tells little about the variance, but much about the direction.
    assert found[1] == pytest.approx(found[2], abs=0.08)


def _gneiting(east, north, t):
    psi = 1 + np.abs(t / 1.5)
    return np.exp(-np.hypot(east, north) / 4.0 / psi**0.4) / psi


def _in_time(unit: float) -> FittedField:
    """Return a model that has started from a process in space and time, with a unit of time."""
    model = _drawn(
        70, 14, lambda east, north, t: _gneiting(east, north, t / unit), 0.0, (15, 15, 7 * unit)
    )
    start_covariance(model.parameters, model.rows, 0)
    return model


TINY, HUGE = 1e-7, 1e6  # units of time


@pytest.fixture(scope="module")
def in_time() -> FittedField:
    return _in_time(TINY)


def test_a_process_in_space_and_time_is_found(in_time):
    assert not in_time.parameters.tiles.form.separable
    away = np.array([[2.0, 0, 0], [0, 4.0, 0], [0, 0, 1.0], [0, 0, 3.0], [3.0, 0, 2.0]])
    np.testing.assert_allclose(
        _correlation(in_time, away * [1, 1, TINY]), _gneiting(*away.T), atol=0.12
    )


def test_any_smoothness_is_found_in_space_and_time():
    def covariance(east, north, t):
        psi = 1 + np.abs(t / 1.5)
        r = 2 * np.hypot(east, north) / 4.0 / psi**0.4
        return (1 + r) * np.exp(-r) / psi

    model = _drawn(70, 14, covariance, 0.0, (15.0, 15.0, 7.0))
    start_covariance(model.parameters, model.rows, 0)
    smoothness = float(model.parameters.tiles.form.smoothness)
    assert 0.9 < smoothness <= starting.SMOOTH
    assert smoothness not in starting.SMOOTHNESS


def test_noisy_rows_at_several_times_keep_the_usual_values():
    model = _drawn(60, 10, _gneiting, 1.5, (15.0, 15.0, 5.0))
    before = _state(model)
    start_covariance(model.parameters, model.rows, 0)
    assert model.parameters.tiles.form.usual
    assert all(torch.equal(before[name], value) for name, value in _state(model).items())


def test_an_earlier_form_is_forgotten(precise):
    assert not precise.parameters.tiles.form.usual
    noisy = _model(600, 2.0)
    noisy.parameters.tiles.take_form(precise.parameters.tiles.form)
    start_covariance(noisy.parameters, noisy.rows, 0)
    assert noisy.parameters.tiles.form.usual


def test_the_unit_of_time_changes_nothing(in_time):
    other = _in_time(HUGE)
    stretch, expected = (each.parameters.tiles.form.stretch for each in (other, in_time))
    torch.testing.assert_close(stretch, expected, rtol=0.05, atol=0.02)
    assert _memory(other) / HUGE == pytest.approx(_memory(in_time) / TINY, rel=0.2)


def test_if_no_covariance_factorises_the_usual_values_stay(monkeypatch):
    model = _model(300, 0.0)
    before = _state(model)

    def never(self, sites):
        if torch.is_grad_enabled():
            raise starting.NumericalError("it does not factorise")
        return torch.tensor(float(self.parameters.tiles.log_sills[2]))

    monkeypatch.setattr(starting._Sample, "_loss", never)
    start_covariance(model.parameters, model.rows, 0)
    assert model.parameters.tiles.form.usual
    assert all(torch.equal(before[name], value) for name, value in _state(model).items())
    assert all(value.requires_grad for value in model.parameters.parameters())


@pytest.mark.parametrize(("noise", "is_precise"), [(0.05, True), (0.6, False)])
def test_rows_with_little_noise_are_precise(noise, is_precise, short_search):
    """A noise of a fifth of the variance is not precise, whatever the form."""
    model = _model(800, noise)
    start_covariance(model.parameters, model.rows, 0)
    assert model.parameters.is_precise() == is_precise


def test_a_fit_of_precise_rows_has_no_networks(short_search):
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, (2_600, 2))
    y = np.sin(5 * x[:, 0]) * np.cos(4 * x[:, 1])
    sizes = Architecture(d=2, h=8, r=6, blocks=1, dtype="float64", units=(30.0, 30.0))
    parameters = build("field", sizes, x, seed=0)
    held = np.arange(len(y)) < 300
    settings = FitSettings(epochs=2, batch=256, learning_rate=1e-3)
    model, _ = fit(parameters, Data(x[~held], y[~held]), Data(x[held], y[held]), settings)
    assert model.parameters.is_precise()
    assert model.errors.networks_share == 0
    coefficients = model.errors.law.coefficients
    assert (coefficients[[0, 2]] == 0).all()
    assert (coefficients[3, 1:] == 0).all()
    assert (np.delete(coefficients[:, 1:], SIMPLE, axis=1) == 0).all()
    new = random.uniform(-0.9, 0.9, (400, 2))
    law = model.predict(new)
    truth = np.sin(5 * new[:, 0]) * np.cos(4 * new[:, 1])
    assert np.sqrt(np.square(law.mean - truth).mean()) < 0.01
    low, high = law.interval(0.95)
    assert ((truth >= low) & (truth <= high)).mean() > 0.9
