"""The level of many tiles together: against dense Gaussian conditioning, and by its own draws."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import dense, grid, make_field, of_provider, with_drift
from scipy import sparse

from geogp.answers.areas import median_sds
from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build
from geogp.models.field import tile_sequence
from geogp.models.field.fitted import FittedField
from geogp.models.field.predictive_law import no_law
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint.law import joint_posterior
from geogp.models.joint.level import JointLevel, joint_level
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.posteriors import VariationalPosterior


def _points(field: FittedField, x: np.ndarray) -> np.ndarray:
    """Inputs in km and quarters."""
    return field.parameters.points(field.parameters.scaled(x)).numpy()


def areas(n: int, side: int) -> np.ndarray:
    """Weights of means over the four quarters of a square, and over all of it."""
    column, row = np.arange(n) % side, np.arange(n) // side
    quarter = (2 * column >= side) * 2 + (2 * row >= side)
    weights = np.column_stack([*(quarter == k for k in range(4)), np.ones(n, bool)]).astype(float)
    return weights / weights.sum(0)


@pytest.mark.usefixtures("exact")
class TestAgainstDense:
    def test_everything_is_that_of_the_dense_process(self, device):
        model = make_field(6, 60, device)
        x = grid(6)
        level = joint_level(model, None, x, calibrated=False, earlier=36)
        mean, covariance = dense(model, x)
        np.testing.assert_allclose(level.mean, mean, atol=1e-8)
        weights = areas(36, 6)
        expected = weights.T @ covariance @ weights
        np.testing.assert_allclose(level.sum_means(weights), weights.T @ mean, atol=1e-8)
        np.testing.assert_allclose(level.sum_covariance(weights), expected, atol=1e-8)
        np.testing.assert_allclose(level.sum_variances(weights), np.diag(expected), atol=1e-8)
        every = sparse.identity(36, format="csr")
        np.testing.assert_allclose(level.sum_covariance(every), covariance, atol=1e-8)
        np.testing.assert_allclose(level.single_variances(), np.diag(covariance), atol=1e-8)
        assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 0.01

    def test_providers_share_one_distribution(self):
        model, x = make_field(5, 60, by_provider=True), grid(5)
        both = np.concatenate([of_provider(x, number) for number in (0, 1)])
        level = joint_level(model, None, both, calibrated=False, earlier=50)
        mean, covariance = dense(model, both)
        np.testing.assert_allclose(level.mean, mean, atol=1e-8)
        weights = areas(25, 5)
        difference = np.concatenate([weights, -weights])
        expected = difference.T @ covariance @ difference
        np.testing.assert_allclose(level.sum_covariance(difference), expected, atol=1e-8)
        apart = weights.T @ (covariance[:25, :25] + covariance[25:, 25:]) @ weights
        assert (np.diag(expected) < 0.9 * np.diag(apart)).all()  # what both share cancels

    def test_before_any_row_it_is_field_plus_tile_process(self):
        model, x = make_field(4, 30), two_times(4, -0.5, 1.0)
        tiles = np.array([0, 3, 17, 30])
        level = joint_level(model, None, x, calibrated=False)
        at = x[tiles]
        expected = model.kernel(at, at) + model.tile_kernel(at, at)
        np.testing.assert_allclose(level.prior_covariance(tiles), expected, rtol=1e-9)
        assert (np.diag(expected) > level.single_variances()[tiles]).all()

    def test_the_order_of_the_tiles_does_not_matter(self):
        model, x = make_field(5, 50), grid(5)
        first, other = (
            joint_level(model, None, x, earlier=25, seed=seed).sum_covariance(np.eye(25))
            for seed in (0, 1)
        )
        np.testing.assert_allclose(first, other, atol=1e-9)


class TestApproximation:
    SIDE = 24

    @pytest.fixture(scope="class")
    @staticmethod
    def model() -> FittedField:
        return make_field(24, 800, seed=3)

    @pytest.fixture(scope="class")
    @staticmethod
    def level(model) -> JointLevel:
        return joint_level(model, None, grid(24), calibrated=False)

    def test_sums_vary_as_in_the_dense_process(self, model, level):
        mean, covariance = dense(model, grid(self.SIDE))
        weights = areas(self.SIDE**2, self.SIDE)
        expected = np.diag(weights.T @ covariance @ weights)
        np.testing.assert_allclose(level.sum_variances(weights), expected, rtol=0.05)
        np.testing.assert_allclose(
            level.sum_means(weights), weights.T @ mean, atol=0.6 * np.sqrt(expected).min()
        )

    def test_single_tiles_vary_as_in_prediction(self, level):
        found = level.sum_variances(sparse.identity(len(level), format="csc"))
        ratio = found / level.single_variances()
        assert np.abs(ratio - 1).max() < 0.1
        assert abs(np.mean(ratio) - 1) < 0.03

    def test_a_mean_varies_more_than_if_its_tiles_were_independent(self, level):
        weights = areas(len(level), self.SIDE)
        independent = (weights**2).T @ level.single_variances()
        assert (level.sum_variances(weights) > 2 * independent).all()

    def test_paths_vary_as_the_sums_do(self, level):
        paths = np.concatenate(list(level.paths(2000, seed=1)))
        assert paths.shape == (2000, len(level))
        weights = areas(len(level), self.SIDE)
        drawn, covariance = paths @ weights, level.sum_covariance(weights)
        error = (drawn.mean(0) - level.sum_means(weights)) / np.sqrt(np.diag(covariance) / 2000)
        assert np.abs(error).max() < 4
        product = np.outer(np.diag(covariance), np.diag(covariance))
        spread = np.sqrt((covariance**2 + product) / 2000)
        assert np.abs((np.cov(drawn.T) - covariance) / spread).max() < 4

    def test_paths_around_a_large_mean_keep_their_deviations(self, level):
        far = replace(level, mean=level.mean + 1e8)
        first, moved = (np.concatenate(list(one.paths(40, seed=3))) for one in (level, far))
        assert moved.dtype == np.float64
        np.testing.assert_allclose(moved - 1e8, first, atol=1e-6)

    def test_a_seed_gives_the_same_paths(self, level):
        first, again, other = (
            np.concatenate(list(level.paths(40, seed=seed))) for seed in (7, 7, 8)
        )
        np.testing.assert_array_equal(first, again)
        assert np.abs(first - other).max() > 0.01

    def test_sums_that_contain_each_other_can_be_drawn(self, level):
        single = replace(level, tiles=replace(level.tiles, low=level.tiles.low.astype(np.float32)))
        several = np.random.default_rng(0).uniform(0, 1e4, (5, 12))
        sums = single.weighted_sums(areas(len(level), self.SIDE) @ several)
        values = np.linalg.eigvalsh(sums.covariance)
        assert values.min() > -1e-12 * values.max()
        assert sums.sample(3).shape == (3, 12)

    def test_no_sums_have_no_covariance(self, level):
        nothing = np.zeros((len(level), 0))
        assert level.sum_covariance(nothing).shape == (0, 0)
        assert level.sum_variances(nothing).shape == level.sum_means(nothing).shape == (0,)

    def test_sums_in_blocks_are_those_at_once(self, level, monkeypatch):
        weights = areas(len(level), self.SIDE)
        whole = level.sum_variances(weights)
        monkeypatch.setattr("geogp.models.joint.level.AT_ONCE", 2)
        np.testing.assert_allclose(level.sum_variances(weights), whole, rtol=1e-12)

    def test_patches_depend_on_tiles_of_earlier_groups_alone(self, level):
        tiles, n = level.tiles, len(level)
        every = tiles.tiles.flatten()
        np.testing.assert_array_equal(every[every < n].sort()[0], np.arange(n))
        assert (tiles.groups[0].start, tiles.groups[-1].stop) == (0, len(tiles.tiles))
        assert len(tiles.groups) < 0.6 * len(tiles.tiles)
        known = torch.tensor([n])
        for group in tiles.groups:
            assert torch.isin(tiles.earlier[group], known).all()
            known = torch.cat([known, tiles.tiles[group].flatten()])

    def test_solutions_are_those_of_the_dense_matrices(self, level):
        tiles, n = level.tiles, len(level)
        random = np.random.default_rng(2).standard_normal((n, 3))
        C, F = np.zeros((2, n + 1, n + 1))
        for own, earlier, weights, factor in zip(
            tiles.tiles, tiles.earlier, tiles.C, tiles.F, strict=True
        ):
            C[np.ix_(own, earlier)] = weights
            F[np.ix_(own, own)] = factor
        assert not C[n].any()
        assert not F[n].any()
        inverse, F = np.linalg.inv(np.eye(n) - C[:n, :n]), F[:n, :n]
        forward, close = inverse @ random, {"rtol": 1e-10, "atol": 1e-12}
        np.testing.assert_allclose(tiles.forward(random), forward, **close)
        np.testing.assert_allclose(tiles.drawn(random), inverse @ F @ random, **close)
        np.testing.assert_allclose(tiles.roots(random), F.T @ inverse.T @ random, **close)
        single = tiles.forward(random.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, forward, rtol=1e-4, atol=1e-5)

    def test_patches_agree_with_single_tiles(self, model, level, monkeypatch):
        monkeypatch.setattr(tile_sequence, "PATCH_TILES", (1, 1))
        alone = joint_level(model, None, grid(self.SIDE), calibrated=False)
        weights = areas(self.SIDE**2, self.SIDE)
        variance = alone.sum_variances(weights)
        np.testing.assert_allclose(level.sum_variances(weights), variance, rtol=0.05)
        change = level.sum_means(weights) - alone.sum_means(weights)
        assert (np.abs(change) < 0.5 * np.sqrt(variance)).all()

    def test_a_patch_has_neighbours(self, model):
        points = _points(model, np.vstack([grid(9, 0.0), grid(9, 1.0)]))
        patches = tile_sequence._patches(points, tile_sequence.PATCH_TILES)
        np.testing.assert_array_equal(np.sort(patches.order), np.arange(2 * 81))
        parts = [points[part] for part in np.split(patches.order, patches.first[1:])]
        assert max(map(len, parts)) <= 8
        assert all(len(part) == 2 * len(np.unique(part[:, :2], axis=0)) for part in parts)
        width = np.diff(np.unique(points[:, 0]))[0]
        assert all((np.ptp(part[:, :2], axis=0) < 1.01 * width).all() for part in parts)
        assert np.mean([len(part) for part in parts]) > 5

    def test_at_one_time_patches_are_squares_of_three_by_three(self):
        """Also if rounding moves the edges of patches."""
        east, north = np.meshgrid(4321.7 + 0.3 * np.arange(12), 0.3 * np.arange(12))
        points = np.column_stack([east.ravel(), north.ravel(), np.zeros(144)])
        patches = tile_sequence._patches(points, tile_sequence.PATCH_TILES)
        parts = [points[part] for part in np.split(patches.order, patches.first[1:])]
        assert [len(part) for part in parts] == 16 * [9]
        assert all((np.ptp(part[:, :2], axis=0) < 0.601).all() for part in parts)

    def test_patches_of_scattered_points_have_little_padding(self, model):
        """One dense spot must not make all blocks as large as its own."""
        random = np.random.default_rng(0)
        x = np.vstack([random.uniform(-1, 1, (400, 3)), random.uniform(0, 0.01, (30, 3))])
        x[:, 2] = 0
        points = _points(model, x)
        patches = tile_sequence._patches(points, tile_sequence.PATCH_TILES)
        np.testing.assert_array_equal(np.sort(patches.order), np.arange(430))
        assert patches.count.max() <= np.ceil(2 * 430 / len(np.unique(patches.centre, axis=0)))

    def test_without_earlier_tiles_single_ones_are_those_of_prediction(self, model):
        x = grid(self.SIDE)
        level = joint_level(model, None, x, calibrated=False, earlier=0)
        stated = model.predict(x, level=True)
        single = level.sum_variances(sparse.identity(len(x), format="csc"))
        np.testing.assert_allclose(single, stated.function_variance, rtol=1e-8)
        np.testing.assert_allclose(level.single_variances(), single, rtol=1e-10)
        np.testing.assert_allclose(level.mean, stated.mean, rtol=1e-8)


def two_times(side: int, first: float, second: float) -> np.ndarray:
    """Tiles of a square at two times, (2 side², 3)."""
    return np.vstack([grid(side, first), grid(side, second)])


def changes(n: int, side: int) -> np.ndarray:
    """Weights of the changes of the means of `areas` between two times, (2 n, 5)."""
    return np.vstack([-areas(n, side), areas(n, side)])


class TestTwoTimes:
    @pytest.mark.usefixtures("exact")
    def test_changes_are_those_of_the_dense_process(self):
        model, x = make_field(5, 60), two_times(5, -0.5, 1.0)
        level = joint_level(model, None, x, calibrated=False, earlier=50)
        mean, covariance = dense(model, x)
        weights = changes(25, 5)
        expected = weights.T @ covariance @ weights
        np.testing.assert_allclose(level.sum_means(weights), weights.T @ mean, atol=1e-8)
        np.testing.assert_allclose(level.sum_variances(weights), np.diag(expected), atol=1e-8)
        # Neither independent times nor a difference of two intervals.
        half = level.sum_variances(np.abs(weights))
        apart = np.diag(areas(25, 5).T @ covariance[:25, :25] @ areas(25, 5))
        apart = apart + np.diag(areas(25, 5).T @ covariance[25:, 25:] @ areas(25, 5))
        assert (np.diag(expected) < 0.9 * apart).all()
        assert (half > 1.1 * apart).all()

    def test_few_earlier_tiles_are_enough(self):
        model, x, weights = make_field(15, 500, seed=3), two_times(15, 0.5, 1.0), changes(225, 15)
        level = joint_level(model, None, x, calibrated=False)
        expected = np.diag(weights.T @ dense(model, x)[1] @ weights)
        np.testing.assert_allclose(level.sum_variances(weights), expected, rtol=0.08)

    def test_paths_change_as_the_sums_do(self):
        model, weights = with_drift(make_field(8, 120, seed=4), 0.05, 0.01), changes(64, 8)
        level = joint_level(model, None, two_times(8, 0.0, 2.0))
        drawn = np.concatenate(list(level.paths(2000, seed=1))) @ weights
        ratio = drawn.var(0) / level.sum_variances(weights)
        assert np.abs(ratio - 1).max() < 4 * np.sqrt(2 / 2000)


class TestCalibration:
    @pytest.fixture
    def model(self) -> FittedField:
        model = make_field(8, 120, seed=4)
        law = no_law()
        # By the logarithm of the number of tests, from 0 to 3.
        law.ranges[:, 0] = 0.0, 3.0, 1.5, 1.0
        law.coefficients[:2, :2] = [[0.1, 0.02], [0.3, -0.02]]
        return replace(model, errors=replace(model.errors, law=law))

    def test_single_tiles_are_those_of_the_map(self, model):
        x = grid(8)
        level = joint_level(model, None, x)
        stated = model.predict(x, level=True)
        np.testing.assert_allclose(level.mean, stated.mean)
        np.testing.assert_allclose(level.single_variances(), stated.function_variance)
        raw = joint_level(model, None, x, calibrated=False)
        assert (level.single_variances() > 1.3 * raw.single_variances()).all()

    def test_measurements_have_noise_and_shift(self, model):
        x, weights = grid(8), areas(64, 8)
        level = joint_level(model, None, x)
        measured = level.measured(3)
        stated = model.predict(x, 3)
        np.testing.assert_allclose(measured.mean, stated.mean)
        np.testing.assert_allclose(measured.single_variances(), stated.function_variance)
        np.testing.assert_allclose(level.noise_of(3), measured.noise_variance, rtol=1e-12)
        added = measured.sum_variances(weights, noise=True) - measured.sum_variances(weights)
        np.testing.assert_allclose(added, (weights**2).T @ stated.noise_variance)
        assert (level.sum_variances(weights, noise=True) == level.sum_variances(weights)).all()

    def test_measurements_of_the_raw_law(self, model):
        x, sd = grid(8), model.y_sd.item()
        level = joint_level(model, None, x, calibrated=False)
        measured = level.measured(3)
        parameters = model.parameters
        counts = parameters.counts_of(3.0, None, 64)
        noise = parameters.row_terms(parameters.scaled(x), counts).noise.detach().numpy()
        np.testing.assert_allclose(measured.noise_variance, noise * sd**2)
        shift = parameters.law.shift(torch.cat([counts[:1], parameters.well_measured(1)])).detach()
        np.testing.assert_allclose(measured.mean - level.mean, sd * (shift[0] - shift[1]))

    def test_beyond_the_data_all_tiles_move_together(self, model):
        drifting = with_drift(model, 0.05, 0.0)
        now, later = (
            joint_level(drifting, None, grid(8, time), calibrated=False) for time in (1.0, 2.0)
        )
        assert not now.shared.any()
        np.testing.assert_allclose(later.shared**2, 4 * 0.05 * 0.25)
        alone = later.single_variances()
        still = joint_level(model, None, grid(8, 2.0), calibrated=False)
        weights = areas(64, 8)
        more = later.sum_covariance(weights) - still.sum_covariance(weights)
        np.testing.assert_allclose(more, 0.05, rtol=1e-6)
        alone -= still.single_variances()
        np.testing.assert_allclose(alone, 0.05, rtol=1e-6)
        drawn = np.concatenate(list(later.paths(400))) @ weights
        assert np.var(drawn.mean(1)) > 0.04


class TestWithoutTiles:
    @pytest.fixture
    def fitted(self, train, validation, make_model):
        def make(name):
            model = make_model(name, dtype="float64")
            fit(model, train, validation, FitSettings(epochs=4, batch=64, learning_rate=2e-2))
            return model

        return make

    @pytest.mark.parametrize("name", ["dbk-silu", "vbll", "dnn"])
    def test_it_is_the_closed_form(self, name, fitted, train):
        model, x = fitted(name), np.random.default_rng(3).uniform(-1, 1, (40, 2))
        level, posterior = joint_level(model, train, x), joint_posterior(model, train)
        np.testing.assert_allclose(level.mean, posterior.mean(x))
        covariance = posterior.covariance(x, x)
        np.testing.assert_allclose(level.sum_covariance(np.eye(40)), covariance, atol=1e-12)
        np.testing.assert_allclose(level.single_variances(), posterior.variance(x), rtol=1e-9)
        weights = np.full((40, 1), 1 / 40)
        paths = np.concatenate(list(level.paths(4000))) @ weights
        variance = level.sum_variances(weights)[0]
        assert abs(paths.var() / variance - 1) < 4 * np.sqrt(2 / 4000)

    def test_many_paths_take_one_pass_over_the_features(self, fitted, train, monkeypatch):
        x, passes = np.random.default_rng(3).uniform(-1, 1, (40, 2)), []
        level = joint_level(fitted("dbk-silu"), train, x)
        chunks = type(level.model).feature_chunks
        monkeypatch.setattr(
            type(level.model),
            "feature_chunks",
            lambda *given: passes.append(0) or chunks(*given),
        )
        drawn = np.concatenate(list(level.paths(100)))
        assert (len(passes), drawn.shape) == (1, (100, 40))
        # With hardly any memory, each batch needs its own pass.
        monkeypatch.setattr("geogp.models.joint.level.HELD_BYTES", 1)
        assert np.concatenate(list(level.paths(100))).shape == (100, 40)
        assert len(passes) == 1 + 7

    def test_what_the_diagonal_adds_is_independent_between_tiles(self, own, train):
        model, x = own, np.random.default_rng(3).uniform(-1, 1, (40, 2))
        level, posterior = joint_level(model, train, x), joint_posterior(model, train)
        stated = model.predict(x, level=True).function_variance
        covariance = posterior.covariance(x, x)
        added = stated - np.diag(covariance)
        assert added.max() > 1e-3 * stated.max()
        np.testing.assert_allclose(level.own, added, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(level.single_variances(), stated, rtol=1e-8)
        whole = covariance + np.diag(added)
        every = sparse.identity(40, format="csc")
        np.testing.assert_allclose(level.sum_covariance(every), whole, atol=1e-9)
        weights = np.column_stack([np.full(40, 1 / 40), np.arange(40) < 5])
        found = level.sum_variances(weights)
        np.testing.assert_allclose(found, np.diag(weights.T @ whole @ weights), rtol=1e-6)
        assert (found > np.diag(weights.T @ covariance @ weights)).all()
        low = level.low_rank()
        np.testing.assert_allclose(low @ low.T + np.diag(level.own), whole, atol=1e-9)
        assert level.local is None

    def test_paths_have_what_the_diagonal_adds(self, own, train):
        x = np.random.default_rng(3).uniform(-1, 1, (40, 2))
        level = joint_level(own, train, x)
        paths = np.concatenate(list(level.paths(4000)))
        ratio = paths.var(0) / level.single_variances()
        assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / 4000)
        weights = np.full((40, 1), 1 / 40)
        assert abs((paths @ weights).var() / level.sum_variances(weights)[0] - 1) < 0.1

    @pytest.fixture(
        params=[
            "dbk-exact",
            "dbk-exact-rbf",
            "nystrom-mixed-dtc",
            "nystrom-mixed-fitc",
            "sv-rbf",
            "sv-dbk",
            "sv-t-process",
        ]
    )
    def own(self, request, fitted, train):
        """A model whose diagonal adds something; a learned posterior gets the closed form."""
        model = fitted(request.param)
        if isinstance(model.posterior, VariationalPosterior):
            posterior = joint_posterior(model, train)
            L = posterior.L
            if request.param == "sv-t-process":
                L = L / np.sqrt(model.scale_posterior.mean)
            model.posterior.take_covariance(L)
        return model

    def test_two_accounts_of_the_function(self, fitted, train):
        model, x = fitted("dbk-silu"), train.x[:50]
        found = median_sds(joint_level(model, train, x))
        posterior, stated = joint_posterior(model, train), model.predict(x)
        assert found["closed_form"] == pytest.approx(np.median(np.sqrt(posterior.variance(x))))
        assert found["stated"] == pytest.approx(np.median(np.sqrt(stated.function_variance)))
        assert found["stated"] > 1.2 * found["closed_form"]

    def test_a_network_states_no_variance_of_its_function(self, fitted, train):
        found = median_sds(joint_level(fitted("dnn"), train, train.x[:50]))
        assert found["stated"] == 0
        assert found["closed_form"] > 0

    def test_noise_of_measurements_takes_what_the_objective_put_into_the_function(
        self, fitted, train
    ):
        x = train.x[:50]
        for name, carried in (("dbk-silu", True), ("pp-dkl", True), ("sv-rbf", False)):
            model = fitted(name)
            stated = model.predict(x)
            spread = stated.function_variance - model.added_variance(x)
            expected = stated.noise_variance + carried * spread
            found = joint_level(model, train, x).measured(5).noise_variance
            np.testing.assert_allclose(found, expected)

    def test_rows_are_needed(self, fitted, train):
        with pytest.raises(
            RequestError, match="dbk-silu does not contain its training rows: give the rows"
        ):
            joint_level(fitted("dbk-silu"), None, train.x)

    def test_counts_are_refused(self, train):
        sizes = Architecture(
            d=3, h=6, r=4, blocks=1, columns=("a", "b", "log exposure"), dropped=("log exposure",)
        )
        x = np.column_stack([train.x, np.zeros(len(train.x))])
        model = build("cox", sizes, x)
        with pytest.raises(RequestError, match="cox is a model of counts"):
            joint_level(model, Data(x, np.ones(len(x))), x)


class TestRefusals:
    def test_a_tile_twice(self):
        with pytest.raises(DataError, match="each tile once at each time, found 1 repeated"):
            joint_level(make_field(4, 30), None, np.vstack([grid(4), grid(4)[:1]]))

    def test_weights_of_other_tiles(self):
        level = joint_level(make_field(4, 30), None, grid(4))
        for weights in (np.ones((15, 1)), np.ones(16)):
            with pytest.raises(
                DataError, match=r"weights of shape \(n, k\) for n = 16 tiles, found shape"
            ):
                level.sum_variances(weights)

    def test_too_little_memory(self, monkeypatch, train, make_model):
        monkeypatch.setattr("geogp.models.process.memory.available_bytes", lambda _: 3_000_000)
        with pytest.raises(RequestError, match=r"joint level of 16 tiles needs about .* GB"):
            joint_level(make_field(4, 30), None, grid(4))
        model = make_model("vbll", dtype="float64")
        joint_level(model, train, train.x)
        with pytest.raises(RequestError, match="Map the region with a lower --zoom"):
            joint_level(model, train, train.x, columns=10_000)

    def test_no_paths(self):
        level = joint_level(make_field(4, 30), None, grid(4))
        with pytest.raises(RequestError, match="sample paths from 1 to 100,000, found 0"):
            next(level.paths(0))
