"""Where the tests on real tiles and boundaries find their data."""

import os
from pathlib import Path

import pytest

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
