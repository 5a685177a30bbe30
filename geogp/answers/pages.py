"""The answers in a run folder, in its report and on its interactive page.

`geogp areas`, `change`, `exceedance`, `next` and `verify` write a JSON file about each answer, and
`read_answers` reads these files. The report is rendered again from run.json, the test predictions
and the answers. The page is rendered again from its own data and the answers (`with_answers`).
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from geogp.answers.answer import Answer, AnswerKind, band_of, of_another
from geogp.answers.areas import AREAS
from geogp.answers.change import CHANGE, FAR_SHARE
from geogp.answers.exceedance import EXCEEDANCE
from geogp.answers.next import NEXT
from geogp.answers.page_layers import left_out, page_layers
from geogp.answers.providers import PROVIDERS
from geogp.answers.verify import LATER_SCORES, LATER_THRESHOLDS
from geogp.errors import DataError
from geogp.files import read_json, read_text, write_text
from geogp.maps.page.interactive_page import PageAnswers, with_answers
from geogp.maps.page.page_layers import Layer
from geogp.records.map_settings import MapSettings
from geogp.records.run_record import RunRecord
from geogp.reports.beside import AreaMean, Beside, Changed, RankedAreas, ShownAnswer
from geogp.runs.file_records import damaged_files, record_files
from geogp.runs.finished_run import RunResult
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.pipeline.target_kinds import kind_of
from geogp.runs.pipeline.write import PAGE_FILE, REPORT_FILES
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import PREDICTIONS_FILE, locked_run, read_run_record
from geogp.runs.run_names import RUN_FILE
from geogp.runs.stored_predictions import read_predictions
from geogp.value_scales import scale_of, suffix_of

KINDS = (AREAS, CHANGE, EXCEEDANCE, NEXT, PROVIDERS, LATER_SCORES, LATER_THRESHOLDS)
"""The answers of each command, in the order of the report."""

_MOST_BYTES = 200_000_000

_FAULTS = (DataError, LookupError, ArithmeticError, ValueError, TypeError, AttributeError)
"""Errors of reading the content of another file as an answer."""

_NO_ANSWER = "the JSON file is not an answer that geogp wrote."
_NO_TABLE = "This file is not an answer that geogp wrote, so it has no table here."


@dataclass(frozen=True)
class StoredAnswer:
    """An answer in a run folder as the report shows it; a file that is none has a `fault`."""

    shown: ShownAnswer
    answer: Answer | None
    fault: str = ""


def read_answers(folder: Path) -> list[StoredAnswer]:
    """Return the answers in a run folder; a file that is none has a note in place of a table."""
    return [_read(path, kind) for kind in KINDS for path in sorted(folder.glob(kind.pattern))]


def layers_of(folder: Path, stored: list[StoredAnswer]) -> tuple[list[Layer], list[str]]:
    """Return the layers of the page, and sentences about the answers that it cannot show."""
    layers, notes = page_layers(folder, [each.answer for each in stored if each.answer])
    faults = [left_out(each.shown.mark, each.fault) for each in stored if each.fault]
    return layers, faults + notes


def _content(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; empty if the file is no JSON object."""
    with suppress(DataError):
        content = read_json(path)
        if isinstance(content, dict):
            return content
    return {}


def _read(path: Path, kind: AnswerKind) -> StoredAnswer:
    """Return the answer in a JSON file, with the names of the files beside it."""
    name, content = path.stem, _content(path)
    try:
        # Objects keep the types of JSON.
        table = pd.DataFrame(content.get(kind.key), dtype=object)
        answer = kind.read(name, content, table)
        rows = answer.texts
        notes = [str(note) for note in (*content.get("notes", []), *content.get("warnings", []))]
        first = not of_another(content)
        ranked = _ranked(answer) if kind is AREAS and first else None
        changed = _changed(answer) if kind is CHANGE and first else None
    except _FAULTS as error:
        reason = str(error) if isinstance(error, DataError) else _NO_ANSWER
        shown = ShownAnswer(name, path.name, [_NO_TABLE], [], [], [path.name], "")
        return StoredAnswer(shown, None, reason if kind.drawn else "")
    names = {name, *answer.other_names}
    files = sorted(beside.name for beside in path.parent.iterdir() if beside.stem in names)
    shown = ShownAnswer(
        name,
        answer.title,
        notes,
        [column.label for column in answer.columns],
        rows,
        files,
        next((file for file in files if file.endswith(".png")), ""),
        ranked,
        changed,
    )
    return StoredAnswer(shown, answer)


def _ranked(answer: Answer) -> RankedAreas | None:
    """Return the mean levels of areas near data; None for other means, and without such an area."""
    content = answer.content
    if content["for"] != "level" or content.get("weights"):
        return None
    unit, band = content["unit"], band_of("level_mean", content["unit"])
    whole = [row for row in content["areas"] if None not in (row[name] for name in band)]
    rows = [row for row in whole if (row["far_share"] or 0) <= FAR_SHARE]
    if not rows:
        return None
    scale = scale_of(unit)
    means = []
    for row in rows:
        value, lower, upper = (float(row[name]) for name in band)
        ranks = (int(row["rank_lower"]), int(row["rank_upper"])) if "rank" in row else None
        beside = row.get(f"map_median_{suffix_of(unit)}")
        means.append(AreaMean(str(row["area"]), value, lower, upper, ranks, beside))
    widths = [float(scale.modelled(one.upper) - scale.modelled(one.lower)) for one in means]
    within = float(scale.changes(median(widths) / 2))
    text = f"{within:.{0 if within >= 10 else 1}f} {scale.change_unit}"
    by, far = Path(content["by"]).name, len(whole) - len(rows)
    predicted = str(content.get("map_predicts", ""))
    return RankedAreas(answer.name, by, content["at"], unit, text, far, means, predicted)


def _changed(answer: Answer) -> Changed:
    """Return how many areas rose and fell."""
    content = answer.content
    return Changed(Path(content["by"]).name, content["from"], content["to"], " ".join(answer.after))


def show_answers(path: Path, listener: ProgressListener | None = None) -> RunRecord:
    """Show all answers in the report and on the page of a finished run, and return its record.

    A file that was edited does not change, nor does a page of another version, about which the
    listener gets a warning. Raises DataError if a picture is damaged, and OutputError if a file
    cannot be written.
    """
    _, run = read_run_record(path)
    damaged = damaged_files(path, run)
    reports = () if PREDICTIONS_FILE in damaged else REPORT_FILES
    intact = {name for name in (*reports, PAGE_FILE) if name not in damaged}
    names = {name for name in intact if (path / name).is_file()}
    return _write_pages(path, run, names, listener)


def remake_report(
    path: Path, *, latex: bool = False, listener: ProgressListener | None = None
) -> RunResult:
    """Write the report of a finished run again; with `latex`, also report.tex for a paper.

    The listener is warned of a page of another version. Raises RequestError if the folder is not a
    finished run or is locked, DataError if a file is damaged, and OutputError if the report cannot
    be written.
    """
    with locked_run(path) as run:
        names = {*REPORT_FILES, "report.tex"} if latex else {*REPORT_FILES}
        if PAGE_FILE not in damaged_files(path, run):
            names.add(PAGE_FILE)
        return RunResult(path, _write_pages(path, run, names, listener))


def run_shown_map(
    settings: MapSettings,
    listener: ProgressListener | None = None,
    *,
    call: str | None = None,
    wait: bool = False,
) -> RunResult:
    """Return the result of `run_map`, with the answers that its folder kept in its pages."""

    def show(result: RunResult) -> RunResult:
        if result.already_there or not read_answers(result.path):
            return result
        return RunResult(result.path, show_answers(result.path, listener))

    return run_map(settings, listener, call=call, wait=wait, finish=show)


def _write_pages(
    folder: Path, run: RunRecord, names: set[str], listener: ProgressListener | None = None
) -> RunRecord:
    """Write some of the files of the report and the page again, with all answers in the folder."""
    stored, texts = read_answers(folder), {}
    shown = tuple(each.shown for each in stored)
    if names - {PAGE_FILE}:
        texts = kind_of(run.target).report(
            run,
            read_predictions(folder, run),
            Beside.in_folder(folder, run.target, shown),
            latex="report.tex" in names,
        )
    if PAGE_FILE in names and (folder / PAGE_FILE).is_file():
        layers, notes = layers_of(folder, stored)
        links = [(answer.mark, answer.title) for answer in shown]
        page = read_text(folder / PAGE_FILE, _MOST_BYTES)
        again = with_answers(page, PageAnswers(links, notes, layers))
        if again is not None and again != page:
            texts[PAGE_FILE] = again
        elif again is None and listener is not None:
            listener.warn(
                f"{folder / PAGE_FILE} was written by another version of geogp, so it does not "
                "show this answer; the report does. To see it on the map, make the map again."
            )
    written = names & texts.keys()
    for name in written:
        write_text(folder / name, texts[name])
    return record_files(folder / RUN_FILE, run, written)
