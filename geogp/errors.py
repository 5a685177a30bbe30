"""Every error a user of geogp can meet.

A message says what was expected, what was found and what to do. `exit_code` is what the
command line returns when the error reaches it.
"""

import re

_NAMES = re.compile(r"//[^\s'\"<>]*@")
_QUERIES = re.compile(r"(?<=[^\s'\"<>])[?#][^\s'\"<>]+")


def without_secrets(text: str) -> str:
    """Return a text without names, passwords and queries of addresses.

    A query may be a signature or a token.
    """
    return _QUERIES.sub("?...", _NAMES.sub("//...@", text))


class GeogpError(Exception):
    """Base of all errors that geogp raises on purpose."""

    exit_code = 3


class RequestError(GeogpError, ValueError):
    """The request cannot be met as it stands: an unknown name, a value out of range."""

    exit_code = 2


class OutputError(GeogpError, OSError):
    """A result could not be written: the disk is full, or the path is not a folder."""

    exit_code = 2


class DataError(GeogpError, ValueError):
    """The input data are wrong or missing."""

    exit_code = 3


class NumericalError(GeogpError, RuntimeError):
    """A computation broke down: a matrix that does not factorise, a variance not positive."""

    exit_code = 3


class NetworkError(GeogpError, RuntimeError):
    """A remote source could not be reached or answered with an error.

    The message holds neither names and passwords nor the queries of addresses, which may be a
    signature or a token: a server can lead to such an address.
    """

    exit_code = 4

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class RefusedError(NetworkError):
    """A remote source lets nobody read without a name, or has no such file and does not say so."""


class UnreachableError(NetworkError):
    """Nothing answers at the address of a remote source."""
