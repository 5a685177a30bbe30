"""Accessibility by axe, and pages without network."""

import pytest
from browser_acts import serious
from browser_pages import PHONE
from browser_values import place_of

from geogp.maps.page_assets import read_library
from geogp.maps.page_parts import WITHOUT_LEAFLET

STATES = {
    "start": {},
    "place": {"point": (12, 15)},
    "compared": {"layer": "probability", "beside": "width", "point": (12, 15)},
    "live": {"layer": "live", "quarter": 0, "point": (12, 15)},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("size", [None, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious(visit, made, npm, state, size):
    seen = visit(made.page, size=size)
    changes = dict(STATES[state])
    if "point" in changes:
        changes["point"] = place_of(made.data["frame"], *changes["point"])
    seen.update(**changes)
    if size:
        seen.evaluate("document.getElementById('geogp-panel').open = true")
    assert serious(seen, npm) == []


def test_without_network_the_page_says_what_it_lacks(visit, made):
    seen = visit(made.page, offline=True, ready=False)
    seen.wait_for_selector(f"text={WITHOUT_LEAFLET[:40]}")
    assert seen.inner_text(".folium-map") == WITHOUT_LEAFLET
    assert seen.is_hidden("#geogp-search-field")
    assert seen.inner_text("h1").startswith("Isla")
    assert all("leaflet" in one for one in seen.aborted)
    assert any("L is not defined" in one for one in seen.faults)
    seen.faults.clear()
    seen.aborted.clear()


@pytest.fixture(scope="module")
def contained(make, npm):
    return make(library=read_library(npm))


def test_a_self_contained_page_needs_no_network(visit, contained, made):
    assert "jsdelivr" not in contained.page
    seen = visit(contained.page, offline=True)
    assert seen.aborted
    assert all("basemaps.cartocdn.com" in one for one in seen.aborted)
    assert seen.picture()["data"].count(255) > 1000
    seen.update(point=place_of(made.data["frame"], 12, 15), beside="tests")
    assert "Median download speed" in seen.inner_text("#geogp-place")


def test_another_file_from_the_cdn_is_refused(visit, made, npm):
    """The browser checks the hash: a changed library does not run."""
    page = made.page.replace("sha256-WBkoXOw", "sha256-XBkoXOw")
    assert page != made.page
    seen = visit(page, ready=False)
    seen.wait_for_selector(f"text={WITHOUT_LEAFLET[:40]}")
    assert any("integrity" in one for one in seen.faults)
    seen.faults.clear()


def test_the_page_prints_map_and_legend_alone(visit, made, artefacts):
    seen = visit(made.page)
    seen.emulate_media(media="print")
    assert seen.is_visible("#geogp-legend")
    assert seen.is_visible("h1")
    assert seen.is_hidden("#geogp-panel")
    assert seen.is_hidden(".leaflet-control-zoom")
    seen.screenshot(path=artefacts / "print.png")


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
