"""The scripts, styles and template of the interactive page, from the files of the package."""

import re
from functools import cache
from importlib import resources

SCRIPTS = (
    "unpack.js",
    "frame.js",
    "law.js",
    "colours.js",
    "kernel.js",
    "sides.js",
    "painter.js",
    "picture.js",
    "words.js",
    "history.js",
    "answers.js",
    "reader.js",
    "place.js",
    "address.js",
    "panel.js",
    "legend.js",
    "h3.js",
    "search.js",
    "names.js",
    "download.js",
    "divider.js",
    "page.js",
    "start.js",
)
"""The page's own scripts, in the order of their dependencies."""

TIER_SCRIPTS = ("joint.js", "tiers.js")
"""Scripts that only a page with tiers has, before the last of the others."""

_LEAFLET = "vendored/leaflet/dist"
_COMMENT = re.compile(r"^ *(/\*\*.*?\*/|//[^\n]*)\n", re.MULTILINE | re.DOTALL)
"""A comment on lines of its own."""

_IMAGE = re.compile(r"url\(images/[^)]*\)")


@cache
def asset(name: str) -> str:
    """Return the text of one of the page's own files."""
    return _text(f"assets/{name}")


@cache
def page_scripts(*, tiers: bool = False) -> tuple[str, str]:
    """Return two scripts of every page: Leaflet, and the page's own scripts as one.

    The page has its own scripts without the comments, which would be a quarter of their length.
    With `tiers`, they include `TIER_SCRIPTS`.
    """
    # Leaflet's source map is not part of the package.
    leaflet = re.sub(r"\n//# sourceMappingURL=.*", "", _text(f"{_LEAFLET}/leaflet.js"))
    names = (*SCRIPTS[:-1], *(TIER_SCRIPTS if tiers else ()), SCRIPTS[-1])
    own = _COMMENT.sub("", "\n".join(asset(name) for name in names))
    return leaflet, f"(() => {{\n'use strict';\n{own}}})();\n"


@cache
def page_styles() -> tuple[str, str]:
    """Return two style sheets of the page: the sheet of Leaflet, and the page's own sheet.

    Leaflet's sheet refers to images that the page does not show; these references are removed.
    """
    return _IMAGE.sub("none", _text(f"{_LEAFLET}/leaflet.css")), asset("page.css")


def asset_bytes(name: str) -> bytes:
    """Return the content of a file in the folder of this module."""
    return resources.files("geogp.maps.page").joinpath(name).read_bytes()


def _text(name: str) -> str:
    """Return the text of a file with LF line ends, because browsers hash the text in this form."""
    return asset_bytes(name).decode("utf-8").replace("\r\n", "\n")
