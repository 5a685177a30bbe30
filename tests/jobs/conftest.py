"""A small simulated source, and requests for it that take seconds."""

from pathlib import Path

import pytest
from jobs_worlds import Small, write_small

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
