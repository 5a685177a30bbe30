"""The figure of the first page: coverage of the 95 % intervals by stratum."""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from geogp.reports.report_figures import STYLE, ReportFigure, source_of
from geogp.reports.split_report import SplitReport
from geogp.reports.strata_words import kind_title, kinds
from geogp.reports.stratum_reports import StratumReport
from geogp.reports.words import percent

_PLAIN, _MARKED = "#0072B2", "#D55E00"
_MOST_ROWS = 8
_LEVEL = 95.0
_ROW_INCHES = 0.19


def coverage_figure(split: SplitReport) -> ReportFigure:
    """Draw the coverage at 95 % of all strata of a split, kinds of many strata in one row each."""
    lines = [line for kind, strata in kinds(split).items() for line in _lines(kind, strata)]
    with mpl.rc_context({**STYLE, "font.size": 9}):
        figure = Figure(figsize=(4.4, 0.9 + _ROW_INCHES * len(lines)), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.axvline(_LEVEL, color="#333333", linewidth=0.8, linestyle=":")
        for place, (_, strata) in enumerate(lines):
            _draw(axes, place, strata)
        axes.set_yticks(range(len(lines)), [name for name, _ in lines])
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.set(xlim=(_left(split), 100.4), xlabel="inside the 95 % interval (%)")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        source = source_of(figure)
    shares = [(one.coverage[-1].observed, one) for one in split.strata]
    low, high = min(shares, key=lambda pair: pair[0]), max(shares, key=lambda pair: pair[0])
    marked = sum(one.coverage[-1].off for one in split.strata)
    return ReportFigure(
        source,
        f"Coverage of the 95 % intervals by stratum, {split.title}. Lowest {percent(low[0])} "
        f"({low[1].name}), highest {percent(high[0])} ({high[1].name}); {marked} marked at 95 %.",
        f"{split.title}: coverage of the 95 % intervals by stratum",
        "A dot is a stratum, the line through it the band that holds for all strata and levels at "
        "once; the dotted line is 95 %. Orange squares: off by more than 3 points and beyond "
        "chance. Hollow: too few rows or blocks to judge. Kinds of many strata share a row.",
    )


def _lines(kind: str, strata: list[StratumReport]) -> list[tuple[str, list[StratumReport]]]:
    if kind == "all":
        return [("all rows", strata)]
    if len(strata) > _MOST_ROWS:
        several = {"county": "counties", "quarter": "quarters"}.get(kind, kind_title(kind))
        return [(f"{len(strata)} {several}", strata)]
    return [(_short(_named(kind, one.name)), [one]) for one in strata]


def _named(kind: str, name: str) -> str:
    if kind == "tests":
        return f"{name} test{'' if name == '1' else 's'}"
    return f"{name} expected" if kind == "expected" else name


def _short(name: str) -> str:
    return name if len(name) <= 26 else f"{name[:25]}…"


def _draw(axes: Axes, place: int, strata: list[StratumReport]) -> None:
    for one in strata:
        coverage = one.coverage[-1]
        colour = _MARKED if coverage.off else _PLAIN
        if coverage.band is not None and len(strata) == 1:
            lower, upper = coverage.band
            axes.hlines(place, 100 * lower, 100 * upper, color=colour, linewidth=1.4, alpha=0.55)
        axes.plot(
            [100 * coverage.observed],
            [place],
            "s" if coverage.off else "o",
            color=colour,
            markerfacecolor=colour if one.judged else "none",
            markersize=4.5,
            alpha=1.0 if len(strata) == 1 or coverage.off else 0.5,
        )


def _left(split: SplitReport) -> float:
    """Return where the axis begins: at most at 85 %, below the lowest dot."""
    lowest = 100 * min(one.coverage[-1].observed for one in split.strata)
    return max(0.0, min(85.0, lowest - 2))
