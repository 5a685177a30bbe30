"""What the page offers as files: the same values as on the map, read by pandas and geopandas."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from browser_pages import HOSTILE, make_counts, make_page, make_tiers
from browser_values import place_of, probability, quantile
from shapely.geometry import box

from geogp.geodata.tiles.quadkeys import format_quadkeys, tiles_to_codes
from geogp.geodata.tiles.targets import SPEED_TIERS
from geogp.maps.page.packing import unpack


def downloaded(seen, tmp_path, kind, extent="all"):
    seen.evaluate("document.getElementById('geogp-download').open = true")
    seen.select_option("#geogp-extent", extent)
    with seen.tab.expect_download() as found:
        seen.click(f"#geogp-{kind}")
    path = tmp_path / found.value.suggested_filename
    found.value.save_as(path)
    return path


@pytest.mark.parametrize("quarter", [2, 0])
def test_the_table_has_the_values_of_every_tile(visit, made, tmp_path, quarter):
    seen, data = visit(made.page), made.data
    seen.update(quarter=quarter)
    path = downloaded(seen, tmp_path, "csv")
    assert path.name == f"download-{data['quarters'][quarter]}.csv"
    assert "CC BY-NC-SA 4.0" in path.read_text("utf-8").splitlines()[0]
    table = pd.read_csv(path, skiprows=1, dtype={"quadkey": str})
    inside = np.isfinite(unpack(data["arrays"]["far"]))
    assert len(table) == inside.sum() == len(made.world.tiles)
    row, column = np.nonzero(inside)
    frame = data["frame"]
    codes = tiles_to_codes(frame["column"] + column, frame["row"] + row, frame["zoom"])
    assert table["quadkey"].tolist() == format_quadkeys(codes, frame["zoom"]).tolist()
    for name, level in (("lower", 0.025), ("median", 0.5), ("upper", 0.975)):
        expected = 10 ** quantile(data, quarter, level)[inside]
        np.testing.assert_allclose(table[f"{name}_mbps"], expected, rtol=6e-4)
    shown = data["threshold"]["shown"]
    met = probability(data, quarter, shown)[inside]
    np.testing.assert_allclose(table[f"p_at_least_{shown:g}_mbps"], met, rtol=6e-4, atol=1e-9)
    np.testing.assert_array_equal(
        table["tests_all_quarters"], unpack(data["arrays"]["tests"])[inside]
    )
    counties = np.array(data["names"]["county"])
    expected = counties[unpack(data["arrays"]["county"])[inside].astype(int)]
    assert table["county"].tolist() == expected.tolist()
    assert set(table["stratum"]) == {"urban", "rural"}


def test_the_table_of_a_signal_has_decibels(visit, tmp_path):
    made = make_page(target="sinr")
    seen, data = visit(made.page), made.data
    table = pd.read_csv(downloaded(seen, tmp_path, "csv"), skiprows=1)
    inside = np.isfinite(unpack(data["arrays"]["far"]))
    for name, level in (("lower", 0.025), ("median", 0.5), ("upper", 0.975)):
        expected = quantile(data, data["shown"], level)[inside]
        np.testing.assert_allclose(table[f"{name}_db"], expected, atol=6e-3)
    threshold = data["threshold"]["shown"]
    met = probability(data, data["shown"], threshold)[inside]
    np.testing.assert_allclose(table[f"p_at_least_{threshold:g}_db"], met, rtol=6e-4, atol=1e-9)


def test_the_squares_in_view_are_those_of_the_tiles(visit, made, tmp_path):
    seen, data = visit(made.page), made.data
    seen.evaluate("() => { geogp.page.map.setView([18.3, -66.75], 12, {animate: false}); }")
    path = downloaded(seen, tmp_path, "geojson", "view")
    told = gpd.read_file(path)
    south, west, north, east = seen.evaluate(
        "() => { const b = geogp.page.map.getBounds();"
        " return [b.getSouth(), b.getWest(), b.getNorth(), b.getEast()]; }"
    )
    longitude, latitude = made.world.tiles.centres
    inside = (latitude > south) & (latitude < north) & (longitude > west) & (longitude < east)
    assert 0 < len(told) == inside.sum() < len(made.world.tiles)
    frame = data["frame"]
    expected = []
    for column, row in zip(
        made.world.tiles.column[inside], made.world.tiles.row[inside], strict=True
    ):
        at = row - frame["row"], column - frame["column"]
        top, left = place_of(frame, *at, down=0, across=0)
        bottom, right = place_of(frame, *at, down=1, across=1)
        expected.append(box(left, bottom, right, top))
    squares = gpd.GeoSeries(expected, crs=4326).normalize()
    assert squares.geom_equals_exact(told.geometry.normalize(), 2e-6).all()
    assert told.geometry.exterior.is_ccw.all()
    assert '"attribution":"Speedtest' in path.read_text("utf-8")[:600]


@pytest.mark.parametrize("up", [0, 2])
def test_a_file_says_if_quarters_have_squares_of_different_sizes(visit, make, tmp_path, up):
    seen = visit(make(up=up).page)
    first = downloaded(seen, tmp_path, "csv").read_text("utf-8").splitlines()[0]
    told = json.loads(downloaded(seen, tmp_path, "geojson").read_text("utf-8"))
    for text in (first, told.get("note", "")):
        assert ("in the middle of squares of 9.3 km" in text) == bool(up)


def test_a_number_sign_in_a_name_stays(visit, make, tmp_path):
    seen = visit(make(county="District #9").page)
    table = pd.read_csv(downloaded(seen, tmp_path, "csv"), skiprows=1)
    assert set(table["county"]) == {"Adjuntas", "District #9", "Mayagüez"}


def test_columns_of_numbers_of_tests_are_those_of_the_grid(visit, tmp_path):
    counts = make_counts()
    table = pd.read_csv(downloaded(visit(counts.page), tmp_path, "csv"), skiprows=1)
    inside = counts.world.grid["tests"].to_numpy() >= 0
    for name, unit in (("expected_tests", 0.01), ("upper_tests", 1), ("p_none", 0.004)):
        expected = counts.world.grid[name].to_numpy()[inside]
        np.testing.assert_allclose(table[name], expected, rtol=6e-4, atol=unit)
    assert {"lower_tests", "tests_all_quarters"} < set(table)


def test_hostile_names_stay_in_their_field(visit, make, tmp_path):
    name = '=cmd|"x",' + HOSTILE
    seen = visit(make(county=name).page)
    table = pd.read_csv(downloaded(seen, tmp_path, "csv"), skiprows=1, dtype={"quadkey": str})
    assert set(table["county"]) == {"Adjuntas", f"'{name}", "Mayagüez"}
    told = gpd.read_file(downloaded(seen, tmp_path, "geojson"))
    assert set(told["county"]) == {"Adjuntas", name, "Mayagüez"}


def test_classes_have_their_names(visit, tmp_path):
    tiers = make_tiers()
    seen = visit(tiers.page)
    table = pd.read_csv(downloaded(seen, tmp_path, "csv"), skiprows=1)
    assert set(table["tier"]) <= set(SPEED_TIERS["mobile"])
    assert table["p_most_probable"].between(0.25, 1).all()


def test_the_link_leads_to_the_table_beside_the_page(visit, made):
    seen = visit(made.page)
    assert seen.get_attribute("#geogp-download a", "href") == "tiles.parquet"
