"""Rows and small processes with a random scale, and the dense matrix of their rows."""

import math

import numpy as np
import torch

from geogp.models.catalogue.build import build
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.rows import Rows

SIZES = Architecture(d=2, r=10, dtype="float64")


def table(n: int, seed: int = 0, scale: float = 1.0) -> Data:
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (n, 2))
    y = np.sin(3 * x[:, 0]) * x[:, 1] + 0.3 * random.standard_normal(n)
    return Data(x, scale * y)


def rows_of(data: Data) -> Rows:
    return Rows(*(torch.from_numpy(part) for part in (data.x, data.y, data.counts)))


def process(name: str) -> LowRankProcess:
    model = build(name, SIZES, table(40, seed=9).x, noise_start=0.2)
    model.basis.kernel.log_weight.data += 2.0
    return model


def matrix(model: LowRankProcess, x: np.ndarray) -> np.ndarray:
    """A = Phi Phi' + t² I."""
    phi = model.basis(torch.from_numpy(x)).phi.detach().numpy()
    return phi @ phi.T + model.noise().item() * np.eye(len(x))


def with_values(kernel: torch.nn.Module, **values: float) -> torch.nn.Module:
    """Set variances, and the proportions alpha and w, of a kernel."""
    with torch.no_grad():
        for name, value in values.items():
            if name in {"alpha", "w"}:
                getattr(kernel, f"logit_{name}").fill_(math.log(value / (1 - value)))
            else:
                getattr(kernel, f"log_{name}").fill_(math.log(value))
    return kernel
