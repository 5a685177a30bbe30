"""The judges of disturbed runs: each must see what is lost."""

import hashlib
import json
import os
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from benchmark_scripts import load
from msgspec import to_builtins
from safetensors.torch import save_file

from geogp.files import write_text
from geogp.runs.file_records import records_of


@pytest.fixture(scope="module")
def tools() -> SimpleNamespace:
    """Return the modules of the harness."""
    return SimpleNamespace(
        debris=load("faults.faults_debris"),
        folders=load("faults.faults_folders"),
        runs=load("faults.faults_runs"),
        fork=load("faults.fork_command"),
    )


def _write_run(run: Path, value: float = 1.0, seconds: float = 2.5) -> None:
    """Write the files of a run as `geogp map` has them, made up."""
    run.mkdir(parents=True, exist_ok=True)
    xr.Dataset({"a": ("x", np.array([value, np.nan]))}).to_netcdf(
        run / "grid.nc", engine="h5netcdf"
    )
    pd.DataFrame({"y": [value, 2.0]}).to_parquet(run / "test_predictions.parquet")
    save_file({"w": torch.tensor([value], dtype=torch.float64)}, run / "model.safetensors")
    (run / "report.md").write_text(f"| {value} |\n| seconds to fit | {seconds} |\n")
    (run / "map.html").write_text(f"{value} map_{hashlib.md5(str(seconds).encode()).hexdigest()}")
    files = sorted(path.name for path in run.iterdir() if path.name != "run.json")
    held = {"seconds": {"fit": seconds}, "metrics": value, "files": files}
    held["file_records"] = to_builtins(records_of(run, files))
    (run / "run.json").write_text(json.dumps(held))


def test_seconds_are_no_difference(tools, tmp_path):
    _write_run(tmp_path / "a" / "run")
    _write_run(tmp_path / "b" / "run", seconds=11.25)
    wanted = tools.folders.contents(tmp_path / "a")
    assert len(wanted) == 7
    assert tools.folders.differences(tmp_path / "b", wanted) == []


def _next_value(run: Path) -> None:
    _write_run(run, float(np.nextafter(1.0, 2.0)))


def _flip(name: str) -> Any:
    def change(run: Path) -> None:
        content = bytearray((run / name).read_bytes())
        content[-1] ^= 1
        (run / name).write_bytes(content)

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda run: (run / "grid.nc").unlink(), "run/grid.nc is missing"),
        (lambda run: (run / ".grid.nc.x").touch(), "run/.grid.nc.x is left over"),
        (lambda run: (run / ".unfinished").mkdir(), "run/.unfinished/ is left over"),
        (lambda run: (run.parent / "run.lock").touch(), "run.lock is left over"),
        (_next_value, "run/grid.nc holds something else"),
        (_next_value, "run/test_predictions.parquet holds something else"),
        (_next_value, "run/model.safetensors holds something else"),
        (_flip("model.safetensors"), "run/model.safetensors holds something else"),
        (_flip("report.md"), "run/report.md holds something else"),
        (
            lambda run: os.truncate(run / "grid.nc", 90),
            "run/grid.nc holds something else (damaged)",
        ),
        (
            lambda run: (run / "run.json").write_text("{"),
            "run.json cannot be read (JSONDecodeError)",
        ),
        (lambda run: (run / "map.html").unlink(), "map.html, named in run.json, is not there"),
    ],
)
def test_each_loss_is_seen(tools, tmp_path, change, told):
    _write_run(tmp_path / "run")
    wanted = tools.folders.contents(tmp_path)
    change(tmp_path / "run")
    assert told in tools.folders.differences(tmp_path, wanted)


@pytest.mark.parametrize("key", ["sha256", "bytes"])
def test_records_of_files_must_be_true(tools, tmp_path, key):
    content = b"abc"
    (tmp_path / "a.tif").write_bytes(content)
    record = {"bytes": 3, "sha256": hashlib.sha256(content).hexdigest()}
    held = {"files": ["a.tif"], "file_records": {"a.tif": record}}
    (tmp_path / "run.json").write_text(json.dumps(held))
    assert tools.folders.record_faults(tmp_path) == []
    record[key] = 4 if key == "bytes" else "0" * 64
    (tmp_path / "run.json").write_text(json.dumps(held))
    word = "size" if key == "bytes" else "hash"
    assert tools.folders.record_faults(tmp_path) == [f"a.tif has another {word} than run.json says"]


def test_a_copy_is_killed_before_each_change(tools, tmp_path):
    """Of a folder, a temporary file, its bytes, their way to disk, its mode, its name, its end."""
    found = []
    for at in range(1, 9):
        folder = tmp_path / str(at)
        folder.mkdir()
        process = os.fork()
        if not process:
            try:
                tools.fork.Changes(folder, at).watch()
                write_text(folder / "a" / "b", "0123456789")
                (folder / "a" / "b").unlink()
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        held = [path for path in folder.rglob("*") if path.is_file()]
        found.append(
            (code, *(part for path in held for part in (path.name[:3], path.stat().st_size)))
        )
    waiting = (-9, ".b.", 10)
    assert found == [(-9,), (-9,), (-9, ".b.", 5), *[waiting] * 3, (-9, "b", 10), (0,)]


def _fake(tools: SimpleNamespace, folder: Path, flaw: str) -> Any:
    """Return a world whose product writes a file at a time, which is each a change; with a flaw."""
    told, contents = tools.folders.Told, tools.folders.contents

    class Fake(tools.folders.World):
        def __init__(self) -> None:
            self.folder, self.source = folder, folder / "source"
            self._number = count()
            self.whole, self.wanted = {}, {}

        def call(self, *arguments: str, **asked: Any) -> Any:
            run = Path(arguments[arguments.index("--out") + 1 if "--out" in arguments else 1])
            value = 1.0 + ("--seed" in arguments) + 2 * ("--tests" in arguments)
            model = folder / f"whole-{value}"
            if not model.exists():
                _write_run(model, value)
            begun, run_file = run / ".begun", run / "run.json"
            run.mkdir(exist_ok=True)
            held, whole = (
                {path.name: path.read_bytes() for path in place.iterdir()} for place in (run, model)
            )
            done = held == whole
            done |= flaw == "believes" and run_file.exists() and "--tests" not in arguments
            if done and "--fresh" not in arguments and arguments[0] != "report":
                return told(0, "complete already", "")
            left = [begun, *(run / name for name in contents(model) if name != "run.json")]
            if flaw == "loses" and begun.exists():
                left = [begun]
            for number, path in enumerate([*left, run_file], 1):
                if number == asked.get("changes", {}).get("at", 0):
                    return told(-9, "", "")
                path.write_bytes(b"" if path == begun else (model / path.name).read_bytes())
            if flaw != "leaves" or "--tests" not in arguments:
                begun.unlink()
            if "record" in asked:
                seen = [("open", str(path.resolve())) for path in [*left, run_file]]
                Path(asked["record"]).write_text(json.dumps(seen))
            return told(0, "made " + " ".join(contents(model)), "")

    world = Fake()
    (folder / "places").mkdir()
    assert world.make_whole() == []
    return world


@pytest.mark.parametrize(
    ("flaw", "told"),
    [
        ("", ""),
        ("loses", "after the same command, run/"),
        ("believes", "it was called complete already"),
        ("leaves", ".begun is left over"),
    ],
)
def test_a_product_that_loses_files_is_found_out(tools, tmp_path, flaw, told):
    world, tally = _fake(tools, tmp_path, flaw), tools.folders.Tally(most=3)
    if flaw == "leaves":
        world.wanted["redrawn"].pop("run/.begun")
    tools.runs.kills(world, tally)
    tools.debris.damaged_files(world, tally)
    faults = [fault for _, held in tally.rows.values() for fault in held]
    assert sum(times for times, _ in tally.rows.values()) == 4 * (1 + 3) + 4 * 3
    assert bool(faults) == bool(flaw)
    assert told in " ".join(faults)


@pytest.fixture(scope="module")
def sound(tools, tmp_path_factory) -> Any:
    """A world whose made-up product has no flaw."""
    return _fake(tools, tmp_path_factory.mktemp("sound"), "")


@pytest.mark.parametrize(
    ("ends", "fault"),
    [
        (((0, "made", ""), (2, "", "error: process 71 works here")), ""),
        (((0, "made", ""), (0, "complete already", "")), ""),
        (((0, "made", ""), (0, "made", "")), "both did the whole work"),
        (((0, "made", ""), (2, "", "error: this is no run")), "without the holder's number"),
        (((1, "", "KeyError"), (0, "made", "")), "the first ended with 1"),
        (((2, "", "process 72"), (2, "", "process 71")), "none of the two ended well"),
    ],
)
def test_two_in_one_folder_are_judged(tools, sound, ends, fault):
    world = sound
    told = [tools.folders.Told(*end) for end in ends]
    judge, plain = tools.runs._pair_faults, world.whole["plain"]
    found = judge(world, world.place(plain), (71, 72), told, ((), ()))
    assert bool(found) == bool(fault)
    assert fault in " ".join(found)
    place = world.place(plain)
    (place / "run" / "grid.nc").unlink()
    assert "run/grid.nc is missing" in " ".join(judge(world, place, (71, 72), told, ((), ()))) or (
        fault == "none of the two ended well"
    )
