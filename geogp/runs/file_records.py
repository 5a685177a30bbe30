"""Size and hash of the files of a run, as run.json keeps them, and what differs from them."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from geogp.errors import DataError
from geogp.files import ELSEWHERE, output_error, plain_names, sha256_of, write_text

RECORDS = "file_records"
"""Key of run.json: of each name under `files` the bytes, the SHA-256 and, of a file, when it was
modified, in nanoseconds since 1970."""


def records_of(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what run.json keeps of files and folders in a folder, by name.

    Raises
    ------
    OSError
        One cannot be read.
    """
    return {name: _record(folder / name) for name in names}


def spoilt(folder: Path, run: dict[str, Any]) -> list[str]:
    """Return the names of files of a run that are missing or are not what they were.

    A file of the same size and time is taken as it is; of one with another time, as in a copy of
    the folder, the hash decides, and of folders always. Runs that were made before run.json kept
    records say no more than names: of these a file that is there is taken as it is.

    Parameters
    ----------
    folder
        The run folder.
    run
        The content of its run.json.

    Raises
    ------
    DataError
        A file cannot be read, or run.json names files that are not of its folder.
    """
    try:
        return [name for name, record in _recorded(run) if not _agrees(folder / name, record)]
    except OSError as error:
        raise DataError(f"a file of the run {folder} cannot be read: {error}.") from error


def spoilt_of_sizes(sizes: dict[str, int], run: dict[str, Any]) -> list[str]:
    """Return the same by what a store lists: the bytes of each file, by its path in the folder."""
    held: dict[str, int] = {}
    for path, size in sizes.items():
        name = path.partition("/")[0]
        held[name] = held.get(name, 0) + size
    return [
        name
        for name, record in _recorded(run)
        if name not in held or (record is not None and held[name] != record.get("bytes"))
    ]


def record_files(run_file: Path, run: dict[str, Any], names: Iterable[str]) -> None:
    """Note in run.json of a finished run what files of it hold that were written again.

    A run of before, whose run.json has no records, stays as it is.

    Parameters
    ----------
    run_file
        run.json in its folder.
    run
        Its content, in which the records are changed.
    names
        What was written; names that are not under `files` are no files of the run.

    Raises
    ------
    OutputError
        A file cannot be read or written.
    """
    before = run.get(RECORDS)
    if before is None:
        return
    try:
        found = records_of(run_file.parent, [name for name in names if name in run["files"]])
    except OSError as error:
        raise output_error(run_file, error, ELSEWHERE) from error
    if any(before.get(name, {}).get("sha256") != one["sha256"] for name, one in found.items()):
        run[RECORDS] = before | found
        write_text(run_file, run_text(run))


def run_text(run: dict[str, Any]) -> str:
    """Return the text of run.json."""
    return json.dumps(run, indent=1, allow_nan=False) + "\n"


def _recorded(run: dict[str, Any]) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the names of a run's files and their records: None in a run without records.

    A record that a run with records lacks is empty: it agrees with nothing.
    """
    names = plain_names(run.get("files", []))
    if RECORDS not in run:
        return [(name, None) for name in names]
    told = run[RECORDS]
    records = told if isinstance(told, dict) else {}
    found = {name: records.get(name) for name in names}
    return [(name, one if isinstance(one, dict) else {}) for name, one in found.items()]


def _agrees(path: Path, record: dict[str, Any] | None) -> bool:
    if record is None or not path.exists():
        return path.exists()
    if path.is_file():
        found = path.stat()
        if found.st_size != record.get("bytes"):
            return False
        if found.st_mtime_ns == record.get("modified_ns"):
            return True
    return bool(_record(path)["sha256"] == record.get("sha256"))


def _record(path: Path) -> dict[str, Any]:
    if path.is_dir():
        return _folder_record(path)
    found = path.stat()
    told = {"bytes": found.st_size, "sha256": sha256_of(path)}
    return {**told, "modified_ns": found.st_mtime_ns}


def _folder_record(folder: Path) -> dict[str, Any]:
    """Return the bytes of all files in a folder, and a hash of their names and contents."""
    digest, size = hashlib.sha256(), 0
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    for name, path in sorted(files.items()):
        if path.is_file():
            digest.update(f"{name}\0{sha256_of(path)}\0".encode())
            size += path.stat().st_size
    return {"bytes": size, "sha256": digest.hexdigest()}
