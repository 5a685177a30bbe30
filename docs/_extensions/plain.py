"""Turns pages of plain Markdown, as a Git host shows them, into pages with directives.

What a build runs or inserts stands in comments, which a Git host does not show. A comment on lines
of its own names a directive, its argument, its options and its content::

    <!-- picture: runs/demo/median.png
    :alt: The median of the demo region
    -->

Before a code block, the comment ``run`` says that the build runs the block; ``hidden`` blocks stand
in the comment. Before a link, a comment without an argument takes the link as its argument: the
file is inserted in place of the link. Before a list of links, ``toctree`` makes the pages part of
the site. After code in a sentence, ``made`` makes the code a link to a file of this name.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LANGUAGES = {"bash": "command", "python": "python"}
"""The directive for each language of a code block that the build runs."""

_BLOCK = re.compile(
    r"^<!-- run(?:: (?P<option>[a-z]+))? -->\n+```(?P<language>bash|python)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_TREE = re.compile(
    r"^<!-- toctree: (?P<title>[^\n]+) -->\n+(?P<list>(?:[-*] [^\n]*\n(?:  [^\n]*\n)*)+)",
    re.MULTILINE,
)
_LINKED = re.compile(
    r"^<!-- (?P<name>include|script)\n(?P<options>(?::[^\n]*\n)*)-->\n"
    r"\[[^\]]*\]\((?P<path>[^)]+)\)$",
    re.MULTILINE,
)
_DIRECTIVE = re.compile(
    r"^<!-- (?P<name>picture|rooms|runs-of|command|python|include): ?(?P<rest>.*?)\n?-->$",
    re.DOTALL | re.MULTILINE,
)
_MADE = re.compile(r"`(?P<text>[^`\n]+)`<!-- made: (?P<path>\S+) -->")


def with_directives(page: str) -> str:
    r"""Return a page with the directives that its comments describe.

    Examples
    --------
    >>> print(with_directives("<!-- run: output -->\n```bash\ngeogp demo\n```"))
    ```{command}
    :output:
    geogp demo
    ```
    """
    page = _BLOCK.sub(_block, page)
    page = _TREE.sub(_tree, page)
    page = _LINKED.sub(
        lambda found: _directive(found["name"], found["path"], found["options"]), page
    )
    page = _DIRECTIVE.sub(_comment, page)
    return _MADE.sub(r"{made}`\g<text> <\g<path>>`", page)


def _block(found: re.Match[str]) -> str:
    option = f":{found['option']}:\n" if found["option"] else ""
    return _directive(LANGUAGES[found["language"]], "", option + found["code"])


def _tree(found: re.Match[str]) -> str:
    """Return the list itself, and a hidden toctree of its pages."""
    pages = re.findall(r"\]\(([^)#]+)\.(?:md|rst)\)", found["list"])
    content = "\n".join([f":caption: {found['title']}", ":hidden:", "", *pages, ""])
    return f"{found['list']}\n{_directive('toctree', '', content)}\n"


def _comment(found: re.Match[str]) -> str:
    argument, _, content = found["rest"].partition("\n")
    return _directive(found["name"], argument, f"{content}\n" if content else "")


def _directive(name: str, argument: str, content: str) -> str:
    content = content.replace(r"--\>", "-->")
    return f"```{{{name}}} {argument}".rstrip() + f"\n{content}```"


def _read(app: "Sphinx", docname: str, source: list[str]) -> None:  # noqa: ARG001
    source[0] = with_directives(source[0])


def setup(app: "Sphinx") -> dict[str, Any]:
    """Read the pages as they are with directives, before other extensions read them."""
    app.connect("source-read", _read, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
