"""The field model beside a peer, on a small simulated source, and the tables made of it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmark_scripts import load, run, told
from scipy import stats

from geogp.evaluation.simultaneous_coverage import ClassReport
from geogp.models.presets import FIELD_PRESETS


@pytest.fixture(scope="module")
def made(small, tmp_path_factory) -> Path:
    """Two seeds of the field model and one of gradient boosting, and their tables."""
    folder = tmp_path_factory.mktemp("region")
    where = ("--source", small.folder, "--boundaries", small.folder / "boundaries")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FIELD_PRESETS, "quick", replace(FIELD_PRESETS["quick"], epochs=2))
        for model, seeds in (("field", 2), ("lightgbm", 1)):
            options = ("--models", model, "--seeds", seeds, "--out", folder / "out")
            told("accuracy.field", "DEMO", *where, *options)
    told("accuracy.field_table", folder / "out", "--table", folder / "table")
    return folder


def test_means_and_errors_are_those_of_the_runs(made):
    lines = json.loads((made / "table" / "results.json").read_text())["DEMO-download"]
    assert [(line["model"], line["split"], list(line["rows"])) for line in lines] == [
        *(("field", "random", ["0", "1"]), ("field", "blocks", ["0", "1"])),
        *(("lightgbm", "random", ["0"]), ("lightgbm", "blocks", ["0"])),
    ]
    assert lines[0]["rows"]["0"] == lines[2]["rows"]["0"] != lines[1]["rows"]["0"]
    folder = made / "out" / "DEMO-download" / "field" / "quick"
    runs = [json.loads((folder / f"random-{seed}.json").read_text()) for seed in (0, 1)]
    scores = np.array([run["scores"]["all"]["nll"] for run in runs])
    base = np.array([run["baseline"]["all"]["nll"] for run in runs])
    assert lines[0]["means"]["nll"] == pytest.approx(scores.mean())
    assert lines[0]["means"]["gain"] == pytest.approx((base - scores).mean())
    assert lines[0]["errors"]["nll"] == pytest.approx(abs(scores[0] - scores[1]) / 2)
    assert lines[2]["errors"]["nll"] is None


def test_coverage_is_pooled_over_the_seeds(made):
    lines = json.loads((made / "table" / "results.json").read_text())["DEMO-download"]
    folder = made / "out" / "DEMO-download" / "field" / "quick"
    pit = np.concatenate([np.load(folder / f"random-{seed}.npz")["pit"] for seed in (0, 1)])
    whole = lines[0]["classes"][0]
    assert (whole["kind"], whole["n"]) == ("all", len(pit))
    found = [check["observed"] for check in whole["checks"]]
    assert found == pytest.approx([np.mean(np.abs(pit - 0.5) <= h / 2) for h in (0.5, 0.8, 0.95)])


def test_every_model_is_judged_on_the_same_rows(made):
    out = made / "out" / "DEMO-download"
    first, second = (
        np.load(out / model / "quick" / "blocks-0.npz") for model in ("field", "lightgbm")
    )
    for name in ("quarter", "tests", "devices", "block_x", "block_y"):
        np.testing.assert_array_equal(first[name], second[name])


def test_the_table_names_models_and_splits(made):
    text = (made / "table" / "table.md").read_text()
    assert text.count("| `lightgbm` |") == 6


def _raw(folder: Path, pit: np.ndarray, seeds: int) -> Path:
    """Raw files of one model: the same test rows in every seed, 40 in each of 100 blocks."""
    folder.mkdir(parents=True)
    scores = {"all": dict.fromkeys(("nll", "crps", "mae_median"), 1.0)}
    for seed in range(seeds):
        run = {"model": "field", "seed": seed, "rows": "one", "threads": 1, "scores": scores}
        run |= {"baseline": scores, "seconds": {"fit": 1.0, "predict": 1.0}}
        (folder / f"random-{seed}.json").write_text(json.dumps(run))
        block = np.repeat(np.arange(100), len(pit) // 100)
        np.savez(
            folder / f"random-{seed}.npz",
            pit=pit,
            stratum=np.where(np.arange(len(pit)) % 2, "urban", "rural"),
            quarter=np.zeros(len(pit), np.int64),
            tests=np.full(len(pit), 3),
            devices=np.full(len(pit), 2),
            block_x=block % 10,
            block_y=block // 10,
        )
    return folder


def _strata(folder: Path) -> dict[str, ClassReport]:
    line = load("accuracy.field_table").line_of(folder, "random")
    assert line is not None
    return {group.name: group for group in line.classes if group.kind == "stratum"}


def test_rows_of_a_block_go_together_over_the_seeds(tmp_path):
    """The same rows four times over tell no more than once."""
    pit = np.random.default_rng(0).uniform(0, 1, 4000)
    one, four = (_strata(_raw(tmp_path / str(n), pit, n)) for n in (1, 4))
    for name in ("urban", "rural"):
        assert four[name].n == 4 * one[name].n == 8000
        for first, second in zip(one[name].checks, four[name].checks, strict=True):
            assert second.observed == first.observed
            # The binomial deviation of 2,000 rows, 0.011 at 50 %, and not of 8,000.
            sd = np.sqrt(first.level * (1 - first.level) / 2000)
            assert second.error == pytest.approx(sd, rel=0.25)


def test_strata_are_marked_by_tolerance_and_by_chance(tmp_path):
    random = np.random.default_rng(0)
    n = 40_000
    urban = np.arange(n) % 2 == 1
    # Narrow intervals in all blocks of the urban rows, too wide ones in a few of the rural ones.
    z = random.standard_normal(n) * np.where(urban, 1.2, 1.0)
    few = ~urban & (np.repeat(np.arange(100), n // 100) < 6)
    z[few] *= 0.05
    folder = _raw(tmp_path / "TOWN-download" / "field" / "quick", stats.norm.cdf(z), 1)
    found = _strata(folder)
    urban_half, rural_half = found["urban"].checks[0], found["rural"].checks[0]
    assert not urban_half.lower <= 0.5 <= urban_half.upper
    assert abs(rural_half.observed - 0.5) > 0.015
    assert rural_half.lower <= 0.5 <= rural_half.upper
    told("accuracy.field_table", tmp_path, "--table", tmp_path / "table")
    (row,) = [
        line
        for line in (tmp_path / "table" / "table.md").read_text().split("\n")
        if line.startswith("| `field` | ") and "±" in line
    ]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    first, fourth = (
        f"{100 * check.observed:.1f} ± {100 * check.error:.1f}"
        for check in (urban_half, rural_half)
    )
    assert cells[1] == f"{first} †‡"
    assert cells[4] == f"{fourth} †"


def test_nothing_there_is_an_error(tmp_path, capsys):
    assert run("accuracy.field_table", str(tmp_path)) == 3
    assert "found none" in capsys.readouterr().err


def test_a_known_truth_is_compared_row_by_row(small, tmp_path):
    told("accuracy.field_recovery", "--source", small.folder, "--seeds", 1, "--table", tmp_path)
    (found,) = json.loads((tmp_path / "recovery.json").read_text())
    assert found["log_score"] > found["oracle"]
    assert found["level_correlation"] > 0
    assert f"| log score | {found['log_score']:.3f} |" in (tmp_path / "recovery.md").read_text()
