"""Boundaries as the Census Bureau publishes them: names, vintages, files and refusals."""

import hashlib

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from bucket_borders import FAR_TOWN, states, zipped
from bucket_files import ISLAND, MAINLAND, TOWN
from shapely.geometry import MultiPolygon, Point, box

from geogp.errors import DataError, RequestError
from geogp.geodata.places.census import read_region, read_tracts
from geogp.geodata.places.state_names import PUBLIC_STATES
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES
from geogp.geodata.store.sources import Folder


def _towns(column="UACE10", crs=4269) -> gpd.GeoDataFrame:
    table = {column: ["1", "2"], "NAME": ["Town", "Far"]}
    return gpd.GeoDataFrame(table, geometry=[TOWN, FAR_TOWN], crs=crs)


@pytest.fixture
def folder(tmp_path):
    states().to_parquet(tmp_path / "states.parquet")
    _towns().to_parquet(tmp_path / "urban_areas_PR.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["PR", "pr", "Puerto Rico", " puerto RICO ", "72"])
def test_a_state_is_found_by_code_name_or_number(folder, name):
    found = read_region(Folder(folder), name)
    assert (found.region.code, found.region.name) == ("PR", "Puerto Rico")
    assert found.region.boundary.equals(MultiPolygon([MAINLAND, ISLAND]))
    assert found.region.strata.area.equals(TOWN)
    assert found.warnings == ()


def test_files_are_recorded(folder):
    found = read_region(Folder(folder), "PR")
    assert [file.name for file in found.files] == ["states.parquet", "urban_areas_PR.parquet"]
    assert [file.rows for file in found.files] == [3, 2]
    for file in found.files:
        assert file.sha256 == hashlib.sha256((folder / file.name).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Porto Rico", "Puerto Rico"),
        ("Gorgia", r"Georgia \(GA\)"),
        ("H", r"Hawaii \(HI\)"),
        ("xyz", "Georgia .*Hawaii .*Puerto Rico"),
    ],
)
def test_an_unknown_region_is_refused_with_the_nearest(folder, name, near):
    with pytest.raises(RequestError, match=f"unknown region '{name}'. Nearest: .*{near}"):
        read_region(Folder(folder), name)


@pytest.mark.parametrize(("column", "year"), [("UA", 2000), ("UACE10", 2010), ("UACE20", 2020)])
def test_the_census_of_urban_areas_is_told_by_their_column(folder, column, year):
    _towns(column).to_parquet(folder / "urban_areas_PR.parquet")
    assert read_region(Folder(folder), "PR").region.urban_vintage == year


def test_urban_areas_of_an_unknown_census_are_refused(folder):
    _towns("UACE30").to_parquet(folder / "urban_areas_PR.parquet")
    with pytest.raises(
        DataError, match=r"unknown census: expected one of the columns UACE20.*found UACE30"
    ):
        read_region(Folder(folder), "PR")


def test_without_urban_areas_the_region_is_mapped_with_a_warning(folder):
    found = read_region(Folder(folder), "GA")
    assert (found.region.strata, found.region.urban_vintage) == (None, None)
    assert found.region.stratum([-84.2], [33.7]).tolist() == ["unknown"]
    (warning,) = found.warnings
    assert warning.startswith("found no urban areas of Georgia in")
    assert [file.name for file in found.files] == ["states.parquet"]


@pytest.mark.parametrize("crs", [3857, 32161, 4326])
def test_other_reference_systems_give_the_same_region(folder, crs):
    wanted = read_region(Folder(folder), "PR").region
    states().iloc[:1].to_crs(crs).to_parquet(folder / "states.parquet")
    _towns().iloc[:1].to_crs(crs).to_parquet(folder / "urban_areas_PR.parquet")
    found = read_region(Folder(folder), "PR").region
    np.testing.assert_allclose(found.bounds, wanted.bounds, rtol=0, atol=1e-5)
    assert found.boundary.symmetric_difference(wanted.boundary).area < 1e-6
    assert found.strata.area.symmetric_difference(wanted.strata.area).area < 1e-6


def test_the_geometry_column_may_have_another_name(folder):
    states().rename_geometry("geom").to_parquet(folder / "states.parquet")
    _towns().rename_geometry("wkb").to_parquet(folder / "urban_areas_PR.parquet")
    assert read_region(Folder(folder), "PR").region.strata.area.equals(TOWN)


@pytest.mark.parametrize("name", ["tracts_PR.parquet", "GENZ2020/shp/cb_2020_72_tract_500k.zip"])
def test_tracts_are_read_for_the_states_that_the_region_touches(folder, name):
    region = read_region(Folder(folder), "PR").region
    assert read_tracts(Folder(folder), region) is None
    west, south, east, north = MAINLAND.bounds
    middle = (west + east) / 2
    shapes = [box(west, south, middle, north), box(middle, south, east, north), FAR_TOWN]
    table = {"NAME": ["1", "1", "2"], "GEOID": ["72001", "72002", "72003"]}
    tracts = gpd.GeoDataFrame(table, geometry=shapes, crs=4269)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        zipped(tracts, path)
    else:
        tracts.to_parquet(path)
    found = read_tracts(Folder(folder), region)
    assert found.name == "tract"
    assert found.labels[:2] == ("1 (72001)", "1 (72002)")
    assert found.keys[:2] == ("72001", "72002")
    places = np.array([west, middle]) + 0.1, np.full(2, (south + north) / 2)
    np.testing.assert_array_equal(found.index(*places), [0, 1])


@pytest.mark.parametrize("year", [500, 5])
def test_zip_files_of_the_census_bureau_are_read(tmp_path, year):
    zipped(states(), tmp_path / f"cb_2018_us_state_{year}{'k' if year == 500 else 'm'}.zip")
    zipped(_towns(), tmp_path / "cb_2018_us_ua10_500k.zip")
    found = read_region(Folder(tmp_path), "Puerto Rico")
    assert found.region.boundary.equals(MultiPolygon([MAINLAND, ISLAND]))
    assert found.region.strata.area.equals(TOWN)
    assert found.region.urban_vintage == 2010
    assert found.files[1].name == "cb_2018_us_ua10_500k.zip"


def test_geoparquet_comes_before_zip_files(folder):
    other = states().assign(NAME="Other")
    zipped(other, folder / "cb_2018_us_state_500k.zip")
    assert read_region(Folder(folder), "PR").region.name == "Puerto Rico"


def test_missing_states_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"no state boundaries in .*; expected states.parquet"):
        read_region(Folder(tmp_path), "PR")


def test_states_without_names_are_refused(folder):
    states().drop(columns=["NAME", "STATEFP"]).to_parquet(folder / "states.parquet")
    with pytest.raises(DataError, match="found no NAME, STATEFP"):
        read_region(Folder(folder), "PR")


@pytest.mark.parametrize("name", ["states.parquet", "urban_areas_PR.parquet"])
def test_files_without_crs_are_refused(folder, name):
    table = gpd.read_parquet(folder / name).set_crs(None, allow_override=True)
    table.to_parquet(folder / name)
    with pytest.raises(DataError, match=f"{name} has no CRS"):
        read_region(Folder(folder), "PR")


@pytest.mark.parametrize("name", ["states.parquet", "urban_areas_PR.parquet"])
def test_tables_without_geometry_are_refused(folder, name):
    pd.DataFrame({"STUSPS": ["PR"], "UACE10": ["1"]}).to_parquet(folder / name)
    with pytest.raises(DataError, match=f"{name} contains no geometry.*polygons"):
        read_region(Folder(folder), "PR")


@pytest.mark.parametrize(
    "shapes", [[Point(-66, 18)] * 3, [box(0, 0, 1, 1), Point(0, 0), box(0, 0, 1, 1)], [None] * 3]
)
def test_anything_but_polygons_is_refused(folder, shapes):
    states().set_geometry(shapes, crs=4269).to_parquet(folder / "states.parquet")
    with pytest.raises(DataError, match="expected polygons"):
        read_region(Folder(folder), "PR")


@pytest.fixture(params=["parquet", "zip"])
def path(folder, request):
    """The file of states, in both formats."""
    path = folder / "states.parquet"
    if request.param == "zip":
        path.unlink()
        path = folder / "cb_2018_us_state_500k.zip"
        zipped(states(), path)
    return path


def test_damaged_files_are_refused(folder, path):
    good = path.read_bytes()
    for keep in (0, 1, len(good) // 2, len(good) - 30):
        path.write_bytes(good[:keep])
        with pytest.raises(DataError, match=f"{path.name} cannot be read as boundaries"):
            read_region(Folder(folder), "PR")


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_whatever_bytes_are_wrong_only_our_errors_come(folder, path):
    good = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(100):
        content = bytearray(good)
        for place in random.integers(0, len(good), 3):
            content[place] = random.integers(256)
        path.write_bytes(content)
        try:
            read_region(Folder(folder), "PR")
        except (DataError, RequestError):
            refused += 1
    assert refused > 20


def test_the_public_boundaries_are_served_over_https():
    assert PUBLIC_BOUNDARIES.startswith("https://www2.census.gov/")


@pytest.mark.real
def test_the_known_states_are_those_of_the_census(real_data):
    table = gpd.read_parquet(real_data / "census" / "states.parquet")
    known = {(code, number, name) for code, (number, name) in PUBLIC_STATES.items()}
    assert set(zip(table["STUSPS"], table["STATEFP"], table["NAME"], strict=True)) == known


@pytest.mark.real
@pytest.mark.parametrize(("name", "urban"), [("PR", 2000), ("MO", 2000), ("GU", None)])
def test_real_states_are_whole(census, real_data, name, urban):
    found = read_region(census, name).region
    table = gpd.read_parquet(real_data / "census" / "states.parquet")
    shape = table.set_index("STUSPS").geometry[name]
    assert found.urban_vintage == urban
    assert found.boundary.area == pytest.approx(shape.area, rel=1e-9)
    assert len(found.boundary.geoms) == len(shapely.get_parts(shape))
    np.testing.assert_allclose(found.bounds, shape.bounds, rtol=0, atol=1e-6)
