"""How a batch is carried out, as a user asks for it."""

from dataclasses import dataclass
from pathlib import Path

from geogp.choices import check_settings, setting
from geogp.errors import RequestError

MOST_WORKERS, MOST_RETRIES, MOST_MEMORY_GB = 1_000, 1_000, 1_000_000


@dataclass(frozen=True)
class Execution:
    """How a batch is carried out; nothing of it changes a result.

    `scratch` is a folder on the workers' machines; it becomes absolute.

    Raises
    ------
    RequestError
        A value is out of range, or is not for a scheduler elsewhere.
    """

    workers: int | None = setting(
        "Processes on this machine. Default: one, or one a GPU.", least=1, most=MOST_WORKERS
    )
    scheduler: str | None = setting("A Dask scheduler whose workers are taken: tcp://HOST:8786.")
    memory_gb: float | None = setting(
        "GB that a worker may use. Default: an equal share.",
        noun="a memory limit",
        positive=True,
        most=MOST_MEMORY_GB,
        unit="GB",
        option="--memory",
    )
    retries: int = setting(
        "Tries after a failed network or a killed worker.", default=1, least=0, most=MOST_RETRIES
    )
    scratch: Path | None = setting("Workers' folder of unfinished runs. Default: the cache.")
    fresh: bool = setting("Start over, whatever the place holds.", default=False)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.scratch is not None:
            object.__setattr__(self, "scratch", self.scratch.expanduser().resolve())
        if self.scheduler is not None and (self.workers or self.memory_gb):
            raise RequestError(
                f"the workers of {self.scheduler} are as they were started; leave --workers and "
                "--memory out."
            )
