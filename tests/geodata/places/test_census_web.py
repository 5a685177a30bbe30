"""The Census Bureau's files over the web: vintages, cuts, every fault, and the note of each."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
from bucket_borders import (
    BORDER_TOWN,
    COUNTIES,
    FAR_TOWN,
    STATES,
    URBAN,
    counties,
    towns,
    write_national,
    zipped,
)
from bucket_files import TOWN
from shapely.geometry import box

from geogp.errors import DataError, NetworkError, OutputError, RequestError, UnreachableError
from geogp.geodata.places.census import read_around, read_region
from geogp.geodata.places.region import Region
from geogp.geodata.store import sources
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES
from geogp.geodata.store.cache import WHOLE, cache_items
from geogp.geodata.store.remote import Patience
from geogp.geodata.store.sources import Folder, Web

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


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("kind", ["drop", "cut", "short", "long", "slow", "429", "500", "503"])
def test_a_passing_fault_changes_nothing(server, national, faulty, kind, place):
    server.tell(faulty.Fault(kind, place, 1))
    found = read_region(Web(server.url, QUICK), "PR")
    assert _same(found, read_region(Folder(national), "PR"))
    assert _sound()


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *(("GET", kind) for kind in ("drop", "cut", "short", "long", "slow")),
        *((method, kind) for method in ("GET", "HEAD") for kind in ("403", "429", "500", "503")),
        ("GET", "404"),
        ("HEAD", "drop"),
    ],
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
@pytest.mark.parametrize("place", [1, 2])
def test_a_file_replaced_midway_is_the_old_or_the_new_one(server, national, faulty, etag, place):
    manner = faulty.Manner(etag=etag, dated=etag != "none")
    server.tell(faulty.Fault("replace", place, 1), faulty.Fault("cut", 2, 1), manner=manner)
    found = read_region(Web(server.url, QUICK), "PR")
    old, new = (read_region(Folder(folder), "PR") for folder in (national, national.parent / "new"))
    assert _same(found, old) or _same(found, new)
    assert _sound()


def test_a_damaged_copy_is_never_used(server, national, cache):
    wanted = read_region(Web(server.url, QUICK), "PR")
    paths = sorted(cache.rglob("*.zip"))
    random = np.random.default_rng(0)
    for path in paths * 3:
        content = bytearray(path.read_bytes())
        content[int(random.integers(len(content)))] ^= 1
        path.write_bytes(content)
        server.tell()
        assert _same(read_region(Web(server.url, QUICK), "PR"), wanted)
        assert [name for method, name in server.told.requests if method == "GET"]
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


def test_two_processes_download_a_file_once(server, national, cache):
    code = (
        "import sys; from geogp.geodata.places.census import read_region;"
        "from geogp.geodata.store.sources import Web; read_region(Web(sys.argv[1]), 'PR')"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, server.url]) for _ in range(2)]
    assert [one.wait(60) for one in both] == [0, 0]
    gets = [name for method, name in server.told.requests if method == "GET"]
    assert sorted(gets) == sorted([STATES, COUNTIES, URBAN[2020]])
    assert _sound()


def test_a_full_disk_is_said_and_leaves_nothing(server, national, cache):
    web = Web(server.url, QUICK)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(OutputError, match="Free some space or set GEOGP_CACHE"):
            web.fetch(STATES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [item for item in cache_items() if item.kind == "file"]
    assert _same(read_region(web, "PR"), read_region(Folder(national), "PR"))
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
