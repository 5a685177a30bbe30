"""Chooses the device to compute on."""

import torch

from geogp.errors import RequestError


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
