"""The cost of the rank, on a small simulated source."""

import json
import os
import subprocess
import sys
from pathlib import Path

from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quarters import parse_quarters

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rank.py"


def test_every_rank_is_fitted_and_scored(tmp_path):
    region = simple_region()
    rows = simulate(region, rows=800, quarters=parse_quarters("2023Q3..2023Q4").all, seed=1)
    write_simulation(rows, region, tmp_path / "source")
    done = subprocess.run(
        [
            *(sys.executable, str(SCRIPT), "DEMO", "--source", str(tmp_path / "source")),
            *("--boundaries", str(tmp_path / "source" / "boundaries"), "--ranks", "5", "40"),
            *("--epochs", "1", "--out", str(tmp_path / "out"), "--table", str(tmp_path / "table")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "table" / "DEMO-nystrom-mixed.json").read_text())
    assert [line["r"] for line in lines] == [5, 40]
    assert lines[0]["nll"] != lines[1]["nll"]
    assert lines[0]["baseline"] == lines[1]["baseline"]
    assert 0.8 < lines[1]["coverage_95"] <= 1
    text = (tmp_path / "table" / "DEMO-nystrom-mixed.md").read_text()
    assert f"| 40 | {lines[1]['nll']:.4f} |" in text
