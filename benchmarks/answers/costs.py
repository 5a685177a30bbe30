"""Seconds and memory of the commands on one region, each from start to end.

    python -m benchmarks answers.costs PR --source OOKLA --boundaries CENSUS --earlier 2022Q4
    geogp simulate --like GA --rows 517139 --no-oracles --boundaries CENSUS --out georgia
    python -m benchmarks answers.costs GA --source georgia --boundaries CENSUS --zooms 16 15

The map has --preset, by default `quick`, a random split, and the defaults for all else. Each
command is a process of its own. Run this on an idle machine. --earlier is the quarter with which
`geogp change` compares the map's.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.script import (
    HERE,
    Figures,
    command_given,
    machine,
    options_of,
    say,
    search_path,
    write_results,
)

GB = 1e9

GEOGP = Path(sys.executable).with_name("geogp")
"""The command of this environment."""

_MEASURING = """
import json, resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdout=sys.stderr)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = used.ru_utime + used.ru_stime
print(json.dumps({"cpu_seconds": cpu, "peak_bytes": 1024 * used.ru_maxrss}))  # kB, on Linux
sys.exit(status)
"""


def measured(words: list[str]) -> Figures:
    """Run a command, and return seconds, processor seconds, and the peak of its memory in bytes."""
    say("geogp", *words)
    path = os.pathsep.join([search_path(), str(HERE.parent / "apps")])
    start = time.monotonic()
    # The peak of a process begins with that of the process that starts it, so this is a small one.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-S", "-c", _MEASURING, GEOGP, *words],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=False,
    )
    seconds = time.monotonic() - start
    if done.returncode:
        raise RuntimeError(f"geogp {' '.join(words)} failed with status {done.returncode}.")
    return {"seconds": seconds, **json.loads(done.stdout)}


def commands(run: Path, earlier: str) -> list[list[str]]:
    """Return the answers that are timed, about the run in a folder."""
    found = [
        ["areas", str(run), "--by", "county"],
        ["exceedance", str(run), "--draws", "500"],
        ["next", str(run), "--tiles", "20"],
    ]
    return [*found, ["change", str(run), "--from", earlier, "--by", "county"]] if earlier else found


def page(results: list[Figures], about: Figures) -> str:
    """Return the table as Markdown."""
    first = results[0]
    header = ("command", "zoom", "tiles", "rows", "s", "processor s", "GB")
    lines = [
        (
            f"`geogp {one['command']}`",
            one["zoom"],
            f"{one['tiles']:,}",
            f"{one['rows']:,}",
            f"{one['seconds']:.0f}",
            f"{one['cpu_seconds']:.0f}",
            f"{one['peak_bytes'] / GB:.1f}",
        )
        for one in results
    ]
    return f"""# Seconds and memory of the commands

    {command_given()}

{", ".join(f"{name} {value}" for name, value in about.items())}.

Each command is a process of its own, from start to end, one after the other. `rows` are training
rows. The answers of a run use what its map left in the run folder. The map has the preset
`{first["preset"]}`; the log score of its test rows is {first["log_score"]:.3f} (random split).

{table(header, lines)}"""


def main() -> None:
    """Time the commands for each zoom, and write the table."""
    options = options_of(
        __doc__, region=True, out="costs", table="costs", zooms=[16], earlier="", preset="quick"
    )
    given = ["--source", options.source, "--boundaries", options.boundaries]
    if options.quarters:
        given += ["--quarters", options.quarters]
    results: list[Figures] = []
    for zoom in options.zooms:
        run = options.out / f"{options.region}-{zoom}"
        ask = ["map", options.region, *given, "--preset", options.preset, "--split", "random"]
        ask += ["--zoom", str(zoom), "--fresh"]
        found = [measured([*ask, "--out", str(run)])]
        found += [measured(words) for words in commands(run, options.earlier)]
        names = ["map", *(words[0] for words in commands(run, options.earlier))]
        record = json.loads((run / "run.json").read_text())
        known = {
            "zoom": zoom,
            "preset": options.preset,
            "tiles": record["map"]["tiles"],
            "rows": record["n"]["random"]["train"],
            "log_score": record["metrics"]["random"]["all"]["nll"],
        }
        results += [
            {"command": name, **known, **one} for name, one in zip(names, found, strict=True)
        ]
    write_results(options.table, page(results, machine()), results)


if __name__ == "__main__":
    main()
