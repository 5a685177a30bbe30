"""What the page says of a place: the grid's own values, within the steps it states."""

import re

import numpy as np
import pytest
from browser_acts import CLICK, click, close, facts, number
from browser_pages import DESKTOP, PHONE, level_of
from browser_values import cells, place_of, probability, quantile
from scipy.special import ndtri

from geogp.maps.frame import Frame
from geogp.maps.page.packing import unpack

HISTORY = """async () => {
  const {data, reader, state} = geogp.page;
  return reader.history(geogp.cellAt(data.frame, L.latLng(state.point)).number);
}"""

LEVEL = "The place itself: level without noise"


def great_circle_km(latitude, longitude, others_latitude, others_longitude):
    """Return distances on a sphere of 6371.0088 km by the law of cosines."""
    one, other = np.deg2rad(latitude), np.deg2rad(others_latitude)
    turn = np.deg2rad(others_longitude - longitude)
    cosine = np.sin(one) * np.sin(other) + np.cos(one) * np.cos(other) * np.cos(turn)
    return 6371.0088 * np.arccos(np.clip(cosine, -1, 1))


def test_a_click_names_what_the_grid_holds(visit, made):
    seen, data, world = visit(made.page), made.data, made.world
    frame = Frame(**data["frame"])
    step = data["steps"]["quantile_log10"]
    lower, upper = (frame.place(world.tiles, v, np.nan) for v in world.prediction.interval())
    median = frame.place(world.tiles, world.prediction.mean, np.nan)
    assert np.nanmax(np.abs(quantile(data, data["shown"], 0.5) - median)) <= step / 2 + 1e-9
    county = unpack(data["arrays"]["county"])
    stratum = unpack(data["arrays"]["stratum"])
    for row, column in cells(data, 5):
        click(seen, place_of(data["frame"], row, column, down=0.4, across=0.6))
        told = facts(seen)
        assert close(told["Median download speed"], 10 ** median[row, column], step / 2)
        low, high = told["95 % interval"].split(" to ")
        assert close(low, 10 ** lower[row, column], step / 2)
        assert close(high, 10 ** upper[row, column], step / 2)
        z, sd = ndtri(0.75), (upper[row, column] - median[row, column]) / ndtri(0.975)
        low, high = told["50 % interval"].split(" to ")
        assert close(low, 10 ** (median[row, column] - z * sd), step / 2)
        assert close(high, 10 ** (median[row, column] + z * sd), step / 2)
        level = level_of(world.grid, "download").to_numpy()[row, column]
        assert close(told[LEVEL], level, data["steps"]["level_log10"] / 2)
        bound = median[row, column] - ndtri(0.95) * sd
        assert close(told["In 19 of 20 measurements, at least"], 10**bound, step / 2)
        heading = seen.inner_text("#geogp-place-heading")
        assert heading == "A place in " + data["names"]["county"][int(county[row, column])]
        where = seen.inner_text(".geogp-where")
        assert data["names"]["stratum"][int(stratum[row, column])] in where
        assert "2023Q3" in where
        latitude, longitude = place_of(data["frame"], row, column)
        assert f"{latitude:.4f}° N, {-longitude:.4f}° W" in where
    hint = "Median and intervals are those of averages of 5 tests: what one more measurement would"
    assert hint in seen.inner_text("#geogp-place-body")
    seen.update(quarter=0)
    assert LEVEL not in facts(seen)  # the page has that of the map's quarter only


@pytest.mark.trial
def test_every_interval_of_a_law_that_is_not_normal_is_within_half_a_step(visit, make):
    made = make(df=2.2, past=0)
    seen, data, step = visit(made.page), made.data, made.data["steps"]["quantile_log10"]
    read = "async p => (await geogp.page.reader.read(L.latLng(p), geogp.page.state)).law"
    tiles = made.world.tiles
    for row, column in cells(data, 5):
        place = place_of(data["frame"], row, column)
        click(seen, place)
        told, law = facts(seen), seen.evaluate(read, list(place))
        at = (tiles.row - data["frame"]["row"] == row) & (
            tiles.column - data["frame"]["column"] == column
        )
        model = made.world.prediction[at]
        for one, share in zip(law["intervals"], (50, 80, 95), strict=True):
            exact = np.ravel(model.interval(share / 100))
            ends = np.log10([one["low"], one["high"]])
            np.testing.assert_allclose(ends, exact, rtol=0, atol=step / 2 + 1e-9)
            texts = told[f"{share} % interval"].split(" to ")
            for text, value in zip(texts, 10**exact, strict=True):
                assert close(text, value, step / 2)


@pytest.mark.trial
def test_the_numbers_behind_the_card_are_exact(visit, made):
    """Without the rounding of the card: quantiles and probabilities to machine precision."""
    seen, data = visit(made.page), made.data
    read = "async p => (await geogp.page.reader.read(L.latLng(p), geogp.page.state)).law"
    for quarter in (data["shown"], 0):
        for threshold in (data["threshold"]["values"][3], data["threshold"]["shown"]):
            seen.update(quarter=quarter, threshold=threshold)
            expected, middle = probability(data, quarter, threshold), quantile(data, quarter, 0.5)
            for at in cells(data, 4):
                found = seen.evaluate(read, list(place_of(data["frame"], *at)))
                assert found["median"] == pytest.approx(10 ** middle[at], rel=1e-9)
                assert found["probability"] == pytest.approx(expected[at], abs=1e-9)
                row, column = data["frame"]["row"] + at[0], data["frame"]["column"] + at[1]
                tiles = made.world.tiles
                tile = np.flatnonzero((tiles.row == row) & (tiles.column == column))
                law = made.content.quarters[quarter].prediction[tile]
                exact = law.exceedance(np.log10(threshold))[0]
                name = "probability" if quarter == data["shown"] else "past_probability"
                most = 1.5 * data["steps"][name] + 1e-9  # the stated error is that of some tiles
                assert found["probability"] == pytest.approx(exact, abs=most)


def test_a_click_draws_the_history_of_the_tile(visit, made):
    """The chart has the band, the median and the measured averages of every quarter."""
    seen, data, measured = visit(made.page), made.data, made.content.measured
    tests = unpack(data["arrays"]["tests"])
    rows, columns = np.nonzero(tests > 0)
    for k in (0, len(rows) // 2, len(rows) - 1):
        at = rows[k], columns[k]
        seen.update(point=place_of(data["frame"], *at))
        found = seen.evaluate(HISTORY)
        values = np.array([value or np.nan for value in found["measured"]], float)
        half = data["steps"]["past_quantile_log10"] / 2 + 1e-9
        np.testing.assert_allclose(values, measured[:, k], rtol=0.006)
        tile = np.flatnonzero(
            (made.world.tiles.row - data["frame"]["row"] == at[0])
            & (made.world.tiles.column - data["frame"]["column"] == at[1])
        )
        for band, quarter in zip(found["bands"], made.content.quarters, strict=True):
            law = quarter.prediction[tile]
            exact = [law.quantile(level)[0] for level in (0.025, 0.5, 0.975)]
            np.testing.assert_allclose(np.log10(band), exact, rtol=0, atol=half)
        dots = seen.locator(".geogp-history circle").count()
        assert dots == np.isfinite(measured[:, k]).sum()
        label = seen.get_attribute(".geogp-history svg", "aria-label")
        assert f"measured in {dots} of 3 quarters" in label
        assert seen.locator(".geogp-history text").all_text_contents()[-2:] == ["2023Q1", "2023Q3"]
    empty = cells(data, 40)
    at = next(one for one in empty if tests[one] == 0)
    seen.update(point=place_of(data["frame"], *at))
    assert seen.locator(".geogp-history circle").count() == 0


@pytest.mark.parametrize(("up", "lines"), [(0, [3]), (2, [2, 2])])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_history_breaks_between_squares_of_different_sizes(visit, make, up, lines, size):
    """A line through both would show the difference of the sizes as a change."""
    made = make(up=up)
    seen, data = visit(made.page, size=size), made.data
    seen.update(point=place_of(data["frame"], *cells(data, 1)[0]))
    drawn = seen.locator(".geogp-median").evaluate_all(
        "lines => lines.map(one => Array.from(one.points, p => [p.x, p.y]))"
    )
    assert [len(one) for one in drawn] == lines
    assert seen.locator(".geogp-band").count() == len(lines)
    text = seen.inner_text(".geogp-history")
    label = seen.get_attribute(".geogp-history svg", "aria-label")
    if up:
        (_, before), (first, last) = drawn
        assert before[0] < first[0]
        assert first[1] == last[1]
        assert (
            "Values of other quarters than 2023Q3 are those in the middle of squares of 9.3 km; "
            "values of 2023Q3 are those of tiles of 2.3 km." in text
        )
        assert re.search(r"^Median from \S+ in 2023Q1 to \S+ in 2023Q2; \S+ in 2023Q3, Mbps", label)
    else:
        assert "squares" not in text
        assert re.search(r"^Median from \S+ in 2023Q1 to \S+ in 2023Q3, Mbps", label)


@pytest.mark.trial
def test_tests_nearby_are_those_within_the_stated_distance(visit, made):
    seen, data, world = visit(made.page), made.data, made.world
    longitude, latitude = world.tiles.centres
    for row, column in cells(data, 6):
        place = place_of(data["frame"], row, column)
        click(seen, place)
        told = facts(seen)
        distance = great_circle_km(*place, latitude, longitude)
        near = (distance <= 2) & (world.measured > 0)
        wanted = f"{world.measured[near].sum()} in {near.sum()} tile" if near.any() else "none"
        assert told["Tests within 2 km, all quarters"].startswith(wanted)
        tile = (world.tiles.row - data["frame"]["row"] == row) & (
            world.tiles.column - data["frame"]["column"] == column
        )
        assert number(told["Tests in this tile, all quarters"]) == world.measured[tile][0]


@pytest.mark.trial
def test_a_click_outside_says_so(visit, made):
    seen = visit(made.page)
    click(seen, (18.25, -66.4))  # in the lake
    assert seen.inner_text("#geogp-place-heading") == "Outside the region"
    click(seen, (18.9, -66.4))  # outside the frame
    assert seen.inner_text("#geogp-place-heading") == "Outside the region"
    assert "Outside the region" in seen.inner_text("#geogp-status")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_card_does_not_cover_its_place(visit, made, size):
    seen = visit(made.page, size=size, touch=size is PHONE)
    for row, column in cells(made.data, 6):
        latitude, longitude = place_of(made.data["frame"], row, column)
        seen.update(point=None)
        # Under the card, before the map moves.
        seen.evaluate(
            "([lat, lng, x, y]) => { const {map} = geogp.page; const {x: w, y: h} = map.getSize();"
            " map.setView([lat, lng], 12, {animate: false});"
            " map.panBy([w * x, h * y], {animate: false}); }",
            [latitude, longitude, *((-0.4, 0.45) if size is DESKTOP else (0, -0.4))],
        )
        seen.update(point=[latitude, longitude])
        x, y = seen.evaluate(CLICK, [latitude, longitude])
        card = seen.locator("#geogp-place").bounding_box()
        assert x < card["x"] or y < card["y"]
        assert 0 < x < size["width"]
        assert 0 < y < size["height"]
        if size is PHONE:
            assert card["height"] <= 0.4 * size["height"]
            chart, legend = (
                seen.locator(name).bounding_box() for name in (".geogp-history", "#geogp-legend")
            )
            assert chart["y"] + chart["height"] <= card["y"] + card["height"]
            assert legend["y"] + legend["height"] <= card["y"]


@pytest.mark.trial
def test_the_card_follows_threshold_and_quarter_and_closes(visit, made):
    seen, data = visit(made.page), made.data
    click(seen, place_of(data["frame"], 15, 15))
    before = facts(seen)
    seen.focus("#geogp-threshold-field")
    seen.keyboard.press("Home")
    seen.settle()
    first = data["threshold"]["values"][0]
    assert f"Probability of at least {first:g} Mbps" in facts(seen)
    seen.focus("#geogp-quarter-field")
    seen.keyboard.press("Home")
    seen.settle()
    assert facts(seen)["Median download speed"] != before["Median download speed"]
    assert "2023Q1" in seen.inner_text(".geogp-where")
    seen.click("#geogp-place-close")
    assert seen.is_hidden("#geogp-place")
    seen.until("!location.hash.includes('point')")


@pytest.mark.trial
def test_a_latency_is_at_most(visit, make):
    made = make(target="latency", past=0)
    seen = visit(made.page)
    assert seen.inner_text("#geogp-threshold-words").startswith("at most ")
    assert seen.is_hidden("#geogp-quarter")
    row, column = cells(made.data, 1)[0]
    click(seen, place_of(made.data["frame"], row, column))
    told = facts(seen)
    assert "In 19 of 20 measurements, at most" in told
    assert any(name.startswith("Probability of at most") for name in told)
    seen.update(layer="probability")
    read = "async p => (await geogp.page.reader.read(L.latLng(p), geogp.page.state)).law"
    found = seen.evaluate(read, list(place_of(made.data["frame"], row, column)))
    shown = made.data["threshold"]["shown"]
    wanted = probability(made.data, 0, shown)[row, column]
    assert found["probability"] == pytest.approx(wanted, abs=1e-9)
