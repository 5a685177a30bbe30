"""The main job and its finished run from a program."""

import inspect
from typing import get_type_hints

import geopandas as gpd
import pytest

import geogp
from geogp.answers.make_run import MapCall
from geogp.choices import settings_of
from geogp.errors import RequestError
from geogp.records.map_settings import MapSettings

SETTINGS = settings_of(MapSettings)


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
    message = r"make_map has no setting 'epoch'\. Did you mean epochs\? The settings are region"
    with pytest.raises(RequestError, match=message):
        geogp.make_map("DEMO", epoch=1)
    with pytest.raises(RequestError, match=r"no setting 'zzz'\. The settings are region"):
        geogp.make_map("DEMO", zzz=1)


def test_settings_are_arguments_with_their_help_texts():
    """Editors, type checkers and the reference see them."""
    arguments = inspect.signature(geogp.make_map).parameters
    assert arguments.keys() == {*SETTINGS, "listener"}
    kinds = get_type_hints(MapSettings) | get_type_hints(MapCall)
    for name, one in SETTINGS.items():
        default = MapSettings.__dataclass_fields__[name].default
        assert (arguments[name].annotation, arguments[name].default) == (kinds[name], default)
        told = one.told.split("--")[0] if name != "region" else "A state, such as PR; or a file"
        assert f"\n{name} : {inspect.formatannotation(kinds[name])}\n    {told}" in (
            geogp.make_map.__doc__
        )
    assert "{settings}" not in geogp.make_map.__doc__
    assert "this option" not in geogp.make_map.__doc__


def test_other_calls_than_those_of_the_signature_are_refused():
    with pytest.raises(TypeError, match=r"geogp\.make_map: too many positional arguments"):
        geogp.make_map("PR", "tiles")
    with pytest.raises(TypeError, match=r"geogp\.make_map: multiple values for .*'region'"):
        geogp.make_map("PR", region="DEMO")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"region": 5}, r"expected region as text or a path or None, found 5"),
        ({"listener": 5}, r"expected listener as ProgressListener or None, found 5"),
        ({"out": 5}, r"expected out as a path or text or None, found 5"),
    ],
)
def test_arguments_of_another_kind_are_refused(changes, message):
    with pytest.raises(RequestError, match=message):
        geogp.make_map(**{"region": "PR", **changes})


def test_a_region_may_be_a_file_but_not_beside_another(tmp_path):
    path = tmp_path / "own.geojson"
    path.write_text("{}")
    for region in (path, str(path), f"{path}:side=west"):
        call = MapCall(region, out=str(tmp_path / "run"))
        assert (call.region, call.region_file) == (None, str(region))
        assert call.out == tmp_path / "run"
    with pytest.raises(RequestError, match=r"is a file, not a region|but not both"):
        MapCall(path, region_file=str(path))


def test_a_file_is_a_region(tmp_path):
    path = tmp_path / "own.geojson"
    path.write_text("{}")
    with pytest.raises(geogp.DataError, match="own"):
        geogp.make_map(path, source=str(tmp_path), out=tmp_path / "run")
