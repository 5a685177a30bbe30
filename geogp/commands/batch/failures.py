"""What kind of failure ended a run, whether it may pass, and the words for it."""

import sys

from geogp.commands.fault_logs import one_line, write_fault_log
from geogp.errors import GeogpError, NetworkError, OutputError, RequestError

PASSING = frozenset({"worker", "network"})
"""Kinds of failures that may pass; the others are request, output, data and other."""

_ENDED = {"KilledWorker", "CommClosedError", "FutureCancelledError", "CancelledError"}
"""Names of Dask's errors for a worker that is gone, and of that for a run taken back."""

_KINDS = (
    (NetworkError, "network"),
    (RequestError, "request"),
    (OutputError, "output"),
    (GeogpError, "data"),
)


def kind_of(error: BaseException) -> str:
    """Return the kind of a failure."""
    if _worker_lost(error):
        return "worker"
    if isinstance(error, ConnectionError | TimeoutError):
        return "network"
    return next((name for kind, name in _KINDS if isinstance(error, kind)), "other")


def told_of(error: BaseException) -> str:
    """Return the words for a failure; the log of one that nobody foresaw is written."""
    if isinstance(error, GeogpError):
        return str(error)
    if _worker_lost(error):
        return "the worker ended before the run did: killed, or above its memory limit."
    log = write_fault_log(error, sys.argv)
    where = "" if log is None else f" The log of it is {log}"
    return f"a fault of geogp ({one_line(error, sys.argv)}).{where}"


def _worker_lost(error: BaseException) -> bool:
    return not _ENDED.isdisjoint(kind.__name__ for kind in type(error).__mro__)
