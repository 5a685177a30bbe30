"""The interactive page: one HTML file with the grid as packed arrays, drawn right to the pixel."""

from collections.abc import Sequence
from typing import Any

import folium
from branca.element import Figure
from shapely.geometry.base import BaseGeometry

from geogp.geodata.layers import PolygonLayer
from geogp.geodata.region import Region
from geogp.maps.frame import Frame
from geogp.maps.layout import STRATUM_COLOUR
from geogp.maps.outlines import outlines_within
from geogp.maps.page_assets import Library, inlined_html, links_html
from geogp.maps.page_parts import (
    Raw,
    StartScript,
    body_html,
    data_html,
    escape_text,
    head_html,
    script_html,
)
from geogp.maps.page_places import unwrapped

OOKLA_ATTRIBUTION = (
    "Speedtest® by Ookla® Global Fixed and Mobile Network Performance Map Tiles, "
    "CC BY-NC-SA 4.0. Boundaries: US Census Bureau."
)
"""Attribution of the data behind every map made from Ookla's open tiles."""

_BASE_TILES = "https://{s}.basemaps.cartocdn.com/light_all/{z}/{x}/{y}{r}.png"
_BASE_ATTRIBUTION = (
    '&copy; <a href="https://www.openstreetmap.org/copyright">OpenStreetMap</a> contributors, '
    '&copy; <a href="https://carto.com/attributions">CARTO</a>'
)
_MOST_ZOOM = 18
_MOST_OUTLINE = 250_000
"""Bytes of the lines of one kind."""


def map_page(
    data: dict[str, Any],
    region: Region,
    counties: PolygonLayer | None = None,
    *,
    attribution: str = OOKLA_ATTRIBUTION,
    notes: list[str] | None = None,
    library: Library | None = None,
) -> str:
    """Return the interactive map as one HTML page.

    The page holds packed arrays and draws them itself: a canvas with one pixel per tile,
    stretched between the raster's outer edges. The raster is square in EPSG:3857 and so is
    Leaflet's screen: nothing is resampled. Without network the page lacks only what Leaflet and
    the base map's server would give; with `library` in it, the base map alone.

    Parameters
    ----------
    data
        What the page shows, made by `geogp.maps.page_data`; its texts, like all others, are shown
        as they are, never read as HTML.
    region
        The region, for its outlines.
    counties
        Polygons to outline within it.
    attribution
        Where the data come from and under which licence.
    notes
        Warnings and remarks, one sentence each.
    library
        Leaflet itself; without it the page takes Leaflet from the CDN.

    Returns
    -------
    str
        The page.
    """
    figure = Figure(title=escape_text(data["title"]))
    page = _base_map(Frame(**data["frame"]))
    page.add_to(figure)
    outlines = _add_outlines(page, region, counties)
    leaflet = links_html() if library is None else inlined_html(library)
    figure.header.add_child(Raw(leaflet))
    figure.header.add_child(Raw(head_html()))
    figure.html.add_child(Raw(body_html(data["title"], notes or [])))
    figure.html.add_child(Raw(data_html(data)))
    figure.html.add_child(Raw(script_html()))
    words = {}
    if region.strata is not None and "urban" in outlines:
        words["urban"] = region.strata.words[:1].upper() + region.strata.words[1:]
    page.add_child(StartScript(outlines, escape_text(attribution), words))
    # The template of folium's page names no language, which readers of screens need.
    return str(figure.render()).replace("<html>", '<html lang="en">', 1)


def _base_map(frame: Frame) -> folium.Map:
    west, south, east, north = frame.bounds
    page = folium.Map(
        location=((south + north) / 2, (west + east) / 2),
        tiles=None,
        max_zoom=_MOST_ZOOM,
        zoom_snap=0.25,
    )
    # The page brings Leaflet itself, with its hash; each further script fails offline.
    page.default_js, page.default_css = [], []
    folium.TileLayer(
        _BASE_TILES, attr=_BASE_ATTRIBUTION, control=False, max_zoom=_MOST_ZOOM + 2
    ).add_to(page)
    return page


def _add_outlines(
    page: folium.Map, region: Region, counties: PolygonLayer | None
) -> dict[str, str]:
    """Add lines to the page and return their names in JavaScript, the lowest first."""
    kinds: list[tuple[str, Sequence[BaseGeometry], str, float]] = [
        ("counties", unwrapped(region, counties) if counties else [], "#4a5867", 0.8),
        ("urban", list(region.strata.area.geoms) if region.strata else [], STRATUM_COLOUR, 1.4),
        ("boundary", list(region.boundary.geoms), "#222222", 1.6),
    ]
    names = {}
    for name, polygons, colour, weight in kinds:
        lines, _ = outlines_within(polygons, _MOST_OUTLINE)
        if lines:
            style = {"color": colour, "weight": weight, "interactive": False}
            drawn = folium.PolyLine(lines, **style)  # type: ignore[no-untyped-call]
            drawn.add_to(page)
            names[name] = drawn.get_name()
    return names
