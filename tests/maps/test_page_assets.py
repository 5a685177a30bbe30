"""Leaflet for a page that needs no network: from a folder, or from the CDN through the cache."""

import hashlib
import http.server
import threading

import pytest

from geogp.errors import DataError, NetworkError, RequestError
from geogp.geodata.cache_contents import cache_items, clear_cache
from geogp.maps import page_assets
from geogp.maps.page_assets import read_library

FILES = {
    "leaflet.js": "window.L = {version: 'é'};\n//# sourceMappingURL=leaflet.js.map\n",
    "leaflet.css": ".a { background: url(images/a.png) } .b { behavior: url(#default#VML) }\n"
    ".c { background: url('images/none.png') }",
}
PNG = b"\x89PNG\r\n"


@pytest.fixture
def known(monkeypatch):
    """Take the hashes of our own small files for those of Leaflet."""
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in FILES.items()}
    monkeypatch.setattr(page_assets, "SHA256", hashes)


def write(folder):
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a.png").write_bytes(PNG)
    for name, text in FILES.items():
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize("place", ["leaflet/dist", "node_modules/leaflet/dist", "dist", "."])
def test_a_folder_holds_it_in_one_of_the_usual_places(tmp_path, known, place):
    write(tmp_path / "npm" / place)
    found = read_library(tmp_path / "npm")
    assert found.script == "window.L = {version: 'é'};\n"
    assert 'url("data:image/png;base64,iVBORw0K")' in found.style
    assert "url(#default#VML)" in found.style
    assert ".c { background: none }" in found.style
    assert "images/" not in found.style


def test_a_missing_folder_is_a_wrong_request(tmp_path):
    with pytest.raises(RequestError, match=r"no folder .*nowhere; --assets needs one") as caught:
        read_library(tmp_path / "nowhere")
    assert caught.value.exit_code == 2


def test_a_folder_without_leaflet_says_how_to_install_it(tmp_path):
    with pytest.raises(DataError, match=r"npm install --prefix FOLDER leaflet@1\.9\.3") as caught:
        read_library(tmp_path)
    assert caught.value.exit_code == 3


def test_a_missing_style_is_an_error(tmp_path, known):
    (write(tmp_path / "leaflet" / "dist") / "leaflet.css").unlink()
    with pytest.raises(DataError, match=r"no file leaflet\.css"):
        read_library(tmp_path)


def test_another_version_is_refused(tmp_path, known):
    (write(tmp_path / "leaflet" / "dist") / "leaflet.js").write_text("window.L = {};")
    with pytest.raises(DataError, match=r"is not that of Leaflet 1\.9\.3: expected SHA-256"):
        read_library(tmp_path)


@pytest.fixture
def cdn(monkeypatch, tmp_path):
    """Serve a folder in place of the CDN, with a cache of its own; counts requests."""
    folder = write(tmp_path / "cdn")
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(page_assets, "CDN", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    yield folder, asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_cdns_files_are_kept_in_the_cache(cdn, known):
    _, asked = cdn
    first = read_library()
    assert set(asked) == {"/leaflet.js", "/leaflet.css"}
    before = len(asked)
    assert read_library() == first
    assert len(asked) == before
    assert "images/" not in first.style
    assert "url(#default#VML)" in first.style


def test_another_file_from_the_cdn_is_a_network_error(cdn, known):
    (cdn[0] / "leaflet.js").write_text("window.L = 'other';")
    with pytest.raises(NetworkError, match=r"sent another file than Leaflet 1\.9\.3") as caught:
        read_library()
    assert caught.value.exit_code == 4
    (cdn[0] / "leaflet.js").write_text(FILES["leaflet.js"], "utf-8")
    assert read_library().script.startswith("window.L")


def test_the_cache_lists_checks_and_clears_it(cdn, known):
    read_library()
    items = cache_items(check=True)
    assert {item.path.name: item.state for item in items} == dict.fromkeys(FILES, "whole")
    assert {item.source for item in items} == {f"{page_assets.CDN}/{name}" for name in FILES}
    items[0].path.write_text("damaged")
    assert [item.state for item in cache_items(check=True)] == ["damaged", "whole"]
    assert clear_cache().files == 2
    assert not items[1].path.exists()


def test_a_damaged_copy_in_the_cache_is_fetched_anew(cdn, known, tmp_path):
    read_library()
    (copy,) = (tmp_path / "cache").rglob("leaflet.js")
    copy.write_text("damaged")
    assert read_library().script.startswith("window.L")


def test_without_network_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(page_assets, "CDN", "http://127.0.0.1:9")
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path))
    with pytest.raises(NetworkError, match=r"could not read .*Or give --assets FOLDER") as caught:
        read_library()
    assert caught.value.exit_code == 4
