"""Writing of files and folders, completely or not at all, and reading of text and JSON."""

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
"""Largest size in bytes of a JSON file that geogp reads; geogp writes much smaller files."""

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

ELSEWHERE = "choose another folder with --out"
"""Advice to the user if a result cannot be written."""


def check_path(path: Path) -> None:
    """Raise RequestError if no file can have this path, for example because it is too long."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RequestError(
            f"expected a valid path, found {str(path)[:80]!r} ({len(str(path))} characters): "
            f"{reason}. Choose another path."
        ) from error


def check_folder(path: Path) -> None:
    """Raise RequestError if no folder can have this path, because it or a parent is a file."""
    check_path(path)
    for place in (path, *path.parents):
        if place.is_dir():
            return
        if os.path.lexists(place):
            raise RequestError(
                f"{place} is a file; --out needs a folder. {ELSEWHERE[0].upper()}{ELSEWHERE[1:]}."
            )


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, completely or not at all; create the folder if it is missing.

    Raises OutputError if the disk is full or the folder is not writable; a partial file is deleted.
    """
    with writing(path) as stream:
        stream.write(content)


@contextmanager
def output_errors(path: Path, cure: str = ELSEWHERE) -> Iterator[None]:
    """Turn an OSError in a ``with`` block into an OutputError, with `cure` as advice."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise output_error(path, error, cure) from error


@contextmanager
def writing(path: Path, cure: str = ELSEWHERE) -> Iterator[BinaryIO]:
    """Yield a stream for writing; after the ``with`` block, move the complete file to `path`.

    Before the move, the file is flushed to disk. Raises OutputError as `write_bytes` does, with
    `cure` as advice, and also for an OSError in the ``with`` block.
    """
    with output_errors(path, cure):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        beside = Path(name)
        try:
            with os.fdopen(handle, "w+b") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            beside.chmod(0o666 & ~_umask())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _umask() -> int:
    """Return the permissions that new files of the user do not get."""
    found = os.umask(0o077)  # the only way to ask; what is written meanwhile is private
    os.umask(found)
    return found


def write_text(path: Path, content: str) -> None:
    """Write text in UTF-8 to a file; see `write_bytes`."""
    write_bytes(path, content.encode())


def write_folder(path: Path, write: Callable[[Path], object]) -> None:
    """Write a folder of files, completely or not at all; replace any folder at `path`.

    `write` gets an empty folder and writes the files there. Raises OutputError as `write_bytes`
    does.
    """
    with _folder_beside(path) as beside:
        write(beside)
        beside.chmod(0o777 & ~_umask())
        remove(path)
        beside.replace(path)


def write_into(path: Path, names: Sequence[str], write: Callable[[Path], object]) -> None:
    """Write the files `names` into a folder; keep other files in the folder.

    The function `write` writes the files into a temporary folder, from which they are moved one by
    one. The last file in `names` shows that all files are complete, so its old version is deleted
    first. The caller must prevent other processes from writing. Raises OutputError as `write_bytes`
    does.
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
    """Yield an empty folder next to `path`; delete the folder if the block raises an error."""
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield beside
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise


def remove(path: Path) -> None:
    """Delete a file or a whole folder, if it exists; raise OSError if the deletion fails."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> Any:
    """Return the content of a JSON file; raise the errors of `read_text` and `parse_json`."""
    return parse_json(read_text(path, most), str(path))


def read_text(path: Path, most: int = MAX_JSON_BYTES) -> str:
    """Return the text of a UTF-8 file.

    Raises DataError if the file is missing, has more than `most` bytes, or is not text.
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
    """Return the content of a JSON text.

    Raises DataError if the text is not JSON, is nested too deeply, or has an invalid value like
    NaN.
    """
    try:
        found = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        json.dumps(found, ensure_ascii=False).encode()  # a lone surrogate is not text
    except RecursionError as error:
        raise DataError(f"{where} is nested too deeply.") from error
    except ValueError as error:
        raise DataError(f"{where} cannot be read as JSON ({error}).") from error
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def plain_names(found: object) -> list[str]:
    """Return a list of file names; raise DataError if a name leads to another folder."""
    if not isinstance(found, list):
        raise DataError(f"expected a list of file names, found {str(found)[:80]!r}.")
    for name in found:
        if not isinstance(name, str) or name in {"", ".", ".."} or set(name) & {"/", "\\", "\0"}:
            raise DataError(f"expected file names, found {str(name)[:80]!r}.")
    return found


def output_error(path: Path, error: OSError, cure: str) -> OutputError:
    """Return the OutputError for a file that cannot be written, with `cure` as advice."""
    if error.errno in _FULL:
        return OutputError(
            f"cannot write {path}: the disk is full or a file-size limit is reached. "
            f"Free some space or {cure}."
        )
    advice = f"{cure[0].upper()}{cure[1:]}"
    return OutputError(f"cannot write {path}: {error.strerror or error}. {advice}.")
