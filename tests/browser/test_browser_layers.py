"""What the page draws: every pixel of every layer has the colour of its value."""

import numpy as np
import pytest
from browser_pages import make_page
from browser_values import assert_coloured, cells, layer_of, pixels, place_of, values_of

from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Frame
from geogp.maps.page.kernel_error import interpolated, random_places
from geogp.maps.page.packing import unpack

CORNERS = """name => {
  const {overlay} = geogp.page.pictures[name];
  const bounds = overlay.getBounds(), box = overlay.getElement().getBoundingClientRect();
  const map = geogp.page.map, left = map.getContainer().getBoundingClientRect();
  const a = map.latLngToContainerPoint(bounds.getNorthWest());
  const b = map.latLngToContainerPoint(bounds.getSouthEast());
  return {bounds: [bounds.getNorth(), bounds.getWest(), bounds.getSouth(), bounds.getEast()],
    drawn: [box.left - left.left, box.top - left.top, box.right - left.left, box.bottom - left.top],
    meant: [a.x, a.y, b.x, b.y], rendering: getComputedStyle(overlay.getElement()).imageRendering};
}"""


SCALE = "geogp.page.pictures.main.painted.scale"

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture(scope="module")
def layers(made):
    return [one["id"] for one in made.data["layers"]]


def test_each_layer_has_the_colours_of_its_values(visit, made, layers):
    assert {"level", "width", "bound", "probability", "tests", "slice-0"} <= set(layers)
    check_layers(visit(made.page), made.data, layers)


def test_decibels_are_shown_as_they_are(visit):
    made = make_page(target="sinr")
    layers = ["level", "width", "bound", "probability", "change"]
    seen = visit(made.page)
    check_layers(seen, made.data, layers)
    words = seen.inner_text("body")
    assert "How strong" in words
    assert f"at least {made.data['threshold']['shown']:g} dB" in words
    assert "Mbps" not in words
    assert "How fast" not in words


def check_layers(seen, data, layers):
    """Check colours, ticks and words of the layers of a page."""
    for name in layers:
        if name == "slice-0":
            seen.click("text=How the model thinks")
        seen.check(f"input[name=geogp-layer][value={name}]")
        seen.settle()
        threshold = data["threshold"]["shown"]
        values = values_of(data, name, data["shown"], threshold)
        scale = seen.evaluate(SCALE)
        assert scale == layer_of(data, name).get("scale", scale)
        assert_coloured(seen.picture(), values, scale)
        legend = seen.inner_text("#geogp-legend")
        shown = seen.locator("#geogp-legend .geogp-ticks span").all_inner_texts()
        assert shown == scale["labels"]
        factors = shown[0].startswith(TIMES)
        assert factors == (name == "width" and data["unit"] == "Mbps")
        ticks = [
            float(t.strip(TIMES).replace("\N{MINUS SIGN}", "-").replace(",", "")) for t in shown
        ]
        np.testing.assert_allclose(np.log10(ticks) if factors else ticks, scale["ticks"], rtol=1e-6)
        words = f"at least {threshold:g} {data['unit']}" if name == "probability" else ""
        assert words in legend


@pytest.mark.trial
def test_the_canvas_is_stretched_between_the_frames_corners(visit, made):
    seen, frame = visit(made.page), made.data["frame"]
    for zoom in (None, 12.25):
        if zoom:
            seen.evaluate("zoom => { geogp.page.map.setZoom(zoom, {animate: false}); }", zoom)
        found = seen.evaluate(CORNERS, "main")
        north, west = place_of(frame, 0, 0, down=0, across=0)
        south, east = place_of(frame, frame["height"], frame["width"], down=0, across=0)
        np.testing.assert_allclose(found["bounds"], [north, west, south, east], atol=1e-10)
        # Leaflet rounds places on the screen to whole pixels.
        np.testing.assert_allclose(found["drawn"], found["meant"], rtol=0, atol=1.01)
        assert found["rendering"] == "pixelated"


@pytest.mark.trial
def test_marks_lie_over_their_tiles(visit, made):
    seen, data = visit(made.page), made.data
    far = unpack(data["arrays"]["far"]) == 1
    tests = unpack(data["arrays"]["tests"]) > 0
    assert far.any()
    assert tests.any()
    np.testing.assert_array_equal(pixels(seen.picture("far"))[..., 3] > 0, far)
    assert seen.picture("measured") is None
    seen.check("text=Measured tiles")
    seen.uncheck("text=Farther than 5 km from any measurement")
    seen.settle()
    np.testing.assert_array_equal(pixels(seen.picture("measured"))[..., 3] > 0, tests)
    assert seen.picture("far") is None


@pytest.mark.trial
def test_outlines_are_there_and_can_be_taken_away(visit, made):
    seen = visit(made.page)
    names = {"boundary": "Boundary", "urban": "Urban areas (2000 Census)", "counties": "Counties"}
    on = "name => geogp.page.map.hasLayer(geogp.page.outlines[name])"
    for name, words in names.items():
        assert seen.evaluate(on, name)
        seen.uncheck(f'text="{words}"')  # not the search's hint
        assert not seen.evaluate(on, name)
        seen.check(f'text="{words}"')
        assert seen.evaluate(on, name)


@pytest.mark.trial
def test_the_threshold_changes_the_picture_and_the_words(visit, made):
    seen, data = visit(made.page), made.data
    seen.check("input[value=probability]")
    slider = seen.locator("#geogp-threshold-field")
    scale, values = layer_of(data, "probability")["scale"], data["threshold"]["values"]
    shown = data["threshold"]["shown"]
    assert int(slider.input_value()) == values.index(shown)
    slider.focus()
    for key, step in (("ArrowRight", 1), ("Home", None), ("End", None)):
        seen.keyboard.press(key)
        seen.settle()
        wanted = {"Home": values[0], "End": values[-1]}.get(key)
        wanted = values[values.index(shown) + step] if wanted is None else wanted
        words = f"at least {wanted:,g} Mbps"
        assert seen.inner_text("#geogp-threshold-words") == words
        assert slider.get_attribute("aria-valuetext") == words
        assert words in seen.inner_text("#geogp-legend")
        assert_coloured(
            seen.picture(), values_of(data, "probability", data["shown"], wanted), scale
        )


@pytest.mark.trial
@pytest.mark.parametrize("up", [0, 2])
@pytest.mark.parametrize("df", [None, 3.0])
def test_every_quarter_is_drawn_on_the_maps_own_tiles(visit, make, up, df):
    """Also a quarter of larger tiles, which then ends at the coast and not beyond."""
    made = make(up=up, df=df)
    seen, data = visit(made.page), made.data
    slider = seen.locator("#geogp-quarter-field")
    assert int(slider.input_value()) == data["shown"] == 2
    slider.focus()
    seen.keyboard.press("ArrowLeft")
    seen.settle()
    assert seen.inner_text("#geogp-quarter-words") == "2023Q2"
    assert ("squares of" in seen.inner_text("#geogp-quarter")) == bool(up)
    assert data["past"]["frame"]["zoom"] == data["frame"]["zoom"] - up
    for name in ("level", "width", "bound", "probability", *([] if up else ["change"])):
        seen.check(f"input[value={name}]")
        seen.settle()
        values = values_of(data, name, 1, data["threshold"]["shown"])
        assert values.shape == (data["frame"]["height"], data["frame"]["width"])
        assert_coloured(seen.picture(), values, layer_of(data, name)["scale"])


@pytest.mark.parametrize("up", [0, 2])
def test_no_layer_compares_quarters_with_squares_of_different_sizes(visit, make, up):
    seen = visit(make(up=up).page, hash="#layer=change")
    assert seen.locator("input[value=change]").count() == (not up)
    assert seen.state["layer"] == ("level" if up else "change")
    why = "No layer shows the change of the median"
    assert (why in seen.inner_text("#geogp-layers")) == bool(up)
    seen.update(layer="level", quarter=0)
    assert ("in the middle of squares of 9.3 km" in seen.inner_text("#geogp-legend")) == bool(up)
    seen.update(quarter=2)
    assert "squares of" not in seen.inner_text("#geogp-legend")


def test_a_threshold_with_all_tiles_on_one_side_names_one_that_divides(visit, made):
    seen, data = visit(made.page), made.data
    thresholds = np.array(data["threshold"]["values"])
    median = values_of(data, "level", data["shown"])
    low, high = np.nanmin(median), np.nanmax(median)
    ordered = np.sort(median[np.isfinite(median)])
    left = int(0.02 * len(ordered))  # nearly all tiles are those without 2 % on each side
    ends = ordered[left], ordered[-1 - left]
    dividing = thresholds[(ends[0] < thresholds) & (thresholds <= ends[1])]
    assert thresholds[0] < low < dividing[0] < dividing[-1] < high < thresholds[-1]
    for value, side, nearest in (
        (thresholds[0], "above", dividing[0]),
        (thresholds[-1], "below", dividing[-1]),
    ):
        seen.update(layer="probability", threshold=float(value))
        assert seen.inner_text(".geogp-note") == (
            f"In every tile, the probability is {side} 50 %. "
            f"The nearest threshold that divides the region is {nearest:g} Mbps."
        )
        assert seen.inner_text(".geogp-offer") == f"Show {nearest:g} Mbps"
        seen.click(".geogp-offer")
        assert seen.state["threshold"] == nearest
        seen.update()
        assert seen.locator(".geogp-note, .geogp-offer").count() == 0
    between = ordered[1]  # two tiles or more are on the other side, but not 2 %
    assert left > 1
    data_of = "([value]) => { geogp.page.data.threshold.values.push(value); }"
    seen.evaluate(data_of, [float(between)])
    seen.update(threshold=float(between))
    assert "In nearly every tile, the probability is above 50 %." in seen.inner_text(".geogp-note")


def test_layers_are_grouped_by_question(visit, made):
    seen = visit(made.page)
    assert seen.locator("#geogp-layers summary").all_inner_texts() == [
        *("How fast", "How sure", "Who is served", "Where measured", "What changed"),
        "How the model thinks",
    ]
    assert seen.is_hidden("input[value=live]")
    seen.update(layer="live")
    assert seen.is_visible("input[value=live]")


def test_the_scale_of_a_kernel_shows_its_own_values(visit, made):
    """98 % of the values use at least half of the colours, whatever other kernels are."""
    seen, data = visit(made.page), made.data
    for number in range(3):
        values = unpack(data["slices"][number])
        seen.update(layer=f"slice-{number}")
        scale = seen.evaluate(SCALE)
        low, high = np.nanpercentile(values, [1, 99])
        assert scale["low"] <= low < high <= scale["high"] + 1e-9
        assert max(high, -low) > 0.5 * max(scale["high"], -scale["low"])
        beyond = [np.nanmin(values) < scale["low"], np.nanmax(values) > scale["high"]]
        for name, arrow in zip((".geogp-below", ".geogp-above"), beyond, strict=True):
            assert seen.locator(f"#geogp-legend {name}").count() == arrow


@pytest.mark.trial
def test_arrows_say_that_values_lie_beyond_the_scale(visit, made):
    seen, data = visit(made.page), made.data
    for quarter in range(3):
        seen.update(quarter=quarter)
        values, scale = values_of(data, "level", quarter), layer_of(data, "level")["scale"]
        beyond = [np.nanmin(values) < scale["low"], np.nanmax(values) > scale["high"]]
        for name, arrow in zip((".geogp-below", ".geogp-above"), beyond, strict=True):
            assert seen.locator(f"#geogp-legend {name}").count() == arrow


@pytest.mark.trial
def test_layers_that_are_one_for_all_quarters_say_so(visit, made):
    seen = visit(made.page)
    seen.update(layer="tests")
    assert "This layer is the same for all quarters" not in seen.inner_text("#geogp-legend")
    seen.update(quarter=0)
    assert "This layer is the same for all quarters" in seen.inner_text("#geogp-legend")


@pytest.mark.trial
def test_the_live_kernel_is_the_product_of_its_components(visit, made):
    seen, kernel = visit(made.page), made.data["kernel"]
    seen.click("text=How the model thinks")
    seen.check("input[value=live]")
    seen.settle()
    assert not pixels(seen.picture()).any()
    assert "Click a place" in seen.inner_text("#geogp-legend")
    assert "with errors of up to" in seen.inner_text("#geogp-legend")
    components, kernel_frame = unpack(kernel["components"]), Frame(**kernel["frame"])
    frame = made.data["frame"]
    inside = np.isfinite(values_of(made.data, "level", made.data["shown"]))
    shape = frame["height"], frame["width"]
    row, column = np.divmod(np.arange(inside.size), frame["width"])
    tiles = Tiles(column + frame["column"], row + frame["row"], frame["zoom"])
    everywhere = interpolated(components, kernel_frame, tiles)
    for row, column in [(10, 20), (16, 5), *cells(made.data, 1)]:
        assert inside[row, column]
        # The place of the middle of a part of the tile that its 64 parts along each side have.
        down, across = (frame["row"] + row) * 64 + 19, (frame["column"] + column) * 64 + 51
        part = Tiles(np.array([across]), np.array([down]), frame["zoom"] + 6)
        here = interpolated(components, kernel_frame, part)[0]
        place = list(place_of(frame, row, column, down=19.5 / 64, across=51.5 / 64))
        seen.evaluate("p => geogp.page.choose(L.latLng(p))", place)
        seen.settle()
        values = (everywhere @ here).reshape(shape)
        found = seen.evaluate(
            "async p => Array.from(await geogp.page.pictures.painter.kernel.at(p),"
            " v => isNaN(v) ? null : v)",
            place,
        )
        found = np.array(found, float).reshape(shape)
        np.testing.assert_allclose(found[inside], values[inside], rtol=0, atol=1e-9)
        np.testing.assert_array_equal(np.isfinite(found), inside)
        assert_coloured(seen.picture(), found, seen.evaluate(SCALE))
        told = seen.inner_text("#geogp-place")
        assert "k(x*, x*)" in told
        assert f"{here @ here:.3g}" in told


@pytest.mark.trial
def test_the_live_kernel_is_near_the_models(visit, made):
    """The error that the page states holds between random places of the map."""
    from browser_pages import waves

    kernel = made.data["kernel"]
    places = random_places(made.world.tiles, np.random.default_rng(77), 2000)
    reduced = interpolated(unpack(kernel["components"]), Frame(**kernel["frame"]), places)
    exact = waves(places) @ waves(places).T
    error = np.abs(reduced @ reduced.T - exact).max() / exact.max()
    assert error <= kernel["error"] < 0.005
    seen = visit(made.page)
    seen.update(layer="live", point=list(place_of(made.data["frame"], 10, 20)))
    assert f"{100 * kernel['error']:.2g} %" in seen.inner_text("#geogp-legend")


@pytest.mark.trial
def test_outlines_are_thinner_from_afar_and_those_of_towns_paler(visit, made):
    seen = visit(made.page)
    style = """name => { const {weight, opacity} = geogp.page.outlines[name].options;
      return [weight, opacity]; }"""
    found = {}
    for zoom in (5, 7, 9, 12):
        seen.evaluate("zoom => { geogp.page.map.setZoom(zoom, {animate: false}); }", zoom)
        found[zoom] = np.array(
            [seen.evaluate(style, name) for name in ("boundary", "urban", "counties")]
        )
    np.testing.assert_allclose(found[12], [[1.6, 1], [1.0, 1], [0.8, 1]])
    assert np.all(found[9][:, 0] < found[12][:, 0])
    assert np.all(found[7][:, 0] <= found[9][:, 0])
    assert np.all(found[5][:, 0] > 0.2)
    # Towns are what hides a map most.
    assert found[9][1, 0] < found[9][0, 0] / 2
    np.testing.assert_allclose(found[7][:, 1], [1, 0.55, 1])
    assert 0.55 < found[9][1, 1] < 1
