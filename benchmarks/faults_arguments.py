"""Odd arguments of the command, and places where nothing can be written."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from faults_folders import LIMIT_S, RUN, Tally, Told, World, forget, record_faults
from faults_requests import GOOD, faults_of

HUGE = str(2**63)

OPTIONS: dict[str, Sequence[str]] = {
    "--seed": (HUGE, str(2**64), "-1", "1e3", "nan", ""),
    "--tests": ("1e30", HUGE, str(10**30), "0", "-5"),
    "--zoom": ("0", "30", "-1", HUGE),
    "--epochs": ("0", "-1", "nan"),
    "--folds": ("0", "6", HUGE),
    "--far-km": ("nan", "inf", "-1", "0", "1e308", "1e-320"),
    "--budget": ("nan", "inf", "-1", "0"),
    "--threshold": ("nan", "inf", "-1", "0", "1e308", "1e-320"),
    "--quarters": ("", "2023Q5", "9999Q4..0001Q1", "2023Q3,", "0001Q1..9999Q4", "\x1b[31m"),
    "--at": ("", "2023Q0", "99999999999Q1"),
    "--model": ("", "fie\x1b[31mld", "x" * 10**4),
    "--split": (",", "random,,", ""),
    "--service": ("", "mobile\n"),
    "--target": ("", "/dev/zero"),
    "--device": ("cuda:99", ""),
    "--for": ("", "level\n"),
    "--inputs": ("",),
    "--conformal": ("",),
    "--layer": ("", ":", "/dev/zero", "/dev/null:x", "/etc/passwd", "FIFO", "a" * 5000),
    "--strata": ("", "/dev/zero", "FIFO", ":x"),
    "--urban-vintage": ("", "1", HUGE),
    "--source": ("/dev/zero", "/etc/passwd", "ftp://127.0.0.1/x", "http://", "http://[::1"),
    "--boundaries": ("", "/dev/zero", "http://127.0.0.1:99999/", "a" * 5000),
    "--out": (
        *("", "a" * 300, "a/" * 3000, "/dev/null", "/dev/full/x", "/proc/1/x", "/etc/passwd/x"),
        *("FIFO", "LOOP/x", "\x1b[31m", "\udcff", "a\nb"),
    ),
}
"""Values of options of the map; FIFO and LOOP stand for a pipe, and a link to itself."""

NO_FILES = ("--source", "/nowhere", "--boundaries", "/nowhere")

OTHERS: dict[str, list[str]] = {
    **{f"simulate --rows {rows}": ["simulate", "--rows", rows] for rows in ("1", "2", "0", "-1")},
    "simulate --rows 10**12": ["simulate", "--rows", str(10**12)],
    "simulate --seed 2**64": ["simulate", "--rows", "50", "--seed", str(2**64), "--no-oracles"],
    "simulate --quarters empty": ["simulate", "--rows", "50", "--quarters", ""],
    "simulate --like empty": ["simulate", "--like", "", "--boundaries", ""],
    **{f"areas --draws {n}": ["areas", "RUN", "--draws", n] for n in ("0", "-1", "1", HUGE)},
    "areas --draws 10**9": ["areas", "RUN", "--by", "urban", "--draws", str(10**9)],
    "areas --by empty": ["areas", "RUN", "--by", ""],
    "areas --seed 2**64": ["areas", "RUN", "--by", "urban", "--seed", str(2**64)],
    "areas --tests 10**30": ["areas", "RUN", "--for", "tile-mean", "--tests", str(10**30)],
    "exceedance --threshold nan": ["exceedance", "RUN", "--threshold", "nan"],
    "exceedance --threshold 1e308": ["exceedance", "RUN", "--threshold", "1e308"],
    "exceedance --draws 10**9": ["exceedance", "RUN", "--draws", str(10**9)],
    "next --tiles 0": ["next", "RUN", "--tiles", "0"],
    "next --tiles 2**63": ["next", "RUN", "--tiles", HUGE],
    "next --candidates 0": ["next", "RUN", "--candidates", "0"],
    "next --tests 2**63": ["next", "RUN", "--tests", HUGE, "--tiles", "2", "--candidates", "10"],
    "next --in control characters": ["next", "RUN", "--in", "\x1b[31m", "--by", "urban"],
    "figures --beside a device": ["figures", "RUN", "--beside", "/dev/zero"],
    "compare a run with itself": ["compare", "RUN", "RUN", "--out", "PLACE/c"],
    "compare --reference empty": ["compare", "RUN", "OTHER", "--reference", "", "--out", "PLACE/c"],
    "report of a device": ["report", "/dev/null"],
    "report of nothing": ["report", ""],
    "gallery of a device": ["gallery", "/dev/zero", "--out", "PLACE/g"],
    "gallery --out a device": ["gallery", "RUN", "--out", "/dev/full"],
    "batch --workers 0": [
        "batch",
        "--states",
        "DEMO",
        "--out",
        "PLACE/b",
        "--workers",
        "0",
        *NO_FILES,
    ],
    "batch --memory nan": [
        "batch",
        "--states",
        "DEMO",
        "--out",
        "PLACE/b",
        "--memory",
        "nan",
        *NO_FILES,
    ],
    "batch --states empty": ["batch", "--states", "", "--out", "PLACE/b", *NO_FILES],
    "demo --seed -1": ["demo", "--seed", "-1", "--out", "PLACE/d"],
    "fetch --quarters empty": ["fetch", "DEMO", "--quarters", "", *NO_FILES],
    "cache list": ["cache", "list"],
}
"""Arguments of other commands; RUN, OTHER and PLACE stand for folders."""

STREAMS: dict[str, tuple[str, list[str], bool]] = {
    "models to a full device": ('exec "$@" > /dev/full', ["models"], True),
    "models --json to a full device": ('exec "$@" > /dev/full', ["models", "--json"], True),
    "report to a full device": ('exec "$@" > /dev/full', ["report", "RUN"], True),
    "report --json to a full device": ('exec "$@" > /dev/full', ["report", "RUN", "--json"], True),
    "--help to a full device": ('exec "$@" > /dev/full', ["--help"], True),
    "models to a closed pipe": (
        '(sleep 1; "$@"; echo $? > code) | true; exit $(cat code)',
        ["models"],
        False,
    ),
    "models without standard output": ('exec "$@" >&-', ["models"], False),
    "an error to a full device": ('exec "$@" 2> /dev/full', ["report", "/nowhere"], False),
    "report in a deleted folder": ('mkdir d; cd d; rmdir ../d; exec "$@"', ["report", "x"], False),
    "map in a deleted folder": ('mkdir d; cd d; rmdir ../d; exec "$@"', ["MAP"], False),
    "models without a home": ('env -u HOME "$@"', ["models"], False),
    "an error in ASCII": ('LC_ALL=C PYTHONUTF8=0 exec "$@"', ["report", "/\u20ac"], False),
}
"""A line of the shell, the arguments, and whether it is plain that nothing could be printed."""


def odd_arguments(world: World, tally: Tally) -> None:
    """Give odd values to options; let the command write where nothing can be written."""
    cases = [
        (f"map {option} {value[:40]!r}", ["MAP", option, value])
        for option, values in OPTIONS.items()
        for value in values
    ]
    cases += [
        (f"map of the region {text[:40]!r}", ["MAP", text])
        for text in ("", "\x1b[31m", "x" * 10**5)
    ]
    cases += [
        ("map --split buffer --buffer-km nan", ["MAP", "--split", "buffer", "--buffer-km", "nan"])
    ]
    others = tally.chosen(OTHERS.items(), lambda case: case[0])
    for name, arguments in [*tally.chosen(cases, lambda case: case[0]), *others]:
        kind = f"odd arguments: {name.split()[0]}"
        tally.note(kind, name, _odd(world, arguments))
    for name in tally.chosen(STREAMS, str):
        tally.note("odd streams and folders", name, _streamed(world, *STREAMS[name]))


def _spelled(world: World, place: Path, arguments: Sequence[str]) -> list[str]:
    """Return arguments with folders in the place of their names."""
    fifo, loop = place / "pipe", place / "loop"
    if not fifo.exists():
        os.mkfifo(fifo)
        loop.symlink_to(loop)
    named = {"RUN": place / RUN, "OTHER": world.whole["other"] / RUN, "FIFO": fifo}
    found = []
    for text in arguments:
        if text == "MAP":
            found += world.map(place)
        elif text in named:
            found.append(str(named[text]))
        else:
            found.append(text.replace("PLACE/", f"{place}/").replace("LOOP/", f"{loop}/"))
    if found[0] == "simulate" and "--out" not in found:
        found += ["--out", str(place / "simulation")]
    return found


def _odd(world: World, arguments: Sequence[str]) -> list[str]:
    place = world.place(world.whole["plain"] if arguments[0] != "MAP" else None)
    spelled = _spelled(world, place, arguments)
    if len(arguments) == 2 and arguments[0] == "MAP":
        spelled = [arguments[1] if text == "DEMO" else text for text in spelled[:-1]]
    told = world.call(*spelled, folder=str(place))
    faults = faults_of(told, GOOD | {4}, log=True)
    if told.code == 0 and spelled[0] == "map" and "--out" not in arguments:
        faults += record_faults(place / RUN)
    if not faults:
        forget(place)
    return faults


def _streamed(world: World, line: str, arguments: Sequence[str], full: bool) -> list[str]:
    place = world.place(world.whole["plain"])
    code = "from geogp_cli.main import run; run()"
    command = ["sh", "-c", line, "sh", sys.executable, "-c", code]
    roots = [str(Path(path).resolve()) for path in sys.path if path]
    ended = subprocess.run(
        [*command, *_spelled(world, place, arguments)],
        cwd=place,
        env={**os.environ, "GEOGP_CACHE": str(world.cache), "PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    told = Told(
        ended.returncode,
        *(each.decode("utf-8", "replace") for each in (ended.stdout, ended.stderr)),
    )
    faults = faults_of(told, GOOD | {4}, log=True)
    if "2> /dev/full" in line:
        faults = [fault for fault in faults if "without a word" not in fault]
    if full and told.code == 0:
        faults.append("ended with 0 though nothing could be printed")
    if "Exception ignored" in told.errors:
        faults.append(f"wrote an ignored exception: {told.last}")
    return faults
