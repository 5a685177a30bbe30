"""The benchmark on tables, started as its user would."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load, run, told
from scipy import stats

from geogp.distributions.prediction import Prediction

SHORT = ("--epochs", "3", "--h", "8", "--r", "8", "--batch", "64", "--weights", "0.01,0.01")

SETTINGS = {
    "h": 64,
    "r": 128,
    "batch": 1024,
    "epochs": 400,
    "learning_rate": 2e-3,
    "head_rate": 10.0,
    "noise_rate": 2.0,
    "average": 10.0,
    "used_weights": {"alpha": 0.01, "beta": 0.1},
    "versions": {"geogp": "1"},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """400 rows; x1 is constant; columns stand out of order."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 50, (400, 2))
    y = np.sin(x[:, 0] / 10) + 0.1 * random.standard_normal(400) - 30
    frame = pd.DataFrame({"y": 100 * y, "x2": x[:, 1], "x0": x[:, 0], "x1": 7.0})
    path = tmp_path_factory.mktemp("tables") / "waves.parquet"
    frame.to_parquet(path)
    return path


@pytest.fixture(scope="module")
def found(table, tmp_path_factory) -> tuple[dict, Path]:
    out = tmp_path_factory.mktemp("out")
    options = ("--data", table, "--model", "dbk-silu", "--seeds", "2", "--json", "--out", out)
    said = told("kernels.uci", *options, *SHORT)
    return json.loads(said), out


def test_one_object_with_the_means_over_the_seeds(found):
    figures, _ = found
    assert {"mae", "rmse", "nll", "crps", "seconds", "per_seed"} <= figures.keys()
    assert [seed["seed"] for seed in figures["per_seed"]] == [0, 1]
    for key in ("mae", "rmse", "nll", "crps", "seconds"):
        assert figures[key] == pytest.approx(np.mean([s[key] for s in figures["per_seed"]]))
    # On the standardised scale, whatever the target's unit.
    assert figures["rmse"] < 1.5


def test_the_same_command_continues_where_it_stopped(found, table):
    figures, out = found
    kept = sorted(out.rglob("seed-*.json"))
    assert len(kept) == 2
    stamps = [path.stat().st_mtime_ns for path in kept]
    options = ("--data", table, "--model", "dbk-silu", "--seeds", "3", "--json", "--out", out)
    more = json.loads(told("kernels.uci", *options, *SHORT))
    assert more["per_seed"][:2] == figures["per_seed"]
    assert len(more["per_seed"]) == 3
    assert [path.stat().st_mtime_ns for path in kept] == stamps


def test_other_settings_are_other_figures(found, table):
    figures, out = found
    options = ("--data", table, "--model", "dbk-silu", "--seeds", "1", "--json", "--out", out)
    other = json.loads(told("kernels.uci", *options, *SHORT, "--learning-rate", "1e-4"))
    assert other["per_seed"][0]["nll"] != figures["per_seed"][0]["nll"]


def test_the_papers_recipe(table, tmp_path):
    """All seeds have the rows of one split, and inputs scaled by all rows."""
    frame = pd.read_parquet(table)
    frame.loc[np.random.default_rng(0).permutation(400)[-1], "x2"] = 60.0  # a row of the test part
    far = tmp_path / "far.parquet"
    frame.to_parquet(far)
    options = ("--data", far, "--model", "vbll", "--seeds", "2", "--json", "--out", tmp_path)
    found = json.loads(told("kernels.uci", *options, *SHORT, "--recipe", "paper"))
    paper = {"learning_rate": 1e-3, "decay": "constant", "average": 0.0, "clip": None, "split": 0}
    assert paper.items() <= found["settings"].items()
    uci = load("kernels.uci")
    rows = uci.Table(far)
    train = rows.split(uci.SHARED_SPLIT)["train"]
    for recipe, highest in (("paper", 60.0), ("own", train.x[:, 2].max())):
        asked = uci.make_parser().parse_args([*map(str, options), *SHORT, "--recipe", recipe])
        with pytest.warns(UserWarning, match="are not used: x1"):
            model = uci.Benchmark(rows, asked).make(train, 1)
        assert float(model.x_high[1]) == highest < 60.1
    assert train.x[:, 2].max() < 60


def test_the_papers_recipe_on_several_splits(table, tmp_path):
    options = ("--data", table, "--model", "dnn", "--seeds", "1", "--json", "--out", tmp_path)
    recipe = (*SHORT, "--recipe", "paper", "--splits", "0", "2")
    found = json.loads(told("kernels.uci", *options, *recipe))
    assert [(one["split"], one["seed"]) for one in found["per_seed"]] == [(0, 0), (2, 0)]
    assert found["per_seed"][0]["nll"] != found["per_seed"][1]["nll"]
    assert {p.name for p in tmp_path.rglob("*seed*")} == {"seed-0.json", "split-2-seed-0.json"}
    assert found["per_seed"][1]["new"]["share"] == 1.0


def test_new_rows_by_hand():
    uci = load("kernels.uci")
    y = np.array([0.0, 2.0, 5.0])
    prediction = Prediction.of_moments(np.zeros(3), np.ones(3))
    train = uci.Data(np.array([[1.0, 0.0], [3.0, 3.0]]), np.zeros(2))
    test = uci.Data(np.array([[1.0, -0.0], [1.0, 1.0], [3.0, 3.0]]), y)
    found = uci._new(prediction, train, test)
    assert (found["share"], found["mae"]) == (pytest.approx(1 / 3), 2.0)
    assert found["nll"] == pytest.approx(0.5 * np.log(2 * np.pi) + 2.0)
    assert uci._new(prediction, test, test) == {"share": 0.0}


def test_a_shorter_search(table, tmp_path):
    options = ("--data", table, "--model", "pp-dkl", "--seeds", "1", "--json", "--out", tmp_path)
    search = ("--weights", "auto", "--search-epochs", "1")
    found = json.loads(told("kernels.uci", *options, *SHORT[:-2], "--recipe", "paper", *search))
    (place,) = tmp_path.glob("waves/pp-dkl-*")
    trials = json.loads((place / "weights.json").read_text())
    assert found["settings"]["search_epochs"] == 1
    # After all three epochs, the validation rows have a lower score.
    assert trials[0]["nll"] > found["per_seed"][0]["validation_nll"]


def test_the_search_of_the_papers_recipe_takes_all_epochs(table, tmp_path):
    options = ("--data", table, "--model", "pp-dkl", "--seeds", "1", "--json", "--out", tmp_path)
    told("kernels.uci", *options, *SHORT[:-2], "--recipe", "paper", "--weights", "auto")
    (place,) = tmp_path.glob("waves/pp-dkl-*")
    trials = json.loads((place / "weights.json").read_text())
    assert sorted(one["weights"]["beta"] for one in trials) == [0.0, 0.01, 0.1, 1.0]
    first = json.loads((place / "seed-0.json").read_text())
    # The best trial is the fit of seed 0, because both have the same split, seed and epochs.
    assert trials[0]["nll"] == pytest.approx(first["validation_nll"], rel=1e-6)


def test_the_worst_rows(found):
    """The parts of the mean NLL add up to it, and the worst row is the worst."""
    for seed in found[0]["per_seed"]:
        rest = seed["nll_without_worst"] * 35 / 40
        assert seed["nll_of_worst"] + rest == pytest.approx(seed["nll"])
        assert seed["nll_without_worst"] < seed["nll"]
        assert seed["far"].keys() == {"train", "validation", "test"}


def test_rows_that_are_far_by_hand():
    uci = load("kernels.uci")
    y = np.zeros(20)
    y[3] = -3.5
    prediction = Prediction.of_moments(np.zeros(20), np.full(20, 0.25))
    found = uci._worst(prediction, y)
    one = 0.5 * np.log(2 * np.pi * 0.25)
    assert found["nll_without_worst"] == pytest.approx(one)
    assert found["nll_of_worst"] == pytest.approx((5 * one + 24.5) / 20)
    assert (found["worst_error"], found["worst_error_in_sd"]) == (-3.5, -7.0)
    assert uci._far(prediction, y) == 1


def test_student_tails_are_found_again():
    """Draws with 4 degrees of freedom and sds that are 1.5 times too small."""
    random = np.random.default_rng(0)
    variance = random.uniform(0.1, 2, 20_000)
    y = 3 + 1.5 * np.sqrt(variance / 2) * random.standard_t(4, 20_000)  # t with 4 has variance 2
    tails = load("kernels.heavier_tails")
    prediction = Prediction.of_moments(np.full(20_000, 3.0), variance)
    df, factor = tails.student_tails(prediction, y)
    assert df == pytest.approx(4, rel=0.1)
    assert factor == pytest.approx(1.5, rel=0.03)
    better = tails.with_student_tails(prediction, df, factor)
    expected = stats.t.logpdf(y - 3, 4, scale=1.5 * np.sqrt(variance / 2))
    assert better.log_score(y).mean() == pytest.approx(-expected.mean(), abs=1e-3)


def test_normal_rows_keep_nearly_normal_tails():
    y = np.random.default_rng(1).standard_normal(20_000)
    prediction = Prediction.of_moments(np.zeros(20_000), np.ones(20_000))
    df, factor = load("kernels.heavier_tails").student_tails(prediction, y)
    assert df > 50
    assert factor == pytest.approx(1, abs=0.03)


def test_a_peer_has_the_same_rows(table, tmp_path):
    options = ("--data", table, "--model", "gpytorch-ppgp", "--seeds", "1", "--json")
    said = told("kernels.uci", *options, "--out", tmp_path, *SHORT)
    assert json.loads(said)["rmse"] < 1.5


def test_the_table_is_made_from_the_figures(tmp_path):
    """Two models, three seeds: means, deviations and paired differences by hand."""
    scores = {"dbk-silu": [-2.0, -2.5, -3.0], "vbll": [-1.0, -1.0, -1.6]}
    for model, values in scores.items():
        folder = tmp_path / "out" / "pol" / f"{model}-0123456789"
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps(SETTINGS))
        for seed, nll in enumerate(values):
            rest = {"mae": 0.1, "crps": 0.2, "coverage_95": 0.95, "seconds": 3.0}
            (folder / f"seed-{seed}.json").write_text(
                json.dumps({"seed": seed, "nll": nll, **rest})
            )
    told("kernels.uci_table", tmp_path / "out", "--table", tmp_path / "made")
    text = (tmp_path / "made" / "table.md").read_text()
    first = (
        "| `dbk-silu` | 0.01, 0.1 | 400 | 3 | 3 | -2.500 ± 0.500 | -2.967 |  | 0.2000 | 0.0144 |"
    )
    assert f"{first} 0.1000 | 0.0190 |" in text
    # Differences -1, -1.5, -1.4: mean -1.3, deviation 0.2646, standard error 0.1528. The paper's:
    # -2.9670 + 1.6801 = -1.287, 0.0144 - 0.0215 = -0.0071, 0.0190 - 0.0205 = -0.0015.
    same = "+0.0000 ± 0.0000"
    second = f"-1.300 ± 0.153 | -1.287 | {same} | -0.0071 | {same} | -0.0015 |"
    assert f"| pol | `dbk-silu` | `vbll` | {second}" in text


def test_the_mean_of_several_splits(tmp_path):
    """Split 0 has two seeds, split 1 has one: the mean of the splits' means, and their spread."""
    made = {"dbk-silu": {(0, 0): -2.0, (0, 1): -4.0, (1, 0): -1.0}, "vbll": {(0, 0): 0.0}}
    for model, of in made.items():
        folder = tmp_path / "out" / "keggdirected" / f"{model}-0"
        folder.mkdir(parents=True)
        settings = {**SETTINGS, "recipe": "paper", "split": 0}
        (folder / "settings.json").write_text(json.dumps(settings))
        for (split, seed), nll in of.items():
            rest = {"mae": 0.1, "crps": 0.2, "coverage_95": 0.95, "seconds": 3.0}
            figures = {"seed": seed, "split": split, "nll": nll, **rest, "best_epoch": 9}
            figures["new"] = {"share": 0.25, "nll": nll + 1, "mae": 0.3}
            (folder / f"split-{split}-seed-{seed}.json").write_text(json.dumps(figures))
    told("kernels.uci_table", tmp_path / "out", "--table", tmp_path / "made")
    text = (tmp_path / "made" / "table.md").read_text()
    # The means are -3 and -1: mean -2, deviation 1.414.
    assert "| `dbk-silu` | 0.01, 0.1 | 400 | 2 | 3 | -2.000 ± 1.414 | -1.648 |" in text
    assert "| keggdirected | `dbk-silu` | `vbll` | -2.000 | -0.597 |" in text
    new = "25.0 % | -1.000 ± 1.414 | -2.000 ± 1.414 | 0.3000 ± 0.0000 | 0.1000 ± 0.0000 |"
    assert f"| keggdirected | `dbk-silu` | {new}" in text


def test_the_table_says_whether_weights_were_searched(tmp_path):
    folder = tmp_path / "out" / "pol"
    made = {"dbk-silu-0": "auto", "dbk-silu-1": "0.01,0.1", "dbk-rbf-0": "0.01,0.1"}
    for place, weights in made.items():
        (folder / place).mkdir(parents=True)
        settings = {**SETTINGS, "recipe": "paper", "split": 0, "weights": weights}
        if weights == "auto":
            settings["used_weights"] = {"alpha": 0.1, "beta": 1.0}
        (folder / place / "settings.json").write_text(json.dumps(settings))
        figures = {"nll": -1.0, "mae": 0.1, "crps": 0.2, "coverage_95": 0.95, "seconds": 3.0}
        figures |= {"seed": 0, "student_t": {"nll": -1.5}}
        (folder / place / "seed-0.json").write_text(json.dumps(figures))
    trials = [{"weights": {"alpha": 0.1, "beta": 1.0}, "nll": -2.0}]
    (folder / "dbk-silu-0" / "weights.json").write_text(json.dumps(trials))
    told("kernels.uci_table", tmp_path / "out", "--table", tmp_path / "made")
    text = (tmp_path / "made" / "table.md").read_text()
    assert "| pol | `dbk-silu` | 400 | 0.1 | 1 | -2.000 |" in text
    # Both pairs of weights of the same model have a row.
    assert "| `dbk-silu` | 0.1, 1 | 400 |" in text
    assert "| `dbk-silu` | 0.01, 0.1 | 400 |" in text
    assert "for\n`dbk-silu` on pol (1 fits of 400 epochs);\nfor all others they are given" in text
    assert "| `dbk-rbf` | 0.01, 0.1 | 400 | 1 | 1 | -1.000 | -2.981 | -1.500 | 0.2000 |" in text


def test_the_sensitivity_is_drawn_from_every_pair(table, tmp_path):
    made = tmp_path / "made"
    options = ("--data", table, "--seeds", "1", "--out", tmp_path / "out", "--table", made)
    told("kernels.sensitivity", *options, *SHORT[:-2], "--epochs", "1")
    found = json.loads((made / "sensitivity-waves-1.json").read_text())
    pairs = {(line["alpha"], line["beta"]) for line in found["dbk-silu"]}
    assert pairs == {(a, b) for a in (0, 0.01, 0.1, 1) for b in (0, 0.01, 0.1, 1)}
    assert len({line["per_seed"][0]["nll"] for line in found["dbk-silu"]}) > 4
    assert (made / "sensitivity-waves-1.png").stat().st_size > 10_000


def test_the_sensitivity_to_one_weight(table, tmp_path):
    options = ("--data", table, "--seeds", "2", "--out", tmp_path / "out", "--table", tmp_path)
    told("kernels.sensitivity", *options, *SHORT[:-2], "--alphas", "0", "1", "--betas", "0.01")
    text = (tmp_path / "sensitivity-waves-3.md").read_text()
    assert "| alpha | 1 | " in text
    assert "| beta | " not in text
    assert "\n| alpha | beta 0.01 |\n" in text


def test_the_sensitivity_to_one_weight_at_a_time(table, tmp_path):
    options = ("--data", table, "--seeds", "2", "--out", tmp_path / "out", "--table", tmp_path)
    told("kernels.sensitivity", *options, *SHORT[2:-2], "--epochs", "1", "--one-at-a-time")
    found = json.loads((tmp_path / "sensitivity-waves-1.json").read_text())
    pairs = {(line["alpha"], line["beta"]): line["per_seed"] for line in found["dbk-silu"]}
    alone = [(value, 0.01) for value in (0, 0.1, 1)] + [(0.01, value) for value in (0, 0.1, 1)]
    assert pairs.keys() == {(0.01, 0.01), *alone}
    text = (tmp_path / "sensitivity-waves-1.md").read_text()
    differences = [a["nll"] - b["nll"] for a, b in zip(pairs[0.01, 1], pairs[0.01, 0], strict=True)]
    assert f"| beta | 1 | {np.mean(differences):+.4f} ± " in text
    assert "--one-at-a-time --batch 64" in text
    assert "\n| 0 |  | " in text  # a pair that was not fitted


def test_effects_are_paired():
    """Two seeds of different levels: the effect of alpha 0.1 is -1 and -3, whatever beta is."""
    sensitivity = load("kernels.sensitivity")
    grid = (0.0, 0.01, 0.1, 1.0)
    pairs = {
        (a, b): [{"nll": 100 + b - 1 * (a == 0.1)}, {"nll": 7 + b - 3 * (a == 0.1)}]
        for a in grid
        for b in grid
    }
    nll = sensitivity.COMPARED["NLL"]
    assert sensitivity.effect(pairs, 0, 0.1, nll) == "-2.0000 ± 1.0000"
    assert sensitivity.effect(pairs, 0, 1.0, nll) == "+0.0000 ± 0.0000"
    assert sensitivity.effect(pairs, 1, 1.0, nll) == "+1.0000 ± 0.0000"


def test_figures_made_differently_are_no_table(tmp_path, capsys):
    for model, epochs in (("dbk-silu", 400), ("vbll", 3)):
        folder = tmp_path / "out" / "pol" / f"{model}-0123456789"
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps({**SETTINGS, "epochs": epochs}))
        (folder / "seed-0.json").write_text(json.dumps({"seed": 0, "nll": 0.0}))
    assert run("kernels.uci_table", tmp_path / "out", "--table", tmp_path / "made") == 2
    assert "several values of epochs" in capsys.readouterr().err


def test_one_model_with_two_pairs_of_given_weights_is_no_table(tmp_path, capsys):
    for place in ("dbk-silu-0", "dbk-silu-1"):
        folder = tmp_path / "out" / "pol" / place
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps({**SETTINGS, "weights": "0,0"}))
        (folder / "seed-0.json").write_text(json.dumps({"seed": 0, "nll": 0.0}))
    assert run("kernels.uci_table", tmp_path / "out", "--table", tmp_path / "made") == 2
    assert "figures of several settings" in capsys.readouterr().err


def test_no_table_without_figures(tmp_path, capsys):
    options = [str(tmp_path / "nothing"), "--table", str(tmp_path / "made")]
    assert run("kernels.uci_table", *options) == 2
    assert "no figures" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("frame", "code", "message"),
    [
        ({"x0": [1.0, 2.0], "z": [1.0, 2.0]}, 2, "expected columns x0, x1, ... and y"),
        ({"x0": np.arange(50.0), "y": np.ones(50)}, 2, "one value in all training rows"),
        ({"x0": np.arange(50.0), "y": np.r_[np.nan, np.arange(49.0)]}, 3, "finite"),
        ({"x0": np.ones(50), "y": np.arange(50.0)}, 3, "each of the columns"),
    ],
)
def test_refused_tables(*, frame, code, message, tmp_path, capsys):
    path = tmp_path / "t.csv"
    pd.DataFrame(frame).to_csv(path, index=False)
    options = ["--data", str(path), "--model", "dnn", "--out", str(tmp_path), *SHORT]
    assert run("kernels.uci", *options) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--weights", "0.5"), "two numbers with a comma"),
        (("--weights", "0.5,-1"), "weight beta of 0 or more"),
        (("--seeds", "0"), "1 seed or more"),
        (("--epochs", "0"), "found epochs 0"),
        (("--splits", "1"), "in --recipe own the seed is the split"),
    ],
)
def test_refused_options(options, message, table, tmp_path, capsys):
    where = ["--data", str(table), "--model", "dnn", "--out", str(tmp_path)]
    assert run("kernels.uci", *where, *SHORT, *options) == 2
    assert message in capsys.readouterr().err


def test_an_absent_file(tmp_path, capsys):
    assert run("kernels.uci", "--data", str(tmp_path / "no.parquet"), "--model", "dnn") == 2
    assert "found none at" in capsys.readouterr().err
