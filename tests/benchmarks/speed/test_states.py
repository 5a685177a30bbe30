"""The benchmark of states: rows in proportion, figures of a small run, rates that made the data."""

import json

import geopandas
import numpy as np
import pytest
from benchmark_scripts import load, started
from shapely.geometry import box

from geogp.models.presets import find_preset

BOXES = {"RI": box(-71.6, 41.4, -71.4, 41.55), "DC": box(-77.02, 38.9, -77.0, 38.92)}
CASE = "RI:dbk-silu:quick:1:13"


def states_of(out, boundaries, *words):
    """Run the script, and return its results."""
    kept = ("--out", out / "kept", "--table", out)
    started("speed.states", "--boundaries", boundaries, *kept, *words)
    return json.loads((out / "results.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    table = {"STUSPS": list(BOXES), "NAME": list(BOXES), "STATEFP": ["44", "11"]}
    states = geopandas.GeoDataFrame(table, geometry=list(BOXES.values()), crs=4269)
    states.to_parquet(folder / "states.parquet")
    small = ("--scale", "0.01", "--quarters", "2023Q4", "--oracles", "")
    words = (*small, "--states", "RI,DC", "--workers", "2", "--maps", CASE)
    return folder, small, states_of(folder / "out", folder, *words)


def test_people_are_those_of_the_census():
    people = load("speed.states_people")
    assert len(people.PEOPLE) == 51
    assert sum(people.PEOPLE.values()) == 331_449_281
    assert (people.rows_of("GA"), people.rows_of("NM")) == (517_139, 133_512)
    known = people.PEOPLE["GA"] + people.PEOPLE["NM"]
    assert people.rows_of("RI") == round(1_097_379 * (517_139 + 133_512) / known)
    assert people.rows_that_fit(5000, 1000, 4) == 3200
    assert people.rows_that_fit(3000, 1000, 4) == 3000


def test_states_are_simulated_and_read(made):
    _, _, found = made
    held = found["states"]["2"]
    assert set(held) == {"RI", "DC"}
    assert held["RI"]["simulate"]["rows"] == held["RI"]["ingest"]["rows"] == round(0.01 * 55_654)
    few = held["DC"]["simulate"]
    assert few["rows"] == int(0.8 * few["tiles"]) < few["asked_rows"]
    for one in held.values():
        assert one["simulate"]["made_up_towns"]
        assert 0 < one["simulate"]["source_bytes"] < one["simulate"]["bytes"]
        assert 5e7 < one["simulate"]["peak_bytes"] < 2e9
        assert one["ingest"]["cpu"]["ingest"] > 0


def test_the_table_has_every_case_and_says_what_was_capped(made):
    folder, _, found = made
    table = (folder / "out" / "table.md").read_text()
    assert f"| DC | ≤ {found['states']['2']['DC']['simulate']['rows']:,} |" in table
    assert "| RI | 557 |" in table
    assert "| RI | dbk-silu | quick | 1 | 13 | 557 |" in table
    assert found["machine"]["date"] in table
    assert "the world" not in table  # one map tells no cost of a tile


def test_the_table_has_the_bill_of_maps_of_several_sizes(made):
    _, _, found = made
    one = found["maps"][CASE]
    larger = one | {"case": "larger", "tiles": 100 * one["tiles"]}
    maps = {CASE: one, "RI:dbk-silu:quick:1:16": larger}
    table = load("speed.states_table").page(found | {"maps": maps})
    assert "| the world, one quarter | dbk-silu | quick | 10.00 M |" in table
    assert "| 2 states, 20 quarters | dbk-silu | quick | 0.09 M |" in table
    assert f"| `{CASE}` |" in table


def test_what_is_there_is_kept(made):
    folder, small, found = made
    kept = {path: path.stat().st_mtime_ns for path in (folder / "out" / "kept").rglob("*.json")}
    assert len(kept) == 1 + 2 + 1
    words = (*small, "--states", "RI", "--workers", "2", "--maps", CASE)
    again = states_of(folder / "out", folder, *words)
    assert (again["states"], again["maps"]) == (found["states"], found["maps"])
    other = states_of(folder / "out", folder, "--scale", "0.5", "--states", "")
    assert (other["states"], other["maps"]) == ({}, {})
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_state_that_is_refused_is_told(made, tmp_path):
    folder, small, _ = made
    found = states_of(tmp_path, folder, *small, "--states", "VT")
    assert "unknown region 'VT'" in found["states"]["1"]["VT"]["simulate"]["refused"]
    assert "unknown region 'VT'" in (tmp_path / "table.md").read_text()


def maps_of(rates, sizes):
    """Return maps whose stages took just what some rates say."""
    found = []
    for rows, tiles, epochs in sizes:
        stages = {
            "read": rates["read"] * rows,
            "fit": rates["fit"] * 0.8 * rows * epochs,
            "predict": rates["row"] * rows + rates["tile"] * tiles,
            "write": 3 + rates["tile"] * tiles,
        }
        found.append(
            {
                "case": f"{rows}",
                "model": "field",
                "preset": "quick",
                "rows": rows,
                "tiles": tiles,
                "epochs": epochs,
                "fitted_rows": 0.8 * rows,
                "stages": stages,
                "cpu": {"map": 10.0},
                "seconds": {"map": 20.0},  # half of the processor
                "bytes": 1e6 + 20 * tiles,
                "peak_bytes": 4e8 + 1e3 * rows + 500 * tiles,
            }
        )
    return found


def test_rates_that_made_the_maps_come_back():
    costs_module = load("speed.states_costs")
    rates = {"read": 1e-5, "fit": 2e-4, "row": 3e-6, "tile": 1e-4}
    sizes = [(50_000, 3_000, 2), (130_000, 80_000, 1), (500_000, 30_000, 3), (10_000, 9_000, 1)]
    maps = maps_of(rates, sizes)
    costs = costs_module.costs_of(maps)
    cost = costs["field", "quick"]
    assert cost.fit == pytest.approx(1e-4)  # a core's half
    assert cost.fitted == pytest.approx(0.8)
    assert cost.predict == pytest.approx([0, 1.5e-6, 5e-5])
    assert cost.write[0] == pytest.approx(1.5)
    assert cost.peak == pytest.approx([4e8, 1e3, 500])
    for one in costs_module.residuals(maps, costs):
        assert one["predicted"] == pytest.approx(one["measured"])
    maps[0]["stages"]["fit"] *= 1.5
    one = costs_module.residuals(maps, costs)[0]
    assert one["predicted"]["fit"] == pytest.approx(one["measured"]["fit"] / 1.5)


def test_maps_of_one_size_tell_no_cost_of_a_tile():
    costs_module = load("speed.states_costs")
    rates = {"read": 1e-5, "fit": 2e-4, "row": 3e-6, "tile": 1e-4}
    maps = maps_of(rates, [(50_000, 3_000, 2), (90_000, 20_000, 2)])
    costs = costs_module.costs_of(maps)
    assert costs == {}
    assert costs_module.residuals(maps, costs) == []
    assert costs_module.bills(costs, {"RI": {"tiles": 1, "map_tiles": 1, "km2": 1.0}}, 30.0) == []


def test_the_bill_is_the_sum_over_regions():
    costs_module, people = load("speed.states_costs"), load("speed.states_people")
    rates = {"read": 1e-5, "fit": 2e-4, "row": 3e-6, "tile": 1e-4}
    sizes = [(50_000, 3_000, 2), (130_000, 80_000, 1), (500_000, 30_000, 3)]
    costs = costs_module.costs_of(maps_of(rates, sizes))
    regions = {
        "GA": {"tiles": 560_000, "map_tiles": 560_000, "km2": 150_000.0},
        "NM": {"tiles": 1_240_000, "map_tiles": 310_000, "km2": 314_000.0},
    }
    whole, fine, quarter, world = costs_module.bills(costs, regions, 30.0)
    epochs = find_preset("quick", "field").epochs
    sizes = [np.array([1, people.rows_of(code), regions[code]["map_tiles"]]) for code in regions]
    cost = costs["field", "quick"]
    parts = [cost.seconds(one, 0.8 * one[1] * epochs) for one in sizes]
    for stage, hours in whole["hours"].items():
        assert hours == pytest.approx(sum(part[stage] for part in parts) / 3600)
    assert whole["rows"] == 650_651
    assert quarter["rows"] == pytest.approx(650_651 / 20)
    assert (whole["tiles"], fine["tiles"]) == (870_000, 1_800_000)
    assert whole["source_bytes"] == 30 * 650_651
    assert whole["peak_bytes"] == pytest.approx(max(cost.peak @ one for one in sizes))
    assert world["rows"] == pytest.approx(10_000_000)
    assert world["tiles"] == pytest.approx(870_000 * 134_700_000 / 464_000)
    assert world["hours"]["fit"] == pytest.approx(1e-4 * 0.8 * 1e7 * epochs / 3600)
