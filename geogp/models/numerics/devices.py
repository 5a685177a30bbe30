"""The device to compute on: its choice, its free memory, and transfers to it."""

import math
import os
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import RequestError

WORD = 8
"""Bytes of a number in double precision."""

CHUNK = 8192
"""Number of rows with features in memory at once; memory grows with CHUNK times r, not with n."""

CHUNK_ARRAYS = 24
"""Number of float64 arrays with the size of a chunk's features; at most 19 were observed."""

CHUNK_SHARE = 0.25
"""Share of the free memory of a GPU that a chunk may use."""


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device; the host does not wait for the device."""
    tensor = torch.as_tensor(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def pick_device(name: str) -> torch.device:
    """Return the device with a name; ``auto`` is the GPU if there is one.

    Raises RequestError if ``cuda`` is not available, or the name is unknown.
    """
    if not isinstance(name, str) or name not in {"auto", "cpu", "cuda"}:
        raise RequestError(f"expected the device auto, cpu or cuda, found {name!r}.")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise RequestError("no CUDA device is available; use --device cpu or auto.")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


def rows_at_once(usual: int, words: int, device: torch.device) -> int:
    """Return the number of rows in a chunk; each row needs about `words` numbers of 8 bytes.

    On a CPU, this is `usual`, which suits the cache. On a GPU, larger chunks are faster.
    """
    if device.type == "cpu":
        return usual
    return max(usual, int(CHUNK_SHARE * available_bytes(device)) // (WORD * words))


def available_bytes(device: torch.device) -> float:
    """Return the free memory of a device in bytes; on the CPU, at most the limit of the process."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return min(_machine_bytes(), _limit_bytes())


def _limit_bytes() -> float:
    """Return the memory that the process may still use under its limit (``ulimit -v``)."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        if limit == resource.RLIM_INFINITY:
            return math.inf
        return max(0, limit - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError):
        return math.inf


def _machine_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return 1024 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
