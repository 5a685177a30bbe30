"""What kind of failure ended a run, whether it may pass, and the words for it."""

import sys

from geogp.commands.batch.cluster import worker_lost
from geogp.commands.fault_logs import one_line, write_fault_log
from geogp.errors import DataError, GeogpError, NetworkError, OutputError, RequestError

WORKER, NETWORK, DATA, REQUEST, OUTPUT, OTHER = (
    "worker",
    "network",
    "data",
    "request",
    "output",
    "other",
)
"""Kinds of failures; the first two may pass."""

PASSING = frozenset({WORKER, NETWORK})

_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (NetworkError, NETWORK),
    (RequestError, REQUEST),
    (OutputError, OUTPUT),
    (DataError, DATA),
)


def kind_of(error: BaseException) -> str:
    """Return the kind of a failure."""
    for kind, name in _KINDS:
        if isinstance(error, kind):
            return name
    if worker_lost(error):
        return WORKER
    passing = isinstance(error, ConnectionError | TimeoutError)
    return NETWORK if passing else DATA if isinstance(error, GeogpError) else OTHER


def told_of(error: BaseException) -> str:
    """Return the words for a failure; the log of one that nobody foresaw is written."""
    if isinstance(error, GeogpError):
        return str(error)
    if worker_lost(error):
        return "the worker ended before the run did: killed, or above its memory limit."
    log = write_fault_log(error, sys.argv)
    where = "" if log is None else f" The log of it is {log}"
    return f"a fault of geogp ({one_line(error, sys.argv)}).{where}"
