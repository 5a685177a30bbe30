"""Checks of a file of polygons before a reader opens it: its size, and harmful archives."""

import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from geogp.errors import DataError

MAX_BYTES = 1 << 30
"""Most bytes of a file of polygons."""

MAX_MEMBERS = 1000
"""Most files in an archive."""

MAX_UNPACKED = 4 << 30
"""Most bytes of all members of an archive, by their own statement."""

MAX_RATIO = 200
"""Largest ratio of these bytes to the archive's, above `RATIO_FROM`."""

RATIO_FROM = 64 << 20

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)

_ARCHIVES = (".zip", ".shz")


def check_file(path: Path) -> None:
    """Refuse a file that is too large, and an archive that is not harmless.

    DataError if the file is too large; a member leads out of its archive, is a link, or is
    encrypted; there are too many members or they are too large; or the archive is no archive.
    """
    if not path.is_file():
        return
    if path.stat().st_size > MAX_BYTES:
        raise DataError(
            f"{path} has {path.stat().st_size:,} bytes; expected polygons of at most {MAX_BYTES:,}."
        )
    if not zipfile.is_zipfile(path):
        if path.suffix.lower() in _ARCHIVES:
            raise DataError(
                f"{path} cannot be read as boundaries: it is not a zip file. Expected a complete "
                f"zip file; download it or write it again."
            )
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_members(path, members)
            for member in members:
                with archive.open(member) as stream:
                    stream.read(1)
    except DataError:
        raise
    except _DAMAGE as error:
        raise DataError(
            f"{path} cannot be read as boundaries ({error}). Expected a complete zip file; "
            f"download it or write it again."
        ) from error


def _check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    if len(names) > MAX_MEMBERS or len(set(names)) < len(names):
        raise DataError(
            f"{path} holds {len(names):,} files, {len(set(names)):,} names; expected at most "
            f"{MAX_MEMBERS:,}, each with its own."
        )
    size = sum(member.file_size for member in members)
    if size > MAX_UNPACKED or (size > RATIO_FROM and size > MAX_RATIO * path.stat().st_size):
        raise DataError(
            f"{path} declares {size:,} bytes, packed into {path.stat().st_size:,}: too many for "
            f"a file of boundaries."
        )
    for member in members:
        name = PurePosixPath(member.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in member.filename:
            raise DataError(
                f"{path} holds {member.filename!r}, whose path leads out of the archive."
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise DataError(f"{path} holds {member.filename!r}, which is a link.")
