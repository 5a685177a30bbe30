"""Figures of a finished run for papers: files, captions, and what is refused."""

import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from geogp.errors import DataError, RequestError
from geogp.paper_figures import FiguresRequest, make_figures
from geogp.workflow import RunResult, make_map
from geogp_cli.main import run as command

NAMES = ("kernel_slices", "interval_widths", "spread_cells", "basis", "reliability")


@pytest.fixture(scope="module")
def copy(finished, tmp_path_factory) -> RunResult:
    """The finished run, where files may be added."""
    folder = tmp_path_factory.mktemp("figures") / "run"
    shutil.copytree(finished.path, folder)
    return RunResult(folder, finished.run)


@pytest.fixture(scope="module")
def other(small, tmp_path_factory) -> RunResult:
    return make_map(small.request(tmp_path_factory.mktemp("other") / "run", model="sv-rbf"))


@pytest.fixture(scope="module")
def result(copy, other):
    return make_figures(FiguresRequest(copy.path, beside=(other.path,)))


def edited(run, folder, change):
    shutil.copytree(run.path, folder)
    held = json.loads((folder / "run.json").read_text())
    change(held)
    (folder / "run.json").write_text(json.dumps(held))
    return folder


def test_every_figure_is_there_as_png_and_pdf(result, copy):
    expected = {f"{name}.{end}" for name in NAMES for end in ("png", "pdf")} | {"captions.md"}
    assert {path.name for path in result.files} == expected
    assert {path.name for path in (copy.path / "figures").iterdir()} == expected
    for path in result.files:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert len(np.unique(np.asarray(picture.convert("L")))) > 20
                assert picture.width > 500
        elif path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF")


def test_captions_say_what_is_shown(result, copy):
    text = (copy.path / "figures" / "captions.md").read_text()
    assert set(result.captions) == set(NAMES)
    for caption in result.captions.values():
        assert caption in text
        assert copy.run["region_name"] in caption
        assert caption.endswith(".")
        assert ".." not in caption
    assert "Test rows of the random split" in result.captions["interval_widths"]
    assert "in 2023Q4" in result.captions["basis"]
    assert "repair" not in result.captions["spread_cells"]


def test_the_same_run_gives_the_same_files_and_stays_finished(result, copy, other, small, tmp_path):
    again = make_figures(
        FiguresRequest(copy.path, beside=(other.path,), out=tmp_path / "elsewhere")
    )
    for first, second in zip(result.files, again.files, strict=True):
        assert second.parent == tmp_path / "elsewhere"
        assert first.read_bytes() == second.read_bytes()
    assert make_map(small.request(copy.path, split="both")).already_there


def test_another_map_takes_them_away(finished, small, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    (folder / "figures").mkdir()
    (folder / "figures" / "basis.png").touch()
    make_map(small.request(folder, split="both", zoom=12))
    assert not (folder / "figures").exists()


class TestCommand:
    @pytest.fixture
    def geogp(self, monkeypatch, capsys):
        def call(*arguments):
            monkeypatch.setattr(sys, "argv", ["geogp", *map(str, arguments)])
            with pytest.raises(SystemExit) as stop:
                command()
            told = capsys.readouterr()
            return stop.value.code or 0, told.out, told.err

        return call

    def test_it_says_where_the_figures_are(self, geogp, copy, tmp_path):
        code, out, _ = geogp("figures", copy.path, "--out", tmp_path / "f", "--json")
        told = json.loads(out)
        assert code == 0
        assert set(told["captions"]) == set(NAMES)
        assert {str(path) for path in (tmp_path / "f").iterdir()} == set(told["files"])

    def test_no_run(self, geogp, tmp_path):
        code, _, told = geogp("figures", tmp_path)
        assert code == 2
        assert "is not a finished run" in told


class TestRefusals:
    def test_runs_of_other_things(self, copy, other, tmp_path):
        folder = edited(other, tmp_path / "upload", lambda run: run.update(target="upload"))
        with pytest.raises(RequestError, match="has the target upload, expected download"):
            make_figures(FiguresRequest(copy.path, beside=(folder,)))

    def test_runs_without_the_split(self, copy, small, tmp_path):
        blocks = make_map(small.request(tmp_path / "blocks", model="dbk-silu", split="blocks"))
        with pytest.raises(RequestError, match="has no test rows of the split random"):
            make_figures(FiguresRequest(copy.path, beside=(blocks.path,)))

    def test_counts(self, copy, tmp_path):
        folder = edited(copy, tmp_path / "counts", lambda run: run.update(model="cox-nb"))
        with pytest.raises(RequestError, match="maps numbers of tests"):
            make_figures(FiguresRequest(folder))

    def test_changed_files(self, copy, tmp_path):
        folder = edited(
            copy, tmp_path / "changed", lambda run: run["inputs"][-1].update(sha256="0" * 64)
        )
        with pytest.raises(DataError, match="changed since"):
            make_figures(FiguresRequest(folder))
        assert sorted(path.name for path in (folder / "figures").iterdir()) == sorted(
            path.name for path in (copy.path / "figures").iterdir()
        )
