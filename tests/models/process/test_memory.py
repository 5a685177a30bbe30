"""What a fit needs of memory, against what it takes."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from geogp.errors import RequestError
from geogp.models.numerics import devices
from geogp.models.numerics.devices import available_bytes
from geogp.models.process import memory
from geogp.models.process.architecture import Architecture
from geogp.models.process.memory import check_memory, fit_bytes

pytestmark = pytest.mark.trial

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from geogp.models.catalogue.build import build
from geogp.models.process.architecture import Architecture
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.process.data import Data

name, n, r, batch = sys.argv[1], *map(int, sys.argv[2:])
random = np.random.default_rng(0)
x = random.uniform(-1, 1, (n, 3))
data = Data(x, np.sin(3 * x[:, 0]) + random.standard_normal(n))
few = Data(x[:100], data.y[:100])
sizes = Architecture(d=3, h=32, r=r)

def peak():
    # Not ru_maxrss, which begins with that of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

for rank, rows in ((8, few), (r, data)):
    before = peak()
    model = build(name, Architecture(d=3, h=32, r=rank), rows.x, noise_start=0.5,
                  placement="pivoted" if "nystrom" in name else "farthest")
    how = {"optimiser": "lbfgs"} if "nystrom" in name else {}
    fit(model, rows, few, FitSettings(epochs=1, batch=batch, **how))
    model.predict(rows.x)
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("name", "n", "r", "batch"),
    [
        ("nystrom-mixed", 10_000, 300, 4_000),
        ("dbk-silu", 40_000, 256, 2048),
        ("nystrom-mixed-fitc", 4096, 400, 4096),
        ("dbk-exact-rbf", 4096, 400, 4096),
    ],
)
def test_the_estimate_holds_what_a_fit_takes(name, n, r, batch):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, name, str(n), str(r), str(batch)],
        capture_output=True,
        text=True,
        check=True,
    )
    taken = int(done.stdout)
    expected = fit_bytes(Architecture(d=3, h=32, r=r), n, batch)
    assert taken <= expected
    assert expected < 12 * taken + 2**26


LEVEL_PROGRAM = """
import ctypes, sys
from pathlib import Path
import numpy as np
from geogp.models.field import tile_level
from geogp.models.joint import level as levels
from geogp.models.process.architecture import Architecture
from geogp.models.catalogue.build import build
from geogp.models.process.memory import level_bytes
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.process.data import Data

random = np.random.default_rng(0)
places = random.uniform(-1, 1, (200, 2)).repeat(5, axis=0)
x = np.column_stack([places, np.tile(np.arange(5.0), 200)])  # blocks are as wide as they can be
data = Data(x, np.sin(3 * x[:, 0]) + random.standard_normal(1000))
process = build("field", Architecture(d=3, h=16, r=16, blocks=1, units=(50.0, 50.0, 4.0)), x)
held_out, settings = Data(x[:100], data.y[:100]), FitSettings(epochs=1, batch=256)
model, _ = fit(process, data, held_out, settings)
expected = []
tile_level.check_level = lambda *sizes: expected.append(level_bytes(*sizes))

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

def grid(side):
    steps = (np.arange(side) + 0.5) / side * 2 - 1
    east, north = np.meshgrid(steps, steps)
    return np.column_stack([east.ravel(), north.ravel(), np.full(side**2, 2.0)])

def scattered(n):
    here, dense = random.uniform(-1, 1, (n, 2)), random.uniform(0, 0.01, (30, 2))
    places = np.vstack([here, dense])
    return np.column_stack([places, random.uniform(0, 4, n + 30)])

def taken(tiles):
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = peak()
    for _ in levels.joint_level(model, None, tiles, columns=8).paths(8):
        pass
    return peak() - before

taken(grid(8))
found = [taken(tiles) for tiles in (grid(40), grid(120), scattered(10_000))]
print(*found, *expected[1:])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="gives memory back by malloc_trim")
def test_the_estimate_holds_what_a_joint_law_takes_of_few_tiles_and_of_many():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LEVEL_PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    taken = list(map(int, done.stdout.split()))
    for found, expected in zip(taken[:3], taken[3:], strict=True):
        assert found <= expected < 4 * found


def test_a_fit_that_is_too_large_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda _: 2_000_000_000)
    device = torch.device("cpu")
    check_memory(Architecture(d=2, r=500), 135_000, 20_000, device)
    with pytest.raises(RequestError, match=r"rank 20000 to 135,000 rows needs about \d+\.\d GB"):
        check_memory(Architecture(d=2, r=20_000), 135_000, 20_000, device)
    with pytest.raises(RequestError, match=r"on cpu, but only 2\.0 GB are free"):
        check_memory(Architecture(d=2, r=20_000), 135_000, 20_000, device)


def test_the_presets_stay_below_4_gb_on_puerto_rico():
    for h, r, batch in ((64, 500, 20_000), (128, 1000, 60_000), (256, 1024, 1024)):
        assert fit_bytes(Architecture(d=3, h=h, r=r), 135_000, batch) < 3.4e9


def test_free_memory_is_some_of_the_machine():
    assert 2**26 < available_bytes(torch.device("cpu")) < 2**50


def test_chunks_follow_the_free_memory_of_a_device_that_is_not_the_cpu(monkeypatch):
    monkeypatch.setattr(devices, "available_bytes", lambda _: 80e9)
    assert devices.rows_at_once(256, 1000, torch.device("cpu")) == 256
    assert devices.rows_at_once(256, 1000, torch.device("meta")) == 0.25 * 80e9 / 8 / 1000
    assert devices.rows_at_once(256, 10**9, torch.device("meta")) == 256
