"""The program that reads Parquet files in a separate process, to protect geogp from crashes.

`parquet_files.py` starts this program. A request is a line of JSON on standard input, and the
answer is a line of JSON on standard output. Rows follow the answer as an Arrow stream; then a last
line tells whether the rows are complete. The program imports only pyarrow. On Linux, the memory of
the program is limited. On all systems, the sizes in the footer and the sizes of rows are checked.
"""

import base64
import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Container, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_MAX_SECONDS = 600  # CPU time for one request
_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 1 << 25  # most rows unpacked at once, and their likely bytes
_BLOCK = 1 << 20
_STACK_BYTES = 8 << 20
_MAX_ITEMS = 1 << 17  # most items of a list in a footer


class _RefusedError(Exception):
    """The content of a file is refused, for example because it is too large."""


class _OpenFile:
    """An open Parquet file whose footer has been checked."""

    def __init__(self, path: str, limits: dict[str, int], *, hashed: bool) -> None:
        self._file = pa.OSFile(path, "rb")
        size = self._file.size()
        tail = self._file.read_at(min(size, 8), max(0, size - 8))
        footer = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or not footer <= min(size - 12, limits["bytes in a footer"]):
            raise pa.ArrowInvalid(
                f"the file does not end with a footer of up to {limits['bytes in a footer']} bytes"
            )
        self._file.seek(0)
        self.sha256 = hashlib.file_digest(self._file, "sha256").hexdigest() if hashed else None
        self._table = pq.ParquetFile(
            self._file,
            pre_buffer=False,
            buffer_size=_BLOCK,
            page_checksum_verification=True,
            thrift_string_size_limit=limits["bytes in a footer"],
            thrift_container_size_limit=_MAX_ITEMS,
        )
        self._metadata = self._table.metadata
        self._size, self._limits = size, limits
        self._check()
        schema = self._metadata.schema
        self._paths = [schema.column(k).path for k in range(self._metadata.num_columns)]

    def described(self) -> dict[str, Any]:
        """Return the number of rows, the hash and the schema of the file."""
        schema = base64.b64encode(self._table.schema_arrow.serialize()).decode()
        rows = self._metadata.num_rows
        return {"rows": rows, "sha256": self.sha256, "schema": schema}

    def groups(self, names: Sequence[str], aside: Sequence[str]) -> list[Any]:
        """Return, for each row group, the value range of `names[0]`, and byte ranges of columns."""
        self._unpacked(self._groups, names)
        groups = []
        for group in self._groups:
            ends, chunks = None, []
            for path, chunk in self._chunks(group, {*names, *aside}):
                first, length = chunk.data_page_offset, chunk.total_compressed_size
                if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < first:
                    first = chunk.dictionary_page_offset
                inside = 4 <= first <= first + length <= self._size
                if path not in aside and group.num_rows and not inside:
                    raise _RefusedError(
                        f"the footer places column {path} at bytes {first} to {first + length}, "
                        f"but the file has {self._size} bytes."
                    )
                chunks.append([path, first, length])
                statistics = chunk.statistics if path == names[0] else None
                if statistics is not None and statistics.has_min_max:
                    try:
                        ends = [str(statistics.min), str(statistics.max)]
                    except UnicodeDecodeError as error:
                        raise _RefusedError(
                            f"expected text, found bytes that are not text ({error})."
                        ) from error
            groups.append([ends, chunks])
        return groups

    def rows(self, stream: BinaryIO, groups: list[int] | None, names: list[str] | None) -> None:
        """Write rows to a stream; dictionary columns become plain columns."""
        numbers = range(len(self._groups)) if groups is None else groups
        chosen = [k for k in numbers if self._groups[k].num_rows]
        size = self._unpacked([self._groups[k] for k in chosen], names)
        count = sum(self._groups[k].num_rows for k in chosen)
        at_once = max(1, min(_BATCH_ROWS, _BATCH_BYTES * count // max(1, size)))
        fields = [f for f in self._table.schema_arrow if names is None or f.name in names]
        plain = [
            f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in fields
        ]
        schema = pa.schema(plain, self._table.schema_arrow.metadata)
        stream.write(b"{}\n")  # rows follow, and then a line that says whether they are complete
        with pa.ipc.new_stream(stream, schema) as writer:
            for batch in self._table.iter_batches(at_once, chosen, names, use_threads=False):
                # The batch has the order of `names`, the schema that of the file.
                writer.write_batch(batch.select(schema.names).cast(schema))

    def close(self) -> None:
        """Close the file."""
        self._table.close(force=True)

    def _check(self) -> None:
        metadata = self._metadata
        self._refuse("rows", metadata.num_rows)
        self._refuse("row groups", metadata.num_row_groups)
        self._refuse("columns", metadata.num_columns)
        self._groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        rows = [group.num_rows for group in self._groups]
        self._refuse("rows in a group", max(rows, default=0))
        if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
            raise _RefusedError(
                f"the footer declares {metadata.num_rows:,} rows, but its row groups have "
                f"{sum(rows):,} in total."
            )

    def _refuse(self, what: str, number: int) -> None:
        if number > self._limits[what]:
            raise _RefusedError(
                f"the footer declares {number:,} {what}; expected at most {self._limits[what]:,}."
            )

    def _chunks(self, group: Any, names: Container[str] | None) -> list[tuple[str, Any]]:
        wanted = [k for k, path in enumerate(self._paths) if names is None or path in names]
        return [(self._paths[k], group.column(k)) for k in wanted]

    def _unpacked(self, groups: Sequence[Any], names: Sequence[str] | None) -> int:
        """Return the size of columns in row groups, in bytes; refuse a group that is too large."""
        sizes: list[int] = []
        for group in groups:
            chunks = [chunk for _, chunk in self._chunks(group, names)]
            packed = sum(max(0, chunk.total_compressed_size) for chunk in chunks)
            unpacked = sum(max(0, chunk.total_uncompressed_size) for chunk in chunks)
            sizes.append(max(packed, unpacked))
        self._refuse("bytes in a group", max(sizes, default=0))
        return sum(sizes)


def _told(error: Exception) -> dict[str, Any]:
    """Return the answer to a request that raised an error."""
    if isinstance(error, _RefusedError):
        return {"refused": str(error)}
    if isinstance(error, OSError) and error.errno:
        return {"errno": [error.errno, os.strerror(error.errno)]}
    if isinstance(error, MemoryError):
        return {"damaged": "the file needs more memory than allowed"}
    return {"damaged": str(error) or type(error).__name__}


def _limit(what: str, most: int) -> None:
    """Set a resource limit of this process, if the system has such limits; a lower limit stays."""
    if resource is not None:
        with contextlib.suppress(ValueError, OSError):
            kind = getattr(resource, what)
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if hard < 0 else min(most, hard), hard))


def _serve(stream: BinaryIO) -> None:
    """Answer the requests on standard input until the input ends."""
    files: dict[int, _OpenFile] = {}
    for line in sys.stdin.buffer:
        _limit("RLIMIT_CPU", int(time.process_time()) + _MAX_SECONDS)
        request, answer = json.loads(line), dict[str, Any]()
        do, number = request.pop("do"), request.pop("number")
        try:
            if do == "open":
                files[number] = _OpenFile(**request)
                answer = files[number].described()
            elif do == "groups":
                answer = {"groups": files[number].groups(**request)}
            elif do == "rows":
                files[number].rows(stream, **request)
            elif number in files:
                files.pop(number).close()
                pa.default_memory_pool().release_unused()
        except (pa.ArrowException, OSError, ValueError, MemoryError, _RefusedError) as error:
            answer = _told(error)
        stream.write(json.dumps(answer).encode() + b"\n")
        stream.flush()


def _keep_stacks_small() -> None:
    """Restart with a small stack if necessary, because the stacks of threads count as memory."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft > _STACK_BYTES:  # for an unlimited stack, -1: threads then get a default stack
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, hard))
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this very program


def _main(memory: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # geogp ends this process
    _limit("RLIMIT_DATA", memory)
    _limit("RLIMIT_CORE", 0)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    # Only answers go to the pipe; anything that a library prints is discarded.
    stream = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    stream.write(b"geogp reads Parquet files\n")  # READY of parquet_files.py
    stream.flush()
    _serve(stream)


if __name__ == "__main__":
    _keep_stacks_small()
    _main(int(sys.argv[1]))
