"""Help and refusals come at once: they import nothing of what makes a map."""

import json
import subprocess
import sys

import pytest

# What takes a second or more to import, or comes with something that does.
SLOW = {
    *("torch", "geopandas", "matplotlib", "pandas", "rasterio", "xarray", "pyarrow"),
    *("scipy", "shapely", "distributed"),
}

# Run commands one after the other, and tell of each its exit code, its words and what it imported.
RUNS = """
import contextlib, io, json, sys
slow, found = set(json.loads(sys.argv[1])), []
for words in json.loads(sys.argv[2]):
    before, said, code = slow & set(sys.modules), io.StringIO(), 0
    sys.argv[1:] = words
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            import geogp
            if words:
                from geogp_cli.entry import run
                run()
        except SystemExit as stop:
            code = stop.code
    imported = sorted(slow & set(sys.modules) - before)
    found.append((code, said.getvalue(), imported))
print(json.dumps(found))
"""

COMMANDS = (
    *("map", "demo", "report", "compare", "simulate", "models", "areas", "batch", "next", "change"),
    *("exceedance", "figures", "doctor", "fetch", "cache", "gallery", "at", "points", "open"),
    "verify",
)

QUICK = (
    (),  # `import geogp` alone
    *(("--help",), ("--version",), ("models",), ("models", "--json")),
    *((name, "--help") for name in COMMANDS),
    *(("cache", name, "--help") for name in ("list", "clear")),
)

MAP = ("map", "PR")
BATCH = ("batch", "--states", "PR", "--out", "runs")

REFUSED = {
    ("map", "XX"): "unknown region 'XX'. Nearest: Texas (TX). For a region of another source, give",
    ("fetch", "Puerto Rica"): "unknown region 'Puerto Rica'. Nearest: Puerto Rico (PR)",
    (*MAP, "--preset", "quikc"): "unknown preset 'quikc'; choose one of quick, standard, paper.",
    (*MAP, "--model", "dbk-rfb"): "unknown model 'dbk-rfb'",
    (*MAP, "--model", "cox"): "--target download needs a model for averages, found --model cox",
    (*MAP, "--noise", "cauchy"): "unknown noise 'cauchy'",
    (*MAP, "--noise", "student-t"): "field has no student-t noise",
    (*MAP, "--target", "downlaod"): "unknown target 'downlaod'",
    (*MAP, "--service", "wifi"): "unknown service 'wifi'",
    (*MAP, "--split", "block"): "unknown split 'block'",
    (*MAP, "--conformal", "margnal"): "unknown repair 'margnal'",
    (*MAP, "--inputs", "space"): "unknown inputs 'space'",
    (*MAP, "--for", "median"): "unknown question 'median'",
    (*MAP, "--device", "gpu"): "unknown device 'gpu'; choose one of auto, cpu, cuda",
    (*MAP, "--urban-vintage", "1990"): "unknown vintage of urban areas '1990'",
    (*MAP, "--region-file", "a.geojson"): "expected a region, such as PR, or --region-file",
    (*MAP, "--region-name", "Island"): "--region-name Island is only for a --region-file",
    (*MAP, "--units", "Mbps"): "--units describes a file of your own tests",
    (*MAP, "--points", "a.csv", "--units", "furlongs"): "unknown unit 'furlongs'",
    (*MAP, "--points", "a.csv", "--columns", "lat=a"): "unknown column 'lat'",
    (*MAP, "--quarters", "2023Q5"): "found '2023Q5'",
    (*MAP, "--quarters", "2023Q4..2023Q1"): "ends before it starts",
    (*MAP, "--at", "2023"): "found '2023'",
    (*MAP, "--seed", "-1"): "expected a seed from 0 to 9,223,372,036,854,775,807, found -1",
    (*MAP, "--seed", "one"): "Invalid value for '--seed'",
    (*MAP, "--zoom", "17"): "expected a zoom from 1 to 16, found 17",
    (*MAP, "--folds", "6"): "folds from 1 to 5, found 6",
    (*MAP, "--epochs", "0"): "expected epochs from 1 to 100,000, found 0",
    (*MAP, "--tests", "0"): "expected tests from 1 to 1,000,000, found 0",
    (*MAP, "--far-km", "0"): "expected a distance above 0 km, at most 20,000, found 0",
    (*MAP, "--split", "buffer", "--buffer-km", "nan"): "expected a buffer above 0 km",
    (*MAP, "--buffer-km", "8"): "--buffer-km 8 is for the split buffer",
    (*MAP, "--budget", "60"): "--budget chooses the rank, but only of models",
    (*MAP, "--model", "nngp", "--budget", "-1"): "expected a budget above 0 seconds",
    (*MAP, "--threshold", "-5"): "expected a threshold from 0.001 to 1e+06 Mbps, found -5",
    (*MAP, "--target", "tests", "--for", "level"): "--target tests predicts the number of tests",
    (*MAP, "--colour", "red"): "No such option",
    (*MAP, "--region-name="): "expected a value, found no value (--region-name=)",
    ("map",): "expected a region, such as PR, or --region-file",
    ("demo", "--device", "gpu"): "unknown device 'gpu'",
    ("demo", "--seed", "-1"): "found -1",
    ("batch", "--out", "runs"): "a batch needs states (PR VI, or --states PR,VI) and --out",
    ("batch", "PR"): "a batch needs states",
    (*BATCH, "VI"): "expected the states once, found VI and --states",
    (
        "areas",
        "run",
        "--by",
        "countie",
    ): "choose stratum, h3:RESOLUTION, county, urban, tract, FILE",
    ("change", "run", "--from", "2022Q1", "--by", "countie"): "Did you mean county?",
    ("exceedance", "run", "--by", "none.shp"): "unknown --by 'none.shp'",
    ("next", "run", "--by", "stratum", "--in", "x"): "choose county, urban, tract, FILE",
    ("open", "nowhere"): "nowhere",
    ("map", "Porto", "Rico"): "A name of several words needs",
    ("batch", "--resume", "runs", "--seed", "1"): "Leave out seed",
    (*BATCH, "--preset", "quikc"): "unknown preset 'quikc'",
    (*BATCH, "--targets", "upload,downlaod"): "unknown target 'downlaod'",
    (*BATCH, "--quarters", "2023Q5"): "found '2023Q5'",
    (*BATCH, "--each-quarter"): "--each-quarter makes one run for each quarter",
    (*BATCH, "--workers", "0"): "expected workers from 1 to 1,000, found 0",
    (*BATCH, "--memory", "-1"): "expected a memory limit above 0 GB",
    (*BATCH, "--retries", "-1"): "expected retries from 0 to 1,000, found -1",
    ("fetch", "PR", "--service", "wifi"): "unknown service 'wifi'",
    ("fetch", "PR", "--quarters", "2023"): "found '2023'",
    ("fetch",): "expected a region, such as PR, or --region-file",
    ("simulate", "--out", "made", "--rows", "0"): "expected rows from 1 to 100,000,000, found 0",
    ("simulate", "--out", "made", "--seed", "-1"): "found -1",
    ("simulate", "--out", "made", "--service", "wifi"): "unknown service 'wifi'",
    ("simulate", "--out", "made", "--quarters", "2023"): "found '2023'",
    ("areas", "run", "--for", "median"): "unknown --for 'median'",
    ("areas", "run", "--draws", "10"): "expected draws from 200 to 100,000, found 10",
    ("areas", "run", "--device", "gpu"): "unknown device 'gpu'; choose one of auto, cpu, cuda",
    ("exceedance", "run", "--seed", "-1"): "found -1",
    ("verify", "run", "--quarters", "2023Q5"): "found '2023Q5'",
    ("next", "run", "--tiles", "0"): "expected tiles from 1 to 1,000,000, found 0",
    (
        "next",
        "run",
        "--by",
        "urban",
    ): "--by urban names a kind of area. Choose an area of this kind with --in",
    ("next", "run", "--candidates", "60"): "expected 100 candidates or more for 50 tiles, found 60",
    ("next", "nowhere"): "nowhere",
    ("at", "18.2,-66.4", "nowhere"): "nowhere",
    ("at", "18.2,-66.4", "run", "--near-km", "0"): "expected a distance above 0 km",
    ("at", "18.2,-66.4", "run", "--for", "median"): "unknown --for 'median'",
    ("points", "a.csv", "--units", "furlongs"): "unknown unit 'furlongs'",
    ("figures", "run", "--device", "gpu"): "unknown device 'gpu'",
    ("figures", "nowhere"): "nowhere",
}


def told_of(commands):
    """Exit code, words and slow imports of each command, all run by one process."""
    texts = (json.dumps(sorted(SLOW)), json.dumps(commands))
    done = subprocess.run(
        [sys.executable, "-c", RUNS, *texts], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def told():
    commands = [*QUICK, *REFUSED]
    return dict(zip(commands, told_of(commands), strict=True))


@pytest.mark.parametrize("words", [*QUICK, *REFUSED], ids=" ".join)
def test_help_and_refusals_import_nothing_slow(words, told):
    code, said, imported = told[words]
    assert imported == []
    assert code == (2 if words in REFUSED else 0)
    assert REFUSED.get(words, "") in " ".join(said.split())


@pytest.mark.trial
def test_what_is_slow_would_be_seen():
    (found,) = told_of([["report", "nowhere"]])
    assert found[0] == 2
    assert "torch" in found[2]
