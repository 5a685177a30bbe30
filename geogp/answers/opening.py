"""Opens the run of a request: with its record alone, or with its data read again."""

from typing import Any

from geogp.answers.requests import RunRequest
from geogp.choices import CLASS, COUNT
from geogp.errors import RequestError
from geogp.models.names import find_model
from geogp.runs.progress import ProgressListener
from geogp.runs.reopen import Reopened, reopen
from geogp.runs.run_places import RunPlaces
from geogp.runs.stored_run import StoredRun


def stored_run(request: RunRequest, listener: ProgressListener | None) -> StoredRun:
    """Return the run of a request; raise the errors of `StoredRun.read`."""
    places = RunPlaces(request.source, request.boundaries)
    return StoredRun.read(request.run, request.device, places, listener)


def with_data(
    run: StoredRun,
    *,
    tests: int | None = None,
    devices: int | None = None,
    at: str | None = None,
    counts: bool = False,
) -> Reopened:
    """Read the run's data again, and return the run with these data; see `Run.reopen`."""
    kind = find_model(run.record.model).kind
    if kind == CLASS or (kind == COUNT and not counts):
        what = "the number of tests" if kind == COUNT else f"a class ({run.record.target})"
        raise RequestError(
            f"the target of {run.path} is {what}, which has no level. Run geogp map with another "
            "--target."
        )
    return reopen(run, tests=tests, devices=devices, at=at)


def sample_of(request: RunRequest) -> dict[str, Any]:
    """Return the tests, the devices and the quarter of a request, None if it has no such field."""
    return {name: getattr(request, name, None) for name in ("tests", "devices", "at")}
