"""The suite for a GPU, run as a whole on the second device, without packages of geodata."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from math import isfinite
from pathlib import Path
from unittest.mock import patch

import pytest
from benchmark_scripts import ROOT, SCRIPTS, load

ABSENT = ("geopandas", "shapely", "fsspec", "pyogrio", "pyproj", "rasterio", "folium")
"""Packages that a machine for GPUs does not have."""

NAMES = (
    *("a-probe", "b-tests", "c-repeats", "d-steps", "e-speed", "f-dbk-rbf", "f-field"),
    *("g-alpha-0", "g-alpha-0.01", "g-alpha-0.1", "g-alpha-1", "h-tests"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the suite in a process without `ABSENT`; return its exit code and standard error."""
    folder = tmp_path_factory.mktemp("absent")
    lines = "import sys\n" + "".join(f"sys.modules['{name}'] = None\n" for name in ABSENT)
    (folder / "sitecustomize.py").write_text(lines)
    path = os.pathsep.join([str(folder), str(ROOT)])

    def ran(*options):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", "speed.gpu_suite", *map(str, options)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        )
        return done.returncode, done.stderr

    return ran


@pytest.fixture(scope="module")
def dry(run, tmp_path_factory):
    """The folder of a dry run, whose limits are those of ten minutes, four times as long here."""
    folder = tmp_path_factory.mktemp("gpu")
    code, said = run("--dry", "--out", folder, "--table", folder / "table", "--seconds", 2400)
    assert code == 0, said
    return folder


@pytest.fixture(scope="module")
def found(dry):
    return {name: json.loads((dry / "dry" / f"{name}.json").read_text()) for name in NAMES}


def test_every_operation_of_a_step_is_recorded(found):
    operations = found["a-probe"]["operations"]
    assert {"cholesky_ex, 8 by 8", "index_put with sums"} < operations.keys()
    assert [name for name, one in operations.items() if not one.get("equal")] == []


def test_the_tests_of_a_gpu_pass(found):
    assert (found["b-tests"]["passed"], found["h-tests"]["passed"]) == (3, 1)
    assert found["b-tests"]["failed"] == found["h-tests"]["failed"] == []
    # Without geopandas, one file of tests of models cannot be read.
    assert (found["b-tests"]["unread"], len(found["h-tests"]["unread"])) == ([], 1)


def test_repeated_inputs_are_recorded_with_the_scores_of_the_cpu(found):
    for one in found["c-repeats"]["models"].values():
        assert one["alike"]
        assert one["nll"] == pytest.approx(one["nll_cpu"], rel=1e-5)
        assert any("recorded" in line for line in one["log"])
        assert not any("not recorded" in line for line in one["log"])


def test_steps_have_shares_of_both_peaks(found):
    steps = found["d-steps"]
    assert steps["recorded_ms"] < steps["alone_ms"]  # kernels that are started
    assert isfinite(steps["last_loss"])
    assert all(0 < share < 1 for share in steps["shares"].values())
    assert steps["log"][0].startswith("a step of 64 rows: ")
    assert found["e-speed"]["svgp_step_vs_gpytorch"] > 0


def test_whole_fits_have_scores_times_and_memory(found):
    for name in ("f-dbk-rbf", "f-field"):
        one = found[name]
        assert isfinite(one["test_nll"])
        assert one["rows"] == 1500
        assert one["seconds"] > 0
        assert one["peak_bytes"] > 1e8
    alphas = [one["weights"]["alpha"] for name, one in found.items() if name.startswith("g-")]
    assert alphas == [0.0, 0.01, 0.1, 1.0]
    assert all(isfinite(one["nll"]) for name, one in found.items() if name.startswith("g-"))


@pytest.fixture
def asked(tmp_path):
    """A part's arguments on the second device, in this process."""
    parts, suite = load("speed.gpu_parts"), load("speed.gpu_suite")
    suite.dry_pack(tmp_path)
    return parts.Asked(str(parts.DEVICE), parts.SMALL, tmp_path, tmp_path)


def test_a_refused_recording_has_no_time(asked):
    parts, suite = load("speed.gpu_parts"), load("speed.gpu_suite")

    def refuse(_step):
        raise RuntimeError("operation not permitted when stream is capturing")

    with parts.on(asked), patch.dict(parts.RECORDERS, {parts.NAME: refuse}):
        steps, operations = parts.steps(asked), parts.probe(asked)
    assert steps["recorded_ms"] is None
    assert steps["kept_ms"] > 0
    assert {one["refused"] for one in operations["operations"].values()} == {
        "operation not permitted when stream is capturing"
    }
    text = suite._steps({"d-steps": steps}) + suite._proofs({"a-probe": operations})
    assert "| a step, recorded | refused |" in text
    assert "- training steps are not recorded, and may be slower: operation not" in text
    assert "| gamma draws | " in text


def test_a_replay_that_does_nothing_is_seen(asked):
    parts = load("speed.gpu_parts")

    def lazy(step):
        return step().clone(), lambda: None

    with parts.on(asked), patch.dict(parts.RECORDERS, {parts.NAME: lazy}):
        found = parts.probe(asked)["operations"]
    assert not any(one["equal"] for one in found.values())


def test_failed_tests_are_named(asked, tmp_path, capsys):
    parts = load("speed.gpu_parts")
    folder = tmp_path / "tests"
    folder.mkdir()
    text = (
        "import pytest\n\n"
        "@pytest.mark.parametrize('gpu', ['second-bll'])\n"
        "def test_on_the_gpu(gpu):\n    assert {}\n"
    )
    (folder / "test_good.py").write_text(text.format("gpu"))
    (folder / "test_bad.py").write_text(text.format("not gpu"))
    (folder / "test_unread.py").write_text("import no_such_package\n")
    with patch.object(sys, "stdout", sys.__stdout__), patch.object(sys, "stderr", sys.__stderr__):
        found = parts.tests(asked, str(folder))
    assert found["passed"] == 1
    assert found["failed"] == ["test_on_the_gpu[second-bll]"]
    assert [name.rpartition(".")[2] for name in found["unread"]] == ["test_unread"]
    (folder / "test_good.py").unlink()
    (folder / "test_bad.py").unlink()
    with (
        patch.object(sys, "stdout", sys.__stdout__),
        patch.object(sys, "stderr", sys.__stderr__),
        pytest.raises(RuntimeError, match=r"no test of .* ran; pytest ended with \d"),
    ):
        parts.tests(asked, str(folder))


def test_the_page_has_all_parts(dry):
    text = (dry / "table" / "table.md").read_text()
    assert f"Parts with a result: {', '.join(NAMES)}." in text
    assert "Without a result" not in text
    assert text.count("\n## ") == 7
    held = json.loads((dry / "table" / "results.json").read_text())
    assert tuple(held) == NAMES
    assert {one["machine"]["device"] for one in held.values()} == {"testgpu:0"}


def test_it_continues_where_it_stopped(run, dry):
    options = ("--dry", "--out", dry, "--table", dry / "table", "--seconds", 2400)
    before = {name: (dry / "dry" / f"{name}.json").stat().st_mtime_ns for name in NAMES}
    (dry / "dry" / "g-alpha-1.json").unlink()
    code, said = run(*options)
    assert code == 0
    assert "g-alpha-1: done" in said
    changed = [
        name
        for name, time in before.items()
        if (dry / "dry" / f"{name}.json").stat().st_mtime_ns != time
    ]
    assert changed == ["g-alpha-1"]


def test_parts_end_at_their_limits_with_all_their_processes(run, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_MARK", str(tmp_path))
    code, said = run("--dry", "--out", tmp_path, "--table", tmp_path / "t", "--seconds", 12)
    assert code == 1
    assert "b-tests: ended after its limit of 2 s" in said
    environments = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            environments.append(path.read_bytes())
    assert environments
    assert not any(str(tmp_path).encode() in text for text in environments)
    assert "h-tests: no time was left" in said
    assert said.endswith("start the same command again for these parts\n")
    assert not (tmp_path / "dry" / "b-tests.json").exists()


def test_a_failed_part_is_named_with_its_error(run, dry, tmp_path):
    """The others are made; here most have results already."""
    for name in NAMES[1:]:
        path = tmp_path / "dry" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((dry / "dry" / f"{name}.json").read_bytes())
    (tmp_path / "dry" / "g-alpha-1.json").unlink()
    (tmp_path / "dry" / "uci").write_text("")  # where the fits of this part should be
    code, said = run("--dry", "--out", tmp_path, "--table", tmp_path / "t", "--seconds", 2400)
    assert code == 1
    assert "a-probe: done" in said
    assert "g-alpha-1: failed: OutputError" in said
    text = (tmp_path / "t" / "table.md").read_text()
    assert "- g-alpha-1: failed: OutputError" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dry"], "--dry measures nothing: give another folder as --table"),
        ([], "give the folder of gpu_pack.sh as --pack, or --dry"),
    ],
)
def test_what_is_refused(run, options, message):
    code, said = run(*options)
    assert code == 2
    assert message in said


@pytest.mark.real
def test_the_pack_is_small_and_complete(real_data, tmp_path):
    script = SCRIPTS / "speed" / "gpu_pack.sh"
    done = subprocess.run(
        [script, real_data, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    names = {path.name.split("-")[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"georgia.npz", "protein.parquet", "safetensors", "msgspec"}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 60 * 2**20
