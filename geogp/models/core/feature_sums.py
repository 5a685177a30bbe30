"""Products of features with weights, in passes over chunks of the features."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

Floats = NDArray[np.float64]
Weights = Any
"""Weights of tiles in several sums, (n, k): an array, or a sparse array of SciPy."""


def rows_times(factor: Floats, weights: Weights) -> Weights:
    """Return sparse weights (n, k) with each row times its factor."""
    return sparse.csc_array(weights.multiply(factor[:, None]))


def gathered(features: Iterator[Tensor], weights: Any) -> Floats:
    """Return Phi' a for weights (n, k), dense or sparse by rows, (r, k)."""
    total: Any = 0.0
    start = 0
    for phi in features:
        part = weights[start : start + len(phi)]
        if isinstance(part, np.ndarray):
            total = total + (phi.T @ torch.from_numpy(part).to(phi.device)).cpu().numpy()
        else:
            total = total + (part.T @ phi.cpu().numpy()).T
        start += len(phi)
    found: Floats = total
    return found


def spread(features: Iterator[Tensor], weights: Tensor) -> Floats:
    """Return Phi w for weights (r, k), (n, k)."""
    found: Floats = torch.cat([(phi @ weights).cpu() for phi in features]).numpy()
    return found
