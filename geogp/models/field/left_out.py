"""Prediction errors at training rows; each row is predicted without the rows of its group."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.field.near_rows import Conditional, WeightPosterior, given_rows, near_rows
from geogp.models.field.vecchia import NO_ROW, NearSites
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.threads import in_threads
from geogp.models.process.lowrank import Rows
from geogp.models.process.posteriors import Information, posterior_of

if TYPE_CHECKING:
    from geogp.models.field.network import FieldNetwork

Floats = NDArray[np.float64]

MOST_ROWS = 12_000
"""Largest number of training rows whose errors are estimated; from more rows, a subset is drawn."""

MOST_HELD_OUT = 20_000
"""Largest number of validation rows whose errors are estimated, as for training rows."""

FOLDS = 16
"""Largest number of folds; the groups of a fold are left out together."""


class LeftOutRows(NamedTuple):
    """Rows, predictions without the rows of the same group, and distances to other places in km.

    `numbers` (n,) are the numbers of the rows among the stored rows; None for other rows.
    """

    rows: Rows
    found: Conditional
    distance: Floats
    numbers: Tensor | None = None


def left_out(model: "FieldNetwork", rng: np.random.Generator) -> LeftOutRows:
    """Predict stored rows without the stored rows of their groups.

    If every group is one row, or all rows are one group, single rows are left out. The posterior of
    the field's weights stays the same, because one row hardly changes it. Otherwise groups are left
    out in folds, and the posterior of the weights uses only the rows of the other folds.
    """
    n = len(model.rows.y)
    groups = torch.arange(n) if model.groups is None else model.groups
    chosen = np.sort(rng.permutation(n)[:MOST_ROWS])
    _, group = np.unique(groups.cpu().numpy(), return_inverse=True)
    if group.max() + 1 in {1, n}:
        parts = _predicted(model, chosen, model.sites, model.weights, alone=True)
    else:
        parts = _folds(model, chosen, (rng.permutation(group.max() + 1) % FOLDS)[group])
    numbers, found, distance = zip(*parts, strict=True)
    order = torch.cat(numbers)
    held = model.rows.as_rows().at(order)._replace(groups=groups.to(order.device)[order])
    joined = Conditional(*(torch.cat(part) for part in zip(*found, strict=True)))
    return LeftOutRows(held, joined, np.concatenate(distance), order)


def held_out(model: "FieldNetwork", rows: Rows, rng: np.random.Generator) -> LeftOutRows:
    """Predict rows that are not stored, or a random subset if there are many."""
    if len(rows.y) > MOST_HELD_OUT:
        chosen = np.sort(rng.permutation(len(rows.y))[:MOST_HELD_OUT])
        rows = rows.at(on_device(chosen, model.device))
    found = model.conditional(rows.x, rows.counts)
    return LeftOutRows(rows, found, model.distance_to_others(rows.x))


Part = tuple[Tensor, Conditional, Floats]
"""Row numbers of stored rows, predictions at these rows, and distances to other places in km."""


def _predicted(
    model: "FieldNetwork",
    chosen: NDArray[np.int64],
    among: NearSites,
    weights: WeightPosterior,
    *,
    alone: bool = False,
) -> Iterator[Part]:
    """Predict stored rows from rows `among` some places; if `alone`, without the row itself."""
    points, size = model.points(model.rows.x).cpu().numpy(), model.places_at_once

    def part(start: int) -> Part:
        numbers = chosen[start : start + size]
        without = numbers if alone else None
        near = near_rows(model, points[numbers], among=among, without=without)
        rows = on_device(numbers, model.device)
        x = model.rows.x[rows]
        found = given_rows(model, x, model.rows.counts[rows], near, weights)
        return rows, found, model.distance_to_others(x, among)

    return in_threads(part, range(0, len(chosen), size), model.device)


def _folds(
    model: "FieldNetwork", chosen: NDArray[np.int64], fold: NDArray[np.int64]
) -> Iterator[Part]:
    sites = model.sites.sites
    fold_of_site = fold[sites.first]
    earlier, known = model.earlier.numpy(), model.information()
    for number in np.unique(fold[chosen]):
        own, others = fold == number, fold_of_site != number
        # The information from other places must not be conditioned on the rows left out.
        near = others & (own[earlier] & (earlier != NO_ROW)).any(1)
        changed = model.information(np.flatnonzero(near | ~others))
        again = model.information(np.flatnonzero(near), own)
        rest = Information(*(a - b + c for a, b, c in zip(known, changed, again, strict=True)))
        weights = WeightPosterior(*posterior_of(rest))
        yield from _predicted(model, chosen[own[chosen]], NearSites.of(sites, others), weights)
