"""Prediction errors at training rows; each row is predicted without the rows of its group."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.field.conditioning import information_in, places_at_once
from geogp.models.field.near_rows import Conditional, given_rows, near_rows
from geogp.models.field.parameters import FieldParameters, WeightPosterior, numpy_of
from geogp.models.field.rows import FieldRows
from geogp.models.field.vecchia import NO_ROW, NearSites
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.threads import in_threads
from geogp.models.process.posteriors import Information, posterior_of
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

MOST_ROWS = 12_000
"""Largest number of training rows whose errors are estimated; from more rows, a subset is drawn."""

FOLDS = 16
"""Largest number of folds; the groups of a fold are left out together."""


class LeftOutRows(NamedTuple):
    """Rows, predictions without the rows of the same group, and distances to other places in km.

    `numbers` (n,) are the numbers of the rows among the stored rows; None for other rows.
    """

    rows: Rows
    predicted: Conditional
    distance: Floats
    numbers: Tensor | None = None


Chunk = tuple[Tensor, Conditional, Floats]
"""Row numbers of stored rows, predictions at these rows, and distances to other places in km."""


def left_out(parameters: FieldParameters, rows: FieldRows, rng: np.random.Generator) -> LeftOutRows:
    """Predict stored rows without the stored rows of their groups.

    If every group is one row, or all rows are one group, single rows are left out. The posterior of
    the field's weights stays the same, because one row hardly changes it. Otherwise groups are left
    out in folds, and the posterior of the weights uses only the rows of the other folds.
    """
    n = len(rows)
    groups = torch.arange(n) if rows.groups is None else rows.groups
    chosen = np.sort(rng.permutation(n)[:MOST_ROWS])
    _, group = np.unique(groups.cpu().numpy(), return_inverse=True)
    if group.max() + 1 in {1, n}:
        chunks = _predicted(parameters, rows, chosen, rows.near, parameters.weights, alone=True)
    else:
        fold = (rng.permutation(group.max() + 1) % FOLDS)[group]
        chunks = _folds(parameters, rows, chosen, fold)
    numbers, predicted, distance = zip(*chunks, strict=True)
    order = torch.cat(numbers)
    own_rows = rows.rows.at(order)._replace(groups=groups.to(order.device)[order])
    joined = Conditional(*(torch.cat(values) for values in zip(*predicted, strict=True)))
    return LeftOutRows(own_rows, joined, np.concatenate(distance), order)


def _predicted(
    parameters: FieldParameters,
    rows: FieldRows,
    chosen: NDArray[np.int64],
    among: NearSites,
    weights: WeightPosterior,
    *,
    alone: bool = False,
) -> Iterator[Chunk]:
    """Predict stored rows from rows `among` some places; if `alone`, without the row itself."""
    points, size = numpy_of(rows.points), places_at_once(parameters.device)

    def chunk(start: int) -> Chunk:
        numbers = chosen[start : start + size]
        without = numbers if alone else None
        near = near_rows(parameters, rows, points[numbers], among=among, without=without)
        at = on_device(numbers, parameters.device)
        predicted = given_rows(parameters, rows, rows.x[at], rows.counts[at], near, weights=weights)
        return at, predicted, rows.distance_to_others(points[numbers], among)

    return in_threads(chunk, range(0, len(chosen), size), parameters.device)


def _folds(
    parameters: FieldParameters,
    rows: FieldRows,
    chosen: NDArray[np.int64],
    fold: NDArray[np.int64],
) -> Iterator[Chunk]:
    sites, earlier = rows.sites, rows.earlier
    fold_of_site = fold[sites.first]
    everything = information_in(parameters, rows)
    for number in np.unique(fold[chosen]):
        own, others = fold == number, fold_of_site != number
        # The information from other places must not be conditioned on the rows left out.
        near = others & (own[earlier] & (earlier != NO_ROW)).any(1)
        changed = information_in(parameters, rows, np.flatnonzero(near | ~others))
        again = information_in(parameters, rows, np.flatnonzero(near), own)
        rest = Information(*(a - b + c for a, b, c in zip(everything, changed, again, strict=True)))
        weights = WeightPosterior(*posterior_of(rest))
        among = NearSites.of(sites, others)
        yield from _predicted(parameters, rows, chosen[own[chosen]], among, weights)
