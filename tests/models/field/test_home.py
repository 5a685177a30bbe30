"""The field far from its rows: against universal kriging written out, and in joint results."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from field_worlds import (
    dense,
    field_of,
    grid,
    make_field,
    make_field_with_height,
    of_provider,
    with_drift,
    with_home,
    zeros_at,
)
from scipy import sparse
from scipy.spatial.distance import cdist

from geogp.models.catalogue.build import build
from geogp.models.field import home as homes
from geogp.models.field.fitted import FittedField
from geogp.models.field.home import Home, Locations, spread
from geogp.models.joint.level import JointLevel, joint_level
from geogp.models.process.architecture import Architecture

SIDE = 6
RANGE, VARIANCE = 5.0, 0.4
DOUBT = {"doubt_km": 8.0, "doubt": 0.3, "doubt_power": 1.5}


def matern(distance: np.ndarray, range_km: float = RANGE) -> np.ndarray:
    s = np.sqrt(3) * distance / range_km
    return (1 + s) * np.exp(-s)


def places_of(field: FittedField, x: np.ndarray) -> np.ndarray:
    return field.parameters.points(field.parameters.scaled(x))[:, :2].numpy()


def distance_of(field: FittedField, x: np.ndarray) -> np.ndarray:
    """Distance from inputs to the nearest row, in km."""
    return cdist(places_of(field, x), field.rows.points[:, :2].numpy()).min(1)


def locations(field: FittedField, x: np.ndarray, distance: float | None = None) -> Locations:
    """Where inputs lie; `distance` from the nearest row stands for all."""
    points = field.parameters.points(field.parameters.scaled(x)).numpy()
    away = distance_of(field, x) if distance is None else np.full(len(x), distance)
    return Locations(points, away)


def basis(field: FittedField, x: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return field.parameters.basis.values(x).numpy()


def beside(*times: float, east: float = 1.5) -> np.ndarray:
    """Tiles of a square of 12 km, some of them beyond the rows in the east, at some times."""
    x = np.concatenate([grid(SIDE, time) for time in times])
    x[:, 0] += east
    return x


def ends(home: Home) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the box beyond which a trend is constant."""
    low, high = home.places.min(0), home.places.max(0)
    return low - (high - low) / 2, high + (high - low) / 2


def terms(home: Home, places: np.ndarray) -> np.ndarray:
    one = np.ones((len(places), 1))
    return np.hstack([one, np.clip(places, *ends(home))]) if home.trend else one


def kriged(field: FittedField, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the anchors (n, a) in the mean of universal kriging, and its variance (n,).

    The weights have the smallest variance among those that give the trend of the place.
    """
    home = field.rows.home
    T, t = (terms(home, at) for at in (home.places, places_of(field, x)))
    a, q = T.shape
    K = 0.99 * matern(cdist(home.places, home.places)) + 0.01 * np.eye(a)
    system = np.block([[K, T], [T.T, np.zeros((q, q))]])
    weights = np.linalg.solve(system, np.vstack([np.zeros((a, len(x))), t.T]))[:a].T
    return weights, VARIANCE * np.einsum("ni,ij,nj->n", weights, K, weights)


def covariance(field: FittedField, x: np.ndarray) -> np.ndarray:
    """Covariance of the error far from the rows, for a standardised target."""
    home, places = field.rows.home, places_of(field, x)
    c, t = matern(distance_of(field, x)), terms(home, places)
    T = terms(home, home.places)
    K = 0.99 * matern(cdist(home.places, home.places)) + 0.01 * np.eye(len(T))
    G = VARIANCE * np.linalg.inv(T.T @ np.linalg.inv(K) @ T)
    C = VARIANCE * matern(cdist(places, places))
    doubt = doubts(distance_of(field, x))
    of_range = np.sqrt(np.outer(doubt, doubt)) * matern(cdist(places, places), DOUBT["doubt_km"])
    return np.outer(1 - c, 1 - c) * (C + t @ G @ t.T) + of_range


def doubts(distance: np.ndarray) -> np.ndarray:
    """Variance of the doubt about the range at distances to the nearest row."""
    return DOUBT["doubt"] * (1 - matern(distance, DOUBT["doubt_km"])) ** DOUBT["doubt_power"]


@pytest.fixture(params=[False, True], ids=["mean", "trend"])
def field(request) -> FittedField:
    """A field given 60 rows on 36 tiles, which goes to its mean or to a linear trend."""
    return with_home(make_field(SIDE, 60), RANGE, VARIANCE, trend=request.param, **DOUBT)


class TestFeatures:
    def test_at_rows_they_are_those_of_the_basis(self, field):
        found = field.rows.features(field.parameters, field.rows.x).detach().numpy()
        np.testing.assert_array_equal(found, basis(field, field.rows.x))

    def test_elsewhere_they_mix_those_of_the_place_and_of_kriging(self, field):
        home, x = field.rows.home, beside(-0.5, 1.0)
        weights, _ = kriged(field, x)
        c = matern(distance_of(field, x))[:, None]
        scaled = field.parameters.scaled(x)
        expected = c * basis(field, scaled)
        for k, time in enumerate(scaled[:, 2]):
            anchors = home.anchors.clone()
            anchors[:, 2] = time
            expected[k] += (1 - c[k]) * (weights[k] @ basis(field, anchors))
        with torch.no_grad():
            found = field.rows.features(field.parameters, scaled)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
        assert 0 < c.min() < 0.2
        assert c.max() > 0.9

    def test_far_away_the_mean_is_that_of_universal_kriging(self, field):
        """From the field at the anchors alone, not from their features."""
        home, x = field.rows.home, beside(1.0, east=3.0)
        anchors = home.anchors.clone()
        anchors[:, 2] = 1.0
        m = field.parameters.posterior.m.detach().numpy()
        known = basis(field, anchors) @ m
        weights, _ = kriged(field, x)
        c = matern(distance_of(field, x))
        expected = c * (basis(field, field.parameters.scaled(x)) @ m)
        expected += (1 - c) * (weights @ known)
        with torch.no_grad():
            found = field.rows.features(field.parameters, field.parameters.scaled(x)).numpy() @ m
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)

    def test_a_trend_is_constant_beyond_half_of_the_box(self):
        field = with_home(make_field(SIDE, 60), RANGE, VARIANCE, trend=True)
        end = ends(field.rows.home)[1] / 6
        x = np.array([[*(share * end), 0.0] for share in (0.999, 1, 1.001, 1e4)])
        scaled, far = field.parameters.scaled(x), locations(field, x, 1e9)
        with torch.no_grad():
            found = field.rows.features(field.parameters, scaled, far)
        np.testing.assert_allclose(found[2:], found[[1, 1]], rtol=1e-9)
        assert not torch.allclose(found[0], found[1], rtol=1e-6)

    def test_covariates_keep_their_own_values(self):
        """The others have the value 0 where the mean is computed."""
        field = with_home(make_field_with_height(80), RANGE, VARIANCE)
        parameters = field.parameters
        at = np.array([[9.0, 0.0, 1.0, -1.0], [9.0, 0.0, 1.0, 2.0]])
        scaled, far = parameters.scaled(at), locations(field, at, 1e9)
        with torch.no_grad():
            found = field.rows.features(parameters, scaled, far).numpy()
        np.testing.assert_array_equal(found[:, -1], basis(field, scaled)[:, -1])
        assert found[0, -1] != found[1, -1]
        np.testing.assert_allclose(found[0, :-1], found[1, :-1], rtol=1e-12)
        anchors = field.rows.home.anchors.clone()
        anchors[:, 2:] = torch.tensor([1.0, 0.0])
        expected = kriged(field, at[:1])[0] @ basis(field, anchors)[:, :-1]
        np.testing.assert_allclose(found[:1, :-1], expected, rtol=1e-9)

    def test_providers_keep_their_own_values_and_have_their_own_mean(self):
        field = with_home(make_field(SIDE, 60, by_provider=True), RANGE, VARIANCE)
        x = np.concatenate([of_provider(beside(1.0, east=9.0)[:1], k) for k in (0, 1)])
        scaled, anchors = field.parameters.scaled(x), field.rows.home.anchors.clone()
        with torch.no_grad():
            found = field.rows.features(field.parameters, scaled, locations(field, x, 1e9)).numpy()
        np.testing.assert_array_equal(found[:, -2:], basis(field, scaled)[:, -2:])
        for k in (0, 1):
            anchors[:, 2:] = scaled[k, 2:]
            expected = kriged(field, x[:1])[0] @ basis(field, anchors)[:, :-2]
            np.testing.assert_allclose(found[[k], :-2], expected, rtol=1e-9)
        assert not np.allclose(found[0, :-2], found[1, :-2])

    def test_without_time_the_mean_is_that_of_all_rows(self):
        x = grid(SIDE)[:, :2]
        sizes = Architecture(d=2, h=6, r=5, blocks=1, dtype="float64", units=(6.0, 6.0))
        parameters = build("field", sizes, x, seed=2)
        field = with_home(field_of(parameters, zeros_at(parameters, x)), RANGE, VARIANCE)
        far = np.array([[9.0, 2.0]])
        with torch.no_grad():
            found = field.rows.features(
                parameters, parameters.scaled(far), locations(field, far, 1e9)
            )
        expected = kriged(field, far)[0] @ basis(field, field.rows.home.anchors)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


class TestManyTimes:
    @pytest.fixture
    def many(self) -> FittedField:
        """A field with rows at 100 times, of which 64 have a mean of their own."""
        x = np.column_stack([np.tile(grid(5)[:, :2], (4, 1)), np.linspace(-1, 1, 100)])
        parameters = make_field(5, 60).parameters
        return with_home(field_of(parameters, zeros_at(parameters, x)), RANGE, VARIANCE)

    def test_the_mean_is_that_of_the_nearest_of_equally_spaced_times(self, many):
        x = beside(*np.linspace(-1, 1, 6), east=9.0)[::5]
        grid_of_times = np.linspace(-1, 1, homes.MOST_TIMES)
        nearest = x.copy()
        nearest[:, 2] = grid_of_times[np.abs(x[:, [2]] - grid_of_times).argmin(1)]
        with torch.no_grad():
            found, expected = (
                many.rows.features(
                    many.parameters, many.parameters.scaled(at), locations(many, at, 1e9)
                )
                for at in (x, nearest)
            )
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert not np.array_equal(nearest, x)
        assert len(np.unique(found[:, 0])) == 6

    def test_a_place_has_the_same_prediction_whatever_else_is_asked(self, many):
        x = np.tile(beside(0.0, east=4.0), (5, 1))
        x[:, 2] = np.random.default_rng(0).uniform(-1, 1, len(x))
        whole, some = many.predict(x, level=True), many.predict(x[::9], level=True)
        np.testing.assert_allclose(some.mean, whole.mean[::9], rtol=1e-10)
        np.testing.assert_allclose(some.variance, whole.variance[::9], rtol=1e-10)


class TestError:
    def test_variances_are_those_of_the_process_and_of_its_mean(self, field):
        x = beside(1.0)
        c, (_, of_mean) = matern(distance_of(field, x)), kriged(field, x)
        found = field.rows.home.variances(locations(field, x))
        expected = (1 - c) ** 2 * (VARIANCE + of_mean) + doubts(distance_of(field, x))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        at_rows = field.rows.locations(field.rows.points.numpy())
        assert not field.rows.home.variances(at_rows).any()

    def test_the_covariance_is_exact_with_a_knot_at_each_place(self, field, monkeypatch):
        x = beside(1.0)
        at, home = locations(field, x), field.rows.home
        expected = covariance(field, x)
        for knots, atol in ((36, 1e-9), (18, 0.06)):
            monkeypatch.setattr(homes, "KNOTS", knots)
            R = home.factor(at)
            assert R.shape == (36, 2 * knots + (3 if home.trend else 1))
            np.testing.assert_allclose(np.square(R).sum(1), home.variances(at), rtol=1e-9)
            np.testing.assert_allclose(R @ R.T, expected, atol=atol)

    def test_a_field_that_goes_nowhere_has_none(self):
        plain, x = make_field(SIDE, 60), beside(1.0)
        home, far = plain.rows.home, locations(plain, x, 1e3)
        assert not home.exists
        assert not home.variances(far).any()
        assert home.factor(far).shape == (len(x), 0)
        scaled = plain.parameters.scaled(x)
        found = plain.rows.features(plain.parameters, scaled).detach().numpy()
        np.testing.assert_array_equal(found, basis(plain, scaled))

    def test_places_at_any_distance_have_finite_values(self, field):
        places = np.array([[0.0, 0.0], [1e-9, 0.0], [1e7, 0.0], [1e7, 10.0]])
        R = field.rows.home.factor(Locations(places, np.array([0.0, 1e-9, 1e7, 1e7])))
        assert np.isfinite(R).all()
        assert not R[0].any()

    def test_far_from_all_knots_single_variances_are_kept(self, field, monkeypatch):
        """The two tiles without a knot are far from each other and from all others."""
        monkeypatch.setattr(homes, "KNOTS", 4)
        places = np.array([[0.0, 0.0], [1e3, 0.0], [0.0, 1e3], [1e3, 1e3], [400.0, 1.0], [1.0, 60]])
        at = Locations(places, np.full(6, 50.0))
        R = field.rows.home.factor(at)
        np.testing.assert_allclose(np.square(R).sum(1), field.rows.home.variances(at), rtol=1e-9)


class TestPredictions:
    def test_far_away_they_are_those_of_mean_and_prior(self, field):
        """Where the trend no longer grows, in the closed form of each part."""
        parameters, x, sd = field.parameters, np.array([[150.0, 3.0, 1.0]]), field.y_sd.item()
        with torch.no_grad():
            psi = field.rows.features(parameters, parameters.scaled(x), locations(field, x, 1e9))
            shift = parameters.law.shift(parameters.well_measured(1)).item()
            mean = (psi @ parameters.posterior.m).item() + parameters.mean_constant.item() + shift
            tile = parameters.amplitude(psi).item() ** 2 * parameters.tiles.variance().item()
            spread_of_field = (psi @ parameters.weights.L).square().sum().item()
        found = field.predict(x, level=True)
        assert found.mean[0] == pytest.approx(field.y_mean.item() + sd * mean, rel=1e-9)
        assert found.tile_variance[0] == pytest.approx(sd**2 * tile, rel=1e-9)
        expected = sd**2 * (VARIANCE + kriged(field, x)[1][0] + DOUBT["doubt"] + spread_of_field)
        assert found.field_variance[0] == pytest.approx(expected, rel=1e-9)

    def test_rows_near_by_or_none_give_the_same_far_away(self, field):
        x = field.parameters.scaled(beside(1.0, east=40.0))
        near, alone = (field.predict_scaled(x, alone=alone) for alone in (False, True))
        np.testing.assert_allclose(alone.mean, near.mean, rtol=1e-9)
        np.testing.assert_allclose(alone.variance, near.variance, rtol=1e-9)

    @pytest.mark.usefixtures("exact")
    def test_they_are_those_of_one_dense_conditioning(self, field):
        x, sd = beside(1.0), field.y_sd.item()
        mean, expected = dense(field, x)
        found = field.predict(x, level=True)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
        variance = np.diag(expected) + sd**2 * np.diag(covariance(field, x))
        np.testing.assert_allclose(found.function_variance, variance, rtol=1e-7)

    def test_near_rows_nothing_changes(self, field):
        nowhere = Home.nowhere(field.rows.x)
        plain, x = replace(field, rows=replace(field.rows, home=nowhere)), field.rows.x.numpy()
        found, expected = field.predict(x), plain.predict(x)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-12)
        assert (field.predict(beside(1.0)).mean != plain.predict(beside(1.0)).mean).any()


class TestJoint:
    @pytest.mark.usefixtures("exact")
    def test_everything_is_that_of_the_dense_process(self, field, monkeypatch):
        monkeypatch.setattr(homes, "KNOTS", 36)
        x, sd = beside(1.0), field.y_sd.item()
        level = joint_level(field, None, x, calibrated=False, earlier=36)
        mean, expected = dense(field, x)
        expected = expected + sd**2 * covariance(field, x)
        np.testing.assert_allclose(level.mean, mean, rtol=1e-8)
        every = sparse.identity(36, format="csr")
        np.testing.assert_allclose(level.sum_covariance(every), expected, atol=1e-8)
        np.testing.assert_allclose(level.single_variances(), np.diag(expected), atol=1e-8)
        weights = np.full((36, 1), 1 / 36)
        total = (weights.T @ expected @ weights).item()
        assert level.sum_variances(weights)[0] == pytest.approx(total, rel=1e-8)
        low, local = level.low_rank().mean(0), level.local.times(weights)[:, 0].mean()
        assert float(low @ low + local) == pytest.approx(total, rel=1e-8)

    @pytest.mark.parametrize("calibrated", [False, True])
    def test_single_tiles_are_those_of_the_map(self, field, calibrated):
        field, x = self._with_law(field) if calibrated else field, beside(1.0)
        level = joint_level(field, None, x, calibrated=calibrated, earlier=0)
        stated = field.predict(x, level=True)
        np.testing.assert_allclose(level.mean, stated.mean, rtol=1e-8)
        np.testing.assert_allclose(level.single_variances(), stated.function_variance, rtol=1e-8)
        measured, stated = level.measured(5.0), field.predict(x, 5.0)
        np.testing.assert_allclose(measured.mean, stated.mean, rtol=1e-8)
        np.testing.assert_allclose(measured.single_variances(), stated.function_variance, rtol=1e-8)
        np.testing.assert_allclose(measured.noise_variance, stated.noise_variance, rtol=1e-8)

    def test_draws_contain_it(self, field):
        level = joint_level(self._with_law(field), None, beside(1.0))
        weights = sparse.csc_array(np.full((36, 1), 1 / 36))
        total = level.sum_variances(weights)[0]
        assert total > 2 * self._without(level).sum_variances(weights)[0]
        means = np.concatenate([paths.mean(1) for paths in level.paths(4000)])
        assert means.var() == pytest.approx(total, rel=0.1)

    def test_changes_do_not_contain_it_and_the_drift_stays(self, field):
        field = with_drift(field, 0.05, 0.0)
        x = beside(1.0, 2.0)
        level = joint_level(field, None, x, calibrated=False)
        change = sparse.csc_array(np.repeat([-1 / 36, 1 / 36], 36)[:, None])
        still = joint_level(with_drift(field, 0.0, 0.0), None, x, calibrated=False)
        expected = self._without(still).sum_variances(change) + 0.05
        np.testing.assert_allclose(level.sum_variances(change), expected, rtol=1e-9)
        assert level.shared.any()

    @staticmethod
    def _with_law(field: FittedField) -> FittedField:
        law = field.errors.law
        law.coefficients[:2, 0] = 0.1, 0.3
        return replace(field, errors=replace(field.errors, law=law))

    @staticmethod
    def _without(level: JointLevel) -> JointLevel:
        """The level without what tiles share far from the rows."""
        return replace(level, shared=0 * level.shared)


def test_places_far_from_each_other_are_chosen():
    places = np.repeat(np.column_stack([np.arange(50.0) ** 2, np.zeros(50)]), 2, 0)
    chosen = spread(places, 4)
    assert len(np.unique(places[chosen], axis=0)) == 4
    gaps = np.diff(np.sort(places[chosen, 0]))
    assert gaps.min() >= 600
    assert len(spread(places, 80)) == 50
    assert spread(places[:2], 5).tolist() == [0]


def test_anchors_are_rows_at_distinct_places(field):
    home, rows = field.rows.home, field.rows
    assert len(home.places) == len(rows.points[:, :2].unique(dim=0))
    np.testing.assert_array_equal(home.places, field.parameters.points(home.anchors)[:, :2])
    found = cdist(home.anchors.numpy(), rows.x.numpy()).min(1)
    assert not found.any()
