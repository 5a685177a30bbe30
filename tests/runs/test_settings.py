"""Requests and presets."""

import pytest

from geogp.answers.requests import AreasRequest, ExceedanceRequest, NextRequest
from geogp.commands.batch.batch_plan import Execution
from geogp.errors import RequestError
from geogp.models.presets import PRESETS
from geogp.runs.settings import MapRequest


def test_few_rows_take_smaller_batches():
    quick = PRESETS["quick"]
    assert quick.batch_for(107_000) == 1024
    assert quick.batch_for(10_000) == 64
    assert quick.batch_for(50) == 32
    for n in (4_000, 13_600, 28_800):
        assert quick.least_steps <= n / quick.batch_for(n) < 2 * quick.least_steps
    assert PRESETS["paper"].batch_for(5_000) == 1024
    assert quick.learning_rate_for(1024) == quick.learning_rate
    assert quick.learning_rate_for(256) == quick.learning_rate / 2


def test_the_papers_preset_is_the_papers():
    paper = PRESETS["paper"]
    assert (paper.h, paper.r, paper.batch, paper.epochs) == (256, 1024, 1024, 400)
    assert (paper.learning_rate, paper.decay, paper.placement) == (1e-3, "constant", "uniform")
    assert (paper.weights.alpha, paper.weights.beta) == (0.1, 0.01)


@pytest.mark.parametrize(
    ("split", "preset", "expected"),
    [
        (None, "quick", ("random",)),
        (None, "standard", ("random", "blocks")),
        ("blocks", "quick", ("blocks",)),
        ("both", "quick", ("random", "blocks")),
        ("latest, random,latest", "quick", ("random", "latest")),
        ("both,county", "quick", ("random", "blocks", "county")),
        ("all", "quick", ("random", "blocks", "buffer", "county", "latest")),
    ],
)
def test_splits_follow_the_preset_unless_asked_for(split, preset, expected):
    request = MapRequest("PR", "tiles", "borders", split=split, preset=preset)
    assert request.splits == expected


def test_models_are_checked_before_anything_is_read():
    with pytest.raises(RequestError, match="unknown model 'field2'"):
        MapRequest("PR", "nowhere", "nowhere", model="field2")


@pytest.mark.parametrize("budget", [0.0, -1.0, float("inf"), float("nan")])
def test_a_budget_is_some_seconds(budget):
    with pytest.raises(RequestError, match="expected a budget above 0 seconds"):
        MapRequest("PR", "tiles", "borders", model="nngp", budget=budget)


def test_a_budget_is_for_models_with_anchors():
    with pytest.raises(RequestError, match=r"--budget chooses the rank.*nystrom-mixed.*of vbll"):
        MapRequest("PR", "tiles", "borders", model="vbll", budget=60.0)


@pytest.mark.parametrize("far_km", [0.0, -1.0, float("inf"), float("nan")])
def test_far_is_some_kilometres(far_km):
    with pytest.raises(RequestError, match="expected a distance above 0 km"):
        MapRequest("PR", "tiles", "borders", far_km=far_km)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "random,bufer"}, r"unknown split 'bufer'.*Did you mean buffer"),
        ({"split": ""}, "unknown split ''"),
        ({"folds": 0}, "expected folds from 1 to 5, found 0"),
        ({"folds": 6}, "expected folds from 1 to 5, found 6"),
        (
            {"split": "buffer", "buffer_km": 0.0},
            "expected a buffer above 0 km, at most 20,000, found 0",
        ),
        (
            {"split": "buffer", "buffer_km": float("nan")},
            "expected a buffer above 0 km, at most 20,000, found nan",
        ),
        ({"split": "both", "buffer_km": 8.0}, "--buffer-km 8 is for the split buffer"),
        ({"conformal": "margnal"}, "unknown repair 'margnal'.*Did you mean marginal"),
    ],
)
def test_ways_of_checking_are_checked(changes, message):
    with pytest.raises(RequestError, match=message):
        MapRequest("PR", "tiles", "borders", **changes)


def test_a_repair_keeps_calibration_rows():
    assert not MapRequest("PR", "tiles", "borders").calibrated
    assert MapRequest("PR", "tiles", "borders", conformal="local").calibrated


ODD = (float("nan"), float("inf"), -1, 0, 10**30)
RANGES = {
    "seed": (-1, 2**63, 10**30, 1.5, float("nan")),
    "tests": (*ODD, 2.5),
    "epochs": ODD,
    "zoom": ODD,
    "folds": ODD,
    "far_km": ODD,
    "buffer_km": ODD,
    "budget": ODD,
    "threshold": ODD,
}


@pytest.mark.parametrize("name", RANGES)
def test_numbers_out_of_range_are_refused_before_work(name):
    others = {"buffer_km": {"split": "buffer"}, "budget": {"model": "nystrom-mixed"}}.get(name, {})
    for wrong in RANGES[name]:
        value = (wrong,) if name == "threshold" else wrong
        with pytest.raises(RequestError, match=r"expected .*, found"):
            MapRequest("PR", "tiles", "borders", **{name: value}, **others)
    MapRequest("PR", "tiles", "borders", seed=2**63 - 1)


@pytest.mark.parametrize(
    ("kind", "field", "wrong"),
    [
        (AreasRequest, "draws", 10**30),
        (AreasRequest, "tests", 10**30),
        (AreasRequest, "seed", 2**63),
        (ExceedanceRequest, "draws", 10**30),
        (ExceedanceRequest, "seed", 2**63),
        (NextRequest, "tiles", 10**30),
        (NextRequest, "candidates", 10**30),
        (NextRequest, "tests", 10**30),
        (NextRequest, "seed", 2**63),
    ],
)
def test_numbers_out_of_range_are_refused_by_what_reads_runs(tmp_path, kind, field, wrong):
    with pytest.raises(RequestError, match=rf"expected .*, found {wrong}\."):
        kind(tmp_path, **{field: wrong})


def test_numbers_out_of_range_are_refused_by_a_batch():
    for field, wrong in (("workers", 10**30), ("retries", 10**30), ("memory_gb", 1e30)):
        with pytest.raises(RequestError, match=r"expected .*, found 1"):
            Execution(**{field: wrong})
