"""Data-parallel steps: several processes work on one model.

Every process has a copy of the model and of all rows, and works on a share of each batch. The sum
of the gradients, weighted by the numbers of rows in the shares, is the same in all processes; so
every process makes the same step. Nothing in a message is pickled.
"""

import json
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, distributed

from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.steps import Batch, SteppedFit
from geogp.models.numerics.precision import current_precision
from geogp.models.numerics.teams import Team
from geogp.models.options import Weights
from geogp.models.process.data import FIELDS, Data
from geogp.models.process.process import Process

_TEXT = "text"
"""Name of the tensor with the JSON of a message."""

Message = tuple[dict[str, Tensor], dict[str, Any]]
"""A message: tensors by name, and values that JSON can represent."""


def tell(team: Team, message: Message | None) -> Message:
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


def shared_step(fit: SteppedFit[Any], batch: Batch, weights: Weights, team: Team) -> Tensor:
    """Add the gradient of a batch's loss per datum to the parameters; return the loss.

    Loss and gradient are means over the processes, weighted by their numbers of rows. Raises
    RequestError if the objective needs all rows at once.
    """
    if team.size == 1:
        return fit.step(batch, weights)
    share = fit.split(batch, team.size)[team.rank]
    weight = share.n / batch.n
    if len(batch.numbers) < team.size:  # fewer inputs than processes: each process uses all inputs
        share, weight = batch, 1 / team.size
    loss = fit.step(share, weights) * weight
    _add_gradients(team, fit.process, weight)
    return team.total(loss)


def announcement(model: Process, train: Data, validation: Data, settings: FitSettings) -> Message:
    """Return all that the other processes need to fit the same model to the same rows."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    rows = {
        # Copied, because tests and devices may be the same array, which cannot be sent twice.
        f"{name}.{field}": torch.tensor(getattr(data, field))
        for name, data in (("train", train), ("validation", validation))
        for field in FIELDS
    }
    described = {
        "name": model.name,
        "architecture": asdict(model.architecture),
        "settings": asdict(settings),
        "device": model.device.type,
        "precision": current_precision(),
    }
    return {**state, **rows}, described


def _add_gradients(team: Team, model: Process, weight: float) -> None:
    """Replace each gradient by the weighted sum over the processes, in one message."""
    learned = [value for value in model.parameters() if value.requires_grad]
    there = torch.tensor([value.grad is not None for value in learned]).to(learned[0])
    gradients = [
        torch.zeros_like(value) if value.grad is None else value.grad * weight for value in learned
    ]
    message = team.total(torch.cat([there, *(gradient.reshape(-1) for gradient in gradients)]))
    used, *sums = message.split([len(learned), *(value.numel() for value in learned)])
    for value, gradient, anywhere in zip(learned, sums, used.tolist(), strict=True):
        # If no process has a gradient, the gradient must stay None for the optimiser, not become 0.
        value.grad = gradient.reshape(value.shape) if anywhere else None


def under(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with `start`, and remove `start` from the names."""
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
