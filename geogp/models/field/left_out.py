"""Prediction errors at training rows, each predicted without its own row or without its group."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.field.conditioning import information_in, places_at_once
from geogp.models.field.home import Locations
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

ALONE = 0.25
"""Share of the rows that are left out alone if the rows have groups. So the errors of one fit tell
about single gaps as well as about larger ones.
"""

FOLDS = 16
"""Largest number of folds; the groups of a fold are left out together."""


class LeftOutRows(NamedTuple):
    """Rows, predictions without them, mean distances to other places, and to the nearest, in km.

    `numbers` (n,) are the numbers of the rows among the stored rows, followed by those held out.
    """

    rows: Rows
    predicted: Conditional
    distance: Floats
    nearest: Floats
    numbers: Tensor


Chunk = tuple[Tensor, Conditional, Floats, Floats]
"""Numbers of stored rows, then predictions and distances as in `LeftOutRows`."""


def rows_alone(rows: FieldRows, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of the stored rows are left out alone, (n,).

    These are all rows if every group is one row, or all rows are one group; otherwise `ALONE`.
    """
    n = len(rows)
    groups = n if rows.groups is None else len(torch.unique(rows.groups))
    if groups in {1, n}:
        return np.ones(n, np.bool_)
    alone = np.zeros(n, np.bool_)
    alone[rng.permutation(n)[: round(ALONE * n)]] = True
    return alone


def left_out(
    parameters: FieldParameters,
    rows: FieldRows,
    alone: NDArray[np.bool_],
    rng: np.random.Generator,
) -> LeftOutRows:
    """Predict stored rows without their own row, if `alone` (n,), or without their groups.

    If a single row is left out, the posterior of the field's weights stays the same, because one
    row hardly changes it. Groups are left out in folds, and the posterior of the weights uses only
    the rows of the other folds.
    """
    n = len(rows)
    groups = torch.arange(n) if rows.groups is None else rows.groups
    chosen = np.sort(rng.permutation(n)[:MOST_ROWS])
    single, others = chosen[alone[chosen]], chosen[~alone[chosen]]
    chunks = list(_predicted(parameters, rows, single, rows.near, parameters.weights, alone=True))
    if len(others):
        _, group = np.unique(groups.cpu().numpy(), return_inverse=True)
        fold = (rng.permutation(group.max() + 1) % FOLDS)[group]
        chunks += _folds(parameters, rows, others, fold)
    numbers, predicted, distance, nearest = zip(*chunks, strict=True)
    order = torch.cat(numbers)
    own_rows = rows.rows.at(order)._replace(groups=groups.to(order.device)[order])
    joined = Conditional(*(torch.cat(values) for values in zip(*predicted, strict=True)))
    distances = np.concatenate(distance), np.concatenate(nearest)
    return LeftOutRows(own_rows, joined, *distances, order)


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
    nearest = rows.nearest_others if alone else None

    def chunk(start: int) -> Chunk:
        numbers = chosen[start : start + size]
        here = points[numbers]
        near = near_rows(parameters, rows, here, among=among, without=numbers if alone else None)
        at = on_device(numbers, parameters.device)
        away = rows.nearest(here, among) if nearest is None else nearest[numbers]
        predicted = given_rows(
            parameters,
            rows,
            rows.x[at],
            rows.counts[at],
            near,
            weights=weights,
            at=Locations(here, away),
        )
        return at, predicted, rows.distance_to_others(here, among), away

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
