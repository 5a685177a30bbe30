"""An HTTP server on this machine that serves a folder and fails as requested."""

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")

TRICKLE_S = 0.02
"""Seconds between two bytes of a slow answer."""

REASONS = {"429": "Too Many Requests", "403": "Forbidden", "404": "Not Found", "503": "Slow Down"}


@dataclass(frozen=True)
class Fault:
    """A fault of some requests for tiles or zip files.

    Attributes
    ----------
    kind
        ``drop`` (the connection ends before the answer), ``cut`` (it ends within the answer),
        ``short`` (half the bytes, with the length of this half), ``long`` (a length above the
        number of bytes sent), ``slow`` (byte by byte), ``misplaced`` (another part than requested),
        ``size`` (the header has another size of the whole file), ``replace`` (the file is replaced
        before the answer), ``other`` (only this answer is from the replacement of the file, as from
        a mirror that is ahead), or a status.
    first, times
        The first affected request, counted from 0, and the number of affected requests.
    method
        ``GET`` or ``HEAD``; only requests of this method are counted.
    about
        If given, the fault affects all requests for files whose names end with this text, tiles or
        not, without counting.
    """

    kind: str
    first: int = 0
    times: int = 1
    method: str = "GET"
    about: str = ""


@dataclass
class Manner:
    """How the server answers all requests."""

    etag: str = "strong"  # or once (strong, only in answers to HEAD), weak, none
    dated: bool = True
    ranges: bool = True
    heads: bool = True
    delay_s: float = 0.0


@dataclass
class Told:
    """Faults and manner that the server was given, and the requests that it counted."""

    manner: Manner = field(default_factory=Manner)
    faults: list[Fault] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=lambda: {"GET": 0, "HEAD": 0})
    requests: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0


class FaultyServer(ThreadingHTTPServer):
    """Serves `folder`; `replacement` contains the files that replace others."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, replacement: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.replacement = replacement
        self.lock = threading.Lock()
        self.told = Told()
        self.over: dict[str, Path] = {}
        self._etags: dict[tuple[Path, int, int], str] = {}

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.server_port}/files"

    def tell(self, *faults: Fault, manner: Manner | None = None) -> None:
        """Set other faults, and restart the count of requests."""
        with self.lock:
            self.told = Told(manner or Manner(), list(faults))
            self.over = {}

    def etag(self, path: Path) -> str:
        """Return the MD5 of a file, as S3 does; it is computed once."""
        state = path.stat()
        key = (path, state.st_size, state.st_mtime_ns)
        if key not in self._etags:
            with path.open("rb") as stream:
                self._etags[key] = hashlib.file_digest(stream, _md5).hexdigest()
        return f'"{self._etags[key]}"'

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing, because clients that close the connection are expected."""


@contextmanager
def serving(folder: Path, replacement: Path | None = None) -> Iterator[FaultyServer]:
    """Serve a folder."""
    with FaultyServer(folder, replacement) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _md5() -> Any:
    return hashlib.md5(usedforsecurity=False)


def _part(path: Path, first: int, end: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(first)
        return stream.read(end - first)


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *args: object) -> None:
        pass

    def _fault(self, name: str) -> str | None:
        """Count a request for tiles or zip files, and return the kind of its fault."""
        server, told = self.server, self.server.told
        with server.lock:
            told.requests.append((self.command, name))
            for fault in told.faults:
                if fault.about and name.endswith(fault.about) and fault.method == self.command:
                    return fault.kind
            if not name.endswith((".parquet", ".zip")):
                return None
            place = told.seen[self.command]
            told.seen[self.command] += 1
            for fault in told.faults:
                if fault.about or fault.method != self.command:
                    continue
                if 0 <= place - fault.first < fault.times:
                    if fault.kind == "replace":
                        assert server.replacement is not None
                        server.over[name] = server.replacement / name
                        return None
                    return fault.kind
        return None

    def _answer(self) -> None:
        name = unquote(self.path).removeprefix("/files/")
        fault, manner = self._fault(name), self.server.told.manner
        if manner.delay_s:
            time.sleep(manner.delay_s)
        path = self.server.over.get(name, self.server.folder / name)
        if fault == "other":
            assert self.server.replacement is not None
            path = self.server.replacement / name
        status = int(fault) if fault and fault.isdecimal() else 404
        if fault == "drop":
            self.close_connection = True
        elif status != 404 or fault == "404" or not path.is_file():
            self._status(status)
        elif self.command == "HEAD" and not manner.heads:
            self._status(405)
        else:
            self._file(path, fault)

    def _status(self, status: int) -> None:
        self.send_response(status, REASONS.get(str(status)))
        self.send_header("Content-Length", "0")
        if status in {429, 503}:
            self.send_header("Retry-After", "0")
        self.end_headers()

    def _file(self, path: Path, fault: str | None) -> None:
        manner, stored = self.server.told.manner, path.stat().st_size
        etag = self.server.etag(path)
        asked = _RANGE.fullmatch(self.headers.get("Range", "")) if manner.ranges else None
        wanted = self.headers.get("If-Match")
        if manner.etag in {"strong", "once"} and wanted not in {None, etag}:
            self._status(412)
            return
        first, end = 0, stored
        if asked:
            first, end = int(asked[1]), min(int(asked[2]) + 1, stored)
            if first >= stored:
                self._status(416)
                return
        body = _part(path, first, end) if self.command == "GET" else b""
        size = stored + (7 if fault == "size" else 0)
        shift = 1 if fault == "misplaced" else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first + shift}-{end - 1 + shift}/{size}")
        length = {"short": len(body) // 2, "long": len(body) + 9}.get(str(fault), len(body))
        self.send_header("Content-Length", str(size if self.command == "HEAD" else length))
        if manner.etag == "strong" or (manner.etag == "once" and self.command == "HEAD"):
            self.send_header("ETag", etag)
        elif manner.etag == "weak":
            self.send_header("ETag", f"W/{etag}")
        if manner.dated:
            self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        self.end_headers()
        if self.command == "GET":
            with suppress(OSError):  # the client closed the connection
                self._send(body, fault)

    def _send(self, body: bytes, fault: str | None) -> None:
        if fault in {"cut", "short", "long"}:
            self.close_connection = fault != "short"
            body = body if fault == "long" else body[: len(body) // 2]
        if fault != "slow":
            self.server.told.sent += len(body)
            self.wfile.write(body)
            return
        self.close_connection = True
        for place in range(min(len(body), 500)):
            self.wfile.write(body[place : place + 1])
            self.wfile.flush()
            time.sleep(TRICKLE_S)
