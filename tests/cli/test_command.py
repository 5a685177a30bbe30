"""The command as a user meets it: output, exit codes, bad input, interruption, a full disk."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import geopandas as gpd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
from shapely.geometry import box

from geogp import __version__
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.models.catalogue.rows import CATALOGUE, CLASS_CATALOGUE
from geogp.records.map_settings import DEFAULT_MODELS
from geogp.runs.locks import LOCK_FILE

pytestmark = pytest.mark.usefixtures("no_pictures")

COMMAND = [sys.executable, "-c", "from geogp_cli.entry import run; run()"]


def rewritten(path, change):
    """Change the table of a Parquet file."""
    pq.write_table(change(pq.read_table(path)), path)


def with_column(table, name, values):
    return table.set_column(table.column_names.index(name), name, values)


def with_first(name, value):
    """Set the first value of a column."""

    def change(table):
        values = table[name].to_pylist()
        kind = pa.float64() if isinstance(value, float) else table[name].type
        return with_column(table, name, pa.array([value, *values[1:]], kind))

    return change


def repeated(table):
    return pa.concat_tables([table.slice(0, 1), table])


BAD_TILES = {
    "missing column": (lambda t: t.drop_columns(["avg_d_kbps"]), r"column avg_d_kbps, found"),
    "wrong type": (
        lambda t: with_column(t, "avg_d_kbps", t["avg_d_kbps"].cast(pa.string())),
        r"expected numbers in column avg_d_kbps, found string",
    ),
    "bad quadkey": (with_first("quadkey", "0231x11331021101"), r"digits 0 to 3"),
    "mixed zoom": (with_first("quadkey", "023121133102"), r"16 digits .zoom 16."),
    "duplicates": (repeated, r"once in a quarter, found 1 duplicates"),
    "zero speed": (with_first("avg_d_kbps", 0), r"avg_d_kbps above 0, found 1 other values"),
    "negative speed": (with_first("avg_d_kbps", -5), r"avg_d_kbps above 0.*first -5"),
    "infinite speed": (with_first("avg_d_kbps", float("inf")), r"finite avg_d_kbps"),
    "no tests": (with_first("tests", 0), r"whole numbers of tests, 1 or more"),
}


@pytest.mark.parametrize("fault", BAD_TILES)
def test_bad_tiles_are_refused(fault, own_small, tmp_path, geogp):
    change, message = BAD_TILES[fault]
    rewritten(own_small.tiles(0), change)
    code, out, told = geogp(*own_small.arguments, "--out", tmp_path / "run")
    assert code == 3
    assert out == ""
    assert re.search(message, told)
    assert own_small.tiles(0).name in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "not a complete Parquet file"), (b"quadkey,tests\n", "not a complete Parquet file")],
)
def test_damaged_files_are_refused(content, message, own_small, tmp_path, geogp):
    path = own_small.tiles(1)
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    code, _, told = geogp(*own_small.arguments, "--out", tmp_path / "run")
    assert code == 3
    assert message in told
    assert not (tmp_path / "run").exists()


REQUESTS = {
    "unknown region": (["map", "DEMMO"], 2, r"unknown region 'DEMMO'. Nearest: Demo \(DEMO\)"),
    "unknown model": (["--model", "dbk-rfb"], 2, r"unknown model 'dbk-rfb'. Nearest: dbk-rbf"),
    "unknown target": (["--target", "downlaod"], 2, r"Did you mean download"),
    "unknown preset": (["--preset", "quikc"], 2, r"Did you mean quick"),
    "unknown split": (["--split", "block"], 2, r"Did you mean blocks"),
    "unknown service": (["--service", "wifi"], 2, r"choose one of mobile, fixed"),
    "unknown option": (["--colour", "red"], 2, r"No such option"),
    "bad quarter": (["--quarters", "2023Q5"], 2, r"expected a quarter like 2019Q1"),
    "backward range": (["--quarters", "2023Q4..2023Q1"], 2, r"ends before it starts"),
    "named quarter missing": (["--quarters", "2023Q3,2022Q1"], 3, r"2022Q1 was requested but"),
    "empty range": (["--quarters", "2020Q1..2020Q4"], 3, r"no mobile tiles of Demo"),
    "no such source": (["--source", "nowhere"], 3, r"no folder /.*nowhere"),
    "no such boundaries": (["--boundaries", "nowhere"], 3, r"no folder /.*nowhere"),
    "bad zoom": (["--zoom", "17"], 2, r"zoom from 1 to 16"),
    "bad epochs": (["--epochs", "0"], 2, r"epochs from 1 to 100,000"),
    "bad seed": (["--seed", "-1"], 2, r"seed from 0 to"),
    "unknown layer": (
        ["--layer", "none.gpkg:NAME"],
        2,
        r"no file /.*none\.gpkg: expected",
    ),
    "no counties": (["--split", "county"], 2, r"expected counties_<ST>.parquet or"),
    "too many folds": (
        ["--split", "latest", "--folds", "2"],
        2,
        r"needs 3 quarters with data for 2 folds, found 2. Choose more --quarters or fewer",
    ),
    "bad distance": (["--far-km", "0"], 2, r"above 0 km"),
}


def test_a_file_is_no_region(tmp_path, geogp):
    (tmp_path / "drive.csv").touch()
    code, _, told = geogp("map", tmp_path / "drive.csv")
    assert code == 2
    assert "drive.csv is a file, not a region. Give a file of your own tests with --points" in told


@pytest.mark.parametrize("fault", REQUESTS)
def test_bad_requests_are_refused(fault, small, tmp_path, geogp):
    change, expected, message = REQUESTS[fault]
    arguments = list(small.arguments)
    if change[0] == "map":
        arguments[:2] = change
    else:
        arguments += change
    code, out, told = geogp(*arguments, "--out", tmp_path / "run")
    assert code == expected
    assert out == ""
    assert re.search(message, " ".join(told.split()))
    assert not (tmp_path / "run").exists()


def test_an_output_path_that_is_a_file_is_refused(small, tmp_path, geogp):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for out in (taken, taken / "run"):
        code, _, told = geogp(*small.arguments, "--out", out)
        assert code == 2
        assert "is a file; --out needs a folder" in told
    assert taken.read_text() == "mine"


@pytest.mark.trial
def test_a_range_with_a_gap_is_a_warning(small, tmp_path, geogp):
    out = tmp_path / "run"
    code, _, told = geogp(*small.arguments, "--quarters", "2023Q2..2023Q4", "--out", out)
    assert code == 0
    assert "warning: the source has no tiles of Demo for 2023Q2." in told
    assert json.loads((out / "run.json").read_text())["quarters_missing"] == ["2023Q2"]


def test_json_is_all_that_standard_output_holds(small, tmp_path, geogp):
    out = tmp_path / "run"
    code, told, _ = geogp(*small.arguments, "--out", out, "--json")
    assert code == 0
    content = json.loads(told)
    assert set(content) == {"run", "metrics"}
    assert content["run"] == str(out)
    assert content["metrics"] == json.loads((out / "run.json").read_text())["metrics"]
    again, told, _ = geogp("report", out, "--json")
    assert again == 0
    assert json.loads(told) == content


@pytest.mark.trial
def test_people_are_shown_a_table_and_where_to_look(finished, geogp):
    code, told, _ = geogp("report", finished.path)
    assert code == 0
    assert "urban" in told
    assert str(finished.path / "map.html") in told
    code, _, told = geogp("report", finished.path / "nowhere")
    assert code == 2
    assert "not a finished run" in told


@pytest.mark.trial
def test_tiles_as_a_geopackage_are_those_of_the_table(finished, tmp_path, geogp):
    run = shutil.copytree(finished.path, tmp_path / "run")
    code, told, _ = geogp("report", run, "--gpkg", "--json")
    assert code == 0
    assert json.loads(told)["tiles"] == str(run / "tiles.gpkg")
    table, package = gpd.read_parquet(run / "tiles.parquet"), gpd.read_file(run / "tiles.gpkg")
    assert list(package.columns) == list(table.columns)
    assert package.crs.equals(table.crs) or package.crs.to_epsg() == 4326
    assert package.geometry.geom_equals(table.geometry).all()
    assert (package["quadkey"] == table["quadkey"]).all()
    np.testing.assert_allclose(package["median_mbps"], table["median_mbps"])
    held = pyogrio.read_info(run / "tiles.gpkg")["layer_metadata"]
    assert held == {"attribution": json.loads((run / "run.json").read_text())["attribution"]}
    (run / "tiles.parquet").write_bytes(b"PAR1")
    code, _, told = geogp("report", run, "--gpkg")
    assert code == 3
    assert "tiles.parquet" in told


def test_models_and_version(geogp):
    names = [*CATALOGUE, *CLASS_CATALOGUE]
    models = json.loads(geogp("models", "--json")[1])["models"]
    assert list(models) == names
    assert models["dbk-mml"] == {
        "summary": "dbk-exact without the correction, for study: its variance collapses",
        "paper": "Zhu, Yuchi and Xie",
        "target": "average",
        "family": "deep",
        "recommended": False,
    }
    recommended = {one["target"]: name for name, one in models.items() if one["recommended"]}
    assert recommended == DEFAULT_MODELS | {"class": "class-dbk"}
    code, told, _ = geogp("models")
    assert code == 0
    rows = [re.split(r"\s*│\s*", line.strip("│ ")) for line in told.splitlines() if "│" in line]
    assert [row[0] for row in rows] == names
    assert ["field", "geogp", "average", "recommended"] in rows
    assert ["dnn", "", "average", "study"] in rows
    assert geogp("--version")[:2] == (0, f"{__version__}\n")


@pytest.mark.trial
def test_simulate_makes_a_source_that_can_be_mapped(tmp_path, geogp):
    made = tmp_path / "made"
    options = ("--out", made, "--rows", 1500, "--quarters", "2023Q4")
    code, told, _ = geogp("simulate", *options, "--json")
    assert code == 0
    content = json.loads(told)
    assert content["rows"] == 1500
    for scores in content["oracles"].values():
        assert scores["known"] < scores["predictive"]
    code, _, told = geogp(
        *("map", "DEMO", "--source", made, "--boundaries", made / "boundaries"),
        *("--preset", "quick", "--epochs", 1, "--zoom", 12, "--out", tmp_path / "run"),
    )
    assert code == 0, told
    quick = ("--out", tmp_path / "quick", *options[2:], "--no-oracles", "--json")
    code, told, _ = geogp("simulate", *quick)
    assert code == 0
    assert json.loads(told).keys() == content.keys() - {"oracles"}
    assert not list((tmp_path / "quick").glob("oracles*"))
    for path in (tmp_path / "quick").rglob("*.parquet"):
        assert path.read_bytes() == (made / path.relative_to(tmp_path / "quick")).read_bytes()
    code, _, told = geogp("simulate", "--out", tmp_path / "run")
    assert code == 2
    assert "not part of this simulation" in told
    code, _, told = geogp("simulate", *options, "--seed", 5)
    assert code == 2
    assert "not part of this simulation" in told
    assert geogp("simulate", *options)[0] == 0
    code, _, told = geogp("simulate", "--out", made / "oracles.json")
    assert code == 2
    assert "is a file" in told
    code, _, told = geogp("simulate", "--out", tmp_path / "many", "--rows", 10**9)
    assert code == 2
    assert "rows" in told
    assert not (tmp_path / "many").exists()


@pytest.mark.trial
def test_towns_are_made_up_where_none_are_at_hand(tmp_path, geogp):
    bare = Region.from_geometry("BARE", "Bare", box(-90.3, 32.0, -90.0, 32.2))
    made = simulate(bare, rows=10, quarters=(8095,), seed=0)
    write_simulation(made, bare, tmp_path / "bare")
    like = ("--like", "BARE", "--boundaries", tmp_path / "bare" / "boundaries")
    few = ("--rows", 800, "--quarters", "2023Q4", "--json")
    out = tmp_path / "towns"
    words = ("simulate", *like, *few, "--out", out)
    code, told, _ = geogp(*words, "--made-up-towns")
    assert (code, json.loads(told)["made_up_towns"]) == (0, True)
    assert geogp(*words, "--made-up-towns")[0] == 0
    code, _, told = geogp(*words)
    assert code == 2
    assert "not part of this simulation" in told
    code, told, told_of = geogp(
        *("map", "BARE", "--source", out, "--boundaries", out / "boundaries", "--json"),
        *("--model", "dbk-rbf", "--preset", "quick", "--epochs", 1, "--zoom", 12),
        *("--out", tmp_path / "run"),
    )
    assert code == 0, told_of
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["metrics"]["random"]["urban"]["n"] > 0

    again = (*few, "--boundaries", out / "boundaries", "--out", tmp_path / "again")
    code, told, said = geogp("simulate", "--like", "BARE", *again, "--made-up-towns")
    assert (code, json.loads(told)["made_up_towns"]) == (0, False)
    assert "Bare already has urban areas: --made-up-towns has no effect" in said
    assert geogp("simulate", "--like", "BARE", *again)[0] == 0


@pytest.mark.trial
def test_interrupted_and_continued_by_the_same_command(small, tmp_path, geogp):
    arguments = [*small.arguments, "--split", "random", "--epochs", "8", "--json"]
    out = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Started in the background, a test run ignores interrupts, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    seen = ""
    while "fit (random): " not in seen:
        line = process.stderr.readline()
        assert line, f"ended before the fit: {seen}"
        seen += line
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told == ""
    assert "give the same command again" in errors
    assert {path.name for path in out.iterdir()} == {".unfinished", LOCK_FILE}

    code, continued, _ = geogp(*arguments, "--out", out)
    assert code == 0
    code, whole, _ = geogp(*arguments, "--out", tmp_path / "whole")
    assert code == 0
    assert json.loads(continued)["metrics"] == json.loads(whole)["metrics"]


@pytest.mark.trial
def test_a_file_size_limit_is_reported_and_leaves_nothing(small, tmp_path):
    out = tmp_path / "run"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [*COMMAND, *small.arguments, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path)},
    )
    assert done.returncode == 2, done.stderr
    assert "disk is full or a file-size limit is reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "run.json").exists()
    left = [path for path in out.rglob("*") if path.is_file() and path.name != LOCK_FILE]
    assert [path.name for path in left if path.parent != out / ".unfinished"] == []
    assert not [path for path in left if path.stat().st_size == 20_000]
