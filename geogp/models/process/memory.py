"""Checks, before a computation starts, that a fit or a joint distribution fits into memory."""

import torch

from geogp.errors import RequestError
from geogp.models.numerics.devices import CHUNK, CHUNK_ARRAYS, WORD, available_bytes
from geogp.models.process.architecture import Architecture
from geogp.models.process.placement import MAX_CANDIDATES

PARAMETER_BYTES = 4
"""Bytes of a parameter in float32, the smaller dtype."""

SQUARE_ARRAYS = 16
"""Number of r by r arrays: posterior, gradient, moments, stored epochs, factorisations."""

ROW_WORDS = 40
"""Numbers stored for each row, copies included: inputs, targets, order and features of places."""

HELD_BYTES = 2**29
"""Approximate bytes of the joint sums or draws that are computed in one pass over the features."""

TILE_WORDS = 280
"""Numbers per tile with a tile process, for its earlier tiles, for columns to solve, and for the
error far from all rows."""

LOW_RANK_ARRAYS = 1
"""Number of tiles by r arrays with a tile process."""

BLOCK_ARRAYS = 10
"""Number of copies of the covariances of the patches that a thread has at once."""


def fit_bytes(sizes: Architecture, n: int, batch: int) -> int:
    """Return an upper estimate of the bytes of a fit to n rows; a step uses `batch` rows."""
    chunk = min(max(batch, 1), n, CHUNK)
    # Prediction uses whole chunks whatever the batch.
    features = max(chunk * CHUNK_ARRAYS, min(n, CHUNK) * 4) * sizes.widest * WORD
    pivots = min(n, MAX_CANDIDATES) * sizes.r * WORD
    squares = SQUARE_ARRAYS * max(1, sizes.classes) * sizes.r**2 * WORD
    return features + pivots + squares + ROW_WORDS * n * WORD


def check_model(sizes: Architecture) -> None:
    """Refuse a model whose parameters do not fit into memory; see `refuse_above`."""
    squares = max(1, sizes.classes) * sizes.r**2 + max(sizes.blocks, 1) * sizes.h**2
    needed = PARAMETER_BYTES * squares
    what = f"a model of rank {sizes.r:,} and width {sizes.h:,}"
    refuse_above(needed, what, "Choose a smaller r or h.")


def level_bytes(sizes: Architecture, tiles: int, rows: int, columns: int, block: int = 0) -> int:
    """Return an upper estimate of the bytes of a `JointLevel` with `columns` sums or draws.

    `block` is the number of covariances of a tile process in memory at once, or 0.
    """
    features = min(max(tiles, rows), CHUNK) * 8 * sizes.widest
    per_tile = TILE_WORDS + LOW_RANK_ARRAYS * sizes.r
    process = per_tile * tiles + BLOCK_ARRAYS * block if block else 0
    # Each column of a group has two numbers per tile and one per row; a few columns in use have
    # more.
    numbers = 2 * tiles + rows
    sums = min(columns * numbers, HELD_BYTES // WORD) + min(columns, 32) * 4 * numbers
    square = SQUARE_ARRAYS * sizes.r**2
    return WORD * (features + process + sums + square + ROW_WORDS * (rows + tiles))


def check_level(sizes: Architecture, tiles: int, rows: int, columns: int, block: int = 0) -> None:
    """Refuse a joint distribution that does not fit into memory; see `refuse_above`."""
    needed = level_bytes(sizes, tiles, rows, columns, block)
    what = f"the joint level of {tiles:,} tiles"
    refuse_above(needed, what, "Map the region with a lower --zoom.")


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
