"""Where to measure next: against brute force on dense Gaussians, and by adding the row itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import dense, field_of, grid, make_field, with_drift

from geogp.errors import RequestError
from geogp.models.field.conditioning import condition_on
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint import design
from geogp.models.joint.design import (
    Chosen,
    LevelCovariance,
    SequentialDesign,
    choose,
    covariance_of,
    widest,
)
from geogp.models.joint.level import LocalCovariance, joint_level
from geogp.models.process import memory
from geogp.models.process.rows import Rows


def measure(*given: object, tiles: np.ndarray) -> Chosen:
    """Measure the tiles in the given order."""
    measuring = SequentialDesign(*given)
    for tile in tiles:
        measuring.measure(int(tile))
    return measuring.chosen()


def brute(C: np.ndarray, weights: np.ndarray, noise: np.ndarray, count: int) -> tuple:
    """Choose greedily by conditioning on every single tile, and state what is left."""
    C, chosen, gains = C.copy(), [], []
    for _ in range(count):
        best = None
        for i in range(len(C)):
            if i in chosen:
                continue
            after = C - np.outer(C[:, i], C[i]) / (C[i, i] + noise[i])
            gain = weights @ np.diag(C) - weights @ np.diag(after)
            if best is None or gain > best[0]:
                best = gain, i, after
        gains.append(best[0])
        chosen.append(best[1])
        C = best[2]
    return chosen, gains, C


def conditioned(C: np.ndarray, noise: np.ndarray, tiles: np.ndarray) -> np.ndarray:
    """Condition on all tiles at once."""
    inner = C[np.ix_(tiles, tiles)] + np.diag(noise[tiles])
    return C - C[:, tiles] @ np.linalg.solve(inner, C[tiles])


class World:
    """A small dense Gaussian: low rank and local part."""

    def __init__(self, n: int = 60, seed: int = 0, *, on_grid: bool = False) -> None:
        random = np.random.default_rng(seed)
        self.places = random.uniform(0, 10, (n, 2))
        if on_grid:
            self.places = np.array(np.divmod(np.arange(n), math.isqrt(n)), np.float64).T
        self.low = 0.3 * random.standard_normal((n, 4))
        distance = np.linalg.norm(self.places[:, None] - self.places, axis=2)
        scale = random.uniform(0.5, 1.5, n)
        self.K = np.exp(-distance) * np.outer(scale, scale)
        self.C = self.low @ self.low.T + self.K
        self.weights = random.uniform(0, 1, n)
        self.noise = random.uniform(0.2, 1, n)

    @property
    def covariance(self) -> LevelCovariance:
        local = LocalCovariance(lambda x: self.K @ x, self.places)
        return LevelCovariance(self.low, np.diag(self.C).copy(), local)


class TestDense:
    def test_greedy_is_brute_force(self):
        world = World()
        chosen, gains, C = brute(world.C, world.weights, world.noise, 12)
        found = choose(world.covariance, world.weights, world.noise, 12)
        assert found.tiles.tolist() == chosen
        np.testing.assert_allclose(found.gains, gains, rtol=1e-9)
        np.testing.assert_allclose(found.removed, np.diag(world.C) - np.diag(C), atol=1e-12)
        np.testing.assert_allclose(found.before, np.diag(world.C)[chosen])
        np.testing.assert_allclose(found.after, np.diag(C)[chosen])
        assert found.evaluated == 60

    def test_the_low_rank_alone_needs_no_candidates(self):
        world = World()
        C = world.low @ world.low.T
        covariance = LevelCovariance(world.low, np.diag(C).copy())
        expected = brute(C, world.weights, world.noise, 10)
        found = choose(covariance, world.weights, world.noise, 10, candidates=20)
        assert found.tiles.tolist() == expected[0]
        np.testing.assert_allclose(found.gains, expected[1], rtol=1e-9)

    def test_measuring_in_turn_is_conditioning_at_once(self):
        world, tiles = World(), np.array([3, 40, 7, 8, 59])
        found = measure(world.covariance, world.weights, world.noise, tiles=tiles)
        after = np.diag(conditioned(world.C, world.noise, tiles=tiles))
        np.testing.assert_allclose(found.removed, np.diag(world.C) - after, atol=1e-12)
        total = world.weights @ (np.diag(world.C) - after)
        np.testing.assert_allclose(found.gains.sum(), total, rtol=1e-12)
        turned = measure(world.covariance, world.weights, world.noise, tiles=tiles[::-1])
        np.testing.assert_allclose(turned.removed, found.removed, atol=1e-12)

    # A set of one tile has no products of covariances with two tiles.
    @pytest.mark.parametrize(("side", "error"), [(2, 0.9), (8, 0.02), (12, 1e-3), (20, 1e-12)])
    def test_squares_are_nearer_with_more_probes(self, monkeypatch, side, error):
        world = World(400, on_grid=True)
        monkeypatch.setattr(design, "PROBE_SIDE", side)
        exact = (world.C**2) @ world.weights
        found = world.covariance.about_squares(world.weights, seed=1)
        assert np.abs(found / exact - 1).max() < error

    def test_squares_of_a_few_tiles_need_few_products(self):
        world, products = World(400, on_grid=True), []
        weights = np.where((world.places < 5).all(1), world.weights, 0.0)
        local = LocalCovariance(lambda x: products.append(x.shape[1]) or world.K @ x, world.places)
        covariance = world.covariance
        found = replace(covariance, local=local).about_squares(weights, seed=1)
        np.testing.assert_allclose(found, (world.C**2) @ weights, rtol=1e-10)
        assert sum(products) == 25 + world.low.shape[1]

    def test_tiles_of_a_probe_are_far_from_each_other(self):
        """Also if the distance between rows varies with latitude, and tiles are missing."""
        row, column = np.divmod(np.arange(70 * 40), 40)
        latitude = np.cumsum(np.cos(np.radians(np.linspace(51, 71, 70))))
        kept = np.random.default_rng(0).uniform(size=len(row)) < 0.6
        row, column = row[kept], column[kept]
        probe = design._probes(np.column_stack([0.6 * column, latitude[row]]))
        assert len(np.unique(probe)) == design.PROBE_SIDE**2
        for number in np.unique(probe):
            at = np.flatnonzero(probe == number)
            apart = np.maximum(*(np.abs(n[at, None] - n[at]) for n in (row, column)))
            assert (apart + 99 * np.eye(len(at)) >= design.PROBE_SIDE).all()

    @pytest.mark.parametrize("seed", range(3))
    def test_exact_gains_are_computed_until_no_estimate_is_larger(self, seed):
        world = World(400, seed=seed, on_grid=True)
        expected = brute(world.C, world.weights, world.noise, 8)
        found = choose(world.covariance, world.weights, world.noise, 8, candidates=399)
        assert found.tiles.tolist() == expected[0]
        assert design.EVALUATED_AT_ONCE <= found.evaluated < 200

    def test_no_more_gains_than_needed_are_exact(self, monkeypatch):
        world = World(400, on_grid=True)
        variance = np.diag(world.C) + world.noise
        exact = (world.C**2 @ world.weights) / variance
        estimates = exact * np.random.default_rng(0).uniform(0.7, 1.3, 400)
        covariance = world.covariance
        monkeypatch.setattr(LevelCovariance, "about_squares", lambda *_, **__: estimates * variance)
        monkeypatch.setattr(design, "EVALUATED_AT_ONCE", 1)
        measuring = SequentialDesign(covariance, world.weights, world.noise)
        gains = design._Gains(measuring, np.ones(400, bool), seed=0)
        gains.evaluate(400)
        order = np.argsort(-estimates)
        largest = np.maximum.accumulate(exact[order])
        needed = 1 + int(np.argmax(estimates[order][1:] <= largest[:-1]))
        assert 1 < needed < 100
        assert set(np.flatnonzero(gains.exact)) == set(order[:needed])
        gains.evaluate_all()
        np.testing.assert_allclose(gains.now(), exact, rtol=1e-10)

    @pytest.mark.parametrize("count", [150, 199, 400])
    def test_no_tile_is_chosen_twice(self, count):
        """Where covariances reach far, some estimates are worse than what is left of the gains."""
        places = np.array(np.divmod(np.arange(400), 20), np.float64).T
        K = np.exp(-np.linalg.norm(places[:, None] - places, axis=2) / 10)
        local = LocalCovariance(lambda x: K @ x, places)
        covariance = LevelCovariance(np.zeros((400, 1)), np.ones(400), local)
        among = np.arange(400) > 0 if count < 400 else None
        given = covariance, np.ones(400), np.full(400, 0.3), count
        found = choose(*given, among=among, candidates=min(2 * count, 400))
        assert len(set(found.tiles.tolist())) == count
        assert 0 not in found.tiles or among is None

    def test_few_candidates_are_nearly_as_good(self):
        world = World(n=400, seed=2)
        whole = choose(world.covariance, world.weights, world.noise, 20)
        found = choose(world.covariance, world.weights, world.noise, 20, candidates=80)
        assert found.evaluated <= 80
        assert found.gains.sum() > 0.95 * whole.gains.sum()
        assert len(set(found.tiles.tolist())) == 20
        # What is stated of them is exact all the same.
        after = np.diag(conditioned(world.C, world.noise, found.tiles))
        np.testing.assert_allclose(found.removed, np.diag(world.C) - after, atol=1e-12)

    def test_it_beats_random_and_widest(self):
        world = World(n=200, seed=3)
        given = world.covariance, world.weights, world.noise
        best = choose(*given, 15).gains.sum()
        random = np.random.default_rng(0)
        draws = [measure(*given, tiles=random.permutation(200)[:15]).gains.sum() for _ in range(20)]
        assert best > max(draws)
        assert best > widest(*given, 15).gains.sum()

    def test_only_targets_count(self):
        world = World(n=80, seed=4)
        east = (world.places[:, 0] > 7).astype(float)
        found = choose(world.covariance, east, world.noise, 6)
        everywhere = choose(world.covariance, np.ones(80), world.noise, 6)
        assert (world.places[found.tiles, 0] > 6).mean() > 0.8
        assert (world.places[everywhere.tiles, 0] > 6).mean() < 0.7
        assert found.gains.sum() == pytest.approx(east @ found.removed)
        assert found.gains.sum() > east @ everywhere.removed

    def test_less_noise_gains_more(self):
        world = World()
        found = [
            choose(world.covariance, world.weights, factor * world.noise, 5).gains.sum()
            for factor in (1.0, 0.5, 0.1)
        ]
        assert found[0] < found[1] < found[2]

    def test_closed_tiles_are_never_chosen(self):
        world = World()
        given = (world.covariance, world.weights, world.noise, 6)
        free = choose(*given, candidates=len(world.C))
        among = ~np.isin(np.arange(len(world.C)), free.tiles[:3])
        found = choose(*given, among=among, candidates=len(world.C))
        assert among[found.tiles].all()
        assert among[widest(*given, among=among).tiles].all()
        # Closing a tile is the same as a measurement there without information.
        useless = np.where(among, world.noise, 1e12)
        again = choose(*given[:2], useless, 6, candidates=len(world.C))
        np.testing.assert_array_equal(again.tiles, found.tiles)

    def test_widest_takes_the_widest(self):
        world = World()
        found = widest(world.covariance, world.weights, world.noise, 2)
        first = int(np.argmax(np.diag(world.C)))
        after = np.diag(conditioned(world.C, world.noise, np.array([first])))
        left = np.where(np.arange(60) == first, -1, after)
        assert found.tiles.tolist() == [first, int(np.argmax(left))]

    def test_widest_takes_as_many_as_asked(self):
        world = World()
        few = (np.arange(60) < 3).astype(float)
        found = widest(world.covariance, few, world.noise, 8)
        assert len(set(found.tiles.tolist())) == 8
        assert (found.tiles[:3] < 3).all()
        assert (found.tiles[3:] >= 3).all()
        assert found.gains.sum() < choose(world.covariance, few, world.noise, 8).gains.sum()

    def test_more_tiles_than_columns_held_at_once(self, monkeypatch):
        world = World()
        whole = choose(world.covariance, world.weights, world.noise, 20)
        monkeypatch.setattr(design, "AT_ONCE", 3)
        found = choose(world.covariance, world.weights, world.noise, 20)
        assert found.tiles.tolist() == whole.tiles.tolist()
        np.testing.assert_allclose(found.gains, whole.gains, rtol=1e-10)

    def test_steps_are_told(self):
        world, heard = World(), []
        choose(world.covariance, world.weights, world.noise, 4, heard=heard.append)
        assert heard == [1, 2, 3, 4]


class TestField:
    @pytest.mark.usefixtures("exact")
    def test_greedy_is_brute_force_on_the_dense_process(self, device):
        model, x = make_field(6, 60, device), grid(6)
        level = joint_level(model, None, x, calibrated=False, earlier=36).measured(4)
        _, C = dense(model, x)
        weights = np.random.default_rng(0).uniform(0, 1, 36)
        expected = brute(C, weights, level.noise_variance, 8)
        found = choose(covariance_of(level), weights, level.noise_variance, 8)
        assert found.tiles.tolist() == expected[0]
        np.testing.assert_allclose(found.gains, expected[1], rtol=1e-6)

    @pytest.mark.usefixtures("exact")
    def test_the_gain_is_what_the_row_takes(self, device):
        model, x, tests = make_field(5, 40, device), grid(5), 4.0
        before = joint_level(model, None, x, calibrated=False, earlier=25)
        found = choose(covariance_of(before), np.ones(25), before.measured(tests).noise_variance, 3)
        held, parameters = model.rows, model.parameters
        added = parameters.scaled(x[found.tiles])
        rows = Rows(
            torch.cat([held.x, added]),
            torch.cat([held.y, torch.zeros_like(held.y[:3])]),
            torch.cat([held.counts, parameters.counts_of(tests, None, 3)]),
        )
        # The law of measurements goes no further than the counts ever seen.
        assert (held.counts.max(0).values > rows.counts[-1]).all()
        model = field_of(parameters, rows)
        condition_on(parameters, model.rows)
        after = joint_level(model, None, x, calibrated=False, earlier=25)
        fell = before.single_variances() - after.single_variances()
        np.testing.assert_allclose(fell, found.removed, atol=1e-7)
        np.testing.assert_allclose(fell.sum(), found.gains.sum(), rtol=1e-6)

    def test_products_are_those_of_the_covariance(self):
        model, x = with_drift(make_field(8, 120, seed=4), 0.05, 0.0), grid(8, 2.0)
        level = joint_level(model, None, x)
        C = level.sum_covariance(np.eye(64))
        covariance = covariance_of(level)
        found = covariance.times(np.eye(64))
        np.testing.assert_allclose(found, C, atol=1e-12)
        tiles = np.array([5, 63, 2])
        np.testing.assert_allclose(covariance.columns(tiles), C[:, tiles], atol=1e-12)
        np.testing.assert_allclose(covariance.variance, np.diag(C), rtol=0.15)
        assert level.shared.any()

    def test_more_tests_gain_more(self):
        model, x = make_field(8, 120, seed=4), grid(8)
        level = joint_level(model, None, x)
        found = [
            choose(covariance_of(level), np.ones(64), level.measured(k).noise_variance, 5)
            for k in (1, 5, 30)
        ]
        gains = [one.gains.sum() for one in found]
        assert gains[0] < gains[1] < gains[2]


@pytest.mark.parametrize("name", ["dbk-silu", "sv-rbf", "dbk-exact"])
def test_without_tiles_it_is_the_closed_form(name, train, validation, make_model, monkeypatch):
    model = make_model(name, dtype="float64")
    fit(model, train, validation, FitSettings(epochs=2, batch=64, learning_rate=2e-2))
    x = np.random.default_rng(3).uniform(-1, 1, (40, 2))
    level = joint_level(model, train, x).measured(1)
    C = level.sum_covariance(np.eye(40))
    weights = np.linspace(1, 2, 40)
    found = choose(covariance_of(level), weights, level.noise_variance, 5)
    expected = brute(C, weights, level.noise_variance, 5)
    assert found.tiles.tolist() == expected[0]
    np.testing.assert_allclose(found.gains, expected[1], rtol=1e-8)
    for rows in (design.CHUNK, 7):
        monkeypatch.setattr(design, "CHUNK", rows)
        squares = covariance_of(level).about_squares(weights, seed=0)
        np.testing.assert_allclose(squares, C**2 @ weights, rtol=1e-8)
    np.testing.assert_allclose(covariance_of(level).times(np.eye(40)), C, atol=1e-10)


class TestRefusals:
    @pytest.mark.parametrize(
        ("count", "candidates", "message"),
        [
            (0, 2000, "expected from 1 to 60 tiles to choose, found 0"),
            (61, 2000, "expected from 1 to 60 tiles to choose, found 61"),
            (10, 12, "expected 20 candidates or more for 10 tiles, found 12"),
        ],
    )
    def test_numbers(self, count, candidates, message):
        world = World()
        given = world.covariance, world.weights, world.noise
        with pytest.raises(RequestError, match=message):
            choose(*given, count, candidates=candidates)

    def test_too_little_memory(self, monkeypatch):
        level = joint_level(make_field(5, 50), None, grid(5))
        monkeypatch.setattr(memory, "available_bytes", lambda _: 1000)
        with pytest.raises(RequestError, match=r"among 25 tiles at rank 5 needs about .* GB"):
            covariance_of(level)
        monkeypatch.setattr(memory, "available_bytes", lambda _: 200_000)
        covariance_of(level)
        with pytest.raises(RequestError, match="among 25 tiles"):
            covariance_of(level, 1000)
