"""Answers of later commands on the page: areas and changes, their colours and their facts."""

import numpy as np
import pytest
from browser_acts import facts
from browser_pages import DESKTOP, PHONE
from browser_values import assert_coloured, pixels, place_of

from geogp.maps.frame import Frame
from geogp.maps.page.interactive_page import PageAnswers, with_answers
from geogp.maps.page.packing import pack
from geogp.maps.page.page_layers import layer_json
from geogp.maps.scales import CHANGE_PALETTE, SPEED_PALETTE, change_scale, speed_scale
from geogp.maps.views import HOW_FAST, WHAT_CHANGED, View

NAMES = ["Añasco <b>", "O'Brien", "Vega"]
LEVELS = np.array([[30.0, 20.0, 5.0], [40.0, 10.0, 6.0]])
CHANGES = np.array([12.0, -30.0, 55.0])
ROSE = [0.7, 0.002, 0.999]
CALLED = [False, True, True]
SD = 0.1


def layer(name, unit, question, values, source):
    palette, make = (CHANGE_PALETTE, change_scale) if unit == "%" else (SPEED_PALETTE, speed_scale)
    view = View(name, "", f"Layer {name}", f"label {name}", palette, make, "", unit, question)
    return layer_json(view, "", source, values)


def bands(values, factor):
    return [[[value / factor, value, value * factor] for value in row] for row in values.tolist()]


@pytest.fixture(scope="module")
def answered(made):
    """A page with three answers, the number of each tile's area, and the change of each tile."""
    frame = Frame(**made.data["frame"])
    inside = frame.place(made.world.tiles, np.ones(len(made.world.tiles)), np.nan)
    across = np.arange(frame.width) * 4 // frame.width
    # The last quarter of the region lies in no area.
    number = np.where(across < 3, across, np.nan) * inside
    held = {"names": NAMES, "numbers": pack(number, 1.0, 8, none=True, offset=0.0)}
    mean = 0.2 * np.sin(np.arange(frame.height * frame.width)).reshape(inside.shape) * inside
    mean = np.round(mean / 0.002) * 0.002
    planes = {"mean": pack(mean, 0.002, 16), "sd": pack(inside * SD, 0.002, 16)}
    between = ["2023Q1 to 2023Q3"]
    level = held | {
        "what": "level",
        "times": ["2023Q1", "2023Q3"],
        "bands": bands(LEVELS, 1.5),
        "medians": (LEVELS / 1.3).tolist(),
    }
    change = held | {
        "what": "change",
        "times": between,
        "bands": [[[one - 20, one, one + 20] for one in CHANGES.tolist()]],
        "medians": [[one + 1 for one in CHANGES.tolist()]],
        "rose": ROSE,
        "called": CALLED,
    }
    tiles = {"tiles": planes | {"times": between}}
    layers = [
        layer("levels", "Mbps", HOW_FAST, LEVELS, {"areas": level}),
        layer("tiles", "%", WHAT_CHANGED, 100 * (10**mean - 1), tiles),
        layer("changes", "%", WHAT_CHANGED, CHANGES, {"areas": change}),
    ]
    page = with_answers(made.page, PageAnswers(layers=layers))
    assert page != made.page
    return page, {one["id"]: one["scale"] for one in layers}, number, mean


def test_answers_are_layers_of_their_questions(visit, answered):
    seen = visit(answered[0])
    groups = seen.locator("#geogp-layers details")
    assert groups.first.inner_text().endswith("Layer levels")
    assert groups.nth(4).inner_text().endswith("Layer tiles\nLayer changes")
    assert groups.count() == 6


def test_areas_have_the_colours_of_the_shown_quarter(visit, answered):
    page, scales, number, _ = answered
    seen = visit(page)
    # The middle quarter was not asked for: the last is shown, and named.
    for quarter, time in ((0, 0), (1, 1), (2, 1)):
        seen.update(layer="levels", quarter=quarter)
        row = np.append(LEVELS[time], np.nan)
        values = row[np.where(np.isnan(number), 3, number).astype(int)]
        assert_coloured(seen.picture(), values, scales["levels"])
        legend = seen.inner_text("#geogp-legend")
        assert f"Label levels, {('2023Q1', '2023Q3')[time]}" in legend


def test_areas_without_a_direction_are_striped(visit, answered):
    page, scales, number, _ = answered
    seen = visit(page)
    seen.update(layer="changes")
    found = seen.picture()
    drawn = pixels(found)[..., 3] > 0
    for area, called in enumerate(CALLED):
        share = drawn[number == area].mean()
        assert share == 1 if called else 0.35 < share < 0.65
    row = np.append(CHANGES, np.nan)
    values = row[np.where(np.isnan(number), 3, number).astype(int)]
    assert_coloured(found, np.where(drawn, values, np.nan), scales["changes"])
    assert "2023Q1 to 2023Q3" in seen.inner_text("#geogp-legend")


def test_tiles_have_the_colours_of_their_change(visit, answered):
    page, scales, _, mean = answered
    seen = visit(page)
    seen.update(layer="tiles")
    assert_coloured(seen.picture(), 100 * (10**mean - 1), scales["tiles"])


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_click_says_what_the_answers_say(visit, made, answered, size):
    page, _, number, mean = answered
    seen, data = visit(page, size=size), made.data
    for area in range(4):
        rows, columns = np.nonzero(
            np.isfinite(mean) & (number == area if area < 3 else np.isnan(number))
        )
        at = int(rows[len(rows) // 2]), int(columns[len(rows) // 2])
        seen.update(point=place_of(data["frame"], *at), quarter=0)
        told = facts(seen)
        name = f"{NAMES[area]} as a whole: level, 2023Q1" if area < 3 else ""
        low, middle, high = (
            100 * (10 ** (mean[at] + side * 1.959964 * SD) - 1) for side in (-1, 0, 1)
        )
        found = told["This tile: change of the level, 2023Q1 to 2023Q3"].replace(
            "\N{MINUS SIGN}", "-"
        )
        numbers = [
            float(one) for one in found.replace("(", "").strip(")").split() if one[-1].isdigit()
        ]
        np.testing.assert_allclose(numbers, [middle, low, high], rtol=0.006, atol=0.01)
        if area == 3:
            assert not [one for one in told if "whole: level" in one]
            assert seen.locator(".geogp-history svg").count() == 1
            continue
        value = LEVELS[0, area]
        assert told[name] == f"{value:g} Mbps ({value / 1.5:.3g} to {value * 1.5:.3g})"
        median = told[f"{NAMES[area]} as a whole: mean of the map's medians, 2023Q1"]
        assert median == f"{value / 1.3:.3g} Mbps"
        direction = "" if CALLED[area] else ", no clear direction"
        shown = told[f"{NAMES[area]} as a whole: change, 2023Q1 to 2023Q3{direction}"]
        assert shown.startswith(f"{CHANGES[area]:+g} % (".replace("-", "\N{MINUS SIGN}"))
        median = told[f"{NAMES[area]} as a whole: change of the map's medians, 2023Q1 to 2023Q3"]
        assert median == f"{CHANGES[area] + 1:+g} %".replace("-", "\N{MINUS SIGN}")
        chart = seen.locator(".geogp-history svg").nth(1)
        ends = [f"{LEVELS[time, area]:g} in 2023Q{quarter}" for time, quarter in ((0, 1), (1, 3))]
        assert " to ".join(ends) in chart.get_attribute("aria-label")
        assert chart.locator("circle").count() == 0
    width, inner = seen.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner


def test_the_address_keeps_the_layer_of_an_answer(visit, answered):
    seen = visit(answered[0], hash="#layer=changes&beside=tiles")
    assert (seen.state["layer"], seen.state["beside"]) == ("changes", "tiles")
    assert seen.is_checked("input[value=changes]")
