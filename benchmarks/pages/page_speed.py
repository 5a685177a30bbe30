"""Speed of a map's page in Chromium: first paint, answer to a click, a new threshold.

    python -m benchmarks pages.page_speed runs/demo/map.html ...

Each page is opened several times; the figures are medians in milliseconds, as JSON on standard
output. No base map is loaded.
`tests/browser` compares the live kernel with that of the run's model.
"""

import json
import os
import platform
import re
import shutil
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import geogp
from benchmarks.markdown import table
from benchmarks.script import Figures, parser, write_results
from benchmarks.script import machine as this_machine

CLICK = """async (place) => {
  const start = performance.now();
  await geogp.page.choose(L.latLng(place));
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""

THRESHOLD = """async () => {
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

ABOUT = """() => { const {kernel, quarters} = geogp.page.data;
  return {quarters: quarters.length, kernel_error: kernel && kernel.error}; }"""

TIMES = ("first_paint", "click", "slowest_click", "threshold")

HEADER = (
    *("run", "tiles", "quarters", "MB"),
    *("first paint, ms", "click, ms", "slowest click, ms", "threshold, ms"),
    "stated error of the live kernel, %",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium from ``GEOGP_CHROMIUM`` or from the search path."""
    program = os.environ.get("GEOGP_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(browser: Browser, path: Path, size: tuple[int, int] = (1280, 800)) -> Page:
    """Open a page and wait until it is drawn."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-geogp=ready]", state="attached")
    return page


def times_of(browser: Browser, path: Path, repeats: int) -> Figures:
    """Return the medians of a page, in ms, and what it states."""
    told: Figures = {}
    paints: list[float] = []
    clicks: list[float] = []
    moves: list[float] = []
    for _ in range(repeats):
        page = open_page(browser, path)
        paints.append(page.evaluate("performance.getEntriesByName('geogp-ready')[0].startTime"))
        clicks += [page.evaluate(CLICK, place) for place in page.evaluate(INSIDE, 9)]
        if page.evaluate("Boolean(geogp.page.data.threshold)"):
            moves += page.evaluate(THRESHOLD)
        told = page.evaluate(ABOUT)
        page.close()
    return {
        "page": path.parent.name,
        "bytes": path.stat().st_size,
        "first_paint_ms": round(statistics.median(paints)),
        "click_ms": round(statistics.median(clicks)),
        "slowest_click_ms": round(max(clicks)),
        "threshold_ms": round(statistics.median(moves)) if moves else None,
        "tiles": geogp.open_run(path.parent).record.map.tiles,
        **told,
    }


def page(found: Figures) -> str:
    """Return the figures as a table in Markdown, with a description of the machine."""
    lines = []
    for one in found["pages"]:
        error = one["kernel_error"]
        lines.append(
            (
                *(one["page"], f"{one['tiles']:,}", one["quarters"], f"{one['bytes'] / 1e6:.2f}"),
                *(one[f"{name}_ms"] for name in TIMES),
                "none" if error is None else f"{100 * error:.3f}",
            )
        )
    machine = found["machine"]
    return f"""{table(HEADER, lines)}
Medians of {found["repeats"]} openings, headless Chromium {found["chromium"]}, \
{machine["system"]}, {machine["cores"]} cores, Python {machine["python"]}, geogp \
{machine["geogp"]}, torch {machine["torch"]}; load of the last minute \
{machine["load"]:.1f} at the start (a load above the number of cores means other work). \
The error of the kernel is a share of its largest value.
"""


def main() -> None:
    """Read the arguments and print the figures."""
    asked = parser(__doc__, table="page", repeats=3)
    asked.add_argument("pages", nargs="+", type=Path)
    options = asked.parse_args()
    system = f"{platform.system()} {platform.machine()}"
    load = {"system": system, "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    found: Figures = {"machine": this_machine() | load, "repeats": options.repeats}
    with chromium() as browser:
        found["pages"] = [times_of(browser, path, options.repeats) for path in options.pages]
        found["chromium"] = browser.version
    print(json.dumps(found, indent=1))
    write_results(options.table, page(found), found)
