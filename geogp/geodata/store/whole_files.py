"""Small files at addresses, downloaded whole into the cache: boundaries.

No hash of them is published that could be held against them. So the SHA-256 of the first download
is written into a note beside the file, and every later use is held against that.
"""

import datetime as dt
import json
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pooch

from geogp.errors import DataError, GeogpError, NetworkError, OutputError
from geogp.files import read_json, sha256_of, writing
from geogp.geodata.store.cache import CURE, MOST_NOTE_BYTES, source_lock
from geogp.geodata.store.remote import Patience, RemoteFile, SourceChangedError, Transfer

MOST_BYTES = 1 << 30
"""A file that says to be larger, or is, is refused."""

RESTARTS = 3
"""How often a file is begun again that changed while it was read."""


def there(address: str, patience: Patience) -> bool:
    """Ask whether there is a file at an address.

    Raises
    ------
    NetworkError
        The server refuses, or fails again and again.
    UnreachableError
        Nothing answers at the address.
    """
    with closing(RemoteFile(address, patience)) as remote:
        return remote.open()


def fetch_whole(address: str, path: Path, patience: Patience) -> Path:
    """Return a file of the cache, downloaded first where it must be.

    Parameters
    ----------
    address
        Where it is from.
    path
        Its place in the cache; its note is that name with ``.json``.
    patience
        How often and how long to try.

    Raises
    ------
    NetworkError
        The download failed; or the copy is damaged, and what is at the address now is not what the
        note says.
    OutputError
        The cache cannot be written.
    """
    note = note_of(path)
    with source_lock(str(path.parent), Transfer()):  # pooch's unfinished files name no file
        known = _noted_hash(note) if path.is_file() else None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _clean(path, whole=known is not None)
            with _quiet():
                pooch.retrieve(
                    address,
                    known_hash=known,
                    fname=path.name,
                    path=path.parent,
                    downloader=_Downloader(patience),
                )
        except GeogpError:
            raise
        except ValueError as error:
            raise NetworkError(
                f"{address} is no longer what it was when it was first downloaded ({note}), and "
                "the copy beside that note is damaged. Delete both to take the new file; runs made "
                "from the old one are then other runs."
            ) from error
        except OSError as error:
            raise OutputError(
                f"cannot keep {address}: {error.strerror or error}. Free some space or {CURE}."
            ) from error
        if known is None:
            content = {
                "source": address,
                "date": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
                "size": path.stat().st_size,
                "sha256": sha256_of(path),
            }
            with writing(note, CURE) as stream:
                stream.write((json.dumps(content, indent=1) + "\n").encode())
    return path


def note_of(path: Path) -> Path:
    """Return where the note on a file of the cache stands."""
    return path.with_name(f"{path.name}.json")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence pooch, whose advice on hashes is not for our users; its level is put back."""
    logger = pooch.get_logger()
    before = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(before)


class _Downloader:
    """What pooch downloads by: patient, and holding every answer against the first."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        """Download a file; `output_file` is a path beside its place."""
        del pooch
        for left in range(RESTARTS - 1, -1, -1):
            with (
                closing(RemoteFile(url, self._patience)) as remote,
                Path(output_file).open("wb") as stream,
            ):
                if not remote.open():
                    raise NetworkError(f"could not read {url}: there is no such file (404).")
                if (remote.version.size or 0) > MOST_BYTES:
                    raise NetworkError(_too_large(url, remote.version.size))
                try:
                    remote.copy(stream, most=MOST_BYTES)
                except SourceChangedError as error:
                    if not left:
                        raise NetworkError(
                            f"{error} It was begun {RESTARTS} times; try again later."
                        ) from error
                else:
                    break
        _require_form(url, Path(output_file))


def _require_form(address: str, path: Path) -> None:
    """Refuse what is not of the form that the address promises, such as a page of a login."""
    form = address.rpartition(".")[2].lower()
    head, tail = _ends(path)
    if (form == "zip" and not zipfile.is_zipfile(path)) or (
        form == "parquet" and not head == tail == b"PAR1"
    ):
        raise NetworkError(
            f"{address} answered with something that is no {form} file. Does a proxy or a login "
            "page stand between? Open the address in a browser, and try again."
        )


def _ends(path: Path) -> tuple[bytes, bytes]:
    """Return the first and the last four bytes of a file."""
    with path.open("rb") as stream:
        head = stream.read(4)
        stream.seek(max(0, path.stat().st_size - 4))
        return head, stream.read(4)


def _too_large(address: str, size: int | None) -> str:
    return f"{address} has {size} bytes; expected at most {MOST_BYTES}. Is it the right file?"


def _clean(path: Path, *, whole: bool) -> None:
    """Delete what a killed process left, and a file that no note is of."""
    if not whole:
        path.unlink(missing_ok=True)
        note_of(path).unlink(missing_ok=True)
    for left in path.parent.glob("tmp*"):  # as pooch names what it writes
        if not left.suffix:
            with suppress(FileNotFoundError):
                left.unlink()
    for left in path.parent.glob(f".{note_of(path).name}.*"):
        left.unlink(missing_ok=True)


def _noted_hash(note: Path) -> str | None:
    """Return the hash that a note gives, or None where there is no note that can be read."""
    try:
        found = read_json(note, MOST_NOTE_BYTES)["sha256"]
    except (DataError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None
