"""A small simulated source, and requests for it that take seconds."""

from pathlib import Path

import pytest
from batch_worlds import CODES, States, batch_world, direct, leave_out_pictures
from jobs_worlds import Small, write_small

from geogp.batch.running import make_batch
from geogp.workflow import RunResult, make_map


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return write_small(tmp_path_factory.mktemp("small"))


@pytest.fixture
def own_small(tmp_path: Path) -> Small:
    """A source that a test may damage."""
    return write_small(tmp_path / "source")


@pytest.fixture(scope="session")
def finished(small: Small, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A finished run with both splits. Tests must not change it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    return make_map(small.request(out, split="both"))


@pytest.fixture(scope="session")
def states(tmp_path_factory: pytest.TempPathFactory) -> States:
    """Three simulated states. Tests must not change them."""
    world, folder = batch_world(), tmp_path_factory.mktemp("states")
    world.write_states(folder, world.states_side_by_side(CODES), rows=700)
    return States(folder)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out of runs made in this process what takes most of their time here: figures."""
    leave_out_pictures(monkeypatch)


@pytest.fixture(scope="session")
def batch(states: States, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place of a finished batch of all states. Tests must not change it."""
    place = tmp_path_factory.mktemp("batch") / "place"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOGP_CACHE", str(place.parent / "cache"))
        leave_out_pictures(patch)
        result = make_batch(states.request(), str(place), crew=direct())
    assert result.exit_code == 0
    return place
