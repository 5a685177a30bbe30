"""The errors that geogp raises on purpose.

A message says what was expected, what was found and what to do. `exit_code` is the exit code of the
command.
"""

import re


def _secrets(sign: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return patterns of secrets in addresses, and replacements; `sign` matches one character."""
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
    """Return the text without the user names, passwords and queries of addresses.

    A query may be a signature or a token. In a text, the end of a query with a space or a quote is
    unknown; for a single address, use `word_without_secrets`.
    """
    return _replaced(text, _IN_TEXT)


def word_without_secrets(word: str) -> str:
    """Return a word of a command without secrets; the word contains at most one address."""
    return _replaced(word, _IN_WORDS)


def _replaced(text: str, patterns: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    for pattern, instead in patterns:
        text = pattern.sub(instead, text)
    return text


class GeogpError(Exception):
    """Base of all errors that geogp raises on purpose."""

    exit_code = 3


class RequestError(GeogpError, ValueError):
    """The request cannot be met: for example, a name is unknown or a value is out of range."""

    exit_code = 2


class OutputError(GeogpError, OSError):
    """A result could not be written: for example, the disk is full or the path is not a folder."""

    exit_code = 2


class DataError(GeogpError, ValueError):
    """The input data are wrong or missing."""

    exit_code = 3


class ReadingError(GeogpError, RuntimeError):
    """Files cannot be read now, because the process that reads files is not running."""

    exit_code = 3


class NumericalError(GeogpError, RuntimeError):
    """A computation failed: for example, a variance is not positive."""

    exit_code = 3


class NetworkError(GeogpError, RuntimeError):
    """A remote source could not be reached or answered with an error.

    The message contains no user names, passwords or queries of addresses. A query may be a
    signature or a token; a server can redirect to an address with such a query.
    """

    exit_code = 4

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class RefusedError(NetworkError):
    """A remote source refuses anonymous access; some sources also answer so for a missing file."""


class UnreachableError(NetworkError):
    """The address of a remote source does not answer."""
