"""Names of runs: what a message says if there is no such run."""

import pytest

from geogp.errors import RequestError
from geogp.runs.run_folder import read_run_record
from geogp.runs.run_names import find_run, near_runs


@pytest.fixture
def runs(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # not beside the user's own runs
    folder = tmp_path / "runs"
    for name in ("PR-mobile-download", "VI-mobile-download", "demo"):
        (folder / name).mkdir(parents=True)
        (folder / name / "run.json").write_text("{}")
    (folder / "unfinished").mkdir()
    return folder


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("dmo", "demo"),
        ("pr", "PR-mobile-download"),
        ("PR-mobile-dowload", "PR-mobile-download"),
        ("VI-mobil-download", "VI-mobile-download"),
    ],
)
def test_the_nearest_run_comes_first(runs, tmp_path, wrong, near):
    told = f"Nearest: {runs / near}"
    assert near_runs(runs / wrong, tmp_path / "none").startswith(f" {told}")
    assert near_runs(tmp_path / wrong, runs).startswith(f" {told}")
    with pytest.raises(RequestError, match=f"is not a finished run: .* {told}"):
        read_run_record(runs / wrong)
    with pytest.raises(RequestError, match=f"found neither for '{wrong}'.*{told}"):
        find_run(wrong, runs)


def test_a_folder_of_runs_has_near_runs(runs, tmp_path):
    assert near_runs(runs, tmp_path).count(str(runs)) == 3


def test_nothing_near_is_not_named(runs):
    assert near_runs(runs / "quite different", runs) == ""
    assert near_runs(runs / "unfinished", runs) == ""
