"""The benchmarks' own tests are trials: `make trials` runs them."""

from pathlib import Path

import pytest
import torch
from benchmark_scripts import load


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.trial)


@pytest.fixture(scope="module")
def bench(request):
    """The script that a test file names `BENCH`."""
    return load(request.module.BENCH)


@pytest.fixture(autouse=True)
def denormal_numbers():
    """Benchmarks flush denormal numbers to 0; other tests of the same process need them."""
    yield
    torch.set_flush_denormal(False)
