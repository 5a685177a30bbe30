"""What predictions at the same places share: the level given near rows, and the networks of it."""

import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import DataError
from geogp.models.field.near_rows import Conditional
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.rows import FieldRows
from geogp.models.numerics.devices import CHUNK

Floats = NDArray[np.float64]

NETWORKS = "network_mean", "network_log_sd"
"""Names of the tensors with the networks' predictions of the level."""

ASKED = "asked_tests", "asked_devices", "asked_mean", "asked_log_sd"
"""Names of the tensors with other counts, and with the networks' predictions for these counts."""

DISTANCE = "distance"
"""Name of the tensor with the mean distance to other places."""


class Conditionals(NamedTuple):
    """Predictions at inputs, and at the same inputs within the times of the stored rows.

    `networks` are the networks' means and log standard deviations of the level, (n,) each, `asked`
    the arrays of `ASKED`, and `distance` the mean distance to other places, (n,); see
    `FieldRows.distance_to_others`. They are optional.
    """

    at: Conditional
    within: Conditional
    networks: tuple[Floats, ...] = ()
    asked: tuple[Floats, ...] = ()
    distance: Floats | None = None

    @classmethod
    def of_tensors(
        cls, tensors: Mapping[str, Tensor], n: int, device: torch.device
    ) -> "Conditionals":
        """Return the predictions of the level at n inputs from `level_tensors`.

        Raises DataError if a tensor of `Conditional` is missing, or a tensor is not of n inputs.
        """
        if not {*Conditional._fields} <= set(tensors) or {len(v) for v in tensors.values()} != {n}:
            raise DataError(
                f"expected the level at {n} inputs, found tensors {sorted(tensors)} of "
                f"{sorted({len(value) for value in tensors.values()})} inputs."
            )
        at = Conditional(*(tensors[name].to(device) for name in Conditional._fields))
        networks, asked = (_arrays(tensors, names) for names in (NETWORKS, ASKED))
        return cls(at, at, networks, asked, *_arrays(tensors, (DISTANCE,)))

    def with_counts(
        self, parameters: FieldParameters, rows: FieldRows, x: Tensor, counts: Tensor
    ) -> "Conditionals":
        """Return predictions for other counts than those of the level.

        `x` are the scaled inputs.
        """
        law = parameters.law
        with torch.no_grad():
            pairs = zip(x.split(CHUNK), counts.split(CHUNK), strict=True)
            noise = torch.cat([rows.terms(parameters, *pair).noise for pair in pairs])
            change = law.shift(counts) - law.shift(parameters.well_measured(1))
        at, within = (
            level._replace(mean=level.mean + change, noise=noise)
            for level in (self.at, self.within)
        )
        same = bool(self.asked) and np.array_equal(self.asked[:2], counts.T.cpu().numpy())
        networks = self.asked[2:] if same else ()
        return self._replace(at=at, within=within, networks=networks, asked=())


def level_tensors(
    level: Conditional, distance: Floats, networks: Floats | None = None, *asked: Tensor
) -> dict[str, Tensor]:
    """Return tensors from which `Conditionals.of_tensors` restores the predictions of the level.

    `networks` (1 + k, 2, n) are the networks' predictions of the level, and for the k counts
    `asked` (n, 2), of which at most one is allowed.
    """
    tensors = level._asdict() | {DISTANCE: torch.as_tensor(distance)}
    if networks is not None:
        pairs = torch.as_tensor(networks)
        tensors |= zip(NETWORKS, pairs[0], strict=True)
        for counts, pair in zip(asked, pairs[1:], strict=True):
            tensors |= zip(ASKED, (*counts.T.cpu(), *pair), strict=True)
    return tensors


def _arrays(tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> tuple[Floats, ...]:
    """Return the arrays with these names, (n,) each; none if one is missing."""
    complete = set(names) <= set(tensors)
    return tuple(tensors[name].numpy() for name in names) if complete else ()


class NearCache(threading.local):
    """A cache of the level at some inputs, which predictions at these inputs use.

    Every thread has a cache of its own. A copy of a cache is empty.
    """

    kept: tuple[Floats, Conditionals] | None = None

    def at(self, x: Floats) -> Conditionals | None:
        """Return the level at inputs (n, d), or None if it is not in the cache."""
        if self.kept is None or not np.array_equal(x, self.kept[0]):
            return None
        return self.kept[1]

    def __reduce__(self) -> tuple[type["NearCache"], tuple[()]]:
        return NearCache, ()
