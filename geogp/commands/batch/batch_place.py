"""The place of a batch: the folder of its runs, and the address where the finished files go.

Buckets (``s3://``) are written with pyarrow's client, because geogp needs pyarrow anyway. s3fs is
not used, because it pins a version of botocore that conflicts with other packages.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import S3FileSystem

from geogp.errors import NetworkError, RequestError, named
from geogp.files import check_folder
from geogp.geodata.store.addresses import s3_endpoint
from geogp.geodata.store.cache_place import cache_folder
from geogp.records.record_reading import record_of
from geogp.runs.file_records import files_of
from geogp.runs.locks import LOCK_FILES
from geogp.runs.run_names import RUN_FILE


@dataclass(frozen=True)
class Place:
    """The place of a batch, as the user calls it (`name`), and the folder of its runs.

    If the place is an address, `files` is its file system and `root` its path there. The folder is
    then in the scratch folder, and its finished files are copied to the address.
    """

    name: str
    folder: Path
    files: Any = None
    root: str = ""

    @property
    def option(self) -> str:
        """The option that names the folder of the runs."""
        return "--scratch" if self.files else "--out"

    def check_address(self, names: Iterable[str]) -> None:
        """Raise RequestError if the address has files or folders `names` that are not in `folder`.

        Raises NetworkError if the address cannot be read.
        """
        if not self.files:
            return
        there = set()
        with self._reaching("read"), suppress(FileNotFoundError):
            paths = self.files.ls(self.root, detail=False)
            there = {str(path).rstrip("/").rpartition("/")[2] for path in paths}
        foreign = [name for name in names if name in there and not (self.folder / name).exists()]
        if foreign:
            raise RequestError(
                f"{self.name} contains {named(foreign)}, and the batch in {self.folder} did not "
                "write it. To overwrite it, add --force, or choose another place with --out."
            )

    def upload(self, *files: str) -> None:
        """Copy files of the folder to the address, if there is an address, in this order.

        Raises NetworkError if the address cannot be written.
        """
        if self.files:
            with self._reaching("write"):
                for file in files:
                    self.files.put_file(str(self.folder / file), f"{self.root}/{file}")

    def upload_run(self, name: str) -> None:
        """Copy a finished run to the address, if there is an address; run.json is copied last.

        So a run at the address that has the same run.json is complete, and stays. The files of
        another run are removed; other files stay. Raises NetworkError if the address cannot be
        written.
        """
        if not self.files:
            return
        run, there = self.folder / name, f"{self.root}/{name}"
        with self._reaching("write"), suppress(FileNotFoundError):
            before = self.files.cat_file(f"{there}/{RUN_FILE}")
            if before == (run / RUN_FILE).read_bytes():
                return
            for file in (RUN_FILE, *_files_in(before)):
                with suppress(FileNotFoundError):
                    self.files.rm(f"{there}/{file}", recursive=True)
        paths = [path for path in sorted(run.rglob("*")) if path.is_file()]
        own = [path for path in paths if path.name not in {RUN_FILE, *LOCK_FILES}]
        self.upload(*(path.relative_to(self.folder).as_posix() for path in (*own, run / RUN_FILE)))

    @contextmanager
    def _reaching(self, what: str) -> Iterator[None]:
        """Turn the errors of the file system into NetworkError."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise NetworkError(
                f"cannot {what} {self.name}: {error}. Check the address, the connection and your "
                "access rights."
            ) from error


def open_place(name: str, scratch: Path | None = None) -> Place:
    """Return the place of a batch at a local path, or at an address such as ``s3://bucket``.

    For a bucket, the usual settings of AWS apply. The variable ``AWS_ENDPOINT_URL_S3`` or
    ``AWS_ENDPOINT_URL``, if set, gives the server. Raises RequestError if the address contains a
    password, is of an unknown kind, or needs a package that is not installed.
    """
    parts = urlsplit(name)
    if "://" not in name or parts.scheme in {"file", "local"}:
        folder = Path(parts.path if "://" in name else name).expanduser().resolve()
        check_folder(folder)
        return Place(str(folder), folder)
    if "@" in parts.netloc:
        raise RequestError(
            "the address contains a user name or password, which messages and files would show. "
            "Put user name and password into the settings of the storage client instead."
        )
    folder = scratch_folder(scratch) / sha256(name.encode()).hexdigest()[:16]
    if parts.scheme == "s3":
        if not parts.netloc:
            raise RequestError(f"expected an address like s3://bucket/folder, found {name}.")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        client = S3FileSystem(endpoint_override=s3_endpoint(), region=region or None)
        files, root = ArrowFSWrapper(client, skip_instance_cache=True), parts.netloc + parts.path
    else:
        try:
            files, root = fsspec.url_to_fs(name, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise RequestError(f"cannot write to {name}: {error}.") from error
    return Place(name, folder, files, str(root).rstrip("/"))


def scratch_folder(scratch: Path | None) -> Path:
    """Return the folder for temporary files of workers, by default in the cache."""
    return scratch or cache_folder() / "batch"


def _files_in(content: bytes) -> list[str]:
    """Return the files that a run.json names; none if it is damaged or names other folders."""
    try:
        return files_of(record_of(json.loads(content)))
    except (ValueError, RecursionError):  # DataError is a ValueError
        return []
