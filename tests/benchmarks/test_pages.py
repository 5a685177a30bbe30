"""Each committed page is that of its committed figures."""

import json

import pytest
from benchmark_scripts import SCRIPTS, load


def _whole(held):
    return (held,)


def _last_layers(held):
    script = load("networks.last_layers")
    plans = {name: script.Plan(**plan) for name, plan in held["plans"].items()}
    return held["seeds"], plans


def _by_table_and_model(held):
    return ({(one["table"], one["model"]): one for one in held},)


PAGES = {
    "areas/simulation": ("answers.areas", _whole),
    "change/table": ("answers.change", _whole),
    "change/blocks": ("answers.change_blocks", lambda held: (held["targets"], held["about"])),
    "level-averages/MO": ("answers.level_averages", _whole),
    "level-averages/PR": ("answers.level_averages", _whole),
    "next/demo": ("answers.next_tiles", _whole),
    "ablation/table": ("accuracy.ablation", _whole),
    "amounts/table": ("accuracy.amounts", _whole),
    "beyond/table": ("accuracy.beyond", _whole),
    "drives/table": ("accuracy.drives", _whole),
    "few-rows/table": ("accuracy.few_rows", _whole),
    "several/table": ("accuracy.several", _whole),
    "small/table": ("accuracy.small", _whole),
    "small-regions/table": ("accuracy.small_regions", _whole),
    "spatial/table": ("accuracy.spatial", _whole),
    "precision/table": ("speed.precision", _whole),
    "rank/PR-nystrom-mixed": (
        "accuracy.rank",
        lambda held: ("Puerto Rico", "nystrom-mixed", held),
    ),
    "exact/table": ("kernels.exact_tables", _whole),
    "one-dimension/table": ("kernels.one_dimension", _whole),
    "one-dimension/figures": ("kernels.one_dimension_figures", _whole),
    "scenarios/table": ("kernels.scenarios", _whole),
    "student/table": ("kernels.student", _whole),
    "uci/table": ("kernels.uci_table", _by_table_and_model),
    "uci-paper/table": ("kernels.uci_table", _by_table_and_model),
    "uci-paper-long/table": ("kernels.uci_table", _by_table_and_model),
    "last-layers/table": ("networks.last_layers", _last_layers),
    "last-layers-retrained/table": ("networks.last_layers", _last_layers),
    "last-layer-peers/table": ("networks.last_layer_peers", lambda held: (held["seeds"],)),
    "last-layer-figures/table": ("networks.last_layer_figures", _whole),
    "out-of-distribution/table": ("networks.out_of_distribution", lambda held: (held["cases"],)),
    "scale-figures/table": ("networks.scale_figures", lambda held: (held["groups"],)),
    "scale-regression/table": (
        "networks.scale_regression",
        lambda held: (held["fits"], 50, held["copies"]),
    ),
    "digits/table": ("images.digits_table", _whole),
    "wheel/table": ("networks.wheel", _whole),
    "bytes-read/table": ("speed.bytes_read", lambda held: (held, "NM")),
    "page/table": ("pages.page_speed", _whole),
    "paper-scale/table": ("speed.paper_scale", _whole),
    "paper-scale-whole/table": ("speed.paper_scale", _whole),
    "speed/cpu": ("speed.speed", _whole),
    "time-to-score/table": ("speed.time_to_score", _whole),
    "fuzz/table": ("fuzz.fuzz", _whole),
}
"""The script of each page, and the arguments of its `page` in the stored figures."""


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_that_of_its_figures(name):
    script, arguments = PAGES[name]
    if script == "pages.page_speed":
        pytest.importorskip("playwright")
    path = SCRIPTS / "results" / name
    stored = path.with_name("results.json") if path.name == "table" else path.with_suffix(".json")
    page = load(script).page(*arguments(json.loads(stored.read_text("utf-8"))))
    assert page == path.with_suffix(".md").read_text("utf-8")
