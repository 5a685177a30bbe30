"""What the rows tell about the weights of the field, by blocks of rows at near places.

Given the weights w, y is Gaussian with the covariance of u + e (see `parameters.py`). The Vecchia
factor W of this covariance whitens the rows and the features: W y ~ N(W(m0 + Phi w + shift), I).
With q(w) = N(m, L L'), the evidence lower bound equals that of a linear regression on W Phi.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.field.blocks import Block, BlockRows, block_rows, place_arrays, whitened
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.rows import FieldRows
from geogp.models.field.vecchia import PLACE_ROWS, PREDICTION_ROWS, Indices
from geogp.models.numerics.devices import CHUNK, rows_at_once
from geogp.models.numerics.threads import in_threads
from geogp.models.process.posteriors import (
    Information,
    WeightedRows,
    information,
    posterior_of,
)

MIN_PIECES = 4
"""On a CPU, blocks are divided into this many pieces or more, each with its own padding. On a GPU,
padding costs less than more operations, so there is only one piece.
"""

PIECE = 64
"""Approximate number of blocks in a piece, if there are more than `MIN_PIECES`."""

BLOCKS_AT_ONCE = 128
"""Number of blocks that a thread has at once on a CPU."""

PLACES_AT_ONCE = 1024
"""Number of places, which share the features of rows, that a thread has at once on a CPU."""

BLOCK_ARRAYS = 16
"""Approximate number of copies of the covariances of blocks in memory."""


def blocks_at_once(device: torch.device) -> int:
    """Return the number of blocks at once, at most `CHUNK`, as the CPU finds the rows near them."""
    words = BLOCK_ARRAYS * (PREDICTION_ROWS + PLACE_ROWS) ** 2
    return min(CHUNK, rows_at_once(BLOCKS_AT_ONCE, words, device))


def places_at_once(device: torch.device) -> int:
    """Return the number of places or predictions that are handled together."""
    return PLACES_AT_ONCE if device.type == "cpu" else blocks_at_once(device)


def rows_at(rows: FieldRows, sites: Tensor, without: NDArray[np.bool_] | None = None) -> BlockRows:
    """Return the rows at the places with the numbers `sites` (b,), and rows near them.

    `without` (n,) marks rows that must not condition the places.
    """
    number, device = sites.cpu().numpy(), rows.x.device
    pieces = max(MIN_PIECES, len(number) // PIECE) if device.type == "cpu" else 1
    return block_rows(place_arrays(rows.sites, rows.earlier, number, pieces, without), device)


def block_at(
    parameters: FieldParameters, rows: FieldRows, at: BlockRows, factor: Tensor | None = None
) -> Block:
    """Return rows whitened; `factor` is L (r, r) of q(w), or None for W Phi as `spread`."""
    table = rows.table[:, at.distinct]
    points, logs, y = table.split([len(table) - 3, 2, 1])
    terms = parameters.terms_at(rows.x[at.distinct], logs.T)
    spread = terms.phi if factor is None else terms.phi @ factor
    values = torch.cat([(y[0] - terms.mean)[:, None], spread], 1)
    blocks = [points[:, piece.rows].movedim(0, -1) for piece in at.pieces]
    priors = [parameters.tiles.within(block) for block in blocks]
    return whitened(at, terms, values, priors)


def weighted_rows(
    parameters: FieldParameters,
    rows: FieldRows,
    sites: Tensor,
    without: NDArray[np.bool_] | None = None,
) -> WeightedRows:
    """Return W Phi and W (y - m0 - shift) for the rows at places; see `block_at`."""
    with torch.no_grad():
        block = block_at(parameters, rows, rows_at(rows, sites, without))
        mean = block.spread @ parameters.posterior.m.double()
        return WeightedRows(block.spread, block.residual + mean, torch.ones_like(block.residual))


def information_in(
    parameters: FieldParameters,
    rows: FieldRows,
    sites: Indices | None = None,
    without: NDArray[np.bool_] | None = None,
) -> Information:
    """Return the information about the weights in the rows at all places, or at `sites`."""
    numbers = np.arange(len(rows.sites)) if sites is None else sites
    like, device = parameters.posterior.m.detach(), parameters.device
    chunks = in_threads(
        lambda chunk: information([weighted_rows(parameters, rows, chunk, without)], like),
        torch.as_tensor(numbers).split(places_at_once(device)) if len(numbers) else (),
        device,
    )
    total = information([], like)
    for chunk in chunks:
        total = Information(*(whole + more for whole, more in zip(total, chunk, strict=True)))
    return total


def condition_on(parameters: FieldParameters, rows: FieldRows) -> None:
    """Set the posterior of the weights to that given the rows."""
    m, L = posterior_of(information_in(parameters, rows))
    with torch.no_grad():
        parameters.posterior.m.copy_(m)
        parameters.posterior.take_covariance(L)
