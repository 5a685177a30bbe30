"""The doubt about the range: dense kriging with each range, known processes, and no false doubt."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import field_of, make_field, make_field_with_height
from scipy.spatial.distance import cdist

from geogp.models.catalogue.build import build
from geogp.models.field import range_doubt as doubts
from geogp.models.field.fitted import FittedField
from geogp.models.field.home import matern
from geogp.models.field.range_doubt import Far, fitted, range_doubt
from geogp.models.process.architecture import Architecture
from geogp.models.process.noise import NOISE_FLOOR
from geogp.models.process.rows import Rows

NOTHING = Far(5.0, 0.0)
NOISE = 0.2
SIDE = 100.0


def drawn(
    sill: float, range_km: float, *, taken: tuple[float, float] | None = None, n: int = 300
) -> FittedField:
    """A field in a square of 100 km, of rows drawn from a tile process with noise.

    Its parameters are those of the rows, or `taken`.
    """
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (n, 2))
    half = SIDE / 2
    sizes = Architecture(d=2, h=4, r=3, blocks=1, dtype="float64", units=(half, half))
    parameters = build("field", sizes, x, seed=2)
    K = sill * np.exp(-cdist(x, x) * half / range_km) + NOISE * np.eye(n)
    y = np.linalg.cholesky(K) @ random.standard_normal(n)
    own_sill, own_range = taken or (sill, range_km)
    with torch.no_grad():
        tiles, law = parameters.tiles, parameters.law
        tiles.log_sills.copy_(torch.tensor([own_sill, 1e-12, 1e-12, 1e-12]).log())
        tiles.log_ranges.fill_(np.log(own_range))
        law.log_floor.fill_(np.log(NOISE / 2))
        law.log_single.fill_(np.log(NOISE / 2))
    counts = torch.ones(n, 2, dtype=torch.float64)
    return field_of(parameters, Rows(parameters.scaled(x), torch.from_numpy(y), counts))


def seen_by_the_fit(field: FittedField, of_field: Far, monkeypatch) -> tuple[np.ndarray, ...]:
    """Distances, excess and variances to which a variogram is fitted."""
    seen = []
    monkeypatch.setattr(doubts, "fitted", lambda *found: seen.append(found) or fitted(*found))
    range_doubt(field.parameters, field.rows, of_field, 0)
    return seen[0][:3]


def test_the_excess_is_that_of_dense_kriging_with_each_range(monkeypatch):
    """With the field's own process, and the weights of a restricted likelihood and a prior."""
    sill, range_km, own = 0.7, 12.0, Far(30.0, 0.4)
    field = drawn(sill, range_km, n=80)
    probes = []
    probe = doubts._probes
    monkeypatch.setattr(doubts, "_probes", lambda *a: probes.append(probe(*a)) or probes[0])
    distance, excess, variance = seen_by_the_fit(field, own, monkeypatch)
    asked, at, y = (v.numpy() for v in (probes[0], field.rows.points, field.rows.y))
    asked, at = asked[:, :2], at[:, :2]
    noise, one = (NOISE + NOISE_FLOOR) * np.eye(80), np.ones(80)
    weights, means, variances = [], [], []
    for factor in doubts.FACTORS:
        s, reach = sill * factor, range_km * factor

        def k(a, b, s=s, reach=reach):
            near = matern(cdist(a, b) / own.range_km)
            return s * np.exp(-cdist(a, b) / reach) + own.variance * near

        Q = np.linalg.inv(k(at, at) + noise)
        mean = one @ Q @ y / (one @ Q @ one)
        rest = y - mean
        likelihood = np.linalg.slogdet(Q)[1] - np.log(one @ Q @ one) - rest @ Q @ rest
        prior = np.log(0.05) / 3 * np.sqrt(s) - 2 * np.log(reach) + np.log(np.sqrt(s) * reach)
        weights.append(0.5 * likelihood + prior)
        cross = k(at, asked)
        means.append(mean + cross.T @ Q @ rest)
        known = np.einsum("an,ab,bn->n", cross, Q, cross)
        plain = s + own.variance - known
        variances.append(plain + (1 - one @ Q @ cross) ** 2 / (one @ Q @ one))
        if factor == 1:
            alone = plain
    share = np.exp(np.array(weights) - max(weights))
    share /= share.sum()
    whole = share @ np.square(means) - (share @ means) ** 2 + share @ variances
    np.testing.assert_allclose(excess, whole - alone, atol=1e-6)
    np.testing.assert_allclose(variance, alone + NOISE + NOISE_FLOOR, rtol=1e-6)
    np.testing.assert_allclose(distance, cdist(asked, at).min(1), rtol=1e-9)
    assert 0.05 < share.max() < 0.9
    assert (asked.min(0) < -55).all()
    assert (asked.max(0) > 55).all()


def test_a_range_that_is_too_short_is_made_good():
    """The rows have the same s / l as what was taken, and twice its variance."""
    field = drawn(1.2, 40.0, taken=(0.6, 20.0))
    found = range_doubt(field.parameters, field.rows, NOTHING, 0)
    assert 0.3 < found.variance < 2
    assert found.range_km > 5
    assert found.power == 1


def test_a_range_that_rows_tell_has_little_doubt():
    field = drawn(0.8, 3.0)
    found = range_doubt(field.parameters, field.rows, NOTHING, 0)
    assert found.variance < 0.15
    long = drawn(0.8, 30.0)
    assert range_doubt(long.parameters, long.rows, NOTHING, 0).variance > 2 * found.variance


def test_a_field_that_explains_the_rows_leaves_less_doubt():
    field = drawn(1.2, 40.0, taken=(0.6, 20.0))
    found = [
        range_doubt(field.parameters, field.rows, Far(40.0, v), 0).variance for v in (0.0, 0.5)
    ]
    assert found[1] < found[0]


@pytest.mark.parametrize("power", [1.0, 2.5])
def test_a_known_excess_is_found(power):
    ranges = np.array([4.0, 8.0, 16.0])
    distance = np.linspace(0, 60, 50)
    excess = 0.3 * (1 - matern(distance / 8)) ** power
    found = fitted(distance, excess, 0.5 + excess, ranges, power)
    assert found.range_km == 8
    assert found.variance == pytest.approx(0.3)
    assert found.power == power
    assert fitted(distance, -excess, 0.5 + excess, ranges, power).variance == 0


@pytest.mark.parametrize("by_provider", [False, True])
def test_it_is_found_with_times_and_providers(by_provider):
    field = make_field(8, 200, by_provider=by_provider)
    found = range_doubt(field.parameters, field.rows, NOTHING, 0)
    assert np.isfinite(found).all()
    assert found == range_doubt(field.parameters, field.rows, NOTHING, 0)


def test_covariates_are_no_part_of_it():
    """A height with a large coefficient that the values contain."""
    field = make_field_with_height(90)
    parameters, rows = field.parameters, field.rows
    found = []
    for coefficient in (0.0, 50.0):
        with torch.no_grad():
            before = rows.terms(parameters, rows.x, rows.counts).phi[:, -1] * coefficient
            parameters.posterior.m[-1] = coefficient
            moved = rows.y + before.double()
            object.__setattr__(rows, "y", moved)
            found.append(range_doubt(parameters, rows, NOTHING, 0))
            object.__setattr__(rows, "y", moved - before.double())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_a_smooth_process_with_little_noise_stays_positive():
    """Its covariance is singular but for rounding if the range is eleven times as long."""
    field = drawn(900.0, 400.0)
    tiles, law = field.parameters.tiles, field.parameters.law
    with torch.no_grad():
        tiles.take_form(replace(tiles.form, smoothness=torch.tensor(2.5, dtype=torch.float64)))
        law.log_floor.fill_(-40.0)
        law.log_single.fill_(-40.0)
    found = range_doubt(field.parameters, field.rows, NOTHING, 0)
    assert np.isfinite(found).all()
    assert found.power == 3
