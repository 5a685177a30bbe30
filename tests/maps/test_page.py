import base64
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from maps_worlds import VIEWS, make_slices, make_world
from PIL import Image
from shapely.geometry import box

from geogp.errors import DataError
from geogp.geodata import quadkeys
from geogp.geodata.region import Region
from geogp.maps.frame import Frame
from geogp.maps.page import map_page
from geogp.maps.scales import kernel_scale
from geogp.maps.views import find_view

OVERLAY = re.compile(
    r'L\.imageOverlay\(\s*"data:image/png;base64,([^"]+)",\s*(\[\[.*?\]\])', re.DOTALL
)
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>`${7*7}` {{ 7*7 }} 'q\" \\"


def overlays_of(page):
    found = []
    for content, bounds in OVERLAY.findall(page):
        with Image.open(BytesIO(base64.b64decode(content))) as image:
            assert image.mode == "P"  # one byte per pixel
            found.append((np.asarray(image.convert("RGBA")), json.loads(bounds)))
    return found


def page_of(world, **changes):
    options = {"title": "Speeds", "kernel_slices": make_slices(world.tiles)} | changes
    return map_page(world.grid, world.region, world.tiles, **options)


@pytest.fixture(scope="module")
def page(world):
    return page_of(world, notes=["Urban areas are of 2000."])


def test_every_overlay_spans_the_outer_edges_of_the_tiles(world, page):
    edges = quadkeys.tile_bounds(world.tiles.column, world.tiles.row, 14)
    corners = [[edges.south.min(), edges.west.min()], [edges.north.max(), edges.east.max()]]
    found = overlays_of(page)
    assert len(found) == 9  # four views, three slices, far and measured tiles
    frame = Frame.of_tiles(world.tiles)
    for picture, bounds in found:
        assert picture.shape == (frame.height, frame.width, 4)
        np.testing.assert_allclose(bounds, corners, rtol=0, atol=1e-12)


def test_the_page_names_its_language(page):
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')


def test_every_tiles_colour_is_that_of_its_value(world, page):
    p, found = world.prediction, overlays_of(page)
    lower, upper = p.interval()
    down, across = Frame.of_tiles(world.tiles).pixels(world.tiles)
    variance = p.function_variance + p.noise_variance
    expected = {
        "median": 10**p.mean,
        "mean": 10**p.mean * np.exp(np.log(10) ** 2 * variance / 2),
        "bound": 10**lower,
        "width": upper - lower,
    }
    assert tuple(expected) == VIEWS
    for (picture, _), (view, values) in zip(found[:4], expected.items(), strict=True):
        scale = find_view(world.grid, view).scale(world.grid)
        palette = scale.colours()[1:].astype(int)
        shades = picture[down, across].astype(int)
        at = np.abs(palette[None] - shades[:, None]).sum(axis=2)
        assert np.all(at.min(axis=1) == 0)
        error = scale.fraction(scale.values()[at.argmin(axis=1)]) - scale.fraction(values)
        assert np.abs(error).max() <= 0.5 / len(palette) + 1e-4
        outside = np.ones(picture.shape[:2], bool)
        outside[down, across] = False
        assert np.all(picture[outside, 3] == 0)
        assert np.all(picture[down, across, 3] == 255)


def test_kernel_slices_share_one_scale_and_masks_mark_their_tiles(world, page, slices):
    found = overlays_of(page)
    down, across = Frame.of_tiles(world.tiles).pixels(world.tiles)
    scale = kernel_scale(np.stack([one.values for one in slices]), label="")
    for (picture, _), one in zip(found[4:7], slices, strict=True):
        expected = scale.colours()[scale.indices(one.values)]
        np.testing.assert_array_equal(picture[down, across], expected)
    np.testing.assert_array_equal(found[7][0][down, across, 3] > 0, world.distance_km > 5)
    assert 0 < found[7][0][..., 3].max() < 255  # what lies below shows through
    np.testing.assert_array_equal(found[8][0][down, across, 3] > 0, world.measured > 0)


def test_reference_points_have_tooltips(page, slices):
    markers = re.findall(r"L\.circleMarker\(\s*(\[[^\]]*\])", page)
    expected = [[one.latitude, one.longitude] for one in slices]
    np.testing.assert_allclose([json.loads(m) for m in markers], expected)
    for one in slices:
        assert f"x* ({one.title})" in page
        assert one.description in page


def test_outlines_keep_island_and_lake_but_few_points(world, page):
    lines = re.findall(r"L\.polyline\(\s*(\[\[\[.*?\]\]\])", page, re.DOTALL)
    urban, boundary = (json.loads(line) for line in lines)
    assert len(urban) == 2
    assert len(boundary) == 3
    latitude, longitude = np.concatenate(boundary).T
    west, south, east, north = world.region.bounds
    ends = [longitude.min(), latitude.min(), longitude.max(), latitude.max()]
    np.testing.assert_allclose(ends, [west, south, east, north], atol=2e-3)
    assert sum(map(len, boundary)) < 200


class Texts(HTMLParser):
    def __init__(self):
        super().__init__()
        self.shown = []
        self.tags = []
        self.inside = None

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.tags.append(tag)
        self.inside = tag

    def handle_endtag(self, tag):  # noqa: ARG002
        self.inside = None

    def handle_data(self, data):
        if self.inside not in {"script", "style"}:
            self.shown.append(data)


def parsed(page):
    texts = Texts()
    texts.feed(page)
    return texts


def test_hostile_texts_are_shown_as_they_are(world, slices):
    region = replace(world.region, name=HOSTILE)
    hostile = [replace(one, name=HOSTILE, description=HOSTILE) for one in slices]
    page = map_page(
        world.grid,
        region,
        world.tiles,
        title=HOSTILE,
        kernel_slices=hostile,
        attribution=HOSTILE,
        notes=[HOSTILE],
    )
    texts = parsed(page)
    plain = parsed(page_of(world, notes=["a note"]))
    assert sorted(texts.tags) == sorted(plain.tags)
    assert texts.shown.count(HOSTILE) == 3  # title, heading, note
    assert "onerror=alert(1)>" not in page
    assert "${7" not in page
    assert "{{" not in page
    assert "onerror=alert(1)&gt;" in page


SCRIPTY = "a`${alert(1)}`b {{7*7}} </script><img src=x onerror=alert(1)> {% raw %} \\"


def scripty_page(world, slices, name):
    named = [replace(one, name=name, description=name) for one in slices]
    return map_page(
        world.grid,
        replace(world.region, name=name),
        world.tiles,
        title=f"{name}: download speed",
        kernel_slices=named,
        attribution=name,
        notes=[name],
    )


def scripts_of(page):
    return re.findall(r"<script(?![^>]*src)[^>]*>(.*?)</script>", page, re.DOTALL)


def test_a_regions_name_cannot_leave_its_string_in_a_script(world, slices):
    page, plain = (scripty_page(world, slices, name) for name in (SCRIPTY, "Isla"))
    assert SCRIPTY not in page
    assert page.count("</script") == plain.count("</script")
    assert page.count("`") == plain.count("`")
    assert "${" not in page
    tooltips = re.findall(r"bindTooltip\(\s*`(.*?)`", page, re.DOTALL)
    assert len(tooltips) == 3
    for tooltip in tooltips:
        assert not set(tooltip) & set("`$\\{}")
        assert html.unescape(tooltip).count(SCRIPTY) == 2  # name and description, as they are
    assert html.unescape(page).count(f"<h1>{SCRIPTY}: download speed</h1>") == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which parses scripts")
def test_every_script_parses_whatever_the_region_is_called(world, slices, tmp_path):
    scripts = scripts_of(scripty_page(world, slices, SCRIPTY))
    assert len(scripts) == len(scripts_of(scripty_page(world, slices, "Isla"))) >= 2
    for script in scripts:
        path = tmp_path / "script.js"
        path.write_text(script)
        subprocess.run(["node", "--check", path], check=True)


def test_a_click_names_median_mean_bound_and_width(world, page):
    readings, _ = json.JSONDecoder().raw_decode(page.split("var readings = ")[1])
    names = ["Median", "Mean", "Lower bound of", "Uncertainty of"]
    assert [one["name"] for one in readings] == [f"{name} download speed" for name in names]
    assert [one["layer"] for one in readings] == [0, 1, 2, 3]
    assert [one["unit"] for one in readings] == ["Mbps", "Mbps", "Mbps", "log10 Mbps"]
    for view, one in zip(VIEWS, readings, strict=True):
        scale = find_view(world.grid, view).scale(world.grid)
        red, green, blue = scale.colours()[1:, :3].astype(int).T
        assert one["colours"] == (red * 65536 + green * 256 + blue).tolist()
        values = [float(value.replace(",", "")) for value in one["values"]]
        np.testing.assert_allclose(values, scale.values(), rtol=0.05)


def test_legends_name_units_and_round_numbers(world, page):
    legends = re.findall(r'<div class="geogp-legend".*?</div></div>', page, re.DOTALL)
    assert len(legends) == 7
    assert [" hidden>" in legend for legend in legends] == [False] + [True] * 6
    assert "median download speed, Mbps" in legends[0]
    assert "mean download speed, Mbps" in legends[1]
    for view, legend in zip(VIEWS, legends[:4], strict=True):
        ticks = [float(t) for t in re.findall(r'%">([\d.]+)</span>', legend)]
        assert ticks == list(find_view(world.grid, view).scale(world.grid).ticks)
    shown = parsed(page).shown
    assert "farther than 5 km from any measurement" in shown
    assert "urban areas (2000 Census)" in shown
    assert "Urban areas are of 2000." in shown


def test_credits_are_on_the_page(page):
    for credit in ("CC BY-NC-SA 4.0", "Ookla", "OpenStreetMap", "CARTO"):
        assert credit in page


def test_a_page_without_towns_slices_or_far_tiles(latency_world):
    near = latency_world.grid.copy()
    near["far"] = (("y", "x"), np.zeros_like(near["far"].values))
    page = map_page(near, latency_world.region, latency_world.tiles, title="Latency")
    assert len(overlays_of(page)) == 5  # four views and measured tiles
    assert "Mean latency" in page
    assert "mean latency, ms" in page
    assert "Upper bound of latency" in page
    assert "39 of 40 new measurements are expected below this." in page
    assert "urban areas" not in page
    assert "farther than" not in page.lower()


def test_only_leaflet_comes_from_elsewhere(page):
    sources = re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]+)"', page)
    assert len(sources) == 2
    assert all("leaflet@" in source for source in sources)


def test_a_million_tiles_stay_below_six_megabytes():
    square = Region.from_geometry("SQ", "Square", box(-85.0, 30.5, -79.8, 35.6), None)
    world = make_world(square, 16)
    assert world.grid.sizes["x"] * world.grid.sizes["y"] > 1_000_000
    page = page_of(world)
    assert len(page.encode()) < 6_000_000
    assert len(overlays_of(page)) >= 8


def test_a_slice_of_another_length_is_refused(world, slices):
    short = replace(slices[0], values=slices[0].values[1:])
    with pytest.raises(DataError, match=r"kernel values, one per tile, for the urban slice"):
        page_of(world, kernel_slices=[short])
