"""Requests and presets."""

import re

import pytest

from geogp.answers.requests import AreasRequest, ExceedanceRequest, NextRequest
from geogp.choices import settings_of
from geogp.commands.batch.batch_plan import Execution
from geogp.errors import RequestError
from geogp.geodata.tiles.targets import find_target
from geogp.models.presets import PRESETS
from geogp.records.map_settings import RULES, MapSettings

SETTINGS = settings_of(MapSettings)


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
        (None, "standard", ("random", "tiles", "blocks")),
        ("blocks", "quick", ("blocks",)),
        ("both", "quick", ("random", "blocks")),
        ("latest, random,latest", "quick", ("random", "latest")),
        ("both,county", "quick", ("random", "blocks", "county")),
        ("all", "quick", ("random", "tiles", "blocks", "buffer", "county", "latest")),
    ],
)
def test_splits_follow_the_preset_unless_asked_for(split, preset, expected):
    request = MapSettings("PR", source="tiles", boundaries="borders", split=split, preset=preset)
    assert request.splits == expected


def test_models_are_checked_before_anything_is_read():
    with pytest.raises(RequestError, match="unknown model 'field2'"):
        MapSettings("PR", source="nowhere", boundaries="nowhere", model="field2")


@pytest.mark.parametrize("budget", [0.0, -1.0, float("inf"), float("nan")])
def test_a_budget_is_some_seconds(budget):
    with pytest.raises(RequestError, match="expected a budget above 0 seconds"):
        MapSettings("PR", source="tiles", boundaries="borders", model="nngp", budget=budget)


def test_a_budget_is_for_models_with_anchors():
    with pytest.raises(RequestError, match=r"--budget chooses the rank.*nystrom-mixed.*of vbll"):
        MapSettings("PR", source="tiles", boundaries="borders", model="vbll", budget=60.0)


@pytest.mark.parametrize("far_km", [0.0, -1.0, float("inf"), float("nan")])
def test_far_is_some_kilometres(far_km):
    with pytest.raises(RequestError, match="expected a distance above 0 km"):
        MapSettings("PR", source="tiles", boundaries="borders", far_km=far_km)


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
        MapSettings("PR", source="tiles", boundaries="borders", **changes)


def test_a_repair_keeps_calibration_rows():
    assert not MapSettings("PR", source="tiles", boundaries="borders").calibrated
    assert MapSettings("PR", source="tiles", boundaries="borders", conformal="local").calibrated


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
            MapSettings("PR", source="tiles", boundaries="borders", **{name: value}, **others)
    MapSettings("PR", source="tiles", boundaries="borders", seed=2**63 - 1)


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


EXAMPLES = [
    ({"target": "tests", "model": "field"}, r"needs a model for numbers of tests, found --model"),
    (
        {"target": "signal"},
        r"^Ookla's tiles have no signal: .* with --points, or map download, .*, tests, tier\.$",
    ),
    (
        {"target": "rsrp", "points": "a.csv", "covariates": ("fixed",)},
        r"--covariates fixed is Ookla's tiles of this service, which have no --target rsrp",
    ),
    *(
        (
            {"target": "download,upload", **changes},
            r"--target download,upload maps Ookla's tiles by the model field, without --points",
        )
        for changes in ({"points": "a.csv"}, {"model": "vbll"}, {"conformal": "local"})
    ),
    (
        {"target": "tier", "model": "class-dbk", "tests": 3},
        r"predicts the tier of a measured tile; --for, --tests",
    ),
    (
        {"by_provider": True, "points": "a.csv", "model": "vbll"},
        r"--by-provider is for the model field, .*found --target download and --model vbll\.",
    ),
    ({"covariates": ("fixed",), "model": "vbll"}, r"found --model vbll\. Leave --covariates out"),
    ({"covariates": ("mobile",)}, r"is the service of the map itself\. Choose --covariates fixed"),
    ({"covariates": ("fixed", "fixed")}, r"expected different --covariates, found the same one"),
    ({"budget": 60.0, "model": "vbll"}, r"models with anchors \(.*nngp.*\)\. The time of vbll"),
    ({"target": "tests", "conformal": "local"}, r"not intervals of numbers of tests\. Leave"),
    ({"buffer_km": 8.0}, r"--buffer-km 8 is for the split buffer, which was not chosen\. Add"),
    ({"tests": 3, "question": "level"}, r"--tests 3 sets .*; --for level does not use"),
    ({"devices": 2, "question": "single-test"}, r"--devices 2 sets .*; --for single-test does not"),
    ({"provider": "North"}, r"--provider describes a file of your own tests\. Give the file with"),
    ({"by_provider": True}, r"--by-provider describes"),
    ({"technology": "5G"}, r"--technology describes"),
    ({"columns": ("time=when",)}, r"--columns describes"),
    ({"delimiter": ";"}, r"--delimiter describes"),
    ({"decimal": ","}, r"--decimal describes"),
    ({"encoding": "utf-8"}, r"--encoding describes"),
    ({"sheet": "a"}, r"--sheet describes"),
    ({"most_left_out": 6.0}, r"--most-left-out describes"),
    ({"units": "kbps"}, r"--units describes"),
    ({"thousands": ("a=.",)}, r"--thousands describes"),
    ({"dates": "dmy"}, r"--dates describes"),
    ({"timezone": "UTC"}, r"--timezone describes"),
    ({"at_quarter": "2023Q4"}, r"--at-quarter describes"),
    ({"at_least": 5.0}, r"--at-least describes"),
    ({"at_least": 5.0, "points": "a.csv"}, r"--at-least 5 says .* succeeded, found --target down"),
    (
        {"target": "success", "at_least": 5.0, "points": "a.csv", "columns": ("success=a",)},
        r"--at-least and --columns success= both say which tests succeeded\. Leave one out",
    ),
    (
        {"target": "success", "points": "a.csv", "model": "vbll"},
        r"--target success maps the probability that a test succeeds, with the model field",
    ),
    (
        {"points": "a.csv", "columns": ("error_sd=a",), "epochs": 3},
        r"--columns error_sd= needs the exact process of the model field",
    ),
]
"""Settings that break one rule each, and the message about them."""


@pytest.mark.parametrize(("changes", "message"), EXAMPLES)
def test_settings_that_exclude_each_other_are_refused(changes, message):
    with pytest.raises(RequestError, match=message):
        MapSettings("PR", **changes)


def unchecked(**changes):
    """Return settings that break rules."""
    target = changes.get("target", "download")
    in_tiles = find_target(target).in_tiles
    request = MapSettings("PR", target=target, points=None if in_tiles else "a.csv")
    object.__setattr__(request, "points", None)
    for name, value in changes.items():
        object.__setattr__(request, name, value)
    return request


def test_tiers_and_thresholds_are_those_of_the_service():
    classes = {"target": "tier", "model": "class-rbf", "boundaries": "borders"}
    fixed = MapSettings("PR", service="fixed", **classes)
    assert (fixed.target, fixed.kind, fixed.model) == ("fixed-tier", "class", "class-rbf")
    assert MapSettings("PR", **classes).target == "tier"
    for model in ("auto", "field"):
        two = MapSettings("PR", service="fixed", **classes | {"model": model})
        assert (two.target, two.kind, two.model) == ("download,upload", "average", "field")
        assert [tier.name for tier in two.tiers] == ["25/3", "100/20"]
    speeds = MapSettings("PR", service="fixed", boundaries="borders").thresholds
    assert [one.value for one in speeds] == [25, 100]
    with pytest.raises(RequestError, match="fixed-tier has the tiers of the fixed service"):
        MapSettings("PR", target="fixed-tier", boundaries="borders")


def test_every_rule_can_be_broken_and_says_which_options_it_is_about():
    first = []
    for changes, message in EXAMPLES:
        request = unchecked(**changes)
        rule = next(rule for rule in RULES if rule.broken(request))
        first.append(rule)
        text = rule.message(request)
        assert re.search(message, text)
        options = {name: one.option_name(name) for name, one in SETTINGS.items()}
        assert [options[name] for name in rule.settings if options[name] not in text] == []
        assert set(re.findall(r"--[a-z-]+", text)) <= {*options.values()}
    assert {*map(id, first)} == {*map(id, RULES)}
    assert not any(rule.broken(MapSettings("PR")) for rule in RULES)
