"""The objectives of a batch, each written out by hand in NumPy and SciPy."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy import stats

from geogp.errors import RequestError
from geogp.models.fitting.steps import PerBatch
from geogp.models.options import Weights
from geogp.models.process.objectives import (
    BatchObjective,
    BatchTerms,
    corrected_elbo,
    dppgp,
    elbo,
    gaussian_nll,
    ppgp,
    squared_error,
)

Floats = np.ndarray
N = 77
NOISE, KL = 0.2, 3.4


@dataclass(frozen=True)
class Batch:
    """Nine rows whose every term differs, so that no two may be mixed up."""

    y: Floats
    mean: Floats
    s2: Floats
    residual: Floats
    norm: Floats

    @property
    def c(self) -> Floats:
        """What the rows lack of the largest norm of the batch."""
        return self.norm.max() - self.norm

    def loss(self, objective: BatchObjective, weights: Weights, **changed: float) -> float:
        found = objective(self.terms(**changed), torch.from_numpy(self.y), N, weights)
        assert found.shape == ()
        return found.item()

    def terms(self, **changed: float) -> BatchTerms:
        rows = (self.mean, self.s2, self.residual, self.norm)
        scalars = (changed.get("noise", NOISE), changed.get("kl", KL))
        tensors = [torch.from_numpy(part) for part in rows]
        return BatchTerms(*tensors, *(torch.tensor(part, dtype=torch.float64) for part in scalars))


@pytest.fixture
def batch() -> Batch:
    random = np.random.default_rng(0)
    y, mean = random.standard_normal((2, 9))
    return Batch(y, mean, *random.uniform(0.1, 2.0, (3, 9)))


def _nll(y: Floats, mean: Floats, variance: Floats | float) -> Floats:
    return -stats.norm(mean, np.sqrt(variance)).logpdf(y)


def _ppgp(b: Batch, _alpha: float, beta: float) -> float:
    return _nll(b.y, b.mean, b.s2 + b.residual + NOISE).mean() + beta * KL / N


def _dppgp(b: Batch, alpha: float, beta: float) -> float:
    fit = _nll(b.y, b.mean, b.s2 + NOISE).mean()
    return fit + alpha * np.mean(b.c / (2 * NOISE)) + beta * KL / N


def _elbo(b: Batch, _alpha: float, _beta: float) -> float:
    expected = _nll(b.y, b.mean, NOISE) + (b.s2 + b.residual) / (2 * NOISE)
    return expected.mean() + KL / N


def _corrected_elbo(b: Batch, _alpha: float, _beta: float) -> float:
    expected = _nll(b.y, b.mean, NOISE) + (b.s2 + b.c) / (2 * NOISE)
    return expected.mean() + KL / N


def _squared_error(b: Batch, _alpha: float, _beta: float) -> float:
    return np.mean((b.y - b.mean) ** 2)


BY_HAND: list[tuple[BatchObjective, Callable[[Batch, float, float], float]]] = [
    (ppgp, _ppgp),
    (dppgp, _dppgp),
    (elbo, _elbo),
    (corrected_elbo, _corrected_elbo),
    (squared_error, _squared_error),
]


@pytest.mark.parametrize(("objective", "by_hand"), BY_HAND)
@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (0.3, 0), (0, 0.7), (0.1, 0.01), (1, 1)])
def test_objectives_by_hand(batch, objective, by_hand, alpha, beta):
    found = batch.loss(objective, Weights(alpha, beta))
    assert found == pytest.approx(by_hand(batch, alpha, beta), rel=1e-12)


def test_no_two_objectives_agree_in_this_batch(batch):
    found = [by_hand(batch, 0.3, 0.7) for _, by_hand in BY_HAND]
    assert np.min(np.diff(np.sort(found))) > 1e-3


def _over_normal(batch: Batch, sd: Floats, function: Callable[[Floats], Floats]) -> Floats:
    """E[function(f)] for each row's f ~ N(mean, sd²), by Gauss-Hermite quadrature."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(150)
    f = batch.mean[:, None] + sd[:, None] * nodes
    return function(f) @ shares / np.sqrt(2 * np.pi)


def test_the_expected_score_of_the_corrected_elbo_by_quadrature(batch):
    # E[-log N(y; f, noise)] over f ~ N(mean, s² + c), integrated and not by its formula.
    y = batch.y[:, None]
    rows = _over_normal(batch, np.sqrt(batch.s2 + batch.c), lambda f: _nll(y, f, NOISE))
    expected = rows.mean() + KL / N
    assert batch.loss(corrected_elbo, Weights()) == pytest.approx(expected, rel=1e-9)


def test_the_score_of_ppgp_by_quadrature(batch):
    # -log of the mean density over f ~ N(mean, s² + residual).
    y, sd = batch.y[:, None], np.sqrt(batch.s2 + batch.residual)
    rows = -np.log(_over_normal(batch, sd, lambda f: np.exp(-_nll(y, f, NOISE))))
    assert batch.loss(ppgp, Weights(beta=0)) == pytest.approx(rows.mean(), rel=1e-7)


# Which terms each objective must not see: changing them changes nothing.
@pytest.mark.parametrize(
    ("objective", "weights", "blind"),
    [
        (ppgp, Weights(1, 1), {"norm"}),
        (ppgp, Weights(1, 0), {"norm", "kl"}),
        (dppgp, Weights(1, 1), {"residual"}),
        (dppgp, Weights(0, 1), {"residual", "norm"}),
        (dppgp, Weights(0, 0), {"residual", "norm", "kl"}),
        (elbo, Weights(0, 0), {"norm"}),
        (corrected_elbo, Weights(0, 0), {"residual"}),
        (squared_error, Weights(1, 1), {"s2", "residual", "norm", "kl", "noise"}),
    ],
)
def test_an_objective_sees_its_own_terms_only(batch, objective, weights, blind):
    before = batch.loss(objective, weights)
    random = np.random.default_rng(1)
    for key in ("mean", "s2", "residual", "norm"):
        other = replace(batch, **{key: getattr(batch, key) + random.uniform(0.1, 1, 9)})
        assert (other.loss(objective, weights) == before) == (key in blind), key
    for key, value in (("noise", 0.3), ("kl", 5.0)):
        moved = batch.loss(objective, weights, **{key: value})
        assert (moved == before) == (key in blind), key


@pytest.mark.parametrize("objective", [corrected_elbo, dppgp])
def test_equal_norms_need_no_correction(batch, objective):
    flat = replace(batch, norm=np.full(9, 0.8), residual=np.zeros(9))
    weights = Weights(alpha=1, beta=1)
    without = {dppgp: ppgp, corrected_elbo: elbo}[objective]
    assert flat.loss(objective, weights) == pytest.approx(flat.loss(without, weights), rel=1e-14)
    assert batch.loss(objective, weights) > flat.loss(objective, weights) + 0.1


@pytest.mark.parametrize("value", [-1e-9, -1.0, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_weights_refuse_what_is_no_weight(name, value):
    with pytest.raises(RequestError, match=rf"weight {name} of 0 or more, found {value}"):
        Weights(**{name: value})


def test_weights_may_be_zero_and_start_at_those_of_the_paper():
    assert Weights(0, 0) == Weights(alpha=0.0, beta=0.0)
    assert Weights() == Weights(alpha=0.1, beta=0.01)


@pytest.mark.parametrize(("batch_size", "n", "expected"), [(40, 190, 40), (40, 12, 12)])
def test_a_batch_is_no_larger_than_the_rows(batch_size, n, expected):
    assert PerBatch.batch_rows(batch_size, n) == expected


def test_gaussian_nll_against_scipy():
    y, mean = np.array([0.3, -8.0, 2.0]), np.array([0.1, 0.0, 2.0])
    variance = np.array([1e-4, 0.5, 9.0])
    found = gaussian_nll(*(torch.from_numpy(part) for part in ((y - mean) ** 2, variance)))
    np.testing.assert_allclose(found, -stats.norm(mean, np.sqrt(variance)).logpdf(y), rtol=1e-12)


def test_trace_pulls_the_norms_to_the_largest():
    norm = torch.tensor([0.5, 0.8, 1.0], dtype=torch.float64, requires_grad=True)
    zero, noise = torch.zeros(3, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    terms = BatchTerms(zero, zero, zero, norm, noise, kl=torch.zeros(()))
    loss = dppgp(terms, zero, 3, Weights(alpha=0.6, beta=0))
    loss.backward()
    expected = 0.5 * math.log(2 * math.pi * 0.1) + 0.6 * (0.5 + 0.2) / 3 / 0.2
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(norm.grad, [-1, -1, 2], rtol=1e-12)
