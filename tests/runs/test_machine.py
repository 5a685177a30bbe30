"""Settings of the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import platform, resource, torch
from geogp.runs.machine import tune_process

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(2**21)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.zeros(2**21)
first = faults()
tune_process()
torch.zeros(2**21)
print(first, faults(), platform.libc_ver()[0] or 'other')
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults of Linux")
def test_freed_memory_is_kept_for_the_next_tensor():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, after, library = done.stdout.split()
    if library == "glibc":
        assert int(after) < int(before) / 10
    else:
        assert int(after) <= 2 * int(before)
