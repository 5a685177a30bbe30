"""The run folder, and functions that start, continue, complete and read a run."""

import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from geogp.errors import DataError, OtherRunError, OutputError, RequestError, named
from geogp.files import check_folder, output_errors, plain_names, read_json, remove, write_text
from geogp.records.checked_types import checked
from geogp.records.record_reading import read_record, run_text
from geogp.records.run_record import RunIdentity, RunNote, RunRecord
from geogp.records.run_settings import upgraded
from geogp.runs.file_records import records_of
from geogp.runs.locks import LOCK_FILES, is_vacant, lock_folder
from geogp.runs.run_identity import IDENTITY_KEYS, differences, identity_in
from geogp.runs.run_names import RUN_FILE, near_runs

PREDICTIONS_FILE = "test_predictions.parquet"
GRID_FILE = "grid.nc"
MODEL_FILE = "model.safetensors"
LEVEL_FILE = "level_{}.safetensors"

LATER_FILES = (
    "report.tex",
    "tiles.gpkg",
    "areas_*",
    "change_*",
    "probability_rose_*",
    "exceedance_*",
    "excursion_*",
    "next_tiles.*",
    "next_tiles_*.*",
    "providers_*",
    "verify_*",
    LEVEL_FILE.format("*"),
    "figures",
    "figures-*",
)
"""Files that other commands add to a finished run; after a new map, they are out of date."""

_HALF_WRITTEN = re.compile(r"\.(.+)\.[a-z0-9_]{8}")
"""Pattern of the names of temporary files, which a killed process leaves behind."""

DELETE, FRESH = "Delete it", "Start over with --fresh"


@dataclass(frozen=True)
class RunFolder:
    """A folder in which a run is made.

    While a run is unfinished, its checkpoints and staged files (finished files that wait for the
    others) are in a hidden subfolder. At the end, all files move into place, ``run.json`` last.
    Lock the folder (`lock_folder`) before calling a method that writes; `check` writes nothing.

    The process may be stopped at any point. Two files in the hidden folder mark the progress.
    ``files/run.json`` means that all files are staged and only need to be moved. ``identity.json``
    describes the run of the checkpoints. When the hidden folder is removed, these two files are
    removed first; without these two files, the rest is ignored.
    """

    path: Path

    @property
    def unfinished(self) -> Path:
        """Folder of the checkpoints and staged files of an unfinished run."""
        return self.path / ".unfinished"

    def check(self) -> None:
        """Raise an error if the path cannot become a run folder, or contains other files.

        Raises RequestError if the path or a parent is a file, if the folder has files but no run,
        or if it is in the folder of another run. Raises DataError if run.json is damaged, and
        OutputError if the folder is unreadable.
        """
        check_folder(self.path)
        other = run_folder_of(Path(os.path.realpath(self.path)).parent)
        if other is not None:
            raise RequestError(
                f"{self.path} is in the run folder {other}, but a run needs a folder of its own. "
                "Choose another folder with --out."
            )
        with output_errors(self.path):
            if is_vacant(self.path) or self.unfinished.is_dir():
                return
        if not set(IDENTITY_KEYS) <= set(self._run_json()):
            names = sorted({path.name for path in self.path.iterdir()} - LOCK_FILES)
            raise RequestError(
                f"{self.path} contains files that are not part of a run ({named(names, 3)}); "
                "choose another folder with --out."
            )

    def check_inputs(self, inputs: Iterable[Path]) -> None:
        """Raise RequestError if an input of the run is in its folder, where files are replaced."""
        for path in inputs:
            if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.path)):
                raise RequestError(
                    f"expected the inputs of a run outside its folder, found {path} in "
                    f"{self.path}: the run replaces the files there. Copy this input to another "
                    "folder, or choose another folder with --out."
                )

    def prepare(self, *, fresh: bool = False) -> None:
        """Complete or remove the files that a stopped process left behind.

        Staged files are moved into place if they are complete. Incomplete files, and checkpoints
        without `identity.json`, are removed. With `fresh`, an unfinished run is also removed, and a
        damaged list of old files is ignored. Raises DataError if a file that describes the
        remaining work is damaged, and OutputError if the folder cannot be written.
        """
        if (self._staged / RUN_FILE).is_file():
            self._move(any_list=fresh)
        if fresh or not self._begun.is_file():
            self.clear()
        own = {RUN_FILE, *self._run_json().get("files", [])}
        with output_errors(self.path):
            for path in list(self.path.glob(".*.*")):
                half = _HALF_WRITTEN.fullmatch(path.name)
                if half and (half[1] in own or any(fnmatchcase(half[1], n) for n in LATER_FILES)):
                    remove(path)

    def finished(self, identity: RunIdentity) -> RunRecord | None:
        """Return the record of run.json if the fits of this run are complete, otherwise None.

        The run may have other map settings (`drawing`), and may lack files (see `damaged_files`).
        If the folder also has an unfinished run, the finished run is ignored. Raises OtherRunError
        if the folder has a run with other settings, and DataError if run.json is damaged.
        """
        latest = self._latest()
        different = differences(identity_in(latest), identity) if latest else []
        if different:
            raise OtherRunError(
                f"{self.path} contains a run that differs in {named(different)}. Start over "
                "with --fresh, or choose another folder with --out."
            )
        if self._begun.is_file() or not latest:
            return None
        return read_record(self.path / RUN_FILE, latest)

    @property
    def call(self) -> str | None:
        """Id of the command ``geogp batch --fresh`` that started the run, if any."""
        return self._latest().get("call")

    @property
    def _staged(self) -> Path:
        return self.unfinished / "files"

    @property
    def _stale(self) -> Path:
        return self.unfinished / "stale.json"

    @property
    def _begun(self) -> Path:
        return self.unfinished / "identity.json"

    def _latest(self) -> dict[str, Any]:
        """Return the note of the unfinished run; if there is no note, the content of run.json."""
        return _read_json(self._begun, FRESH) if self._begun.is_file() else self._run_json()

    def _run_json(self) -> dict[str, Any]:
        """Return the content of run.json; empty if there is no such file."""
        path = self.path / RUN_FILE
        content = _read_json(path) if path.is_file() else {}
        with damaged(path, DELETE):
            plain_names(content.get("files", []))  # checked, because these files may be deleted
        return content

    def begin(self, note: RunNote) -> RunNote:
        """Return the stored note of the unfinished run; store `note` first if no note is stored."""
        if self._begun.is_file():
            with damaged(self._begun, FRESH):
                return checked(upgraded(read_json(self._begun)), RunNote, "it")
        write_text(self._begun, run_text(note))
        return note

    def clear(self) -> None:
        """Remove an unfinished run; raise OutputError if its files cannot be removed."""
        with output_errors(self.unfinished):
            self._unstage()
            self._begun.unlink(missing_ok=True)
            remove(self.unfinished)

    def complete(
        self, write: Callable[[Path], RunRecord], *, keep_later: bool = False
    ) -> RunRecord:
        """Write all files and move them into place, ``run.json`` last; return the record.

        `write` receives a folder, writes all files except run.json into the folder, and returns the
        record without `files` and `file_records`. If the moves are interrupted, the next `prepare`
        completes the moves. `keep_later` keeps the files of other commands (`LATER_FILES`). Raises
        OutputError if a file cannot be written; then the run folder contains no new files, and the
        checkpoints stay.
        """
        staged = self._staged
        try:
            self._unstage()
            staged.mkdir(parents=True)
            written = write(staged)
            names = {file.name for file in staged.iterdir()}
            # A run is whole without the kept level, which answers can make again.
            files = sorted(names - {*fnmatch.filter(names, LEVEL_FILE.format("*"))})
            run = replace(written, files=files, file_records=records_of(staged, files))
            old = {*self._run_json().get("files", [])}
            if not keep_later:
                old |= {file.name for name in LATER_FILES for file in self.path.glob(name)}
            write_text(self._stale, json.dumps(sorted(old - names)))
            write_text(staged / RUN_FILE, run_text(run))
        except BaseException as error:
            with suppress(OSError):
                self._unstage()
            if isinstance(error, OSError) and not isinstance(error, OutputError):
                raise OutputError(f"cannot write to {self.path}: {error}.") from error
            raise
        self._move()
        return run

    def _unstage(self) -> None:
        """Remove the staged files, first run.json, which marks the files as complete."""
        (self._staged / RUN_FILE).unlink(missing_ok=True)
        remove(self._staged)

    def _move(self, *, any_list: bool = False) -> None:
        """Move the staged files into place; run.json, which marks a finished run, moves last."""
        try:
            stale = self._stale_names(any_list=any_list)
            (self.path / RUN_FILE).unlink(missing_ok=True)
            for file in sorted(self._staged.iterdir()):
                if file.name == RUN_FILE:
                    continue
                if file.is_dir():  # a folder cannot replace a folder
                    remove(self.path / file.name)
                file.replace(self.path / file.name)
            for name in stale:
                remove(self.path / name)
            self._begun.unlink(missing_ok=True)  # otherwise the finished run would seem unfinished
            (self._staged / RUN_FILE).replace(self.path / RUN_FILE)
        except OSError as error:
            raise OutputError(
                f"cannot write to {self.path}: {error}. Run the same command again to finish."
            ) from error
        self.clear()

    def _stale_names(self, *, any_list: bool) -> list[str]:
        """Return the names of outdated files to remove, from the stored list of these files."""
        if not self._stale.is_file():
            return []
        with suppress(DataError) if any_list else damaged(self._stale, FRESH):
            return plain_names(read_json(self._stale))
        return []


def read_run_record(path: Path) -> tuple[dict[str, Any], RunRecord]:
    """Return the content of a run's run.json: first as a dict, second as a typed record.

    Raises RequestError if the folder is not a finished run, and DataError if the file is damaged.
    """
    if not (path / RUN_FILE).is_file() or not (path / PREDICTIONS_FILE).is_file():
        raise RequestError(
            f"{path} is not a finished run: expected {RUN_FILE} and {PREDICTIONS_FILE} in this "
            f"folder.{near_runs(path)}"
        )
    run = _read_json(path / RUN_FILE)
    return run, read_record(path / RUN_FILE, run)


def check_model(path: Path, record: RunRecord, name: str, notes: dict[str, Any]) -> None:
    """Raise DataError if run.json contradicts the model's file."""
    stored = {"region": record.region, "target": record.target, "service": record.service} | notes
    stored["model"] = name
    expected = {key: getattr(record, key) for key in ("model", "region", "target", "service")}
    wrong = [f"{key} {value}" for key, value in expected.items() if stored[key] != value]
    if wrong:
        raise DataError(
            f"{path / RUN_FILE} says {named(wrong)}, but {MODEL_FILE} differs. Was one of "
            f"the files edited? Make the run again with --fresh."
        )


@contextmanager
def locked_run(path: Path) -> Iterator[RunRecord]:
    """Lock a finished run, and yield its record.

    Raises the errors of `read_run_record` and `lock_folder`.
    """
    read_run_record(path)  # checked first: a folder without a run gets no lock file
    with lock_folder(path):
        yield read_run_record(path)[1]  # another process may have changed it meanwhile


def run_folder_of(path: Path) -> Path | None:
    """Return the folder of a finished or unfinished run that is or contains a path, or None."""
    place = Path(os.path.realpath(path))  # unlike Path.resolve, raises no error for a loop of links
    for folder in (place, *place.parents):
        if (folder / RUN_FILE).is_file() or RunFolder(folder).unfinished.is_dir():
            return folder
    return None


def _read_json(path: Path, cure: str = DELETE) -> dict[str, Any]:
    with damaged(path, cure):
        content = read_json(path)
        if not isinstance(content, dict):
            raise DataError("expected a JSON object.")
    return content


@contextmanager
def damaged(path: Path, cure: str) -> Iterator[None]:
    """Add the file and the advice `cure` to the message of a DataError in the ``with`` block."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path} is damaged: {error} {cure}, or choose another --out.") from error
