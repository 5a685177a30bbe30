"""Logs of unexpected errors, with the traceback and the facts that a bug report needs.

The newest logs are in the folder ``logs`` of the cache, or in the system's folder for temporary
files. The command `geogp cache` does not list or delete logs.
"""

import datetime as dt
import os
import platform
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from geogp import __version__
from geogp.errors import without_secrets, word_without_secrets

MOST = 50
"""Number of logs that geogp keeps; it deletes older logs."""

_SHORTEST = 4
"""Smallest length of a secret that is removed; shorter texts may occur in other words."""

_LONGEST = 300
"""Largest length of an error's text in a message."""


def log_fault(error: BaseException) -> tuple[str, str]:
    """Write the log of an error; return the error on one line, and a sentence with the log's path.

    Passwords and other secrets in the addresses of the command are removed.
    """
    text = " ".join(_cleared(str(error)).split())
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    what = f"{type(error).__name__}: {cut}" if cut else type(error).__name__
    content = _content(error).encode(errors="backslashreplace")
    start = f"geogp-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-"
    for folder in _folders():
        with suppress(OSError, ValueError):  # a path may contain a null character
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".log", start, folder)
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            return what, f"The log is {name}"
    return what, "The log could not be written."


def _content(error: BaseException) -> str:
    lines = [
        f"geogp {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {shlex.join(map(word_without_secrets, sys.argv))}",
        f"time: {dt.datetime.now(dt.UTC).isoformat(timespec='seconds')}",
    ]
    if "RANK" in os.environ:
        lines.append(f"process {os.environ['RANK']} of torchrun")
    lines += ["", _cleared("".join(traceback.format_exception(error)))]
    return "\n".join(lines)


def _cleared(text: str) -> str:
    """Return a text without the secrets in its addresses and in the command's addresses."""
    instead: dict[str, str] = {}
    for word in sys.argv:
        for argument in (word, word.partition("=")[2]):  # option and value, or the value
            if (shown := word_without_secrets(argument)) != argument:
                instead |= dict.fromkeys(_secrets_in(argument), "...")
                instead[argument] = shown
    for secret in sorted(instead, key=len, reverse=True):
        for form in (secret, repr(secret)[1:-1]):  # the second is the form in Python's quotes
            text = text.replace(form, instead[secret])
    return without_secrets(text)


def _secrets_in(address: str) -> Iterator[str]:
    """Yield the secrets in an address: user name with password, password, and query."""
    _, _, rest = address.partition("//")
    names, _, _ = rest.rpartition("@")
    query = re.split("[?#]", address, maxsplit=1)[1:]
    for secret in (names, names.partition(":")[2], *query):
        if len(secret) >= _SHORTEST:
            yield secret


def _folders() -> Iterator[Path]:
    """Yield the possible folders for a log, the best folder first."""
    # The cache's module imports others, and the fault may be that such an import fails.
    with suppress(Exception):
        from geogp.geodata.store.cache_place import cache_folder  # noqa: PLC0415

        logs = cache_folder() / "logs"
        for old in sorted(logs.glob("geogp-*.log"))[: -MOST + 1]:
            old.unlink(missing_ok=True)
        yield logs
    yield Path(tempfile.gettempdir())
