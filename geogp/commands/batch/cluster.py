"""The workers of a batch: local processes, or the workers of a Dask scheduler.

Only this module imports Dask, and only when Dask is needed, because Dask is optional.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from geogp.commands.batch.batch_place import Place, scratch_folder
from geogp.commands.batch.batch_plan import Execution
from geogp.commands.batch.batch_work import TOPIC
from geogp.commands.batch.shared_folder import check_shared
from geogp.commands.fault_logs import log_fault
from geogp.errors import GeogpError, NetworkError, OutputError, RequestError
from geogp.runs.machine import LARGEST_INT, LARGEST_MMAP_THRESHOLD, cores_here

PATIENCE_S = 60
"""Longest wait, in seconds, for a scheduler and for its first worker."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that set the number of threads of a process."""

MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(LARGEST_MMAP_THRESHOLD),
    "MALLOC_TRIM_THRESHOLD_": str(LARGEST_INT),
}
"""Environment variables that give a worker the memory settings of `tune_process`."""

TRANSIENT = frozenset({"worker", "network"})
"""Kinds of failures that may be temporary (see `kind_of`)."""

_ENDED = {"KilledWorker", "CommClosedError", "FutureCancelledError", "CancelledError"}
"""Names of Dask's errors for a lost worker or a cancelled run."""

_KINDS = (
    ((NetworkError, ConnectionError, TimeoutError), "network"),
    (RequestError, "request"),
    (OutputError, "output"),
    (GeogpError, "data"),
)


@dataclass(frozen=True)
class WorkerPool:
    """The workers of a batch, their number, and the last message of each run, by run name.

    `size` first checks that each new worker shares the folder of the batch (see `check_shared`).
    """

    executor: Executor
    size: Callable[[], int]
    last_messages: dict[str, dict[str, str]] = field(default_factory=dict)


def gpus(visible: str | None, count: int) -> list[str]:
    """Return the names of the GPUs; `visible` is the value of ``CUDA_VISIBLE_DEVICES``."""
    names = map(str, range(count)) if visible is None else map(str.strip, visible.split(","))
    return [name for name in names if name][:count]


def worker_environments(
    workers: int | None, devices: Sequence[str], cores: int
) -> list[dict[str, str]]:
    """Return the threads and the GPU of each worker; raise RequestError if GPUs are too few."""
    if devices and (workers or 0) > len(devices):
        raise RequestError(
            f"expected at most one worker for each GPU, found {workers} workers and {len(devices)} "
            "GPUs. Choose fewer --workers, or compute without GPUs (--device cpu)."
        )
    many = workers or len(devices) or 1
    shared = dict.fromkeys(THREADS, str(max(1, cores // many)))
    if not devices:
        return [shared] * many
    return [{**shared, "CUDA_VISIBLE_DEVICES": name} for name in devices[:many]]


@contextmanager
def workers(execution: Execution, device: str, place: Place) -> Iterator[WorkerPool]:
    """Start local workers, or connect to the workers of a scheduler; yield the workers.

    Raises RequestError if Dask is not installed, or there are fewer GPUs than workers. Raises
    NetworkError if a scheduler does not answer or has no worker.
    """
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise RequestError(
            "geogp batch needs Dask, which is not installed. Install Dask with pip install "
            "'geogp[batch]'."
        ) from error
    where = execution.scheduler or "this machine"
    with ExitStack() as stack:
        cluster = execution.scheduler
        if cluster is None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            devices = [] if device == "cpu" else gpus(visible, torch.cuda.device_count())
            environments = worker_environments(execution.workers, devices, cores_here())
            stack.enter_context(_own_environment())
            cluster = stack.enter_context(
                _cluster(
                    distributed,
                    environments,
                    execution.memory_gb,
                    scratch_folder(execution.scratch) / "dask",
                )
            )
        try:
            client = stack.enter_context(distributed.Client(cluster, timeout=PATIENCE_S))
        except (OSError, ValueError) as error:
            raise NetworkError(f"no Dask scheduler answers at {where} ({error}).") from error
        try:
            client.wait_for_workers(1, timeout=PATIENCE_S)
        except TimeoutError as error:
            raise NetworkError(f"the Dask scheduler at {where} has no worker.") from error
        yield _pool(client, place)


def _pool(client: Any, place: Place) -> WorkerPool:
    """Return the workers of a Dask client; each thread of a worker makes one run at a time."""
    checked = set[str]()

    def size() -> int:
        try:
            threads = client.nthreads()
        except OSError as error:
            raise NetworkError(f"the Dask scheduler no longer answers ({error}).") from error
        if new := sorted(threads.keys() - checked):
            checked.update(check_shared(place, partial(client.run, workers=new, on_error="return")))
        return max(1, sum(map(int, threads.values())))

    pool = WorkerPool(client.get_executor(pure=False), size)
    client.subscribe_topic(
        TOPIC, lambda event: pool.last_messages.update({event[1]["name"]: event[1]})
    )
    return pool


@contextmanager
def _own_environment() -> Iterator[None]:
    """Restore the environment variables at the end, because Dask changes some of them."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def _cluster(
    distributed: Any, environments: Sequence[dict[str, str]], memory_gb: float | None, scratch: Path
) -> Any:
    """Return a local cluster with one single-threaded process for each environment.

    `distributed.LocalCluster` would give all workers the same environment. If a worker dies, its
    run fails at once, because `make_batch` itself repeats failed runs.
    """
    dask = import_module("dask")
    shared = distributed.system.MEMORY_LIMIT / len(environments)
    options = {
        "nthreads": 1,
        "memory_limit": int(shared if memory_gb is None else memory_gb * 1e9),
        "dashboard": False,
        "silence_logs": logging.CRITICAL,
        "local_directory": str(scratch),
    }
    workers = {
        place: {"cls": distributed.Nanny, "options": {**options, "env": environment}}
        for place, environment in enumerate(environments)
    }
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {**here, "port": 0, "dashboard": False, "allowed_failures": 0},
    }
    # Set these before a worker's process starts, because libraries read them when they are loaded.
    early = {name: environments[0][name] for name in THREADS} | MEMORY
    names = {f"distributed.nanny.pre-spawn-environ.{name}": early[name] for name in early}
    with dask.config.set(names):
        return distributed.SpecCluster(
            scheduler=scheduler, workers=workers, silence_logs=logging.CRITICAL, name="geogp-batch"
        )


def kind_of(error: BaseException) -> str:
    """Return the kind of a failure: worker, network, request, output, data or other."""
    if _worker_lost(error):
        return "worker"
    return next((name for kind, name in _KINDS if isinstance(error, kind)), "other")


def failure_message(error: BaseException) -> str:
    """Return the message of a failure; write a log of an unexpected error."""
    if isinstance(error, GeogpError):
        return str(error)
    if _worker_lost(error):
        return (
            "the worker process ended before the run was complete: it was killed, or exceeded the "
            "memory limit."
        )
    what, where = log_fault(error)
    return f"a bug in geogp ({what}). {where}"


def _worker_lost(error: BaseException) -> bool:
    return not _ENDED.isdisjoint(kind.__name__ for kind in type(error).__mro__)
