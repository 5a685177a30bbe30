"""A figure of areas in two panels, coloured by a value and by the value's uncertainty."""

import geopandas as gpd
import matplotlib as mpl
import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geogp.errors import DataError
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.quadkeys import tile_size_m
from geogp.maps.figures.figure_layout import Canvas, aspect_of, draw_bar, draw_base, extend_of
from geogp.maps.frame import Floats, Frame, to_mercator
from geogp.maps.scales import SPEED_PALETTE, WIDTH_PALETTE, linear_scale, speed_scale

_STACKED = 1.6
"""Ratio of width to height above which the panels are stacked."""


def choropleth(
    region: Region,
    tiles: Tiles,
    shapes: list[BaseGeometry],
    values: Floats,
    widths: Floats,
    *,
    unit: str,
    title: str,
    subtitle: str,
) -> bytes:
    """Return a PNG file of two maps of areas, coloured by values and by widths of intervals.

    `shapes` are in degrees; `values` are positive, in `unit`; `widths` of the 95 % intervals are in
    log10 of the unit. Raises DataError if there is no area, or if areas, values and widths differ
    in number.
    """
    if not shapes or not len(shapes) == len(values) == len(widths):
        raise DataError(
            f"expected one area or more, each with a value and a width, found {len(shapes)} areas, "
            f"{len(values)} values and {len(widths)} widths."
        )
    frame = Frame.of_tiles(tiles)
    aspect = aspect_of(frame)
    stacked = aspect > _STACKED
    width = 7.6 if stacked else max(3.4, 4.8 * min(aspect, 1.3))
    height = width / aspect
    left, below, step = 0.75, 0.3, height + 1.5
    outer = max(left + width + 0.35 if stacked else 2 * (left + width) + 0.35, 5.0)
    canvas = Canvas.of_size(outer, below + step * stacked + height + 1.8)
    areas = _drawn_shapes(region, shapes, 0.25 * tile_size_m(tiles.zoom))
    panels = (
        (values, speed_scale(values, label=unit, palette=SPEED_PALETTE), "mean"),
        (
            widths,
            linear_scale(
                widths,
                label=f"width of the 95 % interval, log10 {unit} (1 = tenfold)",
                palette=WIDTH_PALETTE,
            ),
            "uncertainty",
        ),
    )
    for place, (shown, scale, words) in enumerate(panels):
        x = left + (0 if stacked else place * (width + left))
        y = below + (step * (1 - place) if stacked else 0) + 0.85
        axes = canvas.axes(x, y, width, height)
        draw_base(axes, region.with_strata(None), frame)
        colours = mpl.colormaps[scale.palette](scale.fraction(shown))
        areas.plot(ax=axes, color=colours, edgecolor="white", linewidth=0.5, aspect=None)
        axes.set(xlabel="", ylabel="")  # remove the labels that geopandas sets
        extend = extend_of(shown, scale)
        draw_bar(canvas.axes(x, y - 0.5, width, 0.14), scale, extend, vertical=False)
        canvas.text(x, y + height + 0.08, words, fontsize=9.5)
    canvas.text(left, canvas.height - 0.3, title, fontsize=12, fontweight="bold")
    canvas.text(left, canvas.height - 0.5, subtitle, fontsize=9)
    return canvas.png()


def _drawn_shapes(region: Region, shapes: list[BaseGeometry], tolerance: float) -> gpd.GeoSeries:
    """Return the areas in EPSG:3857 metres, simplified to `tolerance` metres."""

    def project(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack(to_mercator(region.unwrap(points[:, 0]), points[:, 1]))

    return gpd.GeoSeries(shapely.transform(np.array(shapes), project)).simplify(tolerance)
