"""Files over TLS: certificates, handshakes that break off, and redirects out of it."""

import datetime as dt
import ipaddress
import socket
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from geogp.errors import NetworkError, UnreachableError
from geogp.geodata.store.remote import Patience, RemoteFile

QUICK = Patience(attempts=3, first_wait_s=0.01, longest_wait_s=0.02, timeout_s=5.0)
CONTENT = b"nine byte"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Write a key and a certificate of this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "geogp tests")])
    now = dt.datetime.now(tz=dt.UTC)
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


class _Server(ThreadingHTTPServer):
    """Serves the same bytes everywhere, or leads elsewhere; breaks off the first handshakes."""

    daemon_threads = True

    def __init__(self, certificate=None, host="127.0.0.1"):
        super().__init__((host, 0), _Handler)
        self.seen, self.leads_to, self.breaks, self.tries = [], None, 0, 0
        self.context = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)

    @property
    def url(self):
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://localhost:{self.server_port}"

    def get_request(self):
        connection, address = super().get_request()
        self.tries += 1
        if self.tries <= self.breaks:
            connection.recv(600)
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            raise OSError
        if self.context is not None:
            connection = self.context.wrap_socket(connection, server_side=True)
        return connection, address


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.server.seen.append(self.headers.get("Authorization"))
        leads_to = self.server.leads_to
        self.send_response(200 if leads_to is None else 302)
        if leads_to is not None:
            self.send_header("Location", leads_to)
        self.send_header("Content-Length", "0" if leads_to else str(len(CONTENT)))
        self.end_headers()

    def log_message(self, *args):
        pass


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Nothing goes through a proxy."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


@pytest.fixture
def secure(certificate, monkeypatch):
    """Return a server whose certificate is trusted."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with running(_Server(certificate)) as server:
        yield server


@pytest.fixture
def opened():
    """Open files, closed at the end."""
    files = []

    def open_file(address):
        files.append(RemoteFile(address, QUICK))
        return files[-1].open()

    yield open_file
    for file in files:
        file.close()


@pytest.mark.parametrize("through", [0, 1])
def test_nothing_is_sent_where_tls_ends(
    secure, certificate, opened, tmp_path, monkeypatch, *, through
):
    """Not even the password that ~/.netrc has for the place that the redirect names."""
    (tmp_path / "netrc").write_text("machine localhost login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with running(_Server()) as plain, running(_Server(certificate)) as other:
        other.leads_to = f"{plain.url}/x"
        secure.leads_to = f"{other.url}/x" if through else other.leads_to
        with pytest.raises(
            NetworkError,
            match=r"redirects to an address without TLS, which "
            "geogp does not follow",
        ):
            opened(f"{secure.url}/x")
        assert plain.seen == []
        assert (secure.tries, other.tries) == (1, through)


def test_a_redirect_within_tls_is_followed(secure, certificate, opened):
    with running(_Server(certificate)) as other:
        secure.leads_to = f"{other.url}/x"
        assert opened(f"{secure.url}/x")
        assert len(other.seen) == 1


@pytest.mark.parametrize("breaks", [1, 2])
def test_a_handshake_that_breaks_off_is_tried_again(secure, opened, breaks):
    secure.breaks = breaks
    assert opened(f"{secure.url}/x")
    assert secure.tries == breaks + 1


def test_handshakes_that_always_break_off_are_no_answer(secure, opened):
    secure.breaks = 99
    with pytest.raises(UnreachableError, match="tried 3 times"):
        opened(f"{secure.url}/x")
    assert secure.tries == 3


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_a_certificate_that_vouches_for_nothing_is_final(certificate, opened, monkeypatch, *, host):
    """One that nobody signed, and one of another host."""
    if host != "localhost":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        monkeypatch.setenv("NO_PROXY", host)
        monkeypatch.setenv("no_proxy", host)
    with running(_Server(certificate, host)) as server:
        with pytest.raises(NetworkError, match="cannot be trusted") as refusal:
            opened(f"https://{host}:{server.server_port}/x")
        assert not isinstance(refusal.value, UnreachableError)
        assert server.tries == 1
