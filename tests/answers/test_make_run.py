"""The main job and its finished run from a program."""

from typing import get_type_hints

import geopandas as gpd
import pytest

import geogp
from geogp.answers.make_run import MapSettings
from geogp.errors import RequestError
from geogp.runs.settings import MapRequest


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    return geogp.make_map(
        "DEMO",
        source=str(small.folder),
        boundaries=str(small.folder / "boundaries"),
        preset="quick",
        epochs=2,
        zoom=12,
        out=tmp_path_factory.mktemp("library") / "run",
    )


@pytest.mark.trial
def test_a_map_and_its_answers(run):
    assert (run.path / "map.html").is_file()
    assert run.record.region == "DEMO"
    assert set(run.predictions.split) == {"random"}
    areas = run.areas(by="urban")
    assert isinstance(areas, gpd.GeoDataFrame)
    assert len(areas)
    assert len(run.next(3)) == 3
    assert {7.0} == set(run.exceedance([7.0]).threshold)


@pytest.mark.trial
def test_an_opened_run_is_the_one_that_was_made(run):
    again = geogp.open_run(run.path)
    assert again.record == run.record
    assert (again.areas(by="urban").drop(columns="geometry")).equals(
        run.areas(by="urban").drop(columns="geometry")
    )
    model = geogp.load_model(run.path / "model.safetensors")
    rows = run.predictions
    assert model.time == "quarter"
    law = model.predict_distribution(rows.assign(quarter=rows.quarter.astype("period[Q]")))
    assert law.mean == pytest.approx(rows["mean"].to_numpy())


def test_an_unknown_setting_is_refused():
    with pytest.raises(RequestError, match=r"found epoch\. The settings are region"):
        geogp.make_map("DEMO", epoch=1)


def test_settings_are_those_of_a_request():
    """Editors and type checkers see them, by name and type."""
    told = get_type_hints(MapSettings)
    wanted = get_type_hints(MapRequest)
    for name in ("region", "region_file", "out"):  # parameters of their own
        del wanted[name]
    assert list(told.items()) == list(wanted.items())


def test_a_file_is_a_region(tmp_path):
    path = tmp_path / "own.geojson"
    path.write_text("{}")
    with pytest.raises(geogp.DataError, match="own"):
        geogp.make_map(path, source=str(tmp_path), out=tmp_path / "run")
