"""Logs of faults that nobody foresaw: the traceback, and what a report of it needs.

They stand in the folder ``logs`` of the cache, the newest `MOST` of them, or in the system's folder
of temporary files where the cache cannot be written. The cache lists and clears its downloads
alone, so logs stay until others take their place.
"""

import datetime as dt
import os
import platform
import re
import shlex
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from geogp import __version__
from geogp.errors import without_secrets, word_without_secrets

MOST = 50
"""Logs that are kept."""

_SHORTEST = 4
"""Characters of a secret that is looked for by itself: shorter ones are parts of other words."""

_LONGEST = 300
"""Characters of an error's text that are told on one line."""


def write_fault_log(error: BaseException, command: Sequence[str]) -> Path | None:
    """Write the log of an error, and return its path; None where no folder takes it.

    Parameters
    ----------
    error
        With its traceback.
    command
        The words of the command; secrets in addresses are left out, here and in the traceback.
    """
    content = _content(error, command).encode(errors="backslashreplace")
    start = f"geogp-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-"
    for folder in _folders():
        with suppress(OSError, ValueError):  # a path with a null character
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".log", start, folder)
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            return Path(name)
    return None


def one_line(error: BaseException, command: Sequence[str]) -> str:
    """Return the kind of an error and the beginning of its text, on one line, without secrets."""
    text = " ".join(_cleared(str(error), command).split())
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"{type(error).__name__}: {cut}" if cut else type(error).__name__


def _content(error: BaseException, command: Sequence[str]) -> str:
    lines = [
        f"geogp {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {shlex.join(map(word_without_secrets, command))}",
        f"time: {dt.datetime.now(dt.UTC).isoformat(timespec='seconds')}",
    ]
    if "RANK" in os.environ:
        lines.append(f"process {os.environ['RANK']} of torchrun's")
    lines += ["", _cleared("".join(traceback.format_exception(error)), command)]
    return "\n".join(lines)


def _cleared(text: str, command: Sequence[str]) -> str:
    """Return a text without the secrets of addresses, those of a command's words in any form."""
    instead: dict[str, str] = {}
    for word in command:
        for part in (word, word.partition("=")[2]):  # an option and its value, or the value
            if (shown := word_without_secrets(part)) != part:
                instead |= dict.fromkeys(_secrets_in(part), "...")
                instead[part] = shown
    for secret in sorted(instead, key=len, reverse=True):
        # As it is, and as Python writes it between quotes.
        for form in (secret, repr(secret)[1:-1]):
            text = text.replace(form, instead[secret])
    return without_secrets(text)


def _secrets_in(address: str) -> Iterator[str]:
    """Return what an error may tell of an address without the rest: password, name, query."""
    _, _, rest = address.partition("//")
    names, _, _ = rest.rpartition("@")
    query = re.split("[?#]", address, maxsplit=1)[1:]
    for secret in (names, names.partition(":")[2], *query):
        if len(secret) >= _SHORTEST:
            yield secret


def _folders() -> Iterator[Path]:
    """Return where a log may go, the best place first."""
    # The cache's module needs others, whose import may be the very thing that fails.
    with suppress(Exception):
        from geogp.geodata.store.cache import cache_folder  # noqa: PLC0415

        logs = cache_folder() / "logs"
        for old in sorted(logs.glob("geogp-*.log"))[: -MOST + 1]:
            old.unlink(missing_ok=True)
        yield logs
    yield Path(tempfile.gettempdir())
