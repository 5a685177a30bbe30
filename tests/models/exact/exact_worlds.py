"""Rows of exact processes, and dense references made without geogp."""

import numpy as np
import torch
from sklearn.gaussian_process.kernels import Matern

from geogp.models.exact.kriging import ExactRows


def make_rows(n=60, *, seed=0, time=False, trend=1, known=False, sessions=0, tested=False):
    """Rows at random places, with a smooth field, noise of sd 0.3 and a trend of some columns.

    `known`: whether the rows have known errors, with sds of up to 1. `sessions`: their number.
    `tested`: whether rows are means of 1 to 20 tests, each with noise of sd 0.8.
    """
    random = np.random.default_rng(seed)
    points = random.uniform(0, 10, (n, 3 if time else 2))
    columns = np.column_stack([np.ones(n), *random.standard_normal((trend - 1, n))])
    y = np.sin(points[:, 0]) + np.cos(points[:, 1] / 2) + 0.3 * random.standard_normal(n)
    sd = random.uniform(0, 1, n) * known
    y = y + sd * random.standard_normal(n)
    parts = [torch.as_tensor(part) for part in (points, columns, y)]
    errors = torch.as_tensor(sd**2) if known else None
    session = torch.as_tensor(random.integers(sessions, size=n)) if sessions else None
    if not tested:
        return ExactRows(*parts, errors, session)
    tests = random.integers(1, 21, n).astype(np.float64)
    parts[2] += 0.8 * torch.as_tensor(random.standard_normal(n) / np.sqrt(tests))
    return ExactRows(*parts, errors, session, torch.as_tensor(tests))


def correlation(first, second, theta, smoothness):
    """Correlations of the field between places (n, 2) and (m, 2), without λ."""
    rho, a, b = theta[:3]
    values, axes = np.linalg.eigh([[rho + a, b], [b, rho - a]])
    metric = axes @ np.diag(np.exp(-values)) @ axes.T
    places = first @ metric, second @ metric
    if len(theta) == 4:
        return Matern(1.0, nu=smoothness)(*places)
    short, q = 1 / (1 + np.exp(-theta[4])), np.exp(theta[5])
    return (1 - short) * Matern(1.0, nu=smoothness)(*places) + short * Matern(q, nu=0.5)(*places)
