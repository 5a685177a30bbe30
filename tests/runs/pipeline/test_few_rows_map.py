"""A map from few rows: its intervals hold what they say, and it says where they come from."""

import json

import numpy as np
import pytest
from benchmark_scripts import load

from geogp.geodata.simulation.simulated_tiles import simple_region
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.run_map import run_map

few_rows = load("accuracy.few_rows")

pytestmark = pytest.mark.trial


def test_intervals_from_100_rows_hold_95_per_cent_of_fresh_measurements():
    # Learned from ten validation rows, they held 88 % in these regions.
    found = [few_rows.scored(100, "anywhere", seed, "field")["coverage_95"] for seed in range(3)]
    assert 0.925 <= np.mean(found) <= 0.985


@pytest.mark.parametrize(("rows", "few"), [(60, True), (1200, False)])
def test_a_run_says_that_its_width_comes_from_folds(rows, few, tmp_path):
    known, _ = few_rows.draw(rows, "anywhere", 1)
    write_simulation(known, simple_region(), tmp_path / "source")
    request = MapSettings(
        region="DEMO",
        source=str(tmp_path / "source"),
        boundaries=str(tmp_path / "source" / "boundaries"),
        preset="quick",
        epochs=1,
        zoom=10,
        out=tmp_path / "run",
    )
    run_map(request)
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert any("is estimated by cross-validation" in text for text in run["warnings"]) is few
