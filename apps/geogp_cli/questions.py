"""The commands on a finished run, such as `areas`, `at`, `next`, `verify` and `figures`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console

from geogp.answers import requests
from geogp.runs.progress import ProgressListener
from geogp.runs.run_names import find_run
from geogp_cli import console
from geogp_cli.setting_options import CommandResult, takes

if TYPE_CHECKING:
    from geogp.answers.answer import Answer


@takes(requests.AreasRequest)
def areas(request: requests.AreasRequest, listener: ProgressListener) -> CommandResult:
    """Compute the level, or the mean of tests, of counties, strata or other areas."""
    from geogp.answers.make import make_answer

    return _answered(make_answer(request, listener))


@takes(requests.ChangeRequest)
def change(request: requests.ChangeRequest, listener: ProgressListener) -> CommandResult:
    """Compute the change of the level of areas and tiles between two quarters."""
    from geogp.answers.make import make_answer

    return _answered(make_answer(request, listener))


@takes(requests.AtRequest)
def at(request: requests.AtRequest, listener: ProgressListener) -> CommandResult:
    """Predict at an address, or at the places of a file, from a finished run."""
    request = replace(request, run=find_run(str(request.run)))
    from geogp.answers.at import answer_at

    return _answered(answer_at(request, listener))


@takes(requests.ExceedanceRequest)
def exceedance(request: requests.ExceedanceRequest, listener: ProgressListener) -> CommandResult:
    """Compute the share of the area below each threshold, and regions that meet the threshold."""
    from geogp.answers.make import make_answers

    answers = make_answers(request, listener)
    files = [str(path) for answer in answers for path in answer.files]
    described = {"files": files, "thresholds": [answer.content for answer in answers]}
    return CommandResult(described, _texts(answers))


@takes(requests.NextRequest)
def next_command(request: requests.NextRequest, listener: ProgressListener) -> CommandResult:
    """Choose the tiles whose measurement would reduce the variance of the level most."""
    request = replace(request, run=find_run(str(request.run)))
    from geogp.answers.make import make_answer

    return _answered(make_answer(request, listener))


@takes(requests.VerifyRequest)
def verify_run(request: requests.VerifyRequest, listener: ProgressListener) -> CommandResult:
    """Score a run on quarters that were published after those to which it was fitted."""
    from geogp.answers.make import make_answers

    scores, thresholds = answers = make_answers(request, listener)
    files = [str(path) for answer in answers for path in answer.files]
    described = {**scores.described, **thresholds.described, "files": files}
    return CommandResult(described, _texts(answers))


def _answered(answer: "Answer") -> CommandResult:
    return CommandResult(answer.described, _texts([answer]))


def _texts(answers: "Sequence[Answer]") -> list[Any]:
    """Return what the terminal shows: sentences and a table for each answer, then all files."""
    shown: list[Any] = [*answers[0].before]
    for answer in answers:
        shown += [*_table(answer), *answer.after]
    return [*shown, *(path for answer in answers for path in answer.files)]


_TEXT_WIDTH = 10
"""Least width of a column of texts, which may be folded."""


def _table(answer: "Answer") -> list[Any]:
    """Return a table of the columns that the terminal has room for, and a note about the others.

    Numbers are never folded. Headings are folded if there is no room for whole ones. Minor
    columns are left out first, from the left; then the last ones.
    """
    title, rows, most = answer.title, answer.texts, answer.most
    if most is not None and len(rows) > most:
        title += f"; first {most} of {len(rows):,} rows"
    columns = list(answer.columns)
    cells = {column: [row[k] for row in rows[:most]] for k, column in enumerate(columns)}
    texts = [column for column in columns if column.form == "{}"]
    widths = {column: max(map(cell_len, (column.label, *cells[column]))) for column in columns}
    room = Console().width
    if sum(widths[column] + 3 for column in columns) >= room:
        for column in columns:
            least = max(map(cell_len, (*column.label.split(), *cells[column])))
            widths[column] = min(least, _TEXT_WIDTH) if column in texts else least
    while len(columns) > 1 and sum(widths[column] + 3 for column in columns) >= room:
        columns.remove(next((column for column in columns if column.minor), columns[-1]))
    table = console.table(
        title,
        [column.label for column in columns],
        zip(*(cells[column] for column in columns), strict=True),
        left=[column.label for column in texts],
    )
    for drawn, column in zip(table.columns, columns, strict=True):
        drawn.width = None if column in texts else widths[column]
    left_out = [column.label for column in answer.columns if column not in columns]
    if not left_out:
        return [table]
    tables = [path.name for path in answer.files if path.suffix in {".csv", ".geojson"}]
    place = tables[0] if tables else "--json"
    return [table, f"Not shown, for lack of room: {'; '.join(left_out)}. See {place}."]


@takes(requests.FiguresRequest)
def figures(request: requests.FiguresRequest, listener: ProgressListener) -> CommandResult:
    """Draw figures for papers: kernel, basis, interval widths, spread and reliability."""
    request = replace(request, run=find_run(str(request.run)))
    from geogp.commands.paper_figures import make_figures

    made = make_figures(request, listener)
    files = [str(path) for path in made.files]
    left_out = (f"{name} is left out: {reason}." for name, reason in made.left_out.items())
    described = {"files": files, "captions": made.captions, "left_out": made.left_out}
    return CommandResult(described, (*files, *left_out))
