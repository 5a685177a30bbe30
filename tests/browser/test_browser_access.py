"""Accessibility by axe, and the page in print and pictures."""

import pytest
from browser_acts import serious
from browser_pages import PHONE
from browser_values import place_of


@pytest.fixture
def pages(made, npm):
    return made, npm


STATES = {
    "start": {},
    "place": {"point": (12, 15)},
    "compared": {"layer": "probability", "beside": "width", "point": (12, 15)},
    "live": {"layer": "live", "quarter": 0, "point": (12, 15)},
}


@pytest.mark.parametrize(
    "state",
    [pytest.param(one, marks=() if one == "compared" else pytest.mark.trial) for one in STATES],
)
@pytest.mark.parametrize(
    "size", [None, pytest.param(PHONE, marks=pytest.mark.trial)], ids=["desktop", "phone"]
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit, pages, state, size, scheme):
    made, npm = pages
    seen = visit(made.page, size=size, color_scheme=scheme)
    changes = dict(STATES[state])
    if "point" in changes:
        changes["point"] = place_of(made.data["frame"], *changes["point"])
    seen.update(**changes)
    if size:
        seen.evaluate("document.getElementById('geogp-panel').open = true")
    assert serious(seen, npm) == []


INK = "getComputedStyle(document.body).color"
OUTLINE = "geogp.page.outlines.boundary.options.color"


def test_colours_follow_the_system(visit, made):
    seen = visit(made.page)
    light = [seen.evaluate(INK), seen.evaluate(OUTLINE)]
    seen.update(marks=seen.state["marks"] | {"measured": True})
    marks, layer = seen.picture("measured"), seen.picture()
    seen.emulate_media(color_scheme="dark")
    seen.until("ink => getComputedStyle(document.body).color !== ink", light[0])
    seen.until(f"{OUTLINE} === '#e8e8e8'")
    seen.settle()
    assert light[1] != "#e8e8e8"
    assert seen.picture("measured") != marks
    assert seen.picture() == layer
    asked = len(seen.asked)
    with seen.expect_request("**/dark_all/9/**"):
        seen.evaluate("() => { geogp.page.map.setZoom(9, {animate: false}); }")
    assert all("/dark_all/" in one for one in seen.asked[asked:])


def test_the_map_is_the_first_stop_and_every_part_has_a_landmark(visit, made):
    seen = visit(made.page)
    seen.keyboard.press("Tab")
    assert seen.evaluate("document.activeElement === geogp.page.map.getContainer()")
    assert seen.locator("body > header, body > main, body > aside, body > footer").count() == 4
    assert "user-scalable" not in made.page.split("</head>")[0]


@pytest.mark.trial
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_prints_map_legend_and_card_alone(visit, made, artefacts, scheme):
    seen = visit(made.page, color_scheme=scheme)
    seen.update(point=place_of(made.data["frame"], 12, 15))
    seen.emulate_media(media="print")
    seen.until(f"{OUTLINE} === '#222222'")
    seen.settle()
    paper = seen.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    over, card = (seen.locator(name).bounding_box() for name in ("main", "#geogp-place"))
    assert over["y"] + over["height"] <= card["y"]
    assert seen.evaluate("document.querySelector('#geogp-place').clientHeight") > 200
    assert seen.is_visible("#geogp-legend")
    assert seen.is_visible("h1")
    assert seen.is_hidden("#geogp-panel")
    assert seen.is_hidden(".leaflet-control-zoom")
    seen.screenshot(path=artefacts / "print.png", full_page=True)
    seen.emulate_media(media="screen")
    seen.until("document.querySelector('.geogp-map #geogp-place') !== null")


@pytest.mark.trial
def test_pictures_of_the_page_are_kept(visit, made, artefacts):
    point = place_of(made.data["frame"], 12, 15)
    for name, size in (("desktop", None), ("phone", PHONE)):
        seen = visit(made.page, size=size, touch=bool(size))
        seen.screenshot(path=artefacts / f"{name}.png")
        seen.update(point=point)
        seen.screenshot(path=artefacts / f"{name}-place.png")
        seen.update(layer="probability", beside="width")
        seen.screenshot(path=artefacts / f"{name}-compared.png")
        seen.update(layer="live", beside=None)
        seen.screenshot(path=artefacts / f"{name}-kernel.png")
        seen.evaluate("document.getElementById('geogp-panel').open = true")
        seen.update(quarter=0, point=None, layer="level")
        seen.screenshot(path=artefacts / f"{name}-quarter.png")
    assert len(list(artefacts.glob("phone*.png"))) >= 5
