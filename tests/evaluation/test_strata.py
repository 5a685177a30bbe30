"""Strata: every row once in each kind, small ones put together by the rule."""

import tracemalloc
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from geogp.errors import DataError
from geogp.evaluation.strata import (
    MIN_ROWS,
    SPEED_CLASSES,
    count_groups,
    distance_groups,
    joined,
    pooled,
    ranges,
    strata_of,
    value_groups,
)

# pytest would take the function for a test.
groups_of_tests = partial(count_groups, noun="test")


def test_classes_of_tests_hold_every_count_once():
    tests = np.arange(1, 60)
    groups = groups_of_tests(tests)
    assert list(groups) == ["1", "2", "3 to 4", "5 to 9", "10 to 19", "20 or more"]
    np.testing.assert_array_equal(np.sum(list(groups.values()), 0), np.ones(59))
    assert tests[groups["5 to 9"]].tolist() == [5, 6, 7, 8, 9]


def test_classes_of_distance_begin_with_the_same_tile():
    distance = np.array([0.0, 0.5, 1.0, 1.01, 2.0, 4.9, 5.0, 10.0, 10.1])
    found = {name: distance[rows].tolist() for name, rows in distance_groups(distance).items()}
    assert found == {
        "same tile": [0.0],
        "up to 1 km": [0.5, 1.0],
        "1 to 2 km": [1.01, 2.0],
        "2 to 5 km": [4.9, 5.0],
        "5 to 10 km": [10.0],
        "above 10 km": [10.1],
    }


def test_classes_of_speed_part_at_the_tiers_of_the_fcc():
    speed = np.array([4.99, 5.0, 6.9, 7.0, 35.0, 99.0, 100.0])
    found = {
        name: speed[rows].tolist()
        for name, rows in ranges(speed, SPEED_CLASSES["download"], " Mbps").items()
    }
    assert found == {
        "below 5 Mbps": [4.99],
        "5 to 7 Mbps": [5.0, 6.9],
        "7 to 35 Mbps": [7.0],
        "35 to 100 Mbps": [35.0, 99.0],
        "100 Mbps or more": [100.0],
    }


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_distances_out_of_range_are_refused(wrong):
    with pytest.raises(DataError, match="found other values in 1 rows"):
        distance_groups(np.array([0.0, wrong]))


def test_small_classes_are_joined_to_the_next():
    number = np.repeat(["a", "b", "c", "d", "e"], [10, 50, 5, 40, 3])
    found = joined(value_groups(number), least=30)
    assert [(one.name, int(one.rows.sum())) for one in found] == [("a … b", 60), ("c … e", 48)]
    assert [one.members for one in found] == [list("ab"), list("cde")]
    (few,) = joined(value_groups(number[:10]), least=30)
    assert few.name == "a"


def test_small_places_are_pooled_into_others():
    county = np.repeat(["a", "b", "c", "d"], [10, 50, 5, 40])
    found = pooled(county, "counties", least=30)
    assert [(one.name, int(one.rows.sum())) for one in found] == [
        *(("b", 50), ("d", 40), ("others (2 counties)", 15))
    ]
    assert found[-1].members == ["a", "c"]
    np.testing.assert_array_equal(np.sum([one.rows for one in found], 0), np.ones(105))


def test_a_single_small_place_keeps_its_name():
    found = pooled(np.repeat(["a", "b"], [10, 50]), least=30)
    assert [(one.name, one.members) for one in found] == [("b", ["b"]), ("a", ["a"])]


def test_thousands_of_places_take_the_memory_of_their_strata_only():
    n, places = 40_000, 4000
    values = np.char.add("area ", (np.arange(n) % places).astype(str))
    values[:300] = "area 0"
    tracemalloc.start()
    found = pooled(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [one.name for one in found] == ["area 0", "others (3999 areas)"]
    np.testing.assert_array_equal(found[0].rows, values == "area 0")
    np.testing.assert_array_equal(found[1].rows, values != "area 0")
    # A mask for each place would take n times places bytes.
    assert peak < n * places / 10


def test_the_least_rows_are_those_that_the_rule_says():
    """95 of 100 has an exact interval of less than 5 points each way; 95 % of 80 has not."""
    exact = stats.binomtest(round(0.95 * MIN_ROWS), MIN_ROWS).proportion_ci(method="exact")
    assert exact.high - exact.low < 0.10
    fewer = stats.binomtest(76, 80).proportion_ci(method="exact")
    assert fewer.high - fewer.low > 0.10


def test_kinds_follow_the_columns():
    n = 400
    rows = pd.DataFrame(
        {
            "stratum": ["urban", "rural"] * 200,
            "tests": 3,
            "quarter": "2020Q1",
            "mean": 1.0,
        }
    )
    median = np.full(n, 1.0)
    assert list(strata_of(rows, median, "download")) == [
        *("all", "stratum", "tests", "speed", "quarter")
    ]
    assert "speed" not in strata_of(rows, median, "other")
    more = rows.assign(
        distance_km=0.0,
        county=["A", "B", None, ""] * 100,
        layer_company=["x"] * 390 + ["y"] * 5 + ["z"] * 5,
    )
    found = strata_of(more, median, "download")
    assert [one.name for one in found["county"]] == ["A", "B", "elsewhere"]
    assert [one.name for one in found["layer_company"]] == ["x", "others (2 areas)"]
    for strata in found.values():
        np.testing.assert_array_equal(np.sum([one.rows for one in strata], 0), np.ones(n))
    assert [one.name for one in found["speed"]] == ["7 to 35 Mbps"]
    devices = np.repeat([1, 2, 3], [150, 130, 120])
    found = strata_of(rows.assign(devices=devices), median, "download")
    assert [one.name for one in found["devices"]] == ["1", "2", "3 to 4"]
    sharing = {one.name: int(one.rows.sum()) for one in found["tests_per_device"]}
    assert sharing == {"below 1.5": 120, "1.5 to 2.5": 130, "2.5 to 5": 150}
    with pytest.raises(DataError, match=r"expected 1 device or more in each row, .* 3 rows"):
        strata_of(rows.assign(devices=np.repeat([0, 1], [3, n - 3])), median, "download")
