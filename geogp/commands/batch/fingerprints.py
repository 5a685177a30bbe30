"""What decides a run, as one hash that needs no data to be read."""

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from glob import escape
from pathlib import Path

import numpy as np
import torch

from geogp import __version__
from geogp.commands.batch.batch_plan import plain_fields
from geogp.errors import NetworkError, UnreachableError
from geogp.geodata.store.cache import downloads_folder, readable_folder
from geogp.geodata.store.remote import GLANCE, RemoteFile
from geogp.geodata.store.sources import Folder, Source, Web, open_source
from geogp.geodata.tiles.ookla import all_quarters
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.tiles.tile_files import tile_file
from geogp.runs.settings import MapRequest

_BOUNDARIES = ("*.*", "GENZ*/shp/*.*")


class Fingerprints:
    """Makes the hashes of requests; asks about each file once.

    Hashed are the versions of geogp, PyTorch and NumPy, every field of the request, and for each
    file that the run may read what stands for its content: name, size and time of change of a file
    in a folder; size, ETag and date that the server tells of a file of tiles at an address; and of
    boundaries at an address, the notes in the cache, whose copies are what runs read.
    """

    def __init__(self) -> None:
        self._stamps: dict[str, str] = {}
        self._deaf: set[str] = set()

    def of(self, request: MapRequest) -> str | None:
        """Return the hash of a request as 64 digits; None where a source could not be asked."""
        try:
            stamps = [
                self._tiles(request),
                self._boundaries(open_source(str(request.boundaries))),
                [self._file(path) for layer in _layers(request) for path in _layer_files(layer)],
            ]
        except NetworkError:
            return None
        versions = [__version__, torch.__version__, np.__version__]
        content = json.dumps([versions, plain_fields(request), stamps], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def _tiles(self, request: MapRequest) -> list[str]:
        source = open_source(request.source)
        wanted = parse_quarters(request.quarters).all if request.quarters else all_quarters()
        return [self._tile(source, tile_file(request.service, quarter)) for quarter in wanted]

    def _tile(self, source: Source, name: str) -> str:
        if isinstance(source, Folder):
            return self._file(source.path / name)
        assert isinstance(source, Web)
        return self._once(f"{source.url}/{name}", lambda: self._asked(source.url, name))

    def _asked(self, url: str, name: str) -> str:
        """Ask a server about a file; one that does not answer is not asked again."""
        if url in self._deaf:
            raise UnreachableError(f"nothing answers at {url}.")
        with closing(RemoteFile(f"{url.rstrip('/')}/{name}", GLANCE)) as remote:
            try:
                return f"{name} {asdict(remote.version)}" if remote.open() else f"{name} absent"
            except UnreachableError:
                self._deaf.add(url)
                raise

    def _boundaries(self, source: Source) -> list[str]:
        if isinstance(source, Folder):
            found = {path for pattern in _BOUNDARIES for path in source.path.glob(pattern)}
            return [self._file(path) for path in sorted(found)]
        assert isinstance(source, Web)
        notes = downloads_folder() / readable_folder(source.url)
        return [_stamp(path) for path in sorted(notes.glob("*.json"))]  # runs add to them

    def _file(self, path: Path) -> str:
        return self._once(str(path), lambda: _stamp(path))

    def _once(self, key: str, make: Callable[[], str]) -> str:
        if key not in self._stamps:
            self._stamps[key] = make()
        return self._stamps[key]


def _layers(request: MapRequest) -> list[str]:
    """Return the polygons of the user's that a run reads."""
    return [*request.layers, *([] if request.strata is None else [request.strata])]


def _layer_files(layer: str) -> list[Path]:
    """Return what FILE or FILE:COLUMN may be of, with the parts of a shapefile."""
    named = [Path(text) for text in (layer, layer.rpartition(":")[0]) if text]
    return sorted({file for path in named for file in path.parent.glob(f"{escape(path.stem)}.*")})


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return f"{path.name} absent"
    return f"{path.name} {found.st_size} {found.st_mtime_ns}"
