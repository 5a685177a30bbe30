"""Parts of the benchmark of Student-t noise, and one small run of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmark_scripts import run, started

BENCH = "accuracy.robust"


def test_a_share_of_the_open_rows_is_wrong_by_the_factor(bench):
    y = np.random.default_rng(0).normal(1.5, 0.5, 1000)
    open_rows = np.arange(1000) < 800
    wrong = bench.contaminated(y, open_rows, share=0.05, factor=30, seed=1)
    moved = wrong != y
    assert moved.sum() == 40
    assert not moved[800:].any()
    speeds = 10 ** (wrong - y)[moved]
    assert set(np.round(speeds, 6)) == {30.0, round(1 / 30, 6)}
    again = bench.contaminated(y, open_rows, share=0.05, factor=30, seed=1)
    np.testing.assert_array_equal(again, wrong)
    other = bench.contaminated(y, open_rows, share=0.05, factor=30, seed=2)
    assert (other != wrong).any()
    none = bench.contaminated(y, open_rows, share=0.0, factor=30, seed=1)
    np.testing.assert_array_equal(none, y)


@pytest.fixture(scope="module")
def made(small, tmp_path_factory) -> tuple[Path, list[str], str]:
    folder = tmp_path_factory.mktemp("robust")
    options = [
        *("DEMO", "--source", str(small.folder), "--boundaries", str(small.folder / "boundaries")),
        *("--models", "vbll", "--seeds", "1", "--epochs", "1"),
        *("--rank", "8", "--out", str(folder / "out"), "--table", str(folder / "table")),
    ]
    return folder, options, started(BENCH, *options)


def test_every_fit_is_in_the_table(made, bench):
    folder, _, _ = made
    fits = json.loads((folder / "table" / "DEMO.json").read_text())
    assert [(one["share"], one["noise"]) for one in fits] == [
        *((0.0, "gaussian"), (0.0, "student-t"), (0.05, "gaussian"), (0.05, "student-t"))
    ]
    assert all(one["settings"]["r"] == 8 and one["settings"]["epochs"] == 1 for one in fits)
    assert len({tuple(one["n"].items()) for one in fits}) == 1
    # Wrong rows change the fit, and the kind of noise does.
    assert len({one["scores"]["nll"] for one in fits}) == 4
    assert [one["df"] is None for one in fits] == [True, False, True, False]
    text = (folder / "table" / "DEMO.md").read_text()
    assert f"| {fits[3]['scores']['nll']:.4f} |" in text
    assert text.count("| `vbll` |") == 4


def test_a_finished_fit_is_not_made_again(made, bench, monkeypatch, capsys):
    _, options, told = made
    assert told.count("vbll") == 4
    assert run(BENCH, *options) == 0
    assert capsys.readouterr().out == ""


def test_lines_are_means_over_the_seeds(bench):
    def fit(seed, value, df):
        scores = dict.fromkeys(bench.SCORES, value)
        kind = {"share": 0.0, "model": "vbll", "noise": "student-t", "seed": seed}
        return {**kind, "scores": scores, "df": df, "seconds": 2 * value}

    (line,) = bench.lines_of([fit(0, 1.0, 3.0), fit(1, 3.0, 5.0)])
    assert line["seeds"] == 2
    assert line["nll"] == line["coverage_95"] == 2.0
    assert line["df"] == 4.0
    assert line["seconds"] == 4.0
