"""Common parts of the scripts: command lines, stored figures, the machine; needs no geopandas."""

import argparse
import datetime as dt
import json
import multiprocessing
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Collection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import geogp
from geogp.files import write_text

Figures = dict[str, Any]
Floats = NDArray[np.float64]

HERE = Path(__file__).parent
OUT, RESULTS = HERE / "out", HERE / "results"
"""Folder with a file for each fit, and folder of the committed tables."""

DEVICES = ("cpu", "cuda")
"""Values of ``--device``."""


def parser(
    doc: str | None,
    *,
    out: str = "",
    table: str = "",
    region: bool = False,
    required: str = "",
    devices: bool = False,
    **others: Any,
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
    required
        Name of an option with a path that must be given.
    devices
        Whether the script has the option ``--device``, one of `DEVICES`.
    **others
        Defaults of further options, types of options whose default is None, or several values, all
        or some of which can be given. If these are texts, no others can be given.
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
    if required:
        found.add_argument(f"--{required}", type=Path, required=True)
    if devices:
        found.add_argument("--device", type=_available, choices=DEVICES, default="cpu")
    for name, value in others.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            found.add_argument(flag, action="store_true")
        elif isinstance(value, type):
            found.add_argument(flag, type=value)
        elif isinstance(value, Collection) and not isinstance(value, str):
            kind, known = type(next(iter(value))), list(value)
            allowed = known if kind is str else None
            found.add_argument(flag, nargs="+", type=kind, default=known, choices=allowed)
        else:
            found.add_argument(flag, type=type(value), default=value, help=f"{value} if not given")
    return found


def _available(device: str) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("no CUDA device is available; use --device cpu.")
    return device


def options_of(doc: str | None, **asked: Any) -> argparse.Namespace:
    """Return the options of the command line; see `parser`."""
    return parser(doc, **asked).parse_args()


def command_given() -> str:
    """Return the command that runs the script."""
    return f"{sys.argv[0]} {shlex.join(sys.argv[1:])}"


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


def all_kept(folder: Path, pattern: str) -> list[Figures]:
    """Return the figures of all JSON files of a folder with such names, in their order."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def device_name(device: str) -> str:
    """Return the name of a GPU, or that of another device in PyTorch."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device


def fits_on(device: str, out: Path) -> Path:
    """Return the folder of the fits on a device: `out` for the CPU, a folder inside for others."""
    return out if device == "cpu" else out / re.sub(r"\W+", "-", device_name(device))


def clock(device: str) -> float:
    """Return seconds: of the processor for the CPU, else of the wall, when the device is done."""
    if device == "cpu":
        return process_time()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


def costs(device: str, started: float, of: str = "") -> Figures:
    """Return the seconds since a time of `clock`, and the device's name unless it is the CPU."""
    seconds = clock(device) - started
    if device == "cpu":
        return {f"{of}cpu_seconds": seconds}
    return {f"{of}seconds": seconds, "device": device_name(device)}


class Times(NamedTuple):
    """The name of the seconds of `costs`, their unit, what they are, and an option of the command.

    The last two are empty for the CPU.
    """

    key: str
    unit: str
    wall: str
    option: str


def times_of(found: Figures) -> Times:
    """Return how a page states the costs of a fit."""
    if "device" not in found:
        return Times("cpu_seconds", "CPU s", "", "")
    return Times("seconds", "s", f"wall times on {found['device']}", " --device cuda")


def write_results(folder: Path, text: str, found: object, name: str = "") -> None:
    """Write a page and its figures: NAME.md and NAME.json, or table.md and results.json."""
    write_text(folder / f"{name or 'table'}.md", text)
    write_text(folder / f"{name or 'results'}.json", json.dumps(found, indent=1) + "\n")


def machine(device: str = "cpu") -> Figures:
    """Return the date, the machine and the versions."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "device": device_name(device),
        "processor": names[0] if names else platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "geogp": geogp.__version__,
    }
