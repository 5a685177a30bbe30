"""Parquet files, each read in another process: a damaged or hostile one is an error and no crash.

pyarrow ends the process on some footers, and a page of a few bytes can stand for gigabytes of rows.
So no file is opened here, not even one of the cache. What the process in `parquet_process.py` says
is believed as far as it can be: rows are counted as they come, and their form is checked.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from geogp.errors import DataError, ReadingError

MAX_MEMORY = 1 << 30
"""Bytes that the reading process may take, where the system can tell it so (Linux)."""

LIMITS = {
    # A chunk takes some 170 bytes: there is room for four thousand row groups of eleven columns.
    "bytes in a footer": 8 << 20,
    "rows": 1 << 28,  # a quarter of the whole world has some ten million
    "row groups": 1 << 16,
    "columns": 1 << 12,
    "rows in a group": 1 << 25,
    "bytes in a group": 2 << 30,  # of the wanted columns, packed or unpacked
}
"""What the footer of a file may say at most."""

MAX_TABLE_BYTES = 4 << 30
"""Bytes of a file that is held in memory as a whole: polygons, predictions."""


_OF_DAMAGE = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGTRAP", "SIGXCPU"})
"""Signals that a file can bring about; the others come from outside."""

READY = b"geogp reads Parquet files\n"
"""What the process says when it is ready."""

_MAX_LINES = 100
"""Lines that Python or a library may print before the process is ready."""


class DamagedParquetError(ValueError):
    """A file is no whole Parquet file; who asked for it says which, in a DataError."""


class RowGroup(NamedTuple):
    """What a footer says of a row group.

    `ends` are the least and greatest value of a column, or None where it does not say; `chunks`
    the name, first byte and length of columns.
    """

    ends: list[str] | None
    chunks: list[tuple[str, int, int]]


class ParquetReading:
    """A file that is open in the reading process.

    Its footer says `rows` and `schema`; `sha256` is that of the very bytes that are read, where it
    was asked for.
    """

    def __init__(self, process: "_Process", request: dict[str, Any]) -> None:
        self._process, self._request, self._start = process, request, 0
        told = self._ask("open", **request)
        self.rows: int = told["rows"]
        self.sha256: str | None = told["sha256"]
        self.schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"])))

    def groups(self, names: Sequence[str], key: str, aside: Sequence[str] = ()) -> list[RowGroup]:
        """Return the row groups, with the places of columns and the ends of the column `key`.

        The rows of `names` are wanted; those of `aside` are not, but their places are told.

        Raises
        ------
        DataError, DamagedParquetError
            A row group is too large, or not within the file; the file is damaged.
        """
        told = self._ask("groups", names=list(names), key=key, aside=list(aside))
        return [RowGroup(*one) for one in told["groups"]]

    def read(
        self, groups: Sequence[int] | None = None, names: Sequence[str] | None = None
    ) -> pa.Table:
        """Return rows: those of row groups, or of the whole file; text as plain text.

        Raises
        ------
        DataError, DamagedParquetError
            They are too many bytes, or all columns are wanted and two have one name; the file is
            damaged.
        """
        found = self.schema.names
        if names is None and len(set(found)) < len(found):
            raise DataError(f"expected columns with different names, found {', '.join(found)}.")
        most = MAX_TABLE_BYTES if groups is None else LIMITS["bytes in a group"]
        table: pa.Table = self._ask("rows", most, groups=groups, names=names)["table"]
        return table if names is None else table.select(list(names))

    def close(self) -> None:
        """Let go of the file; a process that has ended did so."""
        with self._process.turn, suppress(DataError, DamagedParquetError, ReadingError, OSError):
            if self._process.is_of(self._start):
                self._process.ask("close", number=id(self))

    def _ask(self, do: str, most: int = 0, **request: object) -> dict[str, Any]:
        """Ask about the file, which is opened again where another one has ended the process."""
        with self._process.turn:
            self._process.start()
            if do != "open" and self._start != self._process.starts:
                found = self._process.ask("open", number=id(self), **self._request)
                if found["sha256"] != self.sha256:
                    raise DataError("it changed while it was read.")
            self._start = self._process.starts
            return self._process.ask(do, most, number=id(self), **request)


@contextmanager
def reading_process() -> Iterator[None]:
    """Read all files that are opened within by one process, which takes a moment to start."""
    with _PROCESS.counting:
        _PROCESS.users += 1
    try:
        yield
    finally:
        with _PROCESS.counting:
            _PROCESS.users -= 1
            if not _PROCESS.users:
                _PROCESS.end()


@contextmanager
def open_parquet(
    path: Path, *, most_rows: int | None = None, hashed: bool = False
) -> Iterator[ParquetReading]:
    """Open a file; several may be open at once.

    Raises
    ------
    DataError
        Its footer says more rows, row groups or columns than can be.
    DamagedParquetError, OSError
        It is damaged, or cannot be opened.
    """
    limits = LIMITS if most_rows is None else {**LIMITS, "rows": most_rows}
    request = {"path": str(path.absolute()), "limits": limits, "hashed": hashed}
    with reading_process(), closing(ParquetReading(_PROCESS, request)) as opened:
        yield opened


def read_table(path: Path, most_rows: int | None = None) -> pa.Table:
    """Return a whole file.

    Raises
    ------
    DataError
        It is too large, or has two columns of one name.
    DamagedParquetError, OSError
        It is damaged, or cannot be opened.
    """
    try:
        with open_parquet(path, most_rows=most_rows) as opened:
            return opened.read()
    except DataError as error:
        raise DataError(f"{path} cannot be used: {error}") from error


class _Process:
    """The reading process: started for the first file, ended with the last.

    `turn` is held by who asks; `starts` counts how often the process was started.
    """

    def __init__(self) -> None:
        self.turn, self.counting = threading.Lock(), threading.Lock()
        self.starts = self.users = 0
        self._running: subprocess.Popen[bytes] | None = None
        self._left: subprocess.Popen[bytes] | None = None

    def is_of(self, start: int) -> bool:
        """Tell whether the process that was started then is still there."""
        return self._running is not None and start == self.starts

    def ask(self, do: str, most: int = 0, **request: object) -> dict[str, Any]:
        """Return the answer to a request, with `most` bytes of rows at most.

        Raises
        ------
        DataError, DamagedParquetError, OSError, ReadingError
            It is a refusal; the file is damaged, or ended the process; it cannot be opened; the
            process was ended from outside.
        """
        running = self._running
        assert running is not None
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            running.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            running.stdin.flush()
            told: dict[str, Any] = json.loads(running.stdout.readline())
            if do == "rows" and not told:
                table = _rows(running.stdout, most)
                told = {"table": table, **json.loads(running.stdout.readline())}
        except DataError:
            self.end()  # the rows that are left are not waited for
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._ended(running) from error
        except BaseException:
            self.end()  # an answer that comes later would be taken for that of another request
            raise
        if "refused" in told:
            raise DataError(told["refused"])
        if "damaged" in told:
            raise DamagedParquetError(" ".join(told["damaged"].split()))
        if "errno" in told:
            raise OSError(*told["errno"])
        return told

    def start(self) -> None:
        """Start the process, if it is not running, and wait until it has what it needs.

        Raises
        ------
        ReadingError
            It does not start.
        """
        if self._running is not None:
            return
        self.starts += 1
        program = Path(__file__).with_name("parquet_process.py")
        fault: Exception | None = None
        try:
            self._running = _started(program)
            stream = self._running.stdout
            assert stream is not None
            # What Python prints at its start is passed over.
            ready = any(stream.readline() == READY for _ in range(_MAX_LINES))
        except (OSError, ValueError, TypeError) as error:
            ready, fault = False, error
        except BaseException:
            self.end()
            raise
        if not ready:
            self.end()
            raise ReadingError(
                f"the process that reads Parquet files did not start ({sys.executable} {program}"
                f"{'' if fault is None else f': {fault}'}). Check that this Python can start "
                f"another Python process, and that there is enough memory."
            ) from fault

    def end(self) -> None:
        """End the process, wherever it is."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            running.communicate()

    def forget(self) -> None:
        """Leave the process to the one that this one was forked from, and start another."""
        self._left = self._running  # not closed: a thread of the other may hold its pipes
        self.turn, self.counting = threading.Lock(), threading.Lock()
        self._running = None

    def _ended(self, running: "subprocess.Popen[bytes]") -> DamagedParquetError | ReadingError:
        """Return what it means that the process has ended, or that no sense is in its answer."""
        try:
            status = running.wait(1.0)
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
        except subprocess.TimeoutExpired:
            status, how = 0, "an invalid answer"
        self.end()
        if status < 0 and how not in _OF_DAMAGE:
            return ReadingError(
                f"the process that reads Parquet files was stopped from outside ({how}). Run the "
                f"command again; downloaded data are kept."
            )
        return DamagedParquetError(
            f"reading it ended the reading process ({how}): the file is damaged, or needs more "
            f"than {MAX_MEMORY:,} bytes of memory"
        )


def _started(program: Path) -> "subprocess.Popen[bytes]":
    """Start a program apart from the signals of the terminal, with the modules of this process."""
    if not sys.executable:
        raise ValueError("the path of this Python is not known")
    paths = [str(path) for path in sys.path if path and isinstance(path, str | os.PathLike)]
    apart: dict[str, Any] = {"process_group": 0}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", str(program), str(MAX_MEMORY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve far more than they use
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
        **apart,
    )


def _rows(stream: IO[bytes], most: int) -> pa.Table:
    """Return the rows that come, whose form is checked."""
    batches, size = [], 0
    with pa.ipc.open_stream(stream) as coming:
        for batch in coming:
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise DataError(
                    f"expected text, found bytes that are not text ({error})."
                ) from error
            size += batch.nbytes
            if size > most:
                raise DataError(f"its rows unpack to more than {most:,} bytes.")
            batches.append(batch)
        return pa.Table.from_batches(batches, coming.schema)


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.forget)


def stop_reading() -> None:
    """End the reading process, whatever it does; who waits for it gets a ReadingError."""
    _PROCESS.end()
