"""The embedded region: calibrated intervals in town and in the country."""

import pytest
from run_worlds import run_json

from geogp.commands.demo import demo_folder, demo_request
from geogp.errors import DataError
from geogp.runs.pipeline.make_map import make_map

pytestmark = pytest.mark.trial

MEGABYTE = 2**20


def test_the_demo_is_small():
    files = [path for path in demo_folder().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3 * MEGABYTE


def test_the_demos_intervals_hold_in_every_stratum(tmp_path):
    found = make_map(demo_request(out=tmp_path / "demo"))
    scores, baseline = (
        run_json(found)["metrics"]["random"],
        run_json(found)["baseline"]["random"],
    )
    for stratum in ("all", "urban", "rural"):
        assert abs(scores[stratum]["coverage_95"] - 0.95) <= 0.02
        assert scores[stratum]["nll"] < baseline[stratum]["nll"] - 0.03
    assert scores["rural"]["width_95"] > 1.1 * scores["urban"]["width_95"]
    assert (found.path / "map.html").stat().st_size < MEGABYTE
    assert run_json(found)["attribution"].startswith("Simulated")


def test_a_missing_demo_is_an_error(tmp_path, monkeypatch):
    elsewhere = tmp_path / "geogp" / "commands" / "demo.py"
    monkeypatch.setattr("geogp.commands.demo.__file__", str(elsewhere))
    with pytest.raises(DataError, match="reinstall"):
        demo_folder()
