"""Count kernel launches and host synchronisations of every model, without a GPU.

    python -m benchmarks speed.launches

A step of training launches kernels; a host synchronisation makes the CPU wait until all of them are
done. Both are properties of the code, so they are counted on a second device that only looks like a
GPU (`second_device.py`). The number of launches does not depend on the number of rows in a step.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.markdown import table
from benchmarks.script import RESULTS, options_of
from benchmarks.speed.second_device import DEVICE, NAME, Counts, second_device
from geogp.files import write_text
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE, CLASS_CATALOGUE
from geogp.models.field.fitted import FittedField
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import loop as training_loop
from geogp.models.fitting import recorded_steps
from geogp.models.papers.classes.processes import ClassProcess
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.model import Model
from geogp.models.process.process import Process

TABLE = RESULTS / "launches" / "table.md"


@dataclass
class Steps:
    """Launches and host synchronisations of each training step, and the latter by line.

    `sequences` has the sequences of launches, with shapes, of steps with each number of rows. The
    first step, which makes the optimiser's state, is left out.
    """

    launches: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)
    sequences: dict[int, set[tuple[object, ...]]] = field(default_factory=dict)


MODELS = CATALOGUE | CLASS_CATALOGUE

CLASSES = 3


def world(name: str, n: int, seed: int, repeats: int = 1) -> Data:
    """Return n rows of a smooth surface, of counts with a smooth log rate, or of classes.

    `repeats` rows have the same inputs, as tiles that are measured in several quarters.
    """
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (-(-n // repeats), 2)).repeat(repeats, 0)[:n]
    y = np.sin(3 * x).sum(1) + 0.5 * x.prod(1) + 0.1 * random.standard_normal(n)
    if MODELS[name].about.family == "class":
        return Data(x, np.digitize(y, [0.0, 1.0]).astype(float))
    return Data(x, random.poisson(np.exp(y)).astype(float) if MODELS[name].about.counts else y)


def made(name: str, train: Data, r: int = 8) -> Process:
    """Return a small untrained model."""
    classes = CLASSES if MODELS[name].about.family == "class" else 0
    sizes = Architecture(
        d=2, h=6, r=r, blocks=1, dtype="float32", units=(5.0, 5.0), classes=classes
    )
    return build(name, sizes, torch.from_numpy(train.x), seed=0)


def predicted(model: Model, x: np.ndarray) -> np.ndarray:
    """Return mean and standard deviation, (2, n), or the probabilities of classes, (n, k)."""
    if isinstance(model, ClassProcess):
        return model.predict(x).probabilities
    found = model.predict(x)
    return np.stack([found.mean, found.sd])


def tensors_of(model: Model | torch.nn.Module) -> list[torch.Tensor]:
    """Return parameters and buffers of a process; of a field, also rows, drift and networks."""
    if isinstance(model, torch.nn.Module):
        return [*model.parameters(), *model.buffers()]
    assert isinstance(model, FittedField)
    rows = [value for value in vars(model.rows).values() if isinstance(value, torch.Tensor)]
    return [
        *tensors_of(model.parameters),
        *rows,
        model.drift,
        *model.errors.networks.parameters(),
    ]


def fitted(model: Process, train: Data, validation: Data, epochs: int = 3) -> tuple[Model, float]:
    """Fit a model in a few steps; return the fitted model and its best validation score."""
    settings = FitSettings(epochs=epochs, batch=40, learning_rate=1e-2)
    fitted_model, state = training_loop.fit(model, train, validation, settings)
    return fitted_model, state.best_nll


@contextmanager
def counted_steps(counts: Counts) -> Iterator[Steps]:
    """Count launches and waits of each training step."""
    fits = training_loop._Run  # noqa: SLF001
    steps, update = Steps(), fits._update  # noqa: SLF001

    def counted(run: Any, part: Any) -> torch.Tensor:
        launches, waits = counts.launches.total(), counts.waits.copy()
        counts.sequence.clear()
        loss = update(run, part)
        steps.launches.append(counts.launches.total() - launches)
        steps.waits.append(counts.waits.total() - waits.total())
        steps.lines += counts.waits - waits
        if len(steps.launches) > 1:
            steps.sequences.setdefault(part.n, set()).add(tuple(counts.sequence))
        return loss

    with patch.object(fits, "_update", counted):
        yield steps


def row_of(name: str) -> list[object]:
    """Return the row of the table for a model."""
    train, validation = world(name, 190, 1), world(name, 60, 2)
    with second_device() as counts:
        model = made(name, train).to(DEVICE)
        with counted_steps(counts) as steps:
            model, _ = fitted(model, train, validation)
        counts.clear()
        predicted(model, validation.x)
        started, waits = counts.launches.total(), counts.waits.total()
        recorded = _recorded(name, counts) if MODELS[name].fit.func.same_kernels else ""
    lines = ", ".join(f"{line} ({number})" for line, number in steps.lines.most_common(3))
    return [
        f"`{name}`",
        f"{median(steps.launches):.0f}",
        f"{median(steps.waits):.0f}",
        max(map(len, steps.sequences.values())),
        recorded,
        started,
        waits,
        lines,
    ]


def _recorded(name: str, counts: Counts) -> int:
    """Return the launches of a recorded step."""
    train, validation = world(name, 190, 1), world(name, 60, 2)
    recorders = {NAME: counts.record}
    with (
        patch.object(recorded_steps, "RECORDERS", recorders),
        patch.object(recorded_steps, "monotonic", counts.launches.total),
        counted_steps(counts) as steps,
    ):
        fitted(made(name, train).to(DEVICE), train, validation, epochs=10)
    return steps.launches[-2]  # the last step of an epoch has fewer rows


def main() -> None:
    """Count all models, and write the table."""
    options = options_of(__doc__, table="launches", models=MODELS)
    titles = (
        "model",
        "launches",
        "waits",
        "sequences",
        "recorded",
        "launches, predict",
        "waits, predict",
        "lines (waits)",
    )
    text = f"""# Kernel launches and host synchronisations

    python -m benchmarks speed.launches

Counted without a GPU, by tensors that behave like those of one. *launches*: kernels of
a training step (median). *waits*: host synchronisations of a step (median). *sequences*:
most different sequences of kernels, with the shapes of their inputs, of steps with equally many
rows, after the first step. With one sequence, a step can be recorded and started as a whole, if it
is that of a batch and draws no random numbers; *recorded*: kernels of such a step, the copy of its
row numbers included. Two columns are for one prediction of 60 rows. The last column has the
lines of geogp where training waits most. 190 rows, batches of 40, rank 8, three epochs;
torch {torch.__version__}.

{table(titles, [row_of(name) for name in options.models])}
"""
    write_text(options.table / "table.md", text)
    print(text)
