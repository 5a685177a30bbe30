"""Map figures for papers: panels of one region on one colour scale."""

import textwrap
from collections.abc import Callable, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Region, Tiles
from geogp.maps.figures.figure_layout import (
    Canvas,
    aspect_of,
    draw_bar,
    draw_base,
    draw_raster,
    extend_of,
)
from geogp.maps.figures.figure_style import SIGNED_PALETTE, SMALL, TEXT, WIDTH, letter, paper_style
from geogp.maps.frame import Floats, Frame, to_mercator
from geogp.maps.kernel_slices import KernelSlice, check_slices
from geogp.maps.scales import (
    DIVERGING_KERNEL_PALETTE,
    WIDTH_PALETTE,
    Scale,
    kernel_scale,
    linear_scale,
)
from geogp.maps.views import kernel_label

_LEFT, _RIGHT, _GAP = 0.62, 0.18, 0.16
_FOOT, _TOP = 1.1, 0.3
_TALLEST = 3.6
_WIDE = 2.4
_CHARACTERS = 15.5  # characters of small text per inch
_CLIPPED = (0.5, 99.5)
_EMPTY = "#aab4be"


Paint = Callable[[Axes, int], object]
"""A function that draws the panel with a given index on axes in EPSG:3857 metres."""


def slices_panels(
    region: Region, tiles: Tiles, slices: list[KernelSlice], *, target: str, title: str = ""
) -> Canvas:
    """Draw kernel slices k(x, x*), as in figure 7 of Zhu, Yuchi and Xie; a star marks x*.

    `target` determines the unit; `title` stands above the figure. Raises DataError if there is no
    slice, or the number of values differs from the number of tiles.
    """
    values, frame = check_slices(tiles, slices), Frame.of_tiles(tiles)
    scale = kernel_scale(values, label=f"{kernel_label(target)}; star: x*")
    signed = scale.palette == DIVERGING_KERNEL_PALETTE
    if signed:  # all shades of this palette differ, so 0 need not be in the middle
        ends = np.array([values.min(), values.max()])
        scale = linear_scale(ends, label=scale.label, palette=SIGNED_PALETTE)

    def paint(axes: Axes, number: int) -> None:
        kernel_slice = slices[number]
        _paint_raster(
            axes, frame, frame.place(tiles, kernel_slice.values, np.nan), scale, signed=signed
        )
        place = to_mercator(region.unwrap([kernel_slice.longitude]), [kernel_slice.latitude])
        axes.plot(*place, "*", ms=10, mfc="white", mec="black", mew=0.8, zorder=5)

    titles = [(kernel_slice.title, kernel_slice.description) for kernel_slice in slices]
    extend = extend_of(values, scale)
    return map_panels(region, frame, titles, paint, scale=scale, extend=extend, title=title)


def component_panels(region: Region, tiles: Tiles, values: Floats, share: Floats) -> Canvas:
    """Draw the leading components of a basis over a region, with a line at 0.

    The figure shows each column of `values` (n, count) divided by its root mean square. `share`
    (count,) is the share of each component in the prior variance. Raises DataError if there is not
    one value for each tile.
    """
    if len(values) != len(tiles):
        raise DataError(f"expected a value for each of {len(tiles)} tiles, found {len(values)}.")
    frame = Frame.of_tiles(tiles)
    shown = values / np.sqrt(np.mean(values**2, axis=0))
    reach = float(np.percentile(np.abs(shown), 99.5))
    label = "component / its root mean square; the line is 0"
    scale = linear_scale(np.array([-reach, reach]), label=label, palette=SIGNED_PALETTE)

    def paint(axes: Axes, number: int) -> None:
        raster = frame.place(tiles, shown[:, number], np.nan)
        _paint_raster(axes, frame, raster, scale, signed=True)

    titles = [
        (f"component {number}", f"{100 * fraction:.2g} % of the prior variance")
        for number, fraction in enumerate(share, start=1)
    ]
    return map_panels(region, frame, titles, paint, scale=scale, extend=extend_of(shown, scale))


def cell_panels(
    region: Region,
    tiles: Tiles,
    west: Floats,
    south: Floats,
    values: dict[str, Floats],
    *,
    degrees: float,
    unit: str,
) -> Canvas:
    """Draw values of square cells on a common scale, as in figure 10 of Zhu, Yuchi and Xie.

    The scale runs from the 0.5 to the 99.5 percentile of all values. `west` and `south` (m,) are
    the lower left corners of the cells, and `degrees` is the side of a cell, all in degrees.
    `values` contains, by the title of a panel, m values in `unit`. Raises DataError if there is no
    cell, or a panel does not have one value for each cell.
    """
    if not len(west) or any(len(column) != len(west) for column in values.values()):
        lengths = ", ".join(str(len(column)) for column in values.values())
        raise DataError(f"expected values for each of {len(west)} cells, found {lengths}.")
    frame, whole = Frame.of_tiles(tiles), np.concatenate(list(values.values()))
    ends = np.percentile(whole, _CLIPPED)
    scale = linear_scale(ends, label=f"standard deviation, {unit}", palette=WIDTH_PALETTE)
    corners = [(0, 0), (degrees, 0), (degrees, degrees), (0, degrees)]
    squares = np.stack(
        [
            np.column_stack(to_mercator(region.unwrap(west + across), south + up))
            for across, up in corners
        ],
        axis=1,
    )

    def paint(axes: Axes, number: int) -> None:
        # A plain background would look like high values in a grey print.
        axes.patch.set(hatch="....", edgecolor=_EMPTY)
        shown = scale.fraction(list(values.values())[number])
        colours = mpl.colormaps[scale.palette](shown)
        # Edges of the same colour hide the gaps that PDF viewers show between cells.
        axes.add_collection(
            PolyCollection(list(squares), facecolors=colours, edgecolors=colours, lw=0.2, zorder=1)
        )

    titles = [(title, f"median {np.median(column):.2f}") for title, column in values.items()]
    return map_panels(region, frame, titles, paint, scale=scale, extend=extend_of(whole, scale))


def map_panels(
    region: Region,
    frame: Frame,
    panels: Sequence[tuple[str, str]],
    paint: Paint,
    *,
    scale: Scale,
    extend: str,
    title: str = "",
) -> Canvas:
    """Return a figure with several maps of one region, with letters, titles and one colour bar.

    Each of `panels` is a title and a note in smaller text; `paint` draws the map of a panel.
    `extend` states at which ends values exceed the scale (see `extend_of`). `title` stands above
    all panels. Raises DataError if there is no panel.
    """
    if not panels:
        raise DataError("expected at least one panel to draw, found none.")
    plain = region.with_strata(None)  # outlines of strata would hide small maps
    aspect, across = aspect_of(frame), _columns(aspect_of(frame), len(panels))
    room = (WIDTH - _LEFT - _RIGHT - (across - 1) * _GAP) / across
    width, height = min(room, _TALLEST * aspect), min(room / aspect, _TALLEST)
    notes = [textwrap.fill(note, int(room * _CHARACTERS)) for _, note in panels]
    head = 0.25 + 0.125 * max(note.count("\n") + 1 if note else 0 for note in notes)
    down = -(-len(panels) // across)
    with paper_style():
        canvas = Canvas.of_size(WIDTH, _FOOT + down * (height + head + 0.08) + _TOP * bool(title))
        if title:
            canvas.text(_LEFT, canvas.height - 0.25, title, fontsize=10, fontweight="bold")
        for place, ((name, _), note) in enumerate(zip(panels, notes, strict=True)):
            column, row = place % across, place // across
            x = _LEFT + column * (room + _GAP)
            y = _FOOT + (down - 1 - row) * (height + head + 0.08)
            axes = canvas.axes(x, y, width, height)
            draw_base(axes, plain, frame)
            paint(axes, place)
            axes.tick_params(
                labelleft=column == 0, labelbottom=place + across >= len(panels), labelsize=SMALL
            )
            top = y + height + head
            canvas.text(x, top - 0.17, f"{letter(place)} {name}", fontsize=TEXT, fontweight="bold")
            canvas.text(x, top - 0.21, note, fontsize=SMALL, va="top", linespacing=1.15)
        bar = 0.52 * (WIDTH - _LEFT - _RIGHT)
        draw_bar(canvas.axes(_LEFT, 0.6, bar, 0.12), scale, extend, vertical=False)
    return canvas


def _columns(aspect: float, count: int) -> int:
    if aspect > _WIDE:
        return 1 if count <= 3 else 2
    return min(count, 3)


def _paint_raster(
    axes: Axes, frame: Frame, raster: NDArray[np.floating], scale: Scale, *, signed: bool
) -> None:
    draw_raster(axes, frame, raster, scale)
    low, high = np.nanmin(raster), np.nanmax(raster)
    if signed and low < 0 < high and min(raster.shape) > 1:
        axes.contour(frame.x, frame.y, raster, levels=[0], colors="black", linewidths=0.5, zorder=2)
