"""Directives that run the commands and the Python of a page and show the output.

All code blocks run in this process, in the folder docs/_build/made. Each block runs once in a
build, even if several pages contain it. A page that needs the files of other pages names the pages
in ``runs-of``, or repeats a command with the option ``hidden``.
A block that fails causes a warning, which makes the build fail.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList
from plain import with_directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs" / "_build" / "made"
COLUMNS = 100

_told: dict[str, str] = {}
_linked: set[str] = set()


@contextlib.contextmanager
def _here() -> Iterator[None]:
    """Work in the folder `MADE`, which links to the demo region at its path in the repository."""
    MADE.mkdir(parents=True, exist_ok=True)
    if not (MADE / "data").exists():
        (MADE / "data").symlink_to(ROOT / "data")
    before = Path.cwd()
    os.chdir(MADE)
    try:
        with patch.dict(os.environ, {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}):
            yield
    finally:
        os.chdir(before)


def _commands(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip()]


def _run_command(arguments: list[str]) -> None:
    from geogp_cli.entry import run  # noqa: PLC0415

    if arguments[0] != "geogp":
        raise ValueError(f"expected a geogp command, found {' '.join(arguments)}")
    with patch.object(sys, "argv", arguments):
        try:
            run()
        except SystemExit as stop:
            if stop.code:
                raise RuntimeError(f"{shlex.join(arguments)}: exit code {stop.code}") from stop


def _run_commands(text: str) -> None:
    for arguments in _commands(text):
        _run_command(arguments)


def _run_python(text: str) -> None:
    exec(compile(text, "<example>", "exec"), {"__name__": "example"})  # noqa: S102


def _told_by(run: Callable[[str], None], text: str) -> str:
    """Run a code block, unless it ran before in this build; return its standard output."""
    if text not in _told:
        out, errors = io.StringIO(), io.StringIO()
        try:
            with _here(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                run(text)
        except Exception as error:
            raise RuntimeError(f"{errors.getvalue()}\n{traceback.format_exc()}") from error
        _told[text] = re.sub(r" +$", "", out.getvalue(), flags=re.MULTILINE).rstrip()
    return _told[text]


class _Run(SphinxDirective):
    """Run a code block, and show it with its output.

    Options: ``hidden`` shows nothing of the block; ``output`` shows the printed text as it is;
    ``markdown`` inserts the printed text into the page as Markdown.
    """

    has_content = True
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {
        "hidden": directives.flag,
        "output": directives.flag,
        "markdown": directives.flag,
    }
    language = "console"
    runner: ClassVar[Callable[[str], None]]

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.content)
        try:
            told = _told_by(type(self).runner, text)
        except RuntimeError as error:
            raise self.error(f"a code block of this page failed:\n{text}\n{error}") from error
        found: list[nodes.Node] = []
        if "hidden" not in self.options:
            found.append(nodes.literal_block(text, text, language=self.language))
        if "markdown" in self.options:
            found += self.parse_text_to_nodes(told, allow_section_headings=True)
        elif "output" in self.options:
            found.append(nodes.literal_block(told, told, language="text", classes=["output"]))
        return found


class Command(_Run):
    """A block of ``geogp`` commands, one on each line."""

    language = "bash"
    runner = staticmethod(_run_commands)


class Python(_Run):
    """A block of Python."""

    language = "python"
    runner = staticmethod(_run_python)


class Script(Python):
    """A file of Python, by its path in docs."""

    has_content = False
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = ROOT / "docs" / self.arguments[0]
        self.env.note_dependency(str(path))
        self.content = StringList(path.read_text("utf-8").splitlines())
        return super().run()


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Return kind (``command`` or ``python``) and text of each code block that a page runs."""
    blocks = re.findall(
        r"^```\{(command|python)\}\n(?::[^\n]*\n)*\n*(.*?)\n```$",
        with_directives(page),
        re.DOTALL | re.MULTILINE,
    )
    return [(kind, text) for kind, text in blocks]


class RunsOf(SphinxDirective):
    """Run the code blocks of the pages in the arguments, and show nothing."""

    required_arguments = 1
    optional_arguments = 9
    runners: ClassVar[dict[str, type[_Run]]] = {"command": Command, "python": Python}

    def run(self) -> list[nodes.Node]:
        for name in self.arguments:
            path = ROOT / "docs" / f"{name}.md"
            self.env.note_dependency(str(path))
            blocks = blocks_of(path.read_text("utf-8"))
            if not blocks:
                raise self.error(f"the page {name} has no code blocks to run.")
            for kind, text in blocks:
                try:
                    _told_by(self.runners[kind].runner, text)
                except RuntimeError as error:
                    raise self.error(
                        f"a code block of the page {name} failed:\n{text}\n{error}"
                    ) from error
        return []


class Picture(SphinxDirective):
    """A picture from a code block: its path, the required option ``alt``, and a caption."""

    has_content = True
    required_arguments = 1
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {
        "alt": directives.unchanged_required,
        "width": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        path = MADE / self.arguments[0]
        if not path.is_file() or not self.options.get("alt"):
            raise self.error(f"expected the option alt, and a picture at {path}.")
        uri = f"/{path.relative_to(ROOT / 'docs').as_posix()}"
        image = nodes.image(uri=uri, alt=self.options["alt"])
        if "width" in self.options:
            image["width"] = self.options["width"]
        figure = nodes.figure("", image)
        if self.content:
            caption = nodes.caption()
            caption += self.parse_inline(" ".join(self.content))[0]
            figure += caption
        return [figure]


class MadeRole(SphinxRole):
    """A link to a file from a code block, ``text <path>``; the file is published with the pages."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        found = re.fullmatch(r"(.+) <(.+)>", self.text)
        if found is None:
            message = self.inliner.reporter.error(f"expected text <path>, found {self.text!r}")
            return [], [message]
        text, path = found.groups()
        if not (MADE / path).is_file():
            message = self.inliner.reporter.error(f"{path} was not made", line=self.lineno)
            return [], [message]
        _linked.add(path)
        up = "../" * self.env.docname.count("/")
        return [nodes.reference("", text, refuri=f"{up}made/{path}", internal=True)], []


def _publish(app: Sphinx, failed: Exception | None) -> None:
    """Copy linked files to the built pages; for a gallery, copy also the pages of its runs."""
    if failed is not None:
        return
    paths = {MADE / path for path in _linked}
    if any(path.parent.name == "gallery" for path in paths):
        paths |= {path for name in ("map", "report") for path in MADE.glob(f"runs/*/{name}.html")}
    for path in paths:
        place = Path(app.outdir) / "made" / path.relative_to(MADE)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives and the role."""
    kinds: dict[str, type[Directive]] = {
        "command": Command,
        "python": Python,
        "script": Script,
        "runs-of": RunsOf,
        "picture": Picture,
    }
    for name, kind in kinds.items():
        app.add_directive(name, kind)
    app.add_role("made", MadeRole())
    app.connect("build-finished", _publish)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
