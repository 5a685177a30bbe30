"""Data for the trials of runs, the contents of a complete run folder, and faults within it."""

import hashlib
import json
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.faults.fork_command import all_modules, start
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quarters import parse_quarters

LIMIT_S = 600
"""Seconds after which a command counts as hung, as after `fork_command.MAX_SECONDS` of work."""

NOWHERE = "http://127.0.0.1:9"
"""A proxy that does not exist, so that no trial can reach another machine."""

RUN = "run"
"""Name of the run folder in each place; files left beside it are checked too."""

COMPLETE = re.compile(r"complete already")

_MASKS = (
    (re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"), b"id"),  # folium's
    (re.compile(rb'("(?:read|fit|predict|write)":\s*)[\d.e+-]+'), rb"\1 0"),
    (re.compile(rb"(seconds to \w+\W[^0-9]{0,40})[\d.]+"), rb"\1 0"),
    (re.compile(rb"\b(read|fit|predict|write) \d[\d.]*"), rb"\1 0"),
)
"""Parts of files that differ between equal runs: seconds, and names of elements."""


@dataclass
class Tally:
    """The cases that were tried, how often, and their faults.

    Attributes
    ----------
    most
        Largest number of cases of one kind to try, chosen evenly from all cases.
    only
        Try only cases whose name contains this text.
    rows
        For each kind of case the number tried, and each fault with the name of its case.
    """

    most: int = 10**6
    only: str = ""
    rows: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    def chosen(self, cases: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
        """Return the cases to try."""
        wanted = [case for case in cases if self.only in name(case)]
        if len(wanted) <= self.most:
            return wanted
        at = np.unique(np.linspace(0, len(wanted) - 1, self.most).round().astype(int))
        return [wanted[k] for k in at]

    def may(self, kind: str) -> bool:
        """Return whether case names that begin with `kind` and a comma may be selected."""
        return ", " not in self.only or kind in self.only

    def note(self, kind: str, name: str, faults: Sequence[str]) -> None:
        """Count a case that was tried."""
        times, held = self.rows.setdefault(kind, (0, []))
        held += [f"{name}: {fault}" for fault in faults]
        self.rows[kind] = (times + 1, held)

    @property
    def faults(self) -> int:
        """Number of faults found."""
        return sum(len(held) for _, held in self.rows.values())


@dataclass(frozen=True)
class Told:
    """How a command ended: exit code (None if it hung), and output."""

    code: int | None
    output: str
    errors: str

    @property
    def text(self) -> str:
        """All output of the command."""
        return self.output + self.errors

    @property
    def last(self) -> str:
        """Last line of the output."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return lines[-1][:300] if lines else "(no word)"


class World:
    """A small source, processes that run the command, and undisturbed runs.

    Attributes
    ----------
    whole
        Places of undisturbed runs: ``plain``, ``other`` with another seed, and ``redrawn``, the
        plain run with another map.
    wanted
        Contents of these places; see `contents`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "source"
        region = simple_region()
        quarters = parse_quarters("2023Q3..2023Q4").all
        made = simulate(region, rows=300, quarters=quarters, seed=1)
        write_simulation(made, region, self.source)
        self._number = count()
        upper = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        lower = {name.lower(): value for name, value in upper.items()}
        self._environment = {"GEOGP_CACHE": str(folder / "cache"), **upper, **lower}
        self._modules = all_modules()
        self.whole: dict[str, Path] = {}
        self.wanted: dict[str, dict[str, str]] = {}

    def make_whole(self) -> list[str]:
        """Make the undisturbed runs; return any differences between two equal runs."""
        for name, more in (
            ("plain", []),
            ("other", ["--seed", "1"]),
            ("redrawn", ["--tests", "7"]),
        ):
            place = self.place(self.whole["plain"] if name == "redrawn" else None)
            told = self.call(*self.map(place, *more))
            if told.code != 0:
                raise RuntimeError(f"{name}, undisturbed, ended with {told.code}: {told.errors}")
            self.whole[name], self.wanted[name] = place, contents(place)
        again = self.place()
        self.call(*self.map(again))
        return self._blind() + differences(again, self.wanted["plain"])

    def _blind(self) -> list[str]:
        """Return the files that are equal in different runs, and so cannot distinguish the runs."""
        plain = self.wanted["plain"]
        return [
            f"{name} is the same in the runs plain and {other}"
            for other, names in (
                ("other", ("grid.nc", "test_predictions.parquet", "model.safetensors")),
                ("redrawn", ("grid.nc", "map.html")),
            )
            for name in names
            if self.wanted[other][f"{RUN}/{name}"] == plain[f"{RUN}/{name}"]
        ]

    def place(self, start: Path | None = None) -> Path:
        """Return a new place for a run; if `start` is given, with a copy of its contents."""
        place = self.folder / "places" / f"{next(self._number):05}"
        if start is None:
            place.mkdir(parents=True)
        else:
            shutil.copytree(start, place, symlinks=True)
        return place

    def map(self, place: Path, *more: str) -> list[str]:
        """Return the arguments of `geogp map` for a place."""
        return [
            *("map", "DEMO", "--source", str(self.source)),
            *("--boundaries", str(self.source / "boundaries")),
            *("--preset", "quick", "--epochs", "1", "--zoom", "12", "--out", str(place / RUN)),
            *more,
        ]

    def command(self, place: Path, more: Sequence[str]) -> list[str]:
        """Return the arguments of ``geogp report`` if `more` says so, or of a map."""
        return ["report", str(place / RUN)] if more == ("report",) else self.map(place, *more)

    def start(self, *arguments: str, **asked: Any) -> "Started":
        """Start a command."""
        logs = self.folder / "logs" / f"{next(self._number):05}"
        logs.mkdir(parents=True)
        given = (arguments, logs, self._environment, self._modules)
        return Started(start(*given, pictures=False, **asked), logs)

    def call(self, *arguments: str, **asked: Any) -> Told:
        """Run a command to its end."""
        return self.start(*arguments, **asked).end()

    def changes(self, place: Path, *arguments: str) -> list[tuple[str, str]]:
        """Run a command to its end, and return its changes in a place, one for each call."""
        record = self.folder / "record.json"
        record.unlink(missing_ok=True)
        told = self.call(*arguments, changes={"folder": place}, record=record)
        if told.code != 0:
            raise RuntimeError(f"{arguments[0]}, undisturbed, ended with {told.code}: {told.last}")
        seen = [(what, path) for what, path in json.loads(record.read_text())]
        return [(what, str(Path(path).relative_to(place.resolve()))) for what, path in seen]


@dataclass(frozen=True)
class Started:
    """A running command."""

    process: ForkServerProcess
    logs: Path

    def stands(self, limit_s: float = LIMIT_S) -> bool:
        """Wait until the command stops itself; return whether it did so before its end."""
        until = time.monotonic() + limit_s
        while self.process.exitcode is None and time.monotonic() < until:
            with suppress(OSError):
                text = Path(f"/proc/{self.process.pid}/stat").read_text()
                if text.rpartition(")")[2].split()[0] == "T":
                    return True
            time.sleep(0.005)
        return False

    def end(self, limit_s: float = LIMIT_S) -> Told:
        """Wait for the end of the command, and kill it if it takes too long."""
        self.process.join(limit_s)
        over = self.process.exitcode in {None, -signal.SIGXCPU}
        self.process.kill()
        self.process.join()
        output, errors = (
            path.read_text("utf-8", "replace") if path.is_file() else ""
            for path in (self.logs / "output", self.logs / "errors")
        )
        return Told(None if over else self.process.exitcode, output, errors)


def contents(place: Path) -> dict[str, str]:
    """Return a digest of each file below a folder, by path; for a folder only its name.

    Files with equal digests have equal contents. For grids, tables and models these are the values,
    to the last bit; for texts everything except seconds and names of elements; for other files the
    bytes.
    """
    found = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_dir():
            found[f"{name}/"] = "folder"
        else:
            found[name] = _digest(path)
    return found


def _digest(path: Path) -> str:
    whole = path.read_bytes()
    try:
        if path.suffix == ".nc":
            parts = _grid_parts(path)
        elif path.suffix == ".parquet":
            parts = _table_parts(path)
        elif path.suffix == ".safetensors":
            size = int.from_bytes(whole[:8], "little")
            head = json.loads(whole[8 : 8 + size])
            parts = [json.dumps(head, sort_keys=True).encode(), whole[8 + size :]]
        else:
            parts = [_masked(whole, path.name)]
    except Exception as error:  # noqa: BLE001 - whatever a library raises: a damaged file
        return f"damaged: {type(error).__name__} {hashlib.sha256(whole).hexdigest()}"
    joined = hashlib.sha256()
    for part in parts:
        joined.update(hashlib.sha256(part).digest())
    return joined.hexdigest()


def _grid_parts(path: Path) -> list[bytes]:
    found: list[bytes] = []

    def keep(name: str, part: Any) -> None:
        if isinstance(part, h5py.Dataset):
            values = np.ascontiguousarray(part[()])
            found.extend((f"{name} {values.dtype} {values.shape}".encode(), values.tobytes()))

    with h5py.File(path) as grid:
        grid.visititems(keep)
    return found


def _table_parts(path: Path) -> list[bytes]:
    table = pq.read_table(path, page_checksum_verification=True).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as stream:
        stream.write_table(table.replace_schema_metadata(None))
    return [sink.getvalue().to_pybytes()]


def _masked(content: bytes, name: str) -> bytes:
    if name == "run.json":
        run = json.loads(content)
        run.pop("file_records", None)  # includes texts with seconds; see `record_faults`
        content = json.dumps(run, sort_keys=True).encode()
    for pattern, put in _MASKS:
        content = pattern.sub(put, content)
    return content


def named_files(run: Path) -> list[str]:
    """Return the names of the files that run.json lists."""
    return sorted(json.loads((run / "run.json").read_text("utf-8"))["files"])


def record_faults(run: Path) -> list[str]:
    """Return the differences between a run folder and its run.json."""
    try:
        held = json.loads((run / "run.json").read_text("utf-8"))
        records = {name: held["file_records"][name] for name in held["files"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"run.json cannot be read ({type(error).__name__})"]
    found = []
    for name, record in records.items():
        path = run / name
        if not path.exists():
            found.append(f"{name}, named in run.json, is not there")
        elif path.is_file():
            content = path.read_bytes()
            if record["bytes"] != len(content):
                found.append(f"{name} has another size than run.json says")
            if record["sha256"] != hashlib.sha256(content).hexdigest():
                found.append(f"{name} has another hash than run.json says")
    return found


def differences(place: Path, wanted: dict[str, str], spare: Sequence[str] = ()) -> list[str]:
    """Return how a place differs from an undisturbed one; files `spare` may exist in addition."""
    found = contents(place)
    lacking = [f"{name} is missing" for name in sorted(set(wanted) - set(found))]
    others = [f"{name} is left over" for name in sorted(set(found) - set(wanted) - set(spare))]
    changed = [
        f"{name} holds something else" + (" (damaged)" * found[name].startswith("damaged"))
        for name in sorted(set(found) & set(wanted))
        if found[name] != wanted[name]
    ]
    return [*lacking, *others, *changed, *record_faults(place / RUN)]


def brief(faults: Sequence[str], most: int = 4) -> list[str]:
    """Return the faults of one case as one text; an empty list if there are none."""
    more = f"; and {len(faults) - most} more" if len(faults) > most else ""
    return ["; ".join(faults[:most]) + more] if faults else []


def done_well(told: Told, place: Path, wanted: dict[str, str], of: str) -> list[str]:
    """Return what is wrong after a call that must complete a place."""
    if told.code != 0:
        ended = "hung" if told.code is None else f"ended with {told.code}"
        return [f"{of} {ended}: {told.last}"]
    return [f"after {of}, {fault}" for fault in brief(differences(place, wanted))]


def forget(*places: Path) -> None:
    """Delete places in which no fault was found."""
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
