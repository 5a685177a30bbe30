"""The errors that geogp raises on purpose; `exit_code` is the exit code of the command."""

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

    A query may be a signature or a token. For a single address, use `word_without_secrets`, because
    the end of a query with a space or a quote is unknown in a text.
    """
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text


def word_without_secrets(word: str) -> str:
    """Return a word of a command without secrets; the word contains at most one address."""
    for pattern, instead in _IN_WORDS:
        word = pattern.sub(instead, word)
    return word


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


class ReadingError(GeogpError, RuntimeError):
    """Files cannot be read now, because the process that reads files is not running."""


class NumericalError(GeogpError, RuntimeError):
    """A computation failed: for example, a variance is not positive."""


class NetworkError(GeogpError, RuntimeError):
    """A remote source could not be reached or answered with an error.

    The message contains no user names, passwords or queries of addresses.
    """

    exit_code = 4

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class RefusedError(NetworkError):
    """A remote source refuses anonymous access; some sources also answer so for a missing file."""


class UnreachableError(NetworkError):
    """The address of a remote source does not answer."""
