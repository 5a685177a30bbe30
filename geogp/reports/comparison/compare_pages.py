"""The files of a comparison: HTML, Markdown and a table for LaTeX."""

from typing import Any

from geogp.evaluation.paired import Estimate
from geogp.reports.comparison.compare_figure import difference_figure
from geogp.reports.comparison.comparison import Comparison, SplitComparison
from geogp.reports.comparison.comparison_rows import COVERAGES, LEVELS, SCORES
from geogp.reports.latex import escape
from geogp.reports.rendering import environment, html_page
from geogp.reports.words import count

_SCORE_TITLES = {"log_score": "Log score", "crps": "CRPS", "absolute_error": "Absolute error"}
_LATEX_MISSING = "--"


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown, without the figure; text from outside is escaped."""
    return environment().get_template("compare.md.j2").render(_context(comparison))


def comparison_html(comparison: Comparison) -> str:
    """Return the comparison as one HTML page that needs no other file and no network."""
    return html_page("compare", {**_context(comparison), "drawing": difference_figure(comparison)})


def comparison_latex(comparison: Comparison) -> str:
    """Return a booktabs table of scores and their differences, for a document to input.

    A run has one line in each stratum of each split, the reference without differences. Needs the
    package booktabs, and a line of some 15 cm: wider margins than those of the class article, or
    table* in two columns.
    """
    body = [line for split in comparison.splits.values() for line in _latex_split(split)]
    scores = " & ".join(rf"\multicolumn{{2}}{{c}}{{{title}}}" for title in _SCORE_TITLES.values())
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}, and lines of 15 cm: wide margins, or table*",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_caption(comparison)}}}",
            r"\label{tab:geogp-comparison}",
            r"\footnotesize\setlength{\tabcolsep}{3pt}",
            r"\begin{tabular}{llrlrlrlrr}",
            r"\toprule",
            rf"& & {scores} & & \\",
            r"\cmidrule(lr){3-4}\cmidrule(lr){5-6}\cmidrule(lr){7-8}",
            rf"Stratum & Run{r' & mean & difference' * 3} & in 95\,\% & width \\",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _context(comparison: Comparison) -> dict[str, Any]:
    return {
        "comparison": comparison,
        "score_titles": _SCORE_TITLES,
        "coverages": dict(zip(COVERAGES, LEVELS, strict=True)),
    }


def _caption(comparison: Comparison) -> str:
    service = f"{comparison.service} " if comparison.service else ""
    unit = escape(comparison.unit).replace("log10", r"$\log_{10}$")
    return (
        f"{escape(comparison.region)}: {escape(service + comparison.target)}. "
        f"Differences from {escape(comparison.reference)} on the same test rows, standard "
        "errors (in parentheses) by bootstrap over blocks of 0.1 degrees; below 0 is better. "
        "Stars: beyond chance, by Holm's procedure over all differences of scores in a split. "
        rf"CRPS, absolute error of the median and mean width of the 95\,\% intervals in {unit}."
    )


def _latex_split(split: SplitComparison) -> list[str]:
    lines = [
        r"\midrule",
        rf"\multicolumn{{10}}{{l}}{{\emph{{{escape(split.title)}}}}} \\",
    ]
    for name, stratum in split.strata.items():
        label = f"{escape(name)} ({escape(count(stratum.n))})"
        for run, figures in stratum.figures.items():
            differences = stratum.differences.get(run, {})
            cells = [label, escape(run)]
            for score in SCORES:
                cells += [_number(getattr(figures, score)), _difference(differences.get(score))]
            share = figures.coverage_95
            cells += [_number(None if share is None else 100 * share, 1), _number(figures.width_95)]
            lines.append(" & ".join(cells) + r" \\")
            label = ""
    return lines


def _difference(one: Estimate | None) -> str:
    if one is None or one.value is None:
        return _LATEX_MISSING
    star = "^{*}" if one.marked else ""
    error = "" if one.error is None else f" ({one.error:.3f})"
    return f"${round(one.value, 3) + 0.0:+.3f}{star}${error}"


def _number(value: float | None, digits: int = 3) -> str:
    return _LATEX_MISSING if value is None else f"${round(value, digits) + 0.0:.{digits}f}$"
