"""The benchmark of classes: its rows, its probabilities, and one tiny study."""

import json

import numpy as np
import pytest
from benchmark_scripts import load, run
from scipy import special

from geogp.distributions.heavy_shapes import StudentT
from geogp.distributions.prediction import Prediction

BENCH = "images.digits"


def test_removed_classes_have_no_training_rows(bench):
    rows = bench.images(3)
    known, removed = set(rows.train[1]), set(rows.unknown[1])
    assert len(known) == 7
    assert set(rows.test[1]) == known
    assert known.isdisjoint(removed)
    assert known | removed == set(range(10))
    every = np.concatenate([part[0] for part in (rows.train, rows.test, rows.unknown)])
    assert (every.min(), every.max()) == (-1, 1)
    assert not (np.sort(bench.images(4).train[1])[:900] == np.sort(rows.train[1])[:900]).all()


def test_a_quarter_turn_is_exact(bench):
    x = bench.images(0).test[0][:5]
    turned = np.rot90(x.reshape(-1, 8, 8), axes=(1, 2)).reshape(5, -1)
    found = [bench.rotated(x, angle) for angle in (90, -90)]
    assert min(np.abs(one - turned).max() for one in found) < 1e-9
    assert bench.rotated(x, 0) == pytest.approx(x)


def test_the_largest_of_two_or_four_values(bench):
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=(4, 6)), rng.uniform(0.3, 1, (4, 6))
    laws = [Prediction(m, s**2, 0 * s) for m, s in zip(mean, sd, strict=True)]
    two = bench.largest_probabilities(laws[:2])
    exact = special.ndtr((mean[0] - mean[1]) / np.hypot(sd[0], sd[1]))
    assert two[:, 0] == pytest.approx(exact, abs=1e-4)
    draws = mean[:, None] + sd[:, None] * rng.standard_normal((4, 100_000, 6))
    shares = np.stack([(draws.argmax(0) == j).mean(0) for j in range(4)], 1)
    assert bench.largest_probabilities(laws) == pytest.approx(shares, abs=0.006)
    heavy = [Prediction(m, s**2, 0 * s, shape=StudentT(5.0)) for m, s in zip(mean, sd, strict=True)]
    drawn = mean[:, None] + sd[:, None] * rng.standard_t(5, (4, 100_000, 6)) * np.sqrt(0.6)
    shares = np.stack([(drawn.argmax(0) == j).mean(0) for j in range(4)], 1)
    assert bench.largest_probabilities(heavy) == pytest.approx(shares, abs=0.006)


def test_a_fitted_estimator_knows_ten_classes(bench):
    rows = bench.images(0)
    few = bench.Images((rows.train[0][:100], rows.train[1][:100]), rows.test, rows.unknown)
    for method in ("class-dnn", "class-rich-bll, 40 %"):
        answer = bench.METHODS[method](few, 0)
        p = answer.probabilities(rows.test[0])
        assert p.shape == (len(rows.test[1]), 10)
        assert (p.argmax(1) == rows.test[1]).mean() > 0.5
        assert answer.unusual(rows.test[0]).min() > 0


def test_a_new_part_of_the_page_leaves_the_other_part(tmp_path, monkeypatch):
    tables = load("images.digits_table")
    monkeypatch.setattr(tables, "section", lambda part: f"eight by eight {part['seed']}\n")
    monkeypatch.setattr(tables.mnist_table, "section", lambda part: f"MNIST {part['seed']}\n")
    for name, seed in (("digits", 1), ("mnist", 2), ("digits", 3)):
        tables.write_part(tmp_path, name, {"seed": seed})
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored == {"digits": {"seed": 3}, "mnist": {"seed": 2}}
    assert (tmp_path / "table.md").read_text().endswith("MNIST 2\n\neight by eight 3\n")


def test_a_study_and_its_page(bench, tmp_path, monkeypatch):
    monkeypatch.setitem(bench.METHODS, "class-dnn", lambda rows, _: _guess(bench, rows))
    options = ["--seeds", "2", "--methods", "class-dnn", "--out", tmp_path / "out"]
    for _ in range(2):
        assert run(BENCH, *map(str, options), "--table", str(tmp_path)) == 0
    found = json.loads((tmp_path / "results.json").read_text())["digits"]["figures"]
    assert [one["seed"] for one in found] == [0, 1]
    assert found[0]["accuracy"] > 0.8
    assert found[0]["auroc_removed"] == 0.5
    assert found[0]["nll_all"] > found[0]["nll"]
    page = (tmp_path / "table.md").read_text()
    assert f"| `class-dnn`: MAP network | {np.mean([o['accuracy'] for o in found]):.3f} ±" in page


def _guess(bench, rows):
    """Answer by the nearest mean image, with the same score everywhere."""
    x, y = rows.train
    middles = np.stack([x[y == k].mean(0) if (y == k).any() else 9 + 0 * x[0] for k in range(10)])

    def probabilities(at):
        away = np.square(at[:, None] - middles).sum(2)
        return special.softmax(-0.1 * away, axis=1)

    return bench.Answer(probabilities, lambda at: np.zeros(len(at)))
