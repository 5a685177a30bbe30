"""The entry point of the command, which reports every error as one line and an exit code.

Most modules are imported after the first `try`, so that errors during imports are reported, too.
"""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

from geogp.errors import GeogpError, OutputError, RequestError, visible_lines, word_without_secrets

BROKEN_PIPE = 1
"""Exit code if the program that reads the output, such as ``head``, ends early."""

FAULT = 70
INTERRUPTED = 130

_SYSTEM = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Free some space"),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP), "Choose another path"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "Choose a path that you have access to"
    ),
}
"""System errors that any file can cause, with advice for the user."""

_MEMORY = (
    *("not enough memory", "out of memory", "bad_alloc", "can't allocate memory"),
    "failed to map segment",  # from loading a library
)
"""Texts in error messages that mean that there is too little memory."""


def run() -> NoReturn:
    """Run the command, and end the process."""
    try:
        code = _flushed(_code())
    except KeyboardInterrupt:  # before a command has begun, or after it
        _say("interrupted.")
        code = INTERRUPTED
    sys.exit(code)


def _code() -> int | str | None:
    """Run the command, print the message of an error, and return the exit code."""
    try:
        _configure_streams()
        _check_folder()
        _check_words(sys.argv[1:])
        _command()
    except SystemExit as stop:
        return stop.code
    except Exception as error:  # noqa: BLE001 - the only place that handles unforeseen errors
        return _told(error)
    return 0


def _command() -> None:
    """Run the command; with torchrun, one process runs the command, and the others help."""
    from geogp.runs.machine import tune_process

    tune_process()
    from geogp_cli.main import app

    if "TORCHELASTIC_RUN_ID" not in os.environ:
        app()
        return
    from geogp.models.catalogue.shared_fits import team

    with team() as leads:
        if leads:
            app()


def _configure_streams() -> None:
    """Make standard output and standard error accept characters that cannot be encoded."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper):  # a Python program may have replaced it
            stream.reconfigure(errors="backslashreplace")


def _check_folder() -> None:
    """Raise RequestError if the working directory was deleted."""
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() is the same
    except FileNotFoundError as error:
        raise RequestError(
            "the working directory no longer exists. Change to another directory (cd)."
        ) from error


def _check_words(words: list[str]) -> None:
    """Raise RequestError if a word of the command is empty or is not valid UTF-8."""
    for word in words:
        shown = word.encode(errors="backslashreplace").decode()
        if shown != word:
            raise RequestError(
                f"expected text in UTF-8, found {word_without_secrets(shown)}. Rename the file or "
                "folder."
            )
        option, equals, value = word.partition("=")
        if not word or (option.startswith("--") and equals and not value):
            raise RequestError(
                f"expected a value, found no value ({word or repr('')}). Give a value, or "
                f"leave the option out."
            )


def _told(error: Exception) -> int:
    """Print the message of an error; return the exit code."""
    if any(isinstance(one, KeyboardInterrupt) for one in _chain(error)):
        raise KeyboardInterrupt from error  # the interrupted code replaced the error
    if isinstance(error, GeogpError):
        _say(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return BROKEN_PIPE
    if isinstance(error, OSError) and error.errno in _SYSTEM:
        what = "the output" if error.filename is None else os.fsdecode(error.filename)
        _say(f"cannot use {what}: {error.strerror}. {_SYSTEM[error.errno]}.")
        return OutputError.exit_code
    from geogp.commands.fault_logs import log_fault

    what, where = log_fault(error)
    if _lacks_memory(error):
        _say(
            f"there is too little memory ({what}). Choose a smaller --preset, fewer "
            f"--quarters or a smaller --zoom, or provide more memory. {where}"
        )
    else:
        _say(f"a bug in geogp ({what}). Please report it. {where}")
    return FAULT


def _lacks_memory(error: Exception) -> bool:
    return any(
        isinstance(one, MemoryError)
        or (isinstance(one, OSError) and one.errno == errno.ENOMEM)
        or any(words in str(one).lower() for words in _MEMORY)
        for one in _chain(error)
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _say(message: str) -> None:
    """Print an error on one line, if printing is possible."""
    try:
        from geogp_cli.console import fail

        fail(message)
    except Exception:  # noqa: BLE001 - out of memory, or standard error is full
        with suppress(Exception):
            sys.stderr.write(f"error: {visible_lines(message)}\n")


def _flushed(code: int | str | None) -> int | str | None:
    """Write the buffered output; return the exit code, or the error's code if writing fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Without this, Python would flush again when it exits.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _told(error)
    return code


if __name__ == "__main__":
    run()
