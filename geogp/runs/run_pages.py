"""Shows in the pages of a run what later commands wrote into its folder."""

from collections.abc import Iterable
from pathlib import Path

from geogp.files import write_text
from geogp.records.run_record import RunRecord
from geogp.reports.shown_answers import PAGES, pages_beside
from geogp.runs.file_records import damaged_files, record_files
from geogp.runs.run_folder import read_run_record
from geogp.runs.run_names import RUN_FILE


def write_pages(folder: Path, run: RunRecord, names: Iterable[str]) -> list[str]:
    """Write the pages of a folder that change (see `pages_beside`), and return their names."""
    changed = pages_beside(folder, run, names)
    for name, text in changed.items():
        write_text(folder / name, text)
    return list(changed)


def show_answers(path: Path) -> RunRecord:
    """Show all answers in the pages of a finished run, and return its record.

    A page that was edited does not change. Raises DataError if a picture is damaged, and
    OutputError if a page cannot be written.
    """
    _, run = read_run_record(path)
    lost = damaged_files(path, run)
    intact = [name for name in PAGES if name not in lost]
    return record_files(path / RUN_FILE, run, write_pages(path, run, intact))
