"""Weights of tiles in the answers about areas: from rasters, polygons and the tiles themselves."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
from affine import Affine
from run_worlds import write_halves
from shapely.geometry import box

from geogp.answers.make import make_answer, make_answers
from geogp.answers.requests import AreasRequest, ExceedanceRequest
from geogp.answers.run import open_run
from geogp.answers.tile_weights import tile_weights
from geogp.errors import DataError, RequestError
from geogp.geodata.tiles.quadkeys import tile_areas_km2


@pytest.fixture(scope="module")
def opened(copy):
    return open_run(copy.path).reopen()


@pytest.fixture(scope="module")
def halves(small, tmp_path_factory):
    """West and east with their people; no tile lies in the third polygon."""
    path = write_halves(small, tmp_path_factory.mktemp("halves"), ("west", "east", "far"), 0.4)
    gpd.read_parquet(path).assign(people=[300.0, 100.0, 100.0]).to_parquet(path)
    return path


def raster(path, values, region):
    west, south, east, north = region.bounds
    height, width = values.shape
    across, down = (east - west + 2) / width, (north - south + 2) / height
    how = {"driver": "GTiff", "count": 1, "dtype": "float64", "crs": "EPSG:4326"}
    transform = Affine(across, 0, west - 1, 0, -down, north + 1)
    with rasterio.open(path, "w", height=height, width=width, transform=transform, **how) as made:
        made.write(values, 1)
    return str(path)


def test_a_constant_raster_gives_the_shares_of_the_area(copy, opened, tmp_path):
    path = raster(tmp_path / "one.tif", np.full((40, 40), 7.0), opened.inputs.region)
    (found,) = make_answers(ExceedanceRequest(copy.path, threshold=(25,), draws=200, weights=path))
    for name in ("mean", "lower", "upper", "closed_form"):
        np.testing.assert_allclose(found.table[f"weighted_{name}"], found.table[name])
    np.testing.assert_allclose(found.table["weight"], 7 * found.table["area_km2"])


def test_a_raster_is_averaged_in_each_tile(opened, tmp_path):
    values = np.broadcast_to(np.linspace(0, 10, 2000), (4, 2000))  # rises from west to east
    path = raster(tmp_path / "slope.tif", values, opened.inputs.region)
    longitude, latitude = opened.tiles.centres
    west, _, east, _ = opened.inputs.region.bounds
    slope = 10 * (longitude - west + 1) / (east - west + 2)
    expected = slope * tile_areas_km2(latitude, opened.tiles.zoom)
    np.testing.assert_allclose(tile_weights(opened, path, None), expected, rtol=1e-3)


def test_people_of_polygons_are_shared_among_their_tiles(copy, opened, halves):
    by = f"{halves}:side"
    weights = tile_weights(opened, "people", by)
    assert weights.sum() == pytest.approx(400)
    east = opened.layer(by).index(*opened.tiles.centres) == 0  # labels in order: east, far, west
    assert weights[east].sum() == pytest.approx(100)
    km2 = tile_areas_km2(opened.tiles.centres[1], opened.tiles.zoom)
    np.testing.assert_allclose(weights[east] / km2[east], 100 / km2[east].sum())
    told = "20.0% of people belongs to polygons that lie outside the region, and is left out."
    assert told in opened.listener.warnings
    assert not any("no centre" in text for text in opened.listener.warnings)


def test_people_of_a_polygon_between_centres_are_told(opened, tmp_path):
    middle = len(opened.tiles) // 2
    west, south = (one[middle] + 90 / 2**opened.tiles.zoom for one in opened.tiles.centres)
    shapes = [box(*opened.inputs.region.bounds), box(west, south, west + 1e-5, south + 1e-5)]
    table = gpd.GeoDataFrame(
        {"NAME": ["all", "house"], "people": [3, 1]}, geometry=shapes, crs=4326
    )
    table.to_file(tmp_path / "two.gpkg")
    tile_weights(opened, "people", str(tmp_path / "two.gpkg"))
    told = "25.0% of people belongs to polygons that contain no centre of a tile"
    assert any(told in text for text in opened.listener.warnings)


def test_shares_of_people_are_those_of_the_draws_with_their_weights(copy, opened, halves):
    by = f"{halves}:side"
    request = ExceedanceRequest(copy.path, threshold=(25,), by=by, weights="people")
    (found,) = make_answers(request)
    table = found.table.set_index("key")
    for name in ("mean", "closed_form"):
        parts = 0.75 * table.loc["west", name] + 0.25 * table.loc["east", name]
        assert table.loc["all", f"weighted_{name}"] == pytest.approx(parts)
        # Within a half, the people live evenly.
        assert table.loc["west", f"weighted_{name}"] == pytest.approx(table.loc["west", name])
    assert table.loc["all", "weighted_lower"] < table.loc["all", "weighted_upper"]


def test_means_with_weights_are_between_those_of_the_tiles(copy, opened):
    found = make_answer(AreasRequest(copy.path, by="stratum", weights="tests"))
    table, weights = found.table.set_index("key"), tile_weights(opened, "tests", None)
    mean = opened.level().mean
    assert table.loc["all", "level_weighted_log10"] == pytest.approx(
        np.average(mean, weights=weights)
    )
    assert table.loc["all", "weight"] == table.loc["all", "tests"] == weights.sum()
    assert (table["level_weighted_sd_log10"] > 0).all()


def test_an_area_without_weight_has_no_share(copy, opened, tmp_path, geogp):
    west, south, east, north = opened.inputs.region.bounds
    middle = (west + east) / 2
    parts = [box(west, south, middle, north), box(middle, south, east, north)]
    table = gpd.GeoDataFrame({"name": ["a", "b"], "people": [0, 5]}, geometry=parts, crs=4326)
    table.to_file(tmp_path / "two.gpkg")
    asked = "--by", f"{tmp_path / 'two.gpkg'}:name", "--weights", "people", "--draws", 200
    for command, key, name, file in (
        ("areas", "areas", "level_weighted_mbps", "areas_two_name*.json"),
        ("exceedance", "share_falling_short", "weighted_mean", "exceedance*_7_mbps_by_people.json"),
    ):
        assert geogp(command, copy.path, *asked)[0] == 0
        (path,) = copy.path.glob(file)
        rows = json.loads(path.read_text("utf-8"))[key]
        (without,) = [row for row in rows if row["area"] == "a"]
        assert without[name] is None
        assert all(row[name] is not None for row in rows if row["area"] != "a")


def test_refusals(opened, halves, tmp_path):
    with pytest.raises(RequestError, match=r"the columns people, .*tests.*, found 'cows'"):
        tile_weights(opened, "cows", f"{halves}:side")
    with pytest.raises(RequestError, match=r"no file .*none\.tif: expected a GeoTIFF of weights"):
        tile_weights(opened, str(tmp_path / "none.tif"), None)
    half = np.repeat([[1.0], [-9999.0]], 40, axis=0)
    for values, told in (
        (np.zeros((4, 4)), r"0 or more in .*bad\.tif, .* found only 0\."),
        (np.full((4, 4), -1.0), r"negative values in 100\.0% of the region \("),
        (half, r"0 or more in .*bad\.tif, .* negative values in \d\d\.\d% of the region \("),
        (np.full((4, 4), np.nan), r"found none in Demo: the raster is of another place, or"),
        (np.full((4, 4), np.inf), r"found none in Demo: the raster is of another place, or"),
        (np.full((4, 4), 1e308), r"expected values up to 1e\+30 in .*bad\.tif"),
    ):
        path = raster(tmp_path / "bad.tif", values, opened.inputs.region)
        with pytest.raises(DataError, match=told):
            tile_weights(opened, path, None)


def test_points_are_summed_in_their_tiles(opened, tmp_path):
    longitude, latitude = opened.tiles.centres
    points = pd.DataFrame({"lat": latitude[[5, 5, 9]], "lon": longitude[[5, 5, 9]]})
    points["value"] = [100.0, 20.5, 4.0]
    far = pd.DataFrame({"lat": [10.0], "lon": [20.0], "value": [41.5]})
    text = pd.concat([points, far]).to_csv(index=False, sep=";", decimal=",")
    (tmp_path / "people.csv").write_text(text)
    weights = tile_weights(opened, str(tmp_path / "people.csv"), None)
    assert dict(zip(*np.unique(weights, return_index=True), strict=True)) == {0: 0, 4: 9, 120.5: 5}
    told = "25.0% of the weights of people.csv lie outside the tiles of Demo, and are left out."
    assert told in opened.listener.warnings
    (tmp_path / "people.csv").write_text(text.replace("100,0", "-1"))
    with pytest.raises(DataError, match="found 1 negative values of 4"):
        tile_weights(opened, str(tmp_path / "people.csv"), None)


@pytest.mark.parametrize("missing", [np.nan, np.inf])
def test_places_without_weights_are_told_with_their_share(opened, tmp_path, missing):
    values = np.repeat([[1.0] * 40 + [missing] * 40], 80, axis=0)
    path = raster(tmp_path / "half.tif", values, opened.inputs.region)
    weights = tile_weights(opened, path, None)
    km2 = tile_areas_km2(opened.tiles.centres[1], opened.tiles.zoom)
    share = 1 - weights.sum() / km2.sum()
    assert 0.3 < share < 0.7
    told = "half.tif has no finite value (outside the raster, without data, or infinite) in "
    assert any(f"{told}{share:.1%} of the region (" in text for text in opened.listener.warnings)


def test_weights_that_hardly_count_are_told_with_their_share(opened, tmp_path):
    """Values like 1e-38 stand for missing data in some rasters."""
    values = np.repeat(np.repeat([[1.0], [1e-38]], 40, axis=0), 40, axis=1)
    path = raster(tmp_path / "few.tif", values, opened.inputs.region)
    weights = tile_weights(opened, path, None)
    assert (weights > 0).all()
    (told,) = [text for text in opened.listener.warnings if "few.tif" in text]
    assert "below 1e-20 of the largest weight, in 48.7% of the region (" in told
    values[:] = 1e-38
    path = raster(tmp_path / "all.tif", values, opened.inputs.region)
    km2 = tile_areas_km2(opened.tiles.centres[1], opened.tiles.zoom)
    np.testing.assert_allclose(tile_weights(opened, path, None), 1e-38 * km2, rtol=1e-6)


def test_values_of_polygons_that_are_no_numbers_are_refused(opened, halves, tmp_path):
    table = gpd.read_parquet(halves)
    for value, told in ((np.inf, "infinite values in"), (np.nan, "no number in")):
        table.assign(people=[value, 1.0, 1.0]).to_parquet(tmp_path / "bad.parquet")
        with pytest.raises(DataError, match=rf"{told} \d\d\.\d% of the region"):
            tile_weights(opened, "people", f"{tmp_path / 'bad.parquet'}:side")
