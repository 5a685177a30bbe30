"""The benchmark of exact processes: its data, its refusal, and one tiny study."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from benchmark_scripts import SCRIPTS, load, told

from geogp.models.catalogue.build import build
from geogp.models.fitting.loop import fit
from geogp.models.process.architecture import Architecture
from geogp.models.process.diagonals import Diagonal

BENCH = "kernels.exact_tables"

TINY = ("--steps", "3", "--batch-steps", "3", "--likelihood-rows", "30", "--seeds", "2")
TINY += ("--sizes", "40")


@pytest.fixture(scope="module")
def fits():
    return load("kernels.exact_fits")


def test_the_mean_has_a_wave_on_its_steps(fits):
    x = np.array([-0.9, 0.2])
    wave = 0.01 * np.sin(50 * np.sin(10 * x))
    np.testing.assert_allclose(fits.step_mean(x), np.array([0.3, -0.6]) + wave, atol=1e-12)


def test_the_noise_is_as_the_paper_says_and_seeds_differ(fits):
    parts, other = fits.draw(20_000, 1), fits.draw(20_000, 2)
    train = parts["train"]
    assert (train.y - fits.step_mean(train.x[:, 0])).std() == pytest.approx(0.1, rel=0.03)
    assert len(parts["test"].y) == 1000
    assert not np.array_equal(train.y, other["train"].y)


def test_the_split_is_seven_one_two(fits, tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x0": np.arange(1000.0), "y": np.arange(1000.0)}).to_csv(path)
    parts = fits.Table(path).split(3, fits.SHARES)
    assert {name: len(part.y) for name, part in parts.items()} == {
        "train": 700,
        "validation": 100,
        "test": 200,
    }
    rows = np.concatenate([part.x[:, 0] for part in parts.values()])
    np.testing.assert_array_equal(np.sort(rows), np.arange(1000))


def test_a_tiny_study_continues_and_refuses_what_is_too_large(
    bench, fits, tmp_path, monkeypatch, capsys
):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (90, 2))
    path = tmp_path / "waves.parquet"
    pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "y": x.sum(1)}).to_parquet(path)
    options = [*TINY, "--data", str(path), "--out", str(tmp_path / "out")]
    options += ["--table", str(tmp_path / "made")]
    monkeypatch.setattr(bench, "MOST_ROWS", 50)
    monkeypatch.setattr(fits, "MOST_ROWS", 50)
    told(BENCH, *options)
    assert "GP takes at most 50 rows, found 62" in capsys.readouterr().err
    found = json.loads((tmp_path / "made" / "results.json").read_text())
    assert {one["model"] for one in found if one["table"] == "figure 3"} == set(bench.MODELS)
    assert {one["model"] for one in found if one["table"] == "waves"} == {*bench.MODELS} - set(
        fits.EXACT
    )
    assert {one["seed"] for one in found} == {0, 1}
    text = (tmp_path / "made" / "table.md").read_text()
    mean = np.mean([f["nll"] for f in found if (f["table"], f["model"]) == ("waves", "sGP")])
    assert "| waves | 62 | sGP | 3 | fast | 2 | " in text
    assert f"| {mean:.3f} ± " in text
    assert "| 40 | GP | 3 |  | 2 | " in text
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("a fit is made again"))
    told(BENCH, *options)


def test_the_correction_is_measured_as_the_model_adds_it(fits):
    case = fits.Case(fits.FIGURE, "DBK", 50, 0, 3, 50, "slow")
    parts = fits.draw(50, 0)
    train, test = parts["train"], parts["test"]
    model = build("dbk-exact", Architecture(1, r=32), train.x, scaling="minmax")
    fit(model, train, parts["validation"], case.settings())
    found = fits.described(case, model, train, test)
    level = model.predict(train.x, level=True).function_variance
    k = np.square(model.features(train.x)).sum(1)
    posterior = np.square(model.features(train.x) @ model.posterior.L.numpy()).sum(1)
    added = level - posterior  # c(x, x), the rest of the variance of the level
    np.testing.assert_allclose(added, k.max() - k, atol=1e-6)
    assert found["added"] == pytest.approx(added.mean(), rel=1e-3)
    assert found["trace"] == pytest.approx(found["added"] / (2 * found["noise_variance"]))
    assert found["nll"] == pytest.approx(model.predict(test.x).log_score(test.y).mean())
    model.diagonal = Diagonal()
    bare = model.predict(test.x).log_score(test.y).mean()
    assert found["nll_without_c"] == pytest.approx(bare)
    assert abs(found["nll_without_c"] - found["nll"]) > 1e-4


def test_a_fit_reports_its_last_step_beside_the_chosen_one(fits):
    case = fits.Case(fits.FIGURE, "DBK-c", 30, 0, 60, 30, "fast")
    found = fits.measure(case, lambda seed: fits.draw(30, seed))
    assert 0 < found["best_step"] < 60
    assert found["last"]["nll"] != found["nll"]
    assert "last" not in found["last"]


def test_the_paper_s_network_is_two_layers_of_tanh(fits):
    basis = fits.TanhBasis(2, 5)
    first, second, third = (basis.backbone[k] for k in (0, 2, 4))
    x = torch.tensor([[0.3, -0.7]])
    expected = third(second(first(x).tanh()).tanh())
    torch.testing.assert_close(basis(x).phi, expected)
    assert [layer.out_features for layer in (first, second, third)] == [128, 128, 5]


def test_batches_take_whole_epochs(fits):
    case = fits.Case("t", "SVDBK", 1000, 0, 10, 1000, "batches")
    assert case.per_epoch == 4
    assert case.settings().epochs == 3
    assert (case.settings().batch, case.settings().learning_rate) == (256, 2e-3)


def test_results_are_added_and_the_longest_fits_are_shown(bench, tmp_path):
    def made(*options):
        told(BENCH, *options, "--out", str(tmp_path), "--table", str(tmp_path / "made"))
        return json.loads((tmp_path / "made" / "results.json").read_text())

    short = ("--steps", "2", "--seeds", "2", "--sizes", "30", "--models")
    made(*short, "DBK", "DBK-c")
    made(*short, "sGP")
    found = made("--steps", "3", "--seeds", "1", "--sizes", "30", "--models", "DBK")
    assert [(one["model"], one["steps"], one["seed"]) for one in found] == [
        *(("sGP", 2, 0), ("sGP", 2, 1), ("DBK", 3, 0), ("DBK-c", 2, 0), ("DBK-c", 2, 1)),
    ]
    text = (tmp_path / "made" / "table.md").read_text()
    assert "| figure 3 | 30 | DBK | " not in text  # pairs need as many steps
    made("--steps", "3", "--seeds", "1", "--sizes", "30", "--models", "DBK-c")
    by_model = {one["model"]: one for one in bench.in_order(made(*short, "sGP"))}
    gain = by_model["DBK"]["nll"] - by_model["DBK-c"]["nll"]
    text = (tmp_path / "made" / "table.md").read_text()
    assert f"| figure 3 | 30 | DBK | 3 | 1 | {gain:.3f} | " in text


def test_a_fit_with_the_usual_training_stands_for_longer_ones_with_another(bench):
    one = {"table": "t", "n": 9, "model": "DBK", "seed": 0}
    ways = [("slow", 500), ("large noise", 20), ("large noise", 50), ("slow", 800)]
    found = [{**one, "training": training, "steps": steps} for training, steps in ways]
    assert bench.split(found) == ([found[2]], [])
    assert bench.split([found[0], found[3]]) == ([found[3]], [])


def test_the_usual_training_is_the_best_on_validation_rows(bench):
    found = json.loads((SCRIPTS / "results" / "exact" / "results.json").read_text())
    for model in ("DBK", "DBK-c"):
        scores = {}
        for one in bench.split(found)[1]:
            if (one["model"], one["steps"]) == (model, 200):
                scores.setdefault(one["training"], []).append(one["validation_nll"])
        assert {len(values) for values in scores.values()} == {3}
        means = {training: np.mean(values) for training, values in scores.items()}
        assert sorted(means) == ["fast", "free noise", "large noise", "slow"]
        assert min(means, key=means.get) == bench.MODELS[model].training


def test_trainings_are_compared_on_figure_3(bench, tmp_path, monkeypatch):
    causes = (bench.Cause(2, "slow", "fast"), bench.Cause(3, "large noise", "large noise", 1))
    ways = {
        ("DBK", 2, "slow"): 3,
        ("DBK-c", 2, "fast"): 3,
        ("DBK", 3, "large noise"): 1,
        ("DBK-c", 3, "large noise"): 1,
    }
    monkeypatch.setattr(bench, "CAUSES", causes)
    monkeypatch.setattr(bench, "WAYS", ways)
    monkeypatch.setattr(bench, "CAUSE_ROWS", 40)
    told(BENCH, "--causes", "--seeds", "2", "--out", tmp_path, "--table", tmp_path / "made")
    found = json.loads((tmp_path / "made" / "results.json").read_text())
    assert [(one["model"], one["training"], one["seed"]) for one in found] == [
        *(("DBK", "slow", 0), ("DBK", "slow", 1), ("DBK", "large noise", 0)),
        *(("DBK-c", "fast", 0), ("DBK-c", "fast", 1), ("DBK-c", "large noise", 0)),
    ]
    text = (tmp_path / "made" / "table.md").read_text()
    ends = [one["last"]["nll"] for one in found if one["training"] == "fast"]
    assert "| 2 | slow | DBK | 2 | " in text
    assert f"| {np.mean(ends):.3f} ± {np.std(ends, ddof=1):.3f} | " in text
    assert "| 40 | DBK | " not in text  # these fits are no result of figure 3


def test_the_paper_s_scores_are_those_of_its_models(bench):
    assert {name for _, name in bench.PAPER} == set(bench.MODELS)
    assert all(len(scores) == 4 for scores in bench.PAPER.values())


@pytest.mark.parametrize("models", [("GP", "DKL"), ("sGP", "DBK", "SVDBK")])
def test_the_second_device_gives_the_figures_of_the_cpu(models, on_both):
    here, there = on_both(BENCH, *TINY, "--models", *models)
    for one in (*here, *there):
        for part in (one, one.get("last", {})):
            if "effective_rank" in part:  # by another order of the rows on the way back
                part["effective_rank"] = round(part["effective_rank"], 6)
    assert there == here
