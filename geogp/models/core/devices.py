"""Chooses the device to compute on."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import RequestError


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device; the host does not wait for the device."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def pick_device(name: str) -> torch.device:
    """Return the device with a name; ``auto`` is the GPU if there is one.

    Raises RequestError if ``cuda`` is not available, or the name is unknown.
    """
    if name not in {"auto", "cpu", "cuda"}:
        raise RequestError(f"expected the device auto, cpu or cuda, found {name!r}.")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise RequestError("no CUDA device is available; use --device cpu or auto.")
    return torch.device("cuda" if available and name != "cpu" else "cpu")
