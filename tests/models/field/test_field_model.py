"""The field model against dense Gaussian processes made without it, and on a known truth."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import field_of, weights_given_rows
from scipy import stats
from scipy.spatial.distance import cdist

from geogp.distributions.shapes import GAUSSIAN
from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build, find_spec
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.field import vecchia
from geogp.models.field.blocks import Block
from geogp.models.field.conditioning import block_at, condition_on, rows_at
from geogp.models.field.fit import FieldFit, drift_of
from geogp.models.field.fitted import FittedField
from geogp.models.field.near_cache import DISTANCE, NETWORKS
from geogp.models.field.near_rows import Conditional
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.predictive_law import PredictiveLaw, no_law
from geogp.models.field.stored_field import LAW_ARRAYS
from geogp.models.field.vecchia import NO_ROW, Sites, earlier_rows, near_places
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint.law import joint_posterior, two_variances
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.objectives import whitened_elbo
from geogp.models.process.rows import Rows

UNITS = (20.0, 10.0, 4.0)
SIZES = Architecture(d=3, h=6, r=5, blocks=1, dtype="float64", units=UNITS)


def _rows(n_places: int, quarters: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and counts of places of which each has some of the quarters."""
    random = np.random.default_rng(seed)
    place = random.uniform(-1, 1, (n_places, 2))
    times = np.linspace(-1, 1, quarters)
    x = np.array([[*p, t] for p in place for t in times if random.random() < 0.7])
    x = random.permutation(x)
    tests = random.integers(1, 30, len(x)).astype(float)
    y = np.sin(2 * x[:, 0]) + 0.3 * x[:, 2] + 0.5 * random.standard_normal(len(x))
    return x, y, np.column_stack([tests, np.ceil(tests * random.uniform(0.2, 1, len(x)))])


def _held(model: FieldParameters, x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> Rows:
    """Rows of a model; one number of tests, each of a device of its own, may stand for all."""
    both = np.broadcast_to(counts if counts.ndim == 2 else counts[:, None], (len(x), 2))
    return Rows(model.scaled(x), torch.from_numpy(y), torch.from_numpy(both.copy()))


def _data(rows: Rows) -> Data:
    return Data(rows.x.numpy(), rows.y.numpy(), *rows.counts.numpy().T)


@pytest.fixture
def world() -> tuple[FittedField, Rows]:
    """A field with random parameters, whose rows are all neighbours of each other."""
    x, y, counts = _rows(9, 4, 0)
    model = build("field", SIZES, x, seed=2)
    assert isinstance(model, FieldParameters)
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if not name.startswith("basis"):
                value.add_(0.3 * torch.randn(value.shape, generator=random, dtype=value.dtype))
    field = field_of(model, _held(model, x, y, counts))
    return field, field.rows.rows


@pytest.fixture
def exact(monkeypatch) -> None:
    """Condition on everything, so that Vecchia's approximation is exact."""
    for name in ("TRAINING", "PREDICTION"):
        monkeypatch.setattr(vecchia, f"{name}_PLACES", (64, 64))
        monkeypatch.setattr(vecchia, f"{name}_ROWS", 64)


def _dense(model: FittedField, rows: Rows, other: Rows | None = None) -> np.ndarray:
    """Covariance of u between rows, written out from the docstring with SciPy's distances."""
    other = rows if other is None else other
    s, ranges, m = (
        value.detach().numpy()
        for value in (
            model.parameters.tiles.log_sills.exp(),
            model.parameters.tiles.log_ranges.exp(),
            model.parameters.tiles.log_memories.exp(),
        )
    )
    (a, b) = (r.x.numpy() * np.array(UNITS) for r in (rows, other))
    h, t = cdist(a[:, :2], b[:, :2]), np.abs(a[:, None, 2] - b[None, :, 2])
    same = h == 0
    k = s[0] * np.exp(-h / ranges[0]) + s[1] * np.exp(-h / ranges[1] - t / m[0])
    k = k + same * (s[2] + s[3] * np.exp(-t / m[1]))
    first, second = (
        np.exp((model.parameters.basis(r.x).phi @ model.parameters.tiles.head).detach().numpy())
        for r in (rows, other)
    )
    return first[:, None] * k * second[None, :]


def _power(model: FittedField, rows: Rows, log_exponents: torch.Tensor) -> np.ndarray:
    """Tests to the power -p times devices to the power -q, within the counts of the rows held."""
    held = model.rows.counts.numpy()
    counts = np.clip(rows.counts.numpy(), held.min(0), held.max(0))
    return np.prod(counts ** -np.exp(log_exponents.detach().numpy()), 1)


def _noise(model: FittedField, rows: Rows) -> np.ndarray:
    law = model.parameters.law
    a, b = (float(v.detach()) for v in (law.log_floor, law.log_single))
    lift = (model.parameters.basis(rows.x).phi @ law.heads).detach().numpy()
    single = np.exp(b + lift[:, 1]) * _power(model, rows, law.log_decays)
    return 1e-6 + np.exp(a + lift[:, 0]) + single


def _shift(model: FittedField, rows: Rows) -> np.ndarray:
    law = model.parameters.law
    return float(law.gain.detach()) * (1 - _power(model, rows, law.log_gain_decays))


def _mean(model: FittedField, rows: Rows) -> np.ndarray:
    phi = model.parameters.basis(rows.x).phi.detach().numpy()
    m = model.parameters.posterior.m.detach().numpy()
    return float(model.parameters.mean_constant.detach()) + phi @ m + _shift(model, rows)


def _numbers(block: Block) -> torch.Tensor:
    return torch.cat([block.residual, block.spread.flatten()])


def _again(world: tuple[FittedField, Rows]) -> tuple[FittedField, Rows]:
    """The field of the same rows, whose neighbours are searched once more."""
    field = field_of(world[0].parameters, world[1])
    return field, field.rows.rows


def _everything(model: FittedField) -> torch.Tensor:
    return torch.arange(len(model.rows.sites))


@pytest.mark.usefixtures("exact")
class TestAgainstDense:
    def test_blocks_give_the_likelihood(self, world):
        model, rows = _again(world)
        found = block_at(model.parameters, model.rows, rows_at(model.rows, _everything(model)))
        covariance = _dense(model, rows) + np.diag(_noise(model, rows))
        expected = stats.multivariate_normal.logpdf(rows.y, _mean(model, rows), covariance)
        n = len(rows.y)
        value = -0.5 * found.residual.square().sum().item() - found.log_scale.item()
        assert value - n / 2 * np.log(2 * np.pi) == pytest.approx(expected, rel=1e-10)

    def test_the_bound_is_that_of_the_dense_process(self, world):
        model, rows = _again(world)
        at = rows_at(model.rows, _everything(model))
        L = model.parameters.weights.L
        found = block_at(model.parameters, model.rows, at, L)
        n, kl = len(rows.y), model.parameters.posterior.kl()
        value = whitened_elbo(_numbers(found), found.log_scale, kl, n, n)
        covariance = _dense(model, rows) + np.diag(_noise(model, rows))
        density = stats.multivariate_normal.logpdf(rows.y, _mean(model, rows), covariance)
        phi, L = model.parameters.basis(rows.x).phi.detach().numpy(), L.detach().numpy()
        trace = np.trace(L.T @ phi.T @ np.linalg.solve(covariance, phi) @ L)
        assert n * value.item() == pytest.approx(-density + trace / 2 + kl.item(), rel=1e-9)

    def test_prediction(self, world):
        model, rows = _again(world)
        x, y, counts = _rows(6, 3, 9)
        x[:4, :2] = rows.x[:4, :2].numpy()  # places seen before, at other times
        asked = _held(model.parameters, x, y, counts)
        found = model.predict(x, *counts.T)
        covariance = _dense(model, rows) + np.diag(_noise(model, rows))
        gain = np.linalg.solve(covariance, _dense(model, rows, asked)).T
        mean = _mean(model, asked) + gain @ (rows.y.numpy() - _mean(model, rows))
        np.testing.assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-9)
        tile = np.diag(_dense(model, asked)) - np.sum(gain * _dense(model, rows, asked).T, 1)
        np.testing.assert_allclose(found.tile_variance, tile, rtol=1e-8, atol=1e-9)
        phi, own = (model.parameters.basis(r.x).phi.detach().numpy() for r in (rows, asked))
        left = (own - gain @ phi) @ model.parameters.weights.L.detach().numpy()
        np.testing.assert_allclose(found.field_variance, (left**2).sum(1), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.noise_variance, _noise(model, asked), rtol=1e-9)

    def test_the_joint_posterior_is_that_of_the_weights(self, world):
        model, rows = _again(world)
        found = weights_given_rows(model)
        phi = model.parameters.basis(rows.x).phi.detach().numpy()
        weight = np.linalg.inv(_dense(model, rows) + np.diag(_noise(model, rows)))
        S = np.linalg.inv(np.eye(phi.shape[1]) + phi.T @ weight @ phi)
        np.testing.assert_allclose((found.L @ found.L.T).numpy(), S, rtol=1e-7, atol=1e-10)
        base = float(model.parameters.mean_constant.detach()) + _shift(model, rows)
        m = S @ phi.T @ weight @ (rows.y.numpy() - base)
        np.testing.assert_allclose(found.m.numpy(), m, rtol=1e-7, atol=1e-9)


def test_the_two_variances_are_one_at_the_optimal_q(world):
    model, rows = _again(world)
    x, exact = _data(rows).x[:20], weights_given_rows(model)
    stated = model.predict(x, np.inf).function_variance
    closed = model.function_variance(x, exact.L)
    assert abs(np.median(stated / closed) - 1) > 1e-3
    model.parameters.posterior.take_covariance(exact.L)
    np.testing.assert_allclose(model.predict(x, np.inf).function_variance, closed, rtol=1e-9)
    np.testing.assert_allclose(model.function_variance(x, exact.L), closed, rtol=1e-9)
    both = two_variances(model, _data(rows), x)
    assert both["stated"] == pytest.approx(np.median(np.sqrt(closed)), rel=1e-9)
    assert both["closed_form"] == pytest.approx(both["stated"], rel=1e-9)


def test_the_optimal_q_raises_the_bound_to_the_evidence(world, exact):
    """With q(w) the exact posterior the bound is log N(y; m0 + shift, Phi Phi' + C)."""
    model, rows = _again(world)
    condition_on(model.parameters, model.rows)
    posterior, at = model.parameters.posterior, rows_at(model.rows, _everything(model))
    block = block_at(model.parameters, model.rows, at, model.parameters.weights.L)
    n = len(rows.y)
    value = whitened_elbo(_numbers(block), block.log_scale, posterior.kl(), n, n)
    phi = model.parameters.basis(rows.x).phi.detach().numpy()
    covariance = phi @ phi.T + _dense(model, rows) + np.diag(_noise(model, rows))
    base = float(model.parameters.mean_constant.detach()) + _shift(model, rows)
    expected = stats.multivariate_normal.logpdf(rows.y, base, covariance)
    assert -n * value.item() == pytest.approx(expected, rel=1e-8)


class TestNeighbours:
    def test_places_are_those_of_the_rows(self):
        x, _, _ = _rows(30, 5, 1)
        sites = Sites.of(x[:, :2])
        assert len(sites) == len(np.unique(x[:, :2], axis=0))
        assert sorted(sites.order) == list(range(len(x)))
        for first, count, centre in zip(sites.first, sites.count, sites.centre, strict=True):
            np.testing.assert_array_equal(
                x[sites.order[first : first + count], :2], np.tile(centre, (count, 1))
            )

    def test_only_earlier_places_and_the_near_ones(self):
        x, _, _ = _rows(200, 3, 2)
        sites = Sites.of(x[:, :2])
        place_of = np.repeat(np.arange(len(sites)), sites.count)
        places, _ = near_places(sites)
        given = earlier_rows(sites, places, np.random.default_rng(0))
        rank = np.argsort(np.random.default_rng(0).permutation(len(sites)))
        assert given.shape == (len(sites), vecchia.TRAINING_ROWS)
        used = 0
        for site, rows in enumerate(given):
            others = np.unique(place_of[rows[rows != NO_ROW]])
            assert (rank[others] < rank[site]).all()
            assert len(others) <= places
            used += len(others)
        assert used > 4 * len(sites)

    def test_places_with_few_rows_are_searched_farther(self):
        for rows, expected in ((1, (16, 64)), (5, (8, 16)), (30, (6, 16))):
            places = np.random.default_rng(0).uniform(size=(90, 2))
            assert near_places(Sites.of(places.repeat(rows, 0))) == expected

    def test_rows_are_cut_at_the_most(self):
        sites = Sites.of(np.array([[0.0, 0], [0, 0], [0, 0], [1, 1], [1, 1]]))
        near = np.argmin(sites.centre[:, 0])
        found = sites.rows(np.array([[near, 1 - near], [NO_ROW, near]]), 4)
        first, other = sites.first[near], sites.first[1 - near]
        assert found[0].tolist() == [first, first + 1, first + 2, other]
        assert found[1].tolist() == [first, first + 1, first + 2, NO_ROW]


def test_the_tile_process_is_positive_definite():
    x, _, _ = _rows(60, 4, 3)
    model = build("field", SIZES, x)
    points = model.points(torch.from_numpy(x))
    values = torch.linalg.eigvalsh(model.tiles(points, points))
    assert values.min() > -1e-12
    far = torch.tensor([[1e6, 0, 0]], dtype=torch.float64)
    assert model.tiles(points[:1], far).item() < 1e-12


def test_the_law_is_not_drawn_out_beyond_the_counts_it_has_seen():
    x, y, _ = _rows(12, 3, 0)
    parameters = build("field", SIZES, x)
    counts = np.tile([4.0, 2.0], (len(y), 1))
    counts[0] = 9, 5
    model = field_of(parameters, _held(parameters, x, y, counts))

    def at(tests, devices):
        found = model.predict(x[:3], tests, devices)
        return np.array([found.mean, found.variance])

    least, most = at(4, 2), at(9, 5)
    for few in ((1, 1), (4, 1), (2, 2)):
        np.testing.assert_array_equal(at(*few), least)
    for many in ((30, 5), (30, 30), (np.inf, 9), (np.inf, np.inf)):
        np.testing.assert_array_equal(at(*many), most)
    assert (least[1] > at(4, 4)[1]).all()
    assert (at(4, 4)[1] > most[1]).all()


def test_devices_that_are_not_given_are_those_typical_for_the_tests():
    """log devices is regressed on log tests through the origin."""
    x, y, counts = _rows(12, 3, 0)
    parameters = build("field", SIZES, x)
    model = field_of(parameters, _held(parameters, x, y, counts))
    tests, devices = np.log(counts).T
    power = np.linalg.lstsq(tests[:, None], devices, rcond=None)[0][0]
    assert 0.5 < power < 0.95
    asked = counts[:3, 0]
    np.testing.assert_allclose(parameters.counts_of(asked, None, 3)[:, 1], asked**power, rtol=1e-12)
    assumed, given = model.predict(x[:3], asked), model.predict(x[:3], asked, asked**power)
    np.testing.assert_allclose(assumed.variance, given.variance, rtol=1e-12)
    # Single tests of a later fit: nothing of the earlier fit stays.
    field_of(parameters, _held(parameters, x, y, np.ones_like(counts)))
    assert parameters.law.devices_power.item() == 1


def _constant_law(a: float, log_b: float, skewness: float, log_tail: float) -> PredictiveLaw:
    law = no_law()
    law.coefficients[:, 0] = a, log_b, skewness, log_tail
    return law


def _with_law(model: FittedField, law: PredictiveLaw) -> FittedField:
    return replace(model, errors=replace(model.errors, law=law))


def test_the_level_has_the_mean_of_well_measured_averages_and_the_normal_shape(world):
    model = _with_law(world[0], _constant_law(0.3, 0.1, -0.4, -0.2))
    x = _rows(6, 3, 9)[0]
    tests, devices = model.parameters.well_measured(1)[0].tolist()
    assert tests > devices > 1
    level, average = model.predict(x, level=True), model.predict(x, tests, devices)
    np.testing.assert_array_equal(level.mean, average.mean)
    np.testing.assert_allclose(level.function_variance, average.function_variance, rtol=1e-12)
    assert average.shape is not GAUSSIAN
    assert level.shape is GAUSSIAN
    assert (level.noise_variance == 0).all()


def test_the_law_moves_and_widens_predictions_in_their_own_unit(world):
    model, _ = world
    model.y_sd.fill_(2.5)
    x, _, counts = _rows(6, 3, 9)
    plain = model.predict(x, *counts.T)
    model = _with_law(model, _constant_law(0.3, np.log(1.4), 0.0, 0.0))
    moved = model.predict(x, *counts.T)
    np.testing.assert_allclose(moved.mean, plain.mean + 0.3 * plain.sd, rtol=1e-12)
    for part in ("field_variance", "tile_variance", "noise_variance"):
        np.testing.assert_allclose(getattr(moved, part), 1.96 * getattr(plain, part), rtol=1e-9)
    assert moved.shape is GAUSSIAN


def test_half_of_all_tests_are_in_averages_of_at_most_the_counts_of_the_level():
    counts = torch.tensor([[1, 1], [2, 2], [5, 1], [9, 3], [2, 2]], dtype=torch.float64)
    parameters = build("field", SIZES, _rows(5, 3, 0)[0])
    for order in ([0, 1, 2, 3, 4], [3, 2, 4, 1, 0]):
        parameters.law.take_counts(counts[order])
        # 10 of 19 tests are in averages of at most 5 tests, and 10 in averages of 1 or 2 devices.
        np.testing.assert_array_equal(parameters.well_measured(2), [[5, 2], [5, 2]])


def test_the_newest_rows_of_a_long_memory_count():
    """Of a place with more rows than a prediction takes, those near in time are taken."""
    times = np.linspace(-1, 1, 100)
    x = np.column_stack([np.zeros((100, 2)), times])
    y = np.where(np.arange(100) < 64, -1.0, 1.0)
    sizes = replace(SIZES, units=(20.0, 10.0, 49.5))
    parameters = build("field", sizes, np.vstack([x, [[-1, -1, 0], [1, 1, 0]]]))
    model = field_of(parameters, _held(parameters, x, y, np.ones(100)))
    with torch.no_grad():
        parameters.mean_constant.zero_()
        parameters.posterior.m.zero_()
        parameters.tiles.log_sills.copy_(torch.tensor([-9.0, -9.0, -9.0, 0.0]))
        parameters.tiles.log_memories.fill_(np.log(20.0))
    last, first = model.predict(x[[99]], 1).mean, model.predict(x[[0]], 1).mean
    assert last > 0.5
    assert first < -0.5


class TestDrift:
    """The level's change in a quarter, from rows whose mean changes in a known way."""

    @staticmethod
    def _drift(changes: np.ndarray, rows: int = 400) -> np.ndarray:
        random = np.random.default_rng(0)
        times = np.arange(len(changes) + 1)
        level = np.concatenate([[0.0], np.cumsum(changes)])
        t = np.repeat(times, rows)
        x = np.column_stack([random.uniform(-1, 1, (len(t), 2)), 2 * t / times[-1] - 1])
        y = level[t] + 0.5 * random.standard_normal(len(t))
        units = (20.0, 10.0, times[-1] / 2)
        parameters = build("field", replace(SIZES, units=units), x)
        field = field_of(parameters, _held(parameters, x, y, np.ones(len(y))))
        return drift_of(parameters, field.rows).detach().numpy()

    def test_a_random_walk(self):
        changes = np.random.default_rng(1).normal(0.2, 0.3, 60)
        variance, trend = self._drift(changes, 100)
        assert variance == pytest.approx(changes.var(ddof=1), rel=0.1)
        assert trend == pytest.approx(changes.mean() ** 2, rel=0.1)

    def test_noise_alone_is_no_drift(self):
        assert self._drift(np.zeros(11), 10).max() < 0.01

    def test_the_one_change_of_two_times_is_variance(self):
        variance, trend = self._drift(np.array([2.0]))
        assert variance == pytest.approx(4, rel=0.1)
        assert trend == 0

    def test_one_time_has_none(self):
        x = _rows(20, 4, 0)[0][:, :2]
        parameters = build("field", Architecture(d=2, h=6, r=5, blocks=1, units=UNITS[:2]), x)
        field = field_of(parameters, _held(parameters, x, np.zeros(len(x)), np.ones(len(x))))
        assert drift_of(parameters, field.rows).tolist() == [0, 0]


def test_field_mean_and_tile_kernel_against_their_formulas(world):
    model = world[0]
    x = _rows(6, 3, 9)[0]
    parameters = model.parameters
    asked = _held(parameters, x, np.zeros(len(x)), parameters.well_measured(1).numpy())
    terms = model.rows.terms(parameters, parameters.scaled(x), parameters.well_measured(len(x)))
    mean = model.y_mean.item() + model.y_sd.item() * terms.mean.detach()
    np.testing.assert_allclose(mean, _mean(model, asked), rtol=1e-10)
    np.testing.assert_allclose(model.tile_kernel(x, x[:3]), _dense(model, asked)[:, :3], rtol=1e-9)


def test_after_the_rows_the_tile_process_still_changes(world):
    """Only its amplitude is that of the last time."""
    model, rows = world
    x = np.column_stack([np.zeros((3, 2)), [1.0, 2.0, 5.0]])
    counts = rows.counts.numpy().max(0)[None]
    last = np.minimum(x, [1, 1, float(model.rows.times[1])])
    asked, seen = (_held(model.parameters, at, np.zeros(3), counts) for at in (x, last))
    ratio = np.sqrt(np.diag(_dense(model, seen)) / np.diag(_dense(model, asked)))
    expected = _dense(model, asked) * np.outer(ratio, ratio)
    np.testing.assert_allclose(model.tile_kernel(x, x), expected, rtol=1e-9)
    assert expected[0, 2] < expected[0, 1] < expected[0, 0]


def test_another_fit_knows_no_drift_and_no_law(world):
    model, _ = world
    again = field_of(model.parameters, model.rows.rows.at(slice(9)))
    assert again.drift.tolist() == [0, 0]
    assert again.errors.networks_share == 0
    assert again.errors.law.most_tail == 0
    for name in LAW_ARRAYS:
        np.testing.assert_array_equal(getattr(again.errors.law, name), getattr(no_law(), name))
    assert len(again.rows.earlier) == len(again.rows.sites) < len(model.rows.sites)


def test_a_crowded_place_is_cut_into_blocks():
    place = np.repeat([[0.0, 0.0], [1.0, 1.0]], [150, 1], axis=0)
    sites = Sites.of(place)
    assert sorted(sites.count.tolist()) == [1, 22, 64, 64]
    assert sites.count.sum() == 151
    assert len(np.unique(sites.centre, axis=0)) == 2


def test_the_shift_rises_from_a_single_test_to_the_gain():
    model = build("field", SIZES, _rows(5, 3, 0)[0])
    k = torch.tensor([[1.0, 1], [2, 1], [2, 2], [10, 2], [np.inf, np.inf]], dtype=torch.float64)
    shift = model.law.shift(k).detach().numpy()
    assert shift[0] == 0
    assert (np.diff(shift) > 0).all()
    assert shift[-1] == pytest.approx(model.law.gain.item())


def _simulated(seed: int, n_places: int = 700, quarters: int = 6) -> dict[str, np.ndarray]:
    """A region with known parts: a trend, tiles that remember, noise that falls with tests."""
    random = np.random.default_rng(seed)
    place = random.uniform(-1, 1, (n_places, 2))
    a = place * UNITS[:2]
    chol = np.linalg.cholesky(0.3 * np.exp(-cdist(a, a) / 2.0) + 1e-9 * np.eye(n_places))
    tile = chol @ random.standard_normal(n_places)
    pairs = [(p, t) for p in range(n_places) for t in range(quarters) if random.random() < 0.7]
    number, quarter = np.array(pairs).T
    x = np.column_stack([place[number], 2 * quarter / max(1, quarters - 1) - 1])
    field = np.sin(2 * x[:, 0]) + 0.5 * x[:, 2]
    tests = np.ceil(random.exponential(5, len(x)))
    variance = 0.1 + 0.8 / tests
    y = field + tile[number] + np.sqrt(variance) * random.standard_normal(len(x))
    return {"x": x, "y": y, "tests": tests, "field": field, "tile": tile[number], "var": variance}


SETTINGS = FitSettings(
    epochs=12, batch=128, learning_rate=1e-2, noise_rate=3.0, clip=1.0, weights=Weights(0.0, 1.0)
)


@pytest.fixture(scope="module")
def recovered() -> tuple[FittedField, dict[str, np.ndarray], np.ndarray]:
    truth = _simulated(0)
    part = np.random.default_rng(1).permutation(len(truth["y"])) % 10
    rows = [Data(truth["x"][k], truth["y"][k], truth["tests"][k]) for k in (part > 1, part == 1)]
    sizes = Architecture(d=3, h=16, r=16, units=UNITS)
    model, _ = fit(build("field", sizes, rows[0].x, seed=0), *rows, SETTINGS)
    return model, truth, part == 0


class TestRecovery:
    @pytest.mark.trial
    def test_log_score_is_near_the_predictive_oracle(self, recovered):
        """The oracle knows field and laws and kriges the tile effects from the training rows."""
        model, truth, test = recovered
        train = ~test
        a = truth["x"] * UNITS
        h = cdist(a[:, :2], a[:, :2])
        K = 0.3 * np.exp(-h / 2.0)
        inner = K[np.ix_(train, train)] + np.diag(truth["var"][train])
        gain = np.linalg.solve(inner, K[np.ix_(train, test)]).T
        mean = truth["field"][test] + gain @ (truth["y"] - truth["field"])[train]
        variance = 0.3 - np.sum(gain * K[np.ix_(train, test)].T, 1) + truth["var"][test]
        oracle = -stats.norm.logpdf(truth["y"][test], mean, np.sqrt(variance)).mean()
        found = model.predict(truth["x"][test], truth["tests"][test])
        assert found.log_score(truth["y"][test]).mean() < oracle + 0.08

    def test_the_parts_are_found(self, recovered):
        model, truth, test = recovered
        level = model.predict(truth["x"][test], level=True).mean
        assert np.corrcoef(level, (truth["field"] + truth["tile"])[test])[0, 1] > 0.9
        few, many = (model.predict(truth["x"][test], k).noise_variance.mean() for k in (1, 1e9))
        assert many < 0.35
        assert 0.5 < few - many < 1.2

    def test_a_seen_tile_is_surer_than_a_far_one(self, recovered):
        model, truth, _ = recovered
        here = model.predict(truth["x"][:200], 5).tile_variance
        away = model.predict(np.array([[1.0, -1.0, 0.0]]) * [3, 3, 1], 5).tile_variance
        assert here.mean() < 0.6 * away[0]

    def test_beyond_the_data_the_level_stays_and_the_variance_grows(self, recovered):
        model, truth, _ = recovered
        x = np.repeat(truth["x"][:50], 4, 0)
        x[:, 2] = np.tile([1.0, 1.5, 2.0, 3.0], 50)
        found = model.predict(x, 5)
        grown = found.variance.reshape(50, 4)
        assert (np.diff(grown, axis=1) > 0).all()
        field = found.field_variance.reshape(50, 4).mean(0)
        # The true level rises by 0.125 in a quarter, in eight by 1.
        assert field[3] - field[0] > 0.8**2
        ahead = np.abs(found.mean.reshape(50, 4)[:, 1:] - found.mean.reshape(50, 4)[:, :1])
        assert ahead.max() < 1.0

    @pytest.fixture
    def pooled(self, recovered):
        """The model with a share of networks, which do not earn one here."""
        model, *others = recovered
        assert model.errors.networks_share == 0
        return replace(model, errors=replace(model.errors, networks_share=0.3)), *others

    def test_save_and_load(self, pooled, tmp_path):
        model, truth, test = pooled
        save_model(model, tmp_path / "m.safetensors")
        same, _ = load_model(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(same.rows.earlier, model.rows.earlier)
        assert same.errors.networks_share == 0.3
        asked = truth["x"][test], truth["tests"][test]
        first, second = model.predict(*asked), same.predict(*asked)
        for part in ("mean", "function_variance", "tile_variance", "noise_variance"):
            np.testing.assert_array_equal(getattr(second, part), getattr(first, part))
        np.testing.assert_array_equal(
            list(second.shape.columns.values()), list(first.shape.columns.values())
        )

    @pytest.mark.parametrize("asked", [{}, {"tests": 7.0, "devices": 2.0}, {"level": True}])
    def test_predictions_from_the_level_of_single_tiles_are_the_same(self, pooled, asked):
        model, truth, test = pooled
        x = truth["x"][test]
        first = model.predict(x, **asked)
        with model.remembering(x):
            second = model.predict(x, **asked)
        for part in ("mean", "function_variance", "tile_variance", "noise_variance"):
            np.testing.assert_allclose(
                getattr(second, part), getattr(first, part), rtol=1e-9, atol=1e-12, err_msg=part
            )

    def test_outside_the_times_of_the_rows_there_is_no_level_to_keep(self, pooled):
        model, truth, _ = pooled
        names = {*Conditional._fields, *NETWORKS, DISTANCE}
        with model.remembering(truth["x"][:3]) as level:
            assert set(level) == names
        with model.remembering(truth["x"][:3] * [1, 1, 0] + [0, 0, 1.5]) as level:
            assert level == {}

    def test_level_has_no_noise_and_single_tests_most(self, recovered):
        model, truth, _ = recovered
        x = truth["x"][:20]
        level, many, one = model.predict(x, level=True), model.predict(x, 50), model.predict(x)
        assert (level.noise_variance == 0).all()
        assert (one.variance > many.variance).all()
        assert (many.variance > level.variance).all()


@pytest.mark.parametrize("earlier", [(), ("model", "best")])
def test_a_stopped_fit_ends_like_an_uninterrupted_one(tmp_path, earlier):
    """Also if an earlier version stopped it, which stored the rows and the drift with the fit."""
    truth = _simulated(3, n_places=60, quarters=4)
    train = Data(truth["x"][:100], truth["y"][:100], truth["tests"][:100])
    held = Data(truth["x"][100:], truth["y"][100:], truth["tests"][100:])
    settings = replace(SETTINGS, epochs=4, batch=32)

    def make():
        return build("field", replace(SIZES, dtype="float32"), train.x, seed=0)

    whole, _ = fit(make(), train, held, settings)

    def stop(state, _epochs):
        if state.epoch == 3:
            raise KeyboardInterrupt

    path = tmp_path / "c.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(make(), train, held, settings, checkpoint=path, progress=stop)
    tensors, described = read_tensors(path)
    rows_of_earlier_versions = {f"{group}.drift": torch.ones(2) for group in earlier}
    write_tensors(path, tensors | rows_of_earlier_versions, described)
    again, _ = fit(make(), train, held, settings, checkpoint=path)
    expected = whole.predict(held.x, held.tests)
    np.testing.assert_array_equal(again.predict(held.x, held.tests).mean, expected.mean)


def test_place_alone_and_one_time_work():
    truth = _simulated(4, n_places=120, quarters=1)
    x = truth["x"][:, :2]
    rows = Data(x[:60], truth["y"][:60], truth["tests"][:60])
    held = Data(x[60:], truth["y"][60:], truth["tests"][60:])
    sizes = Architecture(d=2, h=6, r=5, blocks=1, units=UNITS[:2])
    model = build("field", sizes, x)
    model, state = fit(model, rows, held, replace(SETTINGS, epochs=4, batch=32))
    assert np.isfinite(state.best_nll)
    assert model.drift.tolist() == [0, 0]
    assert len(model.predict(held.x, held.tests)) == len(held.y)


def test_every_parameter_has_a_finite_gradient(world):
    model, rows = world
    fit_of_rows = find_spec("field").fit(model.parameters)
    assert isinstance(fit_of_rows, FieldFit)
    fit_of_rows.start(rows, 0, resumed=True)
    for share in (0.1, 0.9):
        model.parameters.zero_grad()
        batches = fit_of_rows.batches(rows.n, np.random.default_rng(0), share)
        assert sum(batch.n for batch in batches) == len(rows.y)
        for batch in batches:
            assert torch.isfinite(fit_of_rows.step(batch, Weights()))
        for name, value in model.parameters.named_parameters():
            if share < 0.5 and name.startswith("tiles.log_"):
                continue  # a row by itself tells nothing of ranges and memories
            assert value.grad is not None, name
            assert torch.isfinite(value.grad).all(), name
            assert value.grad.any(), name


class TestRefusals:
    @pytest.fixture
    def model(self, world) -> FittedField:
        return world[0]

    @pytest.mark.parametrize(
        ("tests", "found"),
        [
            (0, "smallest value of 0"),
            ([1, 2], r"shape \(2,\)"),
            ([-1, 2, 3], "smallest value of -1"),
        ],
    )
    def test_tests_out_of_range(self, model, tests, found):
        with pytest.raises(DataError, match=f"one number of tests for all rows or one .*{found}"):
            model.predict(np.zeros((3, 3)), tests)
        with pytest.raises(DataError, match=f"one number of devices for all rows or one .*{found}"):
            model.predict(np.zeros((3, 3)), 1, tests)

    def test_more_devices_than_tests(self, model):
        told = "no more devices than tests, .* in 1 of 3 rows, the first in row 1 with"
        for tests, devices in ([2, 2, np.inf], [1, 3, 9]), (2, [1, 3, 2]), ([9, 2, 9], 3):
            with pytest.raises(DataError, match=f"{told} 3 devices and 2 tests"):
                model.predict(np.zeros((3, 3)), tests, devices)
        with pytest.raises(DataError, match="2 devices and 1 tests"):
            model.predict(np.zeros((3, 3)), None, 2)
        with pytest.raises(DataError, match=f"{told} inf devices and 3 tests"):
            model.predict(np.zeros((3, 3)), 3, [1, np.inf, 1])
        with pytest.raises(DataError, match=f"{told} 3 devices and 2 tests"):
            Data(np.zeros((3, 3)), np.zeros(3), [4, 2, 4], [1, 3, 1])
        rounded = 3 * (0.1 + 0.2) / 0.3
        assert rounded > 3  # by rounding
        Data(np.zeros((1, 3)), np.zeros(1), [3.0], [rounded])

    def test_tests_that_are_not_numbers(self, model):
        with pytest.raises(DataError, match="expected finite tests, found NaN"):
            model.predict(np.zeros((3, 3)), np.nan)

    def test_training_counts_below_1(self):
        low = np.array([0.0, 1.0])
        with pytest.raises(DataError, match="expected 2 numbers of tests, each 1 or more"):
            Data(np.zeros((2, 3)), np.zeros(2), low)
        with pytest.raises(DataError, match="expected 2 numbers of devices, each 1 or more"):
            Data(np.zeros((2, 3)), np.zeros(2), np.ones(2), low)

    @pytest.mark.parametrize("d", [1, 4])
    def test_other_inputs_than_place_and_time(self, d):
        with pytest.raises(
            RequestError, match="field expects two coordinates and optionally a time"
        ):
            build(
                "field",
                Architecture(d=d, units=(1.0,) * d),
                np.random.default_rng(0).uniform(-1, 1, (9, d)),
            )

    def test_no_units(self):
        with pytest.raises(RequestError, match="field needs distances: give Architecture"):
            build("field", Architecture(d=3), _rows(9, 4, 0)[0])

    def test_units_that_do_not_fit(self):
        with pytest.raises(RequestError, match="expected 3 units above 0"):
            Architecture(d=3, units=(1.0, 2.0))


def test_the_joint_posterior_depends_on_the_stored_rows(world):
    model, rows = world
    some, every = (
        joint_posterior(model, Data(rows.x[:n].numpy(), np.zeros(n))) for n in (3, len(rows.x))
    )
    assert torch.equal(some.m, every.m)
    assert torch.equal(some.L, every.L)
