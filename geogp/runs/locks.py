"""One process at a time in a folder: a lock of the operating system, and a note of who holds it."""

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
"""What is locked. It stays when the lock is free: removing it could let two processes in."""

NOTE_FILE = ".geogp.lock.json"
"""Process, host and time of the holder. A file of its own: Windows lets nobody read a locked one,
and some versions of filelock empty the file that they try to lock."""

LOCK_FILES = frozenset({LOCK_FILE, NOTE_FILE})
"""Names in a folder that are of its lock; they belong to nothing that the folder holds."""

_NOTED_S = 0.2
"""A holder has written its note so long after it took the lock; before, another may be there."""

_MOST_TRIES = 100
"""A folder that vanishes more often while it is made is not there to be made."""

_MOST_NOTE_BYTES = 4096

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""What file systems without locks answer; NFS without its lock service: ENOLCK."""


@contextmanager
def hold(folder: Path, *, wait: bool = False, cure: str = ELSEWHERE) -> Iterator[None]:
    """Hold a folder, which is made where it is absent, against all other processes.

    The operating system frees the lock of a process that ends, however it ends. Threads of one
    process shut each other out, too; the lock cannot be taken twice. A folder that would hold
    nothing but the lock is left as it was found.

    Parameters
    ----------
    folder
        A folder of this machine, or of a network file system that has locks.
    wait
        Wait until it is free, instead of refusing.
    cure
        What the user can do where the folder cannot be written.

    Raises
    ------
    RequestError
        Another process holds it; the message says which, where and since when.
    OutputError
        The folder cannot be written, or its file system has no locks.
    """
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    lock = _locked(folder, cure, wait=wait)
    try:
        with suppress(OSError):  # the lock holds without it; half a note says nothing
            (folder / NOTE_FILE).write_text(json.dumps(_described()), encoding="utf-8")
        yield
    finally:
        _let_go(folder, lock, absent)


def is_vacant(folder: Path) -> bool:
    """Tell whether nothing but the files of a lock is in a folder, or there is none."""
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
            if isinstance(error, FileNotFoundError) and tries < _MOST_TRIES:
                continue  # the holder before removed the folder, in which nothing was done
            raise _unlockable(folder, error, cure) from error
        if isinstance(lock, SoftFileLock):  # which a process that is killed would leave
            lock.release()
            raise _unlockable(folder, None, cure)
        if path.exists():
            return lock
        lock.release()  # the holder before removed it, as the last that was in the folder


def _let_go(folder: Path, lock: FileLock, absent: list[Path]) -> None:
    """Free a lock; where nothing else is in the folder, remove it, and what was absent before."""
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
        f"{folder} is in use by {_holder(folder / NOTE_FILE)}. Wait for it or stop it and give "
        "the command again, or choose another folder."
    )


def _holder(path: Path) -> str:
    """Return who holds a lock, in words; without a note that can be read, nobody knows."""
    try:
        note = read_json(path, _MOST_NOTE_BYTES)
        pid, host, since = (note[name] for name in ("pid", "host", "since"))
        told = datetime.fromisoformat(since).astimezone(UTC)
    except (DataError, LookupError, TypeError, ValueError):
        return "another process"
    return f"process {str(pid)[:20]} on {str(host)[:100]!r} since {told:%Y-%m-%d %H:%M:%S} UTC"


def _unlockable(
    folder: Path, error: OSError | NotImplementedError | None, cure: str
) -> OutputError:
    if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
        return output_error(folder, error, cure)
    reason = "" if error is None else f" ({error})"
    return OutputError(
        f"{folder} cannot be locked: its file system has no locks{reason}, without which two "
        "processes could delete each other's files. Choose a folder on another file system."
    )
