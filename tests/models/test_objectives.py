"""Objectives against GPyTorch, SciPy, and the bound that they must reach at their optimum."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy import stats

from geogp.models.core.lowrank import LowRankGP
from geogp.models.core.objectives import BatchTerms, dppgp, elbo, gaussian_nll
from geogp.models.core.options import Weights

with warnings.catch_warnings():  # GPyTorch still compiles by torch.jit.script
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

JITTER = 1e-8
LENGTHSCALE = np.array([0.5, 0.9])
VARIANCE, NOISE, MEAN = 1.6, 0.07, 0.35


@dataclass(frozen=True)
class World:
    """Rows, inducing points and a posterior, with both libraries' models of them."""

    x: torch.Tensor
    y: torch.Tensor
    model: LowRankGP
    reference: gpytorch.models.ApproximateGP
    likelihood: gpytorch.likelihoods.GaussianLikelihood


class _Reference(gpytorch.models.ApproximateGP):
    def __init__(self, Z: torch.Tensor, m: np.ndarray, L: np.ndarray) -> None:
        posterior = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self, Z, posterior, learn_inducing_locations=False, jitter_val=JITTER * VARIANCE
            )
        )
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))
        self.double()
        with torch.no_grad():
            posterior.variational_mean.copy_(torch.from_numpy(m))
            posterior.chol_variational_covar.copy_(torch.from_numpy(L))
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.mean_module.constant = MEAN
        self.covar_module.outputscale = VARIANCE
        self.covar_module.base_kernel.lengthscale = torch.from_numpy(LENGTHSCALE)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.fixture
def make_world(make_sparse_gp, set_posterior) -> Callable[..., World]:
    def make(Z: np.ndarray, x: np.ndarray) -> World:
        random = np.random.default_rng(1)
        y = np.sin(4 * x).sum(1) + 0.3 * random.standard_normal(len(x))
        m = random.standard_normal(len(Z))
        L = np.tril(0.2 * random.standard_normal((len(Z), len(Z))), -1)
        L += np.diag(random.uniform(0.2, 0.9, len(Z)))
        model = make_sparse_gp(
            Z,
            lengthscale=LENGTHSCALE,
            variance=VARIANCE,
            noise_var=NOISE,
            jitter=JITTER,
            mean=MEAN,
        )
        set_posterior(model, m, L)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = NOISE
        reference = _Reference(torch.from_numpy(Z), m, L)
        return World(torch.from_numpy(x), torch.from_numpy(y), model, reference, likelihood)

    return make


@pytest.fixture
def apart(make_world) -> World:
    """Inducing points away from the data."""
    random = np.random.default_rng(0)
    return make_world(random.uniform(-1, 1, (8, 2)), random.uniform(-1, 1, (30, 2)))


@pytest.fixture
def together(make_world) -> World:
    """A batch that stands on inducing points, so that nothing is missed by the basis."""
    Z = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    return make_world(Z, Z[::-2].copy())


@pytest.mark.parametrize("n", [30, 4000])
def test_elbo_against_gpytorch(apart, n):
    mll = gpytorch.mlls.VariationalELBO(apart.likelihood, apart.reference, num_data=n)
    with torch.no_grad():
        expected = -mll(apart.reference(apart.x), apart.y).item()
        ours = elbo(apart.model.terms(apart.x), apart.y, n, Weights()).item()
    assert ours == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("beta", [1e-9, 0.01, 1.0])
def test_dppgp_where_nothing_is_missed_is_ppgp_of_gpytorch(together, beta):
    mll = gpytorch.mlls.PredictiveLogLikelihood(
        together.likelihood, together.reference, num_data=500, beta=beta
    )
    with torch.no_grad():
        terms = together.model.terms(together.x)
        expected = -mll(together.reference(together.x), together.y).item()
        ours = dppgp(terms, together.y, 500, Weights(alpha=0, beta=beta)).item()
    assert terms.residual.max() < 1e-7
    assert ours == pytest.approx(expected, abs=1e-6)


def test_predictions_of_the_sparse_gp_against_gpytorch(apart):
    apart.reference.eval()
    apart.likelihood.eval()
    with torch.no_grad():
        expected = apart.likelihood(apart.reference(apart.x))
    found = apart.model.predict(apart.x.numpy())
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-7)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-6)


@pytest.mark.parametrize("weights", [Weights(0, 0), Weights(0.1, 0.01), Weights(1, 1)])
def test_dppgp_term_by_term(apart, nystroem, weights):
    with torch.no_grad():
        ours = dppgp(apart.model.terms(apart.x), apart.y, 77, weights).item()
    posterior = apart.model.posterior
    m, L = posterior.m.detach().numpy(), posterior.cholesky().detach().numpy()
    basis = apart.model.basis
    phi = basis(apart.x).phi.detach().numpy()
    hyper = {"lengthscale": LENGTHSCALE, "variance": VARIANCE, "jitter": JITTER}
    x, Z = apart.x.numpy(), basis.anchors.detach().numpy()
    norm = np.diag(nystroem(x, x, Z, **hyper))
    sd = np.sqrt(np.diag(phi @ L @ L.T @ phi.T) + NOISE)
    fit = -stats.norm(MEAN + phi @ m, sd).logpdf(apart.y.numpy()).mean()
    trace = np.mean(norm.max() - norm) / (2 * NOISE)
    S = L @ L.T
    kl = 0.5 * (np.trace(S) + m @ m - len(m) - np.linalg.slogdet(S)[1])
    assert ours == pytest.approx(fit + weights.alpha * trace + weights.beta * kl / 77, rel=1e-6)


def test_gaussian_nll_against_scipy():
    y, mean = np.array([0.3, -8.0, 2.0]), np.array([0.1, 0.0, 2.0])
    variance = np.array([1e-4, 0.5, 9.0])
    found = gaussian_nll(*(torch.from_numpy(part) for part in ((y - mean) ** 2, variance)))
    np.testing.assert_allclose(found, -stats.norm(mean, np.sqrt(variance)).logpdf(y), rtol=1e-12)


class TestAtTheOptimum:
    """The best q(w) is known in closed form; its ELBO is the bound of Titsias (2009)."""

    @pytest.fixture
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(2)
        x = random.uniform(-1, 1, (40, 2))
        return x, np.sin(4 * x).sum(1) + 0.25 * random.standard_normal(40)

    @pytest.fixture
    def best_bound(self, make_sparse_gp, set_posterior, rows):
        """The whole ELBO, not per datum, at the optimal q for given inducing points."""

        def bound(Z: np.ndarray, shift: float = 0.0) -> float:
            x, y = rows
            hyper = {"lengthscale": LENGTHSCALE, "variance": VARIANCE, "jitter": JITTER}
            model = make_sparse_gp(Z, noise_var=NOISE, mean=MEAN, **hyper)
            with torch.no_grad():
                phi = model.basis(torch.from_numpy(x)).phi.numpy()
                S = np.linalg.inv(np.eye(len(Z)) + phi.T @ phi / NOISE)
                m = S @ phi.T @ (y - MEAN) / NOISE
                set_posterior(model, m + shift, np.linalg.cholesky(S))
                terms = model.terms(torch.from_numpy(x))
                return -len(y) * elbo(terms, torch.from_numpy(y), len(y), Weights()).item()

        return bound

    @pytest.fixture
    def log_evidence(self, rows, dense_rbf) -> float:
        x, y = rows
        K = dense_rbf(x, x, LENGTHSCALE, VARIANCE) + NOISE * np.eye(len(x))
        return stats.multivariate_normal(np.full(len(x), MEAN), K).logpdf(y)

    def test_elbo_is_the_collapsed_bound(self, rows, best_bound, nystroem, log_evidence):
        x, y = rows
        Z = np.random.default_rng(3).uniform(-1, 1, (7, 2))
        Q = nystroem(x, x, Z, lengthscale=LENGTHSCALE, variance=VARIANCE, jitter=JITTER)
        marginal = stats.multivariate_normal(np.full(len(x), MEAN), Q + NOISE * np.eye(len(x)))
        collapsed = marginal.logpdf(y) - np.sum(VARIANCE - np.diag(Q)) / (2 * NOISE)
        assert best_bound(Z) == pytest.approx(collapsed, abs=1e-5)
        assert best_bound(Z) < log_evidence - 1
        assert best_bound(Z, shift=0.05) < best_bound(Z)

    def test_inducing_points_at_the_data_give_the_evidence(self, rows, best_bound, log_evidence):
        assert best_bound(rows[0]) == pytest.approx(log_evidence, abs=1e-3)
        assert best_bound(rows[0]) <= log_evidence + 1e-6


class TestScaling:
    """Objectives are per datum, whatever the batch."""

    @pytest.mark.parametrize("objective", [elbo, dppgp])
    def test_batches_average_to_the_whole(self, apart, objective):
        weights = Weights(alpha=0, beta=0.5)
        with torch.no_grad():
            whole = objective(apart.model.terms(apart.x), apart.y, 30, weights).item()
            parts = [
                objective(apart.model.terms(apart.x[part]), apart.y[part], 30, weights).item()
                for part in torch.arange(30).split(10)
            ]
        assert np.std(parts) > 1e-3
        assert np.mean(parts) == pytest.approx(whole, rel=1e-12)

    @pytest.mark.parametrize(("objective", "share"), [(elbo, 1.0), (dppgp, 0.25)])
    def test_kl_counts_once_in_n_rows(self, apart, objective, share):
        weights = Weights(alpha=0.1, beta=0.25)
        terms = apart.model.terms(apart.x)
        few, many = (objective(terms, apart.y, n, weights).item() for n in (100, 1000))
        kl = share * terms.kl.item()
        assert few - many == pytest.approx(kl / 100 - kl / 1000, rel=1e-9)

    def test_residual_counts_in_the_elbo_only(self, apart):
        terms = apart.model.terms(apart.x)
        more = replace(terms, residual=terms.residual + 0.1)
        difference = elbo(more, apart.y, 30, Weights()) - elbo(terms, apart.y, 30, Weights())
        assert difference.item() == pytest.approx(0.1 / (2 * NOISE), rel=1e-9)
        assert dppgp(more, apart.y, 30, Weights()) == dppgp(terms, apart.y, 30, Weights())

    def test_trace_pulls_the_norms_to_the_largest(self):
        norm = torch.tensor([0.5, 0.8, 1.0], dtype=torch.float64, requires_grad=True)
        zero, noise = torch.zeros(3, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
        terms = BatchTerms(zero, zero, zero, norm, noise, kl=torch.zeros(()))
        loss = dppgp(terms, zero, 3, Weights(alpha=0.6, beta=0))
        loss.backward()
        expected = 0.5 * math.log(2 * math.pi * 0.1) + 0.6 * (0.5 + 0.2) / 3 / 0.2
        assert loss.item() == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(norm.grad, [-1, -1, 2], rtol=1e-12)
