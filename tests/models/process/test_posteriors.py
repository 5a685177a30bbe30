"""Posterior over the weights against dense Gaussians."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from geogp.models.process.noise import ConstantNoise
from geogp.models.process.posteriors import VariationalPosterior


@pytest.fixture
def posterior() -> VariationalPosterior:
    """A posterior off its start, with values above the diagonal that must not count."""
    generator = torch.Generator().manual_seed(0)
    made = VariationalPosterior(5, generator, torch.float64)
    with torch.no_grad():
        made.m.copy_(torch.randn(5, generator=generator))
        made.log_diagonal.copy_(torch.randn(5, generator=generator))
        made.lower.copy_(torch.randn(5, 5, generator=generator))
    return made


def _dense(posterior: VariationalPosterior) -> tuple[np.ndarray, np.ndarray]:
    L = np.tril(posterior.lower.detach().numpy(), -1)
    L += np.diag(np.exp(posterior.log_diagonal.detach().numpy()))
    return posterior.m.detach().numpy(), L @ L.T


def test_kl_against_torch(posterior):
    m, S = (torch.from_numpy(part) for part in _dense(posterior))
    prior = MultivariateNormal(torch.zeros(5, dtype=torch.float64), torch.eye(5).double())
    expected = kl_divergence(MultivariateNormal(m, S), prior)
    assert posterior.kl().item() == pytest.approx(expected.item(), rel=1e-10)
    assert posterior.kl().item() > 0


def test_kl_of_the_prior_is_zero(posterior):
    with torch.no_grad():
        for value in posterior.parameters():
            value.zero_()
    assert posterior.kl().item() == pytest.approx(0, abs=1e-14)


def test_moments_against_dense(posterior):
    phi = np.random.default_rng(1).standard_normal((7, 5))
    m, S = _dense(posterior)
    moments = posterior.moments(torch.from_numpy(phi))
    np.testing.assert_allclose(moments.mean.detach(), phi @ m, rtol=1e-12)
    np.testing.assert_allclose(moments.variance.detach(), np.diag(phi @ S @ phi.T), rtol=1e-10)


def test_cholesky_ignores_what_stands_above_the_diagonal(posterior):
    L = posterior.cholesky().detach().numpy()
    np.testing.assert_array_equal(L, np.tril(L))
    np.testing.assert_allclose(L @ L.T, _dense(posterior)[1], rtol=1e-12)


def test_the_last_weights_become_independent_of_the_others(posterior):
    m, S = _dense(posterior)
    L = np.random.default_rng(2).standard_normal((2, 2))
    posterior.take_last(torch.tensor([3.0, 4.0]), torch.from_numpy(L))
    found, covariance = _dense(posterior)
    np.testing.assert_allclose(found, [*m[:3], 3.0, 4.0])
    np.testing.assert_allclose(covariance[:3, :3], S[:3, :3], rtol=1e-10)
    np.testing.assert_allclose(covariance[3:, 3:], L @ L.T, rtol=1e-10)
    np.testing.assert_allclose(covariance[3:, :3], 0, atol=1e-12)


def test_initial_values():
    r = 100
    posterior = VariationalPosterior(r, torch.Generator().manual_seed(1), torch.float32)
    assert not posterior.m.any()
    np.testing.assert_allclose(posterior.log_diagonal.detach(), -0.5 * np.log(r), rtol=1e-6)
    below = posterior.cholesky().detach().numpy()[np.tril_indices(r, -1)] * r
    # 4,950 standard normals: the mean has standard error 0.014, the deviation 0.010.
    assert below.mean() == pytest.approx(0, abs=0.06)
    assert below.std() == pytest.approx(1, abs=0.05)


def test_start_is_the_seed_and_nothing_else():
    made = [
        VariationalPosterior(4, torch.Generator().manual_seed(seed), torch.float32).lower
        for seed in (1, 1, 2)
    ]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_starts_at_a_hundredth_and_stops_at_its_floor(dtype):
    noise = ConstantNoise(dtype)
    assert noise().item() == pytest.approx(1e-2, rel=1e-5)
    assert noise().dtype == dtype
    with torch.no_grad():
        noise.log_excess.fill_(-80.0)
    assert noise().item() == pytest.approx(1e-6, rel=1e-5)
