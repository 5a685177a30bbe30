"""The HTML page, the Markdown text, the LaTeX table and the figure of a comparison."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from geogp.maps.figures.figure_style import marks_of
from geogp.reports.comparison.comparison import Comparison, SplitComparison
from geogp.reports.comparison.comparison_rows import score_names
from geogp.reports.rendering import environment, html_page, latex_table
from geogp.reports.report_figures import drawn, short

_LONGEST = 28
_RUN_INCHES = 0.5
_APART = 0.22


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown, without the figure; text from the data is escaped."""
    return environment().get_template("compare.md.j2").render(_context(comparison))


def comparison_html(comparison: Comparison) -> str:
    """Return the comparison as one HTML page that needs no other file and no network."""
    return html_page("compare", {**_context(comparison), "drawing": difference_figure(comparison)})


def comparison_latex(comparison: Comparison) -> str:
    r"""Return a booktabs table of scores and differences, for ``\input`` in a document.

    The table has one line for each split, stratum and run; the lines of the reference have no
    differences. The table needs the package booktabs and lines of about 15 cm. The lines of the
    class article are shorter, so set a larger text width, or use table* in a document with two
    columns.
    """
    return latex_table("compare", {**_context(comparison), "splits": comparison.splits})


def _context(comparison: Comparison) -> dict[str, Any]:
    names = score_names(comparison.target)
    drawn_scores = {score: names.scores[score] for score in names.short[:2]}
    return {"comparison": comparison, "names": names, "drawn": drawn_scores}


def difference_figure(comparison: Comparison) -> str:
    """Draw each run's differences from the reference; a filled point is significant."""
    splits = list(comparison.splits.values())
    titles = _context(comparison)["drawn"]
    others = [one.name for one in comparison.runs[1:]]

    def draw(figure: Figure) -> None:
        # All splits share one scale for each score, so that readers can compare splits.
        panels = figure.subplots(len(splits), 2, sharey=True, sharex="col", squeeze=False)
        for line, split in zip(panels, splits, strict=True):
            for axes, (score, label) in zip(line, titles.items(), strict=True):
                _panel(axes, split, others, score)
                axes.set_title(f"{split.title}: {label}", loc="left", fontsize=9)
        panels[0, 0].set_ylim(len(others) - 0.5, -0.5)
        for axes, label in zip(panels[-1], titles.values(), strict=True):
            axes.set_xlabel(f"difference of {label}")
        shown = list(dict.fromkeys(name for split in splits for name in split.strata))
        handles = [
            Line2D([], [], color=mark.colour, marker=mark.marker, label=name)
            for name, mark in marks_of(shown).items()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(shown), frameon=False)

    height = 0.7 + len(splits) * (0.75 + _RUN_INCHES * len(others))
    return drawn(draw, (8.0, height), 9)


def _panel(axes: Axes, split: SplitComparison, others: list[str], score: str) -> None:
    axes.axvline(0, color="#333333", linewidth=0.8)
    marks = marks_of(split.strata)
    for number, (stratum, mark) in enumerate(marks.items()):
        shift = _APART * (number - (len(marks) - 1) / 2)
        for place, run in enumerate(others):
            one = split.strata[stratum].differences[run][score]
            if one.value is None:
                continue
            height = place + shift
            if one.lower is not None and one.upper is not None:
                axes.hlines(height, one.lower, one.upper, color=mark.colour, linewidth=1.4)
            face = mark.colour if one.marked else "white"
            style = {"color": mark.colour, "markerfacecolor": face, "markersize": 5}
            axes.plot([one.value], [height], mark.marker, **style)  # type: ignore[arg-type]
    axes.set_yticks(range(len(others)), [short(name, _LONGEST) for name in others])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
