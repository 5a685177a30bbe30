"""Where the runs of a batch go: a folder, or a store that fsspec knows by its address.

Buckets (``s3://``) are written through pyarrow's own client, which geogp needs anyway: s3fs pins
a version of botocore by which it cannot stand beside others that use it.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from msgspec import UNSET
from pyarrow.fs import S3FileSystem

from geogp.commands.batch.batch_plan import check_name
from geogp.errors import DataError, GeogpError, NetworkError, OutputError, RequestError
from geogp.files import ELSEWHERE, plain_names, read_json, writing
from geogp.records.record_reading import record_of
from geogp.records.run_record import RunRecord
from geogp.runs.file_records import spoilt, spoilt_of_sizes
from geogp.runs.locks import LOCK_FILES, hold
from geogp.runs.run_folder import LATER_FILES
from geogp.runs.run_identity import same_map
from geogp.runs.run_names import RUN_FILE

BLOCK = 1 << 20
"""Bytes that are copied at once."""

COPYING_FILE = ".copying.json"
"""The run.json of a run that is being copied to a place: of what a copy that was stopped left."""


@dataclass(frozen=True)
class Place:
    """A folder, here or elsewhere, that holds the runs of a batch.

    Attributes
    ----------
    address
        As the user wrote it; a folder is absolute.
    files, root
        The file system, and the path of the place in it.
    local
        Whether it is a folder on this machine.
    """

    address: str
    files: Any
    root: str
    local: bool

    def show(self, *parts: str) -> str:
        """Return the address of something in it."""
        return "/".join([self.address.rstrip("/"), *parts])

    def has(self, *parts: str) -> bool:
        """Tell whether there is such a file."""
        with self._reaching("read", *parts):
            return bool(self.files.isfile(self._path(*parts)))

    def read(self, *parts: str) -> bytes | None:
        """Return a file's content; None where there is none."""
        with self._reaching("read", *parts):
            try:
                found: bytes = self.files.cat_file(self._path(*parts))
            except FileNotFoundError:
                return None
            return found

    @contextmanager
    def opened(self, *parts: str) -> Iterator[BinaryIO]:
        """Open a file to be read, in parts and from any place of it."""
        with (
            self._reaching("read", *parts),
            self.files.open(self._path(*parts), "rb") as stream,
        ):
            yield stream

    def fetch(self, into: Path, *parts: str) -> Path:
        """Copy a file to this machine."""
        into.parent.mkdir(parents=True, exist_ok=True)
        with self.opened(*parts) as source, writing(into) as target:
            shutil.copyfileobj(source, target, BLOCK)
        return into

    def modified(self, *parts: str) -> float:
        """Return when a file was written, in seconds since 1970."""
        with self._reaching("read", *parts):
            return float(self.files.modified(self._path(*parts)).timestamp())

    def write(self, content: bytes, *parts: str) -> None:
        """Write a file, which is then either whole or as it was."""
        if self.local:
            with writing(Path(self._path(*parts))) as stream:
                stream.write(content)
            return
        with self._reaching("write", *parts):
            self.files.pipe_file(self._path(*parts), content)

    def put(self, path: Path, *parts: str) -> None:
        """Copy a file of this machine there.

        Raises
        ------
        OutputError, NetworkError
            It cannot be written, or has another size there.
        """
        if self.local:
            with path.open("rb") as source, writing(Path(self._path(*parts))) as target:
                shutil.copyfileobj(source, target, BLOCK)
            found = path.stat()  # run.json knows the time: an equal one spares its hash
            os.utime(self._path(*parts), ns=(found.st_atime_ns, found.st_mtime_ns))
            return
        with self._reaching("write", *parts):
            with path.open("rb") as source, self.files.open(self._path(*parts), "wb") as target:
                shutil.copyfileobj(source, target, BLOCK)
            stored = self.files.size(self._path(*parts))
            if stored != path.stat().st_size:
                raise OSError(f"{stored} of {path.stat().st_size} bytes arrived")

    def put_run(self, folder: Path, name: str) -> None:
        """Copy a finished run there; run.json, which marks it as finished, comes last.

        Files of the run before that this one lacks go, and with another fit or map what commands
        wrote into it (`LATER_FILES`); whatever else is in the folder stays. A folder of this
        machine is held meanwhile; a store at an address has no locks.

        Raises
        ------
        OutputError, NetworkError
            It cannot be written; then there is no run.json.
        """
        with hold(Path(self._path(check_name(name))), wait=True) if self.local else nullcontext():
            self._put_run(folder, name)

    def _put_run(self, folder: Path, name: str) -> None:
        own = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and ".unfinished" not in path.parts
        }
        for lock in LOCK_FILES:
            own.pop(lock, None)
        mark = own.pop(RUN_FILE)
        for stale in self._stale(name, record_of(read_json(mark))):
            if stale not in own:
                self.remove(name, *stale.split("/"))
        self.put(mark, name, COPYING_FILE)  # a stop from here on leaves files that it names
        self.remove(name, RUN_FILE)
        for relative, path in own.items():
            self.put(path, name, *relative.split("/"))
        self.put(mark, name, RUN_FILE)
        self.remove(name, COPYING_FILE)

    def _stale(self, name: str, run: RunRecord) -> list[str]:
        """Return the files in a run's folder that are of a run before, or outdated by this one."""
        patterns: set[str] = set()
        names: set[str] = set()
        for file in (RUN_FILE, COPYING_FILE):
            content = self.read(name, file)
            if content is None:
                continue  # files that nothing says to be of a run are the user's
            held = _run_of(content)
            names |= set(_files(held))
            if held is None or not same_map(held, run):
                patterns |= set(LATER_FILES)
        tops = {path: path.partition("/")[0] for path in self.listed(name)}
        return [
            path
            for path, top in tops.items()
            if top in names or any(fnmatchcase(top, pattern) for pattern in patterns)
        ]

    def read_run(self, name: str) -> RunRecord | None:
        """Return what run.json of a finished run holds; None where none can be read."""
        content = self.read(check_name(name), RUN_FILE)
        return None if content is None else _run_of(content)

    def get_run(self, folder: Path, name: str, run: RunRecord) -> None:
        """Copy to this machine what there is of a finished run; run.json comes last.

        Parameters
        ----------
        folder
            Where it goes.
        name
            Of the run.
        run
            What its run.json holds.
        """
        files = _files(run)
        for relative in self.listed(name):
            parts = relative.split("/")
            if parts[0] in files:
                self.fetch(folder / relative, name, *parts)
        self.fetch(folder / RUN_FILE, name, RUN_FILE)

    def spoilt(self, name: str, run: RunRecord) -> list[str]:
        """Return the files of a finished run that are missing there, or are not what they were.

        Of a store at an address only what it lists is looked at: names and sizes.

        Parameters
        ----------
        name
            Of the run.
        run
            What its run.json holds.
        """
        root = self._path(check_name(name))
        with self._reaching("read", name):
            if self.local:
                return spoilt(Path(root), run)
            found = self.files.find(root, detail=True) if self.files.isdir(root) else {}
        sizes = {str(path)[len(root) :].strip("/"): one["size"] for path, one in found.items()}
        return spoilt_of_sizes(sizes, run)

    def listed(self, name: str) -> list[str]:
        """Return the files in a folder of the place, by their names in it."""
        root = self._path(check_name(name))
        with self._reaching("read", name):
            found = self.files.find(root) if self.files.isdir(root) else []
        return [str(path)[len(root) :].strip("/") for path in found]

    def remove(self, *parts: str) -> None:
        """Remove a file where there is one."""
        with self._reaching("write", *parts):
            try:
                self.files.rm_file(self._path(*parts))
            except FileNotFoundError:
                return

    def mark(self, name: str) -> str | None:
        """Return the SHA-256 of a finished run's run.json; None where there is no finished run."""
        content = self.read(check_name(name), RUN_FILE)
        return None if content is None else sha256(content).hexdigest()

    def _path(self, *parts: str) -> str:
        if any(part in {"", ".", ".."} or "/" in part or "\\" in part for part in parts):
            raise DataError(f"expected names of files in {self.address}, found {parts}.")
        return str(PurePosixPath(self.root, *parts))

    @contextmanager
    def _reaching(self, what: str, *parts: str) -> Iterator[None]:
        """Turn what the store raises into errors of geogp."""
        try:
            yield
        except GeogpError:
            raise
        except (OSError, ValueError) as error:
            told = f"cannot {what} {self.show(*parts)}: {error}."
            if self.local:
                raise OutputError(f"{told} {ELSEWHERE[0].upper()}{ELSEWHERE[1:]}.") from error
            raise NetworkError(
                f"{told} Check the address, the connection and what the store lets you do."
            ) from error


def open_place(address: str) -> Place:
    """Return the place of an address: a folder, or one that starts like ``s3://``.

    A bucket is that of the usual settings of AWS: its keys and region from the environment or
    ~/.aws, its server from ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` where one is set.

    Raises
    ------
    RequestError
        The address holds a password, is of an unknown kind, or needs a package that is absent.
    """
    if "://" not in address:
        return _folder(address)
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise RequestError(
            "an address with a user name or password would be shown and kept; put them where the "
            "store's own client looks for them, and give the address without."
        )
    if parts.scheme in {"file", "local"}:
        return _folder(parts.path)
    if parts.scheme == "s3":
        root = f"{parts.netloc}{parts.path}".rstrip("/")
        if not parts.netloc:
            raise RequestError(f"expected an address like s3://bucket/folder, found {address}.")
        return Place(address, ArrowFSWrapper(_s3(), skip_instance_cache=True), root, local=False)
    try:
        files, root = fsspec.url_to_fs(address, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise RequestError(f"cannot write to {address}: {error}.") from error
    return Place(address, files, str(root).rstrip("/"), local=False)


def _run_of(content: bytes) -> RunRecord | None:
    """Return what a run.json holds; None where it cannot be read, or names files elsewhere."""
    try:
        held = record_of(json.loads(content))
        _files(held)
    except ValueError:  # DataError is one
        return None
    return held


def _files(run: RunRecord | None) -> list[str]:
    return [] if run is None or run.files is UNSET else plain_names(run.files)


def _folder(path: str) -> Place:
    where = Path(path).expanduser().resolve()
    for place in (where, *where.parents):
        if place.is_dir():
            break
        if place.exists():
            raise RequestError(f"{place} is a file; --out needs a folder.")
    return Place(str(where), fsspec.filesystem("file"), where.as_posix(), local=True)


def _s3() -> S3FileSystem:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return S3FileSystem(endpoint_override=endpoint or None, region=region or None)
