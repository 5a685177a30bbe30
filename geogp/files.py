"""One way to write a file: beside its place first, then moved into it."""

import errno
import hashlib
import os
import tempfile
from pathlib import Path

from geogp.errors import OutputError

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _output_error(path, error) from error
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        beside.chmod(0o644)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _output_error(path, error) from error
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_text(path: Path, content: str) -> None:
    """Write `content` as UTF-8; see `write_bytes`."""
    write_bytes(path, content.encode())


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _output_error(path: Path, error: OSError) -> OutputError:
    if error.errno in _FULL:
        return OutputError(
            f"cannot write {path}: the disk is full or a file-size limit is reached. "
            "Free some space or choose another folder with --out."
        )
    return OutputError(
        f"cannot write {path}: {error.strerror or error}. Choose another folder with --out."
    )
