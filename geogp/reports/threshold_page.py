"""How a report shows the reliability of probabilities: a figure, a finding, two partial pages."""

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from geogp.evaluation.threshold_reliability import (
    LEAST_EFFECTIVE,
    REFERENCE,
    Difference,
    ExceedanceReport,
)
from geogp.reports.report_figures import STYLE, ReportFigure, source_of
from geogp.reports.words import count, percent, points

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#4d4d4d")
_MARKERS = ("o", "s", "^", "D", "v")


def exceedance_figure(reports: list[ExceedanceReport]) -> ReportFigure:
    """Draw observed shares against stated probabilities, all rows, a curve for each threshold.

    Parameters
    ----------
    reports
        Of one split, one or more; those of strata are left out.
    """
    shown = [report for report in reports if report.group == "all"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.0, 3.4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.plot([0, 100], [0, 100], color="#333333", linewidth=0.8, linestyle=":")
        for place, report in enumerate(shown):
            _draw(axes, place, report)
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="stated probability (%)")
        axes.set_ylabel("observed (%)")
        axes.legend(frameon=False, loc="upper left")
        source = source_of(figure)
    held = "; ".join(
        f"{one.meets}: stated {percent(one.stated)}, observed {percent(one.observed)}"
        for one in shown
    )
    return ReportFigure(
        source,
        f"Observed share against stated probability of meeting a threshold. {held}.",
        "Probabilities of thresholds",
        "Test rows in bins of equally many, by the stated probability that they meet the "
        "threshold; the bars are exact binomial 95 % intervals of the observed share. On the "
        "dotted line probabilities are right.",
    )


def _draw(axes: Axes, place: int, report: ExceedanceReport) -> None:
    colour = _COLOURS[place % len(_COLOURS)]
    stated = 100 * np.array([one.stated for one in report.bins])
    observed = 100 * np.array([one.observed for one in report.bins])
    low = observed - 100 * np.array([one.lower for one in report.bins])
    high = 100 * np.array([one.upper for one in report.bins]) - observed
    axes.errorbar(
        stated,
        observed,
        (np.maximum(low, 0), np.maximum(high, 0)),
        color=colour,
        marker=_MARKERS[place % len(_MARKERS)],
        markersize=3.5,
        linewidth=1.2,
        elinewidth=0.8,
        label=report.meets,
        clip_on=False,
    )


def exceedance_finding(reports: list[ExceedanceReport]) -> str:
    """Say in a sentence or two whether the probabilities of a split are right."""
    wrong = [one for one in reports if one.difference.off]
    means = [one.difference for one in reports if one.difference.judged]
    parts = [part.difference for one in reports for part in one.bins]
    bins = [one for one in parts if one.judged]
    missed = sum(one.off for one in bins)
    unjudged = len(reports) + len(parts) - len(means) - len(bins)
    left = (
        f" {unjudged} of {len(reports) + len(parts)} means and bins lie in fewer than "
        f"{LEAST_EFFECTIVE} effective blocks and are not judged."
        if unjudged
        else ""
    )
    if not means:
        first = "Mean probabilities are not judged: their rows lie in too few effective blocks."
    elif wrong:
        worst = max(wrong, key=lambda one: abs(one.difference.value))
        first = (
            f"Off beyond chance: {len(wrong)} of {len(means)} mean probabilities, most "
            f"{worst.meets} ({worst.group}): stated {percent(worst.stated)}, observed "
            f"{percent(worst.observed)} of {count(worst.n)} rows."
        )
    else:
        first = "Mean probabilities are right to within 3 points or chance for every threshold."
    second = f" Of {len(bins)} bins of alike probabilities {missed or 'none'} are off."
    return f"{first}{second if bins else ''}{left}"


def difference_band(difference: Difference) -> str:
    """Return the band of a difference in percentage points."""
    if difference.lower is None or difference.upper is None:
        return "too few blocks to judge"
    return f"{points(difference.lower)} to {points(difference.upper)}"


CONTEXT = {
    "exceedance_finding": exceedance_finding,
    "difference_band": difference_band,
    "exceedance_reference": REFERENCE,
}
"""What the partial templates ``exceedance.html.j2`` and ``exceedance.md.j2`` need beside data."""
