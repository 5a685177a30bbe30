"""The table of the benchmarks' README: every script has a row, and every result a link."""

import re

from benchmark_scripts import SCRIPTS

TEXT = (SCRIPTS / "README.md").read_text("utf-8")
HELPERS = {"speed/states_work"}
"""Started by other scripts."""


def test_every_script_has_one_row():
    listed, folder = [], ""
    for one, script in re.findall(r"^\| (\w*) ?\| `(\w+)", TEXT, re.MULTILINE):
        folder = one or folder
        listed.append(f"{folder}/{script}")
    scripts = {
        str(path.relative_to(SCRIPTS).with_suffix(""))
        for path in SCRIPTS.rglob("*.py")
        if 'if __name__ == "__main__":' in path.read_text("utf-8")
    }
    assert sorted(listed) == sorted(scripts - HELPERS)


def test_every_folder_of_results_is_linked_and_every_link_resolves():
    links = set(re.findall(r"\]\(([^)]+)\)", TEXT))
    assert [link for link in links if not (SCRIPTS / link).exists()] == []
    linked = {link.split("/")[1] for link in links if "/" in link}
    assert linked == {path.name for path in (SCRIPTS / "results").iterdir()}


def test_a_folder_has_at_most_15_modules():
    for folder in (SCRIPTS, *SCRIPTS.iterdir()):
        assert len(list(folder.glob("*.py"))) <= 15, folder
