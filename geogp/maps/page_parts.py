"""Pieces of the interactive page: style, skeleton, data and scripts, from the package's files."""

import html
import json
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from branca.element import Element, MacroElement
from folium.template import Template

SCRIPTS = (
    "unpack.js",
    "frame.js",
    "law.js",
    "colours.js",
    "painter.js",
    "picture.js",
    "words.js",
    "place.js",
    "address.js",
    "panel.js",
    "search.js",
    "divider.js",
    "page.js",
    "start.js",
)
"""The page's own scripts, in the order in which they need each other."""

WITHOUT_LEAFLET = (
    "The map needs the Leaflet library, which could not be loaded. Are you offline? A page made "
    "with geogp map --self-contained needs no network."
)
"""What the page says in place of the map."""

_JINJA_AND_SCRIPT = {"{": "&#123;", "}": "&#125;", "`": "&#96;", "$": "&#36;", "\\": "&#92;"}


class Raw(Element):
    """Text that folium puts into the page as it is, never read as a template."""

    _template = jinja2.Template("{{ this.text }}")

    def __init__(self, text: str) -> None:
        super().__init__()
        self._name = "Raw"
        self.text = text


@cache
def asset(name: str) -> str:
    """Return the text of a file of the page."""
    return resources.files("geogp.maps").joinpath("assets", name).read_text("utf-8")


def escape_text(text: str) -> str:
    """Return text that HTML, a Jinja template and a JavaScript string all show as it is.

    Besides HTML's own, the characters that open a Jinja expression or a JavaScript template
    literal become entities: folium renders names through both.
    """
    escaped = html.escape(text)
    for character, entity in _JINJA_AND_SCRIPT.items():
        escaped = escaped.replace(character, entity)
    return escaped


def json_text(content: object) -> str:
    """Return JSON that can stand inside a script of a page: no ``<`` ends or opens one."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    # Two line ends that JSON allows and scripts once did not.
    for character in ("<", "\N{LINE SEPARATOR}", "\N{PARAGRAPH SEPARATOR}"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def head_html() -> str:
    """Return what belongs into the head: the size of a phone's screen, and the style."""
    size = '<meta name="viewport" content="width=device-width, initial-scale=1" />'
    return f"{size}\n<style>\n{asset('page.css')}</style>"


def body_html(title: str, notes: list[str]) -> str:
    """Return the heading and the empty controls; the script fills them."""
    heading = f'<header class="geogp-header"><h1>{escape_text(title)}</h1></header>'
    listed = "\n".join(f"<p>{escape_text(note)}</p>" for note in notes)
    return heading + "\n" + asset("panel.html").replace("<!--notes-->", listed)


def data_html(data: dict[str, Any]) -> str:
    """Return the page's data."""
    return f'<script type="application/json" id="geogp-data">{json_text(data)}</script>'


def script_html() -> str:
    """Return the page's own scripts."""
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return (
        f"<script>\n(() => {{\n'use strict';\n"
        f"const WITHOUT_LEAFLET = {json_text(WITHOUT_LEAFLET)};\n{parts}}})();\n</script>"
    )


class StartScript(MacroElement):
    """Hands the map and the outlines that folium made to the page's own scripts.

    Parameters
    ----------
    outlines
        Names of the outlines in JavaScript, by what they are of.
    attribution
        Escaped attribution of the data.
    words
        Words of the marks where they are not the usual ones.
    """

    _template = Template("""
{% macro script(this, kwargs) %}
{{ this._parent.get_name() }}.attributionControl.addAttribution({{ this.attribution|tojson }});
geogp.startPage({{ this._parent.get_name() }}, {
  {% for name, drawn in this.outlines.items() %}{{ name }}: {{ drawn }},
  {% endfor %}}, {{ this.words|tojson }});
{% endmacro %}
""")

    def __init__(self, outlines: dict[str, str], attribution: str, words: dict[str, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name = "StartScript"
        self.outlines = outlines
        self.attribution = attribution
        self.words = words
