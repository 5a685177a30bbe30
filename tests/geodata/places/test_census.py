"""Boundaries of the Census Bureau: names, vintages, files, refusals, and the files over the web."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from bucket_borders import (
    BORDER_TOWN,
    COUNTIES,
    FAR_TOWN,
    STATES,
    URBAN,
    counties,
    states,
    towns,
    write_national,
    zipped,
)
from bucket_files import ISLAND, MAINLAND, TOWN
from shapely.geometry import MultiPolygon, box

from geogp.errors import DataError, NetworkError, RequestError, UnreachableError
from geogp.geodata.places.census import read_around, read_region, read_tracts
from geogp.geodata.places.region import Region
from geogp.geodata.places.state_names import PUBLIC_STATES
from geogp.geodata.store import sources
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES
from geogp.geodata.store.cache import WHOLE, cache_items
from geogp.geodata.store.remote import Patience
from geogp.geodata.store.sources import Folder, Web


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
    for _ in range(40):
        content = bytearray(good)
        for place in random.integers(0, len(good), 3):
            content[place] = random.integers(256)
        path.write_bytes(content)
        try:
            read_region(Folder(folder), "PR")
        except (DataError, RequestError):
            refused += 1
    assert refused > 8


@pytest.mark.real
def test_the_known_states_are_those_of_the_census(real_data):
    table = gpd.read_parquet(real_data / "census" / "states.parquet")
    known = {(code, number, name) for code, (number, name) in PUBLIC_STATES.items()}
    assert set(zip(table["STUSPS"], table["STATEFP"], table["NAME"], strict=True)) == known


@pytest.mark.real
@pytest.mark.parametrize(("name", "urban"), [("PR", 2000), ("GU", None)])
def test_real_states_are_whole(census, real_data, name, urban):
    found = read_region(census, name).region
    table = gpd.read_parquet(real_data / "census" / "states.parquet")
    shape = table.set_index("STUSPS").geometry[name]
    assert found.urban_vintage == urban
    assert found.boundary.area == pytest.approx(shape.area, rel=1e-9)
    assert len(found.boundary.geoms) == len(shapely.get_parts(shape))
    np.testing.assert_allclose(found.bounds, shape.bounds, rtol=0, atol=1e-6)


QUICK = Patience(
    attempts=3, first_wait_s=0.002, longest_wait_s=0.01, timeout_s=0.25, slowest=100_000.0
)


@pytest.fixture(scope="module")
def national(tmp_path_factory):
    folder = write_national(tmp_path_factory.mktemp("national") / "old")
    other = folder.parent / "new"
    shutil.copytree(folder, other)
    zipped(towns("UACE20").iloc[:2], other / URBAN[2020])
    return folder


@pytest.fixture
def server(national, faulty, cache):
    with faulty.serving(national, national.parent / "new") as running:
        yield running


def _same(one, other):
    """Tell whether two readings give the same region, counties, towns and files."""
    return (
        one.region.boundary.equals(other.region.boundary)
        and one.region.strata.area.equals(other.region.strata.area)
        and one.files == other.files
        and one.counties.labels == other.counties.labels
        and one.urban_areas.labels == other.urban_areas.labels
    )


def _sound():
    return all(item.state == WHOLE for item in cache_items(check=True))


def test_a_national_file_is_cut_to_the_region(national):
    found = read_region(Folder(national), "PR")
    assert found.counties.labels == ("E", "W")
    assert found.urban_areas.labels == ("Border", "Town")
    assert found.region.strata.area.equals(TOWN.union(BORDER_TOWN))
    assert [file.name for file in found.files] == [
        Path(name).name for name in (STATES, COUNTIES, URBAN[2020])
    ]
    assert found.warnings == ()


@pytest.mark.parametrize(("vintage", "year"), [("auto", 2020), ("2020", 2020), ("2010", 2010)])
def test_the_census_of_the_urban_areas_is_chosen(national, vintage, year):
    found = read_region(Folder(national), "PR", vintage)
    assert found.region.urban_vintage == year
    assert found.files[-1].name == Path(URBAN[year]).name


def test_a_census_that_the_source_has_not_is_refused(national, tmp_path):
    with pytest.raises(RequestError, match=r"no urban areas of 2000 in .*; expected ua99_d00"):
        read_region(Folder(national), "PR", "2000")
    write_national(tmp_path, vintages=())
    assert read_region(Folder(tmp_path), "PR").region.strata is None
    towns("UACE10").to_parquet(tmp_path / "urban_areas_PR.parquet")
    told = "no urban areas of 2020 in .*, only urban areas of 2010; expected cb_2020"
    with pytest.raises(RequestError, match=told):
        read_region(Folder(tmp_path), "PR", "2020")


def test_auto_takes_the_newest_of_a_states_own_file_and_the_national_ones(national, tmp_path):
    folder = tmp_path / "both"
    shutil.copytree(national, folder)
    towns("UA").rename(columns={"NAMEUA": "NAME"}).to_parquet(folder / "urban_areas_PR.parquet")
    found = read_region(Folder(folder), "PR")
    assert (found.region.urban_vintage, len(found.files)) == (2020, 3)
    found = read_region(Folder(folder), "PR", "2000")
    assert found.files[-1].name == "urban_areas_PR.parquet"
    towns("UACE20").iloc[:1].to_parquet(folder / "urban_areas_PR.parquet")
    assert read_region(Folder(folder), "PR").urban_areas.labels == ("Town",)


@pytest.mark.parametrize("code", ["../PR", "P/R", "", "P R"])
def test_codes_that_could_lead_elsewhere_are_refused(tmp_path, code):
    table = gpd.GeoDataFrame(
        {"STUSPS": [code], "NAME": ["Odd"], "STATEFP": ["1"]}, geometry=[TOWN], crs=4326
    )
    table.to_parquet(tmp_path / "states.parquet")
    with pytest.raises(DataError, match="expected codes of letters and digits"):
        read_region(Folder(tmp_path), "Odd")


def test_the_same_files_come_over_the_web_and_are_noted(server, national, cache):
    wanted = read_region(Folder(national), "PR")
    assert _same(read_region(Web(server.url, QUICK), "PR"), wanted)
    gets = [name for method, name in server.told.requests if method == "GET"]
    assert gets == [STATES, COUNTIES, URBAN[2020]]
    notes = {path.stem: json.loads(path.read_text()) for path in cache.rglob("*.zip.json")}
    assert len(notes) == 3
    for file in wanted.files:
        (note,) = (note for name, note in notes.items() if name.endswith(file.name))
        assert note["sha256"] == file.sha256
    server.tell()
    assert _same(read_region(Web(server.url, QUICK), "PR"), wanted)
    assert {method for method, _ in server.told.requests} == {"HEAD"}


def test_public_boundaries_are_the_site_that_holds_all_years():
    assert PUBLIC_BOUNDARIES == "https://www2.census.gov/geo/tiger"


@pytest.mark.parametrize("kind", ["cut", "503"])
def test_a_passing_fault_changes_nothing(server, national, faulty, kind):
    server.tell(faulty.Fault(kind, 1, 1))
    found = read_region(Web(server.url, QUICK), "PR")
    assert _same(found, read_region(Folder(national), "PR"))
    assert _sound()


@pytest.mark.parametrize(
    ("method", "kind"),
    [("GET", "cut"), ("GET", "404"), ("GET", "500"), ("HEAD", "403"), ("HEAD", "drop")],
)
def test_a_lasting_fault_is_an_error_and_the_next_run_is_right(
    server, national, faulty, kind, method
):
    server.tell(faulty.Fault(kind, 1, 10**6, method))
    with pytest.raises(NetworkError):
        read_region(Web(server.url, QUICK), "PR")
    assert _sound()
    server.tell()
    assert _same(read_region(Web(server.url, QUICK), "PR"), read_region(Folder(national), "PR"))


@pytest.mark.parametrize("etag", ["strong", "weak", "none"])
def test_a_file_replaced_midway_is_the_old_or_the_new_one(server, national, faulty, etag):
    manner = faulty.Manner(etag=etag, dated=etag != "none")
    server.tell(faulty.Fault("replace", 2, 1), faulty.Fault("cut", 2, 1), manner=manner)
    found = read_region(Web(server.url, QUICK), "PR")
    old, new = (read_region(Folder(folder), "PR") for folder in (national, national.parent / "new"))
    assert _same(found, old) or _same(found, new)
    assert _sound()


def test_a_damaged_copy_of_a_file_that_changed_is_an_error_with_advice(server, national, cache):
    wanted = read_region(Web(server.url, QUICK), "PR")
    (path,) = (path for path in cache.rglob("*.zip") if "ua20" in path.name)
    path.write_bytes(path.read_bytes()[:-1])
    server.folder = national.parent / "new"
    with pytest.raises(
        NetworkError,
        match=r"has changed since the first download .* Delete the note and the file to download "
        "the new",
    ):
        read_region(Web(server.url, QUICK), "PR")
    path.unlink()
    path.with_name(f"{path.name}.json").unlink()
    found = read_region(Web(server.url, QUICK), "PR")
    assert found.urban_areas.labels == ("Town",)
    assert found.files[:2] == wanted.files[:2]


def test_a_page_in_the_place_of_a_file_is_not_kept(server, national, tmp_path, cache):
    folder = tmp_path / "login"
    shutil.copytree(national, folder)
    (folder / COUNTIES).write_text("<html>Log in, please</html>")
    server.folder = folder
    with pytest.raises(NetworkError, match=r"something other than a zip file. Did a proxy"):
        read_region(Web(server.url, QUICK), "PR")
    assert [path.name for path in cache.rglob("*.zip")] == [STATES.replace("/", "__")]


def test_a_file_that_is_too_large_is_refused(server, cache, monkeypatch, faulty):
    monkeypatch.setattr(sources, "MAX_BYTES", 100)
    with pytest.raises(NetworkError, match="expected at most 100"):
        read_region(Web(server.url, QUICK), "PR")
    assert not list(cache.rglob("*.zip"))


def test_without_network_the_cache_is_used_and_said(server, cache):
    web = Web(server.url, QUICK)
    wanted = read_region(web, "PR")
    server.socket.close()
    server.shutdown()
    found = read_region(web, "PR")
    assert _same(found, wanted)
    (warning,) = found.warnings
    assert (
        "could not be reached; these files come from the cache: cb_2018_us_state_500k.zip, "
        in warning
    )
    with pytest.raises(UnreachableError):
        read_region(Web(f"{server.url}/elsewhere", QUICK), "PR")
    for path in cache.rglob("*ua20*"):  # urban areas must not be left out because of the network
        path.unlink()
    with pytest.raises(UnreachableError):
        read_region(web, "PR")


def test_two_at_once_download_a_file_once(server, national, cache):
    with ThreadPoolExecutor(2) as both:
        list(both.map(read_region, [Web(server.url)] * 2, ["PR"] * 2))
    gets = [name for method, name in server.told.requests if method == "GET"]
    assert sorted(gets) == sorted([STATES, COUNTIES, URBAN[2020]])
    assert _sound()


def test_an_own_region_takes_what_touches_it(national):
    own = Region.from_geometry("own", "Own", box(-66.09, 18.15, -66.0, 18.24))
    found = read_around(Folder(national), own)
    assert found.counties.labels == ("E",)
    assert found.urban_areas.labels == ("Border",)
    assert found.region.strata.area.equals(BORDER_TOWN)
    assert found.region.stratum([-66.01, -66.05], [18.22, 18.22]).tolist() == ["urban", "rural"]
    far = Region.from_geometry("far", "Far", box(10, 10, 11, 11))
    found = read_around(Folder(national), far)
    assert (found.counties, found.urban_areas) == (None, None)
    assert found.warnings == ("no urban area in cb_2020_us_ua20_500k.zip touches Far.",)
    assert found.region.stratum([10.5], [10.5]).tolist() == ["rural"]


def test_an_own_region_across_states_takes_the_files_of_each(national, tmp_path):
    shutil.copytree(national, tmp_path / "two")
    folder = tmp_path / "two"
    shutil.rmtree(folder / "GENZ2020")
    (folder / URBAN[2010]).unlink()
    (folder / COUNTIES).unlink()
    for code, number, own in (("PR", "72", [0, 2]), ("GA", "13", [1, 2])):
        towns("UACE20").iloc[own].to_parquet(folder / f"urban_areas_{code}.parquet")
        mine = counties()
        mine[mine["STATEFP"] == number].to_parquet(folder / f"counties_{code}.parquet")
    wide = Region.from_geometry("wide", "Wide", box(-86, 18, -65, 34))
    found = read_around(Folder(folder), wide)
    assert found.urban_areas.labels == ("Border", "Far", "Town")
    assert found.counties.labels == ("E", "Fulton", "W")
    assert found.region.strata.area.equals(TOWN.union(BORDER_TOWN).union(FAR_TOWN))
