"""Gaussian processes of GPyTorch under our models' protocol: same rows, batches and epochs."""

import math

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.models.fit_settings import FitSettings
from geogp.models.process.data import Data
from geogp.models.process.noise import NOISE_FLOOR
from geogp.models.process.placement import place_anchors

PEERS = {
    "gpytorch-svgp": gpytorch.mlls.VariationalELBO,
    "gpytorch-ppgp": gpytorch.mlls.PredictiveLogLikelihood,
}
"""Objective of each peer; both have inducing points and one lengthscale per input."""


class SparseGP(gpytorch.models.ApproximateGP):
    """Whitened inducing points of a scaled RBF kernel on the inputs."""

    def __init__(self, anchors: Tensor) -> None:
        r, d = anchors.shape
        strategy = VariationalStrategy(
            self, anchors, CholeskyVariationalDistribution(r), learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=d)
        rbf.lengthscale = math.sqrt(d)
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at inputs (n, d)."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fit_peer(
    name: str, train: Data, validation: Data, settings: FitSettings, *, r: int, device: str = "cpu"
) -> tuple[SparseGP, gpytorch.likelihoods.GaussianLikelihood]:
    """Train a peer with Adam, and give it the parameters of its best validation epoch.

    Inputs are in [-1, 1] and targets standardised. Inducing points start at inputs spread by
    k-means. The noise variance starts at GPyTorch's default (0.69) and has our lower bound; from
    our lower start Adam would not have reached the optimum on noisy tables. Learning rate, decay
    and beta of the predictive objective are those of the settings.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    torch.manual_seed(settings.seed)
    x = torch.from_numpy(train.x).float()
    y = torch.from_numpy(train.y).float().to(device)
    model = SparseGP(place_anchors(x, r, "kmeans", generator)).to(device)
    x = x.to(device)
    floor = gpytorch.constraints.GreaterThan(NOISE_FLOOR)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=floor).to(device)
    beta = settings.weights.beta if name == "gpytorch-ppgp" else 1.0
    objective = PEERS[name](likelihood, model, num_data=len(y), beta=beta)
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
    best, best_score = {}, math.inf
    for epoch in range(settings.epochs):
        model.train()
        likelihood.train()
        order = np.random.default_rng([settings.seed, epoch]).permutation(len(y))
        batches = torch.from_numpy(order).to(device).split(settings.batch)
        for step, rows in enumerate(batches):
            share = (epoch + step / len(batches)) / settings.epochs
            rate = 0.5 * (1 + math.cos(math.pi * share)) if settings.decay == "cosine" else 1.0
            optimiser.param_groups[0]["lr"] = settings.learning_rate * rate
            optimiser.zero_grad(set_to_none=True)
            loss = -objective(model(x[rows]), y[rows])
            loss.backward()
            optimiser.step()
        score = float(predict_peer(model, likelihood, validation.x).log_score(validation.y).mean())
        if score < best_score:
            best_score = score
            best = {
                part: {k: v.detach().clone() for k, v in module.state_dict().items()}
                for part, module in (("model", model), ("likelihood", likelihood))
            }
    model.load_state_dict(best["model"])
    likelihood.load_state_dict(best["likelihood"])
    return model, likelihood


def predict_peer(
    model: SparseGP, likelihood: gpytorch.likelihoods.GaussianLikelihood, x: np.ndarray
) -> Prediction:
    """Predict at inputs (n, d) in chunks."""
    model.eval()
    likelihood.eval()
    device = likelihood.noise.device
    parts = []
    with torch.no_grad():
        for rows in torch.from_numpy(x).float().to(device).split(4096):
            latent = model(rows)
            parts.append((latent.mean.double(), latent.variance.double()))
        noise = float(likelihood.noise)
    mean, variance = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    return Prediction(mean, variance, np.full_like(mean, noise))
