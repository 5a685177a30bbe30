"""Objectives to minimise, each a plain function of a batch's terms (DBK section 3).

All are per datum: means over the batch plus the KL term divided by the number n of training
rows. `m` is the batch's mean vector, s² the variance ||L' phi||² of the function.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BatchTerms:
    """What an objective may use of a batch of b rows.

    Attributes
    ----------
    mean, function_variance
        m0 + <m, phi> and ||L' phi||², each (b,).
    residual
        k~(x, x) - ||phi||², (b,); 0 for bases that approximate no other kernel.
    feature_norm
        ||phi||², (b,).
    noise_var, kl
        Scalars.
    """

    mean: Tensor
    function_variance: Tensor
    residual: Tensor
    feature_norm: Tensor
    noise_var: Tensor
    kl: Tensor


@dataclass(frozen=True)
class Weights:
    """Weights of the regularisers: `alpha` of the trace, `beta` of the KL term in dPPGP."""

    alpha: float = 0.1
    beta: float = 0.01


Objective = Callable[[BatchTerms, Tensor, int, Weights], Tensor]


def gaussian_nll(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """-log N(y; mean, variance), elementwise."""
    return 0.5 * (math.log(2 * math.pi) + variance.log() + (y - mean).square() / variance)


def elbo(terms: BatchTerms, y: Tensor, n: int, _weights: Weights) -> Tensor:
    """Negative evidence lower bound (DBK equation 5), with the residual of equation 4.

    mean_b[-log N(y; mu, noise_var) + (s² + residual) / (2 noise_var)] + KL / n.
    """
    fit = gaussian_nll(y, terms.mean, terms.noise_var)
    spread = (terms.function_variance + terms.residual) / (2 * terms.noise_var)
    return (fit + spread).mean() + terms.kl / n


def dppgp(terms: BatchTerms, y: Tensor, n: int, weights: Weights) -> Tensor:
    """Decoupled parametric predictive objective (DBK equation 15).

    mean_b[-log N(y; mu, s² + noise_var)]
    + alpha mean_b[(max_b ||phi||² - ||phi||²) / (2 noise_var)] + (beta / n) KL.
    """
    fit = gaussian_nll(y, terms.mean, terms.function_variance + terms.noise_var)
    norm = terms.feature_norm
    trace = (torch.max(norm) - norm).mean() / (2 * terms.noise_var)
    return fit.mean() + weights.alpha * trace + weights.beta / n * terms.kl
