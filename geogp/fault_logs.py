"""Logs of faults that nobody foresaw: the traceback, and what a report of it needs.

They stand in the folder ``logs`` of the cache, the newest `MOST` of them, or in the system's folder
of temporary files where the cache cannot be written. The cache lists and clears its downloads
alone, so logs stay until others take their place.
"""

import datetime as dt
import os
import platform
import shlex
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from geogp import __version__
from geogp.errors import without_secrets

MOST = 50
"""Logs that are kept."""

_LONGEST = 300
"""Characters of an error's text that are told on one line."""


def write_fault_log(error: BaseException, command: Sequence[str]) -> Path | None:
    """Write the log of an error, and return its path; None where no folder takes it.

    Parameters
    ----------
    error
        With its traceback.
    command
        The words of the command; passwords in addresses are left out.
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


def one_line(error: BaseException) -> str:
    """Return the kind of an error and the beginning of its text, on one line."""
    text = " ".join(without_secrets(str(error)).split())
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"{type(error).__name__}: {cut}" if cut else type(error).__name__


def _content(error: BaseException, command: Sequence[str]) -> str:
    lines = [
        f"geogp {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {shlex.join(command)}",
        f"time: {dt.datetime.now(dt.UTC).isoformat(timespec='seconds')}",
    ]
    if "RANK" in os.environ:
        lines.append(f"process {os.environ['RANK']} of torchrun's")
    lines += ["", *traceback.format_exception(error)]
    return without_secrets("\n".join(lines))


def _folders() -> Iterator[Path]:
    """Return where a log may go, the best place first."""
    # The cache's module needs others, whose import may be the very thing that fails.
    with suppress(Exception):
        from geogp.geodata.cache import cache_folder  # noqa: PLC0415

        logs = cache_folder() / "logs"
        for old in sorted(logs.glob("geogp-*.log"))[: -MOST + 1]:
            old.unlink(missing_ok=True)
        yield logs
    yield Path(tempfile.gettempdir())
