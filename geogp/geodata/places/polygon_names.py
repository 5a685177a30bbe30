"""How a user names polygons: ``FILE``, ``FILE:COLUMN`` or ``FILE:COLUMN=VALUE``."""

from pathlib import Path

from geogp.errors import RequestError


def file_and_rest(text: str) -> tuple[Path, str | None]:
    """Split ``FILE:REST`` at the first colon after a file that exists, else at the first colon."""
    places = [k for k, sign in enumerate(text) if sign == ":"]
    if Path(text).exists() or not places:
        return Path(text), None
    place = next((k for k in places if Path(text[:k]).is_file()), places[0])
    return Path(text[:place]), text[place + 1 :]


def file_and_rows(text: str) -> tuple[Path, tuple[str, str] | None]:
    """Return the file of ``FILE:COLUMN=VALUE``, and column and value; None for all rows.

    RequestError where no ``COLUMN=VALUE`` follows the file.
    """
    path, rest = file_and_rest(text)
    if rest is None:
        return path, None
    column, equals, value = rest.partition("=")
    if not (column and equals):
        raise RequestError(
            f"expected the rows of {path} that are the region as COLUMN=VALUE, found {rest!r}."
        )
    return path, (column, value)


def absolute_name(text: str) -> str:
    """Return the same text with an absolute path.

    A link keeps its own name, because layers and regions are named after their files.
    """
    path, rest = file_and_rest(text)
    place = path.parent.resolve() / path.name
    return str(place) if rest is None else f"{place}:{rest}"
