"""The rows of a fit as tensors: scaled inputs, standardised targets and counts."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from geogp.models.numerics.devices import CHUNK
from geogp.models.process.objectives import Repeats


class Rows(NamedTuple):
    """Rows for a model: scaled `x` (n, d), standardised `y` (n,), `counts` (n, 2) float64.

    `counts` are the tests and the devices behind each average; a model uses them if the noise
    depends on them. With `repeats`, each entry is an input with several rows, and `y` is the mean
    of these rows. `groups` (n,) are as in `Data`, or None if they are not needed. `total` is the
    number of rows, repeats included; it is stored because a GPU must not be asked for it.
    """

    x: Tensor
    y: Tensor
    counts: Tensor
    repeats: Repeats | None = None
    groups: Tensor | None = None
    total: int | None = None

    @property
    def n(self) -> int:
        """Number of rows, repeats included; if `total` is unknown, the host waits for the sum."""
        if self.total is not None:
            return self.total
        return len(self.y) if self.repeats is None else int(self.repeats.rows.sum())

    def at(self, numbers: Tensor | slice, n: int | None = None) -> "Rows":
        """Return the rows with the given row numbers, which are `n` with repeats, if known."""
        repeats = self.repeats and Repeats(*(values[numbers] for values in self.repeats))
        groups = None if self.groups is None else self.groups[numbers]
        return Rows(self.x[numbers], self.y[numbers], self.counts[numbers], repeats, groups, n)

    def chunks(self) -> Iterator["Rows"]:
        """Yield the rows in order, `CHUNK` at a time; their totals are unknown."""
        for start in range(0, len(self.y), CHUNK):
            yield self.at(slice(start, start + CHUNK))

    def collapsed(self) -> "Rows":
        """Return the distinct inputs, with mean and scatter of the rows at each; see `Repeats`."""
        x, inverse = torch.unique(self.x, dim=0, return_inverse=True)
        count = torch.bincount(inverse).double()
        mean = torch.bincount(inverse, self.y.double()) / count
        square = (self.y.double() - mean[inverse]).square()
        repeats = Repeats(count, torch.bincount(inverse, square) / count)
        dtype = self.y.dtype
        sums = torch.zeros(len(x), 2, dtype=torch.float64, device=x.device)
        counts = sums.index_add(0, inverse, self.counts) / count[:, None]
        repeats = Repeats(*(values.to(dtype) for values in repeats))
        return Rows(x, mean.to(dtype), counts, repeats, total=len(self.y))
