"""Cholesky factors with a stated jitter."""

import logging

import numpy as np
import pytest
import torch

from geogp.errors import NumericalError
from geogp.models.numerics.linalg import jittered_cholesky


def _semidefinite(r: int, scale: float) -> torch.Tensor:
    root = np.random.default_rng(3).standard_normal((r, r))
    return torch.from_numpy(scale * root @ root.T)


@pytest.mark.parametrize("jitter", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_factor_of_the_matrix_plus_relative_jitter(jitter, scale, caplog):
    K = _semidefinite(6, scale)
    L, used = jittered_cholesky(K, jitter)
    expected = K.numpy() + jitter * np.mean(np.diag(K)) * np.eye(6)
    np.testing.assert_allclose(L @ L.T, expected, rtol=1e-11, atol=1e-13 * scale)
    np.testing.assert_array_equal(L, np.tril(L))
    assert used == jitter
    assert not caplog.records


def test_jitter_rises_by_tens_and_says_so(caplog):
    # The least relative jitter that makes this matrix definite is 4.0004e-4.
    K = torch.diag(torch.tensor([1.0, 1.0, 1.0, -3e-4], dtype=torch.float64))
    with caplog.at_level(logging.WARNING, "geogp.models.numerics.linalg"):
        L, used = jittered_cholesky(K, 1e-6)
    assert used == pytest.approx(1e-3)
    said = [record.getMessage().rpartition(" ")[2] for record in caplog.records]
    assert [float(value) for value in said] == pytest.approx([1e-5, 1e-4, 1e-3])
    expected = K.numpy() + 1e-3 * K.diagonal().mean().item() * np.eye(4)
    np.testing.assert_allclose(L @ L.T, expected, atol=1e-14)


def test_rank_one_without_jitter_gets_the_smallest(caplog):
    _, used = jittered_cholesky(torch.ones(4, 4, dtype=torch.float64), 0.0)
    assert used == pytest.approx(1e-8)
    assert len(caplog.records) == 1


def test_the_largest_jitter_is_still_tried():
    K = torch.diag(torch.tensor([1.0, 1.0, 1.0, -5e-3], dtype=torch.float64))
    assert jittered_cholesky(K, 1e-6)[1] == pytest.approx(1e-2)


def test_beyond_the_largest_jitter_it_refuses():
    K = torch.diag(torch.tensor([1.0, 1.0, -0.02], dtype=torch.float64))
    with pytest.raises(NumericalError, match=r"3 inducing points .* relative jitter of 0\.01"):
        jittered_cholesky(K, 1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [(0, 0), (2, 1)])
def test_refuses_what_is_not_finite(value, place):
    K = _semidefinite(3, 1.0)
    K[place] = value
    with pytest.raises(NumericalError, match="not finite"):
        jittered_cholesky(K, 1e-6)


def test_runs_in_double_precision_only():
    with pytest.raises(AssertionError, match="double precision"):
        jittered_cholesky(torch.eye(2), 1e-6)


def test_gradient_runs_through_the_jitter():
    root = torch.from_numpy(np.random.default_rng(4).standard_normal((3, 3))).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: jittered_cholesky(A @ A.T, 1e-2)[0], root)
