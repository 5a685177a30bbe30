"""The library that draws the page's map: from the CDN, or written into the page."""

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from geogp.errors import DataError, NetworkError, RequestError
from geogp.files import sha256_of
from geogp.geodata.cache import cache_folder

CDN = "https://cdn.jsdelivr.net/npm/leaflet@1.9.3/dist"
"""Where folium takes Leaflet from, too."""

SHA256 = {
    "leaflet.js": "5819285cec137b229c94e1ee5ad73e8b6b84345a4367d60f75fe477fe0fb7b03",
    "leaflet.css": "90b693d86392a4779c861b28cf307e7e59c3fb35328c4d8b95f58f814d38c722",
}
"""SHA-256 of the files of Leaflet 1.9.3, as npm has them."""

TIMEOUT_S = 60
"""Seconds without an answer after which a request has failed."""

_PLACES = ("leaflet/dist", "node_modules/leaflet/dist", "dist", "")
_IMAGE = re.compile(r"url\(\s*['\"]?(?!data:|#)([^'\")]+)['\"]?\s*\)")


@dataclass(frozen=True)
class Library:
    """Leaflet as text, to be written into a page.

    Attributes
    ----------
    script, style
        JavaScript and CSS; the style names no other file.
    """

    script: str
    style: str


def integrity(name: str) -> str:
    """Return the attribute by which browsers check a file of the CDN.

    Examples
    --------
    >>> integrity("leaflet.js")
    'sha256-WBkoXOwTeyKclOHuWtc+i2uENFpDZ9YPdf5Hf+D7ewM='
    """
    return "sha256-" + base64.b64encode(bytes.fromhex(SHA256[name])).decode()


def links_html() -> str:
    """Return the elements that take Leaflet from the CDN, checked by the browser."""
    checked = {name: f'integrity="{integrity(name)}" crossorigin="anonymous"' for name in SHA256}
    return (
        f'<link rel="stylesheet" href="{CDN}/leaflet.css" {checked["leaflet.css"]} />\n'
        f'<script src="{CDN}/leaflet.js" {checked["leaflet.js"]}></script>'
    )


def inlined_html(library: Library) -> str:
    """Return the elements that hold Leaflet itself."""
    return f"<style>\n{library.style}\n</style>\n<script>\n{library.script}\n</script>"


def read_library(assets: Path | None = None) -> Library:
    """Read Leaflet for a page that needs no network.

    Parameters
    ----------
    assets
        A folder with the files: that of an npm installation, or of the files themselves. None
        takes the CDN's, kept in the cache.

    Raises
    ------
    RequestError
        There is no such folder.
    DataError
        A file is missing, or is another version.
    NetworkError
        The CDN cannot be reached, or sends another file.
    """
    folder = None if assets is None else _library_folder(assets)
    found = {name: _fetched(name) if folder is None else folder / name for name in SHA256}
    if folder is not None:
        for name, path in found.items():
            _check(path, name)
    script = found["leaflet.js"].read_text("utf-8")
    # The map of the script's source stands beside the original only.
    script = re.sub(r"\n//# sourceMappingURL=.*", "", script)
    return Library(script, _with_images(found["leaflet.css"].read_text("utf-8"), folder))


def _library_folder(assets: Path) -> Path:
    if not assets.is_dir():
        raise RequestError(f"no folder {assets}; --assets needs one with Leaflet 1.9.3 in it.")
    for place in _PLACES:
        if (assets / place / "leaflet.js").is_file():
            return assets / place
    raise DataError(
        f"no leaflet.js in {assets}, nor in {', '.join(one for one in _PLACES if one)} below it. "
        "Install it there: npm install --prefix FOLDER leaflet@1.9.3."
    )


def _check(path: Path, name: str) -> None:
    if not path.is_file():
        raise DataError(f"no file {name} in {path.parent}; expected that of Leaflet 1.9.3.")
    found = sha256_of(path)
    if found != SHA256[name]:
        raise DataError(
            f"{path} is not that of Leaflet 1.9.3: expected SHA-256 {SHA256[name]}, found {found}."
        )


def _fetched(name: str) -> Path:
    """Return a file of the CDN from the cache, downloaded first if it must be."""
    address = f"{CDN}/{name}"
    folder = cache_folder() / "leaflet-1.9.3"
    try:
        found = pooch.retrieve(
            address,
            known_hash=SHA256[name],
            fname=name,
            path=folder,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT_S),
        )
    except ValueError as error:
        raise NetworkError(
            f"{address} sent another file than Leaflet 1.9.3 ({error}). Give --assets FOLDER with "
            "the npm package."
        ) from error
    except (requests.RequestException, OSError) as error:
        raise NetworkError(
            f"could not read {address}: {error}. Check the connection, or give --assets FOLDER "
            "with the npm package of Leaflet 1.9.3."
        ) from error
    return Path(os.fspath(found))


def _with_images(style: str, folder: Path | None) -> str:
    """Write the images that a style names into it; where there are none, name none.

    They are those of controls that the page does not have.
    """

    def written(found: re.Match[str]) -> str:
        path = None if folder is None else folder / found[1]
        if path is None or not path.is_file():
            return "none"
        content = base64.b64encode(path.read_bytes()).decode()
        return f'url("data:image/png;base64,{content}")'

    return _IMAGE.sub(written, style)
