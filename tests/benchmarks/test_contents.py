"""The scripts, and the table of their README: each has a row, and each result a link."""

import re

import pytest
from benchmark_scripts import SCRIPTS, load, run

TEXT = (SCRIPTS / "README.md").read_text("utf-8")


def test_every_script_has_one_row():
    listed, folder = [], ""
    for one, script in re.findall(r"^\| (\w*) ?\| `(\w+)", TEXT, re.MULTILINE):
        folder = one or folder
        listed.append(f"{folder}.{script}")
    assert sorted(listed) == load("__main__").scripts()


def test_every_folder_of_results_is_linked_and_every_link_resolves():
    links = set(re.findall(r"\]\(([^)]+)\)", TEXT))
    assert [link for link in links if not (SCRIPTS / link).exists()] == []
    linked = {link.split("/")[1] for link in links if "/" in link}
    assert linked == {path.name for path in (SCRIPTS / "results").iterdir()}


def test_a_folder_has_at_most_15_modules():
    for folder in (SCRIPTS, *SCRIPTS.iterdir()):
        assert len(list(folder.glob("*.py"))) <= 15, folder


def test_every_script_has_a_command_line(capsys):
    for name in load("__main__").scripts():
        if name.startswith("speed.page"):
            pytest.importorskip("playwright")
        with pytest.raises(SystemExit) as ended:
            run(name, "--help")
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: python -m benchmarks {name} [-h]")


def test_an_unknown_name_is_refused(capsys):
    assert [load("__main__").main(words) for words in ([], ["speed.light"])] == [2, 2]
    assert "found 'speed.light': accuracy.few_rows, " in capsys.readouterr().err
