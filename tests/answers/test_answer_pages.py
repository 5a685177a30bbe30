"""Answers of later commands in the pages of a run: read from JSON, and rendered."""

import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from run_worlds import Heard

from geogp.answers.make import make_answer, make_answers
from geogp.answers.pages import (
    layers_of,
    read_answers,
    remake_report,
    show_answers,
)
from geogp.answers.requests import AreasRequest, ChangeRequest, ExceedanceRequest, NextRequest
from geogp.answers.shown_map import make_shown_map
from geogp.errors import DataError, OutputError
from geogp.maps.page.interactive_page import PageAnswers, with_answers
from geogp.reports.words import MISSING
from geogp.runs.file_records import damaged_files, record_files
from geogp.runs.run_folder import read_run_record

AREA = {"area": "Añasco <b>", "tiles": 1200, "measured_tiles": 30, "far_share": 0.25}
BOUNDS = {
    f"level_{kind}{end}_mbps": value
    for kind in ("mean", "median")
    for end, value in {"": 12.34, "_lower": 10.0, "_upper": 15.06}.items()
}
REGION = {"is": "below 7 Mbps", "tiles": 0, "tiles_interval": [0, 3], "probability": 1.0}
TOLD = {
    "areas_county_download_level_2023Q4": {
        "for": "level",
        "by": "county",
        "at": "2023Q4",
        "unit": "Mbps",
        "warnings": ["a warning"],
        "areas": [AREA | BOUNDS | {"tests": 77}],
    },
    "change_county_download_2022Q1_2023Q4": {
        "for": "level",
        "by": "county",
        "from": "2022Q1",
        "to": "2023Q4",
        "unit": "Mbps",
        "areas": [
            AREA
            | {"level_from_mbps": 8.0, "level_to_mbps": 12.0, "change_percent": 50.0}
            | {"change_lower_percent": -2.0, "change_upper_percent": 110.0}
            | {"probability_rose": 0.971, "direction": ""}
        ],
    },
    "exceedance_7_mbps": {
        "for": "level",
        "at": "2023Q4",
        "falls_short": "below 7 Mbps",
        "notes": ["a note"],
        "joint_regions": {"short": REGION},
        "share_falling_short": [
            AREA
            | {"layer": "whole region", "area_km2": 5397.1}
            | {"mean": 0.123, "lower": 0.1, "upper": 0.2}
        ],
    },
    "next_tiles": {
        "at": "2023Q4",
        "tests": 3,
        "devices": None,
        "removed": 0.1,
        "removed_by_widest": 0.05,
        "counted": "all tiles",
        "counted_tiles": 9,
        "chosen": [
            {"rank": 1, "longitude": -66.5, "latitude": 18.25, "stratum": "rural", "tests": 0}
            | {"sd_before_log10": 0.4, "sd_after_log10": 0.3, "removed": 0.0123}
        ],
    },
}
CELLS = {
    "areas_county_download_level_2023Q4": [
        "1,200",
        "30",
        "25%",
        "77",
        *2 * ["12.3", "10.0 to 15.1"],
    ],
    "change_county_download_2022Q1_2023Q4": [
        *("1,200", "25%", "8.0", "12.0", "+50.0 %", "-2.0 to +110.0 %", "0.971", ""),
    ],
    "exceedance_7_mbps": ["1,200", "5,397", "12.3%", "10.0% to 20.0%"],
    "next_tiles": ["-66.5000", "18.2500", "rural", "0", "0.400", "0.300", "1.23%"],
}


RASTERS = {
    "change_county_download_2022Q1_2023Q4": [
        *(
            "change_percent_download_2022Q1_2023Q4.tif",
            "probability_rose_download_2022Q1_2023Q4.qml",
        ),
    ],
    "exceedance_7_mbps": ["excursion_7_mbps.tif", "excursion_short_7_mbps.tif"],
}


@pytest.fixture
def folder(finished, tmp_path):
    """A run folder with its report and its page, and no answer."""
    path = shutil.copytree(finished.path, tmp_path / "run")
    Image.new("RGB", (1400, 700), "red").save(path / "median.png")
    return path


def write(folder, name):
    (folder / f"{name}.json").write_text(json.dumps(TOLD[name]), "utf-8")
    Image.new("RGB", (30, 20)).save(folder / f"{name.replace('exceedance', 'excursion')}.png")
    for one in (f"{name}.csv", *RASTERS.get(name, [])):
        (folder / one).write_text("area\n", "utf-8")


def pages(folder):
    """Return the pages with all answers."""
    show_answers(folder)
    names = ("report.html", "report.md", "map.html")
    assert not {*names} & {*damaged_files(folder, read_run_record(folder)[1])}
    return {name: (folder / name).read_text("utf-8") for name in names}


@pytest.mark.parametrize("name", TOLD)
def test_each_answer_is_a_table_with_its_files(folder, name):
    write(folder, name)
    (one,) = (stored.shown for stored in read_answers(folder))
    assert len(one.head) == len(one.rows[0])
    assert one.rows[0][1:] == CELLS[name]
    picture = f"{name.replace('exceedance', 'excursion')}.png"
    assert set(one.files) == {f"{name}.json", f"{name}.csv", picture, *RASTERS.get(name, [])}
    assert one.picture == picture
    text = pages(folder)
    assert f"### {one.title}" in text["report.md"]
    assert f'<a href="{picture}"><img' in text["report.html"]
    for page in (text["report.html"], text["report.md"]):
        for cell in filter(None, CELLS[name]):
            assert cell in page.replace("\N{NO-BREAK SPACE}%", " %")
        assert "Añasco <b>" not in page
    (target,) = re.findall(r'href="report.html#(.*?)"', text["map.html"])
    assert f'id="{target}"' in text["report.html"]


@pytest.mark.parametrize(
    ("request_of", "settings", "name"),
    [
        (AreasRequest, {"by": "stratum"}, "areas_stratum_download_level_2023Q4"),
        (
            ChangeRequest,
            {"by": "stratum", "start": "2023Q3"},
            "change_stratum_download_2023Q3_2023Q4",
        ),
        (ExceedanceRequest, {"threshold": (25,)}, "excursion_download_level_2023Q4_25_mbps"),
        (NextRequest, {"tiles": 3}, "next_tiles"),
    ],
)
def test_an_answer_without_all_its_files_has_no_record(folder, request_of, settings, name):
    before = {*folder.glob("*.json")}
    make_answers(request_of(folder, **settings))
    assert {*folder.glob("*.json")} > before
    (folder / f"{name}.png").unlink()
    (folder / f"{name}.png").mkdir()
    with pytest.raises(OutputError, match=rf"{name}\.png"):
        make_answers(request_of(folder, **settings))
    assert {*folder.glob("*.json")} == before


@pytest.mark.parametrize("name", TOLD)
def test_files_whose_names_begin_alike_are_those_of_other_answers(folder, name):
    write(folder, name)
    (alone,) = (stored.shown for stored in read_answers(folder))
    starts = [name, *(Path(raster).stem for raster in RASTERS.get(name, []))]
    for start in starts:
        for end in ("_by_people.csv", ".v2.tif", "_by_people.png"):
            (folder / f"{start}{end}").touch()
    (beside,) = (stored.shown for stored in read_answers(folder))
    assert beside == alone


def test_the_tables_of_all_layers_are_files_of_the_answer(folder):
    rows = TOLD["exceedance_7_mbps"]["share_falling_short"]
    content = {
        **TOLD["exceedance_7_mbps"],
        "share_falling_short": [*rows, {**rows[0], "layer": "county"}],
    }
    (folder / "exceedance_7_mbps.json").write_text(json.dumps(content), "utf-8")
    for end in ("", "_county", "_tract"):
        (folder / f"exceedance_7_mbps{end}.csv").touch()
    (answer,) = (stored.shown for stored in read_answers(folder))
    assert answer.files == [
        *("exceedance_7_mbps.csv", "exceedance_7_mbps.json", "exceedance_7_mbps_county.csv"),
    ]


def test_the_first_page_ranks_the_levels_of_areas_near_data(folder):
    name = "areas_county_download_level_2023Q4"
    level = {"level_mean_mbps": 20.0, "level_mean_lower_mbps": 10.0, "level_mean_upper_mbps": 40.0}
    ranks = {"rank": 1, "rank_lower": 1, "rank_upper": 2}
    row = TOLD[name]["areas"][0] | ranks
    rows = [row, row | level | {"area": "B"}, row | {"area": "far", "far_share": 0.51}]
    told = TOLD[name] | {"areas": [*rows, row | {"level_mean_mbps": None}]}
    for change, count in (({}, 2), ({"for": "tile-mean"}, None), ({"weights": "people"}, None)):
        tiles = {f"tile_mean{end}_mbps": 1.0 for end in ("", "_lower", "_upper")}
        tiles |= {key.replace("tile_mean", "level_weighted"): 1.0 for key in tiles}
        areas = [one | tiles for one in told["areas"]]
        (folder / f"{name}.json").write_text(json.dumps(told | change | {"areas": areas}), "utf-8")
        (one,) = (stored.shown.ranked for stored in read_answers(folder))
        assert (one and len(one.means)) == count
        if count:
            # Half of the median width: the factors of the intervals are 4 and about 1.5.
            factor = (4 * 15.06 / 10) ** 0.25
            assert one.within == f"{100 * (factor - 1):.0f} %"
            assert (one.far, one.by, one.at, one.means[1].ranks) == (1, "county", "2023Q4", (1, 2))
            assert "B; 95 % interval 10.0 to 40.0" in pages(folder)["report.md"]
    write(folder, name := "change_county_download_2022Q1_2023Q4")
    changed = read_answers(folder)[1].shown.changed
    assert changed.text.startswith(
        "Of 1 area, 0 rose and 0 fell for certain. They may have changed, but"
    )
    assert f"**The change from 2022Q1 to 2023Q4**: {changed.text}" in pages(folder)["report.md"]


def test_pages_show_the_map_and_follow_the_folder(folder):
    plain = pages(folder)
    assert 'href="map.html"' in plain["report.html"]
    assert "![Map of the download speed](median.png)" in plain["report.md"]
    (picture,) = re.findall(r'src="data:image/webp;base64,([^"]+)"', plain["report.html"])
    assert len(picture) < 10_000
    for name in TOLD:
        write(folder, name)
    full = pages(folder)
    assert pages(folder) == full
    assert full["report.html"].count("data:image/webp") == 1 + len(TOLD)
    assert [full["report.html"].count(one) for one in ("a warning", "a note")] == [1, 1]
    for path in [one for name in TOLD for one in folder.glob(f"{name}.*")]:
        path.unlink()
    assert pages(folder) == plain


def test_edited_pages_stay_as_they_are_until_the_report_is_made_again(folder):
    write(folder, "next_tiles")
    (folder / "report.html").write_text("<p>edited</p>", "utf-8")
    (folder / "report.md").unlink()
    show_answers(folder)
    assert (folder / "report.html").read_text("utf-8") == "<p>edited</p>"
    assert not (folder / "report.md").exists()
    remake_report(folder)
    for name in ("report.html", "report.md"):
        assert "Where to measure next" in (folder / name).read_text("utf-8")


def test_a_page_of_another_version_stays_and_a_warning_says_so(folder):
    write(folder, "next_tiles")
    page = (folder / "map.html").read_text("utf-8")
    other = page.replace("script-src &#39;sha256-", "script-src &#39;sha256-0")
    assert other != page
    (folder / "map.html").write_text(other, "utf-8")
    _, run = read_run_record(folder)
    record_files(folder / "run.json", run, ["map.html"])
    heard = Heard()
    show_answers(folder, heard)
    assert (folder / "map.html").read_text("utf-8") == other
    (warning,) = heard.warnings
    assert "map.html was written by another version of geogp" in warning


@pytest.mark.parametrize(
    ("name", "kind", "cells"),
    [
        ("areas_county_download_level_2023Q4", "level", ["2.3", "1.0 to 3.6"]),
        ("areas_county_download_level_2023Q4", "tile-mean", ["2.3", "1.0 to 3.6"]),
        ("exceedance_7_mbps", "level", ["22.2%", "20.0% to 30.0%"]),
    ],
)
def test_shares_and_means_with_weights_stand_beside_those_without(folder, name, kind, cells):
    told = TOLD[name] | {"weights": "/home/me/people.tif", "for": kind}
    rows = "areas" if "areas" in told else "share_falling_short"
    ends, row = ("", "_lower", "_upper"), {}
    for k, end in enumerate(ends):
        row |= {f"tile_mean{end}_mbps": 9.0, f"level_weighted{end}_mbps": (2.3, 1.0, 3.6)[k]}
        row |= {f"tile_weighted{end}_mbps": (2.3, 1.0, 3.6)[k]}
        row[f"weighted{end or '_mean'}"] = (0.222, 0.2, 0.3)[k]
    told |= {rows: [told[rows][0] | row]}
    (folder / f"{name}.json").write_text(json.dumps(told), "utf-8")
    (one,) = (stored.shown for stored in read_answers(folder))
    assert one.rows[0][-2:] == cells
    assert one.head[-1] == "95 % interval by people.tif"
    assert ("mean of measurements" in one.title) == (kind == "tile-mean")


@pytest.mark.parametrize(
    "told",
    [
        *("[]", "{}", "{", '{"at": "2023Q4", "chosen": [{"rank": 1}]}', '{"at": 1, "chosen": 2}'),
        json.dumps(TOLD["next_tiles"]).replace("0.4", str(10**400)),
    ],
)
def test_other_files_are_named_beside_the_answers(folder, told):
    write(folder, "exceedance_7_mbps")
    (folder / "next_tiles.json").write_text(told, "utf-8")
    answer, other = (one.shown for one in read_answers(folder))
    assert (len(answer.rows), len(other.rows)) == (1, 0)
    (note,) = other.notes
    assert note.startswith("This file is not an answer that geogp wrote")


@pytest.mark.parametrize("told", ["[]", "{}", "{", '{"by": Infinity}'])
def test_the_map_names_answers_that_it_cannot_show(folder, told):
    write(folder, "areas_county_download_level_2023Q4")
    (folder / "areas_county_download_level_2023Q4.json").write_text(told, "utf-8")
    write(folder, "change_county_download_2022Q1_2023Q4")
    layers, notes = layers_of(folder, read_answers(folder))
    assert layers == []
    fault, lost = notes
    assert "missing required field `for` in the JSON file" in fault
    assert "2023Q4.tif or far.tif is missing or damaged. Give the command again." in lost


def test_the_pages_show_notes_on_other_files(folder):
    (folder / "areas_x.json").write_text("{}", "utf-8")
    texts = pages(folder)
    for name in ("report.html", "report.md"):
        assert "This file is not an answer that geogp wrote" in texts[name]
    assert "areas_x is not on this map: Object missing required field" in texts["map.html"]
    assert 'id="geogp-answers">[]</script>' in texts["map.html"]


def test_empty_cells_are_dashes(folder):
    told = json.dumps(TOLD["next_tiles"]).replace("0.4", "null").replace("-66.5", "null")
    (folder / "next_tiles.json").write_text(told, "utf-8")
    (one,) = (stored.shown for stored in read_answers(folder))
    assert [one.rows[0][at] for at in (1, 5)] == [MISSING, MISSING]


def test_damaged_pictures_are_refused(folder):
    write(folder, "next_tiles")
    (folder / "next_tiles.png").write_text("no picture", "utf-8")
    with pytest.raises(DataError, match=r"next_tiles\.png cannot be read as a picture"):
        show_answers(folder)


@pytest.mark.usefixtures("no_pictures")
def test_a_map_that_is_drawn_again_shows_the_answers_that_were_kept(small, plain, tmp_path):
    run = shutil.copytree(plain.path, tmp_path / "run")
    make_answer(AreasRequest(run, by="stratum", draws=200))
    (run / "map.html").unlink()
    made = make_shown_map(small.request(run, model="dbk-silu"))
    assert not made.already_there
    assert "areas_stratum" in (run / "map.html").read_text("utf-8")
    assert "areas_stratum" in (run / "report.html").read_text("utf-8")
    assert damaged_files(run, made.record) == []
    assert made.record.seconds["write"] > 0


@pytest.mark.parametrize(
    ("now", "older"),
    [('"base_map":', '"streets":'), ('id="geogp-data">{', 'id="geogp-data">(')],
    ids=["without a key", "no JSON"],
)
def test_a_page_with_data_of_another_version_stays(folder, now, older):
    page = (folder / "map.html").read_text("utf-8")
    assert page.count(now) == 1
    assert with_answers(page, PageAnswers()) is not None
    assert with_answers(page.replace(now, older), PageAnswers()) is None
