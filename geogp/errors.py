"""The error classes of geogp, and how their messages show texts of the user.

`exit_code` is the exit code of a command with this error.
"""

import re
import unicodedata
from collections.abc import Iterable
from itertools import islice


def _secrets(sign: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return regular expressions for secrets in addresses, with their replacements."""
    return (
        # Either the query contains an @, or the password contains a ?; the two cases look alike.
        (re.compile(f"//{sign}*[?#]{sign}*@{sign}*"), "//..."),
        (re.compile(f"//{sign}*@"), "//...@"),
        (re.compile(f"(?<={sign})[?#]{sign}+"), "?..."),
    )


_IN_WORDS = _secrets(r"[\s\S]")

_IN_TEXT = (
    *_secrets(r"[^\s'\"<>]"),
    (re.compile(r"//[^/\n]*@"), "//...@"),  # a password may contain a space or a quote
)


def without_secrets(text: str) -> str:
    """Return a text without the user names, passwords and queries in its web addresses.

    The query is the part after ``?``, and may contain a secret. In a text, a query seems to end at
    a space or a quote; so use `word_without_secrets` for a single address.
    """
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text


def word_without_secrets(word: str) -> str:
    """Return a word of a command without the secrets in its address; see `without_secrets`."""
    for pattern, instead in _IN_WORDS:
        word = pattern.sub(instead, word)
    return word


_JOINERS = "\u200c\u200d"  # invisible, but part of the spelling of many languages


def visible(text: object) -> str:
    r"""Return a text with its invisible characters escaped, such as ``\x00`` or ``\u202e``.

    These are control characters, line breaks, marks of the direction of writing, and characters
    that cannot be encoded. A terminal could obey them, or show another text than there is.
    """
    whole = str(text)
    if whole.isprintable():
        return whole
    return "".join(sign if _is_visible(sign) else _escaped(sign) for sign in whole)


def visible_lines(text: str) -> str:
    """Return a text of several lines, each `visible`."""
    return "\n".join(map(visible, text.split("\n")))


def _is_visible(sign: str) -> bool:
    return sign.isprintable() or sign in _JOINERS or unicodedata.category(sign) == "Zs"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


def shown(text: object, most: int = 60) -> str:
    """Return a text as a message shows it: `visible`, and cut after `most` characters."""
    whole = str(text)
    if len(whole) <= most:
        return visible(whole)
    return f"{visible(whole[:most])}... ({len(whole):,} characters)"


def quoted(text: object, most: int = 60) -> str:
    """Return a text in quotes, as a message shows it; see `shown`."""
    return shown(repr(text), most)


LONGEST_PATH = 300
"""Number of characters after which a message cuts the path of a file in a list."""


def named(names: Iterable[object], most: int = 10, longest: int = 60) -> str:
    """Return names as a message lists them: at most `most`, each `shown` up to `longest` signs.

    >>> named(["a", "b", "c", "d"], most=2)
    'a, b, ... and 2 more'
    """
    rest = iter(names)
    first = [shown(name, longest) for name in islice(rest, most)]
    left = sum(1 for _ in rest)
    return ", ".join([*first, f"... and {left:,} more"] if left else first)


class GeogpError(Exception):
    """Base class of all errors that geogp raises on purpose."""

    exit_code = 3


class RequestError(GeogpError, ValueError):
    """The request cannot be met: for example, a name is unknown or a value is out of range."""

    exit_code = 2


class OtherRunError(RequestError):
    """The run folder contains a run with other data or settings."""


class OutputError(GeogpError, OSError):
    """A result could not be written: for example, the disk is full or the path is not a folder."""

    exit_code = 2


class DataError(GeogpError, ValueError):
    """The input data are wrong or missing."""


class ReadingError(GeogpError, RuntimeError):
    """The process that reads files did not start, or was stopped."""


class NumericalError(GeogpError, RuntimeError):
    """A computation failed: for example, a variance is not positive."""


class NetworkError(GeogpError, RuntimeError):
    """A remote source could not be reached, or answered with an error.

    User names, passwords and queries are removed from the addresses in the message.
    """

    exit_code = 4

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class RefusedError(NetworkError):
    """A server asks for a login; some servers also give this answer if a file is missing."""


class UnreachableError(NetworkError):
    """No server answers at the address of a remote source."""


def check_name(what: str, name: str, error: type[GeogpError] = DataError) -> None:
    """Raise an error if a name has control characters, which pages and rasters cannot hold.

    These files can hold tabs and line breaks.
    """
    if any(unicodedata.category(sign) in {"Cc", "Cs"} and sign not in "\t\r\n" for sign in name):
        raise error(f"expected {what} without control characters, found {quoted(name)}. Rename it.")
