"""The states of the US, simulated at their real sizes, read and mapped, and the cost of a batch.

    export GEOGP_REAL_DATA=...                            # its folder census holds the boundaries
    python -m benchmarks.speed.states --workers 2               # all states, no maps
    python -m benchmarks.speed.states --workers 1 --states RI,DE,VT
    python -m benchmarks.speed.states --states "" --maps default
    python -m benchmarks.speed.states --states "" --maps GA:dbk-rbf:quick:4:14

Each stage of each state is a separate process with one thread; `--workers` states run at once. A
map is given as STATE:MODEL:PRESET:EPOCHS:ZOOM. Urban areas are invented if the boundaries have
none. Each state and map has its own file under --out, the same command continues where it stopped,
and the table has all of these files. Folders are temporary, one for each worker, of less than a
gigabyte each.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.speed.states_people import PEOPLE, rows_of
from benchmarks.speed.states_table import markdown
from benchmarks.trial import Figures as Found
from benchmarks.trial import command, kept, machine, parser, say, search_path, write_results
from geogp.errors import RequestError

MAPS = (
    *("GA:field:quick:1:14", "GA:dbk-rbf:quick:2:14"),
    *("NM:field:quick:1:15", "NM:dbk-rbf:quick:2:15", "NM:dbk-rbf:standard:1:14"),
    *("RI:field:quick:1:13", "RI:dbk-rbf:quick:2:13"),
    *("RI:field:standard:1:13", "RI:dbk-rbf:standard:1:13", "RI:field:standard:1:16"),
)
"""The maps of `--maps default`."""

SETTINGS = ("quarters", "scale", "seed")
"""Options of the simulations; results with other settings have another folder."""


def work(options: argparse.Namespace, **asked: Any) -> Found:
    """Run one stage in a separate process."""
    words = {name: getattr(options, name) for name in SETTINGS}
    words |= {"boundaries": str(options.boundaries), **asked}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.states_work", json.dumps(words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **threads, "PYTHONPATH": search_path()},
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [""]
        return {"failed": f"exit code {done.returncode}: {last[0]}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def simulated(options: argparse.Namespace, code: str, folder: str, *, oracles: bool) -> Found:
    """Simulate a state into a folder."""
    rows = rows_of(code, options.scale)
    asked = {"state": code, "rows": rows, "folder": folder, "oracles": oracles}
    return {"asked_rows": rows} | work(options, kind="simulate", **asked)


def one_state(options: argparse.Namespace, code: str) -> Found:
    """Simulate a state, and read it."""
    oracles = code in options.oracles.split(",")
    with tempfile.TemporaryDirectory() as folder:
        made = simulated(options, code, folder, oracles=oracles)
        if "rows" not in made:
            return {"simulate": made}
        read = work(options, kind="ingest", state=code, folder=folder)
    return {"simulate": made, "ingest": read}


def one_map(options: argparse.Namespace, case: str) -> Found:
    """Simulate a state, and map it."""
    code, model, preset, epochs, zoom = case.split(":")
    asked = {"model": model, "preset": preset, "epochs": int(epochs), "zoom": int(zoom)}
    with tempfile.TemporaryDirectory() as folder:
        found = simulated(options, code, folder, oracles=False)
        if "rows" in found:
            found = asked | work(options, kind="map", state=code, folder=folder, **asked)
    return {"case": case, "state": code, **found}


def make_all(
    options: argparse.Namespace,
    folder: Path,
    make: Callable[[argparse.Namespace, str], Found],
    names: Sequence[str],
) -> None:
    """Make the results without files, several at once, the largest states first."""

    def one(name: str) -> None:
        path = folder / f"{name.replace(':', '-')}.json"
        kept(path, functools.partial(make, options, name))
        say(name)

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(one, sorted(names, key=lambda name: -PEOPLE[name.partition(":")[0]])))


def results_of(options: argparse.Namespace, folder: Path, regions: Found) -> Found:
    """Return all results of a folder."""
    states: Found = {}
    for path in sorted(folder.glob("states/*/*.json")):
        states.setdefault(path.parent.name, {})[path.stem] = json.loads(path.read_text())
    maps = [json.loads(path.read_text()) for path in sorted(folder.glob("maps/*.json"))]
    return {
        "asked": {name: getattr(options, name) for name in SETTINGS},
        "regions": regions,
        "states": states,
        "maps": {one["case"]: one for one in maps},
        "machine": machine() | {"cores": len(os.sched_getaffinity(0))},
    }


@command
def main() -> None:
    """Measure the requested states and maps.

    Raises
    ------
    RequestError
        If a state is unknown, or its boundaries cannot be read.
    """
    asked = parser(
        __doc__, out="states", table="states", quarters="2022Q1..2023Q4", seed=0, scale=1.0
    )
    real = os.environ.get("GEOGP_REAL_DATA")
    boundaries = Path(real) / "census" if real else None
    asked.add_argument("--boundaries", type=Path, default=boundaries, required=not real)
    asked.add_argument(
        "--states", default=",".join(PEOPLE), help="codes separated by commas; '' for none"
    )
    asked.add_argument("--maps", default="", help="cases separated by commas, or default")
    asked.add_argument("--oracles", default="RI", help="states whose oracles are timed too")
    asked.add_argument("--workers", type=int, default=1, choices=(1, 2))
    options = asked.parse_args()
    codes = list(filter(None, options.states.split(",")))
    cases = MAPS if options.maps == "default" else list(filter(None, options.maps.split(",")))
    unknown = {one.partition(":")[0] for one in (*codes, *cases)} - set(PEOPLE)
    if unknown:
        raise RequestError(f"no state {', '.join(sorted(unknown))} among {', '.join(PEOPLE)}.")
    folder = options.out / "-".join(str(getattr(options, name)) for name in SETTINGS)
    find = functools.partial(work, options, kind="regions", states=list(PEOPLE))
    regions = kept(folder / "regions.json", find)
    told = regions.get("refused") or regions.get("failed")
    if told:
        (folder / "regions.json").unlink()
        raise RequestError(f"cannot read the boundaries: {told}")
    make_all(options, folder / "states" / str(options.workers), one_state, codes)
    make_all(options, folder / "maps", one_map, cases)
    found = results_of(options, folder, regions)
    write_results(options.table, markdown(found), found)
    print((options.table / "table.md").read_text("utf-8"))


if __name__ == "__main__":
    sys.exit(main())
