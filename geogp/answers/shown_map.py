"""The map of a request with its answers: the finished run, or the run that is made now."""

from geogp.records.map_settings import MapSettings
from geogp.runs.finished_run import RunResult, finished_run
from geogp.runs.progress import ProgressListener


def make_shown_map(
    settings: MapSettings,
    listener: ProgressListener | None = None,
    *,
    call: str | None = None,
    wait: bool = False,
) -> RunResult:
    """Return the run of a request; see `finished_run` and `run_shown_map`."""
    done = finished_run(settings, listener, wait=wait)
    if done is not None:
        return done
    # Imports the models and all that reads and draws maps, which a finished run does not need.
    from geogp.answers.pages import run_shown_map  # noqa: PLC0415

    return run_shown_map(settings, listener, call=call, wait=wait)
