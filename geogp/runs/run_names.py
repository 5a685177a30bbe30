"""How runs are called: by a user, who names a folder or a region, and in what is shown."""

from collections.abc import Sequence
from pathlib import Path

from geogp.errors import RequestError

RUN_FILE = "run.json"
"""What a run is, in its folder."""

RUNS = Path("runs")
"""Where runs are made unless another folder is asked for."""


def find_run(text: str, runs: Path = RUNS) -> Path:
    """Return the run folder that a user names: its path, or the code of a region.

    A code, such as ``PR``, stands for the finished run in a folder ``PR-...`` of `runs`, where
    there is one only.

    Raises
    ------
    RequestError
        There is no such folder; or no such run, or several.
    """
    if Path(text).is_dir():
        return Path(text)
    found = sorted(
        path.parent
        for path in runs.glob(f"*/{RUN_FILE}")
        if path.parent.name.startswith(f"{text}-")
    )
    if not found:
        raise RequestError(
            f"expected a run folder, or a region with a finished run in {runs / text}-*, found "
            f"neither for {text!r}. Make one with `geogp map`, or name its folder."
        )
    if len(found) > 1:
        raise RequestError(
            f"{text} has {len(found)} finished runs: {', '.join(map(str, found))}. Name the folder."
        )
    return found[0]


def run_names(runs: Sequence[Path]) -> list[str]:
    """Return a printable name for each run folder; no two are the same."""
    names = [printable(run.resolve().name) for run in runs]
    if len(set(names)) < len(names):
        names = [printable(str(run)) for run in runs]
    found: list[str] = []
    for name in names:
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name} ({number})"
        found.append(free)
    return found


def printable(text: str) -> str:
    """Replace what no file in UTF-8, or no XML, can hold."""
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)
