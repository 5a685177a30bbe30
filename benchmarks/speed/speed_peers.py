"""Steps and predictions of peers for timing: the sparse GP of GPyTorch, and one in plain PyTorch.

Both have an RBF with a lengthscale per input, a whitened posterior with a Cholesky factor, the
evidence lower bound and Adam. They compute in float32 with a Cholesky factorisation in float64,
except under the setting that factorises in float32.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gpytorch
import torch
from linear_operator import settings as linear_settings
from torch import Tensor, nn

from benchmarks.peers.sparse_gps import SparseGP

Run = Callable[[], None]
Batch = Callable[[], tuple[Tensor, Tensor]]
"""Draws inputs (b, d) and targets (b,)."""

SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "default": nullcontext,
    "trace_mode": gpytorch.settings.trace_mode,
    "float32_cholesky": lambda: linear_settings._linalg_dtype_cholesky(torch.float32),  # noqa: SLF001
}
"""Settings of GPyTorch; float32 is measured only if the factorisation succeeds."""

PRIVATE = "float32_cholesky"
"""The private setting, whose name starts with an underscore in GPyTorch."""


def gpytorch_model(anchors: Tensor, lengthscale: float) -> SparseGP:
    """Return GPyTorch's sparse GP with inducing points (r, d) and one lengthscale."""
    model = SparseGP(anchors).to(anchors.device)
    model.covar_module.base_kernel.lengthscale = lengthscale
    return model


def gpytorch_step(model: SparseGP, draw: Batch, n: int, setting: str) -> Run:
    """Return one training step of GPyTorch's sparse GP on n rows."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(next(model.parameters()).device)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], fused=True)

    def step() -> None:
        model.train()
        x, y = draw()
        optimiser.zero_grad(set_to_none=True)
        with SETTINGS[setting]():
            loss = -objective(model(x), y)
            loss.backward()
        optimiser.step()

    return step


def gpytorch_prediction(model: SparseGP, x: Tensor, chunk: int) -> Run:
    """Return the prediction of mean and variance at all inputs, in chunks."""

    def predict() -> None:
        model.eval()
        with torch.no_grad():
            for part in x.split(chunk):
                found = model(part)
                found.mean.cpu(), found.variance.cpu()

    return predict


class PlainSVGP(nn.Module):
    """The textbook method: distances by `cdist`, Cholesky and triangular solves with autograd."""

    def __init__(self, anchors: Tensor, lengthscale: float) -> None:
        super().__init__()
        r, d = anchors.shape
        self.anchors = nn.Parameter(anchors.clone())
        start = math.log(lengthscale)
        self.log_lengthscale = nn.Parameter(torch.full((d,), start, device=anchors.device))
        self.log_variance = nn.Parameter(torch.zeros((), device=anchors.device))
        self.log_noise = nn.Parameter(torch.zeros((), device=anchors.device))
        self.m = nn.Parameter(torch.zeros(r, device=anchors.device))
        self.L = nn.Parameter(torch.eye(r, device=anchors.device))

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the RBF kernel, (a, d), (b, d) -> (a, b)."""
        lengthscale = self.log_lengthscale.exp()
        square = torch.cdist(a / lengthscale, b / lengthscale).square()
        return torch.exp(self.log_variance - 0.5 * square)

    def loss(self, x: Tensor, y: Tensor, n: int) -> Tensor:
        """Return the negative evidence lower bound per row."""
        Kzz = self.kernel(self.anchors, self.anchors).double()
        jitter = 1e-4 * torch.eye(len(Kzz), dtype=torch.float64, device=x.device)
        Lz = torch.linalg.cholesky(Kzz + jitter)
        Kzx = self.kernel(self.anchors, x).double()
        phi = torch.linalg.solve_triangular(Lz, Kzx, upper=False).float()
        L = self.L.tril()
        variance = (L.T @ phi).square().sum(0) + self.log_variance.exp() - phi.square().sum(0)
        square = (y - self.m @ phi).square() + variance
        nll = 0.5 * (self.log_noise + square * (-self.log_noise).exp()).mean()
        squares = L.square().sum() + self.m.square().sum() - len(L)
        return nll + 0.5 * squares / n - L.diagonal().abs().log().sum() / n


def plain_step(model: PlainSVGP, draw: Batch, n: int) -> Run:
    """Return one training step of the plain sparse GP on n rows."""
    optimiser = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        model.loss(*draw(), n).backward()
        optimiser.step()

    return step
