"""The interactive page: an HTML file that draws packed arrays of a grid, one pixel per tile.

The page is rendered from three blocks: the data of the map, the script with its outlines, and the
answers of later commands. To show other answers, `with_answers` reads the first two blocks back
from the page, and renders the page again. A page that another version of geogp wrote may need other
scripts, so it stays as it is: its policy has the hashes of its own scripts.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import folium
import numpy as np
import shapely
from jinja2 import Environment, StrictUndefined, Template, UndefinedError
from markupsafe import escape
from shapely.geometry.base import BaseGeometry

from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.region import Region
from geogp.maps.frame import Frame
from geogp.maps.page.packing import json_text
from geogp.maps.page.page_assets import asset, page_scripts, page_styles
from geogp.maps.page.page_places import TOWN, unwrapped
from geogp.maps.page.page_policy import page_policy

OOKLA_ATTRIBUTION = (
    "Speedtest® by Ookla® Global Fixed and Mobile Network Performance Map Tiles, "
    "CC BY-NC-SA 4.0. Boundaries: US Census Bureau."
)
"""Attribution of the data for every map made from Ookla's open tiles."""

_BASE_HOST = "https://{s}.basemaps.cartocdn.com"
_BASE_TILES = _BASE_HOST + "/light_all/{z}/{x}/{y}{r}.png"
_BASE_SERVERS = "abc"

TILE_HOSTS = tuple(_BASE_HOST.replace("{s}", server) for server in _BASE_SERVERS)
"""Hosts of the base map, the only hosts that a page contacts."""

_MAX_ZOOM = 20
_MAX_OUTLINE = 250_000
"""Largest number of bytes of all outlines of one kind, such as counties."""

_KINDS = {TOWN: "towns", "county": "counties", "urban area": "urban areas"}
"""Kinds of the places of a page, and their plurals."""

_DECIMALS = 4
_FINEST = 1e-4  # degrees, the same as the rounding

Line = list[list[float]]

_DATA = re.compile(r'<script type="application/json" id="geogp-data">(.*?)</script>', re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_SCRIPTS = 3
"""Number of the scripts of a page: Leaflet, the outlines, and geogp's own script."""


@dataclass(frozen=True)
class PageAnswers:
    """What the page shows of later answers.

    `links` are the marks and titles of the answers in the report, `notes` are sentences, and
    `layers` are layers as those of the map.
    """

    links: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    layers: Sequence[dict[str, Any]] = ()


def map_page(
    data: dict[str, Any],
    region: Region,
    counties: PolygonLayer | None = None,
    *,
    attribution: str = OOKLA_ATTRIBUTION,
    notes: Sequence[str] = (),
    base_map: bool = True,
) -> str:
    """Return the interactive map as one HTML page.

    The page draws its packed arrays on a canvas with one pixel per tile. Tiles are square both in
    EPSG:3857 and on screen, so nothing is resampled. Only the scripts of Leaflet, folium and geogp
    can run.

    `data` comes from `page_data.py`; the page shows texts in `data` literally, never as HTML.
    `attribution` names the source of the data and the licence; `notes` are sentences. `base_map`
    shows streets and names below the data; without it, the page makes no network requests. An
    invented region has no base map, because the real names there are those of other places.
    """
    base_map = base_map and not region.invented
    layers = _outlines(region, counties)
    outlines, variables = _map_script(Frame(**data["frame"]), layers, base_map=base_map)
    words = {}
    if region.strata is not None and "urban" in variables:
        words["urban"] = region.strata.words[:1].upper() + region.strata.words[1:]
    options = {"attribution": attribution, "notes": list(notes), "base_map": base_map}
    content = data | {"variables": variables, "words": words} | options
    return _rendered(content, json_text(content), outlines, PageAnswers())[0]


def with_answers(page: str, answers: PageAnswers) -> str | None:
    """Return a page of `map_page` with other answers; None for a page of another version."""
    data, scripts = _DATA.search(page), _SCRIPT.findall(page)
    if data is None or len(scripts) != _SCRIPTS:
        return None
    outlines = scripts[1]
    try:
        rendered, policy = _rendered(json.loads(data[1]), data[1], outlines, answers)
    except (ValueError, LookupError, TypeError, UndefinedError):  # the data of another version
        return None
    return rendered if str(escape(policy)) in page else None


def _rendered(
    content: dict[str, Any], data: str, outlines: str, answers: PageAnswers
) -> tuple[str, str]:
    """Return a page and its policy, from the content of the page, also as JSON `data`."""
    leaflet, own = page_scripts(tiers=content["tiers"] is not None)
    # The browser may run these scripts, so they contain no text from data.
    styles, scripts = page_styles(), (leaflet, outlines, own)
    policy = page_policy(styles, scripts, TILE_HOSTS if content["base_map"] else ())
    found = {place["kind"].partition(" in ")[0] for place in content["places"]}
    kinds = [plural for kind, plural in _KINDS.items() if kind in found]
    page = _template().render(
        content,
        policy=policy,
        styles=styles,
        scripts=scripts,
        data=data,
        kinds=kinds,
        towns=_KINDS[TOWN] in kinds,
        answers=answers,
        layers=json_text(list(answers.layers)),
    )
    return page, policy


@cache
def _template() -> Template:
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    ).from_string(asset("page.html"))


def _map_script(
    frame: Frame, outlines: dict[str, folium.PolyLine], *, base_map: bool
) -> tuple[str, dict[str, str]]:
    """Return folium's script, and the names of its variables for the map and for each layer."""
    west, south, east, north = frame.bounds
    page = folium.Map(
        location=((south + north) / 2, (west + east) / 2),
        tiles=None,
        zoom_snap=0.05,  # the first view fills the window up to 3 %
        attribution_control=False,
    )
    page.options["max_zoom"] = _MAX_ZOOM  # the parameter of `Map` applies only to the tiles
    layers: dict[str, folium.TileLayer | folium.PolyLine] = {}
    if base_map:
        # The page shows its own credits, but folium requires a text.
        layers["base"] = folium.TileLayer(
            _BASE_TILES, attr="OpenStreetMap, CARTO", subdomains=_BASE_SERVERS, max_zoom=_MAX_ZOOM
        )
    layers |= outlines
    for layer in layers.values():
        layer.add_to(page)
    # Use only the script, because folium's head and body contain addresses of other hosts.
    figure = folium.Figure()
    page.add_to(figure)
    page.render()  # type: ignore[no-untyped-call]
    script = figure.script.render()
    variables = {}
    for name, element in {"map": page, **layers}.items():
        # Folium's names are random, but the same map must give the same page.
        variables[name] = f"geogp_{name}"
        script = script.replace(element.get_name(), variables[name])
    return script, variables


def _outlines(region: Region, counties: PolygonLayer | None) -> dict[str, folium.PolyLine]:
    """Return the outlines by kind (such as counties), in the order in which they are drawn."""
    kinds: list[tuple[str, Sequence[BaseGeometry], float]] = [
        ("counties", unwrapped(region, counties) if counties else [], 0.8),
        ("urban", list(region.strata.area.geoms) if region.strata else [], 1.0),
        ("boundary", list(region.boundary.geoms), 1.6),
    ]
    by_kind = {}
    for name, polygons, weight in kinds:
        lines, _ = outlines_within(polygons, _MAX_OUTLINE)
        if lines:
            drawn = folium.PolyLine(lines, weight=weight)  # type: ignore[no-untyped-call]
            drawn.options["interactive"] = False  # folium drops the parameter
            by_kind[name] = drawn
    return by_kind


def outlines(polygons: Iterable[BaseGeometry], tolerance: float) -> list[Line]:
    """Return the lines around polygons, simplified to `tolerance` degrees.

    Lines are cut at points where three polygons meet. A border that two polygons share is
    simplified once and returned once, so no gap appears. Each line is a list of [latitude,
    longitude] with 4 decimals (11 m).
    """
    # Join the two halves of a region that crosses the antimeridian.
    whole = [shapely.unary_union(polygon) for polygon in polygons]
    edges = [edge for edge in shapely.boundary(whole) if not edge.is_empty]
    if not edges:
        return []
    merged = shapely.line_merge(shapely.union_all(edges))
    lines = []
    for line in shapely.simplify(shapely.get_parts(merged), tolerance):
        points = np.round(shapely.get_coordinates(line)[:, ::-1], _DECIMALS)
        changed = np.any(points[1:] != points[:-1], axis=1)
        points = points[np.concatenate([[True], changed])]
        if len(points) > 1:
            lines.append(points.tolist())
    return lines


def outlines_within(polygons: Iterable[BaseGeometry], most: int) -> tuple[list[Line], float]:
    """Return outlines whose JSON has at most `most` bytes, and their tolerance in degrees.

    The tolerance starts at 0.0001 and is doubled until the outlines fit.
    """
    polygons, tolerance = list(polygons), _FINEST
    while True:
        lines = outlines(polygons, tolerance)
        if len(json.dumps(lines)) <= most or tolerance > 1:
            return lines, tolerance
        tolerance *= 2
