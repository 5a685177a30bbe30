"""Seconds and memory of the commands: their processes are real, the runs are not."""

import json
import sys

import numpy as np
import pytest
from benchmark_scripts import load, run

costs = load("answers.costs")


def test_a_command_is_measured():
    found = costs.measured(["--help"])
    assert found["cpu_seconds"] > 0
    assert found["seconds"] > 0
    assert 10e6 < found["peak_bytes"] < 8e9


def test_the_peak_is_that_of_the_command_alone(monkeypatch, tmp_path):
    program = tmp_path / "grows"
    program.write_text(f"#!{sys.executable} -S\nimport sys\nheld = b'x' * int(sys.argv[1])\n")
    program.chmod(0o755)
    monkeypatch.setattr(costs, "GEOGP", program)
    here = np.ones(10**8)  # 800 MB in this process
    small, large = (costs.measured([str(size)])["peak_bytes"] for size in (0, 3 * 10**8))
    assert len(here)
    assert small < 1e8
    assert 3e8 < large < 4e8


def test_a_command_that_fails_stops_the_script(tmp_path):
    with pytest.raises(RuntimeError, match=r"geogp areas .+ failed with status"):
        costs.measured(["areas", str(tmp_path / "nothing")])


@pytest.mark.parametrize("earlier", ["", "2022Q4"])
def test_every_command_has_a_row_for_each_zoom(earlier, tmp_path, monkeypatch):
    asked = []

    def measured(words: list[str]) -> dict[str, float]:
        asked.append(words)
        if words[0] == "map":
            folder, zoom = words[words.index("--out") + 1], int(words[words.index("--zoom") + 1])
            record = {
                "map": {"tiles": 1_000 * zoom},
                "n": {"random": {"train": 7_000}},
                "metrics": {"random": {"all": {"nll": 0.12345}}},
            }
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "run.json").write_text(json.dumps(record))
        return {"seconds": 10.4 * len(asked), "cpu_seconds": 3.0, "peak_bytes": 1.24e9}

    monkeypatch.setattr(costs, "measured", measured)
    options = ["GA", "--source", "s", "--boundaries", "b", "--quarters", "q", "--zooms", 16, 15]
    options += ["--earlier", earlier]
    run("answers.costs", *options, "--out", tmp_path / "out", "--table", tmp_path / "table")
    names = ["map", "areas", "exceedance", "next"] + ["change"] * bool(earlier)
    assert [words[0] for words in asked] == 2 * names
    given = "map GA --source s --boundaries b --quarters q --preset quick --split random --zoom 16"
    assert asked[0] == [*given.split(), "--fresh", "--out", str(tmp_path / "out" / "GA-16")]
    assert all(words[1] == str(tmp_path / "out" / "GA-15") for words in asked[len(names) + 1 :])
    text = (tmp_path / "table" / "table.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `geogp")]
    assert rows[0] == "| `geogp map` | 16 | 16,000 | 7,000 | 10 | 3 | 1.2 |"
    assert len(rows) == 2 * len(names)
    assert "`quick`; the log score of its test rows is 0.123 (random split)" in text
    assert len(json.loads((tmp_path / "table" / "results.json").read_text())) == len(rows)
