"""Predictions from near rows, with and without rows left out, against dense conditioning."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from field_worlds import field_of, grid, make_field, with_home
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from geogp.models.catalogue.build import build
from geogp.models.field import conditioning, left_out
from geogp.models.field import fit as field_fit
from geogp.models.field.blocks import NearRows
from geogp.models.field.conditioning import information_in
from geogp.models.field.fit import FieldFit, drift_of
from geogp.models.field.fitted import FittedField
from geogp.models.field.near_rows import (
    Conditional,
    given_rows,
    history_of,
    left_out_errors,
    near_rows,
    without_rows,
)
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.rows import FieldRows
from geogp.models.field.vecchia import NO_ROW, NearSites, distance_to_others, whiten
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.rows import Rows

Floats = np.ndarray


class World(NamedTuple):
    """Stored rows in plain arrays, for a standardised target; `K` is the tile process's."""

    K: Floats
    phi: Floats
    noise: Floats
    base: Floats
    y: Floats


@pytest.fixture
def model() -> FittedField:
    """Several rows of each of 25 tiles, at five times."""
    made = make_field(5, 60)
    with torch.no_grad():
        made.parameters.law.heads.add_(0.2)  # the noise differs between places
    return made


def _world(model: FittedField) -> World:
    x, sd, nothing = model.rows.x.numpy(), model.y_sd.item(), torch.zeros(5).double()
    with torch.no_grad():
        found = model.parameters.row_terms(model.rows.x, model.rows.counts, nothing)
    K = model.tile_kernel(x, x) / sd**2
    phi, noise, base = (part.numpy() for part in (found.phi, found.noise, found.mean))
    return World(K, phi, noise, base, model.rows.y.numpy())


def _given(world: World, row: int, rows: np.ndarray, m: Floats, L: Floats) -> list[float]:
    """Mean, and variances of field, tile process and noise, of a stored row given others."""
    K, phi, noise, base, y = world
    gain = np.linalg.solve(K[np.ix_(rows, rows)] + np.diag(noise[rows]), K[rows, row])
    mean = base[row] + phi[row] @ m + gain @ (y - base - phi @ m)[rows]
    field = np.square((phi[row] - gain @ phi[rows]) @ L).sum()
    return [mean, field, K[row, row] - gain @ K[rows, row], noise[row]]


def _laws(found: Conditional) -> Floats:
    return torch.stack(found[:4], 1).detach().numpy()


def _weights(model: FittedField) -> tuple[Floats, Floats]:
    m, L = model.parameters.weights
    return m.detach().numpy(), L.detach().numpy()


def _given_near(model: FittedField, rows: slice, near: NearRows) -> Conditional:
    """Predict stored rows from the rows near."""
    x, counts, weights = model.rows.x[rows], model.rows.counts[rows], model.parameters.weights
    with torch.no_grad():
        return given_rows(model.parameters, model.rows, x, counts, near, weights=weights)


def _left_out(model: FittedField, alone: Floats) -> left_out.LeftOutRows:
    return left_out.left_out(model.parameters, model.rows, alone, np.random.default_rng(0))


def _blocks(place: Floats) -> Floats:
    """Groups of places."""
    return (2 * place[:, 0]).round() + 9 * (place[:, 1] > 0)


def _refitted(K: Floats, errors: Floats) -> Floats:
    """Return the standardised error of each row, kriged from all other rows."""
    found = []
    for j in range(len(errors)):
        others = np.arange(len(errors)) != j
        gain = np.linalg.solve(K[np.ix_(others, others)], K[others, j])
        found.append((errors[j] - gain @ errors[others]) / np.sqrt(K[j, j] - gain @ K[others, j]))
    return np.array(found)


def _covariances(blocks: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    root = torch.randn(blocks, n, n + 3, generator=random, dtype=torch.float64)
    return root @ root.mT, torch.randn(blocks, n, generator=random, dtype=torch.float64)


def test_left_out_errors_are_those_of_kriging_without_each_row():
    K, errors = _covariances(3, 20)  # more rows than a stripe
    found = left_out_errors(torch.linalg.cholesky(K), torch.linalg.solve(K, errors))
    expected = [_refitted(*pair) for pair in zip(K.numpy(), errors.numpy(), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_padding_has_no_error_and_changes_none():
    K, errors = _covariances(1, 7)
    known = torch.tensor([[True, True, False, True, True, False, True]])
    factor, white = whiten(K, torch.zeros(1, 7).double(), known, errors[..., None])
    solved = torch.linalg.solve_triangular(factor.mT, white, upper=True)
    found = left_out_errors(factor, solved[..., 0])[0]
    rows = known[0].numpy()
    expected = _refitted(K[0].numpy()[np.ix_(rows, rows)], errors[0].numpy()[rows])
    np.testing.assert_allclose(found[rows], expected, rtol=1e-9)
    assert not found[~rows].any()


def test_history_against_a_plain_loop():
    random = np.random.default_rng(0)
    z, w = random.standard_normal((4, 6)), random.uniform(0, 1, (4, 6))
    same, log_tests = random.random((4, 6)) < 0.4, np.log(random.integers(1, 30, (4, 6)))
    expected = []
    for k in range(4):
        own, near = [1.0, 1.0, 0.0], [1.0, 1.0]
        tests = [0.0, 1.0]
        for j in range(6):
            if same[k, j]:
                own = [own[0] + z[k, j] ** 2, own[1] + 1, own[2] + z[k, j]]
            else:
                near = [near[0] + (w[k, j] * z[k, j]) ** 2, near[1] + w[k, j] ** 2]
            tests = [tests[0] + w[k, j] * log_tests[k, j], tests[1] + w[k, j]]
        scatter = np.log(own[0] / own[1]), np.log(near[0] / near[1])
        expected.append([*scatter, np.log(own[1]), own[2] / own[1], tests[0] / tests[1]])
    found = history_of(*(torch.from_numpy(part) for part in (z, w, same, log_tests)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_one_prediction_is_the_dense_formula(model):
    world, row, rows = _world(model), 7, np.array([3, 8, 9, 20, 41, 44])
    at = slice(row, row + 1)
    near = NearRows.of(np.array([[*rows[:3], NO_ROW, *rows[3:]]]), model.device)
    found = _given_near(model, at, near)
    m, L = _weights(model)
    np.testing.assert_allclose(_laws(found)[0], _given(world, row, rows, m, L), rtol=1e-9)
    errors = (world.y - world.base - world.phi @ m)[rows]
    z = _refitted(world.K[np.ix_(rows, rows)] + np.diag(world.noise[rows]), errors)
    points, tiles = model.rows.points, model.parameters.tiles
    with torch.no_grad():
        w = (tiles(points[rows], points[at]) / tiles.variance())[:, 0].numpy()
    same = (points[rows, :2] == points[row, :2]).all(1).numpy()
    assert 0 < same.sum() < len(rows)
    given = (z, w, same, np.log(model.rows.counts[rows, 0].numpy()))
    expected = history_of(*(torch.from_numpy(part)[None] for part in given))
    np.testing.assert_allclose(found.history, expected, rtol=1e-8)


def test_without_near_rows_there_is_the_prior_and_no_history(model):
    x, counts = model.rows.x[:9], model.rows.counts[:9]
    nothing = NearRows.of(np.full((9, 4), NO_ROW), model.device)
    found = _given_near(model, slice(9), nothing)
    with torch.no_grad():
        alone = without_rows(model.parameters, model.rows, x, counts, model.parameters.weights)
    assert not found.history.any()
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    prior = model.tile_kernel(x.numpy(), x.numpy()).diagonal() / model.y_sd.item() ** 2
    np.testing.assert_allclose(alone.tile, prior, rtol=1e-12)


def test_predictions_are_the_same_without_history(model):
    counts = model.parameters.well_measured(60)
    full, part = (model.conditional(model.rows.x, counts, history=h) for h in (True, False))
    for one, other in zip(full[:4], part[:4], strict=True):
        assert torch.equal(one, other)
    assert full.history.any()
    assert not part.history.any()
    # A law that does not depend on covariates does not need them.
    assert model.errors.law.is_constant
    stated = model.predict_scaled(model.rows.x, counts)
    np.testing.assert_array_equal(
        stated.mean, (model.y_mean + model.y_sd * full.mean).double().numpy()
    )


ALONE, GROUPED = np.ones(60, bool), np.zeros(60, bool)


@pytest.mark.usefixtures("exact")
class TestLeftOut:
    def test_a_single_row_is_predicted_from_all_others(self, model):
        rows, found, *_ = _left_out(model, ALONE)
        world, every = _world(model), np.arange(60)
        expected = [_given(world, j, every[every != j], *_weights(model)) for j in every]
        np.testing.assert_allclose(_laws(found), expected, rtol=1e-8)
        np.testing.assert_array_equal(rows.y, model.rows.y)

    def test_a_group_is_predicted_from_all_others(self, model):
        """The weights have the posterior given the other groups' rows alone, in closed form."""
        model = self._grouped(model, _blocks)
        group = model.rows.groups.numpy()
        rows, found, distance, nearest, _ = _left_out(model, GROUPED)
        world, at = _world(model), [model.rows.y.tolist().index(y) for y in rows.y]
        assert sorted(at) == list(range(60))
        assert rows.groups.tolist() == group[at].tolist()
        expected = np.empty((60, 4))
        for one in np.unique(group):
            others = np.flatnonzero(group != one)
            phi, own = world.phi[others], world.K[np.ix_(others, others)]
            weight = np.linalg.inv(own + np.diag(world.noise[others]))
            S = np.linalg.inv(np.eye(5) + phi.T @ weight @ phi)
            m = S @ phi.T @ weight @ (world.y - world.base)[others]
            L = np.linalg.cholesky(S)
            for j in np.flatnonzero(group == one):
                expected[j] = _given(world, j, others, m, L)
        np.testing.assert_allclose(_laws(found), expected[at], rtol=1e-7)
        assert len(np.unique(group)) > 4
        place = model.rows.points[:, :2].numpy()
        others = [KDTree(np.unique(place[group != group[j]], axis=0)) for j in at]
        away = [distance_to_others(t, place[[j]])[0] for t, j in zip(others, at, strict=True)]
        np.testing.assert_allclose(distance, away, rtol=1e-12)
        away = [t.query(place[j])[0] for t, j in zip(others, at, strict=True)]
        np.testing.assert_allclose(nearest, away, rtol=1e-12)
        points = model.parameters.points(rows.x).numpy()
        assert (distance > model.rows.distance_to_others(points)).any()

    def test_all_rows_as_one_group_or_each_as_its_own_are_left_out_alone(self, model):
        one = self._grouped(model, lambda place: 0 * place[:, 0])
        own = self._grouped(model, lambda place: np.arange(len(place)))
        random = np.random.default_rng(0)
        for rows in (model.rows, one.rows, own.rows):
            np.testing.assert_array_equal(left_out.rows_alone(rows, random), ALONE)
        expected, found = (_left_out(field, ALONE).predicted for field in (model, one))
        np.testing.assert_array_equal(_laws(found), _laws(expected))

    def test_of_rows_in_groups_a_quarter_are_left_out_alone(self, model):
        """Each row then has the prediction of its kind."""
        model = self._grouped(model, _blocks)
        alone = left_out.rows_alone(model.rows, np.random.default_rng(1))
        assert alone.sum() == 15
        single, grouped, both = (_left_out(model, kind) for kind in (ALONE, GROUPED, alone))
        numbers = both.numbers.numpy()
        assert sorted(numbers) == list(range(60))
        assert both.rows.groups.tolist() == model.rows.groups[numbers].tolist()
        for name in ("predicted", "distance", "nearest"):
            kinds = [self._by_number(part, name) for part in (single, grouped, both)]
            expected = np.where(alone.reshape(60, *[1] * (kinds[0].ndim - 1)), *kinds[:2])
            np.testing.assert_allclose(kinds[2], expected, rtol=1e-9)
            assert not np.allclose(kinds[0], kinds[1])

    def test_of_more_rows_some_are_chosen(self, model, monkeypatch):
        every = _laws(_left_out(model, ALONE).predicted)
        monkeypatch.setattr(left_out, "MOST_ROWS", 20)
        rows, found, *_, numbers = _left_out(model, ALONE)
        assert rows.y.tolist() == model.rows.y[numbers].tolist()
        assert len(numbers.unique()) == 20
        np.testing.assert_allclose(_laws(found), every[numbers], rtol=1e-9)

    def test_a_row_left_out_alone_does_not_know_its_own_value(self, model):
        model = with_home(model, 2.0, 0.3)
        changed = model.rows.y.clone()
        changed[11] += 100
        other = replace(model, rows=replace(model.rows, y=changed))
        first, second = (self._by_number(_left_out(m, ALONE), "predicted") for m in (model, other))
        np.testing.assert_array_equal(second[11], first[11])
        assert (second != first).any(1).sum() == 59

    def test_far_from_other_rows_a_row_left_out_goes_home(self, model):
        """As a field of the other rows does, with the same home and the same weights."""
        model = with_home(model, 2.0, 0.3)
        places = model.rows.points[:, :2].numpy()
        apart = np.where(np.eye(60, dtype=bool), np.inf, cdist(places, places)).min(1)
        found = _left_out(model, ALONE)
        np.testing.assert_allclose(self._by_number(found, "nearest"), apart, atol=1e-12)
        laws = self._by_number(found, "predicted")
        lonely = np.flatnonzero(apart > 0)
        assert len(lonely) > 2
        for j in [*lonely, 0]:
            others = model.rows.rows.at(torch.arange(60) != j)
            field = field_of(deepcopy(model.parameters), others)
            rows = replace(field.rows, home=model.rows.home)
            field = replace(field, parameters=model.parameters, rows=rows)
            at = slice(j, j + 1)
            expected = _laws(field.conditional(model.rows.x[at], model.rows.counts[at]))[0]
            np.testing.assert_allclose(laws[j], expected, rtol=1e-8)

    def test_of_more_held_out_rows_some_are_chosen(self, model, monkeypatch):
        rows = Rows(model.rows.x + 0.01, model.rows.y, model.rows.counts)
        every = field_fit._held_out(model, rows, np.random.default_rng(0))
        assert len(every.distance) == len(every.rows.y) == 60
        monkeypatch.setattr(field_fit, "MOST_HELD_OUT", 20)
        some = field_fit._held_out(model, rows, np.random.default_rng(0))
        at = [rows.y.tolist().index(y) for y in some.rows.y]
        assert len(set(at)) == 20
        assert some.numbers.tolist() == [len(model.rows) + number for number in at]
        np.testing.assert_allclose(_laws(some.predicted), _laws(every.predicted)[at], rtol=1e-9)
        np.testing.assert_array_equal(some.distance, every.distance[at])

    @staticmethod
    def _by_number(found: left_out.LeftOutRows, name: str) -> Floats:
        """A part of the result, in the order of the stored rows."""
        values = getattr(found, name)
        values = values if isinstance(values, np.ndarray) else _laws(values)
        return values[np.argsort(found.numbers.numpy())]

    @staticmethod
    def _grouped(model: FittedField, rule: Callable[[Floats], Floats]) -> FittedField:
        """The field of the same rows, which are in the groups of a rule of their places."""
        group = rule(model.rows.x[:, :2].numpy()).astype(np.int64)
        return field_of(model.parameters, model.rows.rows._replace(groups=torch.from_numpy(group)))


def test_places_that_are_not_searched_give_no_rows(model):
    """Farther places take their room; a row that is left out has none."""
    parameters, rows = model.parameters, replace(model.rows, numbers=(6, 4))
    sites, points = rows.sites, rows.points.numpy()
    searched = sites.centre[:, 0] > 0
    near = near_rows(parameters, rows, points, among=NearSites.of(sites, searched)).numbers
    for place, found in zip(points[:, :2], near.numpy(), strict=True):
        distance = np.where(searched, np.hypot(*(sites.centre - place).T), np.inf)
        chosen = np.unique(points[found[found != NO_ROW], :2], axis=0)
        assert len(chosen) == 4
        assert np.hypot(*(chosen - place).T).max() == pytest.approx(np.sort(distance)[3])
    own = torch.arange(60)
    every = near_rows(parameters, rows, points).numbers
    others = near_rows(parameters, rows, points, without=own.numpy()).numbers
    assert (every == own[:, None]).sum(1).tolist() == [1] * 60
    assert torch.equal(others, every.masked_fill(every == own[:, None], NO_ROW))


def test_a_fit_hands_the_groups_of_its_rows_to_the_errors(monkeypatch):
    seen = []

    def watched(
        parameters: FieldParameters, rows: FieldRows, alone: Floats, rng: np.random.Generator
    ) -> object:
        seen.append((rows, alone))
        return left_out.left_out(parameters, rows, alone, rng)

    monkeypatch.setattr(field_fit, "left_out", watched)
    random = np.random.default_rng(0)
    x = random.permutation(np.vstack([grid(8), grid(8, 0.0)]))
    data = Data(x, random.standard_normal(128), groups=(7 + (x[:, 0] > 0)).astype(np.int64))
    sizes = Architecture(d=3, h=4, r=3, blocks=1, dtype="float64", units=(6.0, 6.0, 4.0))
    laws = []
    for train in (data, Data(data.x, data.y)):
        parameters = build("field", sizes, x, seed=0)
        model, _ = fit(parameters, train, data.at(np.arange(9)), FitSettings(epochs=1, batch=32))
        laws.append(model.errors.law.coefficients)
        assert model.rows.groups is None
    (grouped, some), (single, every) = seen
    assert (some.sum(), every.sum()) == (32, 128)
    assert grouped.groups.tolist() == (7 + (grouped.x[:, 0] > 0)).tolist()
    assert len(single.groups.unique()) == len(single) == 128
    assert not np.array_equal(*laws)


@pytest.mark.usefixtures("exact")
def test_validation_rows_condition_predictions(model):
    """After the last step, the weights have their posterior given all rows, in closed form."""
    rows = model.rows.rows
    train, others = rows.at(torch.arange(40)), rows.at(torch.arange(40, 60))
    last = FieldFit(model.parameters)
    last.start(train, 0, resumed=True)
    drift = drift_of(model.parameters, last.field.rows).detach()
    model = last.finish(others)
    assert sorted(model.rows.y.tolist()) == sorted(rows.y.tolist())
    assert drift.any()
    assert torch.equal(model.drift, drift)
    world = _world(model)
    weight = np.linalg.inv(world.K + np.diag(world.noise))
    S = np.linalg.inv(np.eye(5) + world.phi.T @ weight @ world.phi)
    m, L = _weights(model)
    np.testing.assert_allclose(L @ L.T, S, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(m, S @ world.phi.T @ weight @ (world.y - world.base), rtol=1e-7)
    for one, other in zip(model.conditioned(rows), (m, L), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_fit_ends_with_all_rows_stored():
    random = np.random.default_rng(0)
    data = Data(np.vstack([grid(8), grid(8, 0.0)]), random.standard_normal(128))
    sizes = Architecture(d=3, h=4, r=3, blocks=1, dtype="float64", units=(6.0, 6.0, 4.0))
    train, held = data.at(np.arange(128) >= 9), data.at(np.arange(9))
    settings = FitSettings(epochs=1, batch=32)
    model, _ = fit(build("field", sizes, data.x, seed=0), train, held, settings)
    assert len(model.rows.y) == 128
    expected = model.parameters.standardised(data.y).double()
    np.testing.assert_allclose(np.sort(model.rows.y), np.sort(expected), rtol=1e-6)
    assert model.errors.law.coefficients.any()


def test_threads_and_chunks_change_no_prediction(model, monkeypatch):
    x, counts = model.rows.x[:50], model.rows.counts[:50]
    before = torch.get_num_threads()
    found = []
    try:
        for threads, places, blocks in ((1, 1024, 128), (1, 8, 3), (3, 8, 3)):
            torch.set_num_threads(threads)
            monkeypatch.setattr(conditioning, "PLACES_AT_ONCE", places)
            monkeypatch.setattr(conditioning, "BLOCKS_AT_ONCE", blocks)
            kept = information_in(model.parameters, model.rows)
            found.append((*model.conditionals(x, counts).at, *kept))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(found[0], found[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    for one, other in zip(found[1], found[2], strict=True):
        assert torch.equal(one, other)
