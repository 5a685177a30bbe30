"""The joint level of many places, for an exact process.

The posterior covariance of `DENSE_PLACES` places is factorised as a whole. More places are a
sequence of patches, in which each patch is conditioned on near places that come earlier (Vecchia
1988). This sequence is what is left beside a low-rank part, which carries the covariances between
places far from each other (Sang and Huang 2012). The covariances that enter are those given all
rows.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models import options
from geogp.models.exact.covariance import DOUBLE
from geogp.models.exact.exact_process import ExactProcess
from geogp.models.field.sequence_level import SequenceLevel
from geogp.models.field.tile_sequence import PatchOrder, TileSequence, factored
from geogp.models.field.vecchia import NO_ROW, whiten
from geogp.models.joint.level import LevelOptions, LocalCovariance
from geogp.models.numerics.devices import WORD
from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.numerics.precision import precision
from geogp.models.process.memory import refuse_above
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

DENSE_PLACES = 1_000
"""Largest number of places whose covariance is factorised as a whole."""

KNOTS = 128
"""Number of places that carry the covariances between places far from each other."""

SQUARES = 6
"""Number of such covariances that are in memory at once."""

BLOCKS = 4
"""Number of arrays of the covariances within all patches that are in memory at once."""

JITTER = 1e-9
"""Share of the largest variance of a place that is added to the variances."""


@dataclass(frozen=True, kw_only=True)
class ExactLevel(SequenceLevel):
    """The joint distribution of the level at n places.

    `alone`: the variance of each place before the law of the errors, (n,).
    """

    model: ExactProcess
    alone: Floats

    @property
    def places(self) -> Floats:
        """Coordinates of the places in km, (n, 2)."""
        return self.model.placed(self.x)[0][:, :2].cpu().numpy()

    @property
    def local(self) -> LocalCovariance | None:
        """The covariance of the sequence; None if `shared` is the factor of all covariances."""
        return super().local if self.tiles.groups else None

    def stated_variances(self) -> Floats:
        """Return the variance of the level at each place in the model's own prediction, (n,)."""
        return self.model.predict(self.x, level=True).function_variance

    def single_variances(self) -> Floats:
        """Return the variance of the level at each single place, given the rows, (n,)."""
        variance: Floats = self.alone * self.factor**2
        return variance


class _Parts(NamedTuple):
    """The level of n places as a sequence, and a factor (n, q) of a covariance beside it.

    `variance` is the diagonal of the sum of both, (n,). All are for the standardised target.
    """

    tiles: TileSequence
    shared: Tensor
    variance: Tensor


@precision(options.DOUBLE)
def exact_level(
    model: ExactProcess, x: Floats, _rows: Rows | None, how: LevelOptions
) -> ExactLevel:
    """Return the joint level of an exact process; raise the errors of `joint_level`."""
    n, sd = len(x), float(model.y_sd)
    whole = n <= DENSE_PLACES or not model.mixture.of_rows
    tiles, shared, variance = _whole(model, x, how) if whole else _in_patches(model, x, how)
    mean, alone = float(model.y_mean) + sd * tiles.means[:, 0], sd**2 * variance.numpy()
    factor = np.ones(n)
    if how.calibrated:
        stated = model.predict(x, level=True)
        mean, factor = stated.mean, np.sqrt(stated.function_variance / alone)
    return ExactLevel(
        model=model,
        x=x,
        m=torch.empty(0, dtype=DOUBLE),
        L=torch.empty(0, shared.shape[1], dtype=DOUBLE),
        mean=mean,
        factor=factor,
        noise_variance=np.zeros(n),
        own_variance=np.zeros(n),
        tiles=tiles,
        shared=sd * shared.numpy(),
        alone=alone,
    )


def _whole(model: ExactProcess, x: Floats, how: LevelOptions) -> _Parts:
    """Return the factor of the covariance of all places, and an empty sequence."""
    n = len(x)
    _refuse_above(SQUARES * n**2, n, how)
    mean, covariance = (part.cpu() for part in model.mixture.joint(*model.placed(x)))
    root, _ = jittered_cholesky(covariance, JITTER)
    none = torch.empty(0, 1, dtype=torch.int64)
    C, F = torch.empty(0, 1, 0, dtype=DOUBLE), torch.empty(0, 1, 1, dtype=DOUBLE)
    empty = TileSequence(none, none[:, :0], [], C, F, np.empty((n, 0)), mean[:, None].numpy())
    return _Parts(empty, root, covariance.diagonal())


def _in_patches(model: ExactProcess, x: Floats, how: LevelOptions) -> _Parts:
    """Return a sequence of patches of near places, and what all places share."""
    n, (places, trend) = len(x), model.placed(x)
    order = PatchOrder.of(places.cpu().numpy(), how.earlier, how.seed)
    m = order.most
    numbers = np.concatenate([order.earlier(order.order), order.tiles(order.order)], 1)
    _refuse_above(n * len(model.mixture.rows) + BLOCKS * numbers.size * numbers.shape[1], n, how)
    at, known = torch.as_tensor(numbers), torch.as_tensor(numbers != NO_ROW)
    random = np.random.default_rng([how.seed, 4])
    knots = torch.as_tensor(random.choice(n, min(n, KNOTS), replace=False)).to(model.device)
    parts = model.mixture.patches(places, trend, at.to(model.device), knots)
    mean, covariance, shared = (part.cpu() for part in parts)
    earlier, own = known[:, :m], known[:, None, m:]
    inner = torch.where(own & own.mT, covariance[:, m:, m:], 0.0)
    variance = torch.empty(n, dtype=DOUBLE)
    variance[at[:, m:][known[:, m:]]] = inner.diagonal(dim1=1, dim2=2)[known[:, m:]]
    noise = torch.full_like(earlier, JITTER * float(variance.max()), dtype=DOUBLE)
    cross = torch.where(own, covariance[:, :m, m:], 0.0)
    root, white = whiten(covariance[:, :m, :m], noise, earlier, cross)
    F = factored(inner - white.mT @ white, inner)
    C = torch.linalg.solve_triangular(root.mT, white, upper=True).mT
    padded = torch.where(known, at, n)
    sequence = TileSequence(
        padded[:, m:], padded[:, :m], order.groups, C, F, np.empty((n, 0)), mean[:, None].numpy()
    )
    return _Parts(sequence, shared, variance + shared.square().sum(1))


def _refuse_above(words: float, n: int, how: LevelOptions) -> None:
    """Raise RequestError if the level of n places does not fit into memory."""
    needed = WORD * (words + 2 * n * how.columns)
    refuse_above(needed, f"the joint level of {n:,} places", "Give fewer places.")
