"""Tampered runs; and what is wrong with how a command ended, or whom it asked."""

import json
import re
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults_folders import LIMIT_S, RUN, Tally, Told, World, forget
from fork_command import MAX_SECONDS

MARKUP = "<script>faults()</script>"
"""Text that must never stand in a page as it is."""

GOOD = frozenset({0, 2, 3})
"""Exit codes of a request that is done or refused."""


class Counter(socketserver.ThreadingTCPServer):
    """A server on the loopback address that counts who connects, and has nothing."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(socketserver.StreamRequestHandler):
    timeout = 2

    def handle(self) -> None:
        """Note the first line, and answer that there is no such file."""
        try:
            line = self.rfile.readline(200)
        except OSError:
            line = b""
        self.server.asked.append(line.decode("latin-1").strip())  # type: ignore[attr-defined]
        self.wfile.write(b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def counting(world: World, tally: Tally) -> Iterator[Counter]:
    """Serve and count; and see first that a request that is due is counted."""
    with Counter() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        place = world.place()
        at = world.map(place).index(str(world.source))
        arguments = world.map(place)
        arguments[at] = server.url
        world.call(*arguments)
        faults = [] if server.asked else ["a source on the server was not asked: it cannot count"]
        tally.note("the server counts", "a source on the server", faults)
        server.asked.clear()
        try:
            yield server
        finally:
            server.shutdown()


def faults_of(
    told: Told, codes: frozenset[int], *, asked: Sequence[str] = (), log: bool = False
) -> list[str]:
    """Return what is wrong with how a command ended.

    Parameters
    ----------
    told
        How it ended.
    codes
        Exit codes that it may have.
    asked
        What it asked the server.
    log
        Whether it may also end with 70 and one line with the path of a log that is there.
    """
    if told.code is None:
        return [f"did not end (in {MAX_SECONDS} s of work, or {LIMIT_S} s)"]
    faults = []
    if "Traceback (most recent call last)" in told.text:
        faults.append(f"wrote a traceback: {told.last}")
    if told.code == 70 and log:
        named = (path.rstrip(".,;:") for path in re.findall(r"/[^\s'\"]+", told.last))
        if not any(Path(path).is_file() for path in named):
            faults.append(f"ended with 70, and its last line names no log: {told.last}")
    elif told.code not in codes:
        faults.append(f"ended with {told.code}: {told.last}")
    if told.code != 0 and not told.errors.strip():
        faults.append(f"ended with {told.code} without a word")
    if asked:
        faults.append(f"asked the server {len(asked)} times: {asked[0]}")
    return faults


def _wrong(value: Any) -> list[tuple[str, Any]]:
    """Return values of other types than one has, and odd ones of its type."""
    if isinstance(value, bool):
        return [("a number", 7), ("null", None)]
    if isinstance(value, int | float):
        return [("text", "x"), ("negative", -1), ("1e308", 1e308), ("a list", [])]
    if isinstance(value, str):
        return [("a number", 7), ("markup", MARKUP), ("empty", ""), ("a path", "../../x")]
    if isinstance(value, list):
        return [("text", "x"), ("numbers", [1, 2]), ("empty", []), ("nulls", [None])]
    if isinstance(value, dict):
        return [("a list", []), ("empty", {}), ("null", None), ("text inside", {"all": "x"})]
    return [("text", "x"), ("a number", 7)]


def _set(path: Sequence[str], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(run: dict[str, Any]) -> None:
        held = run
        for key in path[:-1]:
            held = held[key]
        if value is ...:
            held.pop(path[-1], None)
        else:
            held[path[-1]] = value

    return change


def _edits(run: dict[str, Any], server: Counter) -> dict[str, Callable[[dict[str, Any]], None]]:
    """Return edits of a run: every key of other types, and values that were once believed."""
    edits = {}
    places = [((key,), value) for key, value in run.items()]
    for part in ("settings", "map", "drawing"):
        places += [((part, key), value) for key, value in run[part].items()]
    for turn, (path, value) in enumerate(places):
        odd = _wrong(value)
        for told, put in (odd[turn % len(odd)], odd[(turn + 1) % len(odd)]):
            edits[f"{'.'.join(path)} {told}"] = _set(path, put)
    far = f"{server.url}/tiles"
    odd_values: dict[str, Sequence[Any]] = {
        "map.zoom": (0, 30, -1, 23, 10**30, 12.5),
        "map.tests": (0, 10**18, -3),
        "map.at": ("2099Q4", "1900Q1", "2023Q9", "x"),
        "map.for": ("nothing",),
        "seed": (2**64, 10**400, -1),
        "quarters": ([], ["2023Q9"], ["2023Q3"] * 10**4),
        "model": ("nothing", "cox-nb", "nystrom-mixed"),
        "target": ("tests", "nothing"),
        "region": ("ZZ", "../x", MARKUP, "\ud800"),
        "region_name": (MARKUP, "x" * 10**5, "a\nb\x1b[31m"),
        "attribution": (MARKUP,),
        "warnings": ([MARKUP],),
        "metrics": (None, {}, {"random": None}, {"random": {"all": {"nll": "x"}}}, ...),
        "baseline": ({"random": {"all": {"nll": -9.0, "n": 30}}}, {}, ...),
        "n": ({}, {"random": {"train": -5}}),
        "inputs": ([], ...),
        "files": (["../../notes.txt"], ["/etc/passwd"]),
        "drawing.thresholds": ([1e308], [-1.0], [0.0], ["x"], list(range(10**4))),
        "drawing.far_km": (0.0, -1.0),
        "settings.source": (far, far.replace("//", "//name:word@"), "/dev/zero", "/nowhere", ""),
        "settings.boundaries": (far, "/dev/null", None),
        "settings.layers": ([f"/vsicurl/{far}.geojson"], ["/dev/zero"]),
        "settings.strata_file": (f"{far}.geojson", "/dev/zero"),
        "settings.region_file": (f"/vsicurl/{far}.geojson", "/dev/zero"),
        "settings.splits": ([], ["nothing"]),
        "settings.conformal": ("strata", "nothing"),
        "settings.noise": ("student-t", "nothing"),
        "settings.inputs": ("nothing", "place"),
        "settings.urban_vintage": (1, 2000),
    }
    for key, values in odd_values.items():
        for value in values:
            told = "absent" if value is ... else json.dumps(value)[:50]
            edits[f"{key} {told}"] = _set(key.split("."), value)
    return edits


TEXTS = {
    "empty": lambda _: "",
    "half": lambda text: text[: len(text) // 2],
    "a list": lambda _: "[]",
    "nested deeply": lambda _: "[" * 10**5,
    "NaN": lambda text: re.sub(r'("nll": )[-\d.e]+', r"\1NaN", text, count=1),
    "too large a number": lambda text: re.sub(r'("nll": )[-\d.e]+', r"\g<1>1e999", text, count=1),
    "zero bytes": lambda text: text.replace("DEMO", "\0"),
}
"""Edits of the text of run.json."""


def _reopening(run: Path, place: Path, other: Path) -> dict[str, list[str]]:
    """Return the commands that open a finished run again."""
    return {
        "report": ["report", str(run)],
        "areas": ["areas", str(run), "--by", "urban", "--draws", "200"],
        "exceedance": ["exceedance", str(run), "--draws", "200"],
        "next": ["next", str(run), "--tiles", "2", "--candidates", "10"],
        "figures": ["figures", str(run)],
        "compare": ["compare", str(run), str(other), "--out", str(place / "comparison")],
        "gallery": ["gallery", str(run), "--out", str(place / "gallery")],
    }


def tampered_runs(world: World, tally: Tally) -> None:
    """Edit run.json in a hundred ways, and open the run with each command that does."""
    with counting(world, tally) as server:
        plain = world.whole["plain"] / RUN
        text = (plain / "run.json").read_text("utf-8")
        makes: dict[str, Callable[[Path], None]] = {"nothing": lambda _: None}
        for name, edit in _edits(json.loads(text), server).items():
            makes[name] = _edited(text, edit)
        for name, rewrite in TEXTS.items():
            content = rewrite(text)
            makes[f"the text {name}"] = lambda path, content=content: path.write_text(content)
        other = world.whole["other"] / RUN
        commands = list(_reopening(plain, plain, other))
        cases = [(name, command) for command in commands for name in makes]
        by_command = {
            command: tally.chosen([case for case in cases if case[1] == command], _tampered_name)
            for command in commands
        }
        for case in (case for chosen in by_command.values() for case in chosen):
            # The tiny run has no cell with so many test rows as figures ask for.
            whole = case[0] == "nothing" and case[1] != "figures"
            faults = _tampered(world, server, makes[case[0]], case[1], whole=whole)
            tally.note(f"tampered run: {case[1]}", _tampered_name(case), faults)


def _tampered_name(case: tuple[str, str]) -> str:
    return f"{case[1]}, {case[0]}"


def _edited(text: str, edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        run = json.loads(text)
        edit(run)
        path.write_text(json.dumps(run))

    return make


def _tampered(
    world: World, server: Counter, make: Callable[[Path], None], command: str, *, whole: bool
) -> list[str]:
    place = world.place(world.whole["plain"])
    notes = place / "notes.txt"
    notes.write_text("mine")
    run = place / RUN
    make(run / "run.json")
    server.asked.clear()
    told = world.call(*_reopening(run, place, world.whole["other"] / RUN)[command])
    faults = faults_of(told, frozenset({0}) if whole else GOOD, asked=server.asked)
    if not notes.is_file() or notes.read_text() != "mine":
        faults.append("a file beside the run is lost")
    pages = [path for path in place.rglob("*.html") if MARKUP in path.read_text("utf-8", "replace")]
    faults += [f"{path.relative_to(place)} holds markup of run.json" for path in pages]
    if not faults:
        forget(place)
    return faults
