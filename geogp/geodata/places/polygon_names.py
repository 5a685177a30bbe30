"""How a user names polygons: ``FILE``, ``FILE:COLUMN`` or ``FILE:COLUMN=VALUE``."""

from dataclasses import dataclass
from pathlib import Path

from geogp.errors import RequestError


@dataclass(frozen=True)
class OwnFile:
    """What a user writes as ``FILE`` or ``FILE:COLUMN=VALUE``.

    Attributes
    ----------
    path
        The file.
    column, value
        Which rows are meant; None takes all.
    """

    path: Path
    column: str | None = None
    value: str | None = None

    @classmethod
    def of(cls, text: str) -> "OwnFile":
        """Take apart what a user wrote, whether or not the file exists.

        Raises
        ------
        RequestError
            What follows the file is no ``COLUMN=VALUE``.
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
        """The same, from any working directory; the file keeps its name, even of a link."""
        place = self.path.parent.resolve() / self.path.name
        return str(place) if self.column is None else f"{place}:{self.column}={self.value}"


def _file_and_rest(text: str) -> tuple[Path, str | None]:
    """Split ``FILE:REST`` at the first colon before which there is a file, else at the first."""
    places = [k for k, sign in enumerate(text) if sign == ":"]
    if Path(text).exists() or not places:
        return Path(text), None
    place = next((k for k in places if Path(text[:k]).is_file()), places[0])
    return Path(text[:place]), text[place + 1 :]


def absolute_layer(text: str) -> str:
    """Return ``FILE`` or ``FILE:COLUMN`` so that it names the same file from any directory.

    The file keeps its name, also where it is a link: the layer is called after it.
    """
    path, column = file_and_column(text)
    place = path.parent.resolve() / path.name
    return str(place) if column is None else f"{place}:{column}"


def file_and_column(text: str) -> tuple[Path, str | None]:
    """Return file and column of ``FILE`` or ``FILE:COLUMN``, whether or not they exist."""
    if not Path(text).exists() and ":" in text:
        front, column = text.rsplit(":", 1)
        return Path(front), column
    return Path(text), None
