"""A figure of numbered places over a raster."""

import numpy as np

from geogp.geodata.places.region import Region, Tiles
from geogp.maps.figures.figure_layout import LEFT, draw_bar, draw_raster, extend_of, map_sheet
from geogp.maps.frame import Floats, Frame, to_mercator
from geogp.maps.scales import WIDTH_PALETTE, linear_scale

_OUTLINE = {"boxstyle": "circle,pad=0.12", "fc": "white", "ec": "black", "lw": 0.5}


def numbered_figure(
    region: Region,
    tiles: Tiles,
    values: Floats,
    places: Floats,
    *,
    label: str,
    title: str,
    subtitle: str,
    attribution: str = "",
) -> bytes:
    """Return a PNG map of values of tiles, on which the numbers 1, 2, 3, ... mark places.

    `places` are longitudes and latitudes in degrees, (k, 2); `label` names the values and the unit,
    `attribution` the source of the data.
    Raises DataError if the number of values differs from the number of tiles.
    """
    frame = Frame.of_tiles(tiles)
    below = 1.05
    canvas, axes, width, height, _ = map_sheet(region, frame, below=below)
    raster = frame.place(tiles, values, np.nan)
    scale = linear_scale(raster, label=label, palette=WIDTH_PALETTE)
    draw_raster(axes, frame, raster, scale)
    east, north = to_mercator(region.unwrap(places[:, 0]), places[:, 1])
    for number in range(len(places), 0, -1):
        # Draw the first numbers last, on top of the others.
        axes.text(
            east[number - 1],
            north[number - 1],
            str(number),
            fontsize=6,
            ha="center",
            va="center",
            bbox=_OUTLINE,
            zorder=5 + 1 / number,
        )
    bar = canvas.axes(LEFT, 0.5, min(width, 5.0), 0.16)
    draw_bar(bar, scale, extend_of(values, scale), vertical=False)
    canvas.heading(below + height + 0.17, title, subtitle)
    return canvas.png(attribution)
