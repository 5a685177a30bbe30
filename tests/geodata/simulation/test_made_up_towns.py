"""Made-up towns: their share of the land, their sizes, where they lie, and that they come back."""

import numpy as np
import pytest
import shapely
from shapely.geometry import MultiPolygon, box

from geogp.geodata.places.census import read_region
from geogp.geodata.places.region import Region, Strata
from geogp.geodata.places.stratum_names import URBAN
from geogp.geodata.simulation.made_up_towns import URBAN_SHARE, made_up_towns
from geogp.geodata.simulation.simulated_tiles import simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles.quadkeys import EARTH_RADIUS_KM
from geogp.geodata.tiles.quarters import parse_quarters


def _cut_in_two() -> Region:
    """Return a region at 180 degrees as files have it, and far north."""
    return Region.from_geometry("ALEUT", "Aleut", box(179, 63, 180, 64) | box(-180, 63, -179.5, 64))


def _islands() -> Region:
    rng = np.random.default_rng(3)
    places = zip(rng.uniform(-160, -155, 40), rng.uniform(19, 22, 40), strict=True)
    shapes = [box(x, y, x + 0.01, y + 0.01) for x, y in places]
    return Region.from_geometry("ISLES", "Isles", MultiPolygon([*shapes, box(-156, 19, -155, 20)]))


def _tiny() -> Region:
    return Region.from_geometry("TINY", "Tiny", box(-77.02, 38.90, -77.0, 38.915))


def _wide() -> Region:
    return Region.from_geometry("WIDE", "Wide", box(-100, 35, -94, 39))


WORLDS = {"antimeridian": _cut_in_two, "islands": _islands, "tiny": _tiny, "wide": _wide}


@pytest.fixture(params=WORLDS, name="region")
def _region(request) -> Region:
    return WORLDS[request.param]()


def _ground(shape) -> float:
    """Return km² on the sphere by Green's theorem along rings cut to short edges."""
    total = 0.0
    for part in shapely.get_parts(shapely.segmentize(shape, 0.01)):
        for sign, ring in [(1, part.exterior), *((-1, hole) for hole in part.interiors)]:
            x, y = np.deg2rad(shapely.get_coordinates(ring)).T
            height = np.sin((y[1:] + y[:-1]) / 2)
            total += sign * abs(np.sum(np.diff(x) * height))
    return total * EARTH_RADIUS_KM**2


def test_towns_take_their_share_of_the_land_inside_the_boundary(region):
    towns = made_up_towns(region, 4)
    share = _ground(towns) / _ground(region.boundary)
    assert share == pytest.approx(URBAN_SHARE, abs=0.001)
    assert towns.is_valid
    assert towns.difference(region.boundary.buffer(1e-9)).is_empty
    west, _, east, _ = region.bounds
    assert (towns.bounds[0] >= west, towns.bounds[2] <= east) == (True, True)


def test_the_same_seed_draws_the_same_towns():
    first, again, other = (made_up_towns(_tiny(), seed) for seed in (0, 0, 1))
    assert first.wkb == again.wkb
    assert first.wkb != other.wkb


def test_sizes_follow_zipf_where_little_is_cut_off():
    sizes = sorted((_ground(part) for part in made_up_towns(_wide(), 8).geoms), reverse=True)
    assert 70 < len(sizes) <= 96  # 238,000 km²; a few overlap or are cut
    largest = np.array(sizes[:20]) * np.arange(1, 21) / sizes[0]
    assert 0.5 < np.median(largest) < 2.0
    assert sizes[0] / sizes[19] > 8


def test_centres_are_spread_over_the_ground():
    north = Region.from_geometry("NORTH", "North", box(0, 0, 0.5, 80))
    found = np.array([part.centroid.y for part in made_up_towns(north, 5).geoms])
    below = np.mean(found < 40)
    assert below == pytest.approx(np.sin(np.deg2rad(40)) / np.sin(np.deg2rad(80)), abs=0.08)


def test_towns_come_back_from_the_files(tmp_path):
    plain = _cut_in_two()
    region = plain.with_strata(Strata.of_urban_areas(made_up_towns(plain, 2), 2020))
    made = simulate(region, rows=500, quarters=parse_quarters("2023Q4").all, seed=2)
    write_simulation(made, region, tmp_path, made_up_towns=True)
    found = read_region(Folder(tmp_path / "boundaries"), region.code)
    assert found.warnings == ()
    assert len(found.urban_areas.shapes) == len(region.strata.area.geoms)
    places = made.truth["longitude"], made.truth["latitude"]
    expected = region.stratum(*places)
    assert {URBAN, "rural"} == set(expected)
    assert (found.region.stratum(*places) == expected).all()


@pytest.mark.trial
@pytest.mark.parametrize("code", ["AK", "HI", "DC", "RI"])
def test_towns_of_real_states(census, code):
    region = read_region(census, code).region
    towns = made_up_towns(region, 0)
    assert _ground(towns) / _ground(region.boundary) == pytest.approx(URBAN_SHARE, abs=0.001)
    assert towns.difference(region.boundary.buffer(1e-9)).is_empty
