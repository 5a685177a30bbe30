"""Every error a user of geogp can meet.

A message says what was expected, what was found and what to do. `exit_code` is the exit code of the
command.
"""

import re


def _secrets(sign: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the patterns of secrets in addresses of some characters, and their replacements."""
    return (
        # The query holds an @, or the password a ?: no one can say.
        (re.compile(f"//{sign}*[?#]{sign}*@{sign}*"), "//..."),
        (re.compile(f"//{sign}*@"), "//...@"),
        (re.compile(f"(?<={sign})[?#]{sign}+"), "?..."),
    )


_IN_WORDS = _secrets(r"[\s\S]")

_IN_TEXT = (
    *_secrets(r"[^\s'\"<>]"),
    (re.compile(r"//[^/\n]*@"), "//...@"),  # a password may hold a space or a quote
)


def without_secrets(text: str) -> str:
    """Return a text without names, passwords and queries of addresses.

    A query may be a signature or a token. In a text, the end of a query with a space or a quote is
    unknown: see `word_without_secrets`.
    """
    return _replaced(text, _IN_TEXT)


def word_without_secrets(word: str) -> str:
    """Return a word of a command, which is at most one address, without its secrets."""
    return _replaced(word, _IN_WORDS)


def _replaced(text: str, patterns: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    for pattern, instead in patterns:
        text = pattern.sub(instead, text)
    return text


class GeogpError(Exception):
    """Base of all errors that geogp raises on purpose."""

    exit_code = 3


class RequestError(GeogpError, ValueError):
    """The request cannot be met: an unknown name, a value out of range."""

    exit_code = 2


class OutputError(GeogpError, OSError):
    """A result could not be written: the disk is full, or the path is not a folder."""

    exit_code = 2


class DataError(GeogpError, ValueError):
    """The input data are wrong or missing."""

    exit_code = 3


class ReadingError(GeogpError, RuntimeError):
    """Files cannot be read on this machine now: the process that reads them is not there."""

    exit_code = 3


class NumericalError(GeogpError, RuntimeError):
    """A computation broke down: a matrix that does not factorise, a variance not positive."""

    exit_code = 3


class NetworkError(GeogpError, RuntimeError):
    """A remote source could not be reached or answered with an error.

    The message holds no names, passwords or queries of addresses: a query may be a signature or a
    token, and a server can redirect to such an address.
    """

    exit_code = 4

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class RefusedError(NetworkError):
    """A remote source refuses anonymous readers, or has no such file and hides that."""


class UnreachableError(NetworkError):
    """The address of a remote source does not answer."""
