"""The scripts, and the table of their README: each has a row, and each result a link."""

import re

import pytest
import torch
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
        if name.startswith("pages.page"):
            pytest.importorskip("playwright")
        with pytest.raises(SystemExit) as ended:
            run(name, "--help")
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: python -m benchmarks {name} [-h]")


def test_an_unknown_name_is_refused(capsys):
    assert [load("__main__").main(words) for words in ([], ["speed.light"])] == [2, 2]
    assert "found 'speed.light': accuracy.ablation, " in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        *("kernels.exact_tables", "kernels.one_dimension", "kernels.uci", "networks.wheel"),
        *("speed.paper_scale", "speed.speed"),
    ],
)
def test_a_gpu_that_the_machine_lacks_is_refused(name, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        run(name, "--device", "cuda")
    assert ended.value.code == 2
    assert "no CUDA device is available; use --device cpu." in capsys.readouterr().err


def test_a_clock_is_read_when_the_gpu_is_done(monkeypatch):
    script, order = load("script"), []
    monkeypatch.setattr(torch.cuda, "synchronize", order.append)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(script, "perf_counter", lambda: order.append("read") or 5.0)
    assert script.costs("cuda", 3.0) == {"seconds": 2.0, "device": "a GPU"}
    assert order == ["cuda", "read"]
    assert script.costs("cpu", script.clock("cpu")).keys() == {"cpu_seconds"}
    assert len(order) == 2
