"""The interactive page: one HTML file with the grid as images, right to the pixel."""

import base64
from dataclasses import dataclass
from typing import Any

import folium
import numpy as np
import shapely
import xarray as xr
from branca.element import Element, Figure
from numpy.typing import NDArray
from shapely.geometry import LineString, MultiPolygon

from geogp.geodata.region import Region, Tiles
from geogp.maps.figures import VIEWS, view_scale, view_title, view_variable
from geogp.maps.frame import Frame
from geogp.maps.grid import quantity_of
from geogp.maps.layout import URBAN_COLOUR
from geogp.maps.page_parts import (
    PAGE_STYLE,
    WITHOUT_LEAFLET,
    PageScript,
    escape_text,
    footer_html,
    header_html,
    legend_html,
)
from geogp.maps.scales import Scale, format_tick, kernel_scale, paletted_png
from geogp.maps.slices import KernelSlice, check_slices

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
_FAR_COLOUR = (235, 235, 235, 185)
_MEASURED_COLOUR = (20, 20, 20, 255)
_OPACITY = 0.82
_OUTLINE_STEPS = 4000


def map_page(
    grid: xr.Dataset,
    region: Region,
    tiles: Tiles,
    *,
    title: str,
    kernel_slices: list[KernelSlice] | None = None,
    attribution: str = OOKLA_ATTRIBUTION,
    notes: list[str] | None = None,
) -> str:
    """Return the interactive map as one HTML page.

    Each layer is a paletted PNG with one pixel per tile, embedded in the page and stretched
    between the raster's outer edges. The raster is square in EPSG:3857 and so is Leaflet's
    screen: nothing is resampled. Without network the page lacks only what Leaflet and the base
    map's server would give.

    Parameters
    ----------
    grid
        A grid made by `geogp.maps.grid.build_grid`.
    region
        Its region.
    tiles
        The n tiles that `kernel_slices` hold values for.
    title
        Heading of the page; like every text, shown as it is, never read as HTML.
    kernel_slices
        Slices of the kernel, each a layer with its reference point.
    attribution
        Where the data come from and under which licence.
    notes
        Warnings and remarks, one sentence each.

    Returns
    -------
    str
        The page.

    Raises
    ------
    DataError
        A slice does not fit the tiles, or the grid holds no finite value.
    """
    frame = Frame.of_grid(grid)
    figure = Figure(title=escape_text(title))
    page = _base_map(frame)
    figure.add_child(page)
    images = [_view_image(grid, view) for view in VIEWS]
    images += _slice_images(frame, tiles, kernel_slices or [])
    choices: list[tuple[str, str]] = []
    for place, image in enumerate(images):
        group = folium.FeatureGroup(name=image.name, overlay=False, show=place == 0)
        group.add_child(_overlay(frame, image.indices, image.scale.colours(), 1, _OPACITY))
        if image.point is not None:
            group.add_child(_reference_point(region, image.point))
        page.add_child(group)
        choices.append((image.name, group.get_name()))
    extras = [_add_extra(page, frame, extra) for extra in _extra_masks(grid)]
    _add_outlines(page, region)
    legends = "".join(legend_html(k, image.scale, image.hint) for k, image in enumerate(images))
    keys = _keys(grid, region)
    figure.header.add_child(Element(PAGE_STYLE + WITHOUT_LEAFLET))
    figure.html.add_child(Element(header_html(title)))
    figure.html.add_child(Element(footer_html(legends, keys, notes or [])))
    page.add_child(
        PageScript(
            choices=choices,
            extras=extras,
            attribution=escape_text(attribution),
            readings=_readings(images),
            frame=frame,
            bounds=_corners(frame),
        )
    )
    return str(figure.render())


@dataclass(frozen=True)
class LayerImage:
    """One layer that can be chosen.

    Attributes
    ----------
    name
        Name in the layer control, escaped.
    indices
        Palette indices, shape (height, width).
    scale
        Their colours and legend.
    hint
        One sentence on how to read the values.
    unit
        Unit of the values named at a click.
    point
        The kernel slice whose reference point is marked, or None.
    """

    name: str
    indices: NDArray[np.uint8]
    scale: Scale
    hint: str
    unit: str
    point: KernelSlice | None = None


def _view_image(grid: xr.Dataset, view: str) -> LayerImage:
    quantity, scale = quantity_of(grid.attrs["target"]), view_scale(grid, view)
    side = "above" if quantity.bound == "lower" else "below"
    hint = {
        "level": "Half of new measurements are expected above this, half below.",
        "bound": f"39 of 40 new measurements are expected {side} this.",
        "width": "From lower to upper bound; 1 means the upper is 10 times the lower.",
    }[view]
    indices = scale.indices(grid[view_variable(grid, view)].values)
    unit = f"log10 {quantity.unit}" if view == "width" else quantity.unit
    return LayerImage(escape_text(view_title(grid, view)), indices, scale, hint, unit)


def _slice_images(frame: Frame, tiles: Tiles, slices: list[KernelSlice]) -> list[LayerImage]:
    if not slices:
        return []
    scale = kernel_scale(check_slices(tiles, slices), label="kernel k(x, x*), (log10)²")
    images = []
    for one in slices:
        raster = frame.place(tiles, one.values, np.nan)
        hint = "How strongly the model lets the marked point x* inform each place."
        name = escape_text(f"Kernel: {one.title}")
        images.append(LayerImage(name, scale.indices(raster), scale, hint, "", one))
    return images


def _base_map(frame: Frame) -> folium.Map:
    page = folium.Map(tiles=None, max_zoom=18, zoom_snap=0.25)
    # Only Leaflet itself: each further script is one more thing that fails offline.
    page.default_js = [one for one in page.default_js if one[0] == "leaflet"]
    page.default_css = [one for one in page.default_css if one[0] == "leaflet_css"]
    folium.TileLayer(_BASE_TILES, attr=_BASE_ATTRIBUTION, control=False, max_zoom=20).add_to(page)
    page.fit_bounds(_corners(frame))
    return page


def _corners(frame: Frame) -> list[list[float]]:
    """Return south-west and north-east corners of the outer edges as (latitude, longitude)."""
    west, south, east, north = frame.bounds
    return [[south, west], [north, east]]


def _overlay(
    frame: Frame,
    indices: NDArray[np.uint8],
    colours: NDArray[np.uint8],
    height: int,
    opacity: float,
) -> folium.raster_layers.ImageOverlay:
    png = base64.b64encode(paletted_png(indices, colours)).decode()
    return folium.raster_layers.ImageOverlay(
        f"data:image/png;base64,{png}",
        bounds=_corners(frame),
        mercator_project=False,
        pixelated=False,  # the page's style says so once, not once per image
        control=False,
        opacity=opacity,
        z_index=height,
    )


def _reference_point(region: Region, one: KernelSlice) -> folium.CircleMarker:
    text = f"x* ({one.title}): {one.latitude:.4f}, {one.longitude:.4f}. {one.description}"
    return folium.CircleMarker(
        (one.latitude, float(region.unwrap([one.longitude])[0])),
        radius=7,
        color="black",
        weight=2,
        fill_color="#ffd92f",
        fill_opacity=1,
        tooltip=folium.Tooltip(escape_text(text)),
    )


def _extra_masks(grid: xr.Dataset) -> list[tuple[str, NDArray[np.bool_], tuple[int, ...], bool]]:
    """Return name, mask, colour and whether shown at first, of the masks that mark any tile."""
    far = np.asarray(grid["far"].values == 1)
    measured = np.asarray(grid["tests"].values > 0)
    masks = [
        (f"Farther than {grid.attrs['far_km']:g} km from any measurement", far, _FAR_COLOUR, True),
        ("Measured tiles", measured, _MEASURED_COLOUR, False),
    ]
    return [one for one in masks if one[1].any()]


def _add_extra(
    page: folium.Map,
    frame: Frame,
    extra: tuple[str, NDArray[np.bool_], tuple[int, ...], bool],
) -> tuple[str, str]:
    name, mask, colour, shown = extra
    colours = np.array([[0, 0, 0, 0], colour], np.uint8)
    group = folium.FeatureGroup(name=escape_text(name), show=shown)
    group.add_child(_overlay(frame, mask.astype(np.uint8), colours, 2, 1.0))
    page.add_child(group)
    return escape_text(name), group.get_name()


def _add_outlines(page: folium.Map, region: Region) -> None:
    west, south, east, north = region.bounds
    tolerance = max(1e-4, max(east - west, north - south) / _OUTLINE_STEPS)
    lines = [(region.boundary, "#222222", 1.2)]
    if region.urban_areas is not None:
        lines.insert(0, (region.urban_areas, URBAN_COLOUR, 0.9))
    for geometry, colour, weight in lines:
        rings = _rings(geometry, tolerance)
        if rings:
            style = {"color": colour, "weight": weight, "interactive": False}
            page.add_child(folium.PolyLine(rings, **style))  # type: ignore[no-untyped-call]


def _rings(geometry: MultiPolygon, tolerance: float) -> list[list[list[float]]]:
    """Return all rings, simplified, as lists of (latitude, longitude) to 1e-5 degrees."""
    rings = []
    for part in shapely.get_parts(geometry):
        for ring in (part.exterior, *part.interiors):
            line = LineString(ring.coords).simplify(tolerance)
            points = np.round(np.asarray(line.coords)[:, 1::-1], 5)
            rings.append(points.tolist())
    return rings


def _keys(grid: xr.Dataset, region: Region) -> list[tuple[str, str]]:
    """Return CSS style and text of the keys that hold for all layers."""
    keys = [("border-top:2px solid #222222", "boundary")]
    if region.urban_areas is not None:
        vintage = "" if region.urban_vintage is None else f" ({region.urban_vintage} Census)"
        keys.append((f"border-top:2px solid {URBAN_COLOUR}", f"urban areas{vintage}"))
    if np.any(grid["far"].values == 1):
        label = f"farther than {grid.attrs['far_km']:g} km from any measurement"
        keys.append(("height:10px;background:#e6e6e6;border:1px solid #999", label))
    return keys


def _readings(images: list[LayerImage]) -> list[dict[str, Any]]:
    """Return, for each layer but the kernels, what the page needs to name a clicked colour."""
    return [
        {
            "name": image.name,
            "layer": place,
            "unit": image.unit,
            "colours": (image.scale.colours()[1:, :3] @ np.array([1 << 16, 1 << 8, 1])).tolist(),
            "values": [format_tick(float(f"{value:.2g}")) for value in image.scale.values()],
        }
        for place, image in enumerate(images)
        if image.point is None
    ]
