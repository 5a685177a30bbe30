"""Where the tests on real tiles and boundaries find their data, and what no test leaves behind."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

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


@pytest.fixture(autouse=True)
def _denormals() -> Iterator[None]:
    """A command run inside a test flushes them in the whole process: undo it for the next test."""
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)
