"""Run the command `geogp` in forked copies of a process that has already loaded its modules.

New Python processes would take most of the time of a hundred runs.

A copy can count its changes in a folder, and kill or stop itself right before one of these changes;
see `Changes`.
"""

import json
import os
import pkgutil
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import geogp.commands.fetch  # what `geogp fetch` loads when it is called
import geogp_cli
from benchmarks.script import forking
from geogp.maps.scales import paletted_png
from geogp_cli.entry import run

MAX_BYTES = 12 << 30
"""Limit of a copy's address space, so that a command cannot use up the machine's memory."""

MAX_SECONDS = 90
"""Processor seconds of a copy, after which ``SIGXCPU`` ends it."""

_LOADED_LATE = ("torch._dynamo", "matplotlib.pyplot", "h5netcdf", "distributed", "pyogrio.raw")

_PATHS = {
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.chmod": ((0, 2),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, None),),
}
"""Python audit events that change a folder, with positions of their paths and folders."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Changes:
    """Counts the system calls that change a folder, and kills or stops right before one call.

    Python reports the calls (``sys.addaudithook``), but not written bytes. Written bytes count
    twice when they are forced to disk: the first time, the second half of the file is not yet
    written. Files that a C library writes by itself are not seen; `seen` lists the observed files.

    Changes at any depth below the folder count. `at` is the number of the change to act before,
    from 1, or 0 for none; `act` is ``kill`` or ``stop``.
    """

    def __init__(self, folder: Path, at: int = 0, act: str = "kill") -> None:
        self.seen: list[tuple[str, str]] = []
        self._root = os.path.realpath(folder)
        self._at, self._act = at, act
        self._busy = False

    def watch(self) -> None:
        """Start counting, until the process ends."""
        forced: Callable[[int], None] = os.fsync

        def fsync(file: Any) -> None:
            handle = file if isinstance(file, int) else file.fileno()
            self._written(handle)
            forced(handle)

        os.fsync = fsync
        sys.addaudithook(self._heard)

    def _heard(self, event: str, details: tuple[Any, ...]) -> None:
        if self._busy or (event != "open" and event not in _PATHS):
            return
        self._busy = True  # resolving a path is an audit event too
        try:
            if event == "open":
                place, _, flags = details
                anew = not isinstance(place, int) and isinstance(flags, int)
                paths = [self._inside(place, None)] if anew and flags & _WRITES else []
            else:
                paths = [
                    self._inside(details[at], None if beside is None else details[beside])
                    for at, beside in _PATHS[event]
                ]
            found = [path for path in paths if path is not None]
            if found:
                self._count(event.removeprefix("os."), found[-1])
        finally:
            self._busy = False

    def _written(self, handle: int) -> None:
        path = self._inside(handle, None)
        if path is None:
            return
        self._busy = True
        try:
            self._count("write", path, lambda: os.ftruncate(handle, os.fstat(handle).st_size // 2))
            self._count("fsync", path)
        finally:
            self._busy = False

    def _inside(self, place: Any, beside: Any) -> str | None:
        """Return the resolved path if it is in the folder or is the folder."""
        if isinstance(place, int):
            with suppress(OSError):
                place = Path(f"/proc/self/fd/{place}").readlink()
        if isinstance(place, int) or place is None:
            return None
        text = os.fsdecode(place)
        if isinstance(beside, int) and beside >= 0:
            text = str(Path(f"/proc/self/fd/{beside}").readlink() / text)
        parent, name = os.path.split(os.path.abspath(text))  # noqa: PTH100
        whole = os.path.join(os.path.realpath(parent), name)  # noqa: PTH118
        return whole if whole == self._root or whole.startswith(self._root + os.sep) else None

    def _count(self, what: str, path: str, before: Callable[[], None] | None = None) -> None:
        self.seen.append((what, path))
        if len(self.seen) != self._at:
            return
        if before is not None and self._act == "kill":
            before()
        os.kill(os.getpid(), signal.SIGKILL if self._act == "kill" else signal.SIGSTOP)


def all_modules() -> list[str]:
    """Return the names of the modules that the command may load when it is called."""
    found = [
        module.name
        for package in (geogp, geogp_cli)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [*(name for name in found if not name.endswith("__main__")), *_LOADED_LATE]


def start(
    arguments: Sequence[str],
    logs: Path,
    environment: dict[str, str],
    modules: Sequence[str] = (),
    **asked: Any,
) -> ForkServerProcess:
    """Start the command in a copy of a process that has loaded this file and some modules.

    `logs` is the folder for the files ``output`` and ``errors``; `environment` has variables in
    addition. The first call decides which modules are loaded. Further options are ``changes``, the
    parameters of `Changes`; ``record``, the file for the observed changes; and ``pictures``, false
    for empty figures that take no time.
    """
    context = forking("benchmarks.faults.fork_command", *modules)
    given = (arguments, logs, environment)
    process = context.Process(target=_become_the_command, args=given, kwargs=asked, daemon=True)
    process.start()
    return process


def _become_the_command(
    arguments: Sequence[str],
    logs: Path,
    environment: dict[str, str],
    *,
    changes: dict[str, Any] | None = None,
    record: Path | None = None,
    pictures: bool = True,
) -> None:
    for name, stream in (("output", 1), ("errors", 2)):
        handle = os.open(logs / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, stream)
        os.close(handle)
    sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))  # noqa: SIM115
    os.environ.update(environment)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not pictures:
        leave_out_pictures()
    watched = Changes(**changes) if changes else None
    if watched is not None:
        watched.watch()
    sys.argv = ["geogp", *map(str, arguments)]
    try:
        run()
    finally:
        if watched is not None and record is not None:
            record.write_text(json.dumps(watched.seen), "utf-8")


def leave_out_pictures(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let Matplotlib write one clear pixel: drawing takes most of the time of a small run."""
    pixel = paletted_png(np.zeros((1, 1), np.uint8), np.zeros((1, 4), np.uint8))

    def savefig(_: Figure, file: Any, **__: Any) -> None:
        if hasattr(file, "write"):
            file.write(pixel)
        else:
            Path(file).write_bytes(pixel)

    put(Figure, "savefig", savefig)
