"""A page of numbers of tests: no quantiles, no threshold, arrays of every quarter."""

import pytest
from browser_pages import make_counts
from browser_values import assert_coloured, layer_of, on_map, place_of

from geogp.maps.page.packing import unpack


@pytest.fixture(scope="module")
def counts():
    return make_counts()


def test_each_layer_of_each_quarter_has_its_colours(visit, counts):
    seen, data = visit(counts.page), counts.data
    assert seen.is_hidden("#geogp-threshold")
    assert "Farther" not in seen.inner_text("#geogp-marks")
    assert data["quarters"] == ["2023Q3", "2023Q4"]
    for quarter, arrays in ((1, data["arrays"]), (0, data["past"]["arrays"])):
        for name in ("expected", "lower", "upper", "none"):
            seen.update(layer=name, quarter=quarter)
            scale = layer_of(data, name)["scale"]
            assert_coloured(seen.picture(), on_map(data, unpack(arrays[name])[0], quarter), scale)
    seen.update(layer="tests", quarter=0)
    assert "This layer is the same for all quarters" in seen.inner_text("#geogp-legend")


def test_a_click_names_the_expected_number_and_its_bounds(visit, counts):
    seen, data = visit(counts.page), counts.data
    row, column = 6, 6
    seen.update(point=place_of(data["frame"], row, column))
    told = seen.inner_text("#geogp-place")
    expected = unpack(data["arrays"]["expected"])[0, row, column]
    lines = told.split("\n")
    assert f"{expected:.3g}" in lines[lines.index("Expected number of tests") + 1]
    upper = unpack(data["arrays"]["upper"])[0, row, column]
    assert lines[lines.index("Upper bound of the number of tests") + 1] == f"{upper:g}"
    assert "%" in lines[lines.index("Probability of no test") + 1]
    before = told
    seen.update(quarter=0)
    assert seen.inner_text("#geogp-place") != before
