"""`geogp compare` as a user meets it: files, JSON, refusals."""

import json
import shutil

import pytest
from run_worlds import run_json

from geogp.commands.compare_runs import compare_runs
from geogp.errors import RequestError
from geogp.reports.words import estimate
from geogp.runs.output_files import WRITTEN_FILE


@pytest.fixture
def other(finished, tmp_path):
    """A copy of a finished run under another name."""
    return shutil.copytree(finished.path, tmp_path / "b[old]&c")


def test_files_are_written_and_json_is_alone_on_standard_output(finished, other, tmp_path, geogp):
    out = tmp_path / "side by side"
    code, told, _ = geogp("compare", finished.path, other, "--out", out, "--json", "--latex")
    assert code == 0
    printed = json.loads(told)
    assert printed.pop("comparison") == str(out)
    assert printed == json.loads((out / "compare.json").read_text("utf-8"))
    names = [WRITTEN_FILE, "compare.html", "compare.json", "compare.md", "compare.tex"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert printed["reference"] == finished.path.name
    for split, found in printed["splits"].items():
        stratum = found["strata"]["all"]
        metrics = run_json(finished)["metrics"][split]["all"]
        baseline = run_json(finished)["baseline"][split]["all"]
        figures = stratum["figures"]["b[old]&c"]
        assert figures["log_score"] == pytest.approx(metrics["nll"], abs=1e-9)
        assert figures["crps"] == pytest.approx(metrics["crps"], abs=1e-9)
        assert figures["coverage_80"] == pytest.approx(metrics["coverage_80"])
        assert figures["width_95"] == pytest.approx(metrics["width_95"])
        assert figures["gain"] == pytest.approx(baseline["nll"] - metrics["nll"], abs=1e-9)
        assert all(one["value"] == 0 for one in stratum["differences"]["b[old]&c"].values())
    # Without --latex the table of the earlier call would be of another comparison.
    code, told, _ = geogp("compare", finished.path, other, "--out", out)
    assert code == 0
    assert not (out / "compare.tex").exists()
    assert "b[old]&c" in told
    assert "Random split" in told
    assert str(out / "compare.html") in told.replace("\n", "")


def test_runs_of_one_name_are_told_apart_by_their_paths(finished, tmp_path):
    other = shutil.copytree(finished.path, tmp_path / finished.path.name)
    found = compare_runs([finished.path, other], out=tmp_path / "out", reference=str(other))
    assert [one.name for one in found.runs] == [str(other), str(finished.path)]
    again = compare_runs([other, other], out=tmp_path / "out")
    assert [one.name for one in again.runs] == [str(other), f"{other} (2)"]


def test_a_run_folder_takes_no_comparison(finished, other, tmp_path, geogp):
    held = sorted(path.name for path in other.iterdir())
    for out in (other, other / "inner", finished.path / "x" / "y"):
        with pytest.raises(RequestError, match="is in the run folder"):
            compare_runs([finished.path, other], out=out)
    assert sorted(path.name for path in other.iterdir()) == held
    code, out, told = geogp("compare", finished.path, other, "--out", other)
    assert (code, out) == (2, "")
    assert "folder of its own" in told


def test_refusals_exit_with_2_and_write_nothing(finished, other, tmp_path, geogp):
    out = tmp_path / "out"
    code, _, told = geogp("compare", finished.path, tmp_path / "none", "--out", out)
    assert code == 2
    assert "is not a finished run" in told
    code, _, told = geogp("compare", finished.path, "--out", out)
    assert code == 2
    assert "two runs or more" in told
    content = json.loads((other / "run.json").read_text("utf-8"))
    (other / "run.json").write_text(json.dumps({**content, "target": "upload"}))
    code, _, told = geogp("compare", finished.path, other, "--out", out)
    assert code == 2
    assert "expected runs of one target" in told
    (tmp_path / "file").write_text("")
    (other / "run.json").write_text(json.dumps(content))
    code, _, told = geogp("compare", finished.path, other, "--out", tmp_path / "file")
    assert code == 2
    assert "another folder with --out" in told
    assert not out.exists()


def test_an_unjudged_difference_has_no_error(finished, other, tmp_path):
    found = compare_runs([finished.path, other], out=tmp_path / "out")
    for split in found.splits.values():
        for stratum in split.strata.values():
            for one in stratum.differences["b[old]&c"].values():
                assert estimate(one) == ("+0.0000" if one.error is None else "+0.0000 (0.0000)")


@pytest.mark.parametrize("kind", ["counted", "tiered"])
def test_every_kind_of_run_can_be_compared_and_shown(kind, finished, request, tmp_path, geogp):
    run = shutil.copytree(request.getfixturevalue(kind).path, tmp_path / kind)
    assert geogp("compare", run, run, "--out", tmp_path / "out", "--latex")[0] == 0
    assert geogp("gallery", run, finished.path, "--out", tmp_path / "gallery")[0] == 0
    assert geogp("report", run, "--gpkg")[0] == 0
    code, _, told = geogp("report", run, "--latex")
    assert (code, "Leave --latex out" in told) == ((2, True) if kind == "tiered" else (0, False))
    code, _, told = geogp("compare", finished.path, run, "--out", tmp_path / "mixed")
    assert (code, "expected runs of one target" in told) == (2, True)
