"""The states of the US, simulated at their real sizes, read and mapped, and the cost of a batch.

    export GEOGP_REAL_DATA=...                            # its folder census holds the boundaries
    python benchmarks/states.py --workers 2               # all states, no maps
    python benchmarks/states.py --resume --workers 1 --states RI,DE,VT
    python benchmarks/states.py --resume --states "" --maps default
    python benchmarks/states.py --resume --states "" --maps GA:dbk-rbf:quick:4:14

Each stage of each state is a separate process with one thread; `--workers` states run at once. A
map is given as STATE:MODEL:PRESET:EPOCHS:ZOOM, and each is a separate case. Urban areas are
invented if the boundaries have none. Results are written to benchmarks/results/states, as
results.json after every state and table.md. Without --resume the results start empty. Folders are
temporary, one for each worker's state, of less than a gigabyte each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path
from typing import Any

from states_people import PEOPLE, rows_of
from states_table import markdown
from trial import HERE, RESULTS, command, machine, parser, say, write_results
from trial import Figures as Found

from geogp.errors import RequestError

MAPS = (
    *("GA:field:quick:1:14", "GA:dbk-rbf:quick:2:14"),
    *("NM:field:quick:1:15", "NM:dbk-rbf:quick:2:15", "NM:dbk-rbf:standard:1:14"),
    *("RI:field:quick:1:13", "RI:dbk-rbf:quick:2:13"),
    *("RI:field:standard:1:13", "RI:dbk-rbf:standard:1:13", "RI:field:standard:1:16"),
)
"""The maps of `--maps default`."""


class Bench:
    """The settings, and the results so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.path = options, options.out / "results.json"
        asked = {"quarters": options.quarters, "scale": options.scale, "seed": options.seed}
        self.found: Found = {"asked": asked, "regions": {}, "states": {}, "walls": {}, "maps": {}}
        if options.resume and self.path.is_file():
            held = json.loads(self.path.read_text("utf-8"))
            if held["asked"] != asked:
                raise RequestError(f"{self.path} has other settings: {held['asked']}, not {asked}.")
            self.found = held
        self.found["machine"] = machine() | {"cores": len(os.sched_getaffinity(0))}

    def work(self, **asked: Any) -> Found:
        """Run one stage in a separate process."""
        words = {"boundaries": str(self.options.boundaries), **self.found["asked"], **asked}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        done = subprocess.run(
            [sys.executable, str(HERE / "states_work.py"), json.dumps(words)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **threads},
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [""]
            return {"failed": f"exit code {done.returncode}: {last[0]}"}
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def keep(self) -> None:
        """Write the results."""
        write_results(self.options.out, markdown(self.found), self.found)

    def simulated(self, code: str, folder: str, *, oracles: bool = False) -> Found:
        """Simulate a state into a folder."""
        rows = rows_of(code, self.options.scale)
        asked = {"state": code, "rows": rows, "folder": folder, "oracles": oracles}
        return {"asked_rows": rows} | self.work(kind="simulate", **asked)

    def state(self, code: str) -> Found:
        """Simulate a state, and read it."""
        oracles = code in self.options.oracles.split(",")
        with tempfile.TemporaryDirectory() as folder:
            made = self.simulated(code, folder, oracles=oracles)
            if "rows" not in made:
                return {"simulate": made}
            read = self.work(kind="ingest", state=code, folder=folder)
        return {"simulate": made, "ingest": read}

    def maps(self, cases: Sequence[str]) -> Found:
        """Map a state in several ways."""
        code = cases[0].partition(":")[0]
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            made = self.simulated(code, folder)
            if "rows" not in made:
                return dict.fromkeys(cases, made)
            for case in cases:
                _, model, preset, epochs, zoom = case.split(":")
                asked = {"model": model, "preset": preset, "epochs": int(epochs)}
                run = {"state": code, "folder": folder, "run": case.replace(":", "-")}
                told = self.work(kind="map", zoom=int(zoom), **asked, **run)
                found[case] = {"case": case, "state": code, "zoom": int(zoom), **asked, **told}
        return found

    def all_states(self, codes: Sequence[str]) -> None:
        """Run the states without results, the largest first."""
        workers = str(self.options.workers)
        held = self.found["states"].setdefault(workers, {})
        ground = {code: one["tiles"] for code, one in self.found["regions"].items()}
        wanted = [code for code in codes if code not in held]
        wanted.sort(key=lambda code: -ground.get(code, 0))

        def taken(code: str, one: Found) -> None:
            held[code] = one

        self._share([(code, self.state) for code in wanted], taken, workers)

    def all_maps(self, cases: Sequence[str]) -> None:
        """Make the maps without results."""
        wanted = sorted(case for case in cases if case not in self.found["maps"])
        by_state = groupby(wanted, key=lambda case: case.partition(":")[0])
        tasks = [(tuple(group), self.maps) for _, group in by_state]
        tasks.sort(key=lambda task: -PEOPLE[task[0][0].partition(":")[0]])
        self._share(tasks, lambda _, one: self.found["maps"].update(one), "maps")

    def _share(
        self,
        tasks: Sequence[tuple[Any, Callable[[Any], Found]]],
        take: Callable[[Any, Found], None],
        name: str,
    ) -> None:
        """Run tasks, several at once, and store the result of each when it ends."""
        start, before = time.monotonic(), self.found["walls"].get(name, {"seconds": 0.0})
        load = os.getloadavg()[0]
        with ThreadPoolExecutor(self.options.workers) as pool:
            running = {pool.submit(work, task): task for task, work in tasks}
            for done in as_completed(running):
                take(running[done], done.result())
                seconds = before["seconds"] + time.monotonic() - start
                self.found["walls"][name] = {"seconds": seconds, "load_before": load}
                self.keep()
                label = running[done]
                label = label if isinstance(label, str) else " ".join(label)
                say(f"{label}: {seconds:.0f} s")


@command
def main() -> None:
    """Measure the requested states and maps.

    Raises
    ------
    RequestError
        If a state is unknown, or its boundaries cannot be read.
    """
    asked = parser(__doc__, quarters="2022Q1..2023Q4", seed=0, resume=False)
    real = os.environ.get("GEOGP_REAL_DATA")
    boundaries = Path(real) / "census" if real else None
    asked.add_argument("--boundaries", type=Path, default=boundaries, required=not real)
    asked.add_argument(
        "--states", default=",".join(PEOPLE), help="codes separated by commas; '' for none"
    )
    asked.add_argument("--maps", default="", help="cases separated by commas, or default")
    asked.add_argument("--oracles", default="RI", help="states whose oracles are timed too")
    asked.add_argument("--workers", type=int, default=1, choices=(1, 2))
    asked.add_argument("--scale", type=float, default=1.0, help="share of the rows, for trials")
    asked.add_argument("--out", type=Path, default=RESULTS / "states")
    options = asked.parse_args()
    codes = list(filter(None, options.states.split(",")))
    cases = MAPS if options.maps == "default" else list(filter(None, options.maps.split(",")))
    unknown = {one.partition(":")[0] for one in (*codes, *cases)} - set(PEOPLE)
    if unknown:
        raise RequestError(f"no state {', '.join(sorted(unknown))} among {', '.join(PEOPLE)}.")
    bench = Bench(options)
    if not bench.found["regions"]:
        found = bench.work(kind="regions", states=list(PEOPLE))
        told = found.get("refused") or found.get("failed")
        if told:
            raise RequestError(f"cannot read the boundaries: {told}")
        bench.found["regions"] = found
    bench.all_states(codes)
    bench.all_maps(cases)
    bench.keep()
    print((options.out / "table.md").read_text("utf-8"))


if __name__ == "__main__":
    sys.exit(main())
