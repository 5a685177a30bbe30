"""Figures for papers: nothing is cut off, the same bytes each time, and readable in grey."""

from dataclasses import replace
from functools import cache
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest
from maps_worlds import irregular_region, make_slices, stretched
from PIL import Image

from geogp.errors import DataError
from geogp.evaluation.score_groups import Reliability
from geogp.maps.figures.charts import reliability_panels, width_violins
from geogp.maps.figures.figure_layout import STRATUM_COLOUR
from geogp.maps.figures.figure_style import MARKS, SIGNED_PALETTE, WIDTH
from geogp.maps.figures.panels import cell_panels, component_panels, map_panels, slices_panels
from geogp.maps.frame import Frame, to_mercator
from geogp.maps.scales import SEQUENTIAL_KERNEL_PALETTE, WIDTH_PALETTE, linear_scale
from geogp.reports.words import DEFAULT_ATTRIBUTION

RNG = np.random.default_rng(0)
WIDTHS = {
    name: {"urban": 1 + RNG.random(300), "rural": 2 + RNG.random(100)}
    for name in ("field", "dbk-rbf")
}


def curves_of(*titles, strata=("urban", "rural")):
    level = np.arange(0.05, 1, 0.05)
    bent = level - 0.1 * level * (1 - level)
    return {
        title: dict.fromkeys(strata, Reliability(level, bent, bent - 0.02, bent + 0.02))
        for title in titles
    }


def cells_of(region, **changes):
    west, south = (
        part.ravel() for part in np.meshgrid(np.arange(-66.9, -66.2, 0.05), [18.1, 18.15])
    )
    one = 0.3 + 0.4 * RNG.random(len(west))
    values = {"measurements": one, "errors of the prediction": one + 0.1, "as predicted": one / 2}
    settings = {"degrees": 0.05, "unit": "log10 Mbps"} | changes
    return cell_panels(region, region.tiles(12), west, south, values, **settings)


def slices_of(region):
    tiles = region.tiles(12)
    long = "the tile farthest from any measured tile of all those in the wilderness " * 2
    slices = [replace(one, description=long.strip()) for one in make_slices(tiles)]
    canvas = slices_panels(region, tiles, slices, target="download", title="Title")
    canvas.png(DEFAULT_ATTRIBUTION)
    return canvas


PLAIN = (1.0, 1.0)


@cache
def drawings(shape):
    """Return maps of a region stretched so, each drawn once; None has the charts."""
    if shape is None:
        return charts()
    region = stretched(*shape)
    tiles = region.tiles(12)
    longitude, latitude = tiles.centres
    components = np.stack([np.sin(k * longitude) + np.cos(k * latitude) for k in range(1, 7)], 1)
    found = {
        "slices": slices_of(region),
        "components": component_panels(region, tiles, components, np.full(6, 0.1)),
    }
    return found | ({"cells": cells_of(region)} if shape == PLAIN else {})


def charts():
    titles = "Random split", "Split by blocks", "By county"
    return {
        "violins": width_violins(WIDTHS, unit="log10 Mbps"),
        "reliability": reliability_panels(curves_of(*titles)),
    }


def pixels_of(canvas):
    """Return the pixels of the file, without writing it."""
    canvas.figure.canvas.draw()
    return np.array(canvas.figure.canvas.buffer_rgba())[..., :3]


def test_pixels_are_those_of_the_file():
    canvas = width_violins(WIDTHS, unit="log10 Mbps")
    with Image.open(BytesIO(canvas.png())) as image:
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), pixels_of(canvas))


@pytest.mark.parametrize("shape", [PLAIN, (2.4, 0.8), (0.25, 1.8), None])
def test_texts_are_whole_and_overlap_nothing(shape):
    for name, canvas in drawings(shape).items():
        picture = pixels_of(canvas)
        edges = [picture[:3], picture[-3:], picture[:, :3], picture[:, -3:]]
        assert all(np.all(edge == 255) for edge in edges), name
        assert canvas.width <= WIDTH
        assert canvas.height < 10.5
        figure = canvas.figure
        boxes = [text.get_window_extent() for text in [*figure.texts, *figure.legends]]
        panels = [axes.get_window_extent() for axes in figure.axes]
        for place, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in [*boxes[place + 1 :], *panels]), name
            assert figure.bbox.x0 <= one.x0 < one.x1 <= figure.bbox.x1, name
        for place, one in enumerate(panels):
            assert not any(one.overlaps(other) for other in panels[place + 1 :]), name


def test_files_are_the_same_each_time_and_undated():
    region = irregular_region()
    tiles = region.tiles(12)
    component = np.sin(9 * tiles.centres[0])[:, None]
    first, second = (component_panels(region, tiles, component, np.ones(1)) for _ in range(2))
    assert first.png() == second.png()
    pdf = first.pdf()
    assert pdf == second.pdf()
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
    assert b"/FontFile2" in pdf  # TrueType, no outlines
    assert b"/Type3" not in pdf


@pytest.mark.parametrize("palette", [SIGNED_PALETTE, WIDTH_PALETTE, SEQUENTIAL_KERNEL_PALETTE])
def test_grey_tells_low_from_high(palette):
    shades = mpl.colormaps[palette](np.linspace(0, 1, 64))[:, :3]
    steps = np.diff(shades @ [0.299, 0.587, 0.114])
    assert np.all(steps > -0.004) or np.all(steps < 0.004)
    assert abs(steps.sum()) > 0.55


def test_strata_are_told_apart_without_colour():
    for part in ("dashes", "marker"):
        assert len({getattr(mark, part) for mark in MARKS}) == 3
    assert MARKS[0].hatch != MARKS[1].hatch
    grey = {}
    for place in (0, 1):
        rgb = np.array(mpl.colors.to_rgb(MARKS[place].fill))
        grey[place] = rgb @ [0.299, 0.587, 0.114]
    assert grey[1] - grey[0] > 0.25


def test_cells_have_the_colours_of_their_values_on_one_scale():
    region = irregular_region()
    west, south = np.array([-66.6, -66.5, -66.4]), np.array([18.2, 18.2, 18.2])
    values = {"low": np.array([0.2, 0.2, 0.2]), "high": np.array([0.2, 0.8, 0.8])}
    canvas = cell_panels(
        region, region.tiles(12), west, south, values, degrees=0.05, unit="log10 Mbps"
    )
    maps = [axes for axes in canvas.figure.axes if axes.collections and axes.get_aspect() == 1]
    low, high = (one.collections[-1].get_facecolors() for one in maps)
    np.testing.assert_array_equal(low[0], high[0])
    assert not np.allclose(high[0], high[1])
    np.testing.assert_array_equal(high[1], high[2])
    corners = maps[0].collections[-1].get_paths()[0].vertices[:4]
    mercator = np.array([-66.6, -66.55]) * 20037508.342789244 / 180
    np.testing.assert_allclose(sorted(set(corners[:, 0].round(3))), mercator, atol=0.01)


def test_components_are_drawn_over_their_root_mean_square():
    region = irregular_region()
    tiles = region.tiles(12)
    one = tiles.centres[0] - tiles.centres[0].mean()
    small, large = (
        pixels_of(component_panels(region, tiles, (factor * one)[:, None], np.array([1.0])))
        for factor in (1e-3, 1e3)
    )
    np.testing.assert_array_equal(small, large)


def test_negative_kernels_have_a_palette_for_grey_and_a_line_at_zero():
    region = irregular_region()
    tiles = region.tiles(12)
    slices = [replace(one, values=one.values - 0.1) for one in make_slices(tiles)]
    canvas = slices_panels(region, tiles, slices, target="download")
    images = [image for axes in canvas.figure.axes for image in axes.images]
    assert {image.cmap.name for image in images} == {SIGNED_PALETTE}
    assert sum(len(axes.collections) for axes in canvas.figure.axes[:3]) == 6  # boundary and zero


def test_the_star_stands_on_the_reference_point():
    region = irregular_region()
    one = make_slices(region.tiles(12))[0]
    (star,) = slices_of(region).figure.axes[0].lines
    assert star.get_marker() == "*"
    np.testing.assert_allclose(star.get_xydata()[0], to_mercator(one.longitude, one.latitude))


def test_outlines_of_towns_are_left_out():
    picture = pixels_of(drawings(PLAIN)["slices"])
    red = np.array(mpl.colors.to_rgb(STRATUM_COLOUR)) * 255
    assert not (np.abs(picture - red) < 2).all(axis=2).any()


def test_an_unknown_stratum_is_all():
    canvas = width_violins({"field": {"all": RNG.random(50)}}, unit="log10 Mbps")
    (legend,) = canvas.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["all"]
    reliability_panels(curves_of("Random split", strata=("all",))).figure.canvas.draw()


def test_equal_widths_are_drawn():
    """The intervals of some models are alike everywhere."""
    flat = {"sv-rbf": {"urban": np.full(100, 2.0), "rural": np.full(40, 2.0)}}
    assert len(width_violins(flat, unit="log10 Mbps").png()) > 5000


def test_refusals():
    region = irregular_region()
    tiles = region.tiles(12)
    scale = linear_scale(np.array([0.0, 1.0]), label="x", palette=WIDTH_PALETTE)
    with pytest.raises(DataError, match="at least one panel"):
        map_panels(region, Frame.of_tiles(tiles), [], print, scale=scale, extend="neither")
    with pytest.raises(DataError, match=rf"a value for each of {len(tiles)} tiles, found 3"):
        component_panels(region, tiles, np.zeros((3, 2)), np.ones(2))
    with pytest.raises(DataError, match="for each of 2 cells, found 3"):
        cell_panels(
            region, tiles, np.zeros(2), np.zeros(2), {"a": np.zeros(3)}, degrees=0.05, unit=""
        )
    with pytest.raises(DataError, match="at least one kernel slice"):
        slices_panels(region, tiles, [], target="download")
    with pytest.raises(DataError, match=rf"expected {len(tiles) - 1} kernel values"):
        slices_panels(region, tiles[1:], make_slices(tiles), target="download")
    for nothing in ({}, {"field": {}}, {"field": {"urban": np.array([])}}):
        with pytest.raises(DataError, match="widths of at least one model"):
            width_violins(nothing, unit="")
    for nothing in ({}, {"Random split": {}}):
        with pytest.raises(DataError, match="a curve of at least one split"):
            reliability_panels(nothing)
