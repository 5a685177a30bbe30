"""The low-rank process at many points jointly: covariance, sample paths, effective rank."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import NumericalError, RequestError
from geogp.models.process.data import Data
from geogp.models.process.model import Model
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

_MIN_SHARE = 1e-6
"""Share of the variance below which a component counts as float32 rounding error."""


@dataclass(frozen=True)
class JointPosterior:
    """p(w | y) = N(m, L L') given a fitted basis and noise, and the resulting distribution of f.

    The covariance of f(x) = m0 + <w, phi(x)> between points is phi(x)' L L' phi(x'), without the
    diagonal of the model. m (r,) and L (r, r) are for the standardised target, float64.
    """

    model: Model
    m: Tensor
    L: Tensor

    def mean(self, x: Floats) -> Floats:
        """Return E[f(x)] in the target's unit, shape (n,)."""
        mean = torch.cat([phi @ self.m for phi in self.model.feature_chunks(x)])
        return self.model.intercept + mean.cpu().numpy()

    def variance(self, x: Floats) -> Floats:
        """Return the variance of f(x) in the target's squared unit, shape (n,)."""
        return torch.cat([white.square().sum(1) for white in self._whitened(x)]).cpu().numpy()

    def covariance(self, x: Floats, x2: Floats) -> Floats:
        """Return Cov(f(x), f(x2)) = phi(x)' L L' phi(x2), (n, n2), in the target's squared unit."""
        second = torch.cat(list(self._whitened(x2)))
        return torch.cat([first @ second.T for first in self._whitened(x)]).cpu().numpy()

    def sample_paths(self, x: Floats, paths: int, *, seed: int = 0) -> Floats:
        """Draw functions f and return them at all points, (paths, n), in the target's unit.

        Calls with the same seed and number of paths return values of the same functions, whatever
        the points. Raises RequestError if `paths` is below 1.
        """
        if paths < 1:
            raise RequestError(f"expected 1 sample path or more, found {paths}.")
        generator = torch.Generator().manual_seed(seed)
        white = torch.randn(len(self.m), paths, generator=generator, dtype=torch.float64)
        w = self.m[:, None] + self.L @ white.to(self.m.device)
        drawn = torch.cat([phi @ w for phi in self.model.feature_chunks(x)])
        return self.model.intercept + drawn.T.cpu().numpy()

    def _whitened(self, x: Floats) -> Iterator[Tensor]:
        return (phi @ self.L for phi in self.model.feature_chunks(x))


def joint_posterior(model: Model, train: Data) -> JointPosterior:
    """Return the posterior of the weights given the training rows, for the fitted basis and noise.

    L L' = (I + Phi' V^(-1) Phi)^(-1), with V the variances of the rows around the function; see
    `weighted_rows`. The L that PPGP and dPPGP learn is not a factor of a posterior covariance, so
    no joint result uses it. The basis is treated as known: if it was learned from few rows,
    intervals for the mean function are too narrow. A plain network (``dnn``) gets the posterior of
    a Bayesian last layer on its features. The mean of ``bll`` and ``rich-bll`` remains the output
    of the network. Raises RequestError if the model is a model of counts.
    """
    model.check_has_level()
    return posterior_given(model, model.as_rows(train))


def posterior_given(model: Model, rows: Rows) -> JointPosterior:
    """Return the result of `joint_posterior` for `Rows`."""
    with torch.no_grad():
        return JointPosterior(model, *model.conditioned(rows))


def two_variances(model: Model, train: Data, x: Floats) -> dict[str, float]:
    """Return the median sd of the function over points (n, d), computed in two ways.

    ``stated`` comes from predictions, ``closed_form`` from `joint_posterior`.
    """
    L = joint_posterior(model, train).L
    # Predict averages of infinitely many tests, because the variance of the level may be 0.
    stated = model.predict(x, np.inf).function_variance
    closed = model.function_variance(x, L)
    return {
        "closed_form": float(np.median(np.sqrt(closed))),
        "stated": float(np.median(np.sqrt(stated))),
    }


@dataclass(frozen=True)
class Components:
    """Leading component functions of a kernel; they are uncorrelated over the given points.

    With z_k independent N(0, 1), f(x) = sum_k z_k values_k(x) (DBK equation 17). `values` (n,
    count) are the functions at the points, in the target's unit; the value farthest from 0 is
    positive. `share` (count,) are the functions' shares of the mean prior variance, largest first.
    """

    values: Floats
    share: Floats


def leading_components(model: Model, x: Floats, count: int) -> Components:
    """Return the leading components Phi v_k over inputs (n, d), v_k the eigenvectors of Phi'Phi.

    Components with at most a millionth of the variance are left out. Raises RequestError if `count`
    is below 1, and NumericalError if all features are 0.
    """
    if count < 1:
        raise RequestError(f"expected 1 component or more, found {count}.")
    variance, directions = torch.linalg.eigh(_gram(model, x))
    variance = variance.flip(0).clamp(min=0)
    count = min(count, int((variance > _MIN_SHARE * variance.sum()).sum()))
    directions = directions.flip(1)[:, :count]
    chunks = [(phi @ directions.to(phi.device)).cpu() for phi in model.feature_chunks(x)]
    values = torch.cat(chunks).numpy()
    farthest = values[np.abs(values).argmax(0), np.arange(values.shape[1])]
    share = (variance / variance.sum())[:count].numpy()
    return Components(values * np.where(farthest < 0, -1.0, 1.0), share)


def effective_rank(model: Model, x: Floats) -> float:
    """Return the effective rank of the features at inputs (n, d), from 1 to r.

    It is exp(entropy of the normalised eigenvalues of Phi'Phi) (Roy and Vetterli 2007). Raises
    NumericalError if all features are 0.
    """
    share = torch.linalg.eigvalsh(_gram(model, x)).clamp(min=0)
    share = (share / share.sum()).numpy()
    return float(np.exp(-np.sum(share * np.log(np.where(share > 0, share, 1.0)))))


def _gram(model: Model, x: Floats) -> Tensor:
    """Return Phi'Phi over inputs, (r, r)."""
    gram = torch.zeros((), dtype=torch.float64)
    for phi in model.feature_chunks(x):
        gram = (phi.T @ phi).cpu() + gram
    if not bool(gram.trace() > 0):
        raise NumericalError("all features are 0: the kernel has rank 0.")
    return gram
