"""A process that reads damaged contents, with its own limits of memory and file size."""

import os
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.fuzz.fuzz_readers import READERS
from benchmarks.fuzz.fuzz_world import World
from geogp.errors import GeogpError
from geogp.geodata.tiles.parquet_files import reading_process

MEMORY = 3 << 30
"""Memory for reading one content, in bytes, in addition to that of the libraries."""

FILE_BYTES = 64 << 20
"""Largest size of a written file."""

DATA, FAULT, TOO_MUCH = "data", "fault", "memory"


@dataclass(frozen=True)
class Answer:
    """Outcome of reading a content.

    Attributes
    ----------
    outcome
        ``data``, the name of a GeogpError, ``fault`` (another exception) or ``memory``.
    told
        A digest of the data, or the end of the traceback.
    where
        For a fault, the kind of error and the lines of geogp in its traceback.
    seconds
        Time of the reading.
    """

    outcome: str
    told: str
    where: str
    seconds: float


def read_one(reader: str, content: bytes, world: World) -> Answer:
    """Read one content in a folder that is deleted afterwards."""
    place = Path(tempfile.mkdtemp(prefix="geogp-fuzz-"))
    started = time.monotonic()
    outcome, told, where = DATA, "", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told = READERS[reader].read(world, content, place)
    except GeogpError as error:
        outcome, told = type(error).__name__, str(error)
    except MemoryError as error:
        outcome, told, where = TOO_MUCH, _end(error), _place(error)
    except Exception as error:  # noqa: BLE001 - what is no GeogpError is what is looked for
        outcome, told, where = FAULT, _end(error), _place(error)
    finally:
        seconds = time.monotonic() - started
        shutil.rmtree(place, ignore_errors=True)
    return Answer(outcome, told, where, seconds)


def serve(connection: Connection, folder: str) -> None:
    """Read contents until the connection is closed."""
    world = World(Path(folder))
    os.environ["GEOGP_CACHE"] = str(world.folder / "cache")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    limit()
    with suppress(EOFError, KeyboardInterrupt), reading_process():
        while True:
            reader, content = connection.recv()
            connection.send(read_one(reader, content, world))


def limit() -> None:
    """Limit the memory and file sizes of this process, and disable core dumps."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-2500:]


def _place(error: BaseException) -> str:
    """Return the kind of an error and the last lines of geogp in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/geogp/" in f.filename or "fuzz_readers" in f.filename]
    lines = [f"{Path(frame.filename).name}:{frame.name}" for frame in ours[-1:]]
    return " ".join([type(error).__name__, *lines, f"{frames[-1].name}" if frames else ""])
