"""How a user names polygons: ``FILE``, ``FILE:COLUMN`` or ``FILE:COLUMN=VALUE``."""

from dataclasses import dataclass
from pathlib import Path

from geogp.errors import RequestError


@dataclass(frozen=True)
class OwnFile:
    """A file of polygons and the rows with a value in a column; without a column, all rows."""

    path: Path
    column: str | None = None
    value: str | None = None

    @classmethod
    def of(cls, text: str) -> "OwnFile":
        """Return the parts of ``FILE`` or ``FILE:COLUMN=VALUE``; the file need not exist.

        RequestError where no ``COLUMN=VALUE`` follows the file.
        """
        path, rest = _file_and_rest(text)
        if rest is None:
            return cls(path)
        column, equals, value = rest.partition("=")
        if not (column and equals):
            raise RequestError(
                f"expected the rows of {path} that are the region as COLUMN=VALUE, found {rest!r}."
            )
        return cls(path, column, value)

    @property
    def absolute(self) -> str:
        """The same text with an absolute path; a link keeps its own name."""
        place = self.path.parent.resolve() / self.path.name
        return str(place) if self.column is None else f"{place}:{self.column}={self.value}"


def _file_and_rest(text: str) -> tuple[Path, str | None]:
    """Split ``FILE:REST`` at the first colon after a file that exists, else at the first colon."""
    places = [k for k, sign in enumerate(text) if sign == ":"]
    if Path(text).exists() or not places:
        return Path(text), None
    place = next((k for k in places if Path(text[:k]).is_file()), places[0])
    return Path(text[:place]), text[place + 1 :]


def absolute_layer(text: str) -> str:
    """Return ``FILE`` or ``FILE:COLUMN`` with an absolute path.

    A link keeps its own name, because the layer is named after it.
    """
    path, column = file_and_column(text)
    place = path.parent.resolve() / path.name
    return str(place) if column is None else f"{place}:{column}"


def file_and_column(text: str) -> tuple[Path, str | None]:
    """Return file and column of ``FILE`` or ``FILE:COLUMN``; the file need not exist."""
    if not Path(text).exists() and ":" in text:
        front, column = text.rsplit(":", 1)
        return Path(front), column
    return Path(text), None
