"""One way to write a file or folder: write it next to its place first, then move it there."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from geogp.errors import DataError, OutputError, RequestError

MAX_JSON_BYTES = 16 << 20
"""Largest file of JSON that is read: geogp writes some kilobytes."""

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

ELSEWHERE = "choose another folder with --out"
"""Cure where a result cannot be written."""


def check_path(path: Path) -> None:
    """Refuse a path that no file can have: too long, or with a null character (RequestError)."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as error:
        reason = f"{error.strerror}" if isinstance(error, OSError) else f"{error}"
        raise RequestError(
            f"expected a path that a file can have, found {str(path)[:80]!r} ({len(str(path))} "
            f"characters): {reason}. Name another."
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all; the folder is made when absent.

    OutputError if the disk is full or the folder cannot be written; nothing is left behind.
    """
    with writing(path) as stream:
        stream.write(content)


@contextmanager
def writing(path: Path, cure: str = ELSEWHERE) -> Iterator[BinaryIO]:
    """Open a file next to `path`; at the end it is flushed to disk and moved to `path`.

    The folder is made when absent. OutputError, with `cure`, as in `write_bytes`, and where the
    body raises an OSError that is no GeogpError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise output_error(path, error, cure) from error
    beside = Path(name)
    try:
        with os.fdopen(handle, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.chmod(0o644)
        beside.replace(path)
    except OutputError:
        beside.unlink(missing_ok=True)
        raise
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise output_error(path, error, cure) from error
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_text(path: Path, content: str) -> None:
    """Write `content` as UTF-8; see `write_bytes`."""
    write_bytes(path, content.encode())


def write_folder(path: Path, write: Callable[[Path], object]) -> None:
    """Make a folder of files, whole or not at all; a folder at `path` is replaced.

    `write` gets an empty folder. OutputError as in `write_bytes`.
    """
    with _folder_beside(path) as beside:
        write(beside)
        beside.chmod(0o755)
        remove(path)
        beside.replace(path)


def write_into(path: Path, names: Sequence[str], write: Callable[[Path], object]) -> None:
    """Make the files `names` of a folder; other files in it stay.

    `write` gets an empty folder next to `path`. Once it is done, the files move one by one. The
    last name marks them all as complete: the old file of that name goes first, the new one comes
    last. Leftovers of killed calls are removed, so the caller must exclude other writers.
    OutputError as in `write_bytes`.
    """
    left = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")
    with _folder_beside(path) as beside:
        for other in list(path.parent.iterdir()):
            if left.fullmatch(other.name) and other != beside:
                remove(other)
        write(beside)
        path.mkdir(exist_ok=True)
        remove(path / names[-1])
        for name in names:
            (beside / name).replace(path / name)
        remove(beside)


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to `path`; it is removed if the body raises an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise output_error(path, error, ELSEWHERE) from error
    try:
        yield beside
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError):
            raise output_error(path, error, ELSEWHERE) from error
        raise


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists (OSError if it cannot)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> Any:
    """Return the content of a file of JSON in UTF-8.

    DataError if it is absent, has more than `most` bytes, is nested too deeply, or is no JSON.
    """
    return parse_json(read_text(path, most), str(path))


def read_text(path: Path, most: int = MAX_JSON_BYTES) -> str:
    """Return the text of a file in UTF-8.

    DataError if it is absent, has more than `most` bytes, or is no text.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(most + 1)
        if len(content) <= most:
            return content.decode()
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as text ({error}).") from error
    raise DataError(f"{path} has more than {most:,} bytes, which is too large.")


def parse_json(text: str, where: str) -> Any:
    """Return the content of JSON; refuse content that could not be written as JSON again.

    DataError, beginning with `where`, where the text is no JSON, is nested too deeply, or holds a
    number or text without a form in JSON.
    """
    try:
        found = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        json.dumps(found, ensure_ascii=False).encode()  # half of a pair of surrogates is no text
    except RecursionError as error:
        raise DataError(f"{where} is nested too deeply.") from error
    except ValueError as error:
        raise DataError(f"{where} holds no JSON that can be read ({error}).") from error
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def plain_names(found: object) -> list[str]:
    """Return a list of names, each of one entry of a folder; no name leads to another place.

    DataError if it is no list, or a name is empty, ``..``, or has a separator.
    """
    if not isinstance(found, list):
        raise DataError(f"expected a list of names of files, found {str(found)[:80]!r}.")
    for name in found:
        if not isinstance(name, str) or name in {"", ".", ".."} or set(name) & {"/", "\\", "\0"}:
            raise DataError(f"expected names of files, found {str(name)[:80]!r}.")
    return found


def output_error(path: Path, error: OSError, cure: str) -> OutputError:
    """Return the error of a file that cannot be written, with the cure."""
    if error.errno in _FULL:
        return OutputError(
            f"cannot write {path}: the disk is full or a file-size limit is reached. "
            f"Free some space or {cure}."
        )
    advice = f"{cure[0].upper()}{cure[1:]}"
    return OutputError(f"cannot write {path}: {error.strerror or error}. {advice}.")
