"""Stores the size and hash of each file of a run in run.json, and checks the files."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from geogp.errors import DataError
from geogp.files import output_errors, plain_names, read_json, sha256_of, write_text
from geogp.records.record_reading import run_text
from geogp.records.run_record import FileRecord, RunRecord

RECORDS = "file_records"
"""Key of run.json with the size in bytes and the SHA-256 of each file and folder of the run.

The record of a file also has the modification time (ns since 1970).
"""


def records_of(folder: Path, names: Iterable[str]) -> dict[str, FileRecord]:
    """Return size and hash of each named file in `folder`; raise OSError for an unreadable file."""
    return {name: _record(folder / name) for name in names}


def damaged_files(folder: Path, run: RunRecord, names: Iterable[str] | None = None) -> list[str]:
    """Return which files of a run are missing or changed: of all files, or of the files `names`.

    A file with the recorded size and time counts as unchanged. If the time differs, as in a copy of
    the run folder, the hash is compared. If an older run.json has no records, only missing files
    are returned. Raises DataError for unreadable files, and for names of other folders.
    """
    try:
        return [
            name
            for name in (files_of(run) if names is None else names)
            if not _agrees(folder / name, run)
        ]
    except OSError as error:
        raise DataError(f"a file of the run {folder} cannot be read: {error}.") from error


def record_files(run_file: Path, run: RunRecord, names: Iterable[str]) -> RunRecord:
    """Update the sizes and hashes of the files `names` in run.json; return the new run.json.

    An older run.json without records stays unchanged. Names not in run.json are ignored.
    """
    before = run.file_records
    if before is UNSET:
        return run
    with output_errors(run_file):
        records = records_of(run_file.parent, sorted({*names} & {*files_of(run)}))
    if all(
        name in before and before[name].sha256 == record.sha256 for name, record in records.items()
    ):
        return run
    after = before | records
    write_text(run_file, run_text({**read_json(run_file), RECORDS: after}))
    return replace(run, file_records=after)


def files_of(run: RunRecord) -> list[str]:
    """Return the names of a run's files; raise DataError if a name leads to another folder."""
    return [] if run.files is UNSET else plain_names(run.files)


def _agrees(path: Path, run: RunRecord) -> bool:
    """Return whether a file exists and is unchanged; a file without a record counts as changed."""
    if run.file_records is UNSET or not path.exists():
        return path.exists()
    record = run.file_records.get(path.name)
    if record is None:
        return False
    if path.is_file():
        status = path.stat()
        if status.st_size != record.bytes:
            return False
        if status.st_mtime_ns == record.modified_ns:
            return True
    return _record(path).sha256 == record.sha256


def _record(path: Path) -> FileRecord:
    """Return the record of a file, or the total size of a folder and a hash of all its files."""
    if not path.is_dir():
        status = path.stat()
        return FileRecord(
            bytes=status.st_size, sha256=sha256_of(path), modified_ns=status.st_mtime_ns
        )
    digest, size = hashlib.sha256(), 0
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    for name, file in sorted(files.items()):
        digest.update(f"{name}\0{sha256_of(file)}\0".encode())
        size += file.stat().st_size
    return FileRecord(bytes=size, sha256=digest.hexdigest())
