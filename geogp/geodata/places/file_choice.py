"""A file that a user chose, and the CRS that the user gave for it.

A file of polygons is given as ``FILE``, ``FILE:COLUMN`` or ``FILE:COLUMN=VALUE``. If the file has
several layers, the name of one follows the file: ``FILE:LAYER``, ``FILE:LAYER:COLUMN`` and so on.
"""

import os
import re
from pathlib import Path

from geogp.errors import RequestError, quoted
from geogp.geodata.store.addresses import is_address

_CRS_CODE = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,12}")


def file_and_rest(text: str) -> tuple[Path, str | None]:
    """Split ``FILE:REST`` after the name of an existing file, or otherwise at the first colon."""
    places = [k for k, sign in enumerate(text) if sign == ":"]
    if Path(text).exists() or not places:
        return Path(text), None
    place = next((k for k in places if Path(text[:k]).is_file()), places[0])
    return Path(text[:place]), text[place + 1 :]


def column_and_value(path: Path, text: str) -> tuple[str, str]:
    """Split ``COLUMN=VALUE``; raise RequestError if the text has another form."""
    column, equals, value = text.partition("=")
    if not (column and equals):
        raise RequestError(
            f"expected COLUMN=VALUE, to choose the rows of {path} that form the region, found "
            f"{quoted(text)}."
        )
    return column, value


def crs_for(path: Path, text: str | None) -> str | None:
    """Return the code that ``--crs`` gives for a file; None without one.

    `text` is a code such as ``EPSG:4326`` for all files, ``NAME=CODE`` for the file of this name,
    or several of these, separated by commas; None means that there is no ``--crs``. Raises
    RequestError if a code has another form: other descriptions of a CRS could refer to files and
    servers.
    """
    chosen = None
    for entry in [] if text is None else text.split(","):
        name, _, code = entry.rpartition("=")
        if not _CRS_CODE.fullmatch(code):
            raise RequestError(
                "expected --crs with the code of a coordinate system, such as EPSG:4326, or with "
                f"FILE=CODE for one file, found {quoted(entry)}."
            )
        if name in {"", path.name}:
            chosen = code
    return chosen


def absolute_name(text: str) -> str:
    """Return ``FILE`` or ``FILE:REST`` with an absolute path; a symbolic link keeps its name."""
    path, rest = file_and_rest(text)
    place = path.parent.resolve() / path.name
    return str(place) if rest is None else f"{place}:{rest}"


def existing_path(text: str) -> Path | None:
    """Return the path in ``FOLDER``, ``FILE`` or ``FILE:REST``; None if there is no such path."""
    if is_address(text) or "\0" in text:
        return None
    path = file_and_rest(os.path.expanduser(text))[0]  # noqa: PTH111 - keeps `~nobody`
    return path if path.exists() else None
