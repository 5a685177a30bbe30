"""Rows of equal inputs put together give the objective of the rows one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import ByInputs, PerBatch
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.rows import Rows

NAMES = sorted(
    name
    for name, spec in CATALOGUE.items()
    if issubclass(spec.fit.func, PerBatch) and not spec.about.counts
)


def _places(n_places: int, rows: int, seed: int = 0) -> Data:
    random = np.random.default_rng(seed)
    place = random.uniform(-1, 1, (n_places, 2))
    x = place[random.integers(0, n_places, rows)]
    return Data(x, np.sin(3 * x[:, 0]) + 0.4 * random.standard_normal(rows))


def _model(name: str, x: np.ndarray) -> LowRankProcess:
    return build(name, Architecture(d=2, h=8, r=6, blocks=1, dtype="float64"), x, seed=1)


def _rows(data: Data) -> Rows:
    return Rows(*(torch.from_numpy(part) for part in (data.x, data.y, data.counts)))


@pytest.mark.parametrize("name", NAMES)
def test_the_objective_and_its_gradient_are_those_of_all_rows(name):
    rows = _rows(_places(12, 90))
    model = _model(name, rows.x.numpy())
    steps = model.make_fit(model)
    weights = Weights(0.3, 0.7)
    found = []
    for given in (rows, rows.collapsed()):
        model.zero_grad()
        loss = steps.backward(given, rows.n, weights)
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append((loss, gradients))
    (plain, first), (together, second) = found
    assert together.item() == pytest.approx(plain.item(), rel=1e-12)
    assert len(first) == len(second) > 3
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-8, atol=1e-11)


def test_counts_means_and_scatter_by_hand():
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [0.0, 1.0]])
    y = torch.tensor([1.0, 5.0, 2.0, 6.0])
    found = Rows(x, y, torch.tensor([[1.0, 1], [2, 2], [3, 1], [5, 4]]).double()).collapsed()
    assert found.x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert found.y.tolist() == [3.0, 5.0]
    assert found.repeats.rows.tolist() == [3.0, 1.0]
    torch.testing.assert_close(found.repeats.scatter, torch.tensor([14 / 3, 0.0]))
    assert found.counts.tolist() == [[3.0, 2.0], [2.0, 2.0]]
    assert found.n == 4
    assert found.at(torch.tensor([1])).n == 1


def test_only_inputs_that_repeat_are_put_together():
    many, few = _rows(_places(20, 200)), _rows(_places(500, 200))
    model = _model("dbk-rbf", few.x.numpy())
    steps = model.make_fit(model)
    assert len(steps.gathered(many).y) <= 20
    assert steps.gathered(few) is few


def test_batches_hold_every_row_once_and_about_as_many_as_asked_for():
    rows = _rows(_places(50, 1000))
    model = _model("dbk-rbf", rows.x.numpy())
    steps = model.make_fit(model)
    steps.start(rows, 0)
    batches = steps.batches(100, np.random.default_rng(0), 0.0)
    assert sorted(torch.cat([batch.numbers for batch in batches]).tolist()) == list(range(50))
    assert sum(batch.n for batch in batches) == 1000
    assert len(batches) == 10
    assert max(batch.n for batch in batches) < 200


@pytest.mark.parametrize("name", ["dbk-silu", "dbk-exact", "dbk-mml"])
def test_a_whole_fit_in_one_batch_is_that_of_the_plain_rows(monkeypatch, name):
    """With all rows in a step the order does not matter: both fits go the same way."""
    train, held = _places(15, 150), _places(15, 40, seed=1)
    settings = FitSettings(epochs=6, batch=1000, learning_rate=1e-2)
    predictions = []
    for gather in (True, False):
        if not gather:
            monkeypatch.setattr(ByInputs, "gathered", lambda _self, rows: rows)
        model = _model(name, train.x)
        fit(model, train, held, replace(settings, seed=3))
        predictions.append(model.predict(held.x))
    np.testing.assert_allclose(predictions[0].mean, predictions[1].mean, rtol=1e-6)
    np.testing.assert_allclose(predictions[0].variance, predictions[1].variance, rtol=1e-6)
