"""The law of simulated values against its formulas."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.fft

from geogp.errors import RequestError
from geogp.geodata.places.region import Region
from geogp.geodata.simulation import truth
from geogp.geodata.simulation.simulated_tiles import simple_region
from geogp.geodata.simulation.truth import (
    Grid,
    PlanePlaces,
    TruthLaw,
    field,
    laws_of,
    places_of,
    tile_process,
)


@pytest.fixture(scope="module")
def region() -> Region:
    return simple_region()


@pytest.fixture(scope="module")
def grid(region) -> Grid:
    return Grid.of(region)


@pytest.fixture(scope="module")
def law(grid) -> TruthLaw:
    return laws_of(grid, 0)["download"]


def _places(east, south, urbanity=0.0) -> PlanePlaces:
    east, south = np.broadcast_arrays(np.atleast_1d(east).astype(float), float(south))
    return PlanePlaces(east, south, np.zeros(east.shape, bool), np.full(east.shape, urbanity))


def test_covariance_of_the_tile_process_is_the_formula(law):
    lags = [(0, 0, 0), (0, 2, 0), (3, 0, 0), (1, 1, 1), (0, 0, 1), (0, 0, 2), (4, 3, 2), (0, 9, 0)]
    quarters = [0, 1, 3]  # with a gap
    found = []
    for seed in range(16):
        fields = list(tile_process(law, (150, 130), quarters, np.random.default_rng(seed)))
        by_quarter = dict(zip(quarters, fields, strict=True))
        found.append(
            [
                np.mean(
                    by_quarter[3 if time == 2 else time][down:, across:]
                    * by_quarter[1 if time == 2 else 0][: 150 - down, : 130 - across]
                )
                for down, across, time in lags
            ]
        )
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    distance = law.tile_km * np.hypot(*np.array(lags, float)[:, :2].T)
    expected = law.covariance(distance, np.array(lags, float)[:, 2])
    assert error.max() < 0.01 * (law.sill_constant + law.sill_changing)  # it could tell
    np.testing.assert_array_less(np.abs(mean - expected), 4 * error)


def test_covariance_has_the_written_form(law):
    expected = np.exp(-1.7 / 1.0) * (0.02 + 0.1 * 0.85**3)
    assert law.covariance(np.array(1.7), np.array(-3.0)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(30, 7), (1, 1), (64, 90)])
def test_embedding_is_exact_at_every_lag_of_the_grid(law, shape):
    spectrum, torus = truth._embedding(law, shape)
    covariance = scipy.fft.irfft2(spectrum**2, s=torus)[: shape[0], : shape[1]]
    down, across = np.indices(shape)
    expected = np.exp(-law.tile_km * np.hypot(down, across) / law.range_km)
    np.testing.assert_allclose(covariance, expected, atol=1e-12)


def test_tile_process_that_cannot_fit_is_refused(law):
    with pytest.raises(RequestError, match="more than 128,000,000"):
        next(tile_process(replace(law, range_km=300.0), (900, 900), [0], np.random.default_rng(0)))


def test_field_is_the_sum_of_its_parts(law):
    start = law.origin_quarter
    core, country = _places(20.0, 30.0, 1.0), _places(20.0, 30.0, 0.0)
    still = replace(law, interaction_sd=0.0)
    assert field(still, country, start + 7) - field(still, country, start) == pytest.approx(
        7 * law.trend
    )
    effect = law.urban_effect + 5 * law.urban_trend
    assert field(law, core, start + 5) - field(law, country, start + 5) == pytest.approx(effect)
    flat = replace(law, field_sd=0.0, interaction_sd=0.0)
    assert field(flat, country, start) == pytest.approx(law.intercept)
    moved = field(law, country, start + 10) - field(still, country, start + 10)
    assert moved == pytest.approx(law.interaction_sd / 2 * truth._field_of(law, country, 1))


def test_lengthscale_of_the_field_varies_as_stated():
    lengthscale, warp, period, step = 12.0, 0.5, 70.0, 0.5
    east = np.array([0.0, step, period / 2, period / 2 + step])
    values = np.array(
        [
            truth.random_field(
                _places(east, 3.0),
                lengthscale_km=lengthscale,
                seed=seed,
                warp=warp,
                warp_period_km=period,
            )
            for seed in range(400)
        ]
    )
    assert values.var() == pytest.approx(1.0, abs=0.1)
    short, long = np.mean(np.diff(values, axis=1)[:, [0, 2]] ** 2, axis=0)
    assert short == pytest.approx((step * (1 + warp) / lengthscale) ** 2, rel=0.15)
    assert long == pytest.approx((step * (1 - warp) / lengthscale) ** 2, rel=0.15)


def test_noise_falls_with_tests_and_is_larger_in_the_country(law):
    even = replace(law, noise_variation=0.0)
    tests = np.array([1, 4, 1000])
    for urbanity, floor, single in (
        (0.0, law.noise_floor_rural, law.noise_test_rural),
        (1.0, law.noise_floor_urban, law.noise_test_urban),
    ):
        places = _places(np.zeros(3), 0.0, urbanity)
        variance = truth.measurement_variance(even, places, tests)
        np.testing.assert_allclose(variance, floor + single / tests, rtol=1e-12)
    assert law.noise_floor_rural > law.noise_floor_urban
    assert law.noise_test_rural > law.noise_test_urban
    uneven = truth.measurement_variance(law, _places([0.0, 40.0], 0.0), np.array([1, 1]))
    assert uneven[0] != uneven[1]


def test_urbanity_is_high_in_the_core_and_smooth_across_the_edge(region, grid):
    places = places_of(region, grid, 2.5)
    assert places.urbanity.min() >= 0
    assert 0.95 < places.urbanity.max() <= 1
    assert places.urbanity[places.urban].mean() > 3 * places.urbanity[~places.urban].mean()
    image = np.full(grid.shape, np.nan)
    image[grid.down, grid.across] = places.urbanity
    assert np.nanmax(np.abs(np.diff(image, axis=1))) < 0.15


def test_region_without_urban_areas_has_urbanity_zero(region, grid):
    plain = Region.from_geometry("PLAIN", "Plain", region.boundary)
    assert places_of(plain, grid, 2.5).urbanity.max() == 0


def test_tile_width_is_that_on_the_ground_at_the_middle_latitude(region, grid):
    _, south, _, north = region.bounds
    assert grid.tile_km == pytest.approx(
        2 * np.pi * 6378.137 / 65536 * np.cos(np.deg2rad((south + north) / 2)), rel=1e-12
    )


def test_region_too_small_for_a_tile_is_refused(region):
    speck = Region.from_geometry("S", "Speck", region.boundary.geoms[0].centroid.buffer(1e-5))
    with pytest.raises(RequestError, match="Speck contains no centre of a zoom-16 tile"):
        Grid.of(speck)
