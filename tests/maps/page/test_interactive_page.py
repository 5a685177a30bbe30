"""The page as text: well formed, escaped, complete, small. `tests/browser` opens it."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from maps_worlds import irregular_region, make_slices, make_world, smooth_prediction
from shapely.geometry import box

from geogp.distributions.prediction import Prediction
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.thresholds import thresholds_of
from geogp.maps.frame import Frame
from geogp.maps.page.interactive_page import TILE_HOSTS, PageAnswers, map_page, with_answers
from geogp.maps.page.kernel_basis import coarser
from geogp.maps.page.packing import json_text, unpack
from geogp.maps.page.page_assets import SCRIPTS, TIER_SCRIPTS, asset, page_scripts, page_styles
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_quantiles import QuarterMap

HOSTILE = (
    "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    "`${7*7}` {{ 7*7 }} {% raw %} 'q\" \\"
)
VOID = {"meta", "link", "input", "br", "img"}
POLICY = 'http-equiv="Content-Security-Policy" content="([^"]*)"'


def content_of(world, name="Isla", counties=None, target="download"):
    quarters = [QuarterMap("2023Q4", world.tiles, world.prediction)]
    return PageContent(
        world.region,
        world.tiles,
        f"{name}: {target}",
        "averages",
        quarters,
        0,
        make_slices(world.tiles),
        None,
        thresholds_of(target),
        counties,
        None,
    )


def page_of(world, name="Isla", counties=None, **options):
    data = page_data(world.grid, content_of(world, name, counties))
    return data, map_page(data, world.region, counties, **options)


def halves(region, names):
    west, south, east, north = region.bounds
    middle = (west + east) / 2
    shapes = (box(west, south, middle, north), box(middle, south, east, north))
    return PolygonLayer("county", tuple(names), shapes)


class Parsed(HTMLParser):
    """Elements, texts and attributes of a page; every element must be closed in its place."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.shown, self.ids, self.labels, self.faults = (
            [],
            [],
            [],
            [],
            [],
            [],
        )
        self.feed(page)
        self.close()
        self.faults += self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.ids += [found["id"]] if "id" in found else []
        self.labels += [found["for"]] if tag == "label" and "for" in found else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.shown.append(data)


def policy_of(page):
    """Return what the policy of a page allows, by what for."""
    told = html.unescape(re.search(POLICY, page)[1])
    return {name: sources for name, *sources in (rule.split() for rule in told.split("; "))}


def scripts_of(page):
    """Return what the page executes: Leaflet, the script of the map, and the page's own."""
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def lines_of(page):
    """Return the lines that folium's script draws, by what they are of, and its options of each."""
    drawn = r"var geogp_(\w+) = L\.polyline\(\s*(.*),\s*(\{.*\})\s*\)\.addTo\(geogp_map\);"
    found = re.findall(drawn, scripts_of(page)[1])
    return {name: (json.loads(lines), json.loads(options)) for name, lines, options in found}


def data_of(page):
    return json.loads(re.search(r'id="geogp-data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture(scope="module")
def made(world):
    return page_of(world, counties=halves(world.region, ["Ponce", "Lares"]), notes=["A note."])


def test_the_page_is_well_formed(made):
    page = made[1]
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    parsed = Parsed(page)
    assert parsed.faults == []
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert set(parsed.labels) <= set(parsed.ids)
    assert "A note." in parsed.shown
    assert "width=device-width" in page


def test_the_search_says_what_it_finds(world):
    counties = halves(world.region, ["Ponce", "Lares"])
    for invented, layer, kinds in (
        (False, counties, "towns, counties, "),
        (True, counties, "counties, "),
        (True, None, ""),
    ):
        made = replace(world, region=replace(world.region, invented=invented))
        page = page_of(made, counties=layer)[1]
        assert f">Finds {kinds}coordinates (18.2, -66.4), quadkeys and H3 cells; no " in page


def test_the_page_holds_its_data(made):
    data, page = made
    held = data_of(page)
    assert {name: held[name] for name in data} == json.loads(json.dumps(data))
    frame = Frame(**data["frame"])
    north = frame.bounds[3]
    assert north == pytest.approx(18.5, abs=0.2)


def test_the_data_in_the_page_decode_to_the_map(world, made):
    data = data_of(made[1])
    frame = Frame(**data["frame"])
    middle = data["quantiles"][data["levels"].index(0.5)]
    median = frame.place(world.tiles, world.prediction.mean, np.nan)
    np.testing.assert_allclose(
        unpack(middle), median, rtol=0, atol=data["steps"]["quantile_log10"] / 2 + 1e-9
    )


def test_hostile_texts_are_shown_as_they_are(world):
    region = irregular_region(HOSTILE)
    hostile = make_world(region, 14)
    layer = halves(region, [HOSTILE, "Lares"])
    _, page = page_of(hostile, HOSTILE, layer, attribution=HOSTILE, notes=[HOSTILE])
    plain = page_of(world, "Isla", halves(world.region, ["A", "B"]), notes=["a note"])[1]
    parsed, usual = Parsed(page), Parsed(plain)
    assert parsed.faults == []
    assert parsed.tags == usual.tags
    assert [text.count(HOSTILE) for text in parsed.shown if HOSTILE in text] == [1, 1, 1, 1]
    assert HOSTILE in data_of(page)["names"]["county"]
    assert data_of(page)["title"].startswith(HOSTILE)
    assert page.count("</script") == plain.count("</script")
    assert "<img" not in page
    assert policy_of(page) == policy_of(plain)
    assert scripts_of(page) == scripts_of(plain)
    assert len(scripts_of(page)) == page.count("</script") - 2  # data and answers are none
    assert html.escape(HOSTILE)[:40] in page
    assert "49" not in "".join(parsed.shown)  # 7 * 7, were a template to read it
    if shutil.which("node"):
        check_scripts(page)


def check_scripts(page):
    for script in scripts_of(page):
        subprocess.run(["node", "--check", "-"], input=script, check=True, text=True)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which parses scripts")
def test_every_script_parses(made):
    check_scripts(made[1])


def test_data_cannot_end_its_script():
    text = json_text({"a": "</script><!--\u2028", "b": [1.5, None]})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!--\u2028", "b": [1.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("nan")})


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_what_the_package_holds_and_the_base_map(made):
    leaflet, own = page_scripts()
    scripts = scripts_of(made[1])
    assert scripts == [leaflet, scripts[1], own]
    found = policy_of(made[1])
    assert found.pop("script-src") == [hashed(script) for script in scripts]
    assert found.pop("style-src") == [hashed(style) for style in page_styles()]
    assert found.pop("img-src") == ["data:", *TILE_HOSTS]
    rest = {"default-src", "connect-src", "object-src", "frame-src", "base-uri", "form-action"}
    assert set(found) == rest
    assert all(sources == ["'none'"] for sources in found.values())


def test_the_scripts_hold_numbers_constants_and_the_base_maps_address_alone(made):
    script = scripts_of(made[1])[1]
    (tiles,) = re.findall(r'"(https?:[^"]*)"', script)
    assert script.count("//") == 1
    (servers,) = re.findall('"subdomains": "(.*)"', script)
    assert tuple(tiles.split("/{z}")[0].replace("{s}", one) for one in servers) == tuple(
        f"{host}/light_all" for host in TILE_HOSTS
    )
    assert set(re.findall(r'"([^"]*)"', script)) <= {
        "geogp_map",
        tiles,
        servers,
        "OpenStreetMap, CARTO",
        *("#3388ff", "round", "evenodd"),
        *re.findall(r'"(\w+)":', script),
    }


def test_the_same_map_gives_the_same_page(world, made):
    again = page_of(world, counties=halves(world.region, ["Ponce", "Lares"]), notes=["A note."])
    assert again == made


def test_no_element_of_the_page_names_another_file(made):
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", made[1])
    assert not [tag for tag, names in Parsed(made[1]).tags if "style" in names]


def test_a_page_without_base_map_names_no_host_to_ask(world):
    page = page_of(world, base_map=False)[1]
    assert policy_of(page)["img-src"] == ["data:"]
    assert "base" not in data_of(page)["variables"]
    script = scripts_of(page)[1]
    assert "L.map(" in script
    assert "tileLayer" not in script
    assert "//" not in script
    for credit in ("cartocdn", "CARTO", "OpenStreetMap"):
        assert credit not in page
    assert "Ookla" in page


def test_outlines_keep_island_and_lake_but_few_points(world, made):
    found = lines_of(made[1])
    assert list(found) == ["counties", "urban", "boundary"]
    counties, urban, boundary = (lines for lines, _ in found.values())
    assert len(urban) == 2
    assert len(boundary) == 3
    assert counties
    latitude, longitude = np.concatenate(boundary).T
    west, south, east, north = world.region.bounds
    ends = [longitude.min(), latitude.min(), longitude.max(), latitude.max()]
    np.testing.assert_allclose(ends, [west, south, east, north], atol=2e-3)
    assert sum(map(len, boundary)) < 200
    assert not any(options["interactive"] for _, options in found.values())
    data = data_of(made[1])
    assert list(data["variables"]) == ["map", "base", *found]
    assert data["words"] == {"urban": "Urban areas (2000 Census)"}


def test_credits_are_on_the_page(made):
    for credit in ("CC BY-NC-SA 4.0", "Ookla", "OpenStreetMap", "CARTO"):
        assert credit in made[1]


def test_a_latency_is_bounded_above(latency_world):
    data = page_data(latency_world.grid, content_of(latency_world, target="latency"))
    page = map_page(data, latency_world.region)
    found = data_of(page)
    assert found["bound"] == "upper"
    assert found["threshold"]["at_most"] is True
    assert found["words"] == {}
    assert list(found["variables"]) == ["map", "base", "boundary"]


def test_the_pages_own_scripts_are_small_and_read_no_html():
    for name in (*SCRIPTS, *TIER_SCRIPTS):
        text = asset(name)
        assert len(text.splitlines()) <= 210
        assert max(map(len, text.splitlines())) <= 110
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.search(r"/\*|//[^\n]*[.:]$", page_scripts()[1].replace("://", ""))
    assert len(page_scripts()[1]) < 89_000
    assert len(page_scripts(tiers=True)[1]) < 101_000


def test_a_rough_map_takes_few_bytes_a_tile():
    """In proportion to its tiles, a page of Georgia's 578,000 is below 6 MB, and Leaflet."""
    square = Region.from_geometry("SQ", "Square", box(-85.0, 31.0, -84.0, 31.9), None)
    world = make_world(square, 16)
    random = np.random.default_rng(0)
    prediction = world.prediction
    rough = Prediction(
        prediction.mean + 0.05 * random.standard_normal(len(world.tiles)),
        prediction.function_variance,
        prediction.noise_variance,
    )
    coarse = coarser(world.tiles, 15)
    past = [
        QuarterMap(f"20{19 + k // 4}Q{k % 4 + 1}", coarse, smooth_prediction(coarse, k))
        for k in range(12)
    ]
    content = content_of(world)
    quarters = [*past, QuarterMap("2023Q4", world.tiles, rough)]
    content = type(content)(**{**vars(content), "quarters": quarters, "shown": 12})
    page = map_page(page_data(world.grid, content), square)
    leaflet = sum(len(parts[0].encode()) for parts in (page_scripts(), page_styles()))
    assert 155_000 < leaflet < 165_000
    assert len(page.encode()) - leaflet < 6_000_000 * len(world.tiles) / 578_000


def test_other_answers_change_nothing_else_of_a_page(world):
    _, page = page_of(world, notes=[HOSTILE], attribution=HOSTILE)
    assert with_answers(page, PageAnswers()) == page
    answers = PageAnswers([("areas_x", HOSTILE)], ["A note."], [{"title": HOSTILE}])
    shown = with_answers(page, answers)
    block = re.search(r'id="geogp-answers">(.*?)</script>', shown, re.DOTALL)
    assert json.loads(block[1]) == [{"title": HOSTILE}]
    assert f'<a href="report.html#areas_x">{html.escape(HOSTILE)}</a>' in html_equal(shown)
    assert "<p>A note.</p>" in shown
    assert with_answers(shown, PageAnswers()) == page


def html_equal(page):
    """Return a page with the quotes that Python's escape writes."""
    return page.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")


@pytest.mark.parametrize(
    "change", [("sha256-", "sha256-0"), ("geogp-data", "other"), ("<script>", "")]
)
def test_a_page_of_another_version_stays_as_it_is(world, change):
    _, page = page_of(world)
    assert with_answers(page.replace(*change), PageAnswers()) is None
