"""Where the tests on real data find them, and small simulated sources whose maps take seconds.

What the maps need is imported where it is used: the tests of models run without it.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from batch_worlds import States
    from run_worlds import Small

    from geogp.runs.pipeline.make_map import RunResult

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


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> "Small":
    from run_worlds import write_small

    return write_small(tmp_path_factory.mktemp("small"))


@pytest.fixture
def own_small(tmp_path: Path) -> "Small":
    """A source that a test may damage."""
    from run_worlds import write_small

    return write_small(tmp_path / "source")


@pytest.fixture(scope="session")
def finished(small: "Small", tmp_path_factory: pytest.TempPathFactory) -> "RunResult":
    """A finished run with both splits. Tests must not change it."""
    from geogp.runs.pipeline.make_map import make_map

    out = tmp_path_factory.mktemp("finished") / "run"
    return make_map(small.request(out, split="both"))


@pytest.fixture(scope="session")
def states(tmp_path_factory: pytest.TempPathFactory) -> "States":
    """Three simulated states. Tests must not change them."""
    from batch_worlds import CODES, States, batch_world

    world, folder = batch_world(), tmp_path_factory.mktemp("states")
    world.write_states(folder, world.states_side_by_side(CODES), rows=700)
    return States(folder)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out of runs made in this process what takes most of their time here: figures."""
    from batch_worlds import leave_out_pictures

    leave_out_pictures(monkeypatch)


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
    from geogp.runs.pipeline.make_map import RunResult

    folder = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(finished.path, folder)
    return RunResult(folder, finished.record)


@pytest.fixture(scope="session")
def counted(small: "Small", tmp_path_factory: pytest.TempPathFactory) -> "RunResult":
    """A finished run of numbers of tests with both splits. Tests must not change it."""
    from geogp.runs.pipeline.make_map import make_map

    out = tmp_path_factory.mktemp("counted") / "run"
    return make_map(small.request(out, target="tests", epochs=5, split="both"))


@pytest.fixture(scope="session")
def plain(small: "Small", tmp_path_factory: pytest.TempPathFactory) -> "RunResult":
    """A finished run of a network without a basis over tiles. Tests must not change it."""
    from geogp.runs.pipeline.make_map import make_map

    out = tmp_path_factory.mktemp("plain") / "run"
    return make_map(small.request(out, model="dbk-silu"))


@pytest.fixture
def geogp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Call the command, and return its code and what it wrote."""
    from geogp_cli.main import run as command

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["geogp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            command()
        told = capsys.readouterr()
        return int(stop.value.code or 0), told.out, told.err

    return call
