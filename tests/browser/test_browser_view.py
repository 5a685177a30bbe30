"""What a page shows at first, the button to all of it, and a region across the antimeridian."""

import numpy as np
import pytest
from browser_acts import CLICK, click, facts, serious
from browser_pages import DESKTOP, PHONE, make_page
from browser_runs import ACROSS
from browser_values import pixels, place_of

from geogp.maps.frame import Frame

VIEW = """() => { const b = geogp.page.map.getBounds();
  return [b.getSouth(), b.getWest(), b.getNorth(), b.getEast()]; }"""
LINES = """name => geogp.page.outlines[name].getLatLngs().map(
  line => line.map(({lat, lng}) => [lat, lng]))"""
HOME = ".geogp-home button"


@pytest.fixture(scope="module")
def across(runs):
    return runs(ACROSS)


def holds(view, bounds):
    return all(view[k] <= bounds[k] and bounds[k + 2] <= view[k + 2] for k in (0, 1))


def whole(data):
    west, south, east, north = Frame(**data["frame"]).bounds
    return [south, west, north, east]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_first_view_is_of_the_main_part_and_a_button_shows_all(visit, across, npm, size):
    seen, data = visit(across.page, size=size), across.data
    main, every = data["view"], whole(data)
    assert not holds(main, every)
    view = seen.evaluate(VIEW)
    assert holds(view, main)
    # It fills the window but for a margin of 12 pixels, and zooms in steps of 3 %.
    box = seen.locator(".geogp-map").bounding_box()
    share = max(
        (main[k + 2] - main[k]) / (view[k + 2] - view[k]) * length / (length - 24)
        for k, length in enumerate((box["height"], box["width"]))
    )
    assert 0.95 < share <= 1.001
    assert seen.get_attribute(HOME, "aria-label") == "Show the whole region"
    assert serious(seen, npm) == []
    seen.focus(HOME)
    seen.keyboard.press("Enter")
    assert holds(seen.evaluate(VIEW), every)
    assert seen.state["point"] is None
    box = seen.locator(HOME).bounding_box()
    assert min(box["width"], box["height"]) >= 30


def test_a_page_of_one_part_shows_all_of_it(visit, made):
    seen = visit(made.page)
    assert holds(seen.evaluate(VIEW), made.data["view"])
    seen.click(HOME)
    assert holds(seen.evaluate(VIEW), whole(made.data))


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_an_open_card_covers_neither_its_place_nor_a_view_of_all(visit, made, size):
    seen, (_, _, north, east) = visit(made.page, size=size), made.data["view"]
    place = [18.1, -66.5]
    inset = [150, 100] if size is DESKTOP else [60, 80]  # from the corner where the card opens
    seen.evaluate(
        """([place, [x, y], above]) => { const {map} = geogp.page; const size = map.getSize();
          const wanted = L.point(size.x - x, above ? y : size.y - y);
          map.panBy(map.latLngToContainerPoint(place).subtract(wanted), {animate: false}); }""",
        [place, inset, size is DESKTOP],
    )
    before = seen.evaluate(CLICK, place)
    seen.mouse.click(*before)
    seen.settle()
    card = seen.locator("#geogp-place").bounding_box()
    assert card["x"] < before[0] < card["x"] + card["width"]
    assert card["y"] < before[1] < card["y"] + card["height"]
    after = seen.evaluate(CLICK, place)
    assert after[0] < card["x"] or after[1] < card["y"]
    if size is DESKTOP:
        seen.click(HOME)
        assert seen.evaluate(CLICK, [north, east])[0] < card["x"]


def test_an_address_counts_before_the_first_view(visit, across):
    seen = visit(across.page, hash="#z=13&at=-16.9,-179.9")
    south, west, north, east = seen.evaluate(VIEW)
    assert ((south + north) / 2, (west + east) / 2) == pytest.approx((-16.9, -179.9), abs=1e-3)


def test_places_on_both_sides_of_180_degrees(visit, across, artefacts):
    """Columns go on across the edge of the world, and longitudes are said from 180 to 180."""
    seen, data = visit(across.page), across.data
    frame, tests = data["frame"], across.grid["tests"].to_numpy()
    edge = (0, 1 << frame["zoom"])
    crossing = [one - frame["column"] for one in edge if 0 < one - frame["column"] < tests.shape[1]]
    assert len(crossing) == 1
    row = int(np.nonzero((tests[:, crossing[0] - 1] >= 0) & (tests[:, crossing[0]] >= 0))[0][3])
    told = {}
    for column, side in ((crossing[0] - 1, "E"), (crossing[0], "W")):
        latitude, longitude = place_of(frame, row, column)
        click(seen, (latitude, longitude))
        where = seen.inner_text(".geogp-where")
        shown = (longitude + 180) % 360 - 180
        assert (shown > 0) == (side == "E")
        assert f"{-latitude:.4f}° S, {abs(shown):.4f}° {side}" in where
        assert seen.inner_text("#geogp-place-heading") == "A place in Middle"
        told[side] = facts(seen)
        # The same place, whole turns of the world away.
        for turns in (-1, 1):
            seen.update(point=[latitude, longitude + 360 * turns])
            assert facts(seen) == told[side]
    assert told["E"]["Median download speed"]
    seen.screenshot(path=artefacts / "across-180.png")


def test_picture_and_outlines_do_not_go_around_the_world(visit, across):
    seen, data = visit(across.page), across.data
    _, west, _, east = whole(data)
    assert east - west < 2
    found = pixels(seen.picture())
    assert found.shape[:2] == (data["frame"]["height"], data["frame"]["width"])
    for name in ("boundary", "urban", "counties"):
        for line in seen.evaluate(LINES, name):
            longitudes = np.array(line)[:, 1]
            assert west - 0.05 <= longitudes.min() <= longitudes.max() <= east + 0.05, name
            # Files cut polygons at 180 degrees; nothing is drawn along it.
            at_edge = np.isclose(longitudes % 360, 180, atol=1e-3)
            assert not (at_edge[1:] & at_edge[:-1]).any(), name
    seen.fill("#geogp-search-field", "Middle")
    seen.keyboard.press("Enter")
    _, west, _, east = seen.evaluate(VIEW)
    assert east - west < 1.5
    assert west < -180 < east or west < 180 < east


def test_the_kernel_is_drawn_on_both_sides(visit, across):
    seen, data = visit(across.page), across.data
    frame = data["frame"]
    crossing = next(
        one - frame["column"]
        for one in (0, 1 << frame["zoom"])
        if 0 < one - frame["column"] < frame["width"]
    )
    row = frame["height"] // 2
    seen.update(layer="live", point=list(place_of(frame, row, crossing)))
    one = pixels(seen.picture())
    inside = across.inside
    assert (one[inside, 3] == 255).all()
    assert not one[~inside].any()
    seen.update(point=[place_of(frame, row, crossing)[0], place_of(frame, row, crossing)[1] + 360])
    np.testing.assert_array_equal(pixels(seen.picture()), one)


NAMES = "Array.from(document.querySelectorAll('.geogp-name'), (one) => one.textContent)"


NAMED_AT = """Object.fromEntries(geogp.page.names.group.getLayers().map((one) => [
  one.options.icon.options.html.textContent, [one.getLatLng().lat, one.getLatLng().lng]]))"""


def test_without_towns_the_polygons_are_named_at_a_place_in_them(visit):
    made = make_page(invented=True)
    seen = visit(made.page)
    places = {one["name"]: one["at"] for one in reversed(made.data["places"])}  # counties win
    found = seen.evaluate(NAMED_AT)
    assert {"Adjuntas", "Mayagüez"} <= set(found) <= set(places)
    assert {name: places[name] for name in found} == found


def test_names_are_drawn_only_while_the_base_map_is_missing(visit, made, make):
    """Tests serve no base map; a page without one has its names at once."""
    seen, alone = visit(made.page), visit(make(base_map=False).page)
    seen.until(f"{NAMES}.length > 0")
    towns = {one["name"]: one["bounds"][:2] for one in made.data["places"] if one["kind"] == "town"}
    names = seen.evaluate(NAMES)
    assert names[0] == next(iter(towns)) == "Ponce"
    # The largest 40 towns in view.
    assert 10 < len(names) <= 40
    assert names == [name for name in towns if name in names]
    assert set(names) <= set(list(towns)[:50])
    assert alone.evaluate(NAMES) == names
    assert seen.evaluate(NAMED_AT) == {name: towns[name] for name in names}
    boxes = [one.bounding_box() for one in seen.locator(".geogp-name span").all()]
    for k, one in enumerate(boxes):
        for other in boxes[:k]:
            apart = abs(one["x"] - other["x"]) >= min(one["width"], other["width"]) * 0.8
            assert apart or abs(one["y"] - other["y"]) >= 14
    seen.evaluate("geogp_base.fire('tileload')")
    assert seen.evaluate(NAMES) == []
