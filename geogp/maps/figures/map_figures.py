"""Figures of a map, for reports and print: median, mean, bound and width."""

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geogp.files import write_bytes
from geogp.geodata.places.region import Region
from geogp.maps.figures import figure_layout
from geogp.maps.frame import Frame
from geogp.maps.views import find_view, veiled, views_of

VEIL = (0.86, 0.86, 0.86, 0.72)
"""Colour that covers tiles far from any measurement: red, green, blue, opacity."""


def map_figure(grid: xr.Dataset, region: Region, view: str, *, quarter: str | None = None) -> bytes:
    """Return a PNG file of one view of a grid, with far tiles in grey.

    `view` is a name in `views_of`: ``median``, ``mean``, ``bound`` (cautious end of the 95 %
    interval) or ``width``; for numbers of tests ``expected``, ``lower``, ``upper``, ``none``; for
    classes the names of variables.
    `quarter` is the quarter of the grid, for the title. Raises RequestError if the view is unknown,
    and DataError if the grid has no finite value.
    """
    shown = find_view(grid, view)
    scale, values = shown.scale(grid), shown.values(grid)
    frame = Frame.of_grid(grid)
    wide = figure_layout.aspect_of(frame) >= figure_layout.WIDE
    below, right = (1.35, 0.3) if wide else (1.1, 1.15)
    canvas, axes, width, height, outer = figure_layout.map_sheet(
        region, frame, below=below, right=right, least=3.8
    )
    figure_layout.draw_raster(axes, frame, values, scale)
    far = veiled(grid, shown.variable)
    keys = _outline_keys(region)
    if far.any():
        figure_layout.draw_image(axes, frame, np.where(far[:, :, None], VEIL, 0.0), zorder=2)
        label = f"farther than {grid.attrs['far_km']:g} km from any measurement"
        keys.append(Patch(fc=VEIL[:3], ec="#888888", lw=0.5, label=label))
    extend = figure_layout.extend_of(values, scale)
    if wide:
        figure_layout.draw_bar(
            canvas.axes(figure_layout.LEFT, 0.62, 0.55 * outer, 0.16), scale, extend, vertical=False
        )
        canvas.legend(keys, figure_layout.LEFT + 0.62 * outer, 0.95)
    else:
        bar = canvas.axes(figure_layout.LEFT + (outer + width) / 2 + 0.2, below, 0.16, height)
        figure_layout.draw_bar(bar, scale, extend, vertical=True)
        canvas.legend(keys, figure_layout.LEFT, 0.7)
    quarter = quarter or str(grid.attrs.get("quarter", ""))
    where = ", ".join(text for text in (region.heading, quarter) if text)
    canvas.heading(below + height + 0.17, shown.title, where)
    return canvas.png(str(grid.attrs.get("attribution", "")))


def write_map_figures(
    grid: xr.Dataset, region: Region, folder: Path, *, quarter: str | None = None
) -> list[Path]:
    """Write a PNG file for each view of a grid, such as ``median.png`` (see `map_figure`).

    There is no ``mean.png`` if the predictive distributions have no mean. Raises OutputError if a
    file cannot be written, and DataError if the grid has no finite value.
    """
    names = [view.name for view in views_of(grid)]
    paths = [folder / f"{name}.png" for name in names]
    for name, path in zip(names, paths, strict=True):
        write_bytes(path, map_figure(grid, region, name, quarter=quarter))
    return paths


def _outline_keys(region: Region) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = [Line2D([], [], color="black", lw=0.9, label="boundary")]
    if region.strata is not None:
        keys.append(
            Line2D([], [], color=figure_layout.STRATUM_COLOUR, lw=1.0, label=region.strata.words)
        )
    return keys
