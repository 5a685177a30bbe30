"""Tensors and their description in one safetensors file; nothing is ever unpickled."""

import json
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import save
from torch import Tensor

from geogp.errors import DataError
from geogp.files import write_bytes
from geogp.models.catalogue import CATALOGUE, build
from geogp.models.lowrank import Architecture, LowRankGP

FORMAT = "geogp-model-1"
"""Version of the layout; a file of another one is refused."""


def write_tensors(path: Path, tensors: dict[str, Tensor], described: dict[str, Any]) -> None:
    """Write tensors with a description that JSON can hold.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    on_cpu = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_bytes(path, save(on_cpu, {"description": json.dumps(described)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_tensors` wrote.

    Raises
    ------
    DataError
        The file is absent, cut short, or holds no description.
    """
    try:
        with safetensors.safe_open(path, "pt") as opened:
            described = dict(json.loads((opened.metadata() or {})["description"]))
            return {name: opened.get_tensor(name) for name in opened.keys()}, described  # noqa: SIM118
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a whole file of tensors written by geogp ({error})."
        ) from error


def save_model(model: LowRankGP, path: Path, context: dict[str, Any] | None = None) -> None:
    """Save a model with its catalogue name, sizes and whatever `context` JSON can hold.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    described = {
        "format": FORMAT,
        "model": model.name,
        "architecture": model.architecture.as_dict(),
        "context": context or {},
    }
    write_tensors(path, model.state_dict(), described)


def load_model(path: Path) -> tuple[LowRankGP, dict[str, Any]]:
    """Load a model and its context from a file of `save_model`.

    Raises
    ------
    DataError
        The file is damaged, of another version, of an unknown model, or its tensors are not
        those of its model.
    """
    tensors, described = read_tensors(path)
    if described.get("format") != FORMAT or described.get("model") not in CATALOGUE:
        raise DataError(
            f"expected a model of format {FORMAT} in {path}, found format "
            f"{described.get('format')!r}, model {described.get('model')!r}."
        )
    try:
        model = build(described["model"], Architecture(**described["architecture"]), None)
        model.load_state_dict(tensors)
        return model, described["context"]
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"the tensors in {path} do not fit its model: {error}.") from error
