"""What rows tell about the field far from them: known ranges, variances and trends are found."""

import numpy as np
import pytest
import torch
from field_worlds import field_of, grid, make_field, make_field_with_height, zeros_at
from scipy.spatial.distance import cdist

from geogp.models.catalogue.build import build
from geogp.models.field.fit import FieldFit
from geogp.models.field.fitted import FittedField
from geogp.models.field.home import Locations
from geogp.models.field.learned_home import (
    LEAST_PLACES,
    LEAST_VARIANCE,
    has_trend,
    learned_home,
    likeliest,
    spread_rows,
)
from geogp.models.process.architecture import Architecture

SEEDS = range(8)


def drawn(seed: int, range_km: float, variance: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Places in a square of 100 km, and a Matérn process with a nugget of 1 % at them."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 100, (128, 2))
    s = np.sqrt(3) * cdist(places, places) / range_km
    K = 0.99 * (1 + s) * np.exp(-s) + 0.01 * np.eye(128)
    return places, np.sqrt(variance) * np.linalg.cholesky(K) @ random.standard_normal(128)


def mean_of(places: np.ndarray) -> np.ndarray:
    return np.ones((len(places), 1))


@pytest.mark.parametrize("range_km", [6.0, 20.0, 50.0])
@pytest.mark.parametrize("slope", [0.0, 0.05])
def test_range_and_variance_of_a_drawn_process_are_found(range_km, slope):
    """Around a mean, or around a linear trend."""
    found = []
    for seed in SEEDS:
        places, field = drawn(seed, range_km)
        T = np.hstack([mean_of(places), places]) if slope else mean_of(places)
        found.append(likeliest(places, 3 + field + slope * (places[:, 0] - places[:, 1]), T))
    ratios = np.array(found) / [range_km, 0.7]
    assert (ratios > 0.45).all()
    assert (ratios < 1 / 0.45).all()
    np.testing.assert_allclose(np.exp(np.log(ratios).mean(0)), 1, atol=0.2)


def test_units_of_places_and_values_are_of_no_account():
    places, field = drawn(0, 20.0)
    range_km, variance = likeliest(places, field, mean_of(places))
    found = likeliest(7 * places - 900, 3 * field + 50, mean_of(places))
    np.testing.assert_allclose(found, [7 * range_km, 9 * variance], rtol=1e-6)
    assert has_trend(7 * places, field, 140.0) == has_trend(places, field, 20.0)


@pytest.mark.parametrize("range_km", [6.0, 20.0, 50.0])
def test_a_stationary_field_has_no_trend(range_km):
    assert not any(has_trend(*drawn(seed, range_km), range_km) for seed in range(20))


def test_a_strong_trend_is_taken_and_one_that_bends_is_not():
    for seed in SEEDS:
        places, field = drawn(seed, 12.0, 0.2)
        slope = 0.08 * places[:, 0] - 0.05 * places[:, 1]
        assert has_trend(places, field + slope, 12.0)
        assert not has_trend(places, field + np.abs(slope - slope.mean()), 12.0)


def test_a_trend_must_hold_on_each_of_the_four_sides():
    """It rises to the east; in the south, it falls as steeply."""
    places, field = drawn(0, 12.0, 0.01)
    slope = 0.08 * (places[:, 0] - 50)
    assert has_trend(places, field + slope + 0.1 * places[:, 1], 12.0)
    turned = np.where(places[:, 1] < 30, -slope, slope)
    assert not has_trend(places, field + turned + 0.1 * places[:, 1], 12.0)


def of_places(places: np.ndarray, values: np.ndarray) -> FittedField:
    """A field with the values at places in km at time 0, which has rows at other times, too."""
    n, half = len(places), np.abs(places).max()
    x = np.column_stack([np.repeat(places / half, 3, 0), np.tile([-1.0, 0.0, 1.0], n)])
    sizes = Architecture(d=3, h=64, r=200, blocks=1, dtype="float64", units=(half, half, 4.0))
    parameters = build("field", sizes, x, seed=2)
    field = field_of(parameters, zeros_at(parameters, x))
    with torch.no_grad():
        phi = parameters.basis.values(parameters.scaled(x[1::3])).numpy()
        m = np.linalg.lstsq(phi, values, rcond=1e-13)[0]
        np.testing.assert_allclose(phi @ m, values, atol=1e-4)
        parameters.posterior.m.copy_(torch.from_numpy(m))
    return field


class TestField:
    @pytest.mark.parametrize("slope", [0.0, 0.05])
    def test_the_home_is_that_of_the_field_at_the_middle_time(self, slope):
        places, values = drawn(3, 20.0)
        places = places - 50
        values = values + slope * (places[:, 0] - 2 * places[:, 1])
        home = learned_home(*self._parts(of_places(places, values)))
        T = np.hstack([mean_of(places), places]) if slope else mean_of(places)
        expected = likeliest(places, values, T)
        assert home.trend == bool(slope)
        np.testing.assert_allclose([home.range_km, home.variance], expected, rtol=1e-3)
        assert len(home.anchors) == len(home.places) == 64
        assert home.times.tolist() == [-1, 0, 1]

    def test_covariates_are_no_part_of_it(self):
        """A height with a large coefficient, which varies from place to place."""
        field, found = make_field_with_height(90), []
        m = field.parameters.posterior.m
        for coefficient in (0.0, 50.0):
            with torch.no_grad():
                m[:-1], m[-1] = torch.linspace(1, 2, 5), coefficient
            home = learned_home(*self._parts(field))
            found.append((home.range_km, home.variance, home.trend))
        assert found[0] == found[1]
        assert found[0][1] > 0

    def test_with_few_places_a_field_goes_nowhere(self):
        field = make_field(5, 200)
        assert len(field.rows.points[:, :2].unique(dim=0)) == 25
        assert learned_home(*self._parts(field)).exists
        some = field.rows.rows.at(torch.arange(len(field.rows.y)) < LEAST_PLACES - 1)
        assert not learned_home(*self._parts(field_of(field.parameters, some))).exists

    def test_a_smooth_field_varies_at_least_as_much_as_other_regions_do(self):
        field = make_field(5, 200)
        with torch.no_grad():
            field.parameters.posterior.m.mul_(1e-3)
        assert learned_home(*self._parts(field)).variance == LEAST_VARIANCE

    def test_rows_on_one_line_have_a_home(self):
        x = np.column_stack([np.linspace(-1, 1, 40), np.zeros(40), np.ones(40)])
        parameters = make_field(5, 60).parameters
        field = field_of(parameters, zeros_at(parameters, x))
        home = learned_home(*self._parts(field))
        assert home.exists
        assert not home.trend
        assert np.isfinite(home.factor(Locations(np.array([[3.0, 30.0]]), np.array([30.0])))).all()

    @staticmethod
    def _parts(field: FittedField) -> tuple:
        return field.parameters, field.rows


def test_rows_are_chosen_at_distinct_places():
    field = make_field(6, 200)
    rows = field.rows
    for most in (9, 100):
        at = spread_rows(rows, most)
        places = rows.points[at][:, :2].unique(dim=0)
        assert len(places) == len(at) == min(most, len(rows.points[:, :2].unique(dim=0)))


def test_a_fit_learns_the_home_from_the_field_given_all_rows():
    made = make_field(8, 200)
    fit = FieldFit(made.parameters)
    fit.start(made.rows.rows, 0, resumed=True)
    before = learned_home(made.parameters, fit.field.rows)
    found = fit.finish(zeros_at(made.parameters, np.add(grid(4), [3, 0, 0])))
    home, expected = found.rows.home, learned_home(found.parameters, found.rows)
    assert home.exists
    for name in ("range_km", "variance", "trend", "doubt_km", "doubt", "doubt_power"):
        assert getattr(home, name) == getattr(expected, name)
    assert home.places[:, 0].max() > 12 > before.places[:, 0].max()
