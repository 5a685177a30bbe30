"""Attacks on run folders: kills, pairs of commands, damaged and foreign files.

Everything runs on this machine, on an invented region. The final contents of a disturbed folder
are compared with an undisturbed run, to the last bit. Run from the folder of the project:

    python -m benchmarks.faults.faults_runs --parts ABCD --most 30

A fault is printed with the name of its case; the same command with `--only NAME` repeats the case.
"""

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.faults.faults_debris import damaged_files, debris
from benchmarks.faults.faults_folders import (
    COMPLETE,
    Tally,
    Told,
    World,
    brief,
    contents,
    differences,
    done_well,
    forget,
)
from benchmarks.trial import RESULTS, parser, say, table, write_results

OFFSETS = 10
"""Moments at which the second of two commands starts."""


@dataclass(frozen=True)
class Scenario:
    """A command that is killed, and the command that must then complete the folder.

    Attributes
    ----------
    start
        The undisturbed run that is there before; empty for none.
    killed, again
        Options of the map, or the name of another command, which needs only the run folder.
    wanted
        The undisturbed run that must be there at the end.
    """

    name: str
    start: str
    killed: tuple[str, ...]
    again: tuple[str, ...]
    wanted: str

    @property
    def fresh(self) -> tuple[str, ...]:
        """Options of a map that starts over."""
        options = () if self.again == ("report",) else self.again
        return (*options, "--fresh")


SCENARIOS = (
    Scenario("new map", "", (), (), "plain"),
    Scenario("map --fresh over a finished run", "plain", ("--fresh",), (), "plain"),
    Scenario(
        "another map of a finished run", "plain", ("--tests", "7"), ("--tests", "7"), "redrawn"
    ),
    Scenario("report", "plain", ("report",), ("report",), "plain"),
)


def kills(world: World, tally: Tally) -> None:
    """Kill at each call that changes the folder; then continue, and start over in a copy."""
    for scenario in filter(lambda each: tally.may(each.name), SCENARIOS):
        start = world.whole.get(scenario.start)
        place = world.place(start)
        seen = world.changes(place, *world.command(place, scenario.killed))
        touched = {path for _, path in seen}
        blind = [
            f"{name} was written by no call that is watched"
            for name, digest in contents(place).items()
            if start is None and digest != "folder" and name not in touched
        ]
        tally.note(f"kill: {scenario.name}", f"{scenario.name}, not killed", brief(blind))
        cases = [(number, *call) for number, call in enumerate(seen, 1)]
        for case in tally.chosen(cases, lambda case, of=scenario: _killed_name(of, case)):
            faults = _kill(world, scenario, case[0])
            tally.note(f"kill: {scenario.name}", _killed_name(scenario, case), faults)


def _killed_name(scenario: Scenario, case: tuple[int, str, str]) -> str:
    number, what, path = case
    steady = re.sub(r"(\.\w+)\.[a-z0-9_]{8}$", r"\1.*", path)  # names of temporary files are random
    return f"{scenario.name}, killed at change {number} ({what} {steady})"


def _kill(world: World, scenario: Scenario, at: int) -> list[str]:
    place = world.place(world.whole.get(scenario.start))
    changes = {"folder": place, "at": at}
    told = world.call(*world.command(place, scenario.killed), changes=changes)
    if told.code != -signal.SIGKILL:
        return [f"was not killed but ended with {told.code}: {told.last}"]
    beside, wanted = world.place(place), world.wanted[scenario.wanted]
    again = world.call(*world.command(place, scenario.again))
    faults = done_well(again, place, wanted, "the same command")
    fresh = world.call(*world.map(beside, *scenario.fresh))
    faults += done_well(fresh, beside, wanted, "--fresh")
    if not faults:
        forget(place, beside)
    return faults


PAIRS = {
    "two of one map": ("", (), ()),
    "maps of two seeds": ("", (), ("--seed", "1")),
    "another map and a report": ("plain", ("--tests", "7"), ("report",)),
    "a map and --fresh": ("", (), ("--fresh",)),
}
"""The run that is there before, and the options of the first and the second command."""


def pairs(world: World, tally: Tally) -> None:
    """Start a second command while the first works or is stopped.

    Either the first is stopped at one of its changes until the second has ended, or the second
    starts some time after the first, which continues to work.
    """
    for kind, (start, first, second) in PAIRS.items():
        if not tally.may(kind):
            continue
        place = world.place(world.whole.get(start))
        began = time.monotonic()
        seen = world.changes(place, *world.map(place, *first))
        seconds = time.monotonic() - began
        later = [("tenth", number) for number in range(OFFSETS + 1)]
        stands = [("change", int(at)) for at in np.linspace(1, len(seen), OFFSETS)]
        for moment in tally.chosen([*later, *stands], lambda case, of=kind: _pair_name(of, case)):
            faults = _pair(world, (start, first, second), moment, seconds)
            tally.note(f"pair: {kind}", _pair_name(kind, moment), faults)


def _pair_name(kind: str, moment: tuple[str, int]) -> str:
    unit, at = moment
    told = f"after {at} tenths of the first" if unit == "tenth" else f"the first at change {at}"
    return f"{kind}, {told}"


def _pair(
    world: World,
    pair: tuple[str, tuple[str, ...], tuple[str, ...]],
    moment: tuple[str, int],
    seconds: float,
) -> list[str]:
    start, first, second = pair
    place = world.place(world.whole.get(start))
    commands = [world.command(place, more) for more in (first, second)]
    unit, at = moment
    if unit == "change":
        changes = {"folder": place, "at": at, "act": "stop"}
        one = world.start(*commands[0], changes=changes)
        stood = one.stands()
        other = world.start(*commands[1])
        ends = [other.end()]
        with suppress(ProcessLookupError):
            os.kill(one.process.pid, signal.SIGCONT)
        ends.insert(0, one.end())
    else:
        one, stood = world.start(*commands[0]), True
        time.sleep(at / OFFSETS * seconds)
        other = world.start(*commands[1])
        ends = [one.end(), other.end()]
    faults = [] if stood else ["the first never stood at its change"]
    processes = one.process.pid, other.process.pid
    faults += _pair_faults(world, place, processes, ends, (first, second))
    if not faults:
        forget(place)
    return faults


def _pair_faults(
    world: World,
    place: Path,
    processes: tuple[int, int],
    ends: list[Told],
    options: tuple[tuple[str, ...], tuple[str, ...]],
) -> list[str]:
    """Return what is wrong with the results of two commands, and with the folder afterwards."""
    faults = []
    for told, holder, which in zip(ends, processes[::-1], ("first", "second"), strict=True):
        if told.code not in {0, 2}:
            faults.append(f"the {which} ended with {told.code}: {told.last}")
        elif told.code == 2:
            other_seed = "--seed" in options[1] and "other seed" in told.errors
            if not other_seed and not re.search(rf"\b{holder}\b", told.errors):
                faults.append(f"the {which} was refused without the holder's number: {told.last}")
    done = [more for told, more in zip(ends, options, strict=True) if told.code == 0]
    worked = [told for told in ends if told.code == 0 and not COMPLETE.search(told.output)]
    if not done:
        return [*faults, "none of the two ended well"]
    if len(worked) == 2 and options[0] == options[1]:
        faults.append("both did the whole work")
    winner = next((more for more in done if more != ("report",)), None)
    if winner is None:
        return [*faults, "the map was refused"]
    wanted = "other" if "--seed" in winner else "redrawn" if "--tests" in winner else "plain"
    if "--seed" in options[1] and len(done) == 2:
        faults.append("runs of two seeds both ended well in one folder")
    faults += [f"then {fault}" for fault in brief(differences(place, world.wanted[wanted]))]
    third = world.call(*world.map(place, *(more for more in winner if more != "--fresh")))
    if third.code != 0 or not COMPLETE.search(third.output):
        faults.append(f"a third call ended with {third.code}, not complete already: {third.last}")
    else:
        left = brief(differences(place, world.wanted[wanted]))
        faults += [f"a third call said complete already, but {fault}" for fault in left]
    return faults


PARTS: dict[str, Callable[[World, Tally], None]] = {
    "A": kills,
    "B": pairs,
    "C": damaged_files,
    "D": debris,
}


def markdown(found: dict[str, Tally], seconds: float) -> str:
    """Return the table."""
    rows = [
        (part, what, times, faults)
        for part, tally in found.items()
        for what, (times, faults) in tally.rows.items()
    ]
    faults = [fault for row in rows for fault in row[3]]
    listed = "".join(f"- {fault}\n" for fault in faults)
    told = f"\nEach with its case; `--only CASE` repeats it.\n\n{listed}" if faults else ""
    lines = [(part, what, times, len(held)) for part, what, times, held in rows]
    return f"""# Faults of run folders

`benchmarks/faults/faults_runs.py`, on one machine. The final contents of a disturbed folder are
compared with an undisturbed run, to the last bit: names of files, grids, tables, models,
pages. {seconds:.0f} seconds.

{table(("part", "what", "times", "faults"), lines, left=(0, 1))}
{sum(times for _, _, times, _ in rows)} cases, {len(faults)} faults.
{told}"""


def main(given: list[str] | None = None) -> int:
    """Run the trials; the exit status is 1 if faults were found."""
    asked = parser(__doc__)
    asked.add_argument("--parts", default="".join(PARTS), help="some of " + "".join(PARTS))
    asked.add_argument("--most", type=int, default=40, help="largest number of cases of one kind")
    asked.add_argument("--only", default="", help="only cases whose name contains this text")
    asked.add_argument("--out", type=Path, default=RESULTS / "faults-runs")
    options = asked.parse_args(given)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        asked.error(f"expected some of {''.join(PARTS)}, found {''.join(sorted(unknown))}")
    began, found = time.monotonic(), {"": Tally()}
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            unlike = world.make_whole()
            found[""].note("two undisturbed runs", "two undisturbed runs", unlike)
            for part in options.parts:
                tally = found[part] = Tally(options.most, options.only)
                PARTS[part](world, tally)
                told = sum(times for times, _ in tally.rows.values())
                seconds = time.monotonic() - began
                say(f"{part}: {told} cases, {tally.faults} faults, {seconds:.0f} s")
        finally:  # also after an interruption, with the cases so far
            _write(options.out, found, time.monotonic() - began)
    return 1 if any(tally.faults for tally in found.values()) else 0


def _write(out: Path, found: dict[str, Tally], seconds: float) -> None:
    parts = {
        part: {what: {"times": times, "faults": held} for what, (times, held) in tally.rows.items()}
        for part, tally in found.items()
    }
    faults = sum(tally.faults for tally in found.values())
    results = {"seconds": round(seconds, 1), "faults": faults, "parts": parts}
    write_results(out, markdown(found, seconds), results)


if __name__ == "__main__":
    sys.exit(main())
