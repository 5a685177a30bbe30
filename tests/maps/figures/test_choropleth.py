"""The figure of areas: each area has the colour of its own value."""

import io

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image
from shapely.geometry import box

from geogp.errors import DataError
from geogp.geodata.places.region import Region
from geogp.maps.figures.choropleth import Panel, choropleth
from geogp.maps.figures.figure_layout import Canvas
from geogp.maps.scales import SPEED_PALETTE, WIDTH_PALETTE, linear_scale, speed_scale

REGION = Region.from_geometry("XX", "Testland", box(-66.3, 18.0, -66.0, 18.2))
AREAS = [box(-66.3 + 0.1 * k, 18.0, -66.2 + 0.1 * k, 18.2) for k in range(3)]  # west to east
VALUES, WIDTHS = np.array([2.0, 20.0, 200.0]), np.array([0.9, 0.1, 0.5])


WORDS = {"title": "Speeds", "subtitle": "Testland"}


def panels(values=VALUES, widths=WIDTHS):
    """Return panels as of `geogp areas`."""
    return (
        Panel(values, speed_scale(values, label="Mbps", palette=SPEED_PALETTE), "mean"),
        Panel(widths, linear_scale(widths, label="width", palette=WIDTH_PALETTE), "uncertainty"),
    )


def draw(values=VALUES, widths=WIDTHS, **more):
    picture = choropleth(REGION, REGION.tiles(12), AREAS, panels(values, widths), **WORDS, **more)
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def fractions(image, palette):
    """Return the places on a palette of the areas across the middle of the picture, from west."""
    table = mpl.colormaps[palette](np.arange(256), bytes=True)[:, :3].astype(int)
    row = image[image.shape[0] // 2]
    ends = np.flatnonzero((np.diff(row, axis=0) != 0).any(1)) + 1
    areas = [part[0] for part in np.split(row, ends) if len(part) >= 100]
    away = [np.abs(table - colour).sum(1) for colour in areas]
    return [one.argmin() / 255 for one in away if one.min() <= 6]


def test_every_area_has_the_colour_of_its_value_and_of_its_width():
    image = draw()
    assert fractions(image, SPEED_PALETTE) == pytest.approx([0.0, 0.5, 1.0], abs=0.01)  # log
    assert fractions(image, WIDTH_PALETTE) == pytest.approx(WIDTHS, abs=0.01)  # from 0 to 1


def test_the_degrees_alone_stand_beside_the_axes(monkeypatch):
    drawn = []
    monkeypatch.setattr(Canvas, "png", lambda self, _: drawn.append(self.figure) or b"")
    choropleth(REGION, REGION.tiles(12), AREAS, panels(), **WORDS)
    mean, _, sure, _ = drawn[0].axes
    assert {axes.get_xlabel() + axes.get_ylabel() for axes in (mean, sure)} == {""}


def test_values_that_do_not_fit_the_areas_are_refused():
    with pytest.raises(DataError, match="found 3 areas, and 2 and 3 values"):
        draw(values=VALUES[:2])


def test_marked_areas_have_a_black_outline():
    black = [(draw(marked=np.array(marked)) == 0).all(2).sum() for marked in ([0] * 3, [0, 1, 0])]
    plain = (draw() == 0).all(2).sum()
    assert black[0] == plain
    assert black[1] > plain + 500
