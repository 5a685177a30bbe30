"""Hand-written gradients compared with autograd: time and memory of one training step.

    OMP_NUM_THREADS=1 python benchmarks/gradients.py [--only _Features ...] [--repeats 7]

Each step runs alternately with the hand-written gradient and with plain PyTorch operations. Times
are CPU times of one thread, the least of the repeats. Memory is the peak during a step minus the
memory before the step. Writes a Markdown table.
"""

import argparse
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from geogp.files import write_text
from geogp.models.bases import expectations, nystrom, rbf
from geogp.models.catalogue.build_model import build, spec_of
from geogp.models.catalogue.presets import find_preset
from geogp.models.core.architecture import Architecture
from geogp.models.core.linalg import jittered_cholesky
from geogp.models.core.options import Weights
from geogp.models.training import steps
from geogp.models.training.optimisers import make_optimiser
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_data import Data

QUARTERS = 8


class Case(NamedTuple):
    """A training step: model, preset and training rows."""

    model: str
    preset: str
    rows: int


def plain_features(
    rows: Tensor, anchors: Tensor, log_lengthscale: Tensor, log_variance: Tensor, jitter: float
) -> tuple[Tensor, Tensor]:
    """Return the result of `rbf_features`, by plain operations."""
    lengthscale, variance = log_lengthscale.double().exp(), log_variance.double().exp()
    X, Z = rows.double() / lengthscale, anchors.double() / lengthscale
    centre = Z.detach().mean(0)

    def kernel(A: Tensor, B: Tensor) -> Tensor:
        left, right = rbf.left_side(A, centre, variance), rbf.right_side(B, centre)
        return (left @ right.T).clamp(min=-700).exp()

    Lz, _ = jittered_cholesky(kernel(Z, Z), jitter)
    phi = torch.linalg.solve_triangular(Lz, kernel(Z, X), upper=False).T
    return phi.to(rows.dtype), phi.square().sum(1)


def plain_arcsine(k11: Tensor, k12: Tensor, k22: Tensor, gain: float) -> Tensor:
    """Return the result of `arcsine`, by plain operations."""
    gained = gain * (1 - expectations.ROUNDING)
    sine = k12 * (gained / (1 + gain * k11)).sqrt() * (gained / (1 + gain * k22)).sqrt()
    return sine.asin() * (2 / math.pi)


def plain_relu(k11: Tensor, k12: Tensor, k22: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of `relu`, by plain operations."""
    root = k11.clamp(min=1e-300).sqrt() * k22.clamp(min=1e-300).sqrt()
    angle = (-k12 / root).clamp(-1 + 1e-14, 1 - 1e-14).acos()
    slope = angle / (2 * math.pi)
    return angle.sin() * root / (2 * math.pi) + k12 * slope, slope


def plain_sum(weights: Tensor, *terms: Tensor) -> Tensor:
    """Return the result of `weighted_sum`, by plain operations."""
    total = weights[0]
    for weight, term in zip(weights[1:], terms, strict=True):
        total = total + weight * term
    return total


def plain_anchors(
    step: nystrom.AnchorEvidence, model: Any, rows: Any, n: int, weights: Weights
) -> Tensor:
    """Differentiate the objective of `AnchorEvidence` as `WholeData` does."""
    whole: steps.WholeData[Any] = steps.WholeData(step.objective, step.prior)
    return whole.backward(model, rows, min(n, rows.n), weights)


def plain_whole(
    step: steps.WholeData[Any], model: Any, rows: Any, n: int, _weights: Weights
) -> Tensor:
    """Differentiate the objective of `WholeData` in one pass over all rows."""
    sums = steps.statistics(model, rows, own_variance=step.own_variance)
    loss = -(step.objective(sums, model.noise()) + step.prior(model)) / n
    loss.backward()
    return loss.detach().double()


def replaced(module: Any, name: str, function: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Replace a hand-written gradient by a plain function."""
    return mock.patch.object(module, name, SimpleNamespace(apply=function))


ROWS = 104_000
"""Number of rows from which the batch of a preset is 1,024; with fewer rows it is smaller."""

PLAIN: dict[str, tuple[Callable[[], AbstractContextManager[Any]], tuple[Case, ...]]] = {
    "_Features": (
        lambda: replaced(rbf, "_Features", plain_features),
        tuple(
            Case(name, preset, ROWS)
            for name in ("dbk-rbf", "sv-rbf")
            for preset in ("standard", "paper")
        ),
    ),
    "_Arcsine": (
        lambda: replaced(expectations, "_Arcsine", plain_arcsine),
        (Case("nystrom-mixed", "quick", 20_000), Case("nngp", "quick", 20_000)),
    ),
    "_Relu": (
        lambda: replaced(expectations, "_Relu", plain_relu),
        (Case("nystrom-mixed", "quick", 20_000), Case("nngp-relu", "quick", 20_000)),
    ),
    "_WeightedSum": (
        lambda: replaced(expectations, "_WeightedSum", plain_sum),
        (Case("nystrom-mixed", "quick", 20_000), Case("nngp", "quick", 20_000)),
    ),
    "AnchorEvidence": (
        lambda: mock.patch.object(nystrom.AnchorEvidence, "backward", plain_anchors),
        (Case("nystrom-mixed", "quick", 20_000), Case("t-process", "quick", 20_000)),
    ),
    "WholeData": (
        lambda: mock.patch.object(steps.WholeData, "backward", plain_whole),
        (Case("dbk-exact", "standard", 40_000), Case("nystrom-mixed-fitc", "quick", 40_000)),
    ),
}
"""Hand-written gradients, with the replacement of each and the steps that measure its benefit."""


def world(n: int) -> Data:
    """Return rows of tiles in quarters."""
    random = np.random.default_rng(0)
    places = np.repeat(random.uniform(-1, 1, (n // QUARTERS, 2)), QUARTERS, 0)
    times = np.tile(np.linspace(-1, 1, QUARTERS), len(places) // QUARTERS)
    y = np.sin(4 * places).sum(1) + 0.3 * times + 0.5 * random.standard_normal(len(places))
    return Data(np.column_stack([places, times]), y, random.integers(1, 40, len(y)).astype(float))


def make_step(case: Case) -> Callable[[], None]:
    """Return one training step of a model, at the sizes and with the optimiser of its preset."""
    preset, data = find_preset(case.preset, case.model), world(case.rows)
    sizes = Architecture(d=3, h=preset.h, r=preset.r, units=(30.0, 30.0, 4.0))
    batch = preset.batch_for(len(data.y))
    model = build(case.model, sizes, data.x, placement=preset.placement, noise_start=0.5)
    model.take_target(data.y)
    step = spec_of(model).step
    rows = step.gathered(model.keep_rows(model.as_rows(data.x, data.y, data.counts), 0))
    parts = step.parts(model, rows, batch, np.random.default_rng(0), 0.1)
    optimiser = make_optimiser(model, FitSettings(epochs=1))

    def run() -> None:
        optimiser.zero_grad(set_to_none=True)
        step.learn(model, rows, parts[0], preset.weights)
        if preset.optimiser == "adamw":
            optimiser.step()

    return run


def peak_mib(run: Callable[[], None]) -> float:
    """Return the peak memory of a step's tensors, minus the memory before the step."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return float(np.cumsum([event.nbytes() for event in events]).max()) / 2**20


def measured(case: Case, plain: Callable[[], AbstractContextManager[Any]], repeats: int) -> str:
    """Return the row of a table: CPU milliseconds and peak memory both ways."""
    run = make_step(case)
    ways: list[Callable[[], AbstractContextManager[Any]]] = [torch.enable_grad, plain]
    times: list[list[float]] = [[], []]
    memory = []
    for way in ways:
        with way():
            run()
            memory.append(peak_mib(run))
    for _ in range(repeats):
        for way, kept in zip(ways, times, strict=True):
            with way():
                start = process_time()
                run()
                kept.append(1000 * (process_time() - start))
    ours, theirs = (min(kept) for kept in times)
    return (
        f"`{case.model}` | {case.preset} | {ours:.1f} | {theirs:.1f} | "
        f"{theirs / ours:.2f} | {memory[0]:.0f} | {memory[1]:.0f}"
    )


def main() -> int:
    """Measure all and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PLAIN, default=list(PLAIN))
    parser.add_argument("--repeats", type=int, default=7)
    results = Path(__file__).parent / "results"
    parser.add_argument("--table", type=Path, default=results / "gradients.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "# Gradients written by hand\n",
        "One training step with these gradients and with autograd (`benchmarks/gradients.py`): CPU",
        f"milliseconds of one thread, the least of {options.repeats} alternating repeats, and the",
        "peak memory minus the memory before the step, in MiB. `WholeData` is for memory, which",
        "does not grow with the rows. [Gradients with a ratio below 1.15](gradients_removed.md)",
        "are no longer in the code.\n",
        "| gradient | model | preset | with | without | ratio | MiB with | MiB without |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in options.only:
        plain, cases = PLAIN[name]
        for case in cases:
            line = f"| `{name}` | {measured(case, plain, options.repeats)} |"
            print(line, flush=True)
            lines.append(line)
    write_text(options.table, "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
