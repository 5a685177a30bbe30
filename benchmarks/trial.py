"""Common parts of the benchmarks: command lines, stored figures, tables; needs no geopandas."""

import argparse
import datetime as dt
import functools
import json
import math
import multiprocessing
import os
import platform
import sys
from collections.abc import Callable, Collection, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

import geogp
from geogp.errors import GeogpError
from geogp.files import write_text

Figures = dict[str, Any]
Floats = NDArray[np.float64]

HERE = Path(__file__).parent
OUT, RESULTS = HERE / "out", HERE / "results"
"""Folder with a file for each fit, and folder of the committed tables."""


def parser(
    doc: str | None, *, out: str = "", table: str = "", region: bool = False, **others: Any
) -> argparse.ArgumentParser:
    """Return a parser of a script's command line.

    Parameters
    ----------
    doc
        The script's docstring.
    out, table
        Names of folders in `OUT` and `RESULTS`, the defaults of ``--out`` and ``--table``.
    region
        Whether the script reads a region, and has arguments for a region.
    **others
        Defaults of further options, or types of options whose default is None.
    """
    found = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    if region:
        found.add_argument("region")
        found.add_argument("--source", required=True, help="Ookla's files")
        found.add_argument("--boundaries", required=True)
        found.add_argument("--quarters")
    if out:
        found.add_argument("--out", type=Path, default=OUT / out, help="folder of the fits")
    if table:
        found.add_argument(
            "--table", type=Path, default=RESULTS / table, help="folder of the results"
        )
    for name, value in others.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            found.add_argument(flag, action="store_true")
        elif isinstance(value, type):
            found.add_argument(flag, type=value)
        else:
            found.add_argument(flag, type=type(value), default=value, help=f"{value} if not given")
    return found


def command(main: Callable[..., None]) -> Callable[..., int]:
    """Let a script's `main` return an exit code, and print an error of geogp in one line."""

    @functools.wraps(main)
    def run(*arguments: Sequence[str]) -> int:
        try:
            main(*arguments)
        except GeogpError as error:
            say(f"error: {error}")
            return error.exit_code
        return 0

    return run


def say(*words: object) -> None:
    """Print on standard error without buffering."""
    print(*words, file=sys.stderr, flush=True)


def search_path() -> str:
    """Return a ``PYTHONPATH`` with the folder of the repository, for processes of their own."""
    given = os.environ.get("PYTHONPATH", "")
    here = str(HERE.parent)
    return given if here in given.split(os.pathsep) else os.pathsep.join([here, given])


def forking(*modules: str) -> ForkServerContext:
    """Return a context whose processes are copies of one that has loaded some modules."""
    os.environ["PYTHONPATH"] = search_path()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


def kept(path: Path, make: Callable[[], Figures]) -> Figures:
    """Return the figures of a JSON file; make the file if it does not exist."""
    if not path.exists():
        write_text(path, json.dumps(make(), indent=1) + "\n")
    found: Figures = json.loads(path.read_text())
    return found


def write_results(folder: Path, text: str, found: object, name: str = "") -> None:
    """Write a page and its figures: NAME.md and NAME.json, or table.md and results.json."""
    write_text(folder / f"{name or 'table'}.md", text)
    write_text(folder / f"{name or 'results'}.json", json.dumps(found, indent=1) + "\n")


def table(
    header: Sequence[str], lines: Sequence[Sequence[object]], left: Collection[int] = (0,)
) -> str:
    """Return a Markdown table; columns in `left` are left-aligned, all others right-aligned."""
    rule = ["---" if k in left else "---:" for k in range(len(header))]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in (header, rule, *lines))


def mean_and_error(values: ArrayLike) -> tuple[float, float]:
    """Return mean and standard error; the error of a single value is NaN."""
    found = np.asarray(values, np.float64)
    error = found.std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return float(found.mean()), float(error)


def plus_minus(mean: float, error: float, digits: int = 3) -> str:
    """Return mean ± error, or the mean alone if the error is NaN."""
    return f"{mean:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return mean ± standard deviation, or only the mean of a single value."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return plus_minus(float(np.mean(values)), sd, digits)


def percent(share: float | None, unit: str = " %") -> str:
    """Return a share in percent with one decimal, or an empty text for None."""
    return "" if share is None else f"{100 * share:.1f}{unit}"


def machine(device: str = "cpu") -> Figures:
    """Return the date, the machine and the versions."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "processor": names[0] if names else platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "geogp": geogp.__version__,
    }
