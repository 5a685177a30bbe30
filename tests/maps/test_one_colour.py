"""Maps of one colour: what is said of them, and that what is offered divides them."""

import re

import numpy as np
import pytest
import xarray as xr

from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.maps.one_colour import NEARLY, first_threshold, one_colour, one_side
from geogp.maps.target_quantities import quantity_of
from geogp.value_scales import LOG10


def medians(low, high, n=1000):
    return np.linspace(low, high, n)


def offered(told, target):
    return Threshold(float(re.search(r"--threshold (\S+)\.$", told)[1]), target)


@pytest.mark.parametrize(
    ("target", "value", "begin"),
    [
        ("download", 5, "In every tile of the map, the median is at least 5 Mbps. "),
        ("download", 900, "In every tile of the map, the median is below 900 Mbps. "),
        ("latency", 500, "In every tile of the map, the median is at most 500 ms. "),
        ("latency", 10, "In every tile of the map, the median is above 10 ms. "),
    ],
)
def test_a_map_on_one_side_is_told_the_nearest_threshold_that_divides_it(target, value, begin):
    y, asked = np.log10(medians(20, 130)), Threshold(value, target)
    told = one_side(y, asked)
    assert told.startswith(begin)
    found = offered(told, target)
    assert NEARLY <= found.holds(y).mean() <= 1 - NEARLY
    nearer = asked.modelled + np.linspace(0.05, 0.95, 10) * (found.modelled - asked.modelled)
    shares = [Threshold(float(10**one), target).holds(y).mean() for one in nearer]
    assert shares[0] in {
        0.0,
        1.0,
    }  # on the way to the offered threshold, the map is undivided first


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.5, None), (0.03, None), (0.985, "In 98.5 % of"), (0.01, "In 99.0 % of"), (0, "In every")],
)
def test_a_map_is_of_one_colour_if_fewer_than_two_per_cent_differ(share, told):
    y = np.where(np.arange(1000) < 1000 * share, 1.5, 0.5)
    found = one_side(y, Threshold(10, "download"))
    assert found is None if told is None else found.startswith(told)


def test_equal_medians_have_no_threshold_that_divides_them():
    told = one_side(np.full(10, 1.0), Threshold(5, "download"))
    assert told.endswith("No round threshold divides the map.")
    decibels = one_side(medians(-99.0, -81.0), Threshold(-115, "rsrp"))
    assert -99 < offered(decibels, "rsrp").value < -81
    shares = one_side(medians(97.0, 99.9), Threshold(80, "success"))
    assert 97 < offered(shares, "success").value < 100


def test_the_first_threshold_is_nearest_to_the_median_of_the_map(world):
    thresholds = thresholds_of("download")
    values = world.grid["median_mbps"].to_numpy()
    middle = np.log10(np.nanmedian(values))
    first = first_threshold(world.grid, thresholds)
    assert abs(first.modelled - middle) == min(abs(one.modelled - middle) for one in thresholds)
    assert first_threshold(world.grid, ()) is None
    assert one_colour(world.grid, ()) is None
    y = LOG10.modelled(values[np.isfinite(values)])
    assert one_colour(world.grid, thresholds) == one_side(y, first)


@pytest.mark.parametrize(
    ("target", "classes", "told"),
    [
        ("tier", 2, "In every tile of the map, the most probable tier is 7/1. The layer “"),
        ("fixed-tier", 1, "In every tile of the map, the most probable tier is 25/3. The layer “"),
    ],
)
def test_a_map_of_one_tier_is_told_the_tier_that_divides_it(target, classes, told):
    tags = quantity_of(target).at_least
    p = {tag: np.full((1, 100), 0.9 if place < classes else 0.3) for place, tag in enumerate(tags)}
    grid = xr.Dataset(
        {name: (("y", "x"), values) for name, values in p.items()}
        | {
            "tier": (("y", "x"), np.full((1, 100), classes, np.uint8)),
            "entropy": (("y", "x"), np.ones((1, 100))),
        },
        attrs={"target": target},
    )
    alone = one_colour(grid, ())
    assert "No tier divides the map at a probability of 50 %." in alone
    grid[tags[-1]][0, :40] = 0.6
    grid[tags[-1]][0, 99] = np.nan  # outside the region
    found = one_colour(grid, ())
    name = quantity_of(target).classes[-1]
    assert found.startswith(told)
    assert f"“Probability of at least {name}” divides the map" in found
    grid["tier"][0, :5] = classes - 1
    assert one_colour(grid, ()) is None
