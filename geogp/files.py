"""One way to write a file or folder: beside its place first, then moved into it."""

import errno
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from geogp.errors import DataError, OutputError, RequestError

MOST_JSON_BYTES = 16 << 20
"""A file of JSON that is larger is refused unread: what geogp writes has some kilobytes."""

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

ELSEWHERE = "choose another folder with --out"
"""What to do where a result cannot be written."""


def check_path(path: Path) -> None:
    """Refuse a path that no file can have: too long, or with a null character.

    Raises
    ------
    RequestError
        It is such a path.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as error:
        told = f"{error.strerror}" if isinstance(error, OSError) else f"{error}"
        raise RequestError(
            f"expected a path that a file can have, found {str(path)[:80]!r} ({len(str(path))} "
            f"characters): {told}. Name another."
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` so that the file is either whole or untouched.

    Parameters
    ----------
    path
        Where the file goes. Its folder is made when absent.
    content
        The whole file.

    Raises
    ------
    OutputError
        The disk is full, or the folder cannot be written. Nothing is left behind.
    """
    with writing(path) as stream:
        stream.write(content)


@contextmanager
def writing(path: Path, cure: str = ELSEWHERE) -> Iterator[BinaryIO]:
    """Open a file beside `path`; at the end it is on disk, then moved into place.

    Parameters
    ----------
    path
        Where the file goes. Its folder is made when absent.
    cure
        What the user can do where it cannot be written.

    Raises
    ------
    OutputError
        As `write_bytes` says; also where the body raises an OSError that is no GeogpError.
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
    """Make a folder of files so that it is either whole or untouched.

    Parameters
    ----------
    path
        Where the folder goes; what stands there is replaced.
    write
        Writes the files into the empty folder that it is given.

    Raises
    ------
    OutputError
        The disk is full, or the folder cannot be written. Nothing is left behind.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise output_error(path, error, ELSEWHERE) from error
    try:
        write(beside)
        beside.chmod(0o755)
        remove(path)
        beside.replace(path)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError):
            raise output_error(path, error, ELSEWHERE) from error
        raise


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, where there is one.

    Raises
    ------
    OSError
        It cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: Path, most: int = MOST_JSON_BYTES) -> Any:
    """Return the content of a file of JSON.

    Parameters
    ----------
    path
        The file, in UTF-8.
    most
        Bytes above which it is refused unread.

    Raises
    ------
    DataError
        It is absent, too large, nested too deeply, or no JSON.
    """
    return parse_json(read_text(path, most), str(path))


def read_text(path: Path, most: int = MOST_JSON_BYTES) -> str:
    """Return the text of a file in UTF-8.

    Raises
    ------
    DataError
        It is absent, has more bytes than `most`, or is no text.
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
    """Return what JSON holds; refuse what no other file could hold after it.

    Raises
    ------
    DataError
        It is no JSON, is nested too deeply, or holds a number or text that JSON has no form for;
        the message begins with `where`.
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
    """Return a list of names that each stand for one thing in a folder, never for another place.

    Raises
    ------
    DataError
        It is no list, or one of it is no such name: empty, ``..``, or with a separator.
    """
    if not isinstance(found, list):
        raise DataError(f"expected a list of names of files, found {str(found)[:80]!r}.")
    for name in found:
        if not isinstance(name, str) or name in {"", ".", ".."} or set(name) & {"/", "\\", "\0"}:
            raise DataError(f"expected names of files, found {str(name)[:80]!r}.")
    return found


def output_error(path: Path, error: OSError, cure: str) -> OutputError:
    """Return the error of a file that cannot be written, and what the user can do."""
    if error.errno in _FULL:
        return OutputError(
            f"cannot write {path}: the disk is full or a file-size limit is reached. "
            f"Free some space or {cure}."
        )
    told = f"{cure[0].upper()}{cure[1:]}"
    return OutputError(f"cannot write {path}: {error.strerror or error}. {told}.")
