"""Failures of runs: the kind of a failure, whether it may be temporary, and the message."""

import sys

from geogp.commands.fault_logs import one_line, write_fault_log
from geogp.errors import GeogpError, NetworkError, OutputError, RequestError

TRANSIENT = frozenset({"worker", "network"})
"""Kinds of failures that may be temporary; the others are request, output, data and other."""

_ENDED = {"KilledWorker", "CommClosedError", "FutureCancelledError", "CancelledError"}
"""Names of Dask's errors for a lost worker or a cancelled run."""

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


def failure_message(error: BaseException) -> str:
    """Return the message of a failure; log an unforeseen failure."""
    if isinstance(error, GeogpError):
        return str(error)
    if _worker_lost(error):
        return (
            "the worker process ended before the run was complete: it was killed, or exceeded the "
            "memory limit."
        )
    log = write_fault_log(error, sys.argv)
    where = "" if log is None else f" The log is {log}"
    return f"a bug in geogp ({one_line(error, sys.argv)}).{where}"


def _worker_lost(error: BaseException) -> bool:
    return not _ENDED.isdisjoint(kind.__name__ for kind in type(error).__mro__)
