"""Pages and sentences from templates, with escaped text from the data."""

import json
import re
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from geogp.maps.page.page_policy import page_policy
from geogp.reports import words

_LATEX_MARKS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{mark: f"\\{mark}" for mark in "{}&%$#_"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        # \textquotedbl is an error in OT1, the default encoding of LaTeX.
        '"': "{''}",
        "\N{EN DASH}": "--",
        "\N{MINUS SIGN}": "$-$",
        "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    }
)
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
"""The end of a line, with the white space around it."""

_MARKDOWN_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]|#~"})


@cache
def environment() -> Environment:
    """Return the Jinja environment for pages, which escapes HTML and rejects unknown names."""
    found = _environment(escaped=True)
    # Percent signs get no-break spaces.
    prose = {"prose": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")}
    found.filters |= {"md": markdown_text} | prose
    found.globals["say"] = say
    return found


@cache
def _environment(*, escaped: bool) -> Environment:
    """Return the Jinja environment for pages if `escaped`, else for plain sentences."""
    found = Environment(
        autoescape=escaped,  # noqa: S701 - pages escape the plain text of sentences
        loader=PackageLoader("geogp.reports", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=None if escaped else _on_one_line,
    )
    names = ("number", "signed", "percent", "span", "points", "plain", "estimate")
    found.filters |= {name: getattr(words, name) for name in names} | {"whole": words.count}
    found.filters |= {"tex": latex_text, "tex_number": _latex_number}
    found.filters["tex_percent"] = lambda share: _latex_number(share, 1, 100)
    found.globals["MISSING"] = words.MISSING
    return found


def _on_one_line(value: Any) -> Any:
    """Return a value for a sentence; in a text, such as a name, line breaks become spaces."""
    return _joined(value) if isinstance(value, str) and _BREAK.search(value) else value


def _joined(text: str) -> str:
    """Return text with a space in place of each line break; other spaces do not change."""
    return _BREAK.sub(" ", text.strip())


def say(name: str, sentence: str, *about: Any, **more: Any) -> str:
    """Return a macro of ``<name>.txt.j2`` as plain text, which pages escape."""
    return _joined(_macro(name, sentence, *about, **more))


def say_all(name: str, sentences: str, *about: Any, **more: Any) -> list[str]:
    """Return the paragraphs of a macro as a list of plain texts; see `say`."""
    return [_joined(part) for part in _paragraphs(name, sentences, *about, **more)]


def say_labelled(name: str, sentences: str, *about: Any, **more: Any) -> dict[str, str]:
    """Return the paragraphs of a macro with more than one line, by their first lines."""
    parts = (one.partition("\n") for one in _paragraphs(name, sentences, *about, **more))
    return {label.strip(): _joined(rest) for label, _, rest in parts if rest}


def _paragraphs(name: str, macro: str, *about: Any, **more: Any) -> list[str]:
    parts = _macro(name, macro, *about, **more).split("\n\n")
    return [part.strip() for part in parts if part.strip()]


def _macro(name: str, macro: str, *about: Any, **more: Any) -> str:
    module = _environment(escaped=False).get_template(f"{name}.txt.j2").module
    return str(getattr(module, macro)(*about, **more))


def report_json(report: Any) -> str:
    """Return a report, a dataclass, as JSON without rounding."""
    return json.dumps(asdict(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def latex_table(name: str, context: dict[str, Any]) -> str:
    r"""Return a booktabs table from the template ``<name>.tex.j2``, for ``\input``."""
    return _environment(escaped=False).get_template(f"{name}.tex.j2").render(context) + "\n"


def html_page(name: str, context: dict[str, Any], *, style: str | None = None) -> str:
    """Return a page from the template ``<name>.html.j2``; the page needs no other file.

    The style of the page is ``shared.css``, then `style`, by default ``<name>.css``; its script, if
    any, is ``<name>.js``, next to the template. The files are used unchanged, so the style and
    script that the policy allows contain no text from the data.
    """
    style = _asset("shared.css") + _asset(style or f"{name}.css")
    script = _asset(f"{name}.js")
    template = environment().get_template(f"{name}.html.j2")
    return template.render(
        context,
        policy=page_policy([style], [script] if script else []),
        style=style,
        script=script,
    )


def _asset(name: str) -> str:
    """Return the text of a file in the folder of templates, empty if there is no such file."""
    file = resources.files("geogp.reports").joinpath("templates", name)
    return file.read_text("utf-8") if file.is_file() else ""


def latex_text(value: Any) -> str:
    """Return text on one line, with LaTeX's special characters escaped."""
    return " ".join(str(value).split()).translate(_LATEX_MARKS)


def _latex_number(value: float | None, digits: int = 3, times: int = 1) -> str:
    """Return a number with fixed decimals and a LaTeX minus sign, or a dash for None."""
    if value is None:
        return "--"
    return f"{round(times * value, digits) + 0.0:.{digits}f}".replace("-", "$-$")


def markdown_text(value: Any) -> Markup:
    """Return text on one line for Markdown, with marks of HTML and Markdown escaped."""
    text = " ".join(str(value).split())
    return Markup(str(escape(text)).translate(_MARKDOWN_MARKS).replace("&\\#", "&#"))  # noqa: S704
