"""Oracles: exact where they can be, calibrated, and in the right order."""

import numpy as np
import pytest

from geogp.geodata.places.stratum_names import RURAL, URBAN
from geogp.geodata.simulation.oracles import Oracle, known_oracle, predictive_oracle
from geogp.geodata.simulation.simulated_tiles import Simulation, simple_region, simulate
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import quarter_index


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(simple_region(), rows=24_000, quarters=range(8088, 8096), seed=3)


@pytest.fixture(scope="module")
def train(simulation) -> np.ndarray:
    return np.random.default_rng(0).random(len(simulation.truth)) < 0.75


@pytest.fixture(scope="module")
def oracle(simulation, train) -> Oracle:
    return predictive_oracle(simulation.truth, train, simulation.laws["download"])


@pytest.mark.parametrize("target", ["download", "upload", "latency"])
def test_known_oracle_covers_and_standardizes(simulation, target):
    suffix = "" if target == "download" else f"_{target}"
    oracle = known_oracle(simulation.truth, target)
    score = (simulation.truth[f"y{suffix}"].to_numpy() - oracle.mean) / oracle.sd
    n = len(score)
    assert abs(score.mean()) < 4 / np.sqrt(n)
    assert abs(score.var() - 1) < 4 * np.sqrt(2 / n)
    for level, bound in ((0.5, 0.6744898), (0.95, 1.9599640)):
        error = np.sqrt(level * (1 - level) / n)
        assert abs(np.mean(np.abs(score) < bound) - level) < 4 * error


@pytest.mark.trial
def test_predictive_oracle_covers_in_each_stratum(simulation, train, oracle):
    truth = simulation.truth
    inside = np.abs(truth["y"].to_numpy() - oracle.mean) < 1.9599640 * oracle.sd
    stratum = simple_region().stratum(truth["longitude"], truth["latitude"])
    assert inside[~train].mean() == pytest.approx(0.95, abs=0.01)
    for name in (URBAN, RURAL):
        assert inside[~train & (stratum == name)].mean() == pytest.approx(0.95, abs=0.013)


@pytest.mark.trial
def test_predictive_oracle_lies_between_known_oracle_and_field(simulation, train, oracle):
    truth, law = simulation.truth, simulation.laws["download"]
    y = truth["y"].to_numpy()
    sill = law.sill_constant + law.sill_changing
    alone = Oracle(
        truth["field_true"].to_numpy(), np.sqrt(truth["sd_measurement_true"].to_numpy() ** 2 + sill)
    )
    known, predictive, smooth = (
        o.log_score(y)[~train].mean() for o in (known_oracle(truth), oracle, alone)
    )
    assert known + 0.05 < predictive < smooth - 0.05


def test_predictive_oracle_equals_dense_conditioning(simulation):
    truth = simulation.truth.sample(320, random_state=1).reset_index(drop=True)
    train = np.arange(320) < 220
    law = simulation.laws["download"]
    oracle = predictive_oracle(truth, train, law, neighbours=220)

    column, row = quadkeys.codes_to_tiles(quadkeys.parse_quadkeys(truth["quadkey"].to_numpy(str)))
    quarter = truth["quarter"].map(quarter_index).to_numpy()
    width = 2 * np.pi * 6378.137 / 65536 * np.cos(np.deg2rad(np.mean(simple_region().bounds[1::2])))
    distance = width * np.hypot(column[:, None] - column[None, :], row[:, None] - row[None, :])
    lag = np.abs(quarter[:, None] - quarter[None, :])
    K = np.exp(-distance / 1.0) * (0.02 + 0.1 * 0.85**lag)
    noise = truth["sd_measurement_true"].to_numpy() ** 2
    residual = (truth["y"] - truth["field_true"]).to_numpy()
    weights = np.linalg.inv(K[:220, :220] + np.diag(noise[:220])) @ K[:220, 220:]
    mean = truth["field_true"].to_numpy()[220:] + weights.T @ residual[:220]
    variance = 0.12 - np.sum(weights * K[:220, 220:], axis=0) + noise[220:]
    np.testing.assert_allclose(oracle.mean[220:], mean, atol=1e-10)
    np.testing.assert_allclose(oracle.sd[220:] ** 2, variance, atol=1e-10)
    assert np.abs(weights).max() > 0.05  # the training rows matter


@pytest.mark.trial
def test_doubling_the_neighbourhood_changes_nothing_that_matters(simulation, train, oracle):
    some = ~train & (np.random.default_rng(2).random(len(train)) < 0.25)
    part = train | some
    truth = simulation.truth[part].reset_index(drop=True)
    wide = predictive_oracle(truth, train[part], simulation.laws["download"], neighbours=256)
    y = truth["y"].to_numpy()
    narrow = Oracle(oracle.mean[part], oracle.sd[part])
    change = (wide.log_score(y) - narrow.log_score(y))[~train[part]]
    assert abs(change.mean()) < 1e-3
    # The same without the noise of the observations: what the wider one knows more.
    gain = -np.log(wide.sd / narrow.sd)[~train[part]]
    assert 0 < gain.mean() < 5e-4


def test_oracle_reads_the_other_targets(simulation, train):
    head = simulation.truth.head(800)
    oracle = predictive_oracle(head, train[:800], simulation.laws["latency"])
    score = (head["y_latency"].to_numpy() - oracle.mean)[~train[:800]] / oracle.sd[~train[:800]]
    assert 0.7 < score.std() < 1.3


def test_log_score_is_the_gaussian_one():
    oracle = Oracle(np.array([1.0]), np.array([2.0]))
    expected = -np.log(np.exp(-0.5 * 1.5**2) / (2 * np.sqrt(2 * np.pi)))
    np.testing.assert_allclose(oracle.log_score(np.array([4.0])), expected)
