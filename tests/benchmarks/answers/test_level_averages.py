"""The level against averages: groups of rows, planted differences, and one small run."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import told

import geogp

BENCH = "answers.level_averages"


def made(above, n=20_000, blocks=200, seed=0):
    """Return a fold whose level is `above` the averages, more so in rural rows.

    The mean for the row's own tests is right, and each block has an error of its own.
    """
    random = np.random.default_rng(seed)
    block, rural = random.integers(0, blocks, n), random.random(n) < 0.5
    own, sd = random.normal(1.5, 0.4, n), np.hypot(0.1, 0.2)
    y = own + 0.1 * random.standard_normal(blocks)[block] + 0.2 * random.standard_normal(n)
    rows = {"y": y, "tests": random.choice([1, 3, 7, 20, 90], n), "block": block, "own": own}
    rows |= {"level": own + above * (1 + rural), "low": own - 1.96 * sd, "high": own + 1.96 * sd}
    rows["stratum"] = np.where(rural, "rural", "urban")
    stated = [("all", "50+", 100, 0.02), ("urban", "50+", 50, 0.03)]
    return {"rows": {name: values.tolist() for name, values in rows.items()}, "stated": stated}


def test_rows_are_in_the_groups_of_their_tests_and_stratum(bench):
    rows = pd.DataFrame(
        {"tests": [1, 2, 4, 5, 9, 10, 49, 50, 600], "stratum": ["urban"] * 8 + ["rural"]}
    )
    found = {key: rows["tests"][mask].tolist() for key, mask in bench.groups_of(rows).items()}
    bins = [found["all", name] for name in bench.BINS]
    assert bins == [[1], [2, 4], [5, 9], [10, 49], [50, 600]]
    assert found["all", "10+"] == [10, 49, 50, 600]
    assert found["urban", "50+"] == [50]
    assert [key for key in found if key[0] == "rural"] == [("rural", "50+"), ("rural", "10+")]


def test_planted_differences_are_found(bench):
    trials = [made(0.1), made(0.1, seed=1)]
    trials[1]["stated"] = [("all", "50+", 300, 0.06)]
    found = {(one["stratum"], one["tests"]): one for one in bench.summary(trials)}
    assert len(found) == 3 * 6
    for (stratum, _), one in found.items():
        value, low, high = one["level"]
        true = {"all": -0.15, "urban": -0.1, "rural": -0.2}[stratum]
        assert abs(value - true) < 0.02
        assert low < value < high
        # The blocks alone give a standard error of about 0.1 / sqrt(200) = 0.007.
        assert 0.01 < high - low < 0.06
        assert one["own"][0] == pytest.approx(value - true, abs=0.01)
        assert one["coverage"] == pytest.approx(0.95, abs=0.015)
    well = found["all", "50+"]
    assert well["stated_sd"] == pytest.approx((0.02 * 100 + 0.06 * 300) / 400)
    value, low, high = well["level"]
    assert well["score"] == pytest.approx(
        value / np.hypot((high - low) / (2 * 1.97), well["stated_sd"]), rel=0.01
    )
    assert "score" in found["urban", "50+"]
    assert "score" not in found["rural", "50+"]


def test_the_figure_has_a_line_for_each_stratum_and_prediction(bench):
    groups = bench.summary([made(0.1)])
    about = {"region": "PR", "target": "download", "quarters": "a..b", "folds": 1}
    drawn = bench.figure(about | {"splits": {"random": groups, "blocks": groups}})
    assert len(drawn.axes) == 4
    for axes in drawn.axes:
        lines = [box.lines[0] for box in axes.containers]
        assert [len(line.get_ydata()) for line in lines] == [5, 5]
    of_level, of_own = (axes.containers[0].lines[0].get_ydata() for axes in drawn.axes[:2])
    assert (of_level < of_own).all()


def test_the_figure_of_well_measured_tiles_has_the_planted_ratios(bench):
    groups = bench.summary([made(0.1)])
    (axes,) = bench.well_figure({"splits": {"random": groups, "blocks": groups}}).axes
    assert len(axes.containers) == 2
    names = [label.get_text() for label in axes.get_yticklabels()]
    ratios, places = axes.containers[0].lines[0].get_data()
    for place, ratio in zip(places, ratios, strict=True):
        rural = names[round(place)].startswith("rural")
        assert ratio == pytest.approx(10 ** (-0.2 if rural else -0.1), rel=0.05)


def test_a_small_source_is_fitted_once(bench, small, tmp_path, monkeypatch):
    given = {"source": str(small.folder), "boundaries": str(small.folder / "boundaries")}
    places = [part for name, value in given.items() for part in (f"--{name}", value)]
    options = ["DEMO", *places, "--folds", 1, "--out", tmp_path / "out", "--table", tmp_path]
    text = told(BENCH, *options)
    found = json.loads((tmp_path / "DEMO.json").read_text())
    region = geogp.read_region("DEMO", boundaries=given["boundaries"])
    rows = geogp.read_tiles(region, source=given["source"])
    assert found["quarters"] == f"{rows['quarter'].min()}..{rows['quarter'].max()}"
    for how, groups in found["splits"].items():
        test = geogp.split(rows, how=how)[1]
        counted = {one["tests"]: one["rows"] for one in groups if one["stratum"] == "all"}
        assert sum(counted[name] for name in bench.BINS if name in counted) == len(test)
        single = next(one for one in groups if (one["stratum"], one["tests"]) == ("all", "1"))
        assert abs(single["own"][0]) < 0.25
        assert single["level"][0] < single["own"][0]  # a single test is expected below the level
        assert 0.88 < single["coverage"] <= 1
    assert (tmp_path / "DEMO.webp").stat().st_size > 5_000
    assert (tmp_path / "DEMO-well.png").stat().st_size > 5_000
    assert (tmp_path / "DEMO.md").read_text() == bench.page(found)
    monkeypatch.setattr(bench, "trial", lambda *_: pytest.fail("a fold is made again"))
    assert told(BENCH, *options) == text
    last = str(rows["quarter"].max())
    with pytest.raises(pytest.fail.Exception, match="a fold is made again"):
        told(BENCH, *options, "--quarters", last)
