"""The largest rank whose fit takes at most a given time."""

from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch

from geogp.errors import RequestError
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.optimisers import LBFGS_ITERATIONS
from geogp.models.fitting.steps import Batch, ByInputs
from geogp.models.process.data import Data
from geogp.models.process.process import Process
from geogp.models.process.rows import Rows

MIN_RANK = 50
"""Smallest rank that a budget can set."""

MAX_RANK = 4000
"""Largest rank that a budget can set."""

RANK_STEP = 50
"""Step between the ranks that a budget can set."""

PROBES = (100, 300)
"""Ranks for which the time of a pass is measured."""

PROBE_ROWS = 4096
"""Largest number of rows in the passes whose time is measured."""

EVALUATIONS_PER_ITERATION = 1.3
"""Evaluations of the objective per iteration of L-BFGS, including the line search. With 5,000 rows
of two regions, 1.07 to 1.38 evaluations were observed.
"""


class RankChoice(NamedTuple):
    """A rank, and the expected seconds of a fit with this rank."""

    r: int
    seconds: float


def rank_for(
    budget: float, make: Callable[[int], Process], rows: Data, settings: FitSettings
) -> RankChoice:
    """Return the largest rank whose fit is expected to take at most `budget` seconds.

    The rank is at most the number of distinct inputs. `make` builds an untrained model of a given
    rank on the device of the fit. The time for two ranks is measured on a part of the rows. Time
    per row is modelled as c_1 r + c_2 r²; the terms stand for covariances and for products of
    covariances. Raises RequestError if even the smallest rank takes longer.
    """
    cost = [_seconds(make(r), rows, settings) for r in PROBES]
    a, b = PROBES
    square = max(0.0, (cost[1] / b - cost[0] / a) / (b - a))
    linear = max(0.0, cost[0] / a - square * a)
    inputs = len(np.unique(rows.x, axis=0))
    most = max(MIN_RANK, min(MAX_RANK, inputs))
    ranks = np.arange(MIN_RANK, most + 1, RANK_STEP)
    expected = linear * ranks + square * ranks.astype(np.float64) ** 2
    if expected[0] > budget:
        raise RequestError(
            f"a budget of {budget:g} s is too short: even rank {MIN_RANK} takes about "
            f"{expected[0]:.0f} s. Choose a longer budget or fewer quarters, and add --fresh."
        )
    at = int(np.flatnonzero(expected <= budget)[-1])
    return RankChoice(int(ranks[at]), float(expected[at]))


def _seconds(model: Process, rows: Data, settings: FitSettings) -> float:
    """Return the expected seconds of a fit, from the times of one evaluation and one update."""
    fit: ByInputs[Any] = model.make_fit(model)
    if fit.stepped is None:
        raise RequestError(f"expected a model with steps for a budget; {model.name} has none.")
    n = min(PROBE_ROWS, len(rows.y))
    tensor = torch.as_tensor(rows.y[:n]).to(model.device, model.architecture.torch_dtype)
    counts = torch.as_tensor(rows.counts)
    fit.rows = Rows(model.scaled(rows.x[:n]), tensor, counts[:n].to(model.device))
    everything = torch.arange(n, device=model.device)
    y = torch.zeros(len(rows.y), dtype=tensor.dtype)
    whole = Rows(model.scaled(rows.x).cpu(), y, counts)
    inputs = len(fit.gathered(whole).y)
    share = fit.batch_rows(settings.batch, len(rows.y)) / len(rows.y)

    def evaluate() -> None:
        model.zero_grad(set_to_none=True)
        fit.step(Batch(everything, n), settings.weights)

    def update() -> None:
        fit.update_closed_forms(fit.rows.at(slice(0, 1)))

    evaluations = settings.epochs * (1 + EVALUATIONS_PER_ITERATION * LBFGS_ITERATIONS)
    once = _timed(evaluate, model) * evaluations * share + _timed(update, model) * settings.epochs
    return once * inputs / n


def _timed(function: Callable[[], None], model: Process) -> float:
    """Return the shorter time of two calls of a function; an earlier call is not timed."""
    times = []
    for _ in range(3):
        start = monotonic()
        function()
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        times.append(monotonic() - start)
    return min(times[1:])
