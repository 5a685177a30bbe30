"""Download of files from an HTTP server, whole or in parts, with checks and repeated requests.

geogp does not use the package obstore, which ignores proxies, ~/.netrc, REQUESTS_CA_BUNDLE,
Retry-After and Ctrl-C. This package also accepts truncated and compressed answers as whole files.
"""

import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

import requests
from urllib3 import Retry
from urllib3.exceptions import HTTPError

from geogp.errors import GeogpError, NetworkError, OutputError, RefusedError, UnreachableError

CURE = "set GEOGP_CACHE to another folder"  # advice if downloaded data cannot be stored

AGAIN = frozenset({408, 429, 500, 502, 503, 504})  # the same request may succeed later
ABSENT = frozenset({404, 410})

RESTARTS = 3  # most starts of a download, if the file changes while geogp reads it
PIECE = 1 << 18  # most bytes read from a connection at once

_Taken = TypeVar("_Taken")


@dataclass(frozen=True)
class Patience:
    """Limits of a request: number of attempts, waiting times and lowest speed.

    The wait doubles after each failed attempt, and is multiplied by a random number from 0.5 to
    1.5. No wait is longer than `longest_wait_s`, even if the server asks for more. An attempt fails
    if no byte comes for `timeout_s` seconds. After the first `timeout_s` seconds, at least
    `slowest` bytes must come per second.
    """

    attempts: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    timeout_s: float = 30.0
    slowest: float = 4096.0


PATIENCE = Patience()

SHORT_PATIENCE = Patience(attempts=2, timeout_s=10.0)
"""Limits for a request whose failure does not stop geogp."""


@dataclass
class Transfer:
    """The state that several downloads share: the number of bytes, and a signal to stop.

    `unreachable` is true if the source did not answer; then geogp does not ask the source again.
    """

    received: int = 0
    unreachable: bool = False
    stopped: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise KeyboardInterrupt if the downloads were stopped."""
        if self.stopped.is_set():
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Version:
    """The version of a file on a server; `size` is None if the server does not send the size."""

    size: int | None
    etag: str | None
    last_modified: str | None

    @property
    def strong(self) -> bool:
        """Whether the ETag changes if any byte of the file changes (RFC 9110, section 8.8.1)."""
        return self.etag is not None and not self.etag.startswith("W/")

    def differs(self, other: "Version") -> bool:
        """Return whether the versions differ in a value that both have."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return any(None not in pair and pair[0] != pair[1] for pair in pairs)


class SourceChangedError(NetworkError):
    """A file has changed or disappeared since it was opened."""


class NoRangesError(NetworkError):
    """The server sends only whole files, or does not name the version of a part of a file."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} can only be read as a whole.")


class _FaultError(Exception):
    """An answer is incomplete or does not fit the request; another attempt may succeed."""


_FAULTS = (requests.RequestException, HTTPError, OSError, ValueError, _FaultError)


class RemoteFile:
    """A file on an HTTP server.

    `version` is the version that the server gave when the file was opened or copied. `received` is
    the number of bytes in the bodies of all answers, including failed answers.
    """

    def __init__(
        self, address: str, patience: Patience = PATIENCE, transfer: Transfer | None = None
    ) -> None:
        self.address = address
        self.received = 0
        self.version = Version(None, None, None)
        self._patience = patience
        self._transfer = transfer or Transfer()
        self._session = requests.Session()
        self._by_tls = address.lower().startswith("https:")
        if self._by_tls:  # http:// would send a password from ~/.netrc without TLS
            del self._session.adapters["http://"]

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def open(self) -> bool:
        """Return whether the file exists, and store its version.

        All requests raise NetworkError if the server refuses or fails repeatedly, and
        UnreachableError if no server answers.
        """
        for method in ("HEAD", "GET"):  # the body of a GET answer is not read
            version = self._ask(method, {}, self._told)
            if version is None:
                return False
            self.version = version
            if version.size is not None:
                break
        return True

    def begin(self, use: Callable[[], _Taken]) -> _Taken | None:
        """Open the file and return the result of `use`, or None if there is no such file.

        If the file changes, geogp opens the file and calls `use` again. Raises NetworkError if the
        file keeps changing.
        """
        for left in range(RESTARTS - 1, -1, -1):
            if not self.open():
                return None
            try:
                return use()
            except SourceChangedError as error:
                if not left:
                    raise NetworkError(
                        f"{error} The download was started {RESTARTS} times; try again later."
                    ) from error
        raise AssertionError

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes of the file, starting at byte `offset`.

        Raises SourceChangedError if the file has changed, and NoRangesError if the server sends
        only whole files, or sends parts without a strong ETag.
        """
        if not self.version.strong:
            raise NoRangesError(self.address)
        span = f"{offset}-{offset + length - 1}"

        def take(answer: requests.Response) -> bytes:
            if answer.status_code == requests.codes.ok:
                raise NoRangesError(self.address)
            if answer.status_code != requests.codes.partial_content:
                raise self._unexpected(answer)
            place, _, size = answer.headers.get("Content-Range", "").partition("/")
            if place != f"bytes {span}":
                raise _FaultError(f"expected bytes {span}, found {place!r}")
            if not self._same(answer, int(size) if size.isdecimal() else None).strong:
                raise NoRangesError(self.address)
            return b"".join(self._pieces(answer, length))

        headers = {"Range": f"bytes={span}", "If-Match": str(self.version.etag)}
        return self._ask("GET", headers, take)

    def copy(self, stream: BinaryIO, most: int | None = None) -> Version:
        """Download the whole file with one request into a stream, and return the file's version.

        Raises SourceChangedError if the file has changed, NetworkError if the file has more than
        `most` bytes, and OutputError if the stream cannot be written.
        """

        def take(answer: requests.Response) -> Version:
            if answer.status_code != requests.codes.ok:
                raise self._unexpected(answer)
            stream.seek(0)
            stream.truncate()
            length = _length(answer)
            self._same(answer, length)
            for piece in self._pieces(answer, length):
                size = max(length or 0, stream.tell() + len(piece))
                if most is not None and size > most:
                    raise NetworkError(
                        f"{self.address} has {size} bytes or more; expected at most {most}. Is "
                        "this the right file?"
                    )
                try:
                    stream.write(piece)
                except OSError as error:
                    raise OutputError(
                        f"cannot store {self.address}: {error.strerror or error}. Free some space "
                        f"or {CURE}."
                    ) from error
            return _version(answer, stream.tell())

        self.version = self._ask("GET", {}, take)
        return self.version

    def _told(self, answer: requests.Response) -> Version | None:
        """Return the file's version from an answer, or None if there is no such file."""
        if answer.status_code in ABSENT:
            return None
        if answer.request.method == "HEAD" and answer.status_code in {400, 405, 501}:
            return Version(None, None, None)  # HEAD is not supported
        if answer.status_code != requests.codes.ok:
            raise self._unexpected(answer)
        return _version(answer, _length(answer))

    def _same(self, answer: requests.Response, size: int | None) -> Version:
        """Return the version in an answer; raise SourceChangedError if the version has changed."""
        version = _version(answer, size)
        if version.differs(self.version):
            raise SourceChangedError(f"{self.address} changed while it was read.")
        return version

    def _unexpected(self, answer: requests.Response) -> NetworkError:
        if answer.status_code in {*ABSENT, 412, 416}:
            return SourceChangedError(
                f"{self.address} changed while it was read (status {answer.status_code})."
            )
        answered = f"{self.address} answered {answer.status_code} {answer.reason}"
        if answer.status_code in {401, 403}:
            return RefusedError(
                f"{answered}: the file is missing or needs a login (some servers give this answer "
                "in both cases). Check the address and the quarters."
            )
        return NetworkError(f"{answered}; check the address and try again.")

    def _pieces(self, answer: requests.Response, length: int | None) -> Iterator[bytes]:
        """Yield the body of an answer in pieces; check that the body has `length` bytes."""
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise NetworkError(
                f"{self.address} is sent with the encoding {encoding}; expected no encoding."
            )
        patience, started, have = self._patience, time.monotonic(), 0
        while length is None or have <= length:
            self._transfer.check()
            piece = answer.raw.read1(PIECE, decode_content=False)
            if not piece:
                break
            have += len(piece)
            self.received += len(piece)
            self._transfer.received += len(piece)
            late = time.monotonic() - started - patience.timeout_s
            if late > 0 and have < late * patience.slowest:
                raise _FaultError(f"only {have} bytes came in {late + patience.timeout_s:.0f} s")
            yield piece
        if length is not None and have != length:
            raise _FaultError(f"expected {length} bytes, found {have}")

    def _ask(
        self, method: str, headers: dict[str, str], take: Callable[[requests.Response], _Taken]
    ) -> _Taken:
        """Send a request and return `take(answer)`; repeat a failed request within the limits."""
        patience, reached, fault = self._patience, False, ""
        for attempt in range(patience.attempts):
            self._transfer.check()
            wait = 0.0
            try:
                with self._session.request(
                    method,
                    self.address,
                    headers={"Accept-Encoding": "identity", **headers},
                    stream=True,
                    timeout=patience.timeout_s,
                    allow_redirects=True,
                ) as answer:
                    reached = True
                    if answer.status_code not in AGAIN:
                        return take(answer)
                    fault = f"answered {answer.status_code} {answer.reason}"
                    wait = Retry().get_retry_after(answer.raw) or 0.0
            except GeogpError:
                raise
            except _FAULTS as error:
                self._check_final(error)
                fault = str(error)
            if attempt + 1 < patience.attempts:
                chance = 0.5 + secrets.randbelow(1000) / 1000  # spreads repeated requests over time
                wait = max(patience.first_wait_s * 2**attempt * chance, wait)
                self._transfer.stopped.wait(min(wait, patience.longest_wait_s))
        raise (NetworkError if reached else UnreachableError)(
            f"could not read {self.address}: {fault} (tried {patience.attempts} times). "
            "Check the connection and try again; complete files stay in the cache."
        )

    def _check_final(self, error: Exception) -> None:
        """Raise NetworkError if another attempt cannot succeed."""
        if self._by_tls and isinstance(error, requests.exceptions.InvalidSchema):
            fault = "redirects to an address without TLS, which geogp does not follow"
        elif _is_untrusted(error):
            fault = f"cannot be trusted: {error}"
        elif isinstance(error, ValueError):
            fault = f"is not a valid address: {error}"
        else:
            return
        raise NetworkError(f"{self.address} {fault}.") from error


def _is_untrusted(error: BaseException | None) -> bool:
    """Return whether an error was caused by an invalid certificate."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _version(answer: requests.Response, size: int | None) -> Version:
    return Version(size, answer.headers.get("ETag"), answer.headers.get("Last-Modified"))


def _length(answer: requests.Response) -> int | None:
    """Return the length of an answer's body from its header, or None if the header is missing."""
    header = answer.headers.get("Content-Length", "")
    return int(header) if header.isdecimal() else None
