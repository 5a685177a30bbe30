"""The HTML page, the Markdown text and the LaTeX table of a comparison."""

from typing import Any

from geogp.reports.comparison.compare_figure import difference_figure
from geogp.reports.comparison.comparison import Comparison
from geogp.reports.comparison.comparison_rows import COVERAGES, LEVELS
from geogp.reports.rendering import environment, html_page, latex_table

_SCORE_TITLES = {"log_score": "Log score", "crps": "CRPS", "absolute_error": "Absolute error"}


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
    return {
        "comparison": comparison,
        "score_titles": _SCORE_TITLES,
        "coverages": dict(zip(COVERAGES, LEVELS, strict=True)),
    }
