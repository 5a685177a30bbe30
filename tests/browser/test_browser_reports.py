"""Report, comparison and gallery in a browser: nothing is cut on screens, on paper, in the dark."""

import re
import shutil

import pytest
from browser_acts import serious

from geogp.answers.make import make_answer
from geogp.answers.requests import NextRequest
from geogp.commands.compare_runs import compare_runs
from geogp.commands.gallery import make_gallery

WIDTHS = (320, 768, 1024, 1440, 1920)

A4 = 703
"""Width in CSS pixels of A4 paper without the margins of the pages, 186 mm."""

A4_HEIGHT = 1031
"""The same of its height, 273 mm."""

OPEN = "() => document.querySelectorAll('details').forEach(one => { one.open = true; })"
CUT = """() => {
  const root = document.documentElement, cut = [];
  if (root.scrollWidth > root.clientWidth) cut.push(['page', root.scrollWidth, root.clientWidth]);
  for (const one of document.querySelectorAll('table, .card, figure, p, li, dd, summary')) {
    const box = one.closest('[tabindex="0"]') || one.parentElement;
    const scrolls = box.tabIndex === 0 && getComputedStyle(box).overflowX === 'auto';
    const own = one.getBoundingClientRect(), edge = box.getBoundingClientRect();
    const inner = one.matches('table, .card, figure') ? edge.right : root.clientWidth;
    const room = scrolls ? edge.left + box.scrollWidth : inner;
    if (own.width && own.right > room + 1) cut.push([one.tagName, one.innerText, own.right, room]);
    if (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === 'hidden')
      cut.push(['hidden', one.innerText]);
  }
  return cut;
}"""


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    first = shutil.copytree(runs("small").path, folder / "first")
    make_answer(NextRequest(run=first, tiles=5))
    second = shutil.copytree(first, folder / "second-with-a-name-that-is-as-long-as-names-can-be")
    compare_runs([first, second], out=folder / "comparison")
    return {
        "report": first / "report.html",
        "comparison": folder / "comparison" / "compare.html",
        "gallery": make_gallery([first, second], out=folder / "gallery").page,
    }


@pytest.fixture(params=["report", "comparison", "gallery"])
def seen(request, visit, pages):
    found = visit(pages[request.param].read_text("utf-8"), ready=False)
    found.name = request.param
    return found


def test_no_table_or_card_is_cut_at_any_width(seen, artefacts):
    seen.evaluate(OPEN)
    for width in WIDTHS:
        seen.set_viewport_size({"width": width, "height": 900})
        assert seen.evaluate(CUT) == [], width
    for scheme in ("light", "dark"):
        seen.emulate_media(color_scheme=scheme)
        for width in (390, 1440):
            seen.set_viewport_size({"width": width, "height": 900})
            seen.screenshot(path=artefacts / f"{seen.name}-{scheme}-{width}.png", full_page=True)


def test_paper_has_all_text_in_any_mode(seen, artefacts):
    seen.set_viewport_size({"width": A4, "height": 900})
    for scheme in ("dark", "light"):
        seen.emulate_media(media="print", color_scheme=scheme)
        assert seen.evaluate(CUT) == []
        assert seen.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
    # What is folded on the screen is open on paper.
    folded = "one => one.offsetHeight < one.firstElementChild.offsetHeight + 10"
    assert not seen.evaluate(f"[...document.querySelectorAll('details')].some({folded})")
    paper = seen.pdf(path=artefacts / f"{seen.name}.pdf", prefer_css_page_size=True)
    assert {"report": 3, "comparison": 1, "gallery": 1}[seen.name] <= len(
        re.findall(rb"/Type\s*/Page\b", paper)
    )
    assert re.search(rb"/MediaBox\s*\[0 0 59[45][.\d]* 84[12]", paper)


SPLIT = """page => [...document.querySelectorAll('figure, .grid, .card')].filter(one => {
  const box = one.getBoundingClientRect();
  return getComputedStyle(one).breakInside !== 'avoid' || box.height > page;
}).map(one => one.innerText)"""


def test_a_report_on_paper_has_its_summary_on_a_page_and_no_figure_on_two(visit, pages, tmp_path):
    seen = visit(pages["report"].read_text("utf-8"), ready=False)
    seen.set_viewport_size({"width": A4, "height": 900})
    seen.emulate_media(media="print")
    assert seen.evaluate("getComputedStyle(document.querySelector('.front')).breakAfter") == "page"
    front = "document.querySelector('.front').getBoundingClientRect().bottom"
    assert seen.evaluate(front) < A4_HEIGHT
    assert seen.evaluate(SPLIT, A4_HEIGHT) == []
    paper = seen.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", paper)) < 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(seen, npm, scheme):
    seen.emulate_media(color_scheme=scheme)
    seen.evaluate(OPEN)
    paper = seen.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    for width in (390, 1440):
        seen.set_viewport_size({"width": width, "height": 900})
        assert serious(seen, npm) == []


def test_tables_that_scroll_can_be_reached_by_key(seen):
    seen.set_viewport_size({"width": 320, "height": 900})
    seen.evaluate(OPEN)
    wide = "one => one.scrollWidth > one.clientWidth && one.tabIndex !== 0"
    assert not seen.evaluate(f"[...document.querySelectorAll('.scroll')].some({wide})")


def test_the_gallery_shows_the_maps_that_contain_a_text(visit, pages):
    seen = visit(pages["gallery"].read_text("utf-8"), ready=False)
    for text, cards, told in (
        ("  SECÓND", 1, "1 of 2 maps"),
        ("none", 0, "0 of 2 maps"),
        ("", 2, ""),
    ):
        seen.get_by_label("Find a map").fill(text)
        assert seen.locator(".card:visible").count() == cards
        assert seen.locator("#numbers tbody tr:visible").count() == cards
        assert seen.locator("h2:visible").count() == (2 if cards else 1)
        assert seen.inner_text("output") == told


def test_map_and_report_link_to_each_other(visit, pages):
    folder = pages["report"].parent
    seen = visit((folder / "map.html").read_text("utf-8"))
    shutil.copy(folder / "report.html", seen.path.parent)
    link = seen.get_attribute('a[href^="report.html#"]', "href")
    seen.goto((seen.path.parent / "report.html").as_uri() + link.removeprefix("report.html"))
    assert seen.is_visible("#next_tiles table")
    assert seen.locator('a[href="map.html"]').count() == 1
