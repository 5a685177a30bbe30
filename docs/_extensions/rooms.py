"""A directive that draws, from the code, which rooms of a folder import which.

The rooms are the folders of Python files in this folder. A picture is SVG inside the page: it has
the colours of the page, and text that a reader can select.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]

ROW, BOX, LANE = 36, 26, 22
"""Distance between rooms, height of a box, and distance between the lines of rooms, in units."""

LETTER = 8
"""Width of a letter of the names, in the same units; no letter of a usual font is wider."""


def imported_in(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_among(folder: str, rooms: Sequence[str]) -> dict[str, list[str]]:
    """Return the rooms that each room of a folder imports, from the files of the room.

    `rooms` are the names of all rooms, from above to below; the result has the same order. Raises
    ValueError if they are not the rooms of the folder, or if a room imports one above it.
    """
    there = {path.parent.name for path in (ROOT / folder).glob("*/*.py")}
    if sorted(rooms) != sorted(there):
        raise ValueError(
            f"expected the rooms of {folder}, {', '.join(sorted(there))}, found {', '.join(rooms)}."
        )
    package = f"{folder.replace('/', '.')}."
    found = {}
    for place, room in enumerate(rooms):
        names = {
            name.removeprefix(package).partition(".")[0]
            for path in (ROOT / folder / room).rglob("*.py")
            for name in imported_in(path)
            if name.startswith(package)
        }
        if above := names & set(rooms[:place]):
            raise ValueError(
                f"expected {room} to import rooms below it, found {', '.join(sorted(above))} above."
            )
        found[room] = [name for name in rooms[place + 1 :] if name in names]
    return found


def picture_of(imports: dict[str, list[str]]) -> str:
    """Return the SVG of rooms, from above to below, with a line from each room to its imports.

    A line leaves its room to the right and goes down. A dot joins it to an arrow into each room
    that it imports. The line of a higher room lies further to the right, so that no two lines of
    rooms cross.
    """
    rooms = list(imports)
    width = LETTER * max(map(len, rooms)) + 16
    lines = [room for room in reversed(rooms) if imports[room]]
    across = {room: width + LANE * (place + 1) for place, room in enumerate(lines)}
    middle = {room: ROW * place + ROW // 2 for place, room in enumerate(rooms)}
    out, into = BOX // 4, -BOX // 4
    parts = []
    for room, needed in imports.items():
        if needed:
            x, y = across[room], middle[room] + out
            parts.append(f'<path d="M{width} {y}H{x}V{middle[needed[-1]] + into}" />')
    for room in rooms:
        users = [user for user in rooms if room in imports[user]]
        if not users:
            continue
        y, far = middle[room] + into, max(across[user] for user in users)
        parts.append(f'<path d="M{far} {y}H{width + 6}" opacity="0.5" />')
        head = f"M{width + 1} {y}l8 -4v8z"
        parts.append(f'<path d="{head}" fill="currentColor" stroke="none" />')
        parts += [
            f'<circle cx="{across[user]}" cy="{y}" r="3.5" fill="currentColor" stroke="none" />'
            for user in users
        ]
    for room in rooms:
        y = middle[room]
        parts.append(
            f'<rect x="1" y="{y - BOX // 2}" width="{width - 1}" height="{BOX}" rx="4" />'
            f'<text x="{width // 2}" y="{y + 5}" text-anchor="middle" fill="currentColor" '
            f'stroke="none">{escape(room)}</text>'
        )
    wide, high = max(across.values(), default=width) + 8, ROW * len(rooms)
    return (
        f'<svg viewBox="0 0 {wide} {high}" role="img" aria-label="{escape(in_words(imports))}" '
        f'style="width: 100%; max-width: {1.4 * wide:.0f}px; height: auto" font-size="14" '
        f'fill="none" stroke="currentColor" stroke-width="1.5">{"".join(parts)}</svg>'
    )


def in_words(imports: dict[str, list[str]]) -> str:
    """Return one sentence for each room, for those who do not see the picture."""
    return " ".join(
        f"{room} imports {', '.join(needed) or 'no other room'}."
        for room, needed in imports.items()
    )


class Rooms(SphinxDirective):
    """A picture of the imports among the rooms of a folder; the content names all its rooms.

    The rooms are named from above to below. The build fails if a room is missing or unknown, or
    imports one above it. The option `caption` is the sentence below the picture.
    """

    has_content = True
    required_arguments = 1
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {
        "caption": directives.unchanged_required
    }

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        (folder,) = self.arguments
        for path in (ROOT / folder).rglob("*.py"):
            self.env.note_dependency(str(path))
        try:
            imports = imports_among(folder, " ".join(self.content).split())
        except ValueError as error:
            raise self.error(str(error)) from error
        figure = nodes.figure("", nodes.raw("", picture_of(imports), format="html"))
        if "caption" in self.options:
            caption = nodes.caption()
            caption += self.parse_inline(self.options["caption"])[0]
            figure += caption
        return [figure]


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("rooms", Rooms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
