"""The embedded region: calibrated intervals in town and in the country."""

import json

import pytest

from geogp.commands.demo import demo_folder
from geogp.errors import DataError

pytestmark = pytest.mark.trial

MEGABYTE = 2**20


def test_the_demo_is_small():
    files = [path for path in demo_folder().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3 * MEGABYTE


def test_the_demos_intervals_hold_in_every_stratum(demo_run):
    run = json.loads((demo_run / "run.json").read_text())
    scores, baseline = run["metrics"]["random"], run["baseline"]["random"]
    for stratum in ("all", "urban", "rural"):
        assert abs(scores[stratum]["coverage_95"] - 0.95) <= 0.02
        assert scores[stratum]["nll"] < baseline[stratum]["nll"] - 0.03
    assert scores["rural"]["width_95"] > 1.1 * scores["urban"]["width_95"]
    assert (demo_run / "map.html").stat().st_size < 1.1 * MEGABYTE  # 3 % are the level of tiles
    assert run["attribution"].startswith("Simulated")
    assert "GeoNames" not in (demo_run / "map.html").read_text("utf-8")


def test_a_missing_demo_is_an_error(tmp_path, monkeypatch):
    elsewhere = tmp_path / "geogp" / "commands" / "demo.py"
    monkeypatch.setattr("geogp.commands.demo.__file__", str(elsewhere))
    with pytest.raises(DataError, match="Install geogp again"):
        demo_folder()
