"""Data-parallel fits: several processes of torchrun work on one model.

Every process has a copy of the model and of all rows, and works on a share of each batch. The sum
of the gradients, weighted by the numbers of rows in the shares, is the same in all processes; so
every process makes the same step. Only process 0, the leader, reads, reports and writes. The other
processes join the fits that the leader announces. Nothing in a message is pickled.
"""

import datetime as dt
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, distributed

from geogp.errors import GeogpError, RequestError
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.steps import Part, Step
from geogp.models.numerics.precision import current_precision, precision
from geogp.models.numerics.teams import Team, current_team
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.lowrank import LowRankGP, Rows
from geogp.models.process.training_data import FIELDS, Data

PATIENCE = dt.timedelta(days=7)
"""Longest time that a process waits for the other processes, which may read data or draw maps."""

_END: dict[str, Any] = {"end": True}

_TEXT = "text"
"""Name of the tensor with the JSON of a message."""

_LEFT_ALONE = ("Connection closed by peer", "Connection reset by peer")
"""Parts of the error messages of gloo when another process has ended."""

_Message = tuple[dict[str, Tensor], dict[str, Any]]
"""A message: tensors by name, and values that JSON can represent."""


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
        local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        if here > torch.cuda.device_count():
            raise RequestError(
                f"{here} processes share {torch.cuda.device_count()} GPUs; start at most one "
                "process for each GPU (torchrun --nproc-per-node)."
            )
        torch.cuda.set_device(local)
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


def tell(team: Team, message: _Message | None) -> _Message:
    """Send the leader's message to every process, and return it; other processes pass None."""
    if team.size == 1:
        assert message is not None, "the leader must send a message"
        return message
    content = b""
    if message is not None:
        tensors = {k: v.detach().cpu().contiguous() for k, v in message[0].items()}
        text = torch.frombuffer(bytearray(json.dumps(message[1]).encode()), dtype=torch.uint8)
        content = save({**tensors, _TEXT: text})
    length = torch.tensor([len(content)])
    distributed.broadcast(length, 0)
    body = torch.frombuffer(bytearray(content or bytes(int(length))), dtype=torch.uint8)
    distributed.broadcast(body, 0)
    received = load(body.numpy().tobytes())
    described: dict[str, Any] = json.loads(received.pop(_TEXT).numpy().tobytes())
    return received, described


def learn(
    step: Step[Any], model: LowRankGP, rows: Rows, part: Part, *, weights: Weights, team: Team
) -> Tensor:
    """Add the gradient of a part's loss per datum to the parameters; return the loss.

    Loss and gradient are means over the processes, weighted by their numbers of rows. Raises
    RequestError if the objective needs all rows at once.
    """
    if team.size == 1:
        return step.learn(model, rows, part, weights)
    share = step.split(model, rows, part, team.size)[team.rank]
    weight = share.n / part.n
    if len(part.numbers) < team.size:  # fewer inputs than processes: each process uses all inputs
        share, weight = part, 1 / team.size
    loss = step.learn(model, rows, share, weights) * weight
    _add_gradients(team, model, weight)
    return team.total(loss)


def announcement(
    model: LowRankGP, train: Data, validation: Data, settings: FitSettings
) -> _Message:
    """Return all that the other processes need to fit the same model to the same rows."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    rows = {
        # Copied, because tests and devices may be the same array, which cannot be sent twice.
        f"{name}.{part}": torch.tensor(getattr(data, part))
        for name, data in (("train", train), ("validation", validation))
        for part in FIELDS
    }
    described = {
        "name": model.name,
        "architecture": asdict(model.architecture),
        "settings": asdict(settings),
        "device": model.device.type,
        "precision": current_precision(),
    }
    return {**state, **rows}, described


def _serve() -> None:
    """Do a share of each fit that the leader announces, until the leader has finished."""
    from geogp.models.fitting.training_loop import fit  # noqa: PLC0415

    while True:
        tensors, described = tell(current_team(), None)
        if described == _END:
            return
        with precision(described["precision"]), suppress(GeogpError):
            # The leader has the same error and reports it.
            fit(*_announced(tensors, described))


def _announced(
    tensors: dict[str, Tensor], described: dict[str, Any]
) -> tuple[LowRankGP, Data, Data, FitSettings]:
    """Return the model, the rows and the settings of a fit that the leader announced."""
    from geogp.models.catalogue.build_model import build  # noqa: PLC0415 - imports this module

    model = build(described["name"], Architecture(**described["architecture"]), None)
    model.load_state_dict(under(tensors, "model."))
    train, validation = (
        Data(*(tensors[f"{name}.{part}"].numpy() for part in FIELDS))
        for name in ("train", "validation")
    )
    settings = described["settings"]
    settings = FitSettings(**{**settings, "weights": Weights(**settings["weights"])})
    return model.to(described["device"]), train, validation, settings


def _add_gradients(team: Team, model: LowRankGP, weight: float) -> None:
    """Replace each gradient by the weighted sum over the processes, in one message."""
    learned = [value for value in model.parameters() if value.requires_grad]
    there = torch.tensor([value.grad is not None for value in learned]).to(learned[0])
    parts = [
        torch.zeros_like(value) if value.grad is None else value.grad * weight for value in learned
    ]
    message = team.total(torch.cat([there, *(part.reshape(-1) for part in parts)]))
    used, *sums = message.split([len(learned), *(value.numel() for value in learned)])
    for value, found, anywhere in zip(learned, sums, used.tolist(), strict=True):
        # If no process has a gradient, the gradient must stay None for the optimiser, not become 0.
        value.grad = found.reshape(value.shape) if anywhere else None


def under(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with `start`, and remove `start` from the names."""
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
