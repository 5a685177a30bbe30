"""Reading of Parquet files in a separate process, so that a damaged file cannot crash geogp.

Some damaged footers crash the process in which pyarrow runs, and a page of a few bytes can expand
to gigabytes of rows. So `parquet_process.py` opens all files, even cached files, in a separate
process. geogp limits and checks the rows that this process sends.
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

from geogp.errors import DataError, ReadingError, named

MAX_MEMORY = 1 << 30
"""Largest memory of the reading process in bytes, on systems that can limit memory (Linux)."""

LIMITS = {
    # A chunk takes about 170 bytes, so four thousand row groups of eleven columns fit.
    "bytes in a footer": 8 << 20,
    "rows": 1 << 28,  # Ookla's file of a quarter has about ten million
    "row groups": 1 << 16,
    "columns": 1 << 12,
    "rows in a group": 1 << 25,
    "bytes in a group": 2 << 30,  # of the wanted columns, packed or unpacked
}
"""Largest sizes that the footer of a file may declare."""

MAX_TABLE_BYTES = 4 << 30
"""Largest number of bytes of a table that is read as a whole, such as polygons or predictions."""

_OF_DAMAGE = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGTRAP", "SIGXCPU"})
"""Signals that a damaged file can cause; other signals come from other programs."""

READY = b"geogp reads Parquet files\n"  # what the process writes when it is ready
_MAX_LINES = 100  # most lines that Python or a library may print before `READY`


class DamagedParquetError(ValueError):
    """A file is not a complete Parquet file; the caller raises a DataError with the file's name."""


class RowGroup(NamedTuple):
    """Value range of the first requested column in a row group, and byte ranges of columns.

    `ends` are minimum and maximum, or None. `chunks` are names, first bytes and lengths of columns.
    """

    ends: list[str] | None
    chunks: list[tuple[str, int, int]]


class ParquetReading:
    """A Parquet file that is open in the reading process.

    `sha256` is the hash of the file, or None if no hash was requested. The methods raise DataError
    if a part of the file is too large, and DamagedParquetError if the file is damaged.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._request, self._start = request, 0
        answer = self._ask("open", **request)
        self.rows: int = answer["rows"]
        self.sha256: str | None = answer["sha256"]
        self.schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(answer["schema"])))

    def groups(self, names: Sequence[str], aside: Sequence[str] = ()) -> list[RowGroup]:
        """Return the row groups, with the positions of the columns in `names` and `aside`.

        Columns in `aside` are not read. Raises DataError if a column in `names` is partly outside
        the file.
        """
        answer = self._ask("groups", names=list(names), aside=list(aside))
        return [RowGroup(*group) for group in answer["groups"]]

    def read(
        self, groups: Sequence[int] | None = None, names: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of some row groups, or of the whole file, without dictionary encoding.

        Raises DataError also if `names` is None and two columns have the same name.
        """
        columns = self.schema.names
        if names is None and len(set(columns)) < len(columns):
            raise DataError(f"expected columns with different names, found {named(columns)}.")
        most = MAX_TABLE_BYTES if groups is None else LIMITS["bytes in a group"]
        table: pa.Table = self._ask("rows", most, groups=groups, names=names)["table"]
        return table if names is None else table.select(list(names))

    def close(self) -> None:
        """Close the file, unless the process that opened it has ended."""
        with _PROCESS.turn, suppress(ReadingError, OSError, ValueError):
            if _PROCESS.running is not None and self._start == _PROCESS.starts:
                _PROCESS.ask("close", number=id(self))

    def _ask(self, do: str, most: int = 0, **request: object) -> dict[str, Any]:
        """Return the answer to a request; after a restart, open the file again first."""
        with _PROCESS.turn:
            _PROCESS.start()
            if do != "open" and self._start != _PROCESS.starts:
                answer = _PROCESS.ask("open", number=id(self), **self._request)
                if answer["sha256"] != self.sha256:
                    raise DataError("the file changed while it was read.")
            self._start = _PROCESS.starts
            return _PROCESS.ask(do, most, number=id(self), **request)


@contextmanager
def reading_process() -> Iterator[None]:
    """Read all files of a ``with`` block in one process, because each start takes time."""
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
    """Open a Parquet file for a ``with`` block; several files may be open at once.

    Raises DataError if the footer declares too many rows, row groups or columns,
    DamagedParquetError if the file is damaged, and OSError if it cannot be opened.
    """
    limits = LIMITS if most_rows is None else {**LIMITS, "rows": most_rows}
    request = {"path": str(path.absolute()), "limits": limits, "hashed": hashed}
    with reading_process(), closing(ParquetReading(request)) as opened:
        yield opened


def read_table(path: Path, most_rows: int | None = None) -> pa.Table:
    """Return a whole Parquet file as a table; raise the errors of `open_parquet` and `read`."""
    try:
        with open_parquet(path, most_rows=most_rows) as opened:
            return opened.read()
    except DataError as error:
        raise DataError(f"{path} cannot be used: {error}") from error


class _Process:
    """The reading process, which runs while at least one Parquet file is open.

    A thread holds the lock `turn` during a request; `starts` counts the starts of the process.
    """

    def __init__(self) -> None:
        self.turn, self.counting = threading.Lock(), threading.Lock()
        self.starts = self.users = 0
        self.running: subprocess.Popen[bytes] | None = None

    def ask(self, do: str, most: int = 0, **request: object) -> dict[str, Any]:
        """Return the process's answer to a request, with at most `most` bytes of rows.

        Raises DataError if the process refuses the file, and DamagedParquetError if the file is
        damaged or ended the process. Raises OSError if the file cannot be opened, and ReadingError
        if another program ended the process.
        """
        running = self.running
        assert running is not None
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            running.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            running.stdin.flush()
            answer: dict[str, Any] = json.loads(running.stdout.readline())
            if do == "rows" and not answer:
                table = _rows(running.stdout, most)
                answer = {"table": table, **json.loads(running.stdout.readline())}
        except DataError:
            self.end()  # the remaining rows are not read
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._ended(running) from error
        except BaseException:
            self.end()  # a late answer would be read as the answer to another request
            raise
        if "refused" in answer:
            raise DataError(answer["refused"])
        if "damaged" in answer:
            raise DamagedParquetError(" ".join(answer["damaged"].split()))
        if "errno" in answer:
            raise OSError(*answer["errno"])
        return answer

    def start(self) -> None:
        """Start the process, if it is not running; raise ReadingError if the start fails."""
        if self.running is not None:
            return
        self.starts += 1
        program = Path(__file__).with_name("parquet_process.py")
        try:
            self.running = _started(program)
            assert self.running.stdout is not None
            if not any(self.running.stdout.readline() == READY for _ in range(_MAX_LINES)):
                raise ValueError("no answer")  # noqa: TRY301
        except BaseException as error:
            self.end()
            if not isinstance(error, OSError | ValueError | TypeError):
                raise
            raise ReadingError(
                f"the process that reads Parquet files did not start ({sys.executable} {program}: "
                f"{error}). Check that this Python can start another Python process, and that "
                f"there is enough memory."
            ) from error

    def end(self) -> None:
        """End the process, even during a request."""
        running, self.running = self.running, None
        if running is not None:
            running.kill()
            running.communicate()

    def forget(self) -> None:
        """After a fork, leave the process to the parent; the child starts its own process."""
        self._left = self.running  # not closed, because a thread of the parent may use its pipes
        self.turn, self.counting = threading.Lock(), threading.Lock()
        self.running = None

    def _ended(self, running: "subprocess.Popen[bytes]") -> DamagedParquetError | ReadingError:
        """End the process after an invalid or missing answer, and return the error to raise."""
        try:
            status = running.wait(1.0)
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
        except subprocess.TimeoutExpired:
            status, how = 0, "an invalid answer"
        self.end()
        if status < 0 and how not in _OF_DAMAGE:
            return ReadingError(
                f"another program stopped the process that reads Parquet files ({how}). Run the "
                f"command again; downloaded data are kept."
            )
        return DamagedParquetError(
            f"the process that read the file ended ({how}): the file is damaged, or needs more "
            f"than {MAX_MEMORY:,} bytes of memory"
        )


def _started(program: Path) -> "subprocess.Popen[bytes]":
    """Start a program with the same module path, and without signals from the terminal."""
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
            "ARROW_DEFAULT_MEMORY_POOL": "system",  # other pools reserve far more than they use
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
        **apart,
    )


def _rows(stream: IO[bytes], most: int) -> pa.Table:
    """Return the validated rows of a stream; raise DataError if they exceed `most` bytes."""
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
                raise DataError(f"the unpacked rows have more than {most:,} bytes.")
            batches.append(batch)
        return pa.Table.from_batches(batches, coming.schema)


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.forget)


def stop_reading() -> None:
    """End the reading process; a request in progress raises ReadingError."""
    _PROCESS.end()
