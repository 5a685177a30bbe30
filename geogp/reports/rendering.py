"""How pages are made from templates, and text from outside escaped."""

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from geogp.maps.page.page_policy import page_policy

_MARKDOWN_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]|#~"})


@cache
def environment() -> Environment:
    """Return what templates are rendered with: HTML escaped, unknown names refused."""
    found = Environment(
        loader=PackageLoader("geogp.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["md"] = markdown_text
    found.filters["prose"] = _prose
    return found


def html_page(name: str, context: dict[str, Any]) -> str:
    """Return a page from the template ``<name>.html.j2``, which needs no other file.

    Its style is ``<name>.css`` and its script, if it has one, ``<name>.js``: files beside the
    template, never rendered, so that the policy allows nothing that holds text from outside.
    """
    style, script = _asset(f"{name}.css"), _asset(f"{name}.js")
    template = environment().get_template(f"{name}.html.j2")
    return template.render(
        context,
        policy=page_policy([style], [script] if script else []),
        style=style,
        script=script,
    )


def _asset(name: str) -> str:
    """Return a file of the templates; empty if there is none."""
    file = resources.files("geogp.reports").joinpath("templates", name)
    return file.read_text("utf-8") if file.is_file() else ""


def markdown_text(value: Any) -> Markup:
    """Escape text for Markdown: HTML as entities, marks behind backslashes, on one line."""
    text = " ".join(str(value).split())
    return Markup(str(escape(text)).translate(_MARKDOWN_MARKS).replace("&\\#", "&#"))  # noqa: S704


def _prose(text: str) -> str:
    """Keep numbers and their percent signs on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
