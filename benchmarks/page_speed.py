"""How fast a map's page is in Chromium: first paint, answer to a click, a new threshold.

    python benchmarks/page_speed.py runs/demo/map.html ... --out benchmarks/results/page

Each page is opened several times; the figures are medians in milliseconds, as JSON on standard
output. No base map is loaded. With --out, results.json and table.md are written there, with the
error of the live kernel from some places against that of the run's model.
"""

import argparse
import json
import math
import os
import platform
import re
import shutil
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from playwright.sync_api import Browser, Page, sync_playwright

import geogp
from geogp.files import write_text
from geogp.geodata.places.region import Tiles
from geogp.maps.frame import Frame
from geogp.maps.page.kernel_error import random_places
from geogp.runs.open_run import open_run
from geogp.runs.pipeline.inputs import tile_table

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

LAYERS = """async (place) => {
  const times = {};
  await geogp.page.choose(L.latLng(place));
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

KERNEL = """async ([place, cells]) => {
  const values = await geogp.page.pictures.painter.kernelAt(place);
  return cells.map(cell => values[cell]);
}"""

MOST_TILES = 40_000
"""To which the error of the live kernel is measured."""

ABOUT = """() => { const {kernel, frame, quarters, steps} = geogp.page.data;
  const {components, scale, ...told} = kernel || {};
  return {kernel: kernel && {...told, components: components.shape[0]}, frame, steps,
    quarters: quarters.length}; }"""

HEADS = (
    ("page", "run"),
    ("tiles", "tiles"),
    ("quarters", "quarters"),
    ("megabytes", "MB"),
    ("first_paint_ms", "first paint, ms"),
    ("click_ms", "click, ms"),
    ("slowest_click_ms", "slowest click, ms"),
    ("threshold_ms", "threshold, ms"),
    ("kernel_stated", "live kernel: stated error, %"),
    ("kernel_measured", "measured, %"),
    ("kernel_in_middles", "between middles of its cells, %"),
)
"""Columns of the table."""


def open_page(browser: Browser, path: Path, size: tuple[int, int] = (1280, 800)) -> Page:
    """Open a page and wait until it is drawn."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-geogp=ready]", state="attached")
    return page


def times_of(browser: Browser, path: Path, repeats: int) -> dict[str, Any]:
    """Return the medians of a page, in ms."""
    paints: list[float] = []
    clicks: list[float] = []
    moves: list[float] = []
    layers: dict[str, float] = {}
    for _ in range(repeats):
        page = open_page(browser, path)
        paints.append(page.evaluate("performance.getEntriesByName('geogp-ready')[0].startTime"))
        clicks += [page.evaluate(CLICK, place) for place in page.evaluate(INSIDE, 9)]
        if page.evaluate("Boolean(geogp.page.data.threshold)"):
            moves += page.evaluate(THRESHOLD)
        layers = page.evaluate(LAYERS, page.evaluate(INSIDE, 1)[0])
        page.close()
    return {
        "page": path.parent.name,
        "bytes": path.stat().st_size,
        "first_paint_ms": round(statistics.median(paints)),
        "click_ms": round(statistics.median(clicks)),
        "slowest_click_ms": round(max(clicks)),
        "threshold_ms": round(statistics.median(moves)) if moves else None,
        "layer_ms": {name: round(value) for name, value in layers.items()},
    }


def about(browser: Browser, path: Path, places: int) -> dict[str, Any]:
    """Return what a page of a run holds, and the largest error of its live kernel.

    From random places, wherever in their tiles, to some tiles of all, over the largest value of
    the model's kernel there; drawn otherwise than those that the page states its error from.
    """
    page = open_page(browser, path)
    told = page.evaluate(ABOUT)
    stated = told["kernel"]
    if stated is None:
        page.close()
        return told | {"tiles": tiles_of(path.parent)}
    opened = open_run(path.parent, device="cpu").reopen()
    frame, tiles, random = Frame(**told["frame"]), opened.tiles, np.random.default_rng(1)

    def inputs(tiles: Tiles) -> Any:
        return tile_table(tiles, opened.job.question.quarter)

    rows = np.sort(random.choice(len(tiles), min(MOST_TILES, len(tiles)), replace=False))
    some = Tiles(tiles.column[rows], tiles.row[rows], tiles.zoom)
    down, across = frame.pixels(some)
    cells = (down * frame.width + across).tolist()
    largest = float((opened.model.features(inputs(some)) ** 2).sum(axis=1).max())
    here = random_places(tiles, random, places)
    worst = 0.0
    for row in range(places):
        one = Tiles(here.column[[row]], here.row[[row]], here.zoom)
        place = [float(one.centres[1][0]), float(one.centres[0][0])]
        found = np.array(page.evaluate(KERNEL, [place, cells]), float)
        exact = opened.model.kernel(inputs(some), inputs(one))[:, 0]
        worst = max(worst, float(np.abs(found - exact).max()))
    page.close()
    return {
        "tiles": len(opened.tiles),
        "quarters": told["quarters"],
        "steps": told["steps"],
        "kernel": stated | {"measured": worst / largest, "places": places, "tiles": len(some)},
    }


def tiles_of(run: Path) -> int:
    """Return the number of tiles of a run's map."""
    return int(json.loads((run / "run.json").read_text("utf-8"))["map"]["tiles"])


def table(found: dict[str, Any]) -> str:
    """Return the figures as a table in Markdown, and what they were taken on."""
    lines = [
        "| " + " | ".join(head for _, head in HEADS) + " |",
        "| --- |" + " ---: |" * (len(HEADS) - 1),
    ]
    for page in found["pages"]:
        kernel = page["kernel"] or defaultdict(lambda: math.nan)
        row = page | {
            "tiles": f"{page['tiles']:,}",
            "megabytes": f"{page['bytes'] / 1e6:.2f}",
            "kernel_stated": f"{100 * kernel['error']:.3f}",
            "kernel_measured": f"{100 * kernel['measured']:.3f}",
            "kernel_in_middles": f"{100 * kernel['error_in_middles']:.3f}",
        }
        cells = [str(row[name]).replace("nan", "none") for name, _ in HEADS[1:]]
        lines.append(f"| {row['page']} | " + " | ".join(cells) + " |")
    machine = found["machine"]
    taken = (
        f"Medians of {found['repeats']} openings, headless Chromium {found['chromium']}, "
        f"{machine['system']}, {machine['cores']} cores, Python {machine['python']}, geogp "
        f"{machine['geogp']}, torch {machine['torch']}; load of the last minute "
        f"{machine['load']:.1f} at the start (above the number of cores, others were at work). "
        "Errors of the kernel are shares of its largest value."
    )
    lines += ["", taken]
    return "\n".join(lines) + "\n"


def machine() -> dict[str, Any]:
    """Return what the figures are taken on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "geogp": geogp.__version__,
        "torch": torch.__version__,
    }


def main() -> None:
    """Read the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a folder for results.json and table.md")
    asked = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "repeats": asked.repeats}
    chromium = os.environ.get("GEOGP_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found["pages"] = [
            times_of(browser, path, asked.repeats) | (about(browser, path, 24) if asked.out else {})
            for path in asked.pages
        ]
        found["chromium"] = browser.version
        browser.close()
    text = json.dumps(found, indent=1)
    print(text)
    if asked.out:
        write_text(asked.out / "results.json", text + "\n")
        write_text(asked.out / "table.md", table(found))


if __name__ == "__main__":
    main()
