"""The level of the field model given its rows, in closed form."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.core.feature_sums import spread
from geogp.models.field.tile_sequence import TileSequence
from geogp.models.training.steps import CHUNK

if TYPE_CHECKING:
    from geogp.models.field.field_model import FieldNetwork

Floats = NDArray[np.float64]


def closed_form_mean(model: "FieldNetwork", x: Floats, m: Tensor, tiles: TileSequence) -> Floats:
    """Return the mean of the level under the closed form, by tile, (n,).

    `x` are the inputs of the tiles (n, d), `m` the mean of the weights given the rows, `tiles` the
    law of the tile process.
    """
    weights = m.detach()[:, None]
    sd = float(model.y_sd)
    with torch.no_grad():
        base = model.mean_constant.double()
        rows = model.rows.y - base - model.law.shift(model.rows.tests)
        endless = torch.full((1,), torch.inf, dtype=torch.float64, device=model.device)
        centre = float(model.y_mean + model.y_sd * (base + model.law.shift(endless)))
    residual = sd * rows.cpu().numpy()[:, None] - spread(row_features(model), weights)
    found = spread(model.feature_chunks(x), weights)
    found += tiles.forward(tiles.A @ residual)
    return centre + found[:, 0]


def row_features(model: "FieldNetwork") -> Iterator[Tensor]:
    """Yield the features of the held rows, in the target's unit."""
    held = model.rows
    for x, tests in zip(held.x.split(CHUNK), held.tests.split(CHUNK), strict=True):
        with torch.no_grad():
            yield model.row_terms(x, tests).phi.double() * model.y_sd
