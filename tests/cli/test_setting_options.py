"""What the settings of a map say of themselves is what the commands and batches know of them."""

import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from geogp.choices import settings_of
from geogp.commands.batch.batch_plan import MAP_SETTINGS, BatchRequest, Execution
from geogp.errors import RequestError
from geogp.records.map_settings import MapSettings
from geogp.runs.progress import ProgressListener
from geogp_cli import main
from geogp_cli.setting_options import CommandResult, panels_of, takes

COMMANDS = typer.main.get_command(main.app).commands
SETTINGS = settings_of(MapSettings)


@pytest.fixture
def asked():
    """Run `geogp map` on some words, and return the request that it makes."""
    found = []
    app = typer.Typer()

    @app.command()
    @takes(MapSettings)
    def keep(request: MapSettings, _listener: ProgressListener) -> CommandResult:
        found.append(request)
        return CommandResult({}, ())

    def call(*words):
        typer.main.get_command(app).main(list(words), standalone_mode=False)
        return found.pop()

    return call


def test_every_setting_is_in_one_panel_of_the_help():
    """The most used ones come first; the region is an argument."""
    panels = panels_of(MapSettings)
    assert panels.keys() == SETTINGS.keys()
    assert len(MapSettings.most_used) == 6
    shown = CliRunner().invoke(main.app, ["map", "--help"], env={"COLUMNS": "100"}).output
    titles = re.findall(r"^╭─ (.+?) ─+╮$", shown, re.MULTILINE)
    wanted = ["Most used", *(group.title for group in MapSettings.groups)]
    assert [title for title in titles if title in wanted] == wanted
    for title in wanted:
        panel = shown.split(f"╭─ {title} ─")[1].split("╰")[0]
        names = [name for name, of in panels.items() if of == title and name != "region"]
        words = [SETTINGS[name].option_name(name) for name in names]
        assert re.findall(r"^│ (--[a-z-]+)", panel, re.MULTILINE) == words


def test_every_setting_is_written_once():
    written = Counter(
        name
        for kind in MapSettings.__mro__
        for name in inspect.get_annotations(kind)
        if name in SETTINGS
    )
    del written["crs"]  # of polygons, and of points
    assert set(written.values()) == {1}


def test_every_setting_is_an_option_with_its_help():
    of_map, of_batch = (
        {one.name: one for one in COMMANDS[name].params} for name in ("map", "batch")
    )
    assert set(of_map) == {*SETTINGS, "as_json"}
    for name, one in SETTINGS.items():
        assert of_map[name].help.startswith(one.told)
        assert one.told.endswith(".")
    for kind in (MAP_SETTINGS, settings_of(BatchRequest), settings_of(Execution)):
        assert set(kind) < set(of_batch)


def test_nothing_said_is_the_request_of_the_defaults(asked):
    assert asked("PR") == MapSettings(region="PR")


def test_what_is_said_is_what_the_request_holds(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = (
        *("PR", "--source", "tiles", "--boundaries", "borders", "--for", "level"),
        *("--layer", "a.gpkg:NAME", "--layer", "b.gpkg", "--threshold", "5", "--threshold", "7.5"),
        *("--far-km", "3", "--seed", "4", "--tune-weights", "--out", "run"),
    )
    expected = MapSettings(
        "PR",
        source="tiles",
        boundaries="borders",
        question="level",
        layers=("a.gpkg:NAME", "b.gpkg"),
        threshold=(5.0, 7.5),
        far_km=3.0,
        seed=4,
        tune_weights=True,
        out=Path("run"),
    )
    assert asked(*words) == expected
    assert expected.layers == (f"{tmp_path / 'a.gpkg'}:NAME", str(tmp_path / "b.gpkg"))


def test_ranges_and_choices_are_those_that_are_said():
    checked = 0
    for name, one in SETTINGS.items():
        wrong = ["none of these"] if one.choices else []
        if one.least is not None:
            wrong += [one.least - 1, one.most + 1]
        elif one.positive:
            wrong += [0.0, one.most * 1.01]
        for value in wrong:
            with pytest.raises(RequestError, match=r"unknown .*; choose|expected .*, found"):
                MapSettings(**{"region": "PR", name: value})
            checked += 1
    assert checked == 32
