"""Makes answers about a finished run, and writes them into its folder and its pages."""

from time import monotonic
from typing import Any

from geogp.answers.answer import Answer, Clock
from geogp.answers.areas import answer_areas
from geogp.answers.change import answer_change
from geogp.answers.exceedance import answer_exceedance
from geogp.answers.next import answer_next, check_next
from geogp.answers.pages import show_answers
from geogp.answers.providers import answer_providers
from geogp.answers.requests import (
    AreasRequest,
    ChangeRequest,
    ExceedanceRequest,
    NextRequest,
    RunRequest,
    VerifyRequest,
)
from geogp.answers.verify import answer_verify, check_forecast
from geogp.choices import CLASS, COUNT
from geogp.errors import RequestError
from geogp.models.names import find_model
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.progress import ProgressListener
from geogp.runs.reopen import Reopened, reopen
from geogp.runs.run_folder import locked_run
from geogp.runs.run_places import RunPlaces
from geogp.runs.stored_run import StoredRun


def make_answer(request: RunRequest, listener: ProgressListener | None = None) -> Answer:
    """Return the only answer to a request; see `make_answers`."""
    (answer,) = make_answers(request, listener)
    return answer


def make_answers(
    request: RunRequest, listener: ProgressListener | None = None
) -> tuple[Answer, ...]:
    """Answer a request about a run, and write the answers into its folder and its pages.

    Raises RequestError if there is no finished run, the model predicts numbers of tests, there is
    too little memory, or another process is using the run. Raises DataError if a file is damaged or
    differs from the run's inputs. Raises the errors of the answer, and OutputError if a file cannot
    be written.
    """
    started = monotonic()
    if isinstance(request, NextRequest):
        check_next(request)
    with locked_run(request.run) as record, arithmetic(precision=record.precision):
        if isinstance(request, VerifyRequest):
            check_forecast(request, record)
        opened = with_data(stored_run(request, listener), **sample_of(request))

        def clock() -> dict[str, float | str]:
            seconds = round(monotonic() - started, 1)
            return {"seconds": seconds, **opened.inputs.ingested.credits}

        answers = _answers(opened, request, clock)
        show_answers(request.run, listener)
    return answers


def _answers(opened: Reopened, request: RunRequest, clock: Clock) -> tuple[Answer, ...]:
    match request:
        case AreasRequest(by_provider=True):
            return answer_providers(opened, request, clock)
        case AreasRequest():
            return answer_areas(opened, request, clock)
        case ChangeRequest():
            return answer_change(opened, request, clock)
        case ExceedanceRequest():
            return answer_exceedance(opened, request, clock)
        case NextRequest():
            return answer_next(opened, request, clock)
        case VerifyRequest():
            return answer_verify(opened, request, clock)
    raise AssertionError(f"no answer to {request}")


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
    target: str | None = None,
    counts: bool = False,
) -> Reopened:
    """Read the run's data again, and return the run with these data; see `Run.reopen`."""
    check_level(run, counts=counts)
    return reopen(run, tests=tests, devices=devices, at=at, target=target)


def check_level(run: StoredRun, *, counts: bool) -> None:
    """Raise RequestError if the target is a class, or a number of tests without `counts`."""
    kind = find_model(run.record.model).kind
    if kind == CLASS or (kind == COUNT and not counts):
        what = "the number of tests" if kind == COUNT else f"a class ({run.record.target})"
        raise RequestError(
            f"the target of {run.path} is {what}, which has no level. Run geogp map with another "
            "--target."
        )


def sample_of(request: RunRequest) -> dict[str, Any]:
    """Return tests, devices, quarter and target of a request, None if it has no such field."""
    return {name: getattr(request, name, None) for name in ("tests", "devices", "at", "target")}
