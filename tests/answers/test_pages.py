"""Answers of later commands in the pages of a run: read from JSON, shown between marks."""

import json
import re

import pytest
from geogp.reports.shown_answers import pages_beside, read_answers
from PIL import Image
from run_worlds import as_record

from geogp.errors import DataError
from geogp.reports.run_report import report_texts
from geogp.reports.words import MISSING

AREA = {"area": "Añasco <b>", "tiles": 1200, "measured_tiles": 30, "far_share": 0.25}
BOUNDS = {"level_mean_mbps": 12.34, "level_mean_lower_mbps": 10.0, "level_mean_upper_mbps": 15.06}
TOLD = {
    "areas_county_download_level_2023Q4": {
        "for": "level",
        "by": "county",
        "at": "2023Q4",
        "unit": "Mbps",
        "warnings": ["a warning"],
        "areas": [AREA | BOUNDS],
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
        "share_falling_short": [
            AREA | {"area_km2": 5397.1, "mean": 0.123, "lower": 0.1, "upper": 0.2}
        ],
    },
    "next_tiles": {
        "at": "2023Q4",
        "chosen": [
            {"rank": 1, "longitude": -66.5, "latitude": 18.25, "stratum": "rural", "tests": 0}
            | {"sd_before_log10": 0.4, "sd_after_log10": 0.3, "removed": 0.0123}
        ],
    },
}
CELLS = {
    "areas_county_download_level_2023Q4": ["1,200", "30", "25%", "12.3", "10.0 to 15.1"],
    "change_county_download_2022Q1_2023Q4": [
        *("25%", "8.0", "12.0", "+50.0 %", "-2.0 to +110.0 %", "0.971", ""),
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
def run(both, run_of):
    return as_record(run_of(both))


@pytest.fixture
def folder(tmp_path, run, both):
    """A run folder with its report, a page with marks for links, and no answer."""
    for name, text in report_texts(run, both).items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "map.html").write_text("<!-- links -->\n<!-- end of links -->", "utf-8")
    Image.new("RGB", (1400, 700), "red").save(tmp_path / "median.png")
    return tmp_path


def write(folder, name):
    (folder / f"{name}.json").write_text(json.dumps(TOLD[name]), "utf-8")
    Image.new("RGB", (30, 20)).save(folder / f"{name.replace('exceedance', 'excursion')}.png")
    for one in (f"{name}.csv", *RASTERS.get(name, [])):
        (folder / one).write_text("area\n", "utf-8")


def pages(folder, run):
    """Fill the pages once more; a second time must change nothing."""
    changed = pages_beside(folder, run, ["report.html", "report.md", "map.html", "report.json"])
    for name, text in changed.items():
        (folder / name).write_text(text, "utf-8")
    assert pages_beside(folder, run, changed) == {}
    return {name: (folder / name).read_text("utf-8") for name in ("report.html", "report.md")}


@pytest.mark.parametrize("name", TOLD)
def test_each_answer_is_a_table_with_its_files(folder, run, name):
    write(folder, name)
    (one,) = read_answers(folder)
    assert len(one.head) == len(one.rows[0])
    assert one.rows[0][1:] == CELLS[name]
    picture = f"{name.replace('exceedance', 'excursion')}.png"
    assert set(one.files) == {f"{name}.json", f"{name}.csv", picture, *RASTERS.get(name, [])}
    assert one.picture == picture
    text = pages(folder, run)
    assert f"### {one.title}" in text["report.md"]
    assert f'<a href="{picture}"><img' in text["report.html"]
    for page in text.values():
        for cell in filter(None, CELLS[name]):
            assert cell in page.replace("\N{NO-BREAK SPACE}%", " %")
        assert "<b>" not in page
    links = (folder / "map.html").read_text("utf-8")
    (target,) = re.findall(r'href="report.html#(.*?)"', links)
    assert f'id="{target}"' in text["report.html"]


def test_pages_show_the_map_and_follow_the_folder(folder, run):
    plain = pages(folder, run)
    assert 'href="map.html"' in plain["report.html"]
    assert "![Map of the download speed](median.png)" in plain["report.md"]
    (picture,) = re.findall(r'src="data:image/webp;base64,([^"]+)"', plain["report.html"])
    assert len(picture) < 10_000
    for name in TOLD:
        write(folder, name)
    full = pages(folder, run)
    assert full["report.html"].count("data:image/webp") == 1 + len(TOLD)
    assert [full["report.html"].count(one) for one in ("a warning", "a note")] == [1, 1]
    for path in [one for name in TOLD for one in folder.glob(f"{name}.*")]:
        path.unlink()
    assert pages(folder, run) == plain


def test_pages_without_marks_stay_as_they_are(folder, run):
    write(folder, "next_tiles")
    for name in ("report.html", "map.html"):
        (folder / name).write_text("<p>of an earlier version</p>", "utf-8")
    (folder / "report.md").unlink()
    assert pages_beside(folder, run, ["report.html", "report.md", "map.html"]) == {}


@pytest.mark.parametrize(
    ("name", "kind", "cells"),
    [
        ("areas_county_download_level_2023Q4", "level", ["2.3", "1.0 to 3.6"]),
        ("areas_county_download_level_2023Q4", "tests", ["2.3", "1.0 to 3.6"]),
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
    (one,) = read_answers(folder)
    assert one.rows[0][-2:] == cells
    assert one.head[-1] == "95 % interval by people.tif"
    assert ("mean of measurements" in one.title) == (kind == "tests")


@pytest.mark.parametrize(
    "told",
    [
        *("[]", "{}", "{", '{"at": "2023Q4", "chosen": [{"rank": 1}]}', '{"at": 1, "chosen": 2}'),
        json.dumps(TOLD["next_tiles"]).replace("0.4", str(10**400)),
    ],
)
def test_other_files_are_named_beside_the_answers(folder, run, told):
    write(folder, "exceedance_7_mbps")
    (folder / "next_tiles.json").write_text(told, "utf-8")
    assert [len(one.rows) for one in read_answers(folder)] == [1, 0]
    for page in pages(folder, run).values():
        assert "This file is not an answer that geogp wrote" in page
        assert "12.3" in page


@pytest.mark.parametrize("told", ["[]", "{}", "{", '{"by": Infinity}'])
def test_the_map_names_answers_that_it_cannot_show(folder, run, told):
    (folder / "map.html").write_text(
        "<!-- links -->\n<!-- end of links --><!-- layers -->\n<!-- end of layers -->", "utf-8"
    )
    write(folder, "areas_county_download_level_2023Q4")
    (folder / "areas_county_download_level_2023Q4.json").write_text(told, "utf-8")
    write(folder, "change_county_download_2022Q1_2023Q4")
    pages(folder, run)
    page = (folder / "map.html").read_text("utf-8")
    assert "2023Q4 is not on this map: the JSON file lacks for, by, at, unit, areas." in page
    assert "2023Q4.tif or far.tif is missing or damaged. Give the command again." in page
    assert 'id="geogp-answers">[]</script>' in page


def test_empty_cells_are_dashes(folder):
    told = json.dumps(TOLD["next_tiles"]).replace("0.4", "null").replace("-66.5", "null")
    (folder / "next_tiles.json").write_text(told, "utf-8")
    (one,) = read_answers(folder)
    assert [one.rows[0][at] for at in (1, 5)] == [MISSING, MISSING]


def test_damaged_pictures_are_refused(folder, run):
    write(folder, "next_tiles")
    (folder / "next_tiles.png").write_text("no picture", "utf-8")
    with pytest.raises(DataError, match=r"next_tiles\.png cannot be read as a picture"):
        pages_beside(folder, run, ["report.html"])
