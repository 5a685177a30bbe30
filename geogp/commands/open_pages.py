"""The pages of a finished run, in a browser."""

import os
import sys
import webbrowser
from pathlib import Path

from geogp.errors import RequestError
from geogp.runs.run_names import PAGES, RUN_FILE, near_runs


def pages_of(run: Path) -> dict[str, Path]:
    """Return the absolute paths of the map and the report of a finished run, by these names.

    Raises RequestError if the folder is not a finished run, or has neither page.
    """
    pages = {name: (run / file).resolve() for name, file in PAGES.items()}
    there = {name: path for name, path in pages.items() if path.is_file()}
    if not (run / RUN_FILE).is_file():
        raise RequestError(
            f"{run} is not a finished run: expected {RUN_FILE} in this folder.{near_runs(run)}"
        )
    if not there:
        raise RequestError(
            f"{run} has neither {' nor '.join(PAGES.values())}. To make them again, give the "
            "command `geogp map` of the run again."
        )
    return there


def open_in_browser(path: Path) -> bool:
    """Open a file in the browser; return False if there is no display or no browser."""
    windows = sys.platform in {"win32", "darwin"}
    # Without a display, Python would start a text browser in the terminal.
    if not (windows or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    return webbrowser.open(path.as_uri())
