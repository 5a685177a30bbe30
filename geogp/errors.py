"""The error classes of geogp; `exit_code` is the exit code of a command with this error."""

import re


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


class GeogpError(Exception):
    """Base class of all errors that geogp raises on purpose."""

    exit_code = 3


class RequestError(GeogpError, ValueError):
    """The request cannot be met: for example, a name is unknown or a value is out of range."""

    exit_code = 2


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
