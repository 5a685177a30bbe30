"""The figure of a comparison: paired differences in two scores, with intervals."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from geogp.geodata.places.stratum_column import marked
from geogp.reports.comparison.comparison import Comparison, SplitComparison
from geogp.reports.report_figures import COLOURS, drawn, short

_SCORES = {"log_score": "log score", "crps": "CRPS"}
_MARKERS = ("^", "s", "o")
_LONGEST = 28
_RUN_INCHES = 0.5
_APART = 0.22


def difference_figure(comparison: Comparison) -> str:
    """Draw each run's differences in log score and CRPS from the reference, by split and stratum.

    A filled point marks a difference beyond chance.
    """
    splits = list(comparison.splits.values())
    others = [one.name for one in comparison.runs[1:]]

    def draw(figure: Figure) -> None:
        # All splits share one scale for each score, so that readers can compare splits.
        panels = figure.subplots(len(splits), 2, sharey=True, sharex="col", squeeze=False)
        for line, split in zip(panels, splits, strict=True):
            for axes, (score, label) in zip(line, _SCORES.items(), strict=True):
                _panel(axes, split, others, score)
                axes.set_title(f"{split.title}: {label}", loc="left", fontsize=9)
        panels[0, 0].set_ylim(len(others) - 0.5, -0.5)
        for axes, label in zip(panels[-1], _SCORES.values(), strict=True):
            axes.set_xlabel(f"difference of {label}")
        shown = list(dict.fromkeys(name for split in splits for name in split.strata))
        colours, markers = marked(shown, *COLOURS), marked(shown, *_MARKERS)
        handles = [
            Line2D([], [], color=colours[name], marker=markers[name], label=name) for name in shown
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(shown), frameon=False)

    height = 0.7 + len(splits) * (0.75 + _RUN_INCHES * len(others))
    return drawn(draw, (8.0, height), 9)


def _panel(axes: Axes, split: SplitComparison, others: list[str], score: str) -> None:
    axes.axvline(0, color="#333333", linewidth=0.8)
    strata = list(split.strata)
    colours, markers = marked(strata, *COLOURS), marked(strata, *_MARKERS)
    shift = dict(
        zip(strata, _APART * (np.arange(len(strata)) - (len(strata) - 1) / 2), strict=True)
    )
    for stratum in strata:
        colour = colours[stratum]
        for place, run in enumerate(others):
            one = split.strata[stratum].differences[run][score]
            if one.value is None:
                continue
            height = place + shift[stratum]
            if one.lower is not None and one.upper is not None:
                axes.hlines(height, one.lower, one.upper, color=colour, linewidth=1.4)
            face = colour if one.marked else "white"
            axes.plot(
                [one.value],
                [height],
                markers[stratum],
                markersize=5,
                color=colour,
                markerfacecolor=face,
            )
    axes.set_yticks(range(len(others)), [short(name, _LONGEST) for name in others])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
