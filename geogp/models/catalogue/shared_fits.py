"""Fits that the processes of torchrun share.

Only process 0, the leader, reads, reports and writes. The other processes join the fits that the
leader announces; see `fitting/parallel.py`.
"""

import datetime as dt
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, distributed

from geogp.errors import GeogpError, RequestError
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.parallel import tell, under
from geogp.models.numerics.precision import precision
from geogp.models.numerics.teams import current_team
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import FIELDS, Data
from geogp.models.process.process import Process

PATIENCE = dt.timedelta(days=7)
"""Longest time that a process waits for the other processes, which may read data or draw maps."""

_END: dict[str, Any] = {"end": True}
"""Message of the leader that there are no more fits."""

_LEFT_ALONE = ("Connection closed by peer", "Connection reset by peer")
"""Parts of the error messages of gloo when another process has ended."""


@contextmanager
def team() -> Iterator[bool]:
    """Join the processes that torchrun started; yield whether this process leads.

    The leader runs the body of the ``with`` block, and all processes work on each `fit` in it. The
    other processes skip the body; they only work on the fits until the leader has finished::

        with team() as leads:
            if leads:
                fit(model, train, validation, settings)

    Without torchrun, the only process is the leader. Raises RequestError if a machine with GPUs has
    more processes than GPUs.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield True
        return
    backend = "gloo"
    if torch.cuda.is_available():
        number, processes = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        if processes > torch.cuda.device_count():
            raise RequestError(
                f"{processes} processes share {torch.cuda.device_count()} GPUs; start at most one "
                "process for each GPU (torchrun --nproc-per-node)."
            )
        torch.cuda.set_device(number)
        backend = "cpu:gloo,cuda:nccl"
    # torch.distributed.nn stores the process group that exists when the module is first imported,
    # in default arguments. If an optimiser imported it later, Python would abort at exit if a
    # thread of the group still waited for Python.
    from torch.distributed import nn  # noqa: F401, PLC0415

    distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        if distributed.get_rank():
            with suppress(KeyboardInterrupt), _ending_quietly():
                _serve()
            yield False
            return
        try:
            yield True
        except SystemExit as stop:
            if stop.code:
                raise  # torchrun ends the other processes, which may be fitting
            tell(current_team(), ({}, _END))
            raise
        tell(current_team(), ({}, _END))
    finally:
        distributed.destroy_process_group()


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """End without a message if another process has ended, because that one reports the reason."""
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in _LEFT_ALONE):
            raise
        raise SystemExit(1) from error


def _serve() -> None:
    """Do a share of each fit that the leader announces, until the leader has finished."""
    while True:
        tensors, described = tell(current_team(), None)
        if described == _END:
            return
        with precision(described["precision"]), suppress(GeogpError):
            # The leader has the same error and reports it.
            fit(*_announced(tensors, described))


def _announced(
    tensors: dict[str, Tensor], described: dict[str, Any]
) -> tuple[Process, Data, Data, FitSettings]:
    """Return the model, the rows and the settings of a fit that the leader announced."""
    model = build(described["name"], Architecture(**described["architecture"]), None)
    model.load_state_dict(under(tensors, "model."))
    train, validation = (
        Data(*(tensors[f"{name}.{field}"].numpy() for field in FIELDS))
        for name in ("train", "validation")
    )
    settings = described["settings"]
    settings = FitSettings(**{**settings, "weights": Weights(**settings["weights"])})
    return model.to(described["device"]), train, validation, settings
