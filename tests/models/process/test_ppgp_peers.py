"""ELBO and PPGP against GPyTorch: values, every gradient, predictions; dPPGP term by term."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from geogp.models.fitting.steps import PerBatch
from geogp.models.options import Weights
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.noise import NOISE_FLOOR
from geogp.models.process.objectives import BatchObjective, dppgp, elbo, ppgp
from geogp.models.process.rows import Rows

with warnings.catch_warnings():  # GPyTorch still compiles by torch.jit.script
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

JITTER = 1e-10
LENGTHSCALE = np.array([0.3, 0.4])
VARIANCE, NOISE, MEAN = 1.6, 0.07, 0.35
PARTS = ("anchors", "lengthscale", "variance", "noise", "mean", "m", "L")


class _Reference(gpytorch.models.ApproximateGP):
    def __init__(self, Z: Tensor, m: Tensor, L: Tensor) -> None:
        posterior = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self, Z, posterior, learn_inducing_locations=True, jitter_val=JITTER * VARIANCE
            )
        )
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))
        self.double()
        with torch.no_grad():
            posterior.variational_mean.copy_(m)
            posterior.chol_variational_covar.copy_(L)
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.mean_module.constant = MEAN
        self.covar_module.outputscale = VARIANCE
        self.covar_module.base_kernel.lengthscale = torch.from_numpy(LENGTHSCALE)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@dataclass(frozen=True)
class World:
    """Thirty rows, sixteen inducing points, and both libraries' models with equal parameters."""

    x: Tensor
    y: Tensor
    model: LowRankProcess
    reference: _Reference
    likelihood: gpytorch.likelihoods.GaussianLikelihood

    def ours(self) -> dict[str, Tensor]:
        """Gradients of geogp by the natural parameters, its logarithms undone."""
        basis, posterior, noise = self.model.basis, self.model.posterior, self.model.noise
        diagonal = posterior.log_diagonal.detach().exp()
        return {
            "anchors": basis.anchors.grad,
            "lengthscale": basis.log_lengthscale.grad / basis.log_lengthscale.detach().exp(),
            "variance": basis.log_variance.grad / basis.log_variance.detach().exp(),
            "noise": noise.log_excess.grad / (noise().detach() - NOISE_FLOOR),
            "mean": self.model.mean_constant.grad,
            "m": posterior.m.grad,
            "L": posterior.lower.grad.tril(-1) + torch.diag(posterior.log_diagonal.grad / diagonal),
        }

    def theirs(self) -> dict[str, Tensor]:
        """Gradients of GPyTorch by the natural parameters: softplus has slope sigmoid."""
        strategy, kernel = self.reference.variational_strategy, self.reference.covar_module
        q = strategy._variational_distribution
        raw = {
            "lengthscale": kernel.base_kernel.raw_lengthscale,
            "variance": kernel.raw_outputscale,
            "noise": self.likelihood.noise_covar.raw_noise,
        }
        natural = {key: value.grad / value.detach().sigmoid() for key, value in raw.items()}
        return natural | {
            "anchors": strategy.inducing_points.grad,
            "mean": self.reference.mean_module.raw_constant.grad,
            "m": q.variational_mean.grad,
            "L": q.chol_variational_covar.grad.tril(),
        }


@pytest.fixture
def world(make_sparse_gp, set_posterior) -> World:
    """Inducing points on a shaken 4 x 4 grid: a jitter of 1e-10 is enough for them."""
    random = np.random.default_rng(4)
    side = np.linspace(-0.9, 0.9, 4)
    Z = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    Z += random.uniform(-0.05, 0.05, Z.shape)
    x = random.uniform(-1, 1, (30, 2))
    y = np.sin(4 * x).sum(1) + 0.3 * random.standard_normal(30)
    m = random.standard_normal(16)
    L = np.tril(0.2 * random.standard_normal((16, 16)), -1)
    L += np.diag(random.uniform(0.2, 0.9, 16))
    model = make_sparse_gp(
        Z, lengthscale=LENGTHSCALE, variance=VARIANCE, noise_var=NOISE, jitter=JITTER, mean=MEAN
    )
    set_posterior(model, m, L)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    reference = _Reference(*(torch.from_numpy(part) for part in (Z, m, L)))
    return World(torch.from_numpy(x), torch.from_numpy(y), model, reference, likelihood)


@pytest.fixture
def assert_same_loss(world) -> Callable[..., None]:
    """Compare value and gradients of our objective with GPyTorch's objective, to be maximised."""

    def compare(mll: gpytorch.Module, objective: BatchObjective, n: int, weights: Weights) -> None:
        theirs = -mll(world.reference(world.x), world.y)
        theirs.backward()
        rows = Rows(world.x, world.y, world.y.new_ones(len(world.y), 2))
        ours = PerBatch(world.model, objective).backward(rows, n, weights)
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
        found, expected = world.ours(), world.theirs()
        for part in PARTS:
            reference = expected[part].reshape(found[part].shape)
            assert reference.abs().max() > 1e-3, part
            torch.testing.assert_close(found[part], reference, rtol=1e-6, atol=1e-6, msg=part)

    return compare


# A batch of 30 of that many rows: n scales the KL term alone.
@pytest.mark.parametrize("n", [30, 47, 4000])
def test_elbo_and_its_gradients_are_those_of_gpytorch(world, assert_same_loss, n):
    mll = gpytorch.mlls.VariationalELBO(world.likelihood, world.reference, num_data=n)
    assert_same_loss(mll, elbo, n, Weights())


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n", [30, 47])
def test_ppgp_and_its_gradients_are_those_of_gpytorch(world, assert_same_loss, n, beta):
    # A tensor, because GPyTorch divides by num_data / beta.
    mll = gpytorch.mlls.PredictiveLogLikelihood(
        world.likelihood, world.reference, num_data=n, beta=torch.tensor(beta)
    )
    assert_same_loss(mll, ppgp, n, Weights(alpha=0.7, beta=beta))


@pytest.mark.parametrize("n", [47])
def test_the_two_objectives_differ_in_this_world(world, n):
    # Otherwise agreement with one of GPyTorch's would say nothing about the other.
    terms = world.model.terms(world.x)
    weights = Weights(beta=1.0)
    assert abs(elbo(terms, world.y, n, weights) - ppgp(terms, world.y, n, weights)) > 0.1
    assert terms.residual.max() > 0.1 * VARIANCE


def test_predictions_are_those_of_gpytorch(world):
    x = torch.from_numpy(np.random.default_rng(5).uniform(-1.2, 1.2, (50, 2)))
    world.reference.eval()
    world.likelihood.eval()
    with torch.no_grad():
        latent = world.reference(x)
        measured = world.likelihood(latent)
    found = world.model.predict(x.numpy())
    np.testing.assert_allclose(found.mean, latent.mean, atol=1e-6)
    np.testing.assert_allclose(found.function_variance, latent.variance, atol=1e-6)
    np.testing.assert_allclose(found.variance, measured.variance, atol=1e-6)


@pytest.mark.parametrize("weights", [Weights(0, 0), Weights(0.1, 0.01), Weights(1, 1)])
def test_dppgp_term_by_term(world, nystroem, weights):
    with torch.no_grad():
        ours = dppgp(world.model.terms(world.x), world.y, 77, weights).item()
    posterior = world.model.posterior
    m, L = posterior.m.detach().numpy(), posterior.cholesky().detach().numpy()
    basis = world.model.basis
    phi = basis(world.x).phi.detach().numpy()
    hyper = {"lengthscale": LENGTHSCALE, "variance": VARIANCE, "jitter": JITTER}
    x, Z = world.x.numpy(), basis.anchors.detach().numpy()
    norm = np.diag(nystroem(x, x, Z, **hyper))
    sd = np.sqrt(np.diag(phi @ L @ L.T @ phi.T) + NOISE)
    fit = -stats.norm(MEAN + phi @ m, sd).logpdf(world.y.numpy()).mean()
    trace = np.mean(norm.max() - norm) / (2 * NOISE)
    S = L @ L.T
    kl = 0.5 * (np.trace(S) + m @ m - len(m) - np.linalg.slogdet(S)[1])
    assert ours == pytest.approx(fit + weights.alpha * trace + weights.beta * kl / 77, rel=1e-6)
