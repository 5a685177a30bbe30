"""A map whose fits are shared by the processes of torchrun."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.trial


def mapped(small, out, *options, processes=2):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.run(
        [
            sys.executable,
            *(launcher if processes > 1 else ()),
            *("-m", "geogp_cli.entry"),
            *small.arguments,
            *("--split", "random", "--out", out, "--json", *options),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_two_processes_map_what_one_does(small, tmp_path):
    runs = {}
    for processes in (1, 2):
        out = tmp_path / f"run-{processes}"
        done = mapped(small, out, processes=processes)
        assert done.returncode == 0, done.stderr
        runs[processes] = json.loads((out / "run.json").read_text())
    told = json.loads(done.stdout)  # one object: the other process prints nothing
    one, two = runs[1], runs[2]
    assert two["metrics"]["random"] == told["metrics"]["random"]
    for stratum, scores in one["metrics"]["random"].items():
        for name in ("nll", "mae", "width_95"):
            found = two["metrics"]["random"][stratum][name]
            assert found == pytest.approx(scores[name], rel=1e-3), (stratum, name)
    assert two["files"] == one["files"]


def test_a_refusal_ends_all_processes(small, tmp_path):
    done = mapped(small, tmp_path / "run", "--service", "carrier-pigeon")
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count("carrier-pigeon") == 1
    assert "bug in geogp" not in done.stderr  # of the other process, which was left alone
    assert not (tmp_path / "run").exists()
