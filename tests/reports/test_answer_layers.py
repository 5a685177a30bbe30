"""Answers as layers of the page: which areas, times and rasters they hold."""

import json

import numpy as np
import pytest
import xarray as xr

from geogp.errors import DataError
from geogp.maps.frame import Frame
from geogp.maps.page.packing import unpack
from geogp.maps.rasters import write_geotiffs
from geogp.reports import answer_layers as module
from geogp.reports.answer_layers import answer_layers

FRAME = Frame(14, 5000, 7300, 6, 4)
INSIDE = np.arange(24).reshape(4, 6) != 23
NUMBERS = np.where(INSIDE, np.repeat([[1, 1, 2, 2, 3, 0]], 4, axis=0), 0)
NAMES = ["Añasco </script>", "O'Brien", "Vega"]
WHAT = "download_2022Q1_2023Q4"


def write(folder, name, values, none):
    raster = (("y", "x"), values, {"long_name": name}, {"_FillValue": none})
    grid = xr.Dataset(
        {name: raster}, {"x": FRAME.x, "y": FRAME.y}, attrs={"zoom": FRAME.zoom, "target": "x"}
    )
    write_geotiffs(grid, folder)


def level(folder, at, middle, by="county", **more):
    stem = f"areas_{by}_download_level_{at}"
    told = {"for": "level", "by": by, "at": at, "unit": "Mbps", "weights": None} | more
    kind = "level_weighted" if told["weights"] else "level_mean"
    told["areas"] = [
        {"area": name, f"{kind}_mbps": value}
        | {f"{kind}_lower_mbps": value / 2, f"{kind}_upper_mbps": 2 * value}
        for name, value in zip(NAMES, middle, strict=True)
    ]
    write(folder, stem, NUMBERS.astype(np.int32), 0)
    return {stem: told}


def change(folder, by="county", start="2022Q1"):
    stem = f"change_{by}_download_{start}_2023Q4"
    rows = [
        {"area": name, "change_percent": 10.0 * k, "change_lower_percent": 10.0 * k - 25}
        | {"change_upper_percent": 10.0 * k + 30, "probability_rose": 0.5 + 0.1 * k}
        | {"direction": "rose" if k == 2 else ""}
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
    first, other = answer_layers(tmp_path, told)
    held = first["source"]["areas"]
    assert held["names"] == NAMES
    assert held["times"] == ["2022Q4", "2023Q4"]
    np.testing.assert_allclose(np.array(held["bands"])[:, :, 1], [[3, 2, 1], [30, 20, 10]])
    np.testing.assert_allclose(np.array(held["bands"])[1, 0], [15, 30, 60])
    np.testing.assert_array_equal(
        unpack(held["numbers"]), np.where(NUMBERS == 0, np.nan, NUMBERS - 1.0)
    )
    assert other["title"] == "Level by tracts.gpkg:NAME"
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
    titles = [layer["title"] for layer in answer_layers(tmp_path, told)]
    assert titles == ["Level by county", "Level by people.tif by county"]


def test_a_change_has_areas_with_and_without_direction_and_the_tiles(tmp_path):
    told = change(tmp_path) | change(tmp_path, by="stratum") | change(tmp_path, start="2019Q1")
    tiles, *areas = answer_layers(tmp_path, told)
    assert {one["group"] for one in (tiles, *areas)} == {"What changed"}
    assert [one["id"] for one in areas] == [*reversed(told)]
    assert tiles["id"] == f"change_tiles_{WHAT}"  # of the latest quarters
    held = areas[-1]["source"]["areas"]
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


def test_answers_without_a_raster_or_room_have_no_layer(tmp_path, monkeypatch):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0]) | change(tmp_path)
    (tmp_path / "change_county_download_2022Q1_2023Q4.tif").unlink()
    (only,) = answer_layers(tmp_path, told)
    monkeypatch.setattr(module, "ALL_TEXT", len(json.dumps(only)) // 2)
    assert answer_layers(tmp_path, told) == []
    assert answer_layers(tmp_path, {}) == []


def test_damaged_rasters_are_refused(tmp_path):
    told = level(tmp_path, "2023Q4", [30.0, 20.0, 10.0])
    (stem,) = told
    told[stem]["areas"].pop()
    with pytest.raises(DataError, match=rf"{stem}\.tif does not belong to its JSON file"):
        answer_layers(tmp_path, told)
    (tmp_path / f"{stem}.tif").write_text("no raster", "utf-8")
    with pytest.raises(DataError, match=rf"{stem}\.tif cannot be read as a raster .*Delete it"):
        answer_layers(tmp_path, told)
