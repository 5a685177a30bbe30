"""`geogp gallery`: one page of many runs, what it shows and what it refuses."""

import base64
import io
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from run_worlds import Page, run_json

from geogp.commands.gallery import make_gallery
from geogp.errors import DataError, RequestError
from geogp.maps.figures.thumbnails import draw_thumbnails, read_picture
from geogp.maps.scales import format_tick
from geogp_cli.entry import run

PAGE_DATA = r'<script type="application/json" id="geogp-data">(.*?)</script>'


@pytest.fixture
def folder(finished, tmp_path):
    """Two copies of a finished run, in a folder with things that are no runs."""
    place = tmp_path / "runs of <b>all</b> & sundry"
    shutil.copytree(finished.path, place / "first")
    shutil.copytree(finished.path, place / "second <i>")
    (place / "first" / "map.html").unlink()
    (place / "notes").mkdir()
    (place / "begun" / ".unfinished").mkdir(parents=True)
    shutil.copytree(finished.path, place / "torn")
    (place / "torn" / "grid.nc").write_bytes(b"no map")
    return place


@pytest.fixture
def names(folder):
    """Give the second run names that are markup."""
    path = folder / "second <i>" / "run.json"
    held = json.loads(path.read_text("utf-8"))
    held["region_name"], held["attribution"] = "<img src=x onerror=y>", "me & <u>you</u>"
    path.write_text(json.dumps(held), "utf-8")


@pytest.mark.usefixtures("names")
def test_the_page_shows_every_run_with_its_numbers(folder, finished, tmp_path):
    made = make_gallery([folder], out=tmp_path / "page")
    assert {path.name for path in made.runs} == {"first", "second <i>"}
    html = made.page.read_text("utf-8")
    page = Page(html)
    assert not [tag for tag, _ in page.tags if tag in {"i", "u", "link"}]
    assert len(page.all("img")) == 3  # a scale and two maps: no markup from outside
    assert "<img src=x onerror=y>" in page.text
    assert "me & <u>you</u>" in page.text
    assert all(one["alt"] and one["src"].startswith("data:image/png") for one in page.all("img"))
    for split, metrics in run_json(finished)["metrics"].items():
        gain = run_json(finished)["baseline"][split]["all"]["nll"] - metrics["all"]["nll"]
        assert page.text.count(f"{gain:+.3f}".replace("-", "\N{MINUS SIGN}")) >= 4
        assert f"{metrics['all']['n']:,}" in page.text
        assert f"{100 * metrics['urban']['coverage_95']:.1f} %" in page.text
    assert {path.name for path, _ in made.skipped} == {"begun", "torn"}
    assert "not finished" in page.text
    assert "grid.nc" in page.text
    assert len(html) < 300_000


def test_groups_of_one_target_are_told_apart_by_what_they_show(folder, tmp_path, monkeypatch):
    """Expected numbers of tests are of tiles of a zoom: those of two zooms are two groups."""

    def read(path, **given):
        picture = read_picture(path, **given)
        zoom = 16 if path.parent.name == "first" else 14
        return replace(picture, view=replace(picture.view, label=f"tests a tile of zoom {zoom}"))

    def titles(places):
        html = make_gallery(places, out=tmp_path / "page").page.read_text("utf-8")
        return re.findall(r"<h2>(Download.*?)</h2>", html)

    assert len(titles([folder])) == 1
    assert "zoom" not in titles([folder])[0]
    monkeypatch.setattr("geogp.commands.gallery.read_picture", read)
    found = titles([folder])
    assert len(found) == len(set(found)) == 2
    assert {found[0][-7:], found[1][-7:]} == {"zoom 14", "zoom 16"}


@pytest.mark.usefixtures("names")
def test_links_are_relative_and_lead_to_files(folder, tmp_path):
    made = make_gallery([folder], out=tmp_path / "page")
    links = [one["href"] for one in Page(made.page.read_text("utf-8")).all("a")]
    assert len(links) == 3  # the first run lost its map
    for link in links:
        assert link.startswith("./")
        assert (made.page.parent / unquote(link)).is_file(), link


def test_a_run_counts_once_and_its_date_is_that_of_its_file(folder, tmp_path):
    os.utime(folder / "first" / "run.json", (86_400 * 365, 86_400 * 365))
    made = make_gallery(
        [folder / "first", folder / "first" / ".." / "first"], out=tmp_path / "page"
    )
    assert len(made.runs) == 1
    assert "1971-01-01" in made.page.read_text("utf-8")


def test_refusals(folder, finished, tmp_path):
    with pytest.raises(RequestError, match=r"run folders, found .*absent \(No such file"):
        make_gallery([tmp_path / "absent"])
    with pytest.raises(RequestError, match=r"found x\.html, the name of a page.*--out x\."):
        make_gallery([folder], out=Path("x.html"))
    with pytest.raises(RequestError, match="contains no finished run"):
        make_gallery([folder / "notes"])
    with pytest.raises(RequestError, match="not a finished run"):
        make_gallery([folder / "begun"])
    with pytest.raises(DataError, match=r"grid\.nc is not the map that the run wrote"):
        make_gallery([folder / "torn"], out=tmp_path / "page")
    path = folder / "torn" / "run.json"  # as of a version that kept no hash
    held = json.loads(path.read_text("utf-8"))
    del held["map"]["grid_sha256"]
    path.write_text(json.dumps(held), "utf-8")
    with pytest.raises(DataError, match=r"expected a map in .*grid\.nc"):
        make_gallery([folder / "torn"], out=tmp_path / "page")
    with pytest.raises(RequestError, match="geogp gallery needs a folder of its own"):
        make_gallery([finished.path], out=finished.path / "index")
    for name in ("first", "second <i>"):
        (folder / name / "run.json").write_text('{"metrics": {}}', "utf-8")
    with pytest.raises(RequestError, match="found none that can be read"):
        make_gallery([folder], out=tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_a_run_of_another_form_is_left_out(folder, tmp_path):
    path = folder / "first" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "map": [1]}), "utf-8")
    made = make_gallery([folder], out=tmp_path / "page")
    assert "map" in {place.name: why for place, why in made.skipped}["first"]


def test_damaged_numbers_are_told(folder, tmp_path):
    path = folder / "first" / "run.json"
    held = json.loads(path.read_text("utf-8"))
    held["metrics"]["random"]["all"]["nll"] = "<b>"
    path.write_text(json.dumps(held), "utf-8")
    with pytest.raises(DataError, match=r"at `\$\.metrics"):
        make_gallery([folder / "first"], out=tmp_path / "page")


def test_a_damaged_run_whose_name_is_no_text_is_named(folder, tmp_path):
    odd = folder / os.fsdecode(b"r\xff")
    odd.mkdir()
    (odd / "run.json").write_text("{")
    (odd / "test_predictions.parquet").touch()
    made = make_gallery([folder], out=tmp_path / "page")
    assert odd in {path for path, _ in made.skipped}
    text = Page(made.page.read_text("utf-8")).text
    assert re.search(r"r\ufffd.*r\ufffd/run\.json is damaged", text, re.DOTALL)


def test_the_command_prints_one_object(folder, tmp_path, monkeypatch, capsys):
    arguments = ["gallery", str(folder), "--out", str(tmp_path / "page"), "--json"]
    monkeypatch.setattr(sys, "argv", ["geogp", *arguments])
    with pytest.raises(SystemExit) as stop:
        run()
    assert not stop.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["gallery"] == str(tmp_path / "page" / "index.html")
    assert len(told["runs"]) == len(told["skipped"]) == 2


def test_thumbnails_hold_the_medians_of_blocks_in_one_scale(finished, tmp_path):
    whole = read_picture(finished.path / "grid.nc", most=10_000)
    small = read_picture(finished.path / "grid.nc", most=20)
    with xr.open_dataset(finished.path / "grid.nc", engine="h5netcdf") as grid:
        np.testing.assert_array_equal(whole.values, grid["median_mbps"].values)
    assert max(small.values.shape) <= 20
    step = -(-max(whole.values.shape) // 20)
    block = whole.values[:step, :step]
    for (row, column), value in np.ndenumerate(small.values):
        block = whole.values[row * step :, column * step :][:step, :step]
        held = np.sort(block[np.isfinite(block)])
        expected = held[(len(held) - 1) // 2] if len(held) else np.nan
        np.testing.assert_equal(value, expected)
    drawn = draw_thumbnails([whole, small])
    image = Image.open(io.BytesIO(drawn.images[0])).convert("RGBA")
    assert image.size == whole.values.shape[::-1]
    np.testing.assert_array_equal(np.array(image)[:, :, 3] > 0, np.isfinite(whole.values))
    places = [place for place, _ in drawn.ticks]
    assert places[0] == 0
    assert places[-1] == pytest.approx(100)
    data = json.loads(re.search(PAGE_DATA, (finished.path / "map.html").read_text("utf-8"))[1])
    level = next(one for one in data["layers"] if one["id"] == "level")["scale"]
    assert [text for _, text in drawn.ticks] == [format_tick(tick) for tick in level["ticks"]]
    low, high = level["low"], level["high"]
    assert [one is not None for one in drawn.arrows] == [whole.ends[0] < low, whole.ends[1] > high]
    # Another map with a wider scale widens the scale of both.
    wider = replace(whole, scale=replace(whole.scale, low=low / 10, high=high * 10))
    both = draw_thumbnails([whole, wider])
    assert [both.ticks[place][1] for place in (0, -1)] == [
        format_tick(low / 10),
        format_tick(high * 10),
    ]
    assert both.arrows == (None, None)


def test_the_page_reads_without_its_script(finished, tmp_path):
    html = make_gallery([finished.path], out=tmp_path / "page").page.read_text("utf-8")
    plain = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    heads = [tag for tag, _ in Page(plain).tags]
    assert heads.count("h1") == 1
    assert {"h2", "h3", "table", "caption"} <= set(heads)
    assert "<button" not in plain
    for data in re.findall(r"base64,([A-Za-z0-9+/=]+)", html):
        assert base64.b64decode(data)[1:4] == b"PNG"
