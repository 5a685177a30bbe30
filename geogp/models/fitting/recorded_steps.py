"""Training steps that a GPU records once and then starts as a whole.

A step of a small network starts some hundred kernels. Starting them one by one takes the CPU longer
than the GPU needs to compute them. If all steps start the same kernels on arrays of the same shapes
and never wait for the GPU, a CUDA graph can hold them, and one call starts all of them.
"""

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic

import torch
from torch import Tensor

from geogp.models.fitting.steps import Batch

logger = logging.getLogger(__name__)

WARM_UP = 3
"""Number of steps before any time is measured."""

TIMED = 8
"""Number of steps that are timed each way."""

Recorder = Callable[[Callable[[], Tensor]], tuple[Tensor, Callable[[], None]]]
"""Records a step without making it. Returns its result, and a function that makes the step."""


def cuda_graph(step: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """Record a step as a CUDA graph; see `Recorder`.

    Raises RuntimeError if the step cannot be recorded. Stream and random numbers are then as
    before, and later allocations work; new versions of PyTorch may keep the memory of the failed
    recording.
    """
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    stream = torch.cuda.current_stream()
    generator = torch.cuda.default_generators[stream.device_index]
    numbers = generator.clone_state()
    try:
        with _without_collection(), torch.cuda.graph(graph, pool=pool):
            loss = step()
    except RuntimeError as error:
        # PyTorch ends a failed recording with another error and then leaves its stream, its memory
        # pool and the state of its random numbers in use: large allocations would fail later.
        torch.cuda.set_stream(stream)
        generator.graphsafe_set_state(numbers)
        # If only the step failed, or in new versions, PyTorch has ended the use of the pool itself,
        # and the first function raises. Old versions lack the functions.
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(stream.device_index, pool)  # noqa: SLF001
            torch._C._cuda_releasePool(stream.device_index, pool)  # noqa: SLF001
        raise RuntimeError(str(error.__context__ or error)) from error
    return loss, graph.replay


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect unused objects now, and none in the ``with`` block: an old graph may be among them.

    A recording fails if another graph is destroyed meanwhile.
    """
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


RECORDERS: dict[str, Recorder] = {"cuda": cuda_graph}
"""The recorder of each type of device; on other devices, no step is recorded."""


@dataclass
class _Trial:
    """How steps with equally many rows are made, their number so far, and seconds of both ways.

    `recorded` makes a recorded step; None if there is none, or if it is slower.
    """

    recorded: Callable[[Batch], Tensor] | None = None
    made: int = 0
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])


class RecordedStep:
    """A training step on a device, recorded if this makes it faster.

    For batches with equally many numbers, the first steps start their kernels one by one. Then a
    step is recorded, and the way that takes less time makes all further steps; a log message has
    both times. If a step cannot be recorded, a log message says why.

    A recorded step needs memory of its own, which is free as soon as this object is deleted.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimiser, self.recorder = optimiser, RECORDERS.get(device.type)
        self.trials: dict[tuple[bool, int], _Trial] = {}

    def __call__(self, step: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        """Make a step; return its loss, which is valid until the next call.

        `step` makes a step of the optimiser and returns its loss. For all batches with equally many
        numbers, it must start the same kernels, without waiting for the device, and change tensors
        in place. It must be the same in all calls.
        """
        kind = batch.whole_places, len(batch.numbers)
        trial = self.trials.setdefault(kind, _Trial())
        at = trial.made - WARM_UP
        trial.made += 1
        if self.recorder is None or not 0 <= at < 2 * TIMED:
            return (trial.recorded or step)(batch)
        if at == TIMED:
            trial.recorded = self._record(step, batch, self.recorder)
        started = monotonic()
        loss = (trial.recorded or step)(batch)
        loss.item()  # waits until the step is done
        trial.seconds[at // TIMED] += monotonic() - started
        if at == 2 * TIMED - 1:
            self._choose(trial, batch.n)
        return loss

    def _record(
        self, step: Callable[[Batch], Tensor], batch: Batch, recorder: Recorder
    ) -> Callable[[Batch], Tensor] | None:
        recorded = batch._replace(numbers=batch.numbers.clone())
        self._set_capturable(value=True)
        try:
            loss, start = recorder(lambda: step(recorded))
        except RuntimeError as error:
            logger.warning("training steps are not recorded, and may be slower: %s", error)
            self.recorder = None
            return None
        finally:
            self._set_capturable(value=False)

        def make(batch: Batch) -> Tensor:
            recorded.numbers.copy_(batch.numbers)
            start()
            return loss

        return make

    def _set_capturable(self, *, value: bool) -> None:
        """Tell the optimiser whether its step is recorded; it warns if the setting is wrong."""
        for group in self.optimiser.param_groups:
            group["capturable"] = value

    def _choose(self, trial: _Trial, rows: int) -> None:
        alone, recorded = (1000 * seconds / TIMED for seconds in trial.seconds)
        logger.info("a step of %d rows: %.3g ms, recorded %.3g ms", rows, alone, recorded)
        if recorded > alone:
            trial.recorded = None
