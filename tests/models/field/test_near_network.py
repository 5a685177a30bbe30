"""Networks of near measurements: known truths, blindness to left-out rows, and their share."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import errors_apart
from scipy.integrate import quad
from scipy.spatial.distance import cdist
from torch.nn import functional

from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, NumericalError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.field import fitted as field_model
from geogp.models.field import near_network
from geogp.models.field.fitted import FittedField
from geogp.models.field.near_cache import DISTANCE
from geogp.models.field.near_network import HIDDEN, MEMBERS, WEIGHTS, NearNetworks
from geogp.models.field.near_summaries import OWN, SUMMARIES
from geogp.models.field.parameters import numpy_of
from geogp.models.field.prediction_errors import FieldErrors, error_covariates
from geogp.models.field.predictive_law import (
    COVARIATES,
    Parameters,
    fit_law,
    no_law,
    pooled_law,
    with_prediction,
)
from geogp.models.field.rows import FieldRows
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.numerics.threads import threads_of
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

pytestmark = pytest.mark.usefixtures("short_field_fits")

INPUTS, COLUMNS = 2, 2 + 3 + SUMMARIES


def _columns(n: int, seed: int = 0) -> np.ndarray:
    columns = np.random.default_rng(seed).standard_normal((n, COLUMNS))
    columns[::3, INPUTS + 3 + OWN] = np.nan
    return columns


def _truth(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a mean with an interaction, and a standard deviation."""
    a, b, c = columns[:, 0], columns[:, 1], columns[:, 6]
    return np.tanh(2 * a) * b + 0.5 * c, 0.3 * np.exp(0.5 * b)


def _targets(columns: np.ndarray, seed: int = 1) -> torch.Tensor:
    mean, sd = _truth(columns)
    random = np.random.default_rng(seed).standard_normal(len(columns))
    return torch.from_numpy(mean + sd * random)


@pytest.fixture(scope="module")
def fitted() -> tuple[NearNetworks, tuple[np.ndarray, np.ndarray]]:
    networks, columns = NearNetworks(INPUTS, torch.float32), _columns(20_000)
    with torch.no_grad():
        outside = networks.fit(columns, _targets(columns), np.arange(20_000), 0)
    return networks, outside


def test_mean_and_scale_of_a_known_truth_are_found(fitted):
    networks, outside = fitted
    columns = _columns(4_000, seed=2)
    for (mean, log_sd), at in ((networks(columns), columns), (outside, _columns(20_000))):
        true_mean, true_sd = _truth(at)
        assert np.square(mean - true_mean).mean() < 0.05 * true_mean.var()
        assert np.corrcoef(log_sd, np.log(true_sd))[0, 1] > 0.9
        # The loss expects heavier tails, so sd is too large; the error distribution corrects it.
        assert (log_sd - np.log(true_sd)).mean() == pytest.approx(0.1, abs=0.1)


def test_the_equations_are_those_of_plain_layers(fitted):
    networks, _ = fitted
    columns = _columns(50, seed=3)
    z = (columns - networks.centre.numpy()) / networks.spread.numpy()
    missing = np.isnan(columns[:, networks.flags])
    z = np.column_stack([np.nan_to_num(np.clip(z, -5, 5)), missing]).astype(np.float32)
    found = []
    for k in range(MEMBERS):
        first, second, skip, last = (getattr(networks, name)[k] for name in WEIGHTS)

        def layer(weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return functional.linear(x, weights[:-1].T, weights[-1])

        x = torch.from_numpy(z)
        h = functional.silu(functional.layer_norm(layer(first, x), (HIDDEN,)))
        h = h + functional.silu(functional.layer_norm(layer(second, h), (HIDDEN,)))
        found.append((layer(last, h) + layer(skip, x)).numpy())
    expected = np.mean(found, 0).T
    np.testing.assert_allclose(networks(columns), expected, atol=1e-5)


def test_a_missing_summary_counts_as_the_mean_with_an_indicator(fitted):
    networks, _ = fitted
    one, other = _columns(7, seed=4), _columns(7, seed=4)
    at = INPUTS + 3 + 3  # the spread of the own tile, which has no indicator
    one[:, at], other[:, at] = np.nan, networks.centre[at]
    np.testing.assert_array_equal(networks(one), networks(other))
    at = INPUTS + 3 + OWN
    one[:, at], other[:, at] = np.nan, networks.centre[at]
    assert not np.array_equal(networks(one), networks(other))


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_are_predicted_by_the_network_trained_without_their_group(grouped, monkeypatch):
    monkeypatch.setattr(near_network, "EPOCHS", 1)
    columns, groups = _columns(600), np.arange(600) // (20 if grouped else 1)
    y = _targets(columns)
    changed = y.clone()
    chosen = groups == 5
    changed[chosen] += 100
    found = []
    for targets in (y, changed):
        networks = NearNetworks(INPUTS, torch.float64)
        with torch.no_grad():
            found.append(np.array(networks.fit(columns, targets, groups, 0)))
    np.testing.assert_array_equal(found[0][:, chosen], found[1][:, chosen])
    assert (found[0] != found[1]).any(0).mean() > 0.3


def test_a_large_group_leaves_enough_steps_for_all_networks():
    """The smallest part of the rows must not limit the steps of the networks of other parts."""
    columns, networks = _columns(4_000), NearNetworks(INPUTS, torch.float32)
    groups = np.where(np.arange(4_000) < 3_600, 0, np.arange(4_000))
    with torch.no_grad():
        networks.fit(columns, _targets(columns), groups, 0)
    asked = _columns(2_000, seed=2)
    true_mean, _ = _truth(asked)
    assert np.square(networks(asked)[0] - true_mean).mean() < 0.25 * true_mean.var()


@pytest.mark.parametrize(("enough", "epochs"), [(1000, 8), (160, 5), (10, 2)])
def test_more_steps_than_enough_shorten_the_training(enough, epochs, monkeypatch):
    """There are 32 steps in an epoch: 4,000 rows, a fifth less, in batches of 100."""
    monkeypatch.setattr(near_network, "ENOUGH_STEPS", enough)
    monkeypatch.setattr(near_network, "BATCHES", (100, 100))
    steps, clip = [], near_network._clip
    monkeypatch.setattr(near_network, "_clip", lambda weights: (steps.append(1), clip(weights)))
    columns = _columns(4_000)
    with torch.no_grad():
        NearNetworks(INPUTS, torch.float32).fit(columns, _targets(columns), np.arange(4_000), 0)
    threads = len(np.array_split(np.arange(5), min(5, threads_of(torch.device("cpu")))))
    assert len(steps) == 32 * epochs * threads


def test_a_seed_gives_the_same_networks_and_another_does_not():
    columns = _columns(600)
    means = []
    for seed in (0, 0, 1):
        networks = NearNetworks(INPUTS, torch.float32)
        with torch.no_grad():
            means.append(networks.fit(columns, _targets(columns), np.arange(600), seed)[0])
    np.testing.assert_array_equal(means[0], means[1])
    assert not np.array_equal(means[0], means[2])


def test_targets_that_are_not_finite_are_refused():
    columns, y = _columns(600), _targets(_columns(600))
    y[3] = torch.inf
    with pytest.raises(NumericalError, match="networks of near measurements diverged"):
        NearNetworks(INPUTS, torch.float32).fit(columns, y, np.arange(600), 0)


# Pooled distributions.


def _parameters(*values: float) -> Parameters:
    return Parameters(*(np.array([value]) for value in values))


def test_pooled_normal_laws_have_the_closed_form():
    first, second = _parameters(0.2, math.log(0.5), 0, 0), _parameters(1.0, math.log(2.0), 0, 0)
    found = first.pooled(second, 0.25)
    np.testing.assert_allclose(found.a, 0.75 * 0.2 + 0.25 * 1.0)
    between = 0.25 * 0.75 * 0.8**2
    np.testing.assert_allclose(np.exp(2 * found.log_b), 0.5**1.5 * 2.0**0.5 + between)
    for share, expected in ((0.0, first), (1.0, second)):
        np.testing.assert_allclose(first.pooled(second, share), expected, atol=1e-15)
    for same in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(first.pooled(first, same), first)


def test_the_density_integrates_to_one_and_is_that_of_the_prediction():
    law = _parameters(0.3, math.log(0.7), 0.48, -0.12)
    assert quad(lambda v: np.exp(law.log_density(np.array([v])))[0], -40, 60)[0] == pytest.approx(1)
    mean, sd, shape = law.distribution()
    zero = np.zeros(1)
    prediction = Prediction(mean, zero, np.square(sd), zero, shape)
    for y in (-1.0, 0.4, 3.0):
        found = law.log_density(np.array([y]))
        np.testing.assert_allclose(-prediction.log_score(np.array([y])), found, atol=1e-6)


def test_scaled_and_standardised_undo_each_other():
    law, mean, log_sd = _parameters(0.3, -0.2, 0.4, -0.1), np.array([2.0]), np.array([0.7])
    there = law.scaled(mean, log_sd)
    np.testing.assert_allclose(there.a, 2 + np.exp(0.7) * 0.3)
    np.testing.assert_allclose(there.standardised(mean, log_sd), law, atol=1e-15)


def test_errors_of_another_prediction_belong_to_the_same_values():
    random = np.random.default_rng(0)
    covariates = random.standard_normal((30, len(COVARIATES)))
    seen = errors_apart(random.standard_normal(30), covariates)
    mean, log_sd = random.standard_normal((2, 30))
    other = seen.predicted_by(mean, log_sd)
    np.testing.assert_allclose(other.values, seen.values)
    np.testing.assert_allclose(other.errors, (seen.values - mean) / np.exp(log_sd))
    changed = (other.covariates != seen.covariates).any(0)
    assert [COVARIATES[i] for i in np.flatnonzero(changed)] == ["log sd", "mean"]


# In the field model.


def _world(n: int, seed: int = 0) -> Data:
    """Rows whose level jumps at the sign of a product of sines, which four epochs hardly learn."""
    random = np.random.default_rng(seed)
    pair = random.permutation(5 * (n // 3))[:n]
    place = random.uniform(-1, 1, (n // 3, 2))[pair // 5]
    x = np.column_stack([place, np.linspace(-1, 1, 5)[pair % 5]])
    level = np.sign(np.sin(8 * place[:, 0]) * np.sin(8 * place[:, 1]))
    tests = random.integers(1, 20, n).astype(float)
    y = level + random.standard_normal(n) * (0.2 + 1 / np.sqrt(tests))
    return Data(x, y, tests)


def _fit(data: Data, held: int, groups: np.ndarray | None = None) -> FittedField:
    sizes = Architecture(d=3, h=16, r=16, blocks=1, dtype="float64", units=(12.0, 12.0, 4.0))
    parameters = build("field", sizes, data.x, seed=0)
    chosen = np.arange(len(data.y)) < held
    settings = FitSettings(epochs=4, batch=128, learning_rate=1e-2, noise_rate=3.0, clip=1.0)
    field, _ = fit(parameters, data.at(~chosen), data.at(chosen), settings)
    return field


def _with_share(field: FittedField, share: float) -> FittedField:
    return replace(field, errors=replace(field.errors, networks_share=share))


@pytest.fixture(scope="module")
def field() -> FittedField:
    return _fit(_world(2_600), 400)


def test_the_networks_raise_the_score_of_new_rows(field):
    new = _world(4_600, seed=0).at(np.arange(2_600, 4_600))
    share = field.errors.networks_share
    assert share == near_network.SHARE
    assert len(field.rows.y) == 2_600

    def score(value: float) -> float:
        model = _with_share(field, value)
        return float(model.predict(new.x, new.tests).log_score(new.y).mean())

    scores = {value: score(value) for value in (0.0, share)}
    assert scores[share] < scores[0.0] - 0.005


def test_predictions_are_pooled_from_both_laws(field):
    x = _world(200, seed=3).x
    parameters, errors, share = field.parameters, field.errors, field.errors.networks_share
    scaled, counts = parameters.scaled(x), parameters.counts_of(3, 2, 200)
    found = field.conditional(scaled, counts)
    distance = field.rows.distance_to_others(numpy_of(parameters.points(scaled)))
    covariates = error_covariates(parameters.law, counts, found, distance)
    networks = near_network.network_predictions(
        parameters, errors.networks, field.sums, scaled, [counts]
    )[0]
    places = numpy_of(parameters.points(scaled))[:, :2]
    apart = cdist(places, numpy_of(field.rows.points)[:, :2]).min(1)
    fade = np.minimum(1, errors.reach_km / apart) ** 2
    assert 0 < (fade < 1).mean() < 0.2
    first = Parameters(*(fade * value for value in errors.law.parameters(covariates)))
    share = share * fade
    second = errors.networks_law.parameters(with_prediction(covariates, *networks))
    sd = np.sqrt((found.field + found.tile + found.noise).numpy())
    a = (1 - share) * (found.mean.numpy() + sd * first.a)
    a += share * (networks[0] + np.exp(networks[1]) * second.a)
    pooled = pooled_law(first, errors.networks_law, share, covariates, networks)
    np.testing.assert_allclose(pooled.a, a)
    mean, scale, shape = pooled.distribution()
    prediction = field.predict(x, 3, 2)
    y_sd = float(field.y_sd)
    np.testing.assert_allclose(prediction.mean, float(field.y_mean) + y_sd * mean, rtol=1e-6)
    np.testing.assert_allclose(prediction.sd, y_sd * scale, rtol=1e-6)
    assert prediction.shape.columns.keys() == shape.columns.keys()


def test_the_level_has_the_mean_of_well_measured_averages_and_no_noise(field):
    x = _world(100, seed=3).x
    counts = field.parameters.well_measured(1)[0].tolist()
    level, average = field.predict(x, level=True), field.predict(x, *counts)
    np.testing.assert_array_equal(level.mean, average.mean)
    np.testing.assert_array_equal(level.function_variance, average.function_variance)
    assert not level.noise_variance.any()


def test_chunks_do_not_change_predictions(field, monkeypatch):
    x = _world(300, seed=3).x
    monkeypatch.setattr(near_network, "ROWS_AT_ONCE", 64)
    whole, some = field.predict(x, 3), field.predict(x[::7], 3)
    np.testing.assert_allclose(some.mean, whole.mean[::7], rtol=1e-9)
    np.testing.assert_allclose(some.sd, whole.sd[::7], rtol=1e-9)


ASKED = {"tests": 7.0, "devices": 3.0}


@pytest.mark.parametrize("counts", [{"level": True}, ASKED])
def test_what_is_known_is_not_computed_again(field, counts, monkeypatch):
    x = _world(300, seed=3).x
    expected = field.predict(x, **counts)
    with field.remembering(x, **ASKED):
        monkeypatch.setattr(field_model, "network_predictions", None)
        monkeypatch.setattr(FittedField, "conditional", None)
        monkeypatch.setattr(FieldRows, "distance_to_others", None)
        found = field.predict(x, **counts)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-12)


def test_distances_that_an_older_file_lacks_are_computed(field):
    x = _world(300, seed=3).x
    expected = field.predict(x, level=True)
    with field.remembering(x) as level:
        older = {name: value for name, value in level.items() if name != DISTANCE}
    assert len(older) == len(level) - 1
    with field.remembering(x, stored=older):
        found = field.predict(x, level=True)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-12)


@pytest.mark.parametrize("known", [{}, ASKED, {"tests": 3.0, "devices": 1.0}])
def test_networks_for_other_counts_are_computed(field, known):
    x = _world(300, seed=3).x
    expected = field.predict(x, 3, 2)
    with field.remembering(x, **known):
        found = field.predict(x, 3, 2)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-12)


def test_a_file_without_networks_predicts_without_them(field, tmp_path):
    path = tmp_path / "m.safetensors"
    save_model(field, path)
    tensors, described = read_tensors(path)
    kept = {name: value for name, value in tensors.items() if not name.startswith("networks")}
    assert len(kept) < len(tensors)
    write_tensors(path, kept, described)
    older, _ = load_model(path)
    x = _world(100, seed=3).x
    expected = _with_share(field, 0.0).predict(x)
    np.testing.assert_array_equal(older.predict(x).mean, expected.mean)
    np.testing.assert_array_equal(older.predict(x).sd, expected.sd)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("networks_share", -0.1, "expected a share from 0 to 1 .*, found -0.1 and"),
        ("networks_share", 1.5, "expected a share from 0 to 1 .*, found 1.5 and"),
        ("reach_km", 0.0, "expected .* a reach above 0, found .* and 0"),
        ("home", -1.0, "expected ranges and a power above 0, .* found range_km -1, "),
        ("networks.spread", 0.0, "expected standard deviations of inputs above 0"),
        ("networks_law_ranges", 0.0, "expected standard deviations of covariates above 0"),
        ("networks.last", np.inf, r"tensor networks.last in .* is not finite"),
    ],
)
def test_numbers_that_no_fit_gives_are_refused(field, name, value, message, tmp_path):
    path = tmp_path / "m.safetensors"
    save_model(field, path)
    tensors, described = read_tensors(path)
    changed = torch.full_like(tensors[name].double(), value)
    write_tensors(path, tensors | {name: changed}, described)
    with pytest.raises(DataError, match=message):
        load_model(path)


def test_after_the_data_the_mean_stays(field):
    """The variance grows there, and the location of the errors does not grow with it."""
    model = replace(field, drift=torch.tensor([0.3, 0.0], dtype=torch.float64))
    x = _world(60, seed=3).x
    away = np.column_stack([40 + x[:, :2], np.ones(60)])
    then = away.copy()
    then[:, 2] = 1.5
    first, second = model.predict(away), model.predict(then)
    np.testing.assert_allclose(second.mean, first.mean, rtol=1e-6)
    assert (second.variance > first.variance).all()


def test_a_widened_model_ignores_its_networks():
    field = _fit(_world(2_500), 150)
    assert field.errors.networks_share > 0
    model, x = field.widened(1.3), _world(50, seed=3).x
    assert model.errors.networks_share == 0
    expected = replace(field, errors=FieldErrors.none(field.parameters)).predict(x)
    np.testing.assert_allclose(model.predict(x).mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(model.predict(x).sd, 1.3 * expected.sd, rtol=1e-12)


def test_few_rows_get_no_networks():
    model = _fit(_world(1_500), 50)
    assert model.errors.networks_share == 0
    assert not model.errors.networks.first.any()


def test_the_law_of_the_networks_is_fitted_to_their_errors():
    """Errors with twice the stated standard deviation give a scale of 2."""
    random = np.random.default_rng(0)
    covariates = np.zeros((4_000, len(COVARIATES)))
    seen = errors_apart(random.standard_normal(4_000), covariates)
    law = fit_law(seen.predicted_by(np.zeros(4_000), np.full(4_000, math.log(0.5))))
    pooled = pooled_law(
        no_law().parameters(covariates),
        law,
        1.0,
        covariates,
        (np.zeros(4_000), np.full(4_000, -0.7)),
    )
    assert np.exp(pooled.log_b).mean() == pytest.approx(1.0, abs=0.08)
