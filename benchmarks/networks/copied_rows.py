"""The log score of copied rows by the noise variance: a control of `scale_regression.py`.

Some rows of a table have the inputs and the target of another row. If the noise variance of a
process is near 0, so is its variance at a copy of a training row, and the density there has no
bound. The control fits an exact `nngp` of one hidden layer for each of several fixed noise
variances.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.markdown import percent, spread, table
from benchmarks.networks.network_baselines import NormalMixture
from benchmarks.number_tables import Table
from benchmarks.script import Figures, Floats
from geogp.models.papers.mixed_nystrom.kernels import NetworkKernel
from geogp.models.process.data import Data

NOISES = (0.5, 1e-2, 1e-4, 1e-6)
"""Noise variances of the standardised target."""

ITERATIONS = 25

KEYS = {"nll": "NLL", "copies": "NLL, copies", "others": "NLL, others", "rmse": "RMSE"}
"""Figures of a noise variance, and their names."""


def copied(train: Data, new: Data) -> NDArray[np.bool_]:
    """Return which new rows have the inputs and the target of a training row, (m,)."""
    known = {(x.tobytes(), float(y)) for x, y in zip(train.x, train.y, strict=True)}
    rows = zip(new.x, new.y, strict=True)
    return np.array([(x.tobytes(), float(y)) in known for x, y in rows])


def exact(train: Data, new: Floats, noise: float) -> NormalMixture:
    """Return the predictions of an exact process with a fixed noise variance.

    Its kernel is that of a network with one hidden layer of erf units, learned by L-BFGS on the
    marginal likelihood. Inputs are scaled to [-1, 1].
    """
    low, high = train.x.min(0), train.x.max(0)
    x, points = (torch.from_numpy(2 * (part - low) / (high - low) - 1) for part in (train.x, new))
    y, identity = torch.from_numpy(train.y)[:, None], torch.eye(len(x), dtype=torch.float64)
    kernel = NetworkKernel(1, "erf")
    optimiser = torch.optim.LBFGS(
        kernel.parameters(), max_iter=ITERATIONS, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        root = torch.linalg.cholesky(kernel(x, x) + noise * identity)
        white = torch.linalg.solve_triangular(root, y, upper=False)
        found: torch.Tensor = white.square().sum() / 2 + root.diagonal().log().sum()
        (found / len(x)).backward()
        return found.detach() / len(x)

    optimiser.step(loss)
    with torch.no_grad():
        root = torch.linalg.cholesky(kernel(x, x) + noise * identity)
        white, across = (
            torch.linalg.solve_triangular(root, part, upper=False)
            for part in (y, kernel(x, points))
        )
        variance = (kernel.diagonal(points) - across.square().sum(0)).clamp(min=0) + noise
        return NormalMixture((across.T @ white).T.numpy(), variance[None].numpy())


def measure(data: Table, seed: int) -> Figures:
    """Return the log scores of copied and other test rows in the target's unit, by noise."""
    rows = data.split(seed)
    train, test = rows["train"], rows["test"]
    unit = float(data.y.std() / np.concatenate([part.y for part in rows.values()]).std())
    copy = copied(train, test)
    found = []
    for noise in NOISES:
        law = exact(train, test.x, noise)
        scores = law.log_score(test.y) + math.log(unit)
        error = float(np.sqrt(np.square(law.mean() - test.y).mean())) * unit
        parts = {"nll": scores, "copies": scores[copy], "others": scores[~copy]}
        means = {name: float(part.mean()) for name, part in parts.items()}
        found.append({"noise": noise, **means, "rmse": error})
    return {"table": data.name, "seed": seed, "share": float(copy.mean()), "by_noise": found}


def section(seeds: Sequence[Figures]) -> str:
    """Return the section of a page, from the figures of `measure`."""
    name, share = seeds[0]["table"], np.mean([one["share"] for one in seeds])
    lines = [
        (f"{noise:g}", *(spread([one["by_noise"][k][key] for one in seeds]) for key in KEYS))
        for k, noise in enumerate(NOISES)
    ]
    return f"""
## Copied rows of {name}

{percent(share)} of the test rows have the inputs and the target of a training row (seeds:
{len(seeds)}). An exact `nngp` of one hidden layer, with a fixed noise variance of the standardised
target, has this NLL for all test rows, for copies, and for the others ({ITERATIONS} iterations of
L-BFGS):

{table(("noise variance", *KEYS.values()), lines)}
The smaller the noise, the better the score of the copies, without a bound, and the worse that of
new wines. A normal law of one variance with the paper's RMSE of 0.57 has an NLL of
{0.5 * math.log(2 * math.pi * math.e * 0.57**2):.2f} or more. A negative NLL needs rows with a far
smaller variance, and copies can be such rows. Whether they are so in the paper is open, and so is
why its RMSE is smaller: here it hardly depends on the noise. The processes above learn a noise that
remains large.
"""
