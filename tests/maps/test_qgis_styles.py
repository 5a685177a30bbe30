"""Styles for QGIS: parsed, and compared with the colour scales of the map."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_rgb

from geogp.maps.qgis_styles import STOPS, qgis_style, scale_of, write_styles
from geogp.maps.rasters import write_geotiffs
from geogp.maps.scales import change_scale, count_scale, linear_scale, speed_scale
from geogp.maps.views import views_of

SPEEDS = np.geomspace(3, 500, 200)
SCALES = [
    speed_scale(SPEEDS, label="Mbps", palette="viridis"),
    count_scale(SPEEDS, label="tests", palette="Greys"),
    linear_scale(SPEEDS, label="km", palette="magma"),
    change_scale(SPEEDS - 50, label="change"),
]


def items(text):
    root = ET.fromstring(text)
    return (
        root.find("pipe/rasterrenderer"),
        list(root.iter("item")),
        list(root.iter("paletteEntry")),
    )


@pytest.mark.parametrize("scale", SCALES)
def test_each_stop_has_the_colour_of_the_scale_at_its_value(scale):
    renderer, stops, _ = items(qgis_style(scale))
    assert renderer.get("type") == "singlebandpseudocolor"
    values = [float(one.get("value")) for one in stops]
    assert len(values) == STOPS
    assert values[0] == pytest.approx(scale.low, abs=1e-9)
    assert values[-1] == pytest.approx(scale.high)
    assert np.all(np.diff(values) > 0)
    for value, one in zip(values, stops, strict=True):
        expected = scale.colour_map(float(scale.fraction(value)))[:3]
        np.testing.assert_allclose(to_rgb(one.get("color")), expected, atol=0.5 / 255 + 1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_between_stops_the_style_is_near_the_scale(scale):
    """QGIS interpolates linearly in the value; the scale may be logarithmic."""
    _, stops, _ = items(qgis_style(scale))
    values = [float(one.get("value")) for one in stops]
    colours = np.array([to_rgb(one.get("color")) for one in stops])
    asked = scale.values_at(np.linspace(0, 1, 500))
    shown = np.column_stack([np.interp(asked, values, channel) for channel in colours.T])
    expected = scale.colour_map(scale.fraction(asked))[:, :3]
    assert np.abs(shown - expected).max() < 0.03


@pytest.mark.parametrize("scale", SCALES)
def test_values_at_positions_are_the_inverse_of_positions(scale):
    place = np.linspace(0, 1, 21)
    np.testing.assert_allclose(scale.fraction(scale.values_at(place)), place, atol=1e-12)


def test_each_raster_has_its_style(world, tmp_path):
    rasters = {path.stem for path in write_geotiffs(world.grid, tmp_path)}
    paths = write_styles(world.grid, tmp_path)
    assert {path.stem for path in paths} == rasters
    for view in views_of(world.grid):
        text = (tmp_path / f"{view.variable}.qml").read_text("utf-8")
        assert text == qgis_style(view.scale(world.grid))
    for name in ("far", "urban"):
        renderer, _, entries = items((tmp_path / f"{name}.qml").read_text("utf-8"))
        assert renderer.get("type") == "paletted"
        assert [one.get("value") for one in entries] == ["0", "1"]
        assert len({one.get("color") for one in entries}) == 2
    assert scale_of(world.grid, "tests").low == 0


def test_kinds_of_values_have_their_scales_and_no_value_has_none():
    rows = {"change": ("%", -20.0, 30.0), "p_low": ("1", 0.0, 0.04), "sd": ("1", 0.01, 0.05)}
    grid = xr.Dataset(
        {
            name: ("x", np.linspace(low, high, 50), {"long_name": "<a> & b", "units": unit})
            for name, (unit, low, high) in rows.items()
        }
    )
    assert scale_of(grid, "change").shift == 100
    assert (scale_of(grid, "p_low").low, scale_of(grid, "p_low").high) == (0, 1)
    assert 0.05 <= scale_of(grid, "sd").high < 0.1
    assert scale_of(grid.where(grid["p_low"] > 2), "sd") is None
    named = replace(SCALES[0], names=("a_b", "<c>"), ticks=(0.0, 1.0), low=-0.5, high=1.5)
    _, _, entries = items(qgis_style(replace(named, logarithmic=False)))
    assert [one.get("label") for one in entries] == ["a b", "<c>"]
