"""The simulation of changes, small: what was planted is in the truth, and shares are counted."""

import numpy as np
import pytest

BENCH = "answers.change"

REPLICATES = 1000


@pytest.mark.parametrize("name", ["none", "some", "all"])
def test_the_truth_has_what_was_planted(bench, name):
    world = bench.make_world(name, 3)
    weights = world.areas.means(len(world.tiles))
    change = weights.T @ (world.level[:, bench.AFTER] - world.level[:, bench.BEFORE])
    same = np.abs(change) < 1e-9
    assert same.sum() == {"none": 16, "some": 11, "all": 0}[name]
    if name == "some":
        assert set(np.abs(change[~same]).round(9)) <= set(bench.SIZES)
    assert len(world.rows) == bench.ROWS
    assert abs(world.rows["y"].mean() - world.level.mean()) < 0.2


def test_intervals_and_directions_hold_what_they_say_under_the_model(bench):
    found = bench.known_parameters(REPLICATES)
    assert abs(found["coverage"] - 0.95) < 0.015
    assert found["wrong"] < 0.05
    assert found["sd"] < found["sd_independent"]


def test_directions_are_counted(bench):
    one = {
        "true": [0.0, 0.1, -0.2, 0.4],
        "found": [0.1, 0.1, 0.2, 0.4],
        "sd": [0.1] * 4,
        "sd_independent": [0.3] * 4,
        "rose": [0.99, 0.9, 0.99, 0.99],
        "z": [4.0, 0.5, 4.0, 4.0],
    }
    found = bench.summary([one])
    assert found["coverage"] == 0.75
    assert found["coverage_independent"] == 1.0
    assert found["called"] == 0.75
    assert found["wrong"] == pytest.approx(2 / 3)
    assert found["power"] == {
        "0.075 to 0.15": [1, 0.0],
        "0.15 to 0.3": [1, 0.0],
        "0.3 to inf": [1, 1.0],
    }
    text = bench.page({"natural": found})
    assert text.count("\n| natural |") == 2
    laws = {"found_process": [0.3] * 4, "sd_process": [0.2] * 4, "sd_joint": [0.04] * 4}
    found = bench.summary([one | laws])
    assert [found[f"{law}coverage"] for law in bench.LAWS] == [0.75, 0.5, 0.75]
    assert found["process_rmse"] == pytest.approx(np.sqrt(np.mean(np.square([3, 2, 5, 1]))) / 10)
    assert bench.page({"natural": found}).count("\n| natural |") == 3
