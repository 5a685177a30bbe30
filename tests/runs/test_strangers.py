"""A run from a stranger: what geogp never writes is refused, and no address of it is asked."""

import json

import pytest
from benchmark_scripts import load
from run_worlds import edited_copy, run_json

from geogp.answers.make import make_answer
from geogp.answers.requests import AreasRequest
from geogp.errors import DataError
from geogp.records.run_settings import GROUPS
from geogp.runs.run_places import RunPlaces

READING = {
    "report": (),
    "gallery": (),
    "compare": (),
    "figures": (),
    "areas": ("--by", "urban"),
    "exceedance": (),
    "change": ("--from", "2023Q3", "--by", "urban"),
    "next": ("--tiles", 2),
}
"""Every command that opens a run again, with what it needs."""

ASKING = ("areas", "exceedance", "change", "next", "figures")
"""Those that read its tiles and boundaries again."""

EDITS = [
    (("map", "zoom"), 30, "Expected `int` <= 16 - at `$.map.zoom`"),
    (("map", "tests"), "many", "Expected `int | null`, got `str` - at `$.map.tests`"),
    (("metrics",), None, "Expected `object`, got `null` - at `$.metrics`"),
    (("metrics",), {}, "expected scores of one split or more under metrics, found none"),
    (("metrics", "random", "all", "rmse"), 1e200, "at `$.metrics[...][...].rmse`"),
    (("metrics", "random", "urban", "n"), 5, "expected n of metrics.random.urban to be"),
    (("baseline", "random", "all", "nll"), 9.0, "expected nll of baseline.random.all to be"),
    (("baseline", "blocks"), ..., "expected random, blocks under baseline, found random"),
    (("folds", "random", 0, "baseline", "all", "mae"), 9.0, "mae of baseline.random.all to be 9.0"),
    (("n", "random", "train"), 7, "n.random differs from the first entry of folds.random"),
    (("model",), "field-9", "Invalid enum value 'field-9' - at `$.model`"),
    (("model",), "cox-nb", "the model cox-nb does not predict the target download"),
    (("target",), "ping", "Invalid enum value 'ping' - at `$.target`"),
    (("quarters",), ["2023Q5"], "at `$.quarters[0]`"),
    (("drawing", "far_km"), 0, "Expected `float` > 0.0 - at `$.drawing.far_km`"),
    (("settings", "data", "source"), 5, "Expected `str`, got `int` - at `$.settings.data.source`"),
]


PLACES = [
    {"source": "SERVER"},
    {"boundaries": "SERVER/boundaries"},
    {"source": "s3://somebodys-bucket"},
    {"source": "HTTP://127.0.0.1:9"},
    {"source": "memory://x"},
    {"boundaries": "file:///etc"},
    {"source": "simplecache::http://127.0.0.1:9/x"},
    {"source": "\\\\127.0.0.1\\share"},
    {"source": "//127.0.0.1/share"},
    {"region_file": "//127.0.0.1/share/a.gpkg"},
    {"strata": "/vsicurl/http://127.0.0.1:9/a.gpkg"},
]


def _set(run, place, value):
    *way, last = place
    for key in way:
        run = run[key]
    if value is ...:
        del run[last]
    else:
        run[last] = value


@pytest.fixture(scope="module")
def stranger(finished, tmp_path_factory):
    """What reading a run needs, but its run.json."""
    folder = tmp_path_factory.mktemp("stranger") / "run"
    folder.mkdir()
    for name in ("test_predictions.parquet", "model.safetensors", "grid.nc"):
        (folder / name).hardlink_to(finished.path / name)
    return folder


@pytest.mark.parametrize(
    ("command", "edit"),
    [*(("report", edit) for edit in EDITS), *((one, EDITS[0]) for one in READING)],
)
def test_an_edit_is_refused_in_words(finished, stranger, geogp, tmp_path, *, command, edit):
    place, value, told = edit
    run = json.loads(json.dumps(run_json(finished)))
    _set(run, place, value)
    (stranger / "run.json").write_text(json.dumps(run))
    before = sorted(stranger.iterdir())
    runs = [stranger, finished.path] if command == "compare" else [stranger]
    out = ["--out", tmp_path / command] if command in {"compare", "gallery"} else []
    code, said, error = geogp(command, *runs, *READING[command], *out)
    assert (code, said) == (3, "")
    assert told in error.replace("\n", " ")
    assert "run.json is damaged: " in error
    assert "Traceback" not in error
    assert sorted(stranger.iterdir()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda run: run["map"].update(zoom=12), r"says that the map has 313 tiles of zoom 12"),
        (lambda run: run["map"].update(zoom=16, tiles=10**6), r"1000000 tiles of zoom 16"),
        (lambda run: run.update(model="dbk-rbf"), r"says model dbk-rbf, but model\.safetensors"),
        (lambda run: run.update(target="upload"), r"says target upload, but model\.safetensors"),
        (
            lambda run: (
                run.update(quarters=["2023Q4"]),
                run["settings"]["model"].update(inputs="place"),
            ),
            r"expected 1,500 rows \(n in .*\), found 757",
        ),
    ],
)
def test_what_its_other_files_contradict_is_refused(finished, tmp_path, change, told):
    run = edited_copy(finished.path, tmp_path / "run", change)
    with pytest.raises(DataError, match=told):
        make_answer(AreasRequest(run, by="urban", draws=200))


@pytest.fixture
def served(small, monkeypatch, tmp_path):
    """The source of the finished run, at an address that counts who asks."""
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    with load("faults.faulty_server").serving(small.folder) as server:
        yield server


def _lure(server, places):
    """Return what makes a run.json name places on a server, given relative to it."""

    def change(run):
        for key, place in places.items():
            group = next(group for group, names in GROUPS.items() if key in names)
            run["settings"][group][key] = place.replace("SERVER", server.url)

    return change


@pytest.mark.parametrize(
    ("command", "places"),
    [*(("areas", places) for places in PLACES), *((command, PLACES[0]) for command in ASKING[1:])],
    ids=str,
)
def test_no_address_of_a_run_is_asked(
    finished, stranger, served, geogp, monkeypatch, *, command, places
):
    monkeypatch.setenv("AWS_ENDPOINT_URL", served.url)  # a bucket that is asked is asked here
    run = json.loads(json.dumps(run_json(finished)))
    _lure(served, places)(run)
    (stranger / "run.json").write_text(json.dumps(run))
    code, said, error = geogp(command, stranger, *READING[command])
    assert (code, said) == (2, "")
    assert "Traceback" not in error
    assert served.told.requests == []


def test_an_address_that_is_named_is_read(finished, served, geogp, tmp_path):
    places = {"source": served.url, "boundaries": f"{served.url}/boundaries"}
    run = edited_copy(finished.path, tmp_path / "run", _lure(served, places))
    asked = ("areas", run, "--by", "urban", "--draws", 200)
    code, _, error = geogp(*asked, "--source", served.url)
    assert (code, served.told.requests) == (2, [])
    assert f"takes its boundaries from '{served.url}/boundaries'" in error
    assert "Give --boundaries with this address" in error
    code, _, error = geogp(*asked, *(f"--{key}={place}" for key, place in places.items()))
    assert code == 0, error
    assert len(served.told.requests) > 2


def test_the_same_files_are_read_from_a_folder_instead(finished, served, small, tmp_path):
    places = {"source": served.url, "boundaries": f"{served.url}/boundaries"}
    run = edited_copy(finished.path, tmp_path / "run", _lure(served, places))
    own = RunPlaces(str(small.folder), str(small.folder / "boundaries"))
    assert make_answer(AreasRequest(run, by="urban", draws=200, **vars(own))).files
    assert served.told.requests == []


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/stdin", "/dev"])
def test_a_device_is_no_file(finished, tmp_path, place):
    run = edited_copy(
        finished.path, tmp_path / "run", lambda run: run["settings"]["where"].update(strata=place)
    )
    with pytest.raises((DataError, ValueError), match=f"no file {place}"):
        make_answer(AreasRequest(run, by="urban", draws=200))
