"""Shared parts of the figures: sizes in inches, axes in degrees, outlines, colour bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import shapely
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import FuncNorm, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from shapely.geometry import MultiPolygon

from geogp.geodata.places.region import Region
from geogp.geodata.tiles.quadkeys import tile_size_m
from geogp.maps.frame import Frame, to_mercator
from geogp.maps.scales import Scale

DPI = 150

STRATUM_COLOUR = "#c1272d"
"""Colour of the outlines of the first stratum, for example urban areas."""

WIDE = 1.15
"""Smallest ratio of width to height for which a map has the full width of its figure."""

LEFT = 0.75
"""Width of the labels of latitudes, in inches."""

_MARGIN = 0.03


@dataclass(frozen=True)
class Canvas:
    """A matplotlib figure in which positions are in inches from the lower left corner."""

    figure: Figure
    width: float
    height: float

    @classmethod
    def of_size(cls, width: float, height: float) -> "Canvas":
        """Return an empty white figure with a size in inches."""
        figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        return cls(figure, width, height)

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Add axes at a position in inches."""
        w, h = self.width, self.height
        return self.figure.add_axes((left / w, bottom / h, width / w, height / h))

    def text(self, left: float, bottom: float, text: str, **style: Any) -> None:
        """Write text at a position in inches; dollar signs do not start a formula."""
        self.figure.text(left / self.width, bottom / self.height, text, parse_math=False, **style)

    def heading(self, bottom: float, title: str, subtitle: str) -> None:
        """Write title and subtitle of a figure at a height in inches."""
        self.text(LEFT, bottom + 0.25, title, fontsize=13, fontweight="bold")
        self.text(LEFT, bottom, subtitle, fontsize=9.5)

    def legend(self, keys: Sequence[Artist], left: float, top: float, **style: Any) -> None:
        """Draw a legend with its upper left corner at a position in inches."""
        usual: dict[str, Any] = {"loc": "upper left", "frameon": False, "fontsize": 8}
        self.figure.legend(
            handles=keys,
            bbox_to_anchor=(left / self.width, top / self.height),
            bbox_transform=self.figure.transFigure,
            borderaxespad=0,
            **usual | style,
        )

    def png(self, attribution: str = "") -> bytes:
        """Return the figure as a PNG file; equal figures give equal bytes.

        `attribution` names the source of the data; it stands below the figure and in the file's
        metadata.
        """
        stream, metadata = BytesIO(), dict[str, str | None](Software=None)
        if attribution:
            self.text(0.08, 0.06, attribution, fontsize=6, color="#555555")
            metadata["Copyright"] = attribution
        self.figure.savefig(stream, format="png", dpi=DPI, metadata=metadata)
        return stream.getvalue()

    def pdf(self) -> bytes:
        """Return the figure as a PDF file with its fonts; equal figures give equal bytes."""
        stream = BytesIO()
        undated = dict.fromkeys(("CreationDate", "Creator", "Producer"))
        with mpl.rc_context({"pdf.fonttype": 42}):  # with TrueType, readers can select text
            self.figure.savefig(stream, format="pdf", dpi=2 * DPI, metadata=undated)
        return stream.getvalue()


class MapSheet(NamedTuple):
    """A figure of one map: its axes, their size, and the figure's width without margins."""

    canvas: Canvas
    axes: Axes
    width: float
    height: float
    outer: float


def map_sheet(
    region: Region, frame: Frame, *, below: float, right: float = 0.3, least: float = 5.0
) -> MapSheet:
    """Return a figure for one map, with outlines and with space for a heading.

    `below` and `right` are margins in inches. `least` is the smallest width of the figure without
    margins, in inches; the map is centred.
    """
    aspect = aspect_of(frame)
    width, height = (8.6, 8.6 / aspect) if aspect >= WIDE else (7.4 * aspect, 7.4)
    outer = max(width, least)
    canvas = Canvas.of_size(LEFT + outer + right, below + height + 0.8)
    axes = canvas.axes(LEFT + (outer - width) / 2, below, width, height)
    draw_base(axes, region, frame)
    return MapSheet(canvas, axes, width, height, outer)


def view_of(frame: Frame) -> tuple[float, float, float, float]:
    """Return west, south, east and north of the drawn area, which is the frame with a margin."""
    west, south, east, north = frame.bounds_m
    pad = _MARGIN * max(east - west, north - south)
    return west - pad, south - pad, east + pad, north + pad


def aspect_of(frame: Frame) -> float:
    """Return the ratio of width to height of the drawn area."""
    west, south, east, north = view_of(frame)
    return (east - west) / (north - south)


def draw_base(axes: Axes, region: Region, frame: Frame) -> None:
    """Draw the boundary, outlines of the first stratum, and axes in degrees with equal scales."""
    west, south, east, north = view_of(frame)
    axes.set(xlim=(west, east), ylim=(south, north), aspect="equal", facecolor="#e4eaef")
    tolerance = 0.25 * tile_size_m(frame.zoom)
    axes.add_collection(_outline(region.boundary, tolerance, color="black", linewidth=0.7))
    if region.strata is not None:
        for colour, width in (("white", 1.3), (STRATUM_COLOUR, 0.6)):
            axes.add_collection(_outline(region.strata.area, tolerance, color=colour, lw=width))
    _degree_ticks(axes, frame)


def draw_raster(axes: Axes, frame: Frame, raster: NDArray[np.floating], scale: Scale) -> None:
    """Draw a raster, one square per tile, in the colours of a scale."""
    draw_image(axes, frame, raster, cmap=scale.colour_map, norm=_norm(scale))


def draw_image(
    axes: Axes, frame: Frame, image: NDArray[np.floating], *, zorder: int = 1, **style: Any
) -> None:
    """Draw a raster of values or of RGBA colours, one square per tile."""
    west, south, east, north = frame.bounds_m
    axes.imshow(
        image,
        extent=(west, east, south, north),
        origin="upper",
        interpolation="nearest",
        zorder=zorder,
        **style,
    )


def draw_bar(axes: Axes, scale: Scale, extend: str, *, vertical: bool) -> None:
    """Draw a colour bar with ticks at round numbers, and a label with the unit."""
    mappable = ScalarMappable(_norm(scale), scale.colour_map)
    assert axes.figure is not None
    bar = axes.figure.colorbar(
        mappable,
        cax=axes,
        orientation="vertical" if vertical else "horizontal",
        extend=extend,
        extendfrac=0.03,
    )
    bar.set_ticks(list(scale.ticks), labels=scale.labels)
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=8)
    bar.set_label(scale.label, fontsize=8)


def extend_of(values: NDArray[np.floating], scale: Scale) -> str:
    """Return at which ends values exceed a scale: "neither", "min", "max" or "both"."""
    below = bool(np.nanmin(values) < scale.low * (1 - 1e-6) - 1e-12)
    above = bool(np.nanmax(values) > scale.high * (1 + 1e-6) + 1e-12)
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max"}.get((below, above), "both")


def degree_label(value: float, positive: str, negative: str) -> str:
    """Return a label such as ``66.5° W``; longitudes beyond 180 degrees are wrapped.

    Examples
    --------
    >>> degree_label(-66.5, "E", "W"), degree_label(-182.0, "E", "W")
    ('66.5° W', '178° E')
    """
    wrapped = (value + 180) % 360 - 180
    if abs(wrapped) in {0, 180}:
        return f"{abs(wrapped):g}°"
    return f"{abs(wrapped):.6g}° {positive if wrapped > 0 else negative}"


def _degree_ticks(axes: Axes, frame: Frame) -> None:
    west, south, east, north = frame.bounds
    assert axes.figure is not None
    inches = axes.figure.get_size_inches()  # type: ignore[union-attr]
    width, height = axes.get_position().size * inches
    across = _round_degrees(west, east, max(2, round(width / 1.3)))
    up = _round_degrees(south, north, max(2, round(height / 0.9)))
    middle_latitude, middle_longitude = (south + north) / 2, (west + east) / 2
    eastings, _ = to_mercator(across, np.full(len(across), middle_latitude))
    _, northings = to_mercator(np.full(len(up), middle_longitude), up)
    axes.set_xticks(eastings, [degree_label(v, "E", "W") for v in across])
    axes.set_yticks(northings, [degree_label(v, "N", "S") for v in up])
    axes.tick_params(labelsize=8, length=3)


def _round_degrees(low: float, high: float, most: int) -> list[float]:
    steps = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [round(float(step), 6) for step in steps if low <= step <= high]


def _outline(geometry: MultiPolygon, tolerance: float, **style: Any) -> LineCollection:
    """Return the outlines of a geometry as lines, simplified to `tolerance` metres."""
    projected = shapely.transform(geometry, lambda points: np.column_stack(to_mercator(*points.T)))
    rings = shapely.simplify(shapely.get_rings(shapely.get_parts(projected)), tolerance)
    lines = list(map(shapely.get_coordinates, rings))
    return LineCollection(lines, zorder=3, joinstyle="round", **style)


def _norm(scale: Scale) -> Normalize:
    if scale.shift:
        shift = scale.shift
        return FuncNorm(
            (lambda values: np.log(values + shift), lambda place: np.exp(place) - shift),
            scale.low,
            scale.high,
            clip=True,
        )
    kind = LogNorm if scale.logarithmic else Normalize
    return kind(scale.low, scale.high, clip=True)
