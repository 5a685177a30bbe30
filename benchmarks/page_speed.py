"""How fast a map's page is in Chromium: first paint, answer to a click, a new threshold.

    python benchmarks/page_speed.py runs/demo/map.html ... --leaflet tests/browser/node_modules

Each page is opened several times; the figures are medians in milliseconds, as JSON on standard
output. Leaflet comes from an npm folder in place of the CDN, and no base map is loaded.
"""

import argparse
import json
import os
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, sync_playwright

from geogp.maps.page_assets import CDN

CLICK = """async (place) => {
  const start = performance.now();
  await geogp.page.choose(L.latLng(place));
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""

THRESHOLD = """async (place) => {
  const {data} = geogp.page;
  await geogp.page.update({layer: 'probability'});
  const times = [];
  for (const threshold of data.threshold.values.slice(0, 9)) {
    const start = performance.now();
    await geogp.page.update({threshold});
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - start);
  }
  return times;
}"""

LAYERS = """async () => {
  const times = {};
  for (const id of geogp.page.layers.keys()) {
    const start = performance.now();
    await geogp.page.update({layer: id});
    await new Promise(requestAnimationFrame);
    times[id] = performance.now() - start;
  }
  return times;
}"""

INSIDE = """async (count) => {
  const {data, pictures: {painter}} = geogp.page;
  const inside = await painter.mask();
  const found = [];
  const cells = data.frame.width * data.frame.height;
  for (let k = 1; found.length < count; k += 1) {
    const number = Math.floor(cells * ((k * 0.618034) % 1));
    if (inside(number)) {
      const {lat, lng} = geogp.centreOf(data.frame, {
        column: number % data.frame.width, row: Math.floor(number / data.frame.width)});
      found.push([lat, lng]);
    }
  }
  return found;
}"""


def open_page(browser: Browser, path: Path, leaflet: Path) -> Page:
    """Open a page, Leaflet from a folder, and wait until it is drawn."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})

    def serve(route: Route) -> None:
        file = leaflet / "leaflet" / "dist" / route.request.url.removeprefix(CDN + "/")
        if route.request.url.startswith(CDN) and file.is_file():
            headers = {"Access-Control-Allow-Origin": "*"}
            route.fulfill(path=file, headers=headers)
        else:
            route.abort()

    page.route(re.compile("^https?:"), serve)
    page.goto(path.resolve().as_uri())
    page.wait_for_function("document.documentElement.dataset.geogp === 'ready'")
    return page


def times_of(browser: Browser, path: Path, leaflet: Path, repeats: int) -> dict[str, Any]:
    """Return the medians of a page, in ms."""
    paints: list[float] = []
    clicks: list[float] = []
    moves: list[float] = []
    layers: dict[str, float] = {}
    for _ in range(repeats):
        page = open_page(browser, path, leaflet)
        paints.append(page.evaluate("performance.getEntriesByName('geogp-ready')[0].startTime"))
        clicks += [page.evaluate(CLICK, place) for place in page.evaluate(INSIDE, 9)]
        if page.evaluate("Boolean(geogp.page.data.threshold)"):
            moves += page.evaluate(THRESHOLD)
        layers = page.evaluate(LAYERS)
        page.close()
    return {
        "page": str(path),
        "bytes": path.stat().st_size,
        "first_paint_ms": round(statistics.median(paints)),
        "click_ms": round(statistics.median(clicks)),
        "slowest_click_ms": round(max(clicks)),
        "threshold_ms": round(statistics.median(moves)) if moves else None,
        "layer_ms": {name: round(value) for name, value in layers.items()},
    }


def main() -> None:
    """Read the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--leaflet", type=Path, default=Path("tests/browser/node_modules"), help="an npm folder"
    )
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    chromium = os.environ.get("GEOGP_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found = [times_of(browser, path, asked.leaflet, asked.repeats) for path in asked.pages]
        version = browser.version
        browser.close()
    print(json.dumps({"chromium": version, "pages": found}, indent=1))


if __name__ == "__main__":
    main()
