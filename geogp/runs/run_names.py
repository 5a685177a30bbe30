"""Names of runs: folders, codes of regions, and names for display."""

from collections.abc import Sequence
from pathlib import Path

from geogp.choices import nearest
from geogp.errors import LONGEST_PATH, RequestError, named, quoted

RUN_FILE = "run.json"
"""Name of the file that describes the run in a run folder."""

RUNS = Path("runs")
"""Default folder of runs."""

PAGES = {"map": "map.html", "report": "report.html"}
"""The pages of a run that people open, by what they are."""

_NEAR = 3
"""Number of runs that a message names if a run does not exist."""


def find_run(text: str, runs: Path = RUNS) -> Path:
    """Return the run folder for a user's text: the path of the folder, or the code of a region.

    A code such as ``PR`` means the finished run in a folder ``PR-...`` of `runs`. Raises
    RequestError if there is no such run, or more than one.
    """
    if Path(text).is_dir():
        return Path(text)
    known = runs.glob(f"*/{RUN_FILE}")
    folders = sorted(path.parent for path in known if path.parent.name.startswith(f"{text}-"))
    if not folders:
        raise RequestError(
            f"expected a run folder, or a region with a finished run in {runs / text}-*, found "
            f"neither for {quoted(text)}. Make a run with `geogp map`, or give the folder of a "
            f"run.{near_runs(Path(text), runs)}"
        )
    if len(folders) > 1:
        raise RequestError(
            f"{text} has {len(folders)} finished runs: {', '.join(map(str, folders))}. "
            "Give a folder."
        )
    return folders[0]


def near_runs(path: Path, runs: Path = RUNS) -> str:
    """Return a sentence with the finished runs whose names are nearest to a path that is no run.

    The runs are those in `runs`, beside the path, and in it if it is a folder: these count as near.
    A name is also as near as its beginning: ``PR`` is near ``PR-mobile-download``. The text begins
    with a space, and is empty if no run is near.
    """
    inside, beside, others = (
        sorted(folder.glob(f"*/{RUN_FILE}")) for folder in (path, path.parent, runs)
    )
    folders = {file.parent.resolve(): file.parent for file in (*others, *beside)}
    wanted, starts = path.name.casefold(), dict[str, list[Path]]()
    for folder in folders.values():
        name = folder.name.casefold()
        for start in {name, name.partition("-")[0], name[: len(wanted)]}:
            starts.setdefault(start, []).append(folder)
    near = [folder for start in nearest(wanted, starts, _NEAR) for folder in starts[start]]
    found = [file.parent for file in inside] or list(dict.fromkeys(near))
    return f" Nearest: {named(found[:_NEAR], longest=LONGEST_PATH)}." if found else ""


def run_names(runs: Sequence[Path]) -> list[str]:
    """Return a distinct printable name for each run folder."""
    names = [printable(run.resolve().name) for run in runs]
    if len(set(names)) < len(names):
        names = [printable(str(run)) for run in runs]
    distinct: list[str] = []
    for name in names:
        number, free = 1, name
        while free in distinct:
            number += 1
            free = f"{name} ({number})"
        distinct.append(free)
    return distinct


def printable(text: str) -> str:
    """Replace the characters that a UTF-8 file or XML cannot contain."""
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)
