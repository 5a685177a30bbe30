"""Tensors and a description in one safetensors file, without pickle."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from geogp.errors import DataError
from geogp.files import write_bytes

MAX_HEADER_BYTES = 16 << 20
"""Largest header (names, shapes and description); a file with a larger header is refused."""

_DAMAGE = (
    OSError,
    safetensors.SafetensorError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
)
"""Errors that reading a damaged file can raise."""


def write_tensors(path: Path, tensors: dict[str, Tensor], described: dict[str, Any]) -> None:
    """Write tensors and a description in JSON; raise OutputError if the file cannot be written."""
    on_cpu = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(described)
    metadata = {"description": text, "sha256": _digest(on_cpu, text)}
    write_bytes(path, save(on_cpu, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `write_tensors`; raise DataError if it is missing, incomplete or changed."""
    try:
        _check_header(path)
        with safetensors.safe_open(path, "pt") as opened:
            metadata = opened.metadata() or {}
            described = dict(json.loads(metadata["description"]))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except _DAMAGE as error:
        raise DataError(
            f"{path} is not a complete file of tensors written by geogp ({error})."
        ) from error
    if "sha256" not in metadata:
        raise DataError(
            f"{path} contains no hash of its content, so it was not written by this version of "
            "geogp."
        )
    if metadata["sha256"] != _digest(tensors, metadata["description"]):
        raise DataError(f"{path} was changed after geogp wrote it; use an unchanged copy.")
    return tensors, described


def _check_header(path: Path) -> None:
    """Refuse a header longer than `MAX_HEADER_BYTES`, before reading it."""
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
    if size > MAX_HEADER_BYTES:
        raise ValueError(f"the header has {size:,} bytes; expected at most {MAX_HEADER_BYTES:,}")


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    """Return the hash of a file's content, independent of the order of its tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def with_added(
    tensors: Mapping[str, Tensor], start: Mapping[str, Tensor], groups: Iterable[tuple[str, ...]]
) -> dict[str, Tensor]:
    """Return the tensors of a file, and start values of those that earlier versions lacked.

    A group has the first letters of the names of tensors that were added together: if the file has
    none of them, all have their start values.
    """
    lacking = (group for group in groups if not any(name.startswith(group) for name in tensors))
    added = {name: start[name] for group in lacking for name in start if name.startswith(group)}
    return added | dict(tensors)
