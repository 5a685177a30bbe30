"""The interactive page: one HTML file with the grid as images, right to the pixel."""

import base64
from dataclasses import dataclass
from typing import Any

import folium
import numpy as np
import xarray as xr
from branca.element import Element, Figure
from numpy.typing import NDArray

from geogp.geodata.region import Region, Tiles
from geogp.maps.frame import Frame
from geogp.maps.layout import URBAN_COLOUR, far_label, simple_rings, urban_label
from geogp.maps.page_parts import (
    OPACITY,
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
from geogp.maps.views import View, kernel_label, veiled, views_of

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
_OUTLINE_STEPS = 4000


def map_page(
    grid: xr.Dataset,
    region: Region,
    tiles: Tiles,
    *,
    title: str,
    kernel_slices: list[KernelSlice] | None = None,
    attribution: str = OOKLA_ATTRIBUTION,
    predicted: str = "new measurements",
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
    predicted
        What is predicted, many of them, for the legends.
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
    images = [_view_image(grid, view, predicted) for view in views_of(grid)]
    label = kernel_label(grid.attrs["target"])
    images += _slice_images(frame, tiles, kernel_slices or [], label)
    choices = [_add_choice(page, frame, region, image, image is images[0]) for image in images]
    extras = [_add_mask(page, frame, mask) for mask in _masks(grid)]
    _add_outlines(page, region)
    legends = "".join(legend_html(k, image.scale, image.hint) for k, image in enumerate(images))
    figure.header.add_child(Element(PAGE_STYLE + WITHOUT_LEAFLET))
    figure.html.add_child(Element(header_html(title)))
    figure.html.add_child(Element(footer_html(legends, _keys(grid, region), notes or [])))
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
    # The template of folium's page names no language, which readers of screens need.
    return str(figure.render()).replace("<html>", '<html lang="en">', 1)


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


def _view_image(grid: xr.Dataset, view: View, predicted: str) -> LayerImage:
    scale = view.scale(grid)
    indices = scale.indices(grid[view.variable].values)
    hint = view.hint.format(predicted=predicted)
    return LayerImage(escape_text(view.title), indices, scale, hint, view.unit)


def _slice_images(
    frame: Frame, tiles: Tiles, slices: list[KernelSlice], label: str
) -> list[LayerImage]:
    if not slices:
        return []
    scale = kernel_scale(check_slices(tiles, slices), label=label)
    images = []
    for one in slices:
        raster = frame.place(tiles, one.values, np.nan)
        hint = "How strongly the model's smooth field lets the marked point x* inform each place."
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


def _add_choice(
    page: folium.Map, frame: Frame, region: Region, image: LayerImage, shown: bool
) -> tuple[str, str]:
    """Add a layer to choose from and return its name and its name in JavaScript."""
    group = folium.FeatureGroup(name=image.name, overlay=False, show=shown)
    group.add_child(_overlay(frame, image.indices, image.scale.colours(), 1, OPACITY))
    if image.point is not None:
        group.add_child(_reference_point(region, image.point))
    page.add_child(group)
    return image.name, group.get_name()


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


@dataclass(frozen=True)
class _Mask:
    """Tiles that can be marked in a colour (RGBA) above any layer."""

    name: str
    where: NDArray[np.bool_]
    colour: tuple[int, int, int, int]
    shown: bool


def _masks(grid: xr.Dataset) -> list[_Mask]:
    """Return the masks that mark any tile."""
    far = far_label(grid)
    masks = [
        _Mask(far[0].upper() + far[1:], veiled(grid), _FAR_COLOUR, shown=True),
        _Mask("Measured tiles", grid["tests"].values > 0, _MEASURED_COLOUR, shown=False),
    ]
    return [mask for mask in masks if mask.where.any()]


def _add_mask(page: folium.Map, frame: Frame, mask: _Mask) -> tuple[str, str]:
    """Add a mask to the page and return its name and its name in JavaScript."""
    colours = np.array([[0, 0, 0, 0], mask.colour], np.uint8)
    group = folium.FeatureGroup(name=escape_text(mask.name), show=mask.shown)
    group.add_child(_overlay(frame, mask.where.astype(np.uint8), colours, 2, 1.0))
    page.add_child(group)
    return escape_text(mask.name), group.get_name()


def _add_outlines(page: folium.Map, region: Region) -> None:
    west, south, east, north = region.bounds
    tolerance = max(1e-4, max(east - west, north - south) / _OUTLINE_STEPS)
    lines = [(region.boundary, "#222222", 1.4)]
    if region.urban_areas is not None:
        lines.insert(0, (region.urban_areas, URBAN_COLOUR, 1.4))
    for geometry, colour, weight in lines:
        # Rings of (latitude, longitude) to 1e-5 degrees.
        rings = [np.round(r[:, ::-1], 5).tolist() for r in simple_rings(geometry, tolerance)]
        if rings:
            style = {"color": colour, "weight": weight, "interactive": False}
            page.add_child(folium.PolyLine(rings, **style))  # type: ignore[no-untyped-call]


def _keys(grid: xr.Dataset, region: Region) -> list[tuple[str, str]]:
    """Return CSS style and text of the keys that hold for all layers."""
    keys = [("border-top:2px solid #222222", "boundary")]
    if region.urban_areas is not None:
        keys.append((f"border-top:2px solid {URBAN_COLOUR}", urban_label(region)))
    if veiled(grid).any():
        keys.append(("height:10px;background:#e6e6e6;border:1px solid #999", far_label(grid)))
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
