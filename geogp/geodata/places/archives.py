"""Checks of files of polygons before a reader opens them: size, and archives that may do harm."""

import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from geogp.errors import DataError, quoted

MAX_BYTES = 1 << 30  # largest size of a file of polygons
MAX_MEMBERS = 1000  # most files in an archive
MAX_UNPACKED = 4 << 30  # most unpacked bytes of all members, as the archive declares
MAX_RATIO = 200  # largest ratio of unpacked to packed bytes, above `RATIO_FROM` unpacked bytes
RATIO_FROM = 64 << 20

_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError),
    *(LookupError, OSError, RuntimeError, ValueError),
)

ARCHIVES = (".zip", ".shz", ".kmz")


def check_file(path: Path) -> None:
    """Raise DataError for a file that is too large, or an archive that may do harm.

    An archive is refused if it is damaged, or has too many or too large members. A member is
    refused if it is encrypted, is a link, or has a path that leads out of the archive.
    """
    if not path.is_file():
        return
    if path.stat().st_size > MAX_BYTES:
        raise DataError(
            f"{path} has {path.stat().st_size:,} bytes; expected at most {MAX_BYTES:,} bytes."
        )
    if path.suffix.lower() not in ARCHIVES and not zipfile.is_zipfile(path):
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
            "download or write this file again."
        ) from error


def _check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    if len(names) > MAX_MEMBERS or len(set(names)) < len(names):
        raise DataError(
            f"{path} contains {len(names):,} files with {len(set(names)):,} different names; "
            f"expected at most {MAX_MEMBERS:,} files, all with different names."
        )
    size = sum(member.file_size for member in members)
    if size > MAX_UNPACKED or (size > RATIO_FROM and size > MAX_RATIO * path.stat().st_size):
        raise DataError(
            f"{path} declares {size:,} unpacked bytes in an archive of "
            f"{path.stat().st_size:,} bytes: too many for a file of boundaries."
        )
    for member in members:
        name = PurePosixPath(member.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in member.filename:
            raise DataError(
                f"{path} contains {quoted(member.filename)}, whose path leads out of the archive."
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise DataError(f"{path} contains {quoted(member.filename)}, which is a link.")
