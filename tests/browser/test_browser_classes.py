"""The page of a map of classes: their colours, and the probabilities at a place."""

import numpy as np
import pytest
from browser_pages import make_tiers
from browser_values import assert_coloured, layer_of, on_map, place_of

from geogp.geodata.tiles.targets import SPEED_TIERS
from geogp.maps.page.packing import unpack


@pytest.fixture(scope="module")
def tiers():
    return make_tiers()


def test_each_layer_of_each_quarter_has_its_colours(visit, tiers):
    seen, data = visit(tiers.page), tiers.data
    assert seen.is_hidden("#geogp-threshold")
    assert "Farther" in seen.inner_text("#geogp-marks")
    seen.update(marks={**seen.state["marks"], "far": False})
    for quarter, arrays in ((1, data["arrays"]), (0, data["past"]["arrays"])):
        for name in ("tier", "p_at_least_7_1", "p_most_probable", "entropy"):
            seen.update(layer=name, quarter=quarter)
            scale = layer_of(data, name)["scale"]
            assert_coloured(seen.picture(), on_map(data, unpack(arrays[name])[0], quarter), scale)


def test_the_legend_names_the_classes(visit, tiers):
    seen = visit(tiers.page)
    told = seen.inner_text("#geogp-legend")
    assert all(name in told for name in SPEED_TIERS["mobile"])
    assert len(set(layer_of(tiers.data, "tier")["scale"]["colours"])) == len(SPEED_TIERS["mobile"])


def test_a_click_gives_the_class_and_all_probabilities(visit, tiers):
    seen, data = visit(tiers.page), tiers.data
    row, column = 6, 6
    seen.update(point=place_of(data["frame"], row, column))
    lines = seen.inner_text("#geogp-place").split("\n")
    grid = tiers.world.grid
    code = int(grid["tier"].to_numpy()[row, column])
    assert lines[lines.index("Most probable tier") + 1] == list(SPEED_TIERS["mobile"])[code]
    for name, tag in zip(SPEED_TIERS["mobile"], ("below_5_1", "5_1", "7_1", "35_3"), strict=True):
        p = float(grid[f"p_tier_{tag}"].to_numpy()[row, column])
        shown = lines[lines.index(f"Probability of {name}") + 1]
        number = 0.5 if "less" in shown else 99.5 if "more" in shown else float(shown.split()[0])
        assert number == pytest.approx(100 * p, abs=1.5)
    assert "NaN" not in "".join(lines)
    assert np.isfinite(unpack(data["arrays"]["entropy"])[0, row, column])


def test_a_map_of_one_class_says_so_and_which_class_divides_it(visit, tiers):
    seen = visit(tiers.page)
    assert seen.locator(".geogp-note").count() == 0
    alone = make_tiers(third=4.5)
    seen, data = visit(alone.page), alone.data
    inside = np.isfinite(unpack(data["arrays"]["tier"])[0])
    assert set(unpack(data["arrays"]["tier"])[0][inside]) == {2}
    names, dividing = list(SPEED_TIERS["mobile"]), []
    for number, name in enumerate(("p_at_least_5_1", "p_at_least_7_1", "p_at_least_35_3"), 1):
        p = unpack(data["arrays"][name])[0][inside]
        ordered = np.sort(p)
        left = int(0.02 * len(p))
        dividing += [number] if ordered[left] < 0.5 <= ordered[-1 - left] else []
        seen.update(layer=name)
        told = "every tile, the probability" in seen.inner_text("#geogp-legend")
        assert told == (number not in dividing)
    seen.update(layer="tier")
    kind = "probability of at least a tier"
    nearest = [names[number] for number in sorted(dividing, key=lambda one: abs(one - 2))]
    assert seen.inner_text(".geogp-note") == f"Every tile has the tier {names[2]}. " + (
        f"The nearest {kind} that divides the region is {nearest[0]}."
        if nearest
        else f"No {kind} divides the region."
    )
    assert seen.locator(".geogp-offer").count() == bool(nearest)
    if nearest:
        seen.click(".geogp-offer")
        tag = nearest[0].replace("/", "_")
        assert seen.state["layer"] == f"p_at_least_{tag}"
