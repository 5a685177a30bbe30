"""How pages are made from templates, and text from outside escaped."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

_MARKDOWN_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]|#~"})


def environment() -> Environment:
    """Return what templates are rendered with: HTML escaped, unknown names refused."""
    found = Environment(
        loader=PackageLoader("geogp.calibration", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["md"] = markdown_text
    found.filters["prose"] = _prose
    return found


def markdown_text(value: Any) -> Markup:
    """Escape text for Markdown: HTML as entities, marks behind backslashes, on one line."""
    text = " ".join(str(value).split())
    return Markup(str(escape(text)).translate(_MARKDOWN_MARKS).replace("&\\#", "&#"))  # noqa: S704


def _prose(text: str) -> str:
    """Keep numbers and their percent signs on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
