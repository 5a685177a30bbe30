"""The batch folder, which contains the runs of a batch: a local folder or a remote address.

Buckets (``s3://``) are written with pyarrow's client, because geogp needs pyarrow anyway. s3fs is
not used, because it pins a version of botocore that conflicts with other packages.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import S3FileSystem

from geogp.errors import DataError, GeogpError, NetworkError, OutputError, RequestError, named
from geogp.files import ELSEWHERE, check_folder, read_json, write_bytes
from geogp.geodata.store.addresses import s3_endpoint
from geogp.records.record_reading import record_of
from geogp.records.run_record import RunRecord
from geogp.runs.file_records import files_of, files_of_wrong_size
from geogp.runs.locks import LOCK_FILES
from geogp.runs.run_folder import LATER_FILES
from geogp.runs.run_identity import same_map
from geogp.runs.run_names import RUN_FILE

COPYING_FILE = ".copying.json"
"""Name that run.json has at a remote address until all other files of the run are copied."""


@dataclass(frozen=True)
class Place:
    """The batch folder, local or remote, which contains the runs of a batch.

    `root` is the path in the file system `files`. Runs are made directly in a local batch folder.
    """

    address: str
    files: Any
    root: str
    local: bool

    def show(self, *parts: str) -> str:
        """Return the address of a file or folder in the batch folder."""
        return "/".join([self.address.rstrip("/"), *parts])

    def read(self, *parts: str) -> bytes | None:
        """Return the content of a file; None if the file does not exist."""
        with self._reaching("read", *parts) as path:
            try:
                found: bytes = self.files.cat_file(path)
            except FileNotFoundError:
                return None
            return found

    @contextmanager
    def opened(self, *parts: str) -> Iterator[BinaryIO]:
        """Open a file from which any part can be read."""
        with self._reaching("read", *parts) as path, self.files.open(path, "rb") as stream:
            yield stream

    def write(self, content: bytes, *parts: str) -> None:
        """Write a file completely; leave it unchanged if writing fails."""
        with self._reaching("write", *parts) as path:
            if self.local:
                write_bytes(Path(path), content)
            else:
                self.files.pipe_file(path, content)

    def put(self, file: Path, *parts: str) -> None:
        """Copy a local file to the batch folder."""
        with self._reaching("write", *parts) as path:
            self.files.put_file(str(file), path)

    def fetch(self, into: Path, *parts: str) -> None:
        """Copy a file, with its modification time, from the batch folder to this machine."""
        with self._reaching("read", *parts) as path:
            self.files.get_file(path, str(into))
            written = self.files.modified(path).timestamp()
            os.utime(into, (written, written))

    def sizes(self, *parts: str) -> dict[str, int]:
        """Return the size in bytes of each file in a subfolder, by path in the subfolder."""
        with self._reaching("read", *parts) as root:
            found = self.files.find(root, detail=True) if self.files.isdir(root) else {}
        return {str(path)[len(root) :].strip("/"): one["size"] for path, one in found.items()}

    def put_run(self, folder: Path, name: str) -> None:
        """Copy a finished run; run.json is copied last, because it marks the run as finished.

        Outdated files of an earlier run are removed; other files stay. Raises NetworkError if the
        batch folder cannot be written; run.json is then absent.
        """
        own = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and ".unfinished" not in path.parts
        }
        mark = own.pop(RUN_FILE)
        run, there = record_of(read_json(mark)), set(self.sizes(name))
        for stale in self._stale(name, run, there) - own.keys():
            self._remove(name, *stale.split("/"))
        self.put(mark, name, COPYING_FILE)  # lists the files if copying stops
        if RUN_FILE in there:
            self._remove(name, RUN_FILE)
        for relative, path in own.items():
            if relative not in LOCK_FILES:
                self.put(path, name, *relative.split("/"))
        if lost := self.lacks(name, run):
            raise NetworkError(
                f"{self.show(name)} lacks {named(lost)}, although all files were copied there."
            )
        self.put(mark, name, RUN_FILE)
        self._remove(name, COPYING_FILE)

    def _stale(self, name: str, run: RunRecord, there: set[str]) -> set[str]:
        """Return the files of an earlier run that are outdated."""
        patterns: set[str] = set()
        for file in {RUN_FILE, COPYING_FILE} & there:  # without these two, all files are the user's
            held = self.record(name, file)
            patterns |= set() if held is None else {*files_of(held)}
            if held is None or not same_map(held, run):
                patterns |= set(LATER_FILES)
        tops = {path: path.partition("/")[0] for path in there - {RUN_FILE, COPYING_FILE}}
        return {path for path in tops if any(fnmatchcase(tops[path], one) for one in patterns)}

    def record(self, name: str, file: str = RUN_FILE) -> RunRecord | None:
        """Return the record of a finished run; None if no record can be read."""
        return run_in(self.read(name, file))

    def holds_files(self, name: str) -> bool:
        """Return whether a subfolder has files, other than of a run whose copying stopped."""
        there = set(self.sizes(name)) - LOCK_FILES
        return bool(there) and (COPYING_FILE not in there or RUN_FILE in there)

    def lacks(self, name: str, run: RunRecord) -> list[str]:
        """Return the files of a run that are missing in the batch folder, or have another size."""
        return files_of_wrong_size(self.sizes(name), run)

    def _remove(self, *parts: str) -> None:
        with self._reaching("write", *parts) as path:
            self.files.rm_file(path)

    @contextmanager
    def _reaching(self, what: str, *parts: str) -> Iterator[str]:
        """Yield a path in the batch folder; turn errors of the file system into errors of geogp."""
        if any(part in {"", ".", ".."} or set(part) & set("/\\\0") for part in parts):
            raise DataError(f"expected names without folders in {self.address}, found {parts}.")
        try:
            yield str(PurePosixPath(self.root, *parts))
        except GeogpError:
            raise
        except (OSError, ValueError) as error:
            message = f"cannot {what} {self.show(*parts)}: {error}."
            if self.local:
                raise OutputError(f"{message} {ELSEWHERE[0].upper()}{ELSEWHERE[1:]}.") from error
            raise NetworkError(
                f"{message} Check the address, the connection and your access rights."
            ) from error


def open_place(address: str) -> Place:
    """Return the batch folder at a local path, or at an address such as ``s3://bucket``.

    For a bucket, the usual settings of AWS apply. The variable ``AWS_ENDPOINT_URL_S3`` or
    ``AWS_ENDPOINT_URL``, if set, gives the server. Raises RequestError if the address contains a
    password, is of an unknown kind, or needs a package that is not installed.
    """
    if "://" not in address:
        return _folder(address)
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise RequestError(
            "the address contains a user name or password, which messages and files would show. "
            "Put user name and password into the settings of the storage client instead."
        )
    if parts.scheme in {"file", "local"}:
        return _folder(parts.path)
    if parts.scheme == "s3":
        root = f"{parts.netloc}{parts.path}".rstrip("/")
        if not parts.netloc:
            raise RequestError(f"expected an address like s3://bucket/folder, found {address}.")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        client = S3FileSystem(endpoint_override=s3_endpoint(), region=region or None)
        return Place(address, ArrowFSWrapper(client, skip_instance_cache=True), root, local=False)
    try:
        files, root = fsspec.url_to_fs(address, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise RequestError(f"cannot write to {address}: {error}.") from error
    return Place(address, files, str(root).rstrip("/"), local=False)


def run_in(content: bytes | None) -> RunRecord | None:
    """Return the content of run.json; None if it is damaged or names files in other folders."""
    if content is None:
        return None
    try:
        held = record_of(json.loads(content))
        files_of(held)
    except (ValueError, RecursionError):  # DataError is a ValueError
        return None
    return held


def _folder(path: str) -> Place:
    where = Path(path).expanduser().resolve()
    check_folder(where)
    return Place(str(where), fsspec.filesystem("file"), where.as_posix(), local=True)
