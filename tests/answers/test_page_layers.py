"""Answers as layers of the page: which areas, times and rasters they hold."""

import json

import numpy as np
import pytest
import xarray as xr

from geogp.answers import page_layers as module
from geogp.answers.pages import layers_of, read_answers
from geogp.maps.frame import Frame
from geogp.maps.page.packing import unpack
from geogp.maps.rasters import write_geotiffs

FRAME = Frame(14, 5000, 7300, 6, 4)
INSIDE = np.arange(24).reshape(4, 6) != 23
NUMBERS = np.where(INSIDE, np.repeat([[1, 1, 2, 2, 3, 0]], 4, axis=0), 0)
NAMES = ["Añasco </script>", "O'Brien", "Vega"]
WHAT = "download_2022Q1_2023Q4"


def write(folder, name, values, none, frame=FRAME):
    raster = (("y", "x"), values, {"long_name": name}, {"_FillValue": none})
    grid = xr.Dataset(
        {name: raster}, {"x": frame.x, "y": frame.y}, attrs={"zoom": frame.zoom, "target": "x"}
    )
    write_geotiffs(grid, folder)


@pytest.fixture(autouse=True)
def _map(tmp_path):
    write(tmp_path, "far", np.zeros((4, 6), np.uint8), 255)


def drawn(folder, told):
    """Return the layers and the notes of a page, from JSON files with these contents."""
    for path in folder.glob("*.json"):
        path.unlink()
    for stem, content in told.items():
        (folder / f"{stem}.json").write_text(json.dumps(content), "utf-8")
    return layers_of(folder, read_answers(folder))


def all_layers(folder, told):
    layers, notes = drawn(folder, told)
    assert notes == []
    return layers


AREA = {"tiles": 8, "measured_tiles": 3, "tests": 20, "far_share": 0.5}


def level(folder, at, middle, by="county", **more):
    stem = f"areas_{by}_download_level_{at}"
    told = {"for": "level", "by": by, "at": at, "unit": "Mbps", "weights": None} | more
    kind = "level_weighted" if told["weights"] else "level_mean"
    told["areas"] = [
        {"area": name}
        | AREA
        | {
            f"{column}{end}_mbps": value * times
            for column in (kind, "level_mean", "level_median")
            for end, times in (("", 1), ("_lower", 0.5), ("_upper", 2))
        }
        for name, value in zip(NAMES, middle, strict=True)
    ]
    write(folder, stem, NUMBERS.astype(np.int32), 0)
    return {stem: told}


def change(folder, by="county", start="2022Q1"):
    stem = f"change_{by}_download_{start}_2023Q4"
    rows = [
        {
            "area": name,
            "level_from_mbps": 1.0,
            "level_to_mbps": 2.0,
            "change_percent": 10.0 * k,
            "change_lower_percent": 10.0 * k - 25,
        }
        | {"change_upper_percent": 10.0 * k + 30, "probability_rose": 0.5 + 0.1 * k}
        | {"direction": "rose" if k == 2 else ""}
        | AREA
        for k, name in enumerate(NAMES)
    ]
    told = {"for": "level", "by": by, "from": start, "to": "2023Q4", "unit": "Mbps", "areas": rows}
    write(folder, stem, NUMBERS.astype(np.int32), 0)
    tiles = np.where(INSIDE, np.linspace(-40, 60, 24).reshape(4, 6), np.nan).astype(np.float32)
    end = f"download_{start}_2023Q4"
    write(folder, f"change_percent_{end}", tiles, np.nan)
    sd = np.where(INSIDE, 0.05, np.nan).astype(np.float32)
    write(folder, f"change_sd_{end}", sd, np.nan)
    return {stem: told}


def test_quarters_of_the_same_areas_are_one_layer(tmp_path):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0]) | level(
        tmp_path, "2022Q4", [3.0, 2.0, 1.0]
    )
    told |= level(tmp_path, "2023Q3", [9.0, 8.0, 7.0], by="tracts.gpkg:NAME")
    first, other = all_layers(tmp_path, told)
    held = first["source"]["areas"]
    assert held["names"] == NAMES
    assert held["times"] == ["2022Q4", "2023Q4"]
    np.testing.assert_allclose(np.array(held["bands"])[:, :, 1], [[3, 2, 1], [30, 20, 10]])
    np.testing.assert_allclose(np.array(held["bands"])[1, 0], [15, 30, 60])
    np.testing.assert_array_equal(
        unpack(held["numbers"]), np.where(NUMBERS == 0, np.nan, NUMBERS - 1.0)
    )
    assert other["title"] == "Level without noise by tracts.gpkg:NAME"
    assert first["group"] == "How fast"
    assert first["scale"]["low"] <= 1


def test_means_with_weights_are_a_layer_of_their_own(tmp_path):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0])
    told |= {
        "areas_x": dict(
            *level(tmp_path, "2023Q3", [4.0, 3.0, 2.0], weights="/a/people.tif").values()
        )
    }
    write(tmp_path, "areas_x", NUMBERS.astype(np.int32), 0)
    titles = [layer["title"] for layer in all_layers(tmp_path, told)]
    assert titles == [
        "Level without noise by county",
        "Level without noise by people.tif by county",
    ]


def test_a_change_has_areas_with_and_without_direction_and_the_tiles(tmp_path):
    told = change(tmp_path) | change(tmp_path, by="stratum") | change(tmp_path, start="2019Q1")
    tiles, *areas = all_layers(tmp_path, told)
    assert {one["group"] for one in (tiles, *areas)} == {"What changed"}
    assert [one["id"] for one in areas] == sorted(told, reverse=True)
    assert tiles["id"] == f"change_tiles_{WHAT}"  # of the latest quarters
    held = areas[1]["source"]["areas"]
    assert held["called"] == [False, False, True]
    assert held["rose"] == [0.5, 0.6, 0.7]
    assert held["times"] == ["2022Q1 to 2023Q4"]
    mean, sd = (unpack(tiles["source"]["tiles"][name]) for name in ("mean", "sd"))
    exact = np.log10(1 + np.linspace(-40, 60, 24).reshape(4, 6) / 100)
    np.testing.assert_allclose(mean[INSIDE], exact[INSIDE], atol=0.001 + 1e-6)
    np.testing.assert_allclose(sd[INSIDE], 0.05, atol=0.001 + 1e-6)
    assert np.isnan(mean[~INSIDE]).all()
    # The colours of both scales have no change in the middle.
    for layer in (tiles, *areas):
        low, high = (1 + layer["scale"][end] / 100 for end in ("low", "high"))
        assert low * high == pytest.approx(1, rel=0.01)


def test_means_of_other_numbers_of_tests_are_layers_of_their_own(tmp_path):
    told = {}
    for at, tests, devices in (("2023Q2", 5, 2), ("2023Q3", 5, 2), ("2023Q4", 1, 1)):
        (one,) = level(tmp_path, at, [3.0, 2.0, 1.0], by=at).values()
        rows = [
            {name.replace("level", "tile"): value for name, value in row.items()}
            for row in one["areas"]
        ]
        one |= {"for": "tile-mean", "by": "county", "areas": rows}
        told[f"areas_{at}_download_level_{at}"] = one | {
            "tests_per_tile": tests,
            "devices_per_tile": devices,
        }
    assert {
        one["title"]: one["source"]["areas"]["times"] for one in all_layers(tmp_path, told)
    } == {
        "Mean of measurements (5 tests from 2 devices) by county": ["2023Q2", "2023Q3"],
        "Mean of measurements (1 test from 1 device) by county": ["2023Q4"],
    }


def test_other_areas_of_the_same_names_are_a_layer_of_their_own(tmp_path):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0]) | level(
        tmp_path, "2023Q3", [3.0, 2.0, 1.0]
    )
    write(tmp_path, "areas_county_download_level_2023Q3", NUMBERS[:, ::-1].astype(np.int32), 0)
    assert [one["source"]["areas"]["times"] for one in all_layers(tmp_path, told)] == [
        ["2023Q3"],
        ["2023Q4"],
    ]


def test_the_page_names_layers_without_room(tmp_path, monkeypatch):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0])
    (only,) = all_layers(tmp_path, told)
    monkeypatch.setattr(module, "ALL_TEXT", len(json.dumps(only)) // 2)
    note = "Level without noise by county is not on this map, which would be too large."
    assert drawn(tmp_path, told) == ([], [note])
    assert drawn(tmp_path, {}) == ([], [])


@pytest.mark.parametrize(
    ("raster", "lost"),
    [
        ("areas_county_download_level_2023Q4", ["areas_county_download_level_2023Q4"]),
        (f"change_county_{WHAT}", [f"change_county_{WHAT}"]),
        (f"change_sd_{WHAT}", [f"change_county_{WHAT}"]),
    ],
)
@pytest.mark.parametrize("damage", ["missing", "text", "other pixels"])
def test_a_damaged_raster_costs_its_own_layer(tmp_path, raster, lost, damage):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0])
    told |= change(tmp_path, by="stratum") | change(tmp_path)
    whole, path = all_layers(tmp_path, told), tmp_path / f"{raster}.tif"
    if damage == "missing":
        path.unlink()
    elif damage == "text":
        path.write_text("no raster", "utf-8")
    else:
        write(tmp_path, raster, np.ones((4, 6), np.int32), 0, Frame(14, 5001, 7300, 6, 4))
    layers, notes = drawn(tmp_path, told)
    assert len(layers) == len(whole) - 1
    reason = "has other pixels than" if damage == "other pixels" else "or far.tif is missing or"
    assert [note.split()[0] for note in notes] == lost
    assert f"{raster}.tif {reason}" in notes[0]
    assert str(tmp_path) not in notes[0]


def changed(row=None, **more):
    """Return a change of the facts of an answer, and of its first row."""

    def apply(told):
        told = told | more
        if row:
            told["areas"] = [told["areas"][0] | row, *told["areas"][1:]]
        return told

    return apply


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda _: {}, "missing required field `for` in the JSON file"),
        (changed(by=5), "Expected `str`, got `int` - at `$.by`"),
        (changed(unit="parsecs"), "is not an answer that geogp wrote"),
        (changed(areas=[]), "at `$.areas`"),
        (changed({"level_mean_lower_mbps": "5"}), "is not an answer that geogp wrote"),
        (changed({"level_mean_mbps": -1}), "Expected `float` > 0.0"),
        (lambda told: told | {"areas": told["areas"][:2]}, "does not belong to its JSON file"),
        (
            lambda told: (
                told | {"areas": [row | {"level_mean_mbps": None} for row in told["areas"]]}
            ),
            "no area has a value",
        ),
    ],
)
def test_a_damaged_level_costs_its_own_layer(tmp_path, damage, reason):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0])
    (stem,) = told
    told |= change(tmp_path) | {"next_tiles": {}}
    told[stem] = damage(told[stem])
    layers, (note,) = drawn(tmp_path, told)
    assert len(layers) == 2
    assert note.startswith(f"{stem} is not on this map: ")
    assert reason in note


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda _: {}, "missing required field `by`"),
        (changed(to=2023), "at `$.to`"),
        (changed({"probability_rose": "high"}), "is not an answer that geogp wrote"),
        (changed({"probability_rose": 1.5}), "at `$[0].probability_rose`"),
        (changed({"change_percent": -101}), "at `$[0].change_percent`"),
    ],
)
def test_a_damaged_change_costs_its_own_layer(tmp_path, damage, reason):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0]) | change(tmp_path)
    told[f"change_county_{WHAT}"] = damage(told[f"change_county_{WHAT}"])
    layers, (note,) = drawn(tmp_path, told)
    assert len(layers) == 1
    assert reason in note
