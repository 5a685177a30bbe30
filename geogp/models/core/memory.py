"""Checks, before a computation starts, that a fit or a joint distribution fits into memory."""

import math
import os
from pathlib import Path

import torch

from geogp.errors import RequestError
from geogp.models.bases.placement import MAX_CANDIDATES
from geogp.models.core.architecture import Architecture
from geogp.models.training.steps import CHUNK

WORD = 8

PARAMETER_BYTES = 4
"""Bytes of a parameter in float32, the smaller dtype."""

CHUNK_ARRAYS = 24
"""Number of float64 arrays with the size of a chunk's features; at most 19 were observed."""

SQUARE_ARRAYS = 16
"""Number of r by r arrays: posterior, gradient, moments, stored epochs, factorisations."""

ROW_WORDS = 40
"""Numbers stored for each row, copies included: inputs, targets, order and features of places."""


def fit_bytes(sizes: Architecture, n: int, batch: int) -> int:
    """Return an upper estimate of the bytes of a fit to n rows; a step uses `batch` rows."""
    chunk = min(max(batch, 1), n, CHUNK)
    # Prediction uses whole chunks whatever the batch.
    width = max(sizes.r, 4 * sizes.h * max(sizes.blocks, 1))
    features = max(chunk * CHUNK_ARRAYS, min(n, CHUNK) * 4) * width * WORD
    pivots = min(n, MAX_CANDIDATES) * sizes.r * WORD
    squares = SQUARE_ARRAYS * max(1, sizes.classes) * sizes.r**2 * WORD
    return features + pivots + squares + ROW_WORDS * n * WORD


def check_model(sizes: Architecture) -> None:
    """Refuse a model whose parameters do not fit into memory; see `refuse_above`."""
    squares = max(1, sizes.classes) * sizes.r**2 + max(sizes.blocks, 1) * sizes.h**2
    needed = PARAMETER_BYTES * squares
    what = f"a model of rank {sizes.r:,} and width {sizes.h:,}"
    refuse_above(needed, what, "Choose a smaller r or h.")


HELD_BYTES = 2**29
"""Approximate bytes of the joint sums or draws that are computed in one pass over the features."""

TILE_WORDS = 300
"""Numbers per tile with a tile process, for its 24 earlier tiles and for columns to solve."""

LOW_RANK_ARRAYS = 2
"""Number of tiles by r arrays with a tile process."""

BLOCK_ARRAYS = 16
"""Number of copies of the covariances of `TILES_AT_ONCE` tiles; at most 13 were observed."""


def level_bytes(sizes: Architecture, tiles: int, rows: int, columns: int, block: int = 0) -> int:
    """Return an upper estimate of the bytes of a `JointLevel` with `columns` sums or draws.

    `block` is the number of covariances of a tile process in memory at once, or 0.
    """
    width = max(sizes.r, 4 * sizes.h * max(sizes.blocks, 1))
    features = min(max(tiles, rows), CHUNK) * 8 * width
    per_tile = TILE_WORDS + LOW_RANK_ARRAYS * sizes.r
    process = per_tile * tiles + BLOCK_ARRAYS * block if block else 0
    # Each column of a group has two numbers per tile and one per row; a few columns in use have
    # more.
    numbers = 2 * tiles + rows
    held = min(columns * numbers, HELD_BYTES // WORD) + min(columns, 32) * 4 * numbers
    square = SQUARE_ARRAYS * sizes.r**2
    return WORD * (features + process + held + square + ROW_WORDS * (rows + tiles))


def check_level(sizes: Architecture, tiles: int, rows: int, columns: int, block: int = 0) -> None:
    """Refuse a joint distribution that does not fit into memory; see `refuse_above`."""
    needed = level_bytes(sizes, tiles, rows, columns, block)
    what = f"the joint level of {tiles:,} tiles"
    refuse_above(needed, what, "Map the region with a lower --zoom.")


def available_bytes(device: torch.device) -> float:
    """Return the free memory of a device in bytes; on the CPU, at most the limit of the process."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_machine_bytes(), _limit_bytes())


def _limit_bytes() -> float:
    """Return the memory that the process may still use under its limit (``ulimit -v``)."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        taken = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        if limit == resource.RLIM_INFINITY:
            return math.inf
        return max(0, limit - taken * resource.getpagesize())
    except (ImportError, OSError, ValueError):
        return math.inf


def _machine_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return 1024 * int(found["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(sizes: Architecture, n: int, batch: int, device: torch.device) -> None:
    """Refuse a fit that does not fit into memory; see `refuse_above`."""
    what = f"a fit of rank {sizes.r} to {n:,} rows"
    cure = "Choose a smaller rank (another --preset), or fewer quarters, and add --fresh."
    refuse_above(fit_bytes(sizes, n, batch), what, cure, device)


def refuse_above(needed: float, what: str, cure: str, device: torch.device | None = None) -> None:
    """Raise RequestError if `what` needs more bytes than `device` (default: CPU) has free."""
    device = device or torch.device("cpu")
    free = available_bytes(device)
    if needed > free:
        raise RequestError(
            f"{what} needs about {needed / 1e9:,.1f} GB of memory on {device}, but only "
            f"{free / 1e9:.1f} GB are free. {cure}"
        )
