"""Comparison of finished runs, written as HTML, Markdown, JSON and LaTeX."""

from collections.abc import Sequence
from pathlib import Path

from geogp.files import output_errors, write_text
from geogp.reports.comparison import compare_pages
from geogp.reports.comparison.comparison import Comparison, compare
from geogp.reports.comparison.comparison_rows import RunContent
from geogp.reports.rendering import report_json
from geogp.runs.open_run import open_run
from geogp.runs.run_folder import check_apart
from geogp.runs.run_names import run_names

_LATEX_FILE = "compare.tex"


def compare_runs(
    runs: Sequence[Path],
    *,
    out: Path = Path("comparison"),
    reference: str | None = None,
    latex: bool = False,
) -> Comparison:
    """Compare finished runs, and write compare.html, compare.md and compare.json.

    The name of a run is the name of its folder, or its path if several folders have this name.
    `reference` is the name or path of a run; the default is the first run. If `latex` is true,
    compare.tex is also written; if false, an earlier compare.tex is removed. Raises the errors of
    `open_run` and `compare`, RequestError if `out` is in a run folder, and OutputError if a file
    cannot be written.
    """
    check_apart(out, runs, "a comparison")
    names = run_names(runs)
    if reference not in (None, *names):
        paths = [str(path) for path in runs]
        reference = names[paths.index(reference)] if reference in paths else reference
    opened = [open_run(run) for run in runs]
    contents = [
        RunContent(name, run.record, run.predictions)
        for name, run in zip(names, opened, strict=True)
    ]
    found = compare(contents, reference=reference)
    pages = {
        "compare.html": compare_pages.comparison_html(found),
        "compare.md": compare_pages.comparison_markdown(found),
        "compare.json": report_json(found),
    }
    if latex:
        pages[_LATEX_FILE] = compare_pages.comparison_latex(found)
    for name, page in pages.items():
        write_text(out / name, page)
    if not latex:  # the file of another comparison
        with output_errors(out / _LATEX_FILE):
            (out / _LATEX_FILE).unlink(missing_ok=True)
    return found
