"""The benchmarks' own tests are trials: `make trials` runs them."""

import json
from pathlib import Path

import pytest
import torch
from benchmark_scripts import load, told


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


@pytest.fixture
def on_both(tmp_path, monkeypatch):
    """Run a script on the CPU, then on the second device; return the figures of both, untimed."""
    second = load("speed.second_device")
    device = str(second.DEVICE)
    monkeypatch.setattr(load("script"), "DEVICES", ("cpu", device))

    def run(name, *options):
        options = (*options, "--out", tmp_path)
        told(name, *options, "--table", tmp_path / "here")
        with second.second_device() as counts:
            told(name, *options, "--table", tmp_path / "there", "--device", device)
        assert counts.launches
        files = [{path.name for path in tmp_path.glob(f"{at}*.json")} for at in ("", "testgpu-0/")]
        assert files[0] == files[1] != set()  # no fit of the CPU was read
        here, there = (
            json.loads((tmp_path / at / "results.json").read_text()) for at in ("here", "there")
        )
        assert {one.pop("device") for one in there} == {device}
        assert not any("cpu_seconds" in key for one in there for key in one)
        page = (tmp_path / "there" / "table.md").read_text()
        assert f"s are wall times on {device}" in page
        assert "CPU s" not in page
        return _untimed(here), _untimed(there)

    return run


def _untimed(figures):
    return [{key: one[key] for key in one if "seconds" not in key} for one in figures]
