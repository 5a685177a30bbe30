"""Independent parts of a computation in several threads, each with one core."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import Any, TypeVar

import torch

from geogp.models.numerics.precision import current_precision, precision

MOST_THREADS = 8
"""Largest number of threads: each has its own arrays, and Python starts one operation at a time."""

_CORES: ContextVar[int | None] = ContextVar("cores", default=None)
"""Number of cores for `in_threads` inside `one_core_each`, where PyTorch itself uses one."""

_SEEDED = RLock()
"""Held while the random numbers of the process are seeded; `seeded` may be nested."""

Input = TypeVar("Input")
Result = TypeVar("Result")


def threads_of(device: torch.device) -> int:
    """Return the number of threads for work on a device; one on a GPU, which has its own."""
    cores = _CORES.get() or torch.get_num_threads()
    return min(cores, MOST_THREADS) if device.type == "cpu" else 1


@contextmanager
def one_core_each() -> Iterator[None]:
    """Let each operation use one core, and `in_threads` all cores, in a ``with`` block.

    PyTorch divides an operation among the cores. If operations are small, the cores mostly wait for
    each other, and very long if other programs use them.
    """
    before = torch.get_num_threads()
    token = _CORES.set(_CORES.get() or before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _CORES.reset(token)


def chunks(n: int, size: int) -> list[slice]:
    """Return slices of n numbers, `size` at a time."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def in_threads(
    work: Callable[[Input], Result], inputs: Iterable[Input], device: torch.device
) -> Iterator[Result]:
    """Yield the result of `work` for each input, in order, computed in threads.

    One core computes a result, so it does not depend on the number of threads. Threads have the
    settings of the caller for gradients, precision and denormal numbers. There are only a few
    unread results at a time.
    """
    threads = threads_of(device)
    if threads == 1:
        yield from map(work, inputs)
        return
    waiting: deque[Future[Result]] = deque()
    with _pool(threads) as submit:
        for value in inputs:
            waiting.append(submit(work, value))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def aside(work: Callable[[], Result], device: torch.device) -> Iterator[Callable[[], Result]]:
    """Do some work in another thread beside a ``with`` block; yield a function that waits for it.

    With one core, and on a GPU, the work is done first.
    """
    if threads_of(device) == 1:
        result = work()
        yield lambda: result
        return
    with _pool(1) as submit:
        yield submit(work).result


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed PyTorch's random numbers in a ``with`` block, and restore their state after it.

    These are the numbers of the CPU, and of `device` if it is a GPU. The state is that of the whole
    process, so other threads wait until the block ends.
    """
    gpus = [] if device is None or device.type != "cuda" else [device.index]
    with _SEEDED, torch.random.fork_rng(devices=gpus):
        # `torch.manual_seed` would also change the state of all GPUs.
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            torch.cuda.default_generators[gpu].manual_seed(seed)
        yield


@contextmanager
def _pool(threads: int) -> Iterator[Callable[..., Future[Any]]]:
    """Start threads with the caller's settings; yield a function that submits work to them."""
    gradients, flushed = torch.is_grad_enabled(), sys.float_info.min / 2 == 0
    before, name = torch.get_num_threads(), current_precision()

    def begin() -> None:
        torch.set_num_threads(1)
        torch.set_flush_denormal(flushed)
        torch.set_grad_enabled(gradients)

    def compute(work: Callable[..., Any], *arguments: Any) -> Any:
        with precision(name):
            return work(*arguments)

    try:
        with ThreadPoolExecutor(threads, initializer=begin) as pool:
            yield lambda *task: pool.submit(compute, *task)
    finally:
        torch.set_num_threads(before)  # new threads of other libraries take the latest number
