"""Figures of a finished run for papers: files, captions, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from run_worlds import edited_copy, run_json

from geogp.answers.requests import FiguresRequest
from geogp.answers.run import open_run
from geogp.commands.paper_figures import make_figures
from geogp.errors import DataError, RequestError
from geogp.runs.file_records import record_files
from geogp.runs.output_files import WRITTEN_FILE
from geogp.runs.pipeline.draw import reference_slices
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.run_folder import PREDICTIONS_FILE

NAMES = ("kernel_slices", "interval_widths", "spread_cells", "basis", "reliability")


@pytest.fixture(scope="module")
def result(copy, plain):
    return make_figures(FiguresRequest(copy.path, beside=(plain.path,)))


@pytest.fixture(scope="module")
def drawn(counted, tmp_path_factory):
    out = tmp_path_factory.mktemp("drawn")
    return make_figures(FiguresRequest(counted.path, out=out))


@pytest.mark.trial
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


@pytest.mark.trial
def test_captions_say_what_is_shown(result, copy):
    text = (copy.path / "figures" / "captions.md").read_text()
    assert set(result.captions) == set(NAMES)
    for caption in result.captions.values():
        assert caption in text
        assert run_json(copy)["region_name"] in caption
        assert caption.endswith(".")
        assert ".." not in caption
    assert "Test rows of the random split" in result.captions["interval_widths"]
    assert "in 2023Q4" in result.captions["basis"]
    assert "repair" not in result.captions["spread_cells"]


@pytest.mark.trial
def test_the_same_run_gives_the_same_files_and_stays_finished(
    *, result, copy, plain, small, geogp, tmp_path
):
    code, out, _ = geogp(
        "figures", copy.path, "--beside", plain.path, "--out", tmp_path / "elsewhere", "--json"
    )
    told = json.loads(out)
    assert code == 0
    assert set(told["captions"]) == set(NAMES)
    assert told["left_out"] == {}
    written = {str(path) for path in (tmp_path / "elsewhere").iterdir()}
    assert written == {*told["files"], str(tmp_path / "elsewhere" / WRITTEN_FILE)}
    for first, second in zip(result.files, map(Path, told["files"]), strict=True):
        assert second.parent == tmp_path / "elsewhere"
        assert first.read_bytes() == second.read_bytes()
    assert run_map(small.request(copy.path, split="both")).already_there


@pytest.mark.trial
def test_runs_of_one_model_and_one_folder_name_are_all_drawn(copy, tmp_path, monkeypatch):
    class DrawnError(Exception):
        pass

    def stop(widths, *, unit):
        assert unit == "log10 Mbps"
        raise DrawnError(list(widths))

    monkeypatch.setattr("geogp.commands.paper_figures.width_violins", stop)
    other = tmp_path / copy.path.name
    shutil.copytree(copy.path, other)
    with pytest.raises(DrawnError) as drawn:
        make_figures(FiguresRequest(copy.path, beside=(other,), out=tmp_path / "out"))
    assert drawn.value.args[0] == [str(copy.path), str(other)]


@pytest.mark.trial
def test_another_map_takes_them_away(plain, small, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(plain.path, folder)
    (folder / "figures").mkdir()
    (folder / "figures" / "basis.png").touch()
    run_map(small.request(folder, model="dbk-silu", zoom=11))
    assert not (folder / "figures").exists()


class TestNumbersOfTests:
    @pytest.mark.trial
    def test_what_has_a_meaning_is_drawn(self, drawn):
        names = ("kernel_slices", "basis", "reliability")
        assert tuple(drawn.captions) == names
        expected = {f"{name}.{end}" for name in names for end in ("png", "pdf")} | {"captions.md"}
        assert {path.name for path in drawn.files} == expected
        found = {path.name for path in drawn.files[0].parent.iterdir()}
        assert found == expected | {WRITTEN_FILE}
        for path in drawn.files:
            if path.suffix == ".png":
                with Image.open(path) as picture:
                    assert len(np.unique(np.asarray(picture.convert("L")))) > 20

    @pytest.mark.trial
    def test_what_is_left_out_is_told_with_the_reason(self, drawn):
        assert set(drawn.left_out) == {"interval_widths", "spread_cells"}
        assert set(NAMES) == set(drawn.captions) | set(drawn.left_out)
        text = drawn.files[-1].read_text()
        for name, reason in drawn.left_out.items():
            assert f"**{name}** is left out: {reason}." in text
        assert "log rate" in drawn.captions["kernel_slices"]
        assert "randomised" in drawn.captions["reliability"]
        assert all("numbers of tests" in one or "tests" in one for one in drawn.captions.values())

    @pytest.mark.trial
    def test_the_kernel_is_that_of_the_log_rate(self, counted):
        """Slices as drawn are the products of the fitted features."""
        opened = open_run(counted.path, device="cpu").reopen(counts=True)
        quarter = opened.question.quarter
        (one, *_) = reference_slices(opened.inputs, opened.question, opened.model, opened.tiles)
        features = opened.model.features
        place = np.array([one.longitude]), np.array([one.latitude])
        here = opened.inputs.places.at(*place, np.array([quarter]))
        products = features(opened.places(quarter)) @ features(here)[0]
        np.testing.assert_allclose(one.values, products, rtol=1e-5, atol=1e-9)
        assert np.ptp(products) > 0

    @pytest.mark.trial
    def test_the_command_says_so(self, geogp, drawn, counted, monkeypatch):
        monkeypatch.setattr("geogp.commands.paper_figures.make_figures", lambda *_: drawn)
        code, out, _ = geogp("figures", counted.path)
        assert code == 0
        assert "spread_cells is left out: the spread of a number of tests" in out
        assert all(str(path) in out for path in drawn.files)


class TestCommand:
    def test_no_run(self, geogp, tmp_path):
        code, _, told = geogp("figures", tmp_path)
        assert code == 2
        assert "is not a finished run" in told


class TestRefusals:
    def test_runs_of_other_things(self, copy, plain, tmp_path):
        folder = edited_copy(
            plain.path, tmp_path / "upload", lambda run: run.update(target="upload")
        )
        with pytest.raises(RequestError, match="has the target upload, expected download"):
            make_figures(FiguresRequest(copy.path, beside=(folder,)))

    def test_runs_without_the_split(self, copy, tmp_path):
        def without_random(run):
            run["settings"]["checks"]["splits"].remove("random")
            for key in ("metrics", "baseline", "n", "folds"):
                del run[key]["random"]

        folder = edited_copy(copy.path, tmp_path / "blocks", without_random)
        rows = pd.read_parquet(folder / PREDICTIONS_FILE)
        rows[rows["split"] == "blocks"].to_parquet(folder / PREDICTIONS_FILE)
        record_files(folder / "run.json", open_run(folder).record, [PREDICTIONS_FILE])
        with pytest.raises(RequestError, match="has no test rows of the split random"):
            make_figures(FiguresRequest(copy.path, beside=(folder,)))

    def test_the_folder_of_another_run(self, copy, plain):
        for beside in ((), (plain.path,)):
            request = FiguresRequest(copy.path, beside=beside, out=plain.path / "figures")
            with pytest.raises(RequestError, match="geogp figures needs a folder of its own"):
                make_figures(request)
        assert not (plain.path / "figures").exists()

    def test_runs_beside_numbers_of_tests(self, counted, copy, tmp_path):
        request = FiguresRequest(counted.path, beside=(copy.path,), out=tmp_path)
        with pytest.raises(RequestError, match="is the number of tests, and --beside adds models"):
            make_figures(request)

    @pytest.mark.trial
    @pytest.mark.usefixtures("result")
    def test_changed_files(self, copy, tmp_path):
        folder = edited_copy(
            copy.path, tmp_path / "changed", lambda run: run["inputs"][-1].update(sha256="0" * 64)
        )
        with pytest.raises(DataError, match="changed or appeared since"):
            make_figures(FiguresRequest(folder))
        assert sorted(path.name for path in (folder / "figures").iterdir()) == sorted(
            path.name for path in (copy.path / "figures").iterdir()
        )
