"""Names of runs: folders, codes of regions, and names for display."""

from collections.abc import Sequence
from pathlib import Path

from geogp.errors import RequestError, quoted

RUN_FILE = "run.json"
"""Name of the file that describes the run in a run folder."""

RUNS = Path("runs")
"""Default folder of runs."""


def find_run(text: str, runs: Path = RUNS) -> Path:
    """Return the run folder for a user's text: the path of the folder, or the code of a region.

    A code such as ``PR`` means the finished run in a folder ``PR-...`` of `runs`. Raises
    RequestError if there is no such run, or more than one.
    """
    if Path(text).is_dir():
        return Path(text)
    folders = sorted(
        path.parent
        for path in runs.glob(f"*/{RUN_FILE}")
        if path.parent.name.startswith(f"{text}-")
    )
    if not folders:
        raise RequestError(
            f"expected a run folder, or a region with a finished run in {runs / text}-*, found "
            f"neither for {quoted(text)}. Make a run with `geogp map`, or give the folder of a run."
        )
    if len(folders) > 1:
        raise RequestError(
            f"{text} has {len(folders)} finished runs: {', '.join(map(str, folders))}. "
            "Give a folder."
        )
    return folders[0]


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
