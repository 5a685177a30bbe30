"""What the commands may overwrite: no run, no input, and without --force no file of the user."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from run_worlds import edited_copy

from geogp.commands.compare_runs import compare_runs
from geogp.commands.gallery import make_gallery
from geogp.commands.points_file import TEMPLATE
from geogp.errors import RequestError
from geogp.runs.output_files import WRITTEN_FILE, OutputFiles
from geogp.runs.pipeline.run_map import run_map

PLACE = "32.0,-90.0"
FEW = ("--rows", "1500", "--quarters", "2023Q4", "--no-oracles")


@dataclass(frozen=True)
class Case:
    """A command, one of the files that it writes, and its arguments for a folder of outputs."""

    file: str
    arguments: Callable[[Path, Path], list[object]]


CASES = {
    "at": Case("answers.csv", lambda run, out: ["at", PLACE, run, "--out", out / "answers.csv"]),
    "at in JSON": Case(
        "answers.json", lambda run, out: ["at", PLACE, run, "--out", out / "answers.json"]
    ),
    "compare": Case("compare.json", lambda run, out: ["compare", run, run, "--out", out]),
    "figures": Case("basis.png", lambda run, out: ["figures", run, "--out", out]),
    "gallery": Case("index.html", lambda run, out: ["gallery", run, "--out", out]),
    "points": Case("tests.csv", lambda _run, out: ["points", out / "tests.csv", "--template"]),
    "simulate": Case("truth.parquet", lambda _run, out: ["simulate", *FEW, "--out", out]),
}

every_command = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a finished run, which a fault may destroy."""
    return shutil.copytree(finished.path, tmp_path / "run")


def contents(folder):
    """Return the bytes of all files of a folder, without the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("name", "where"),
    [*((name, ".") for name in CASES), ("at", "inner/folder"), ("at", "../run"), ("at", "../link")],
)
def test_a_run_folder_takes_no_output(name, where, run, geogp):
    (run.parent / "link").symlink_to(run)
    before = contents(run)
    arguments = CASES[name].arguments(run, run / where)
    for more in ([], ["--force"]):
        code, _, told = geogp(*arguments, *more)
        assert code == 2
        assert "the run folder" in told or "not part of this simulation" in told
    assert contents(run) == before


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_a_prediction_leaves_each_file_of_its_run(link, run, tmp_path, geogp):
    target, before = run / "report.json", contents(run)
    if link is not None:
        target = tmp_path / "answers.json"
        link(run / "report.json", target)
    for more in ([], ["--force"]):
        code, _, told = geogp("at", PLACE, run, "--out", target, *more)
        assert code == 2
        assert "run" in told
        assert "hoose another folder with --out" in told
    assert contents(run) == before
    assert target.samefile(run / "report.json")


@every_command
def test_a_file_of_the_user_needs_force_and_an_own_file_does_not(name, run, tmp_path, geogp):
    case, out = CASES[name], tmp_path / "out"
    arguments, file = case.arguments(run, out), out / case.file
    out.mkdir()
    file.write_text("of the user")
    code, _, told = geogp(*arguments)
    assert code == 2
    assert "--force" in told
    assert contents(out) == {str(file): b"of the user"}
    assert geogp(*arguments, "--force")[0] == 0
    assert file.read_bytes() != b"of the user"
    assert geogp(*arguments)[0] == 0


@pytest.mark.parametrize("name", ["at", "compare"])
def test_an_own_file_that_was_edited_is_of_the_user(name, run, tmp_path, geogp):
    case, out = CASES[name], tmp_path / "new" / "out"
    arguments, file = case.arguments(run, out), out / case.file
    assert geogp(*arguments)[0] == 0
    assert geogp(*arguments)[0] == 0
    file.write_bytes(file.read_bytes() + b"\n")
    before = contents(out)
    code, _, told = geogp(*arguments)
    assert code == 2
    assert "it was changed since then" in told
    assert contents(out) == before


def test_a_file_of_another_command_is_not_an_own_file(run, tmp_path, geogp):
    assert geogp("compare", run, run, "--out", tmp_path / "out")[0] == 0
    before = contents(tmp_path / "out")
    assert geogp("at", PLACE, run, "--out", tmp_path / "out" / "compare.json")[0] == 2
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_the_file_of_places_is_not_overwritten(link, run, tmp_path, geogp):
    places = out = tmp_path / "places.csv"
    places.write_text("latitude,longitude\n32.0,-90.0\n")
    if link is not None:
        out = tmp_path / "answers.csv"
        link(places, out)
    for more in ([], ["--force"]):
        code, _, told = geogp("at", places, run, "--out", out, *more)
        assert code == 2
        assert "is an input of this command" in told
    assert places.read_text() == "latitude,longitude\n32.0,-90.0\n"
    # The answers of a command are an own file, unless the next command reads them.
    answers = tmp_path / "chain.csv"
    assert geogp("at", places, run, "--out", answers)[0] == 0
    before = answers.read_bytes()
    assert geogp("at", answers, run, "--out", answers)[0] == 2
    assert answers.read_bytes() == before


@pytest.mark.parametrize("name", ["at", "compare", "gallery", "points"])
def test_the_inputs_that_a_run_names_are_not_overwritten(
    name, finished, tmp_path, geogp, monkeypatch
):
    """Also those of runs in the default folder, which the command does not read."""
    case, out = CASES[name], tmp_path / "data"
    file = out / case.file
    out.mkdir()
    file.write_text("of the user")

    def name_inputs(held):
        held["settings"]["data"]["points"] = str(file)
        held["settings"]["checks"]["layers"] = [f"{file}:NAME"]

    run = edited_copy(finished.path, tmp_path / "runs" / "PR", name_inputs)
    monkeypatch.chdir(tmp_path)
    code, _, told = geogp(*case.arguments(run, out), "--force")
    assert code == 2
    assert "is an input of the run" in told
    assert contents(out) == {str(file): b"of the user"}


def test_the_folder_of_the_tiles_is_not_overwritten(run, own_small, geogp):
    """The marks of a source are inputs, too; new files beside them are none."""
    source, before = own_small.folder, contents(own_small.folder)
    arguments = ("at", PLACE, run, "--source", source, "--out")
    assert geogp(*arguments, source / "simulation.json", "--force")[0] == 2
    assert contents(source) == before
    assert geogp(*arguments, source / "answers.json")[0] == 0
    assert geogp(*arguments, source / "answers.json")[0] == 0


def test_a_simulation_leaves_its_boundaries(own_small, geogp):
    folder, before = own_small.folder, contents(own_small.folder)
    (folder / "simulation.json").unlink()
    before.pop(str(folder / "simulation.json"))
    arguments = ("--like", "DEMO", "--boundaries", folder / "boundaries", "--out", folder)
    code, _, told = geogp("simulate", *FEW, *arguments, "--force")
    assert code == 2
    assert "is an input of this command" in told
    assert contents(folder) == before


def test_two_simulations_are_not_mixed(own_small, geogp):
    before = contents(own_small.folder)
    code, _, told = geogp("simulate", *FEW, "--out", own_small.folder, "--force")
    assert code == 2
    assert "not part of this simulation" in told
    assert contents(own_small.folder) == before


def test_a_folder_and_a_file_are_told_apart(run, tmp_path, geogp):
    (tmp_path / "answers.csv").mkdir()
    (tmp_path / "file").touch()
    code, _, told = geogp("at", PLACE, run, "--out", tmp_path / "answers.csv", "--force")
    assert (code, "expected a file, found the folder" in told) == (2, True)
    code, _, told = geogp("at", PLACE, run, "--out", tmp_path / "file" / "answers.csv")
    assert (code, "is a file" in told) == (2, True)
    assert list((tmp_path / "answers.csv").iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_refused_and_not_read(run, tmp_path, geogp):
    os.mkfifo(tmp_path / "answers.csv")
    (tmp_path / WRITTEN_FILE).write_text("0 at answers.csv\n")
    code, _, told = geogp("at", PLACE, run, "--out", tmp_path / "answers.csv")
    assert (code, "add --force" in told) == (2, True)


def test_a_loop_of_links_is_refused(run, tmp_path, geogp):
    (tmp_path / "answers.csv").symlink_to(tmp_path / "answers.csv")
    code, _, told = geogp("at", PLACE, run, "--out", tmp_path / "answers.csv")
    assert (code, "add --force" in told) == (2, True)


def test_from_python_the_same_holds(run, tmp_path):
    for name, write in (
        ("index.html", lambda **how: make_gallery([run], out=tmp_path, **how)),
        ("compare.html", lambda **how: compare_runs([run, run], out=tmp_path, **how)),
    ):
        (tmp_path / name).write_text("of the user")
        with pytest.raises(RequestError, match=r"did not write it.*add --force"):
            write()
        assert (tmp_path / name).read_text() == "of the user"
        write(force=True)
        write()


def test_a_table_of_the_user_beside_a_comparison_stays(run, tmp_path):
    (tmp_path / "compare.tex").write_text("of the user")
    compare_runs([run, run], out=tmp_path)
    assert (tmp_path / "compare.tex").read_text() == "of the user"


def test_a_file_that_appears_during_the_work_stays(tmp_path):
    output = OutputFiles("at", [tmp_path / "a.csv"])
    (tmp_path / "a.csv").write_text("of the user")
    with pytest.raises(RequestError, match="did not write it"):
        output.write(tmp_path / "a.csv", b"")
    assert (tmp_path / "a.csv").read_text() == "of the user"


def test_a_list_that_cannot_be_read_or_written_makes_no_file_an_own_one(tmp_path, geogp):
    file = tmp_path / "tests.csv"
    (tmp_path / WRITTEN_FILE).mkdir()
    assert geogp("points", file, "--template")[0] == 0
    assert geogp("points", file, "--template")[0] == 2
    assert geogp("points", file, "--template", "--force")[0] == 0
    (tmp_path / WRITTEN_FILE).rmdir()
    (tmp_path / WRITTEN_FILE).write_bytes(b"\xff\xfe")
    assert geogp("points", file, "--template")[0] == 2
    assert file.read_text() == TEMPLATE


def test_a_run_lies_in_no_other_run(run, small, geogp):
    before = contents(run)
    code, _, told = geogp(*small.arguments, "--out", run / "figures")
    assert code == 2
    assert "a run needs a folder of its own" in told
    assert contents(run) == before


@pytest.mark.usefixtures("no_pictures")
def test_a_map_leaves_its_inputs(finished, small, tmp_path):
    """A new map replaces and removes files of its folder."""
    run = shutil.copytree(finished.path, tmp_path / "run")
    (run / "areas_height.csv").write_text("longitude,latitude,value\n-90.0,32.0,1\n-90.1,32.1,2\n")
    before = contents(run)
    for inputs in (
        {"covariates": (f"{run / 'areas_height.csv'}",)},
        {"layers": (f"{run / 'tiles.parquet'}:stratum",)},
    ):
        with pytest.raises(RequestError, match=r"inputs of a run outside its folder, found .*run"):
            run_map(small.request(run, split="both", fresh=True, **inputs))
    assert contents(run) == before


def test_the_figures_of_a_run_follow_no_link_out_of_it(run, tmp_path, geogp):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "basis.png").write_text("of the user")
    (run / "figures").symlink_to(tmp_path / "mine")
    assert geogp("figures", run)[0] == 2
    assert contents(tmp_path / "mine") == {str(tmp_path / "mine" / "basis.png"): b"of the user"}


def test_damaged_records_name_no_inputs(finished, tmp_path, geogp, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (("a", "["), ("b", "[]"), ("c", json.dumps({"settings": 3}))):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(content)
    (tmp_path / "index.html").write_text("of the user")
    assert geogp("gallery", finished.path, "--out", tmp_path, "--force")[0] == 0
