"""A figure of areas in two panels, each coloured by its own values."""

from collections.abc import Sequence
from typing import NamedTuple

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
from geogp.maps.scales import Scale

_STACKED = 1.6
"""Ratio of width to height above which the panels are stacked."""


class Panel(NamedTuple):
    """A map of areas: the value of each area (k,), the scale of the colours, and a heading."""

    values: Floats
    scale: Scale
    words: str


def choropleth(
    region: Region,
    tiles: Tiles,
    shapes: Sequence[BaseGeometry],
    panels: tuple[Panel, Panel],
    *,
    title: str,
    subtitle: str,
    marked: NDArray[np.bool_] | None = None,
    attribution: str = "",
) -> bytes:
    """Return a PNG file of two maps of areas.

    `shapes` are in degrees. `marked` (k,) are the areas with a black outline, by default none.
    `attribution` names the source of the data.
    Raises DataError if there is no area, or if areas and values differ in number.
    """
    counts = [len(panel.values) for panel in panels]
    if not shapes or set(counts) != {len(shapes)}:
        raise DataError(
            f"expected one area or more, each with a value in both panels, found {len(shapes)} "
            f"areas, and {counts[0]} and {counts[1]} values."
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
    for place, (shown, scale, words) in enumerate(panels):
        x = left + (0 if stacked else place * (width + left))
        y = below + (step * (1 - place) if stacked else 0) + 0.85
        axes = canvas.axes(x, y, width, height)
        draw_base(axes, region.with_strata(None), frame)
        colours = mpl.colormaps[scale.palette](scale.fraction(shown))
        areas.plot(ax=axes, color=colours, edgecolor="white", linewidth=0.5, aspect=None)
        if marked is not None and marked.any():
            areas[marked].boundary.plot(ax=axes, color="black", linewidth=1.2, aspect=None)
        axes.set(xlabel="", ylabel="")  # remove the labels that geopandas sets
        extend = extend_of(shown, scale)
        draw_bar(canvas.axes(x, y - 0.5, width, 0.14), scale, extend, vertical=False)
        canvas.text(x, y + height + 0.08, words, fontsize=9.5)
    canvas.text(left, canvas.height - 0.3, title, fontsize=12, fontweight="bold")
    canvas.text(left, canvas.height - 0.5, subtitle, fontsize=9)
    return canvas.png(attribution)


def _drawn_shapes(
    region: Region, shapes: Sequence[BaseGeometry], tolerance: float
) -> gpd.GeoSeries:
    """Return the areas in EPSG:3857 metres, simplified to `tolerance` metres."""

    def project(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack(to_mercator(region.unwrap(points[:, 0]), points[:, 1]))

    return gpd.GeoSeries(shapely.transform(np.array(shapes, object), project)).simplify(tolerance)
