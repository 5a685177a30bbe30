"""Where the tests on real data find them, and small simulated sources whose maps take seconds.

What the maps need is imported where it is used: the tests of models run without it.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from batch_worlds import States
    from run_worlds import Small

    from geogp.runs.finished_run import RunResult

STORED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real data; without it a test is skipped, but fails in CI."""
    folder = Path(os.environ.get("GEOGP_REAL_DATA") or STORED)
    if not (folder / "ookla-open-data").is_dir():
        advice = f"no real data in {folder}; set GEOGP_REAL_DATA"
        if os.environ.get("CI"):
            pytest.fail(advice)
        pytest.skip(advice)
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_reader() -> Iterator[None]:
    """Read the Parquet files of all tests by one process, which takes a moment to start."""
    from geogp.geodata.tiles.parquet_files import reading_process

    with reading_process():
        yield


@pytest.fixture(autouse=True)
def same_arithmetic() -> Iterator[None]:
    """Fail a test after which this process flushes denormal numbers: the next ones would differ."""
    yield
    assert sys.float_info.min / 2 > 0, "denormal numbers are flushed to zero after this test"


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder that all test processes share. Tests must not change it."""
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = common / f"common-{name}", common / f"common-{name}.done"
        with FileLock(common / f"common-{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def made_run(
    made_once: Callable[..., Path], small: "Small", tmp_path_factory: pytest.TempPathFactory
) -> "Callable[..., RunResult]":
    """Make a run of the small source once; each test process has a copy, as commands lock runs.

    The run has no pictures, and the fits of field models are short.
    """
    from batch_worlds import leave_out_pictures, shorten_field_fits

    from geogp.runs.finished_run import RunResult
    from geogp.runs.pipeline.run_map import run_map
    from geogp.runs.run_folder import read_run_record

    def made(name: str, **changes: object) -> RunResult:
        with pytest.MonkeyPatch.context() as patch:
            leave_out_pictures(patch)
            shorten_field_fits(patch)
            first = made_once(name, lambda out: run_map(small.request(out, **changes)))
        path = shutil.copytree(first, tmp_path_factory.mktemp(name) / "run")
        return RunResult(path, read_run_record(path)[1])

    return made


@pytest.fixture(scope="session")
def small(made_once: Callable[..., Path]) -> "Small":
    from run_worlds import Small, write_small

    return Small(made_once("small", write_small))


@pytest.fixture
def own_small(small: "Small", tmp_path: Path) -> "Small":
    """A source that a test may damage."""
    from run_worlds import Small

    return Small(Path(shutil.copytree(small.folder, tmp_path / "source")))


@pytest.fixture(scope="session")
def finished(made_run: "Callable[..., RunResult]") -> "RunResult":
    """A finished run with both splits. Tests must not change it."""
    return made_run("finished", split="both")


@pytest.fixture(scope="session")
def states(made_once: Callable[..., Path]) -> "States":
    """Three simulated states. Tests must not change them."""
    from batch_worlds import CODES, States, states_side_by_side, write_states

    regions = states_side_by_side(CODES)
    return States(made_once("states", lambda out: write_states(out, regions, rows=700)))


@pytest.fixture(scope="module")
def short_field_fits() -> Iterator[None]:
    """Leave out of fits of field models what takes most of their time here."""
    from batch_worlds import shorten_field_fits

    with pytest.MonkeyPatch.context() as patch:
        shorten_field_fits(patch)
        yield


@pytest.fixture(scope="module")
def no_pictures() -> Iterator[None]:
    """Leave out of runs made in this process what takes most of their time here: pictures."""
    from batch_worlds import leave_out_pictures

    with pytest.MonkeyPatch.context() as patch:
        leave_out_pictures(patch)
        yield


@pytest.fixture(scope="session")
def batch(states: "States", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place of a finished batch of all states. Tests must not change it."""
    from batch_worlds import leave_out_pictures, working_here

    from geogp.commands.batch.make_batch import make_batch

    place = tmp_path_factory.mktemp("batch") / "place"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOGP_CACHE", str(place.parent / "cache"))
        leave_out_pictures(patch)
        with working_here(patch):
            result = make_batch(states.request(), str(place))
    assert result.exit_code == 0
    return place


@pytest.fixture(scope="module")
def copy(finished: "RunResult", tmp_path_factory: pytest.TempPathFactory) -> "RunResult":
    """The finished run, where files may be added."""
    from geogp.runs.finished_run import RunResult

    folder = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(finished.path, folder)
    return RunResult(folder, finished.record)


@pytest.fixture(scope="session")
def demo_run(made_once: Callable[..., Path]) -> Path:
    """The folder of the run of `geogp demo`. Tests must not change it."""
    from geogp.commands.demo import demo_request
    from geogp.runs.pipeline.run_map import run_map

    return made_once("demo", lambda out: run_map(demo_request(out=out)))


@pytest.fixture(scope="session")
def counted(made_run: "Callable[..., RunResult]") -> "RunResult":
    """A finished run of numbers of tests with both splits. Tests must not change it."""
    return made_run("counted", target="tests", epochs=5, split="both")


@pytest.fixture(scope="session")
def tiered(made_run: "Callable[..., RunResult]") -> "RunResult":
    """A finished run of tiers of speed with both splits. Tests must not change it."""
    return made_run("tiered", target="tier", model="class-dbk", epochs=4, split="both")


@pytest.fixture(scope="session")
def plain(made_run: "Callable[..., RunResult]") -> "RunResult":
    """A finished run of a network without a basis over tiles. Tests must not change it."""
    return made_run("plain", model="dbk-silu")


@pytest.fixture
def geogp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Call the command, and return its code and what it wrote."""
    from geogp_cli.entry import run as command

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["geogp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            command()
        told = capsys.readouterr()
        return int(stop.value.code or 0), told.out, told.err

    return call
