"""Who works: the processes of this machine, one for each GPU, or a scheduler elsewhere.

Dask is imported here alone, and late: geogp installs without it.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch

from geogp.commands.batch.batch_work import TOPIC
from geogp.commands.batch.execution import Execution
from geogp.errors import NetworkError, RequestError
from geogp.runs.machine import LARGEST_INT, LARGEST_MMAP_THRESHOLD, cores_here

PATIENCE_S = 60
"""How long a scheduler and its first worker are waited for."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that say how many threads a process computes with."""

MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(LARGEST_MMAP_THRESHOLD),
    "MALLOC_TRIM_THRESHOLD_": str(LARGEST_INT),
}
"""Variables by which glibc does for a worker what `tune_process` does."""

_ENDED = ("KilledWorker", "CommClosedError", "FutureCancelledError", "CancelledError")
"""Names of Dask's errors for a worker that is gone."""

Hear = Callable[[dict[str, Any]], None]
"""Takes what a worker publishes; called from another thread."""


class Crew(Protocol):
    """Those who work."""

    @property
    def executor(self) -> Executor:
        """Takes what is to be done."""

    def size(self) -> int:
        """Return how many runs are made at once, now."""


@dataclass(frozen=True)
class FixedCrew:
    """So many at once by any executor."""

    executor: Executor
    many: int = 1

    def size(self) -> int:
        """Return how many runs are made at once."""
        return self.many


@dataclass(frozen=True)
class _DaskCrew:
    executor: Executor
    client: Any

    def size(self) -> int:
        """Return the threads of all workers, now: one run each."""
        threads: dict[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))


def gpus(visible: str | None, count: int) -> tuple[str, ...]:
    """Return what names each GPU in ``CUDA_VISIBLE_DEVICES``.

    Parameters
    ----------
    visible
        Value of that variable here, or None where it is not set.
    count
        How many GPUs PyTorch sees.
    """
    if visible is None:
        return tuple(map(str, range(count)))
    return tuple(name.strip() for name in visible.split(",") if name.strip())[:count]


def worker_environments(
    workers: int | None, devices: Sequence[str], cores: int
) -> list[dict[str, str]]:
    """Return the environment of each worker: its GPU, and its share of the cores.

    Parameters
    ----------
    workers
        How many; None takes one for each GPU, or one.
    devices
        GPUs, as `gpus` names them.
    cores
        Cores of this machine.

    Raises
    ------
    RequestError
        There are fewer GPUs than workers.
    """
    if devices and (workers or 0) > len(devices):
        raise RequestError(
            f"expected one worker for each GPU, found {workers} workers and {len(devices)} GPUs. "
            "Name fewer, or compute without GPU by --device cpu."
        )
    many = workers or len(devices) or 1
    threads = str(max(1, cores // many))
    shared = dict.fromkeys(THREADS, threads)
    if not devices:
        return [dict(shared) for _ in range(many)]
    return [{**shared, "CUDA_VISIBLE_DEVICES": name} for name in devices[:many]]


@contextmanager
def dask_crew(execution: Execution, device: str, scratch: Path, hear: Hear) -> Iterator[Crew]:
    """Start workers on this machine, or join those of a scheduler.

    Parameters
    ----------
    execution
        Who works.
    device
        The request's: for ``cpu`` GPUs are left alone.
    scratch
        Where workers started here may write.
    hear
        Takes what they publish.

    Raises
    ------
    RequestError
        Dask is not installed, or there are fewer GPUs than workers.
    NetworkError
        The scheduler does not answer, or has no worker.
    """
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise RequestError(
            "geogp batch needs Dask, which is not installed; pip install 'geogp[batch]' brings it."
        ) from error
    if execution.scheduler is not None:
        try:
            client = distributed.Client(execution.scheduler, timeout=PATIENCE_S)
        except (OSError, ValueError) as error:
            raise NetworkError(
                f"no Dask scheduler answers at {execution.scheduler} ({error})."
            ) from error
        with client:
            yield _joined(client, execution.scheduler, hear)
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = () if device == "cpu" else gpus(visible, torch.cuda.device_count())
    environments = worker_environments(execution.workers, devices, cores_here())
    with (
        _own_environment(),
        _cluster(distributed, environments, execution, scratch) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield _joined(client, "this machine", hear)


def worker_lost(error: BaseException) -> bool:
    """Tell whether an error says that a worker is gone, not what it did."""
    return any(kind.__name__ in _ENDED for kind in type(error).__mro__)


def _joined(client: Any, where: str, hear: Hear) -> _DaskCrew:
    try:
        client.wait_for_workers(1, timeout=PATIENCE_S)
    except TimeoutError as error:
        raise NetworkError(f"the Dask scheduler of {where} has no worker.") from error
    client.subscribe_topic(TOPIC, lambda event: hear(event[1]))
    return _DaskCrew(client.get_executor(pure=False), client)


@contextmanager
def _own_environment() -> Iterator[None]:
    """Undo what Dask sets here so that processes started next find it."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def _cluster(
    distributed: Any,
    environments: Sequence[dict[str, str]],
    execution: Execution,
    scratch: Path,
) -> Any:
    """Return a cluster of this machine, a process with one thread for each environment.

    It is what `distributed.LocalCluster` makes, which gives all workers one environment. A run
    whose worker dies fails at once: the batch counts its attempts.
    """
    dask = import_module("dask")
    shared = distributed.system.MEMORY_LIMIT / len(environments)
    limit = shared if execution.memory_gb is None else execution.memory_gb * 1e9
    workers = {
        place: {
            "cls": distributed.Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": int(limit),
                "env": environment,
                "dashboard": False,
                "silence_logs": logging.CRITICAL,
                "local_directory": str(scratch / "dask"),
            },
        }
        for place, environment in enumerate(environments)
    }
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {"host": "127.0.0.1", "port": 0, "dashboard": False, "allowed_failures": 0},
    }
    # Set before a worker's process starts: libraries look when they are loaded.
    early = {
        f"distributed.nanny.pre-spawn-environ.{name}": value
        for name, value in {**{name: environments[0][name] for name in THREADS}, **MEMORY}.items()
    }
    with dask.config.set(early):
        return distributed.SpecCluster(
            scheduler=scheduler, workers=workers, silence_logs=logging.CRITICAL, name="geogp-batch"
        )
