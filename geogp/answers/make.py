"""Makes answers about a finished run: the commands `areas`, `change`, `exceedance` and `next`."""

from time import monotonic

from geogp.answers.answer import Answer, Clock
from geogp.answers.areas import answer_areas
from geogp.answers.change import answer_change
from geogp.answers.exceedance import answer_exceedance
from geogp.answers.next import answer_next, check_next
from geogp.answers.opening import sample_of, stored_run, with_data
from geogp.answers.pages import show_answers
from geogp.answers.providers import answer_providers
from geogp.answers.requests import (
    AreasRequest,
    ChangeRequest,
    ExceedanceRequest,
    NextRequest,
    RunRequest,
)
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.progress import ProgressListener
from geogp.runs.reopen import Reopened
from geogp.runs.run_folder import locked_run


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
        opened = with_data(stored_run(request, listener), **sample_of(request))
        answers = _answers(opened, request, lambda: {"seconds": round(monotonic() - started, 1)})
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
    raise AssertionError(f"no answer to {request}")
