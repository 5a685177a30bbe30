"""Take pictures of the pages of runs, at the sizes of a desktop and a phone screen, as WebP.

    python -m benchmarks pages.page_pictures runs/PR-... --out docs/pictures

There are two pictures at each size: the level with the page's text about the place with most tests,
and the probability of a threshold beside the uncertainty. No base map is loaded.
"""

import io
from pathlib import Path

import xarray as xr
from PIL import Image
from playwright.sync_api import Browser

from benchmarks.pages.page_speed import chromium, open_page
from benchmarks.script import parser

SIZES = {"desktop": (1280, 800), "phone": (390, 844)}

QUALITY = 70
"""Quality of WebP."""

SHOW = """async ({change, row, column}) => {
  const {page} = geogp;
  if (row === undefined) {
    await page.update(change);
  } else {
    const place = geogp.centreOf(page.data.frame, {row, column});
    await page.update({...change, point: [place.lat, place.lng]});
  }
  await page.settled();
}"""


def pictures(browser: Browser, run: Path, out: Path) -> None:
    """Write the pictures of a run."""
    with xr.open_dataset(run / "grid.nc", mask_and_scale=False) as grid:
        place = grid["tests"].argmax(dim=("y", "x"))
        cell = {"row": int(place["y"]), "column": int(place["x"])}
    compared = {"layer": "probability", "beside": "width", "point": None}
    shown = {"level": {"change": {}, **cell}, "compared": {"change": compared}}
    for kind, size in SIZES.items():
        page = open_page(browser, run / "map.html", size)
        for name, asked in shown.items():
            page.evaluate(SHOW, asked)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.save(out / f"{run.name}-{kind}-{name}.webp", quality=QUALITY, method=6)
        page.close()


def main() -> None:
    """Read the arguments and write the pictures."""
    asked = parser(__doc__)
    asked.add_argument("runs", nargs="+", type=Path)
    asked.add_argument("--out", type=Path, default=Path("docs/pictures"))
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for run in options.runs:
            pictures(browser, run, options.out)
