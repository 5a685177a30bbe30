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
"""Number of float64 arrays in memory at once with the size of a chunk's features: covariances,
features, gradients of both, values that the kernel stores for gradients, and copies of the solver.
The largest observed number is 19, for kernels of two layers.
"""

SQUARE_ARRAYS = 16
"""Number of r by r arrays: the posterior and its gradient, two moments of the optimiser, copies of
the posterior from the best epoch and the last epoch, and factorisations.
"""

ROW_WORDS = 40
"""Numbers per row: inputs, targets, order, one or two copies of these, and features of places."""


def fit_bytes(sizes: Architecture, n: int, batch: int) -> int:
    """Return an upper estimate of the memory, in bytes, of a fit to n rows, without the program.

    `batch` is the number of rows in a step (`Step.rows`); the features of at most `CHUNK` rows are
    in memory at once.
    """
    chunk = min(max(batch, 1), n, CHUNK)
    # Prediction uses whole chunks whatever the batch.
    width = max(sizes.r, 4 * sizes.h * max(sizes.blocks, 1))
    features = max(chunk * CHUNK_ARRAYS, min(n, CHUNK) * 4) * width * WORD
    pivots = min(n, MAX_CANDIDATES) * sizes.r * WORD
    return features + pivots + SQUARE_ARRAYS * sizes.r**2 * WORD + ROW_WORDS * n * WORD


def check_model(sizes: Architecture) -> None:
    """Refuse a model if its parameters do not fit into memory.

    Raises RequestError if the parameters need more memory than is free; the message has both
    numbers.
    """
    needed = PARAMETER_BYTES * (sizes.r**2 + max(sizes.blocks, 1) * sizes.h**2)
    free = available_bytes(torch.device("cpu"))
    if needed > free:
        raise RequestError(
            f"a model of rank {sizes.r:,} and width {sizes.h:,} needs {needed / 1e9:,.1f} GB of "
            f"memory or more, but only {free / 1e9:.1f} GB are free. Choose a smaller r or h."
        )


HELD_BYTES = 2**29
"""Approximate bytes of the joint sums or draws that are computed in one pass over the features."""

TILE_WORDS = 300
"""Numbers per tile, in a joint distribution with a tile process: the indices and weights of 64 rows
and 24 tiles (twice during construction), and the arrays of the solver.
"""

BLOCK_ARRAYS = 12
"""Number of copies in memory of the covariances in the blocks of `TILES_AT_ONCE` tiles.

At most 10 were observed, most of them in the kernel.
"""


def level_bytes(sizes: Architecture, tiles: int, rows: int, columns: int, block: int = 0) -> int:
    """Return an upper estimate of the memory, in bytes, of a `JointLevel`.

    `columns` is the number of requested sums or draws. `block` is the number of covariances of a
    tile process in memory at once (0 without a tile process).
    """
    width = max(sizes.r, 4 * sizes.h * max(sizes.blocks, 1))
    features = min(max(tiles, rows), CHUNK) * 8 * width
    process = TILE_WORDS * tiles + BLOCK_ARRAYS * block if block else 0
    # Each column of a group has two numbers per tile and one per row; a few columns in use have
    # more.
    numbers = 2 * tiles + rows
    held = min(columns * numbers, HELD_BYTES // WORD) + min(columns, 32) * 4 * numbers
    square = SQUARE_ARRAYS * sizes.r**2
    return WORD * (features + process + held + square + ROW_WORDS * (rows + tiles))


def check_level(sizes: Architecture, tiles: int, rows: int, columns: int, block: int = 0) -> None:
    """Refuse a joint distribution that does not fit into memory; see `level_bytes`.

    Raises RequestError if the distribution needs more memory than is free; the message has both
    numbers.
    """
    needed = level_bytes(sizes, tiles, rows, columns, block)
    free = available_bytes(torch.device("cpu"))
    if needed > free:
        raise RequestError(
            f"the joint level of {tiles:,} tiles needs about {needed / 1e9:.1f} GB of memory, but "
            f"only {free / 1e9:.1f} GB are free. Map the region with a lower --zoom."
        )


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
    """Refuse a fit that does not fit into memory.

    Raises RequestError if the fit needs more memory than is free; the message has both numbers.
    """
    needed, free = fit_bytes(sizes, n, batch), available_bytes(device)
    if needed > free:
        raise RequestError(
            f"a fit of rank {sizes.r} to {n:,} rows needs about {needed / 1e9:.1f} GB on {device}, "
            f"but only {free / 1e9:.1f} GB are free. Choose a smaller rank (another --preset), or "
            "fewer quarters, and add --fresh."
        )
