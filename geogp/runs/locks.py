"""One process at a time in a folder: a lock of the operating system, and a note of its holder."""

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, SoftFileLock, Timeout

from geogp.errors import DataError, OutputError, RequestError
from geogp.files import ELSEWHERE, output_error, read_json

LOCK_FILE = ".geogp.lock"
"""The locked file. It stays when the lock is free: without it, two processes could get the lock."""

NOTE_FILE = ".geogp.lock.json"
"""Process, host and time of the holder.

A separate file: on Windows, other processes cannot read a locked file, and some versions of
filelock empty the file that they try to lock.
"""

LOCK_FILES = frozenset({LOCK_FILE, NOTE_FILE})
"""Names of the lock's files; they are no part of the folder's content."""

_NOTED_S = 0.2
"""Seconds in which a holder writes its note; until then, the note may be of another holder."""

_MAX_TRIES = 100
"""Attempts to make a folder that vanishes meanwhile."""

_MAX_NOTE_BYTES = 4096

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""Errors of file systems without locks; NFS without its lock service: ENOLCK."""


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False, cure: str = ELSEWHERE) -> Iterator[None]:
    """Hold a folder, which is made where it is absent, against all other processes.

    The operating system frees the lock when a process ends, however it ends. Threads of one process
    exclude each other, too; the lock cannot be taken twice. A folder with nothing but the lock is
    restored at the end. With `wait`, wait until the folder is free. RequestError where another
    process holds it, with its id, host and time; OutputError, with `cure`, where the folder cannot
    be written or its file system has no locks.
    """
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    lock = _locked(folder, cure, wait=wait)
    try:
        with suppress(OSError):  # the lock holds without it; half a note says nothing
            (folder / NOTE_FILE).write_text(json.dumps(_described()), encoding="utf-8")
        yield
    finally:
        _release(folder, lock, absent)


def is_vacant(folder: Path) -> bool:
    """Return whether a folder is absent, or holds nothing but the files of a lock."""
    return not folder.is_dir() or {path.name for path in folder.iterdir()} <= LOCK_FILES


def _locked(folder: Path, cure: str, *, wait: bool) -> FileLock:
    """Return the lock of a folder, taken."""
    path, tries = folder / LOCK_FILE, 0
    while True:
        tries += 1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path, timeout=-1 if wait else 0)
            lock.acquire()
        except Timeout:
            raise _refusal(folder) from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, FileNotFoundError) and tries < _MAX_TRIES:
                continue  # the holder before removed the folder, in which nothing was done
            raise _unlockable(folder, error, cure) from error
        if isinstance(lock, SoftFileLock):  # which a process that is killed would leave
            lock.release()
            raise _unlockable(folder, None, cure)
        if path.exists():
            return lock
        lock.release()  # the holder before removed it, as the last that was in the folder


def _release(folder: Path, lock: FileLock, absent: list[Path]) -> None:
    """Free a lock; where the folder holds nothing else, remove it and the folders made for it."""
    try:
        with suppress(OSError):
            (folder / NOTE_FILE).unlink(missing_ok=True)
            if is_vacant(folder):
                (folder / LOCK_FILE).unlink(missing_ok=True)  # Windows does it in the release
                for place in absent:
                    place.rmdir()
    finally:
        lock.release()


def _described() -> dict[str, Any]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": since}


def _refusal(folder: Path) -> RequestError:
    time.sleep(_NOTED_S)
    return RequestError(
        f"{folder} is in use by {_holder(folder / NOTE_FILE)}. Wait until it ends or stop it, "
        f"then give the command again; or choose another folder."
    )


def _holder(path: Path) -> str:
    """Return the holder of a lock in words; without a readable note it is unknown."""
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
