"""How a batch is carried out, as a user asks for it."""

from dataclasses import dataclass
from pathlib import Path

from geogp.choices import above_zero, whole_number
from geogp.errors import RequestError

MOST_WORKERS, MOST_RETRIES, MOST_MEMORY_GB = 1_000, 1_000, 1_000_000


@dataclass(frozen=True)
class Execution:
    """How a batch is carried out; nothing of it changes a result.

    Attributes
    ----------
    workers
        Processes on this machine; None takes one for each GPU, or one.
    scheduler
        Address of a Dask scheduler whose workers are taken instead.
    memory_gb
        Limit of each worker's memory, above which it is ended; None shares what there is.
    retries
        How often a run is tried again after a failure that may pass.
    scratch
        Folder of unfinished runs on the workers' machines.
    fresh
        Start over, whatever there is.

    Raises
    ------
    RequestError
        A value is out of range, or is not for a scheduler elsewhere.
    """

    workers: int | None = None
    scheduler: str | None = None
    memory_gb: float | None = None
    retries: int = 1
    scratch: Path | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole_number("workers", self.workers, 1, MOST_WORKERS)
        whole_number("retries", self.retries, 0, MOST_RETRIES)
        if self.memory_gb is not None:
            above_zero("a memory limit", self.memory_gb, MOST_MEMORY_GB, "GB")
        if self.scheduler is not None and (self.workers or self.memory_gb):
            raise RequestError(
                f"the workers of {self.scheduler} are as they were started; leave --workers and "
                "--memory out."
            )
