"""Numbered places over a raster: one figure."""

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Region, Tiles
from geogp.maps.figures.figure_layout import (
    Canvas,
    aspect_of,
    draw_bar,
    draw_base,
    draw_raster,
    extend_of,
)
from geogp.maps.frame import Frame, to_mercator
from geogp.maps.scales import WIDTH_PALETTE, linear_scale

Floats = NDArray[np.float64]

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
) -> bytes:
    """Draw values of tiles, and over them places numbered from 1 in their order.

    Parameters
    ----------
    region, tiles
        What is mapped.
    values
        One for each tile.
    places
        Longitudes and latitudes in degrees, (k, 2).
    label
        What the values are, with their unit.
    title, subtitle
        What is shown, and where and when.

    Returns
    -------
    bytes
        A PNG file.

    Raises
    ------
    DataError
        Another number of values than tiles.
    """
    if len(values) != len(tiles):
        raise DataError(f"expected a value for each of {len(tiles)} tiles, found {len(values)}.")
    frame = Frame.of_tiles(tiles)
    aspect = aspect_of(frame)
    width = min(8.6, 7.4 * aspect) if aspect < 1 else 8.6
    height, left, below = width / aspect, 0.75, 1.05
    canvas = Canvas.of_size(left + max(width, 5.0) + 0.3, below + height + 0.8)
    axes = canvas.axes(left, below, width, height)
    draw_base(axes, region, frame)
    raster = frame.place(tiles, values, np.nan)
    scale = linear_scale(raster, label=label, palette=WIDTH_PALETTE)
    draw_raster(axes, frame, raster, scale)
    east, north = to_mercator(region.unwrap(places[:, 0]), places[:, 1])
    for number in range(len(places), 0, -1):
        # The first ones lie on top.
        at = (east[number - 1], north[number - 1])
        axes.text(
            *at,
            str(number),
            fontsize=6,
            ha="center",
            va="center",
            bbox=_OUTLINE,
            zorder=5 + 1 / number,
        )
    bar = canvas.axes(left, 0.5, min(width, 5.0), 0.16)
    draw_bar(bar, scale, extend_of(values, scale), vertical=False)
    canvas.text(left, below + height + 0.42, title, fontsize=13, fontweight="bold")
    canvas.text(left, below + height + 0.17, subtitle, fontsize=9.5)
    return canvas.png()
