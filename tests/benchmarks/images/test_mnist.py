"""The benchmark of MNIST: its rows, its convolutional body, its verdicts, and one tiny study."""

import json
import math

import numpy as np
import pytest
import torch
from benchmark_scripts import load, run
from torch.nn import functional

from geogp.distributions.prediction import Prediction

BENCH = "images.mnist"


@pytest.fixture(scope="module")
def rows():
    return load("images.mnist_rows")


@pytest.fixture(scope="module")
def bodies():
    return load("images.convolutional_body")


class TestRows:
    def test_only_the_training_rows_of_a_seed_change(self, rows):
        kinds = {kind: rows.rows_of(kind, 1) for kind in rows.TRAININGS}
        clean = kinds["clean"]
        assert (len(clean.train[1]), len(clean.test[1])) == (4000, 1000)
        both = np.concatenate([clean.train[0], clean.test[0]])
        assert len(np.unique(both, axis=0)) == len(np.unique(rows.all_images()[0], axis=0))
        for kind in ("imbalance", "noise"):
            assert (kinds[kind].test[0] == clean.test[0]).all()
        assert not (rows.rows_of("clean", 2).test[0] == clean.test[0]).all()

    def test_removed_classes_have_no_training_rows(self, rows):
        found = rows.rows_of("removed", 1)
        known, removed = set(found.train[1]), set(found.unknown[1])
        assert (len(known), len(removed), known & removed) == (7, 3, set())
        assert set(found.test[1]) == known
        assert len(found.test[1]) + len(found.unknown[1]) == 1000

    def test_unequal_classes_fall_geometrically(self, rows):
        counts = np.sort(np.bincount(rows.rows_of("imbalance", 1).train[1], minlength=10))
        expected = 400 * rows.LEAST ** np.linspace(1, 0, 10)
        assert counts == pytest.approx(expected, rel=0.12)

    def test_half_of_the_labels_are_drawn_from_all_classes(self, rows):
        clean, noisy = rows.rows_of("clean", 1).train, rows.rows_of("noise", 1).train
        assert (clean[0] == noisy[0]).all()
        assert (clean[1] != noisy[1]).mean() == pytest.approx(rows.WRONG * 0.9, abs=0.03)

    def test_corruptions_have_their_parameters(self, rows):
        grey = np.full((20, 784), 0.2)  # 0.6 from black to white
        found = {name: (rows.corrupted(grey, name, 0) + 1) / 2 for name in rows.CORRUPTIONS}
        assert all(x.min() >= 0 and x.max() <= 1 for x in found.values())
        assert found["glass blur"] == pytest.approx((grey + 1) / 2)
        extreme = np.isin(found["impulse"], (0, 1))
        assert extreme.mean() == pytest.approx(rows.IMPULSES, abs=0.01)
        assert found["impulse"][~extreme] == pytest.approx(0.6)
        photons = np.rint(found["shot"] * rows.SHOTS)
        assert found["shot"] * rows.SHOTS == pytest.approx(photons)
        assert (photons == 0).mean() == pytest.approx(math.exp(-0.6 * rows.SHOTS), abs=0.01)
        assert (found["spatter"] < 0.55).any()
        assert found["spatter"].max() == pytest.approx(0.6)

    def test_glass_blur_moves_pixels_but_keeps_ink(self, rows):
        x = rows.all_images()[0][:50]
        found = rows.corrupted(x, "glass blur", 0)
        assert (found + 1).sum() == pytest.approx((x + 1).sum(), rel=0.02)
        assert np.abs(found - x).mean() > 0.02
        assert (rows.corrupted(x, "glass blur", 0) == found).all()

    def test_other_digits_keep_their_grey_values(self, rows):
        found = rows.other_digits()
        assert found.shape == (1797, 784)
        assert (found.min(), found.max()) == pytest.approx((-1, 1), abs=0.01)


class TestBody:
    def test_forward_is_that_of_plain_convolutions(self, bodies):
        torch.manual_seed(0)
        body = bodies.ConvolutionalBody((3, 4), h=6).double()
        for bias in body.biases:
            torch.nn.init.normal_(bias)
        x = torch.rand(5, 784).double()
        w, b = list(body.weights), [math.sqrt(len(b)) * b for b in body.biases]
        a = functional.pad(x.view(5, 1, 28, 28) + 1, (2, 2, 2, 2))
        first = functional.conv2d(a, math.sqrt(3) * w[0].view(3, 1, 5, 5), b[0])[..., ::2, ::2]
        a = functional.pad(first.relu(), (2, 2, 2, 2))
        second = functional.conv2d(a, w[1].view(4, 3, 5, 5), b[1])[..., ::2, ::2]
        last = (second.relu().flatten(1) @ w[2].T + b[2]).relu() / math.sqrt(6)
        assert torch.allclose(body(x), last)

    def test_tangents_are_the_gradients_of_each_row(self, bodies):
        torch.manual_seed(0)
        body = bodies.ConvolutionalBody((3, 4), h=6).double()
        x, readout = torch.rand(4, 784).double(), torch.randn(7).double()
        with torch.no_grad():
            found = body.tangents(x, readout)
        for row in range(4):
            body.zero_grad()
            (body(x[row : row + 1]) @ readout[:-1]).sum().backward()
            for layer, (w, b) in enumerate(zip(body.weights, body.biases, strict=True)):
                whole = torch.cat([w.grad, b.grad[:, None]], 1)
                block = found.block(layer, slice(1, 3))[row]
                assert torch.allclose(block, whole[1:3].flatten(), rtol=1e-9, atol=1e-12)
        assert torch.allclose(found.last, torch.cat([body(x), torch.ones(4, 1)], 1))

    def test_dropout_stays_on_in_predictions(self, bodies):
        x = np.random.default_rng(0).uniform(-1, 1, (3, 784))
        for dropped, same in (((0.0, 0.0), True), ((0.5, 0.0), False), ((0.0, 0.5), False)):
            made = bodies.with_body("class-dnn", 0, dropped)
            torch.nn.init.normal_(made.posterior.parts[0].m)
            pair = [made.predict(x).mean for _ in range(2)]
            assert (pair[0] == pair[1]).all() == same


def test_a_verdict_needs_an_interval_on_the_papers_side():
    verdict = load("images.mnist_table").verdict
    assert verdict([-1.0, -1.1, -0.9], -1) == "as in the paper"
    assert verdict([-1.0, -1.1, -0.9], 1) == "opposite"
    assert verdict([-1.0, -1.1, -0.9], 0) == "differ here"
    assert verdict([-1.0, 0.9, 0.2], 0) == "no difference seen"
    assert verdict([-1.0, 0.9, 0.2], -1) == "no difference seen"
    assert verdict([-1.0], -1) == "one seed"


def test_claims_name_methods_and_figures_of_the_page():
    tables = load("images.mnist_table")
    for claim in tables.CLAIMS:
        assert {claim.first, claim.second} <= set(tables.NAMES)
        assert claim.figure in tables.FIGURES
        difference = claim.paper[0] - claim.paper[1]
        assert claim.direction in {0, np.sign(difference)}


def test_a_scale_of_1_divides_the_variances(bench, monkeypatch):
    class Certain:
        """A process with the mean 0.1, or 0.9 for class 3, and the variance 0.25."""

        def __init__(self, code):
            self.mean = 0.9 if code == 3 else 0.1

        def predict(self, x):
            ones = np.ones(len(x))
            return Prediction(self.mean * ones, 0.2 * ones, 0.05 * ones)

    monkeypatch.setattr(bench, "CORRUPTIONS", ("shot",))
    monkeypatch.setattr(bench, "unit_scale", lambda _: 0.25)
    made = {code: Certain(code) for code in range(10)}
    monkeypatch.setattr(bench, "indicator_processes", lambda *_, **__: made)
    rows = bench.rows_of("clean", 0)
    threes = bench.Images(*[(x[y == 3], y[y == 3]) for x, y in (rows.train, rows.test)], rows.test)
    found = bench.indicators(threes, 0)
    assert list(found) == ["nngp", "nngp, scale 1", "t-process", "burr-process"]
    for name, variance in (("nngp", 0.25), ("nngp, scale 1", 1.0), ("t-process", 0.25)):
        expected = 5 * (math.log(2 * math.pi * variance) + 0.1**2 / variance)
        assert found[name]["density"] == pytest.approx(expected)
        assert found[name]["density_shot"] == pytest.approx(expected)
        assert found[name]["accuracy"] == 1


def test_last_layers_have_the_logits_of_the_same_network(bench, monkeypatch):
    for name, value in (("ENSEMBLE", 2), ("PASSES", 2), ("EPOCHS", 1)):
        monkeypatch.setattr(bench, name, value)
    rows = _cut(bench.rows_of("clean", 0), 200)
    x = rows.test[0][:20]
    laws = {name: method.law(x) for name, method in bench.last_layers(rows, 0)}
    names = ("class-laplace", "class-bll", "class-rich-bll", "class-rich-bll, 40 %")
    assert set(laws) == {"class-dnn", *names, "class-dnn, 2", "dropout", "last dropout"}
    assert not laws["class-dnn"].variance.any()
    for name in names:
        assert laws[name].mean == pytest.approx(laws["class-dnn"].mean)
        assert laws[name].variance.min() > 0
    assert len({laws[name].variance.sum() for name in names}) == 4
    for name in ("class-dnn, 2", "dropout", "last dropout"):
        assert len(laws[name].mean) == 2
        assert (laws[name].mutual_information > 0).any()


def test_a_tiny_study_and_its_page(bench, tmp_path, monkeypatch, capsys):
    whole, others = bench.rows_of, bench.other_digits()[:50]
    monkeypatch.setattr(bench, "rows_of", lambda *of: _cut(whole(*of), 150))
    monkeypatch.setattr(bench, "other_digits", lambda: others)
    monkeypatch.setattr(bench, "SPARSE", {"rank": 5, "epochs": 1})
    options = ["--groups", "sparse", "--out", tmp_path / "out", "--table", tmp_path]
    for seeds, code in ((0, 2), (2, 0), (0, 0)):
        assert run(BENCH, "--seeds", seeds, *options) == code
    told = capsys.readouterr().err
    assert told.startswith("error: expected seeds, or files of fits in ")
    figures = json.loads((tmp_path / "results.json").read_text())["mnist"]["figures"]
    described = [(one["training"], one["seed"], one["rows"][1]) for one in figures]
    assert described == [(k, seed, 150) for k in ("clean", "removed") for seed in (0, 1)]
    removed = [one["methods"]["class-nngp"] for one in figures if one["training"] == "removed"]
    assert all(one["nll_all"] > one["nll"] for one in removed)
    page = (tmp_path / "table.md").read_text()
    assert f"| {np.mean([one['nll_all'] for one in removed]):.3f} ± " in page
    assert "2.0686 and 2.1658" in page
    assert "## scikit-learn" not in page


def _cut(rows, n):
    parts = ((x[:n], y[:n]) for x, y in (rows.train, rows.test, rows.unknown))
    return type(rows)(*parts)
