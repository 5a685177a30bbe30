"""Check how commands handle damaged files of finished runs and leftover files in a folder."""

import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.faults.faults_folders import (
    COMPLETE,
    RUN,
    Tally,
    Told,
    World,
    done_well,
    forget,
    named_files,
)


def _truncate(file: Path, _: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _change(file: Path, _: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _replace(file: Path, other: Path) -> None:
    file.write_bytes(other.read_bytes())


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "deleted": lambda file, _: file.unlink(),
    "truncated": _truncate,
    "one bit changed": _change,
    "replaced by that of another run": _replace,
}


def _alike(how: str, file: Path, other: Path) -> bool:
    """Return whether a damage would not change a file."""
    return how.startswith("replaced") and file.read_bytes() == other.read_bytes()


def damaged_files(world: World, tally: Tally) -> None:
    """Damage each file of a finished run; the same command must make it again and report that."""
    plain, other = world.whole["plain"] / RUN, world.whole["other"] / RUN
    cases = {
        how: [name for name in named_files(plain) if not _alike(how, plain / name, other / name)]
        for how in DAMAGES
    }
    for name, how in (
        (name, how)
        for how, names in cases.items()
        for name in tally.chosen(names, lambda name, how=how: f"{name} {how}")
    ):
        place = world.place(world.whole["plain"])
        DAMAGES[how](place / RUN / name, other / name)
        told = world.call(*world.map(place))
        faults = done_well(told, place, world.wanted["plain"], "the same command")
        if told.code == 0 and COMPLETE.search(told.output):
            faults.append("it was called complete already")
        elif told.code == 0 and name not in told.text:
            faults.append("what was made again was not said")
        tally.note(f"file {how}", f"{name} {how}", faults)
        if not faults:
            forget(place)


def _states(world: World) -> dict[str, Callable[[Path], None]]:
    """Return states in which a run folder may be left, including almost empty ones."""
    half = (world.whole["plain"] / RUN / "run.json").read_text()
    half = half[: len(half) // 2]
    finished = {"finished/": world.whole["plain"]}

    def written(name: str, content: str, start: Path | None = None) -> Callable[[Path], None]:
        def make(place: Path) -> None:
            if start is not None:
                shutil.copytree(start, place, dirs_exist_ok=True)
            file = place / RUN / name
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
            if name.endswith("/"):
                file.mkdir(parents=True)
            else:
                file.write_text(content)

        return make

    made = {
        ".unfinished/.identity.json.a alone": written(".unfinished/.identity.json.abcdefgh", ""),
        "an empty folder .unfinished": written(".unfinished/", ""),
        "an empty folder of staged files": written(".unfinished/files/", ""),
    }
    for where, start in {"": None, **finished}.items():
        for name in (
            "run.json",
            ".unfinished/identity.json",
            ".unfinished/stale.json",
            ".unfinished/files/run.json",
            ".unfinished/files/grid.nc",
            ".unfinished/random.safetensors",
        ):
            texts = {"empty": "", "half": half, "null": "null", "a list": "[]", "other": '{"a": 1}'}
            for how, text in texts.items():
                made[f"{where}{name} {how}"] = written(name, text, start)
    return made


def debris(world: World, tally: Tally) -> None:
    """Leave files in the folder; the command must succeed, or refuse and name a remedy."""
    cases: list[tuple[str, Callable[[Path], None]]] = list(_states(world).items())
    if tally.may("killed"):
        cases += _parts_of_killed(world)
    for name, make in tally.chosen(cases, lambda case: case[0]):
        place = world.place()
        make(place)
        faults = _debris_faults(world, place)
        tally.note("debris", name, faults)
        if not faults:
            forget(place)
    _foreign(world, tally)


def _parts_of_killed(world: World) -> list[tuple[str, Callable[[Path], None]]]:
    """Return states after a kill and the loss of one file, and states with a single file left."""
    cases: list[tuple[str, Callable[[Path], None]]] = []
    start = world.place()
    number = len(world.changes(start, *world.map(start)))
    for share in (0.3, 0.6, 0.75, 0.9):
        stopped = world.place()
        at = {"folder": stopped, "at": max(1, int(share * number))}
        world.call(*world.map(stopped), changes=at)
        inside = [path for path in sorted(stopped.rglob("*")) if path.is_file()]
        hidden = [path for path in inside if ".unfinished" in path.parts or path.name[0] == "."]
        for path in hidden[:: max(1, len(hidden) // 6)]:
            name = re.sub(r"\.[a-z0-9_]{8}$", ".*", str(path.relative_to(stopped / RUN)))
            cases.append((f"killed, {share:.0%}, {name} alone", partial(_only, stopped, path)))
            cases.append((f"killed, {share:.0%}, without {name}", partial(_without, stopped, path)))
    return cases


def _only(stopped: Path, path: Path, place: Path) -> None:
    file = place / path.relative_to(stopped)
    file.parent.mkdir(parents=True)
    shutil.copy(path, file)


def _without(stopped: Path, path: Path, place: Path) -> None:
    shutil.copytree(stopped, place, dirs_exist_ok=True)
    (place / path.relative_to(stopped)).unlink()


def _debris_faults(world: World, place: Path) -> list[str]:
    """Return what is wrong after the same command, and after --fresh in a copy."""
    beside, wanted = world.place(place), world.wanted["plain"]
    told = world.call(*world.map(place))
    if told.code in {2, 3} and told.errors.strip():
        faults = _cure_faults(world, place, told)
    else:
        faults = done_well(told, place, wanted, "the same command")
    fresh = world.call(*world.map(beside, "--fresh"))
    return faults + done_well(fresh, beside, wanted, "--fresh")


def _cure_faults(world: World, place: Path, told: Told) -> list[str]:
    """Follow the instruction of a refusal, and return what is wrong afterwards."""
    said = " ".join(told.errors.split())
    if "Traceback" in said:
        return [f"the same command ended with a traceback: {told.last}"]
    if "--fresh" in said:
        done, cure = world.call(*world.map(place, "--fresh")), "the cure --fresh"
    else:
        named = [Path(text) for text in re.findall(r"/[^\s,;:()']+", said)]
        inside = [path for path in named if place / RUN in path.parents and path.exists()]
        if not re.search(r"\b[Dd]elete\b", said) or not inside:
            return [f"the same command was refused without a cure for this folder: {told.last}"]
        for path in inside:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        done, cure = world.call(*world.map(place)), "the cure to delete"
    return done_well(done, place, world.wanted["plain"], cure)


FOREIGN = {
    "a foreign file alone": ("", "", f"{RUN}/notes.txt"),
    "a foreign file in a finished run": (RUN, "", f"{RUN}/notes.txt"),
    ".unfinished is a link": ("", f"{RUN}/.unfinished", "mine/notes.txt"),
    "the folder of staged files is a link": ("", f"{RUN}/.unfinished/files", "mine/notes.txt"),
    "stale.json names a file outside": (f"{RUN}/.unfinished/files", "", "notes.txt"),
}
"""Folder of the files of a finished run, a link to the folder of the user's file, and this file."""


def _foreign(world: World, tally: Tally) -> None:
    """Put a user's own file in or beside the folder; no command may change it."""
    cases = [(name, more) for name in FOREIGN for more in ((), ("--fresh",))]
    for name, more in tally.chosen(cases, lambda case: " ".join((case[0], *case[1]))):
        place = world.place()
        whole, link, file = (place / part if part else None for part in FOREIGN[name])
        assert file is not None
        if whole is not None:
            shutil.copytree(world.whole["plain"] / RUN, whole)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
        if link is not None:
            link.parent.mkdir(parents=True)
            link.symlink_to(file.parent)
        if name.startswith("stale.json"):
            (place / RUN / ".unfinished" / "stale.json").write_text('["../notes.txt"]')
        told = world.call(*world.map(place, *more))
        faults = []
        if told.code not in {0, 2, 3} or "Traceback" in told.text:
            faults.append(f"ended with {told.code}: {told.last}")
        if not file.is_file() or file.read_text() != "mine":
            faults.append("the foreign file is lost")
        tally.note("foreign files", " ".join((name, *more)), faults)
