"""The table of all models on a region, on a small simulated source."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.runs.settings import MapRequest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "regions.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("region")
    region = simple_region()
    rows = simulate(region, rows=1500, quarters=parse_quarters("2023Q3..2023Q4").all, seed=1)
    write_simulation(rows, region, folder / "source")
    options = [
        *("DEMO", "--source", str(folder / "source")),
        *("--boundaries", str(folder / "source" / "boundaries")),
        *("--models", "dnn", "vbll", "--targets", "download", "--epochs", "1"),
        *("--zoom", "12"),
        *("--out", str(folder / "out"), "--table", str(folder / "table")),
    ]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder, options


def test_every_figure_is_that_of_its_run(made):
    folder, _ = made
    lines = json.loads((folder / "table" / "DEMO.json").read_text())
    assert [(line["model"], line["split"]) for line in lines] == [
        *(("dnn", "random"), ("dnn", "blocks"), ("vbll", "random"), ("vbll", "blocks"))
    ]
    for line in lines:
        assert 2e8 < line["peak_bytes"] < 4e9
        run = json.loads(next((folder / "out").glob(f"*-{line['model']}-*/run.json")).read_text())
        for stratum in ("all", "urban", "rural"):
            own = run["metrics"][line["split"]][stratum]["nll"]
            other = run["baseline"][line["split"]][stratum]["nll"]
            assert line[f"nll_{stratum}"] == own
            assert line[f"crps_{stratum}"] == run["metrics"][line["split"]][stratum]["crps"]
            assert line[f"difference_{stratum}"] == pytest.approx(own - other, abs=1e-12)


def test_the_table_says_how_it_was_made(made):
    folder, options = made
    text = (folder / "table" / "DEMO.md").read_text()
    assert "benchmarks/regions.py DEMO --source" in text
    assert options[-1] in text
    assert "1500 rows" in text
    assert "1 passes over the training rows in batches of 32" in text
    assert text.count("| `vbll` |") == 2


def test_every_default_model_has_the_default_targets():
    spec = importlib.util.spec_from_file_location("regions_benchmark", SCRIPT)
    regions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(regions)
    for model in regions.MODELS:
        for target in ("download", "upload"):
            request = MapRequest("PR", "tiles", "borders", target=target, model=model)
            assert request.model == model
