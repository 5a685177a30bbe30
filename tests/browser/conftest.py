"""A real browser for the tests of the page: Debian's Chromium, driven by Playwright."""

import base64
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from browser_pages import DESKTOP, HOSTILE, Made, make_page
from browser_runs import DEMO, MAKERS, Run

from geogp.maps.page.interactive_page import TILE_HOSTS

NPM = Path(__file__).parent / "node_modules"
BASE_MAP = tuple(f"{host}/" for host in TILE_HOSTS)
ARTEFACTS = Path(__file__).parents[1] / "artefacts"

HOST = "|".join(re.escape(host) for host in TILE_HOSTS)
TILE = re.compile(rf"({HOST})/(light|dark)_all/\d+/\d+/\d+(@2x)?\.png")
"""Tiles of the base map, of whole zooms, as their servers have no others."""


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def missing(what: str) -> None:
    """Skip, or fail in CI: there the tests must run."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def npm() -> Path:
    if not (NPM / "leaflet").is_dir() or not (NPM / "axe-core").is_dir():
        missing(f"no npm packages in {NPM}; run npm ci in {NPM.parent}")
    return NPM


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = os.environ.get("GEOGP_CHROMIUM") or shutil.which("chromium")
    if not chromium or not Path(chromium).exists():
        missing("no chromium; install it, or set GEOGP_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api") if not os.environ.get("CI") else None
    if playwright is None:
        from playwright import sync_api as playwright
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@dataclass
class Visit:
    """An open page, and what went wrong on it."""

    tab: Any
    path: Path
    faults: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tab, name)

    def settle(self) -> None:
        """Wait until all that was wished for is drawn."""
        self.tab.evaluate("async () => { await geogp.ready; await geogp.page.settled(); }")

    def until(self, condition: str, arg: Any = None) -> None:
        """Wait until a condition holds. Asked from here: the policy keeps the driver's own out."""
        for _ in range(400):
            if self.tab.evaluate(condition, arg):
                return
            self.tab.wait_for_timeout(50)
        pytest.fail(f"expected that {condition} comes true")

    @property
    def state(self) -> dict[str, Any]:
        return self.tab.evaluate("({...geogp.page.state})")

    def update(self, **changes: Any) -> None:
        self.tab.evaluate("changes => geogp.page.update(changes)", changes)
        self.settle()

    def picture(self, name: str = "main") -> dict[str, Any] | None:
        """Return the size of a canvas and the bytes of its pixels, RGBA."""
        found = self.tab.evaluate(
            """async name => {
              const picture = geogp.page.pictures[name];
              if (!picture.overlay) { return null; }
              const {width, height} = picture.canvas;
              const copy = new OffscreenCanvas(width, height).getContext('2d');
              copy.drawImage(picture.canvas, 0, 0);
              const {data} = copy.getImageData(0, 0, width, height);
              const text = await new Promise(done => {
                const reader = new FileReader();
                reader.onload = () => done(reader.result.split(',')[1]);
                reader.readAsDataURL(new Blob([data]));
              });
              return {width, height, data: text};
            }""",
            name,
        )
        return found and found | {"data": base64.b64decode(found["data"])}


@pytest.fixture
def visit(browser, tmp_path):
    """Open pages without network; afterwards there must be no fault but those a test took out.

    A fault is an error or a warning, what the page's policy forbids among them, a dialog, and a
    request for anything but tiles of the base map, of whole zooms.
    """
    contexts, visits = [], []

    def refuse(route, found):
        found.asked.append(route.request.url)
        route.abort()

    def open_page(text, *, size=None, hash="", ready=True, touch=False, **options):  # noqa: A002
        path = tmp_path / f"map{len(visits)}.html"
        path.write_text(text, "utf-8")
        context = browser.new_context(
            viewport=size or DESKTOP, has_touch=touch, **{"reduced_motion": "reduce"} | options
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(20_000)
        found = Visit(tab, path)
        visits.append(found)
        tab.route(re.compile("^https?:"), lambda route: refuse(route, found))
        tab.on("dialog", lambda dialog: found.faults.append(f"dialog: {dialog.message}"))
        tab.on("pageerror", lambda error: found.faults.append(f"error: {error}"))
        tab.on("console", lambda said: _hear(said, found))
        tab.goto(path.as_uri() + hash)
        if ready:
            found.settle()
        return found

    yield open_page
    for context in contexts:
        context.close()
    for found in visits:
        assert not found.faults
        assert not [one for one in found.asked if not TILE.fullmatch(one)]


def _hear(said: Any, found: Visit) -> None:
    """Note errors and warnings, but that tests serve no tiles of the base map."""
    unserved = said.location["url"].startswith(BASE_MAP) and "net::ERR_FAILED" in said.text
    if said.type in {"error", "warning"} and not unserved:
        found.faults.append(f"{said.type}: {said.text}")


@pytest.fixture(scope="session")
def made() -> Made:
    return make_page()


@pytest.fixture(scope="session")
def hostile() -> Made:
    return make_page(name=HOSTILE, county=HOSTILE, notes=[HOSTILE], attribution=HOSTILE)


@pytest.fixture(scope="session")
def artefacts() -> Path:
    ARTEFACTS.mkdir(exist_ok=True)
    return ARTEFACTS


@pytest.fixture(scope="session")
def make():
    """Make pages of other worlds, each once."""
    return cache(make_page)


@pytest.fixture(scope="session")
def runs(request, tmp_path_factory):
    """Make finished runs by their names, each once."""

    @cache
    def make(name):
        if name == DEMO:
            return Run(request.getfixturevalue("demo_run"))
        return MAKERS[name](tmp_path_factory.mktemp("runs"))

    return make
