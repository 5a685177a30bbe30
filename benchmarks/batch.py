"""A batch of ten simulated states on one and on two workers, one killed in the middle, and twice.

    python benchmarks/batch.py                       # under five minutes on two idle cores
    python benchmarks/batch.py --cases two-killed    # one case again; the others' results are kept

Results go to benchmarks/results/batch: batch.json and table.md.
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from batch_world import BOUNDARIES, states_side_by_side, write_states

from geogp.commands.batch.batch_plan import BatchRequest, Execution
from geogp.commands.batch.make_batch import BatchResult, make_batch
from geogp.files import write_text
from geogp.runs.progress import ProgressListener

RESULTS = Path(__file__).parent / "results" / "batch"

CASES = {
    "one": (1, False),
    "two": (2, False),
    "two-killed": (2, True),
}
"""Workers, and whether one is killed."""

HEADINGS = (
    *("case", "workers", "seconds", "CPU seconds", "peak MB of each worker", "runs", "attempts"),
    *("made the second time", "seconds the second time"),
)


class Killing(ProgressListener):
    """Kills the worker of a run that first reaches its map."""

    def __init__(self, name: str | None) -> None:
        self.name, self.killed = name, None

    def stage(self, text: str) -> None:
        """Print it."""
        print(f"  {text}", flush=True)

    def progress(self, text: str, done: int, total: int, note: str) -> None:  # noqa: ARG002
        """Kill, once."""
        worker = re.search(rf"{self.name}, ([^:]*:[0-9]+): predicting", note)
        if self.killed is None and worker:
            self.killed = worker[1]
            os.kill(int(self.killed.rpartition(":")[2]), signal.SIGKILL)
            print(f"  killed {self.killed}", flush=True)


def measure(request: BatchRequest, place: Path, workers: int, *, kill: bool) -> dict[str, Any]:
    """Make a batch, and again."""
    fourth = f"{request.listed('states')[3]}-mobile-download"
    listener = Killing(fourth if kill else None)
    start = time.monotonic()
    result = make_batch(request, str(place), Execution(workers=workers), listener=listener)
    seconds = time.monotonic() - start
    assert result.exit_code == 0, result.described()
    assert (listener.killed is not None) == kill
    start = time.monotonic()
    second = make_batch(request, str(place), Execution(workers=workers), listener=Killing(None))
    return {
        "workers": workers,
        "seconds": seconds,
        "cpu_seconds": sum(row.cpu_seconds or 0 for row in result.rows.values()),
        "peak_bytes": _peaks(result),
        "runs": {
            name: {
                "seconds": row.seconds,
                "cpu_seconds": row.cpu_seconds,
                "attempts": row.attempts,
                "worker": row.worker,
            }
            for name, row in result.rows.items()
        },
        "attempts": sum(row.attempts for row in result.rows.values()),
        "killed": listener.killed,
        "made_again": sum(row.how != "kept" for row in second.rows.values()),
        "seconds_again": time.monotonic() - start,
        "national_seconds": [one.seconds for one in result.national.values()],
        "national_peak_bytes": [one.peak_bytes for one in result.national.values()],
    }


def _peaks(result: BatchResult) -> dict[str, int]:
    """Return the largest resident memory of each worker."""
    peaks: dict[str, int] = {}
    for row in result.rows.values():
        peaks[str(row.worker)] = max(peaks.get(str(row.worker), 0), row.peak_bytes or 0)
    return peaks


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    asked = found["asked"]
    lines = [
        f"# A batch of {asked['regions']} simulated states\n",
        f"`benchmarks/batch.py`: {asked['rows']:,} rows a state in two quarters, model",
        f"`{asked['model']}`, preset quick, {asked['epochs']} epochs, zoom {asked['zoom']}; then",
        "the joined products. Each worker is a process with one thread. In the last case a worker",
        "is killed (SIGKILL) while it predicts the map of the fourth run. CPU seconds are those of",
        "the runs that were finished. The second time is the same batch once more.\n",
        f"| {' | '.join(HEADINGS)} |",
        f"|{' --- |' * len(HEADINGS)}",
    ]
    for name, one in found["cases"].items():
        peaks = ", ".join(f"{peak / 1e6:.0f}" for peak in one["peak_bytes"].values())
        cells = (
            *(name, one["workers"], f"{one['seconds']:.0f}", f"{one['cpu_seconds']:.0f}", peaks),
            *(len(one["runs"]), one["attempts"], one["made_again"], f"{one['seconds_again']:.2f}"),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines.append("")
    loads = {name: one["load_before"] for name, one in found["cases"].items()}
    told = ", ".join(f"{load:.1f} before `{name}`" for name, load in loads.items())
    lines.append(
        f"Load average of the machine ({found['cores']} cores): {told}; that of a case holds"
    )
    lines.append("the one before it.")
    if loads.get("one", 0.0) > found["cores"] / 2:
        lines.append(
            "Others computed there: seconds by the clock say nothing of one worker against two. "
            "CPU seconds, memory and attempts depend on them less."
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the cases asked for, and write the table of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regions", type=int, default=10)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "batch.json"
    settings = {"model": "dbk-silu", "preset": "quick", "epochs": 4, "zoom": 13}
    asked = {"regions": given.regions, "rows": given.rows, **settings}
    found = json.loads(path.read_text()) if path.is_file() else {}
    if found.get("asked") != asked:
        found = {"asked": asked, "cases": {}}
    found["cores"] = len(os.sched_getaffinity(0))
    codes = [f"S{place}" for place in range(given.regions)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GEOGP_CACHE"] = f"{folder}/cache"
        source = write_states(
            Path(folder) / "source", states_side_by_side(codes, shift=-10.0), given.rows
        )
        places = {"source": str(source), "boundaries": str(source / BOUNDARIES)}
        request = BatchRequest(",".join(codes), maps=settings | places)
        for name in given.cases.split(","):
            workers, kill = CASES[name]
            load = os.getloadavg()[0]
            print(f"{name}: {workers} workers, load {load:.1f}", flush=True)
            case = measure(request, Path(folder) / name, workers, kill=kill)
            found["cases"][name] = case | {"load_before": load}
            found["cases"] = {
                name: found["cases"][name] for name in CASES if name in found["cases"]
            }
            write_text(path, json.dumps(found, indent=1) + "\n")
            write_text(given.out / "table.md", table(found))
    print((given.out / "table.md").read_text())


if __name__ == "__main__":
    main()
