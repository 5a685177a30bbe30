"""Styles for QGIS: a GeoTIFF opens with the style of the same name, in the colours of the map."""

from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import xarray as xr
from matplotlib.colors import to_hex

from geogp.files import write_text
from geogp.maps import scales
from geogp.maps.views import views_of

STOPS = 33
"""Number of colours of a style; QGIS interpolates linearly between them."""

SHARES = "p_", "probability_", "excursion_"
"""How the names of probabilities begin; standard deviations have the same unit."""


def write_styles(grid: xr.Dataset, folder: Path) -> list[Path]:
    """Write a QGIS style (``NAME.qml``) for the GeoTIFF of each variable; return the paths.

    A variable without a value gets no style. Raises OutputError if a file cannot be written.
    """
    paths = []
    for name in map(str, grid.data_vars):
        scale = scale_of(grid, name)
        if scale is not None:
            paths.append(folder / f"{name}.qml")
            write_text(paths[-1], qgis_style(scale))
    return paths


def scale_of(grid: xr.Dataset, name: str) -> scales.Scale | None:
    """Return the scale of a variable's view or kind of values; None if no value is finite."""
    band, unit = grid[name], str(grid[name].attrs.get("units", ""))
    values = np.asarray(band.to_numpy(), np.float64)
    values = np.where(values == band.encoding.get("_FillValue", np.nan), np.nan, values)
    if not np.isfinite(values).any():
        return None
    for view in views_of(grid) if "far" in grid else ():
        if view.variable == name:
            return view.scale(grid)
    own = str(band.attrs["long_name"])
    label = own if unit in {"", "1"} else f"{own}, {unit}"
    if "flag_meanings" in band.attrs:
        names = tuple(str(band.attrs["flag_meanings"]).split())
        make = partial(scales.class_scale, palette=scales.BOUND_PALETTE, names=names)
    elif unit == "%" or name.startswith("change_db"):
        make = partial(scales.change_scale_of(unit))
    elif name.startswith("tests"):
        make = partial(scales.count_scale, palette=scales.TESTS_PALETTE)
    elif name.startswith(SHARES):
        make = partial(scales.share_scale, palette=scales.PROBABILITY_PALETTE)
    elif name.startswith(("lower_", "upper_", "mean_", "level_")) and np.nanmin(values) > 0:
        make = partial(scales.speed_scale, palette=scales.BOUND_PALETTE)
    else:
        make = partial(scales.linear_scale, palette=scales.WIDTH_PALETTE)
    return make(values, label=label)


def qgis_style(scale: scales.Scale) -> str:
    """Return a style of QGIS 3 (QML) that colours the band of a raster with a scale."""
    root = ET.Element("qgis", version="3.22.0", styleCategories="Symbology")
    pipe = ET.SubElement(root, "pipe")
    common = {"band": "1", "opacity": "1", "alphaBand": "-1", "nodataColor": ""}
    if scale.names:
        drawn = ET.SubElement(pipe, "rasterrenderer", common, type="paletted")
        palette = ET.SubElement(drawn, "colorPalette")
        for value, name in zip(scale.ticks, scale.names, strict=True):
            text = {"value": f"{value:g}", "label": name.replace("_", " ")}
            ET.SubElement(palette, "paletteEntry", text, alpha="255", color=_colour(scale, value))
    else:
        ends = {"classificationMin": repr(scale.low), "classificationMax": repr(scale.high)}
        drawn = ET.SubElement(pipe, "rasterrenderer", common | ends, type="singlebandpseudocolor")
        shader = ET.SubElement(ET.SubElement(drawn, "rastershader"), "colorrampshader")
        shader.attrib |= {
            "colorRampType": "INTERPOLATED",
            "classificationMode": "1",
            "clip": "0",
            "minimumValue": repr(scale.low),
            "maximumValue": repr(scale.high),
        }
        for value in scale.values_at(np.linspace(0, 1, STOPS)).tolist():
            text = {"value": repr(value), "label": scale.text(value, 3)}
            ET.SubElement(shader, "item", text, alpha="255", color=_colour(scale, value))
    ET.SubElement(pipe, "brightnesscontrast", brightness="0", contrast="0")
    ET.SubElement(pipe, "huesaturation", saturation="0", grayscaleMode="0")
    ET.SubElement(pipe, "rasterresampler", maxOversampling="2")
    ET.indent(root)
    start = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"
    return start + ET.tostring(root, encoding="unicode") + "\n"


def _colour(scale: scales.Scale, value: float) -> str:
    return to_hex(scale.colour_map(float(scale.fraction(value))))
