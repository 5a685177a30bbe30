"""The field model beside a peer, on a small simulated source, and the tables made of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from geogp.geodata.quarters import parse_quarters
from geogp.geodata.simulate import simple_region, simulate
from geogp.geodata.simulation_files import write_simulation

FOLDER = Path(__file__).parents[2] / "benchmarks"


def _run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("region") / "source"
    region = simple_region()
    rows = simulate(region, rows=1500, quarters=parse_quarters("2023Q3..2023Q4").all, seed=1)
    write_simulation(rows, region, folder)
    return folder


@pytest.fixture(scope="module")
def made(source) -> Path:
    """Two seeds of the field model and one of GPyTorch's, and their tables."""
    out = source.parent / "out"
    where = ("--source", str(source), "--boundaries", str(source / "boundaries"))
    for model, seeds in (("field", "2"), ("gpytorch-svgp", "1")):
        options = ("--models", model, "--seeds", seeds, "--out", str(out))
        done = _run("field.py", "DEMO", *where, *options)
        assert done.returncode == 0, done.stderr
    done = _run("field_table.py", str(out), "--table", str(source.parent / "table"))
    assert done.returncode == 0, done.stderr
    return source.parent


def test_means_and_errors_are_those_of_the_runs(made):
    lines = json.loads((made / "table" / "results.json").read_text())["DEMO-download"]
    assert [(line["model"], line["split"], list(line["rows"])) for line in lines] == [
        *(("field", "random", ["0", "1"]), ("field", "blocks", ["0", "1"])),
        *(("gpytorch-svgp", "random", ["0"]), ("gpytorch-svgp", "blocks", ["0"])),
    ]
    assert lines[0]["rows"]["0"] == lines[2]["rows"]["0"] != lines[1]["rows"]["0"]
    folder = made / "out" / "DEMO-download" / "field" / "quick"
    runs = [json.loads((folder / f"random-{seed}.json").read_text()) for seed in (0, 1)]
    scores = np.array([run["scores"]["all"]["nll"] for run in runs])
    base = np.array([run["baseline"]["all"]["nll"] for run in runs])
    assert lines[0]["means"]["nll"] == pytest.approx(scores.mean())
    assert lines[0]["means"]["gain"] == pytest.approx((base - scores).mean())
    assert lines[0]["errors"]["nll"] == pytest.approx(abs(scores[0] - scores[1]) / 2)
    assert lines[2]["errors"]["nll"] is None


def test_coverage_is_pooled_over_the_seeds(made):
    lines = json.loads((made / "table" / "results.json").read_text())["DEMO-download"]
    folder = made / "out" / "DEMO-download" / "field" / "quick"
    pit = np.concatenate([np.load(folder / f"random-{seed}.npz")["pit"] for seed in (0, 1)])
    whole = lines[0]["classes"][0]
    assert (whole["kind"], whole["n"]) == ("all", len(pit))
    found = [check["observed"] for check in whole["checks"]]
    assert found == pytest.approx([np.mean(np.abs(pit - 0.5) <= h / 2) for h in (0.5, 0.8, 0.95)])


def test_every_model_is_judged_on_the_same_rows(made):
    out = made / "out" / "DEMO-download"
    first, second = (
        np.load(out / model / "quick" / "blocks-0.npz") for model in ("field", "gpytorch-svgp")
    )
    for name in ("quarter", "tests", "block_x", "block_y"):
        np.testing.assert_array_equal(first[name], second[name])


def test_the_table_names_models_and_splits(made):
    text = (made / "table" / "table.md").read_text()
    assert "## DEMO, download" in text
    assert text.count("| `gpytorch-svgp` |") == 4
    assert "Split by blocks of 0.1°" in text


def test_nothing_there_is_an_error(tmp_path):
    done = _run("field_table.py", str(tmp_path))
    assert done.returncode == 1
    assert "found none" in done.stderr


def test_a_known_truth_is_compared_row_by_row(source, tmp_path):
    done = _run(
        *("field_recovery.py", "--source", str(source), "--seeds", "1", "--table", str(tmp_path))
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "recovery.json").read_text())
    assert found["log_score"] > found["oracle"]
    assert found["level_correlation"] > 0
    assert f"| log score | {found['log_score']:.3f} |" in (tmp_path / "recovery.md").read_text()
