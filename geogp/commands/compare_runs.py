"""Comparison of finished runs, written as HTML, Markdown, JSON and LaTeX."""

from collections.abc import Sequence
from pathlib import Path

from geogp.answers.run import open_run
from geogp.files import output_errors
from geogp.reports.comparison import compare_pages
from geogp.reports.comparison.comparison import Comparison, compare
from geogp.reports.comparison.comparison_rows import RunContent
from geogp.reports.rendering import report_json
from geogp.runs.output_files import OutputFiles
from geogp.runs.run_names import run_names

_FILES = ("compare.html", "compare.md", "compare.json")
_LATEX_FILE = "compare.tex"


def compare_runs(
    runs: Sequence[Path],
    *,
    out: Path = Path("comparison"),
    reference: str | None = None,
    latex: bool = False,
    force: bool = False,
) -> Comparison:
    """Compare finished runs, and write compare.html, compare.md and compare.json.

    The name of a run is the name of its folder, or its path if several folders have this name.
    `reference` is the name or path of a run; the default is the first run. If `latex` is true,
    compare.tex is also written; if false, the compare.tex of an earlier call is removed. Raises the
    errors of `open_run`, `compare` and `OutputFiles`, and OutputError if a file cannot be written.
    """
    names = (*_FILES, _LATEX_FILE) if latex else _FILES
    output = OutputFiles("compare", [out / name for name in names], runs=runs, force=force)
    called = run_names(runs)
    if reference not in (None, *called):
        paths = [str(path) for path in runs]
        reference = called[paths.index(reference)] if reference in paths else reference
    opened = [open_run(run) for run in runs]
    contents = [
        RunContent(name, run.record, run.predictions)
        for name, run in zip(called, opened, strict=True)
    ]
    comparison = compare(contents, reference=reference)
    makers = (compare_pages.comparison_html, compare_pages.comparison_markdown, report_json)
    for name, make in zip(names, (*makers, compare_pages.comparison_latex), strict=False):
        output.write(out / name, make(comparison).encode())
    if not latex and output.is_own(out / _LATEX_FILE):  # the file of another comparison
        with output_errors(out / _LATEX_FILE):
            (out / _LATEX_FILE).unlink(missing_ok=True)
    return comparison
