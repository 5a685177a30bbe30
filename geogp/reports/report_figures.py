"""The figures of reports as ``data:`` URLs of SVG files; `figures.txt.j2` has their captions.

All figures have the same style. The figures are readable without colour and about as wide as the
screen of a phone.
"""

import base64
import io
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import scipy
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geogp.evaluation.metrics import binomial_interval
from geogp.evaluation.threshold_reliability import ExceedanceReport
from geogp.maps.figures.figure_style import MARKS, marks_of
from geogp.reports.rendering import say
from geogp.reports.split_report import SplitReport
from geogp.reports.stratum_reports import StratumReport
from geogp.reports.words import count

_SMALL = (4.0, 3.4)
_MAX_POINTS = 2000
_MAX_ROWS = 8
_LEVEL = 95.0
_ROW_INCHES = 0.19
_THRESHOLD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#4d4d4d")
_THRESHOLD_MARKERS = ("o", "s", "^", "D", "v")
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "geogp",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "axes.axisbelow": True,
}

Floats = NDArray[np.float64]


def drawn(draw: Callable[[Figure], None], size: tuple[float, float], font: int = 10) -> str:
    """Return a figure as a ``data:`` URL; `draw` draws the figure, and `size` is in inches."""
    with mpl.rc_context(_STYLE | {"font.size": font}), warnings.catch_warnings():
        # A browser may have characters that are not in the fonts here.
        warnings.filterwarnings("ignore", message="Glyph")
        figure, stream = Figure(figsize=size, layout="constrained"), io.BytesIO()
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()


def split_figures(split: SplitReport, width: dict[str, Floats], unit: str) -> dict[str, str]:
    """Return figures of one split by name: coverage, reliability, PIT histogram and widths.

    `width` contains the widths of the 95 % intervals of all rows and of each stratum, in `unit`.
    """
    rows = [row for kind, strata in split.kinds.items() for row in _rows(kind, strata)]
    return {
        "coverage": drawn(
            lambda figure: _coverage(figure.add_subplot(), rows),
            (4.4, 0.9 + _ROW_INCHES * len(rows)),
            9,
        ),
        "reliability": drawn(lambda figure: _reliability(figure.add_subplot(), split), _SMALL),
        "pit": drawn(lambda figure: _pit(figure.add_subplot(), split), _SMALL),
        "widths": drawn(
            lambda figure: _widths(
                figure.add_subplot(), {name: width[name] for name in split.shown}, unit
            ),
            _SMALL,
        ),
    }


def thresholds_figure(reports: list[ExceedanceReport], group: str = "all") -> str:
    """Draw observed shares of a group of rows against stated probabilities, a curve per event."""

    def draw(figure: Figure) -> None:
        axes = _diagonal(figure.add_subplot())
        for place, report in enumerate(one for one in reports if one.group == group):
            bins = [(one.stated, one.observed, one.lower, one.upper) for one in report.bins]
            stated, observed, lower, upper = 100 * np.array(bins).T
            axes.errorbar(
                stated,
                observed,
                (np.maximum(observed - lower, 0), np.maximum(upper - observed, 0)),
                color=_THRESHOLD_COLOURS[place % len(_THRESHOLD_COLOURS)],
                marker=_THRESHOLD_MARKERS[place % len(_THRESHOLD_MARKERS)],
                markersize=3.5,
                linewidth=1.2,
                elinewidth=0.8,
                label=report.meets,
                clip_on=False,
            )
        axes.set(xlabel="stated probability (%)", ylabel="observed (%)")
        axes.legend(frameon=False, loc="upper left")

    return drawn(draw, _SMALL)


def areas_figure(checks: dict[str, dict[str, Any]]) -> str:
    """Draw shares of means over areas inside their 95 % intervals, by title of the split.

    Filled dots have intervals of the joint distribution, hollow dots those for independent errors.
    """
    laws = (
        ("coverage_95", "joint", MARKS[0]),
        ("coverage_95_independent", "independent", MARKS[1]),
    )
    rows = [(title, check, *law) for title, check in checks.items() for law in laws]

    def draw(figure: Figure) -> None:
        axes, lowest = figure.add_subplot(), _LEVEL
        axes.axvline(_LEVEL, color="#333333", linewidth=0.8, linestyle=":")
        for place, (_, check, key, _, mark) in enumerate(rows):
            share, n = check[key], check["areas"]
            low, high = (100 * one for one in binomial_interval(round(share * n), n))
            face = mark.colour if mark is MARKS[0] else "white"
            axes.hlines(place, low, high, color=mark.colour, linewidth=1.4)
            axes.plot([100 * share], [place], mark.marker, c=mark.colour, markerfacecolor=face)
            lowest = min(lowest, low)
        axes.set_yticks(range(len(rows)), [f"{title}, {words}" for title, _, _, words, _ in rows])
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(max(0.0, lowest - 2), 100.4))
        axes.set_xlabel("means over areas inside the 95 % interval (%)")
        axes.grid(visible=False, axis="y")

    return drawn(draw, (6.0, 0.8 + 0.3 * len(rows)), 9)


def short(name: str, most: int) -> str:
    """Return a name, cut to at most `most` characters."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _diagonal(axes: Axes) -> Axes:
    axes.plot([0, 100], [0, 100], color="#333333", linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 100), ylim=(0, 100))
    return axes


def _rows(kind: str, strata: list[StratumReport]) -> list[tuple[str, list[StratumReport]]]:
    """Return a row for each stratum of a kind, or one row for all strata if there are many."""
    if kind == "all":
        return [("all rows", strata)]
    if len(strata) > _MAX_ROWS:
        many = {"county": "counties", "quarter": "quarters"}.get(kind, say("report", "kind", kind))
        return [(f"{len(strata)} {many}", strata)]
    ends = {"tests": " tests", "devices": " devices", "expected": " expected"}
    ends["tests_per_device"] = " per device"
    end = ends.get(kind, "")
    singular = {"1 tests": "1 test", "1 devices": "1 device"}
    names = [one.name + end for one in strata]
    return [
        (short(singular.get(name, name), 26), [one])
        for name, one in zip(names, strata, strict=True)
    ]


def _coverage(axes: Axes, rows: list[tuple[str, list[StratumReport]]]) -> None:
    axes.axvline(_LEVEL, color="#333333", linewidth=0.8, linestyle=":")
    for place, (_, strata) in enumerate(rows):
        for one in strata:
            _dot(axes, place, one, alone=len(strata) == 1)
    lowest = 100 * min(one.coverage[-1].observed for _, strata in rows for one in strata)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    # The axis starts at 85 % or lower, below the lowest dot.
    axes.set(xlim=(max(0.0, min(85.0, lowest - 2)), 100.4), xlabel="inside the 95 % interval (%)")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _dot(axes: Axes, place: int, one: StratumReport, *, alone: bool) -> None:
    coverage = one.coverage[-1]
    mark = MARKS[coverage.off]
    if coverage.band is not None and alone:
        lower, upper = coverage.band
        axes.hlines(place, 100 * lower, 100 * upper, color=mark.colour, linewidth=1.4, alpha=0.55)
    axes.plot(
        [100 * coverage.observed],
        [place],
        mark.marker,
        color=mark.colour,
        markerfacecolor=mark.colour if one.judged else "none",
        markersize=4.5,
        alpha=1.0 if alone or coverage.off else 0.5,
    )


def _reliability(axes: Axes, split: SplitReport) -> None:
    """Draw observed against nominal coverage with binomial bands."""
    _diagonal(axes)
    for name, mark in marks_of(split.shown).items():
        group = split.groups[name]
        curve = group.reliability
        assert curve is not None
        level = 100 * np.asarray(curve.level)
        bounds = 100 * np.asarray([curve.lower, curve.upper])
        axes.fill_between(level, *bounds, color=mark.colour, alpha=0.18, linewidth=0)
        axes.plot(
            level,
            100 * np.asarray(curve.observed),
            mark.dashes,
            color=mark.colour,
            marker=mark.marker,
            markersize=3,
            linewidth=1.2,
            label=f"{name} (n {count(group.n)})",
        )
    axes.set(xlabel="stated level (%)", ylabel="observed (%)")
    axes.legend(frameon=False, loc="upper left")


def _pit(axes: Axes, split: SplitReport) -> None:
    """Draw the histogram of probability integral transforms; a flat histogram has height 1."""
    axes.axhline(1, color="#333333", linewidth=0.8, linestyle=":")
    highest = 1.2
    for name, mark in marks_of(split.shown).items():
        group = split.groups[name]
        assert group.pit is not None
        heights = np.asarray(group.pit) / group.n * len(group.pit)
        highest = max(highest, float(heights.max()))
        axes.stairs(
            heights,
            np.linspace(0, 1, len(heights) + 1),
            color=mark.colour,
            linewidth=1.6,
            linestyle=mark.dashes,
            label=name,
        )
    axes.set(xlim=(0, 1), ylim=(0, 1.25 * highest), xlabel="P(Y ≤ y) of the prediction")
    axes.set_ylabel("share of rows / expected share")
    axes.legend(frameon=False, loc="upper left", ncols=len(split.shown))


def _widths(axes: Axes, width: dict[str, Floats], unit: str) -> None:
    """Draw violins of the widths of the 95 % intervals, with medians and quartiles."""
    marks = marks_of(width)
    for place, (name, values) in enumerate(width.items()):
        _violin(axes, place, values, marks[name].colour)
    axes.set_xticks(range(len(width)), list(width))
    axes.set(xlim=(-0.6, len(width) - 0.4), ylabel=f"width ({unit})")
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")


def _violin(axes: Axes, place: int, values: Floats, colour: str) -> None:
    # Evenly spaced quantiles give the same shape as all values, with fewer points and no random
    # draw.
    kept = np.quantile(values, np.linspace(0, 1, min(len(values), _MAX_POINTS)))
    if np.ptp(kept) > 1e-6 * float(kept.mean()):
        height = np.linspace(kept[0], kept[-1], 120)
        density = scipy.stats.gaussian_kde(kept)(height)
        half = 0.4 * density / density.max()
        axes.fill_betweenx(
            height, place - half, place + half, facecolor=colour, alpha=0.35, edgecolor=colour
        )
    else:
        axes.hlines(kept[0], place - 0.4, place + 0.4, color=colour, linewidth=2)
    first, median, third = np.quantile(values, [0.25, 0.5, 0.75])
    axes.vlines(place, first, third, color=colour, linewidth=5)
    axes.plot([place], [median], "o", color="white", markeredgecolor=colour, markersize=6, zorder=3)
