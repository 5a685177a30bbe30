"""The rows that a field predicts from: in km and quarters, grouped by place, with neighbours."""

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.field.blocks import RowTerms
from geogp.models.field.home import Home, Locations
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.vecchia import (
    NearSites,
    Sites,
    distance_to_others,
    earlier_rows,
    near_places,
)
from geogp.models.numerics.trees import tree_of
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FieldRows:
    """Rows grouped by place, on the device of the model; they are part of a saved model.

    `x`: scaled inputs, (n, d). `y`: standardised targets, (n,) float64. `counts`: tests and
        devices, (n, 2).
    `points`: the inputs in km and quarters, and the provider, (n, 3 or 4) float64.
    `logs`: logarithms of the counts, (n, 2).
    `near`: the places of the rows, and a tree for searches among the places.
    `numbers`: how many near places condition a place in training, and how many a prediction.
    `seed`: seed of the order in which places condition each other.
    `home`: where the field goes far from the rows.
    `groups`: the groups of the rows, (n,), during a fit.
    """

    x: Tensor
    y: Tensor
    counts: Tensor
    points: Tensor
    logs: Tensor
    near: NearSites
    numbers: tuple[int, int]
    seed: int
    home: Home
    groups: Tensor | None = None

    @classmethod
    def of(cls, parameters: FieldParameters, rows: Rows, sites: Sites, seed: int) -> "FieldRows":
        """Return rows that are in the order of their places; see `by_place`."""
        return cls(
            rows.x,
            rows.y.double(),
            rows.counts,
            parameters.points(rows.x),
            parameters.law.log_counts(rows.counts),
            NearSites.of(sites),
            near_places(sites),
            seed,
            Home.nowhere(rows.x),
            rows.groups,
        )

    def __len__(self) -> int:
        return len(self.y)

    def going(self, home: Home) -> Self:
        """Return the same rows with another home; what was computed from them stays."""
        found = copy(self)
        object.__setattr__(found, "home", home)
        return found

    @property
    def sites(self) -> Sites:
        """The places of the rows."""
        return self.near.sites

    @property
    def rows(self) -> Rows:
        """The rows, with their targets as float64."""
        return Rows(self.x, self.y, self.counts, groups=self.groups)

    @cached_property
    def times(self) -> tuple[Tensor, Tensor]:
        """The first and the last time, column 2 of `x`."""
        first, last = self.x[:, 2].aminmax()
        return first, last

    @cached_property
    def earlier(self) -> NDArray[np.int64]:
        """For each of the s places, the rows that condition it, (s, most)."""
        random = np.random.default_rng([self.seed, 1])
        return earlier_rows(self.sites, self.numbers[0], random)

    @cached_property
    def table(self) -> Tensor:
        """Points, logarithms of counts, and targets, (., n) float64."""
        return torch.cat([self.points, self.logs, self.y[:, None]], 1).T.contiguous()

    def within(self, x: Tensor, *, has_time: bool) -> Tensor:
        """Return scaled inputs, with times clamped to the times of the rows."""
        if not has_time:
            return x
        time = x[..., 2:3].clamp(*self.times)
        return torch.cat([x[..., :2], time, x[..., 3:]], -1)

    def nearest(self, points: Floats, among: NearSites | None = None) -> Floats:
        """Return the distance from points (m, 2 or more) to the nearest place in km, (m,)."""
        distance, _ = (among or self.near).places.query(points[:, :2])
        return np.asarray(distance, np.float64)

    @cached_property
    def nearest_others(self) -> Floats:
        """Distance of each row to the nearest other row, in km, (n,); 0 if it is at the place."""
        places, number, count = np.unique(
            numpy_of(self.points)[:, :2], axis=0, return_inverse=True, return_counts=True
        )
        if len(places) < 2:
            return np.zeros(len(self))
        apart = np.asarray(tree_of(places).query(places, k=2)[0])[:, 1]
        return np.where(count > 1, 0.0, apart)[number.reshape(-1)]

    def locations(self, points: Floats) -> Locations:
        """Return where inputs lie, whose points are (n, 3 or 4)."""
        return Locations(points, self.nearest(points))

    def features(
        self, parameters: FieldParameters, x: Tensor, at: Locations | None = None
    ) -> Tensor:
        """Return the features of the field at scaled inputs, (n, r); see `home.py`.

        `at` are their `locations`, if these are known.
        """
        inside = self.within(x, has_time=parameters.has_time)
        phi: Tensor = parameters.basis.values(inside)
        if not self.home.exists:
            return phi
        at = at or self.locations(numpy_of(parameters.points(x)))
        return self.home.features(parameters, phi, inside, at)

    def terms(
        self,
        parameters: FieldParameters,
        x: Tensor,
        counts: Tensor,
        m: Tensor | None = None,
        at: Locations | None = None,
    ) -> RowTerms:
        """Return the terms of scaled inputs (n, d) with counts (n, 2); see `features`.

        `m` (r,) is the mean of the weights, by default their posterior mean.
        """
        phi = self.features(parameters, x, at)
        return parameters.terms_of(phi, parameters.law.log_counts(counts), m)

    def distance_to_others(self, points: Floats, among: NearSites | None = None) -> Floats:
        """Return the mean distance from points (m, 2 or more) to the nearest places, in km, (m,).

        `among` are the places to search, by default all. The distance is 1 if there are fewer than
        two places; see `vecchia.distance_to_others`.
        """
        return distance_to_others((among or self.near).places, points[:, :2])


def by_place(parameters: FieldParameters, rows: Rows) -> tuple[Rows, Sites]:
    """Return rows in the order of their places, and the places."""
    sites = Sites.of(numpy_of(parameters.points(rows.x)))
    return rows.at(torch.as_tensor(sites.order).to(rows.x.device)), sites
