"""The figures of a report, each one SVG with its text alternative."""

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from geogp.evaluation.score_groups import GroupReport
from geogp.geodata.places.stratum_column import marked
from geogp.reports.split_report import SplitReport
from geogp.reports.words import count, number, percent

COLOURS = ("#0072B2", "#D55E00", "#4d4d4d")
"""Of the first stratum, the second, and all: Okabe and Ito's blue and vermilion, which colour-blind
readers tell apart."""

_DASHES = ("-", "--", "-")
_MARKERS = ("o", "s", "o")
_MOST_POINTS = 2000
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "geogp",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "axes.axisbelow": True,
}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ReportFigure:
    """A figure to put into a page.

    Attributes
    ----------
    source
        A ``data:`` address that holds the SVG.
    alt
        What the figure shows, for those who cannot see it.
    title, caption
        Heading, and how to read the figure.
    """

    source: str
    alt: str
    title: str
    caption: str


def split_figures(split: SplitReport, width: dict[str, Floats], unit: str) -> list[ReportFigure]:
    """Draw reliability, PIT histogram and widths of one split.

    Parameters
    ----------
    split
        Its figures.
    width
        Widths of the 95 % intervals of all rows and those of each stratum.
    unit
        Unit of the widths.
    """
    # Without strata there is one group to draw: all rows.
    shown = [name for name in split.places if split.groups[name].n] or ["all"]
    groups = {name: split.groups[name] for name in shown}
    return [
        reliability_figure(groups),
        pit_figure(groups),
        width_figure({name: width[name] for name in shown}, unit),
    ]


def reliability_figure(groups: dict[str, GroupReport]) -> ReportFigure:
    """Draw observed against nominal coverage with binomial bands."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes()
        axes.plot([0, 100], [0, 100], color="#333333", linewidth=0.8, linestyle=":")
        colours, dashes, markers = _looks(groups)
        for name, group in groups.items():
            curve = group.reliability
            assert curve is not None
            level = 100 * np.asarray(curve.level)
            bounds = 100 * np.asarray([curve.lower, curve.upper])
            axes.fill_between(level, *bounds, color=colours[name], alpha=0.18, linewidth=0)
            axes.plot(
                level,
                100 * np.asarray(curve.observed),
                dashes[name],
                color=colours[name],
                marker=markers[name],
                markersize=3,
                linewidth=1.2,
                label=f"{name} (n {count(group.n)})",
            )
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="stated level (%)", ylabel="observed (%)")
        axes.legend(frameon=False, loc="upper left")
        source = source_of(figure)
    held = "; ".join(
        f"{name}: {percent(group.scores['coverage_95'])} inside the 95 % intervals"
        for name, group in groups.items()
    )
    return ReportFigure(
        source,
        f"Observed against stated coverage. {held}.",
        "Reliability",
        "Share of test rows inside the central interval of each level, with exact binomial 95 % "
        "bands. Below the dotted line intervals are too narrow, above it wider than needed.",
    )


def pit_figure(groups: dict[str, GroupReport]) -> ReportFigure:
    """Draw the histogram of probability integral transforms, relative to a level one."""
    heights = {}
    with mpl.rc_context(STYLE):
        figure, axes = _axes()
        axes.axhline(1, color="#333333", linewidth=0.8, linestyle=":")
        colours, dashes, _ = _looks(groups)
        for name, group in groups.items():
            assert group.pit is not None
            edges = np.linspace(0, 1, len(group.pit) + 1)
            heights[name] = np.asarray(group.pit) / group.n * len(group.pit)
            axes.stairs(
                heights[name],
                edges,
                color=colours[name],
                linewidth=1.6,
                linestyle=dashes[name],
                label=name,
            )
        top = 1.25 * max(1.2, *(float(height.max()) for height in heights.values()))
        axes.set(xlim=(0, 1), ylim=(0, top), xlabel="P(Y ≤ y) of the prediction")
        axes.set_ylabel("share of rows / level share")
        axes.legend(frameon=False, loc="upper left", ncols=len(groups))
        source = source_of(figure)
    spans = "; ".join(
        f"{name}: bins from {number(float(height.min()), 2)} to {number(float(height.max()), 2)}"
        for name, height in heights.items()
    )
    return ReportFigure(
        source,
        f"Histogram of the probability integral transforms; 1 is level. {spans}.",
        "PIT histogram",
        "Level at 1 where predictions are right. A hump in the middle: intervals too wide; "
        "horns at both ends: too narrow; a slope: biased.",
    )


def width_figure(width: dict[str, Floats], unit: str) -> ReportFigure:
    """Draw violins of the widths of the 95 % intervals, with medians and quartiles."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes()
        colours, _, _ = _looks(width)
        for place, (name, values) in enumerate(width.items()):
            _violin(axes, place, values, colours[name])
        axes.set_xticks(range(len(width)), list(width))
        axes.set(xlim=(-0.6, len(width) - 0.4), ylabel=f"width ({unit})")
        axes.set_ylim(bottom=0)
        axes.grid(visible=False, axis="x")
        source = source_of(figure)
    medians = "; ".join(
        f"{name}: median {number(float(np.median(values)))} {unit}"
        for name, values in width.items()
    )
    return ReportFigure(
        source,
        f"Violins of the widths of the 95 % intervals. {medians}.",
        "Widths of the 95 % intervals",
        "Distribution of the widths over test rows; the bar spans the middle half of the rows, "
        "the white dot is the median.",
    )


def _looks(names: Iterable[str]) -> list[dict[str, str]]:
    """Return colour, dashes and marker of each stratum."""
    return [marked(list(names), *look) for look in (COLOURS, _DASHES, _MARKERS)]


def _violin(axes: Axes, place: int, values: Floats, colour: str) -> None:
    # Evenly spaced order statistics: the same shape from few points, and no random draw.
    kept = np.quantile(values, np.linspace(0, 1, min(len(values), _MOST_POINTS)))
    if np.ptp(kept) > 1e-6 * float(kept.mean()):
        height = np.linspace(kept[0], kept[-1], 120)
        density = stats.gaussian_kde(kept)(height)
        half = 0.4 * density / density.max()
        axes.fill_betweenx(
            height, place - half, place + half, facecolor=colour, alpha=0.35, edgecolor=colour
        )
    else:
        axes.hlines(kept[0], place - 0.4, place + 0.4, color=colour, linewidth=2)
    first, median, third = np.quantile(values, [0.25, 0.5, 0.75])
    axes.vlines(place, first, third, color=colour, linewidth=5)
    axes.plot([place], [median], "o", color="white", markeredgecolor=colour, markersize=6, zorder=3)


def _axes() -> tuple[Figure, Axes]:
    # About the width of a telephone's screen, so that nothing shrinks there.
    figure = Figure(figsize=(4.0, 3.4), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def source_of(figure: Figure) -> str:
    """Return a figure as a ``data:`` address that holds its SVG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()
