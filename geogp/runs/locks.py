"""A lock that lets one process at a time use a folder, and a note that names this process."""

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from geogp.errors import DataError, OutputError, RequestError
from geogp.files import ELSEWHERE, output_error, read_json

LOCK_FILE = ".geogp.lock"
"""Name of the locked file, which stays in the folder when the lock is freed."""

NOTE_FILE = ".geogp.lock.json"
"""Name of the file that describes the process with the lock; see `lock_folder`."""

LOCK_FILES = frozenset({LOCK_FILE, NOTE_FILE})
"""Names of the files of a lock; a folder that contains only these files counts as empty."""

_NOTED_S = 0.2
"""Seconds to wait before reading the note, because another process may still be writing it."""

_MAX_TRIES = 100
"""Largest number of attempts to make a folder that other processes keep removing."""

_MAX_NOTE_BYTES = 4096

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""Error codes of file systems without locks; NFS without its lock service gives ENOLCK."""


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False, cure: str = ELSEWHERE) -> Iterator[None]:
    """Lock a folder against all other processes; make the folder if it is absent.

    The operating system frees the lock when the process ends, even if the process is killed. Other
    threads of the process cannot take the lock either. If the folder is otherwise empty at the end,
    the lock's files and the folders made by this call are removed. With `wait`, wait until the lock
    is free. Raises RequestError, with the id, host and start of the other process, if the folder is
    locked. Raises OutputError, with the advice `cure`, if the folder cannot be written or locked.
    """
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    lock = _locked(folder, cure, wait=wait)
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with suppress(OSError):  # the lock works without a note; a partial note is ignored
            (folder / NOTE_FILE).write_text(json.dumps(note), encoding="utf-8")
        yield
    finally:
        _release(folder, lock, absent)


def is_vacant(folder: Path) -> bool:
    """Return whether a folder is absent, or empty except for the files of a lock."""
    return not folder.is_dir() or {path.name for path in folder.iterdir()} <= LOCK_FILES


def _locked(folder: Path, cure: str, *, wait: bool) -> FileLock:
    """Lock a folder, and return the lock."""
    path, tries = folder / LOCK_FILE, 0
    while True:
        tries += 1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path, timeout=-1 if wait else 0)
            lock.acquire()
        except Timeout:
            time.sleep(_NOTED_S)
            raise RequestError(
                f"{folder} is in use by {_holder(folder / NOTE_FILE)}. Wait until this process "
                "ends, or stop it; then run the command again. Or choose another folder."
            ) from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, FileNotFoundError) and tries < _MAX_TRIES:
                continue  # the previous holder removed the folder, because it was empty
            raise _unlockable(folder, error, cure) from error
        if isinstance(lock, SoftFileLock):  # a killed process would leave such a lock
            lock.release()
            raise _unlockable(folder, None, cure)
        if path.exists():
            return lock
        lock.release()  # the previous holder removed the file before it freed the lock


def _release(folder: Path, lock: FileLock, absent: list[Path]) -> None:
    """Free a lock; if the folder is otherwise empty, also remove the folders in `absent`."""
    try:
        with suppress(OSError):
            (folder / NOTE_FILE).unlink(missing_ok=True)
            if is_vacant(folder):
                (folder / LOCK_FILE).unlink(missing_ok=True)  # on Windows, the release removes it
                for place in absent:
                    place.rmdir()
    finally:
        lock.release()


def _holder(path: Path) -> str:
    """Return a text that names the process with the lock; without a note, “another process”."""
    try:
        note = read_json(path, _MAX_NOTE_BYTES)
        pid, host, since = (note[name] for name in ("pid", "host", "since"))
        start = datetime.fromisoformat(since).astimezone(UTC)
    except (DataError, LookupError, TypeError, ValueError):
        return "another process"
    return f"process {str(pid)[:20]} on {str(host)[:100]!r} since {start:%Y-%m-%d %H:%M:%S} UTC"


def _unlockable(
    folder: Path, error: OSError | NotImplementedError | None, cure: str
) -> OutputError:
    if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
        return output_error(folder, error, cure)
    reason = "" if error is None else f" ({error})"
    return OutputError(
        f"{folder} cannot be locked: its file system does not support locks{reason}, and without "
        f"a lock two processes could delete each other's files. Choose a folder on another file "
        f"system."
    )
