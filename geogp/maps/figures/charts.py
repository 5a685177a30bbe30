"""Charts for papers: violin plots of interval widths, and reliability diagrams."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.evaluation.score_groups import Reliability
from geogp.maps.figures.figure_layout import Canvas
from geogp.maps.figures.figure_style import SMALL, TEXT, WIDTH, Mark, letter, marks_of, paper_style

Floats = NDArray[np.float64]

_DRAWN = (0.0025, 0.9975)
"""Violins end at these quantiles, because a few extreme rows would stretch the violins."""

_MAX_POINTS = 2000
"""Number of quantiles that give a violin its shape, because all values would take long."""

_SIDE = 0.21
_LEVELS = (5, 25, 75, 95)


def width_violins(widths: dict[str, dict[str, Floats]], *, unit: str) -> Canvas:
    """Draw violins of the widths of the 95 % intervals, as in figure 8 of Zhu, Yuchi and Xie.

    A white line is the median, a thick bar the middle half, a thin bar the middle 90 %. `widths`
    has the widths in `unit` for each model and stratum (``urban``, ``rural``, or ``all``). Raises
    DataError if there are no widths.
    """
    if not widths or not all(
        strata and all(map(len, strata.values())) for strata in widths.values()
    ):
        raise DataError("expected widths of at least one model and stratum, found none.")
    most = max(len(strata) for strata in widths.values())
    with paper_style():
        canvas = Canvas.of_size(min(WIDTH, 1.9 + 1.3 * len(widths)), 3.3)
        axes = canvas.axes(0.7, 0.55, canvas.width - 0.85, 2.35)
        for place, strata in enumerate(widths.values()):
            marks = marks_of(strata)
            for number, (name, values) in enumerate(strata.items()):
                at = place + _SIDE * (2 * number - (len(strata) - 1))
                draw_violin(axes, at, values, marks[name], width=0.36)
        labels = [
            f"{model}\n" + "n " + " and ".join(f"{len(values):,}" for values in strata.values())
            for model, strata in widths.items()
        ]
        axes.set_xticks(range(len(widths)), labels, linespacing=1.35)
        axes.tick_params(axis="x", length=0, labelsize=SMALL)
        axes.set_xlim(-0.5, len(widths) - 0.5)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"width of the 95 % interval, {unit}")
        axes.grid(axis="y")
        shown = max([list(strata) for strata in widths.values()], key=len)
        marks = marks_of(shown)
        keys = [
            Patch(fc=mark.fill, ec=mark.colour, hatch=mark.hatch, label=name)
            for name, mark in marks.items()
        ]
        canvas.legend(keys, 0.7, 2.98, loc="lower left", fontsize=TEXT, ncols=most)
    return canvas


def draw_violin(axes: Axes, at: float, values: Floats, mark: Mark, *, width: float) -> None:
    """Draw a violin: a white line is the median, a thick bar the middle half, a thin bar 90 %."""
    drawn = np.quantile(values, np.linspace(*_DRAWN, min(len(values), _MAX_POINTS)))
    parts: Any = axes.violinplot([drawn], [at], widths=width, showextrema=False, points=200)
    (body,) = parts["bodies"]
    body.set(facecolor=mark.fill, edgecolor=mark.colour, hatch=mark.hatch, alpha=1, linewidth=0.8)
    fifth, first, third, last = np.percentile(values, _LEVELS)
    axes.vlines(at, fifth, last, color="black", lw=0.8, zorder=3)
    axes.vlines(at, first, third, color="black", lw=4, zorder=3)
    axes.hlines(np.median(values), at - 0.045, at + 0.045, color="white", lw=1.6, zorder=4)


def reliability_panels(
    curves: dict[str, dict[str, Reliability]],
) -> Canvas:
    """Draw observed against stated coverage of central intervals, by split and stratum.

    A second diagram shows observed minus stated coverage in percentage points, with bounds.
    `curves` has a curve for each title of a split and stratum (``urban``, ``rural``, or ``all``).
    Raises DataError if there is no curve.
    """
    if not curves or not all(curves.values()):
        raise DataError("expected a curve of at least one split and stratum, found none.")
    count = len(curves)
    step = min(3.0, (WIDTH - 0.2) / count)
    width = step - 0.75
    reach = 1.1 * max(_farthest(curve) for strata in curves.values() for curve in strata.values())
    with paper_style():
        canvas = Canvas.of_size(0.2 + count * step, 2.65 + width)
        for place, (title, strata) in enumerate(curves.items()):
            left = 0.62 + place * step
            upper = canvas.axes(left, 2.25, width, width)
            lower = canvas.axes(left, 0.5, width, 1.45)
            upper.plot([0, 100], [0, 100], color="black", lw=0.6, ls=":")
            lower.axhline(0, color="black", lw=0.6, ls=":")
            marks = marks_of(strata)
            for name, curve in strata.items():
                _curve(upper, lower, (name, marks[name]), curve)
            for axes in (upper, lower):
                axes.set_xlim(0, 100)
                axes.set_xticks([0, 20, 40, 60, 80, 100])
                axes.grid(visible=True)
            upper.set_ylim(0, 100)
            upper.set_yticks([0, 20, 40, 60, 80, 100])
            upper.tick_params(labelbottom=False)
            lower.set_ylim(-max(3.0, reach), max(3.0, reach))
            lower.set_xlabel("stated level, %")
            upper.set_ylabel("observed, %" if place == 0 else "")
            lower.set_ylabel("observed \N{MINUS SIGN} stated, points" if place == 0 else "")
            upper.legend(loc="upper left", handlelength=3.2)
            text = f"{letter(place)} {title}" if count > 1 else title
            canvas.text(left, 2.25 + width + 0.1, text, fontsize=TEXT, fontweight="bold")
    return canvas


def _curve(
    upper: Axes,
    lower: Axes,
    named: tuple[str, Mark],
    curve: Reliability,
) -> None:
    name, mark = named
    level, observed, low, high = _points(curve)
    style = {"color": mark.colour, "ls": mark.dashes, "lw": 1.1, "marker": mark.marker, "ms": 3}
    upper.plot(level, observed, label=name, mfc=mark.fill, mew=0.6, **style)  # type: ignore[arg-type]
    lower.fill_between(
        level,
        low - level,
        high - level,
        fc=mark.fill,
        ec=mark.colour,
        hatch=mark.hatch,
        lw=0,
        alpha=0.5,
    )
    lower.plot(level, observed - level, mfc=mark.fill, mew=0.6, **style)  # type: ignore[arg-type]


def _points(curve: Reliability) -> list[Floats]:
    """Return stated level, observed coverage, and bounds of the coverage, in percent."""
    shares = (curve.level, curve.observed, curve.lower, curve.upper)
    return [100 * np.asarray(share) for share in shares]


def _farthest(curve: Reliability) -> float:
    """Return the largest distance of a curve's bounds from the stated level, in percent."""
    level, _, low, high = _points(curve)
    return float(np.abs([low - level, high - level]).max())
