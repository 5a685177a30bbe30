"""What a page is made of: Leaflet as npm has it, named towns, styles that name no other file."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from geogp.maps.page.page_assets import page_scripts, page_styles

ROOT = Path(__file__).parents[3]
VENDORED = ROOT / "geogp" / "maps" / "page" / "vendored"
FOLDERS = sorted(path.parent for path in VENDORED.glob("*/source.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_of_others_have_their_licence_and_hashes(folder):
    told = json.loads((folder / "source.json").read_text("utf-8"))
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}
    files |= {"LICENSE": folder / "LICENSE"}
    del files["source.json"]
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert hashes == told["files"]
    assert told["licence"] in (ROOT / "pyproject.toml").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8").casefold()
    assert f"{told['name']} {told['version']}" in readme


def test_leaflet_and_geonames_are_among_them():
    assert [folder.name for folder in FOLDERS] == ["geonames", "leaflet"]


def test_scripts_and_styles_name_no_other_file():
    leaflet, own = page_scripts()
    assert leaflet.startswith("/* @preserve\n * Leaflet 1.9.3")
    assert "sourceMappingURL" not in leaflet
    assert own.count("startPage") == 2
    for style in page_styles():
        assert "\r" not in style
        assert set(re.findall(r"url\(\W*(\w+)", style)) <= {"data", "default"}
