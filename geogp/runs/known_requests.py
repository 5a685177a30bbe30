"""What this machine knows of earlier requests: the run that each of them describes.

To find out which run a request describes, geogp reads all its inputs. The cache folder keeps the
result, with the size and the modification time of every file in the folders that were read. While
these are the same, the same request describes the same run. Inputs from addresses are asked for
each time, so such requests are not kept.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec
from msgspec import Struct

from geogp import __version__
from geogp.errors import GeogpError
from geogp.files import read_json, write_text
from geogp.geodata.places.file_choice import existing_path
from geogp.geodata.store.addresses import is_address
from geogp.geodata.store.cache_place import cache_folder
from geogp.records.map_settings import MapSettings
from geogp.records.record_reading import run_text
from geogp.records.run_record import RunIdentity
from geogp.records.run_settings import PLACES
from geogp.runs.run_places import reads_tiles

MOST_FILES = 5_000
"""Most files of a request that is kept; a folder with more is no folder of data."""

Files = dict[str, tuple[int, int]]
"""Size in bytes and modification time (ns since 1970) of files, by path."""

MOST_REQUESTS = 200
"""Number of requests that are kept, the latest ones."""

_NO_PART = {"out", "fresh", "listener"}
"""Settings that say nothing about which run is requested."""


class KnownRequest(Struct, frozen=True):
    """A request that was read before: its run, the warnings about its inputs, and their files."""

    identity: RunIdentity
    warnings: list[str]
    files: Files


def known_request(settings: MapSettings) -> KnownRequest | None:
    """Return what is known of a request; None if it is new, or if its files are not the same."""
    path = _place(settings)
    with suppress(GeogpError, OSError, msgspec.ValidationError):
        known = msgspec.convert(read_json(path), KnownRequest) if path.is_file() else None
        if known is not None and known.files == files_of_request(settings):
            return known
    return None


def keep_request(
    settings: MapSettings, files: Files | None, identity: RunIdentity, warnings: Sequence[str]
) -> None:
    """Keep which run a request describes; `files` are its files before they were read."""
    if files is not None:
        with suppress(GeogpError, OSError):  # a full or read-only cache must not stop a map
            path = _place(settings)
            write_text(path, run_text(KnownRequest(identity, [*warnings], files)))
            older = sorted(path.parent.iterdir(), key=lambda file: -file.stat().st_mtime)
            for file in older[MOST_REQUESTS:]:
                file.unlink()


def files_of_request(settings: MapSettings) -> Files | None:
    """Return size and time of each file that a request may read; None if they are not all known.

    For a file, these are the files beside it whose names begin as its own does: a shapefile, for
    example, has several files. For a folder, these are all files in it.
    """
    places = [name for name in PLACES if name != "source" or reads_tiles(settings)]
    texts = [text for name in places for text in _texts(getattr(settings, name))]
    found: Files = {}
    for text in texts:
        place = existing_path(text)
        if is_address(text):
            return None
        for path in () if place is None else _files_of(place):
            if len(found) == MOST_FILES:
                return None
            status = path.stat()
            found[str(path)] = status.st_size, status.st_mtime_ns
    return found


def _files_of(place: Path) -> Iterator[Path]:
    """Yield the files that the reading of a place may read; see `files_of_request`."""
    if place.is_dir():
        # The readers follow links to folders, too.
        for folder, _, names in os.walk(place, followlinks=True):
            yield from (path for name in names if (path := Path(folder, name)).is_file())
    else:
        beside = (path for path in place.parent.iterdir() if path.name.startswith(place.stem))
        yield from filter(Path.is_file, beside)


def _texts(value: object) -> list[str]:
    """Return the texts of a setting, which may have several or none."""
    return [str(text) for text in (value if isinstance(value, list | tuple) else [value]) if text]


def _place(settings: MapSettings) -> Path:
    """Return the file of a request, whose name is a hash of all that the request depends on."""
    now = datetime.now(UTC)
    content = {
        # In a new quarter, there may be new data.
        "quarter": (now.year, (now.month - 1) // 3),
        "versions": [__version__, *map(version, ("torch", "numpy"))],
        "folder": os.getcwd(),  # noqa: PTH109 - of relative paths
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "settings": {k: v for k, v in asdict(settings).items() if k not in _NO_PART},
    }
    text = json.dumps(content, default=str, sort_keys=True)
    return cache_folder() / "requests" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
