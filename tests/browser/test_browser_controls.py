"""Search, address, two layers side by side, and keys."""

import json
from urllib.parse import unquote

import numpy as np
import pytest
from browser_pages import HOSTILE, PHONE
from browser_values import assert_coloured, layer_of, place_of, values_of

from geogp.geodata.tiles.quadkeys import format_quadkeys, tiles_to_codes
from geogp.maps.page.packing import unpack

VIEW = """() => { const {lat, lng} = geogp.page.map.getCenter();
  return [geogp.page.map.getZoom(), lat, lng]; }"""
LINE = "document.querySelector('.geogp-divider-line').getBoundingClientRect().x"
BOUNDS = """() => { const b = geogp.page.map.getBounds();
  return [b.getSouth(), b.getWest(), b.getNorth(), b.getEast()]; }"""


@pytest.mark.trial
@pytest.mark.parametrize("text", ["mayaguez", "Mayagüez, county", "  MAYAG "])
def test_the_search_moves_the_map(visit, made, text):
    seen = visit(made.page)
    place = next(one for one in made.data["places"] if one["name"] == "Mayagüez")
    before = seen.evaluate(BOUNDS)
    seen.fill("#geogp-search-field", text)
    seen.keyboard.press("Enter")
    south, west, north, east = seen.evaluate(BOUNDS)
    assert [south, west, north, east] != before
    inner = place["bounds"]
    assert south <= inner[0] <= inner[2] <= north
    assert west <= inner[1] <= inner[3] <= east
    assert max((inner[2] - inner[0]) / (north - south), (inner[3] - inner[1]) / (east - west)) > 0.4
    assert seen.inner_text("#geogp-search-answer") == "The map shows Mayagüez, county."


@pytest.mark.trial
def test_the_search_offers_all_places_and_says_when_there_is_none(visit, made):
    seen = visit(made.page)
    offered = seen.evaluate(
        "Array.from(document.querySelectorAll('#geogp-places option'), o => o.value)"
    )
    assert offered == [f"{one['name']}, {one['kind']}" for one in made.data["places"]]
    assert {"Ponce, county", "Ponce, urban area"} <= set(offered)
    hint = seen.get_attribute("#geogp-search-field", "placeholder")
    assert hint == "Towns, coordinates"
    before = seen.evaluate(BOUNDS)
    seen.fill("#geogp-search-field", "Atlantis")
    seen.click("text=Show >> nth=0")
    assert (
        seen.inner_text("#geogp-search-answer")
        == "No county or town called Atlantis on this map. The search finds names of places and "
        "coordinates; no addresses or ZIP codes."
    )
    assert seen.evaluate(BOUNDS) == before


def test_a_town_is_found_without_accents_from_its_beginning_and_its_card_opened(visit, made):
    seen = visit(made.page)
    assert "Names of towns: GeoNames, CC BY 4.0" in seen.inner_text("#geogp-credits")
    for text, name in (("caguas", "Caguas"), ("MANATI", "Manatí"), ("san seb", "San Sebastián")):
        seen.update(point=None)
        seen.fill("#geogp-search-field", text)
        seen.keyboard.press("Enter")
        seen.until(ANSWER + f" === 'The map shows {name}, town.'")
        town = next(one for one in made.data["places"] if one["name"] == name)
        assert seen.state["point"] == town["bounds"][:2]
        assert seen.is_visible("#geogp-place")
        assert seen.evaluate(MARKED) == 0
        assert seen.evaluate("geogp.page.map.getZoom()") == 12
    seen.evaluate("geogp.page.data.towns_left_out = ' It names the largest 3 of 100 towns.'")
    seen.fill("#geogp-search-field", "Atlantis")
    seen.keyboard.press("Enter")
    seen.until(ANSWER + ".includes('on this map. It names the largest 3 of 100 towns.')")


def test_what_is_found_is_marked_and_its_card_opened(visit, made):
    seen, data = visit(made.page), made.data
    county = unpack(data["arrays"]["county"])
    at = tuple(np.argwhere(np.isfinite(county))[100])
    latitude, longitude = place_of(data["frame"], *at)
    quadkey = format_quadkeys(tiles_to_codes(*tile_at(data["frame"], at)), data["frame"]["zoom"])
    for text in (
        f"{latitude:.5f}, {longitude:.5f}",
        f"{latitude:.4f}° N, {-longitude:.4f}° W",
        f"{latitude:.5f} {longitude:.5f}",
        quadkey[0],
    ):
        seen.update(point=None)
        seen.fill("#geogp-search-field", text)
        seen.keyboard.press("Enter")
        seen.settle()
        np.testing.assert_allclose(seen.state["point"], [latitude, longitude], atol=1e-4)
        assert seen.is_visible("#geogp-place")
        assert seen.evaluate(MARKED) == 0
        assert seen.evaluate("geogp.page.map.getZoom()") == 14
        seen.until(ANSWER + ".startsWith('The map shows ')")
    seen.fill("#geogp-search-field", "0000000000")
    seen.keyboard.press("Enter")
    seen.until(ANSWER + " === 'Outside the region: tile 0000000000.'")
    for number, name in enumerate(data["names"]["county"]):
        seen.fill("#geogp-search-field", f"{name}, county")
        seen.keyboard.press("Enter")
        seen.until(
            "heading => document.getElementById('geogp-place-heading').textContent === heading",
            f"A place in {name}",
        )
        seen.settle()
        assert seen.evaluate(MARKED) == 1
        here = seen.evaluate(
            "geogp.cellAt(geogp.page.data.frame, L.latLng(geogp.page.state.point))"
        )
        assert county[here["row"], here["column"]] == number
    seen.click("#geogp-place-close")
    assert seen.evaluate(MARKED) == 0


def test_h3_cells_lie_where_h3_says(visit, made):
    """Cells everywhere, also around the pentagons: within 2 cm of the library's centres."""
    h3 = pytest.importorskip("h3")
    seen, random = visit(made.page), np.random.default_rng(2)
    latitude = np.degrees(np.arcsin(random.uniform(-1, 1, 3000)))
    longitude = random.uniform(-180, 180, 3000)
    cells = [
        h3.latlng_to_cell(*place, k % 16)
        for k, place in enumerate(zip(latitude, longitude, strict=True))
    ]
    # Near a pentagon, down to its own cell, the faces do not lie in one plane.
    for one in h3.get_pentagons(7):
        place = np.array(h3.cell_to_latlng(one))
        for k in range(200):
            near = place + random.standard_normal(2) * 10.0 ** random.uniform(-3, 1)
            cells.append(h3.latlng_to_cell(*near, k % 16))
    cells += h3.get_res0_cells() + h3.get_pentagons(4)
    find = "cells => cells.map(cell => (geogp.placeOfH3(cell) || {point: null}).point)"
    found = np.radians(seen.evaluate(find, cells))
    exact = np.radians([h3.cell_to_latlng(one) for one in cells])
    up, across = (found - exact).T
    apart = np.hypot(up, np.cos(exact[:, 0]) * np.sin(across / 2) * 2)
    assert len(cells) > 5000
    assert apart.max() * 6_371_000 < 0.02
    cell = int(h3.latlng_to_cell(18.2, -66.4, 9), 16)
    # A digit 7 within the resolution, a digit after it, a vertex, and a child that no pentagon has.
    odd = [
        cell | 7 << 18,
        cell & ~7,
        cell ^ (1 << 59 | 4 << 59),
        int("81083ffffffffff", 16) + (1 << 42),
    ]
    odd = [f"{one:x}" for one in odd] + ["8928308280fffg0", "89283"]
    assert not any(h3.is_valid_cell(one) for one in odd)
    assert seen.evaluate(find, odd) == [None] * len(odd)


def test_an_h3_cell_is_found(visit, made):
    h3 = pytest.importorskip("h3")
    seen, data = visit(made.page), made.data
    at = tuple(np.argwhere(np.isfinite(unpack(data["arrays"]["county"])))[100])
    for resolution in (7, 10):
        cell = h3.latlng_to_cell(*place_of(data["frame"], *at), resolution)
        seen.fill("#geogp-search-field", cell.upper() if resolution == 7 else cell)
        seen.keyboard.press("Enter")
        seen.settle()
        np.testing.assert_allclose(seen.state["point"], h3.cell_to_latlng(cell), atol=1e-6)
        seen.until(ANSWER + ".startsWith('The map shows H3 cell ')")
    seen.fill("#geogp-search-field", "892830828000000")
    seen.keyboard.press("Enter")
    seen.until(ANSWER + " === 'There is no H3 cell 892830828000000.'")


ANSWER = "document.getElementById('geogp-search-answer').textContent"
MARKED = "geogp.page.found.getLayers().length"


def tile_at(frame, at):
    return np.array([frame["column"] + at[1]]), np.array([frame["row"] + at[0]]), frame["zoom"]


def test_on_a_phone_the_panel_makes_room_for_what_is_found(visit, made):
    seen = visit(made.page, size=PHONE, touch=True)
    seen.tap("#geogp-panel > summary")
    seen.fill("#geogp-search-field", "Mayag")
    seen.tap("text=Show >> nth=0")
    seen.wait_for_selector("#geogp-place")
    assert seen.is_hidden("#geogp-search-field")


@pytest.mark.trial
def test_two_places_of_a_name_are_told_apart(visit, made):
    seen = visit(made.page)
    zooms = []
    for kind in ("county", "urban area"):
        seen.fill("#geogp-search-field", f"Ponce, {kind}")
        seen.keyboard.press("Enter")
        zooms.append(seen.evaluate(VIEW)[0])
    assert zooms[0] < zooms[1]


def test_an_address_opens_the_same_view_again(visit, made):
    seen, data = visit(made.page), made.data
    point = list(place_of(data["frame"], 12, 15))
    seen.evaluate("() => { geogp.page.map.setView([18.31, -66.52], 10.5, {animate: false}); }")
    threshold = data["threshold"]["values"][2]
    seen.update(
        layer="probability", beside="width", split=0.4, quarter=1, threshold=threshold, point=point
    )
    seen.until("location.hash.includes('split=0.4')")
    address = seen.evaluate("location.hash")
    wishes = dict(part.split("=") for part in address[1:].split("&"))
    assert wishes == {
        "z": "10.5",
        "at": "18.31,-66.52",
        "layer": "probability",
        "threshold": f"{threshold:g}",
        "quarter": "2023Q2",
        "beside": "width",
        "split": "0.4",
        "point": ",".join(str(round(x, 5)) for x in point),
    }
    again = visit(made.page, hash=address)
    assert again.evaluate(VIEW) == seen.evaluate(VIEW)
    before, after = seen.state, again.state
    np.testing.assert_allclose(before.pop("point"), after.pop("point"), atol=1e-5)
    assert before == after
    assert again.picture() == seen.picture()
    assert again.picture("beside") == seen.picture("beside")
    assert again.inner_text("#geogp-place") == seen.inner_text("#geogp-place")


@pytest.mark.trial
def test_a_new_address_changes_an_open_page(visit, made):
    seen = visit(made.page)
    seen.evaluate("location.hash = '#z=11&at=18.2,-66.4&layer=width'")
    seen.until("geogp.page.state.layer === 'width'")
    seen.settle()
    assert seen.evaluate(VIEW) == [11, 18.2, -66.4]
    assert seen.is_checked("input[value=width]")


@pytest.mark.trial
@pytest.mark.parametrize(
    "address",
    [
        "#layer=nothing&threshold=x&quarter=1800Q1&split=7&point=a,b&z=nine&at=1",
        "#%%%",
        "#z=9",
        "#&&==",
    ],
)
def test_a_senseless_address_shows_the_usual_view(visit, made, address):
    plain, seen = visit(made.page), visit(made.page, hash=address)
    assert seen.state == plain.state
    assert seen.evaluate(VIEW) == plain.evaluate(VIEW)


@pytest.mark.trial
def test_two_layers_side_by_side(visit, made):
    seen, data = visit(made.page), made.data
    assert seen.is_hidden("#geogp-divider")
    seen.select_option("#geogp-beside", label="Uncertainty")
    seen.settle()
    for name, picture in (("level", "main"), ("width", "beside")):
        scale = layer_of(data, name)["scale"]
        assert_coloured(seen.picture(picture), values_of(data, name, data["shown"]), scale)
    for box, side, words in (
        ("#geogp-legend", "Left", "Median download speed"),
        ("#geogp-legend-beside", "Right", "Width of the 95 % interval"),
    ):
        told = seen.inner_text(box)
        assert told.startswith(f"{side} of the divider")
        assert words in told
    slider = seen.locator("#geogp-split")
    assert slider.get_attribute("aria-label")
    shown = """x => { const {main, beside} = geogp.page.pictures, size = geogp.page.map.getSize();
      const at = geogp.page.map.containerPointToLayerPoint([x * size.x, size.y / 2]);
      const within = pane => {
        const points = pane.style.clipPath.match(/-?[\\d.]+px/g).map(parseFloat);
        const xs = points.filter((_, i) => i % 2 === 0), ys = points.filter((_, i) => i % 2);
        return at.x > Math.min(...xs) && at.x < Math.max(...xs) && at.y > Math.min(...ys)
          && at.y < Math.max(...ys); };
      return [within(main.pane), within(beside.pane)]; }"""
    for split in (0.5, 0.2, 0.9):
        seen.update(split=split)
        line = seen.evaluate(LINE)
        box = seen.locator(".geogp-map").bounding_box()
        assert abs(line - box["x"] - split * box["width"]) < 3
        assert seen.evaluate(shown, split - 0.02) == [True, False]
        assert seen.evaluate(shown, split + 0.02) == [False, True]
        seen.evaluate("() => { geogp.page.map.panBy([70, 30], {animate: false}); }")
        assert seen.evaluate(shown, split - 0.02) == [True, False]
    slider.focus()
    seen.keyboard.press("ArrowLeft")
    assert seen.state["split"] < 0.9
    seen.select_option("#geogp-beside", "")
    seen.settle()
    assert seen.is_hidden("#geogp-divider")
    assert seen.is_hidden("#geogp-legend-beside")
    assert seen.picture("beside") is None
    assert seen.evaluate("geogp.page.pictures.main.pane.style.clipPath") == ""


@pytest.mark.trial
def test_the_divider_is_dragged(visit, made):
    seen = visit(made.page)
    seen.update(beside="bound")
    box = seen.locator(".geogp-map").bounding_box()
    middle = box["y"] + box["height"] / 2
    seen.mouse.move(box["x"] + box["width"] / 2, middle)
    seen.mouse.down()
    seen.mouse.move(box["x"] + 0.3 * box["width"], middle, steps=4)
    seen.mouse.up()
    assert seen.state["split"] == pytest.approx(0.3, abs=0.01)
    assert seen.state["point"] is None


@pytest.mark.trial
def test_hostile_names_are_shown_as_text(visit, hostile):
    seen = visit(
        hostile.page, hash="#point=" + ",".join(map(str, place_of(hostile.data["frame"], 20, 24)))
    )
    assert seen.evaluate("window.hacked") is None
    assert seen.locator("img:not(.leaflet-tile)").count() == 0
    assert seen.inner_text("h1").startswith(HOSTILE)
    assert HOSTILE in seen.title()
    assert seen.inner_text("#geogp-place-heading") == f"A place in {HOSTILE}"
    assert (
        seen.locator(f"#geogp-places option[value={json.dumps(HOSTILE + ', county')}]").count() == 1
    )
    seen.click("#geogp-notes summary")
    assert seen.inner_text("#geogp-notes p") == HOSTILE
    assert HOSTILE in seen.inner_text("#geogp-credits")
    seen.fill("#geogp-search-field", HOSTILE + "!")
    seen.keyboard.press("Enter")
    assert HOSTILE in seen.inner_text("#geogp-search-answer")
    assert seen.evaluate("window.hacked") is None


def focus_of(seen):
    return seen.evaluate(
        "() => { const e = document.activeElement;"
        " return e.id || e.name || e.className || e.tagName; }"
    )


@pytest.mark.trial
def test_everything_is_reached_by_keys_alone(visit, made):
    seen = visit(made.page)
    seen.update(beside="width", layer="probability")
    order = []
    for _ in range(40):
        seen.keyboard.press("Tab")
        found = focus_of(seen)
        if found == "BODY" or (order and found == order[0]):
            break
        order.append(found)
    wanted = [
        "geogp-split",
        "geogp-search-field",
        "geogp-layer",
        "geogp-threshold-field",
        "geogp-quarter-field",
        "geogp-beside",
    ]
    places = [order.index(one) for one in wanted]
    assert places == sorted(places)
    assert "geogp_map" in order
    assert any("leaflet-control-zoom-in" in one for one in order)
    # Layers by arrows, marks by space.
    seen.focus("input[value=probability]")
    seen.keyboard.press("ArrowDown")
    assert seen.state["layer"] == "tests"
    seen.focus("#geogp-marks input >> nth=0")
    marks = seen.state["marks"]
    seen.keyboard.press("Space")
    assert seen.state["marks"] != marks


@pytest.mark.trial
def test_enter_reads_the_place_under_the_cross(visit, made):
    seen = visit(made.page)
    cross = "getComputedStyle(document.getElementById('geogp-cross')).visibility"
    assert seen.evaluate(cross) == "hidden"
    seen.evaluate("() => { geogp.page.map.setView([18.3, -66.75], 11, {animate: false}); }")
    seen.keyboard.press("Tab")
    seen.evaluate("geogp.page.map.getContainer().focus()")
    assert seen.evaluate(cross) == "visible"
    box, at = (
        seen.locator(".geogp-map").bounding_box(),
        seen.locator("#geogp-cross").bounding_box(),
    )
    assert at["x"] + at["width"] / 2 == pytest.approx(box["x"] + box["width"] / 2, abs=1)
    assert at["y"] + at["height"] / 2 == pytest.approx(box["y"] + box["height"] / 2, abs=1)
    before = seen.evaluate(VIEW)
    seen.keyboard.press("ArrowDown")
    seen.until("lat => geogp.page.map.getCenter().lat < lat", arg=before[1])
    seen.wait_for_timeout(400)
    seen.keyboard.press("Enter")
    seen.settle()
    np.testing.assert_allclose(seen.state["point"], seen.evaluate(VIEW)[1:], atol=1e-9)
    assert seen.is_visible("#geogp-place")
    said = seen.inner_text("#geogp-status")
    assert "Median download speed: " in said
    assert seen.locator("#geogp-status").get_attribute("aria-live") == "polite"
    seen.keyboard.press("Escape")
    assert seen.is_hidden("#geogp-place")
    seen.mouse.click(900, 300)
    assert seen.evaluate(cross) == "hidden"


@pytest.mark.trial
def test_focus_is_always_seen(visit, made):
    seen = visit(made.page)
    ring = """() => { const s = getComputedStyle(document.activeElement);
      return [s.outlineStyle, parseFloat(s.outlineWidth)]; }"""
    for _ in range(12):
        seen.keyboard.press("Tab")
        style, width = seen.evaluate(ring)
        assert style != "none", focus_of(seen)
        assert width >= 2


@pytest.mark.trial
def test_a_phone_shows_all_without_sideways_scrolling(visit, made):
    seen = visit(made.page, size=PHONE, touch=True)
    wide = "() => [document.documentElement.scrollWidth, innerWidth]"
    assert seen.evaluate(wide) == [390, 390]
    assert seen.locator(".geogp-map").bounding_box()["height"] > 0.6 * 844
    assert seen.is_hidden("#geogp-search-field")
    seen.tap("#geogp-panel > summary")
    for name in ("#geogp-search-field", "#geogp-threshold-field", "#geogp-beside"):
        seen.locator(name).scroll_into_view_if_needed()
        assert seen.is_visible(name)
        box = seen.locator(name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["height"] >= 36
    seen.tap("text=Uncertainty >> nth=0")
    assert seen.state["layer"] == "width"
    assert seen.locator(".geogp-map").bounding_box()["height"] > 200
    seen.select_option("#geogp-beside", "level")
    seen.tap("#geogp-panel > summary")
    seen.settle()
    assert seen.evaluate(wide) == [390, 390]
    left, right = (
        seen.locator(x).bounding_box() for x in ("#geogp-legend", "#geogp-legend-beside")
    )
    assert left["x"] + left["width"] <= right["x"]
    box = seen.locator(".geogp-map").bounding_box()
    seen.touchscreen.tap(120, box["y"] + box["height"] * 0.52)
    seen.settle()
    card = seen.locator("#geogp-place").bounding_box()
    assert card["x"] >= 0
    assert card["x"] + card["width"] <= 390
    assert card["y"] + card["height"] <= 844
    assert seen.evaluate(wide) == [390, 390]


def test_the_quarters_play_and_stop(visit, made):
    seen = visit(made.page, reduced_motion="no-preference")
    seen.focus("#geogp-play")
    seen.keyboard.press("Enter")
    assert seen.inner_text("#geogp-play") == "Stop"
    assert seen.state["quarter"] == 0
    seen.until("geogp.page.state.quarter === 1")
    seen.keyboard.press("Enter")
    assert seen.inner_text("#geogp-play") == "Play"
    seen.wait_for_timeout(1200)
    assert seen.state["quarter"] == 1
    seen.keyboard.press("Enter")
    seen.until("geogp.page.state.quarter === 2")
    assert seen.inner_text("#geogp-play") == "Play"
    # Nothing plays on without its button.
    seen.update(quarter=0)
    seen.keyboard.press("Enter")
    assert seen.inner_text("#geogp-play") == "Stop"
    seen.emulate_media(reduced_motion="reduce")
    seen.until("document.getElementById('geogp-play').textContent === 'Play'")
    assert seen.state["quarter"] < 2
    # Without motion, the slider remains.
    still = visit(made.page)
    assert still.is_hidden("#geogp-play")
    still.focus("#geogp-quarter-field")
    still.keyboard.press("Home")
    assert still.state["quarter"] == 0


@pytest.mark.trial
def test_the_address_is_one_to_read(visit, made):
    seen = visit(made.page)
    seen.update(quarter=0)
    seen.until("location.hash.includes('quarter=2023Q1')")
    assert unquote(seen.evaluate("location.hash")) == seen.evaluate("location.hash")
