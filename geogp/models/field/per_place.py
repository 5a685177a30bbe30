"""Training steps of the field model: single rows first, then places with the rows near them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.models.field.blocks import BlockRows, Shapes, flat_on_device, padded, place_arrays
from geogp.models.field.network import FieldNetwork
from geogp.models.field.vecchia import NO_ROW, Indices
from geogp.models.fitting.steps import Part, Step
from geogp.models.numerics.threads import in_threads
from geogp.models.options import Weights
from geogp.models.process.lowrank import Rows
from geogp.models.process.objectives import elbo, whitened_elbo

GROUP = 16
"""Number of neighbouring places in one group; the places of a group share conditioning rows."""

SHARES = 2
"""Number of shares of a step, whatever the number of threads; a fit so has the same results."""


@dataclass(frozen=True)
class PerPlace(Step[FieldNetwork]):
    """The evidence lower bound under Vecchia's approximation; see `Step`.

    In the first epochs (a share `single` of all epochs), every row is its own block. This is fast
    and finds field, noise and amplitude. In later epochs, each block is a whole place, conditioned
    on rows of near places.
    """

    one_core_each: ClassVar[bool] = True
    same_kernels: ClassVar[bool] = True

    single: float = 0.5

    def complete(self, share: float) -> bool:
        """Return whether each block is a whole place in an epoch.

        After the epoch, the fit has done the fraction `share` of its epochs.
        """
        return share > self.single

    def parts(
        self,
        model: FieldNetwork,
        rows: Rows,
        batch: int,
        rng: np.random.Generator,
        share: float,
    ) -> list[Part]:
        """Divide the rows, or groups of places, into batches."""
        n = rows.n
        if not self.complete(share):
            order = torch.as_tensor(rng.permutation(n)).to(model.device)
            return [Part(index, len(index)) for index in order.split(self.rows(batch, n))]
        sites, groups = model.sites.sites, _groups(model)
        shuffled = rng.permutation(len(groups))
        steps = np.array_split(shuffled, self._steps(batch, n))
        chosen = [np.concatenate([groups[i] for i in step]) for step in steps if len(step)]
        return [
            Part(torch.as_tensor(c), int(sites.count[c].sum()), whole_places=True) for c in chosen
        ]

    def split(self, model: FieldNetwork, rows: Rows, part: Part, count: int) -> list[Part]:
        """Divide a part into `count` parts. Places stay whole, and neighbours stay together."""
        own = part.numbers.tensor_split(count)
        if not part.whole_places:
            return [Part(numbers, rows.at(numbers).n) for numbers in own]
        places = model.sites.sites
        counts = [int(places.count[numbers.cpu().numpy()].sum()) for numbers in own]
        return [Part(numbers, n, whole_places=True) for numbers, n in zip(own, counts, strict=True)]

    def _steps(self, batch: int, n: int) -> int:
        """Return the number of steps of an epoch with whole places."""
        return max(1, round(n / self.rows(batch, n)))

    def placed(self, model: FieldNetwork, rows: Rows, batch: int) -> Callable[[Part], Part]:
        """Return a function that copies the rows of places to a GPU, in arrays of equal shapes."""
        shapes: list[tuple[int, ...]] = []

        def copied(part: Part) -> Part:
            if not part.whole_places:
                return part
            if not shapes:
                shapes.extend(self._shapes(model, self._steps(batch, rows.n)))
            places, earlier = model.sites.sites, model.earlier.numpy()
            arrays = place_arrays(places, earlier, part.numbers.numpy(), 1)
            flat = flat_on_device(padded(arrays, shapes), model.device)
            return part._replace(numbers=flat, shapes=shapes)

        return copied

    def _shapes(self, model: FieldNetwork, steps: int) -> Shapes:
        """Return shapes that are large enough for the arrays of every step of every epoch."""
        places, earlier, groups = model.sites.sites, model.earlier.numpy(), _groups(model)
        ends = places.first + places.count
        distinct = [
            len(np.union1d(earlier[group], np.arange(places.first[group[0]], ends[group[-1]])))
            for group in groups
        ]
        most = -(-len(groups) // steps)
        u, b = (sum(sorted(sizes)[-most:]) for sizes in (distinct, map(len, groups)))
        m = int(((earlier != NO_ROW).sum(1) + places.count).max())
        return [(u,), (b, m), (u,), (b, int(places.count.max()))]

    def learn(self, model: FieldNetwork, rows: Rows, part: Part, weights: Weights) -> Tensor:
        """Add the gradient of a part's loss per datum to the parameters; return the loss."""
        if part.whole_places:
            return self._learn_places(model, rows, part)
        chosen = rows.at(part.numbers)
        loss = elbo(model.single_row_terms(chosen), chosen.y, rows.n, weights)
        loss.backward()
        return loss.detach().double()

    def _learn_places(self, model: FieldNetwork, rows: Rows, part: Part) -> Tensor:
        """Learn from whole places, on a CPU in `SHARES` shares, one for each thread."""
        learned = [value for value in model.parameters() if value.requires_grad]

        def learn(share: Part) -> tuple[Tensor, tuple[Tensor | None, ...]]:
            L, at = model.factor, _rows_of(model, share)
            block = model.block_at(at)
            # There are fewer whitened rows than rows that condition them.
            spread = block.spread.to(L.dtype) @ L
            white = torch.cat([block.residual, spread.flatten()])
            kl = model.posterior.kl(L)
            loss = whitened_elbo(white, block.log_scale, kl, rows.n, at.own.sum())
            if share is not part:
                loss = loss * (share.n / part.n)
            return loss.detach().double(), torch.autograd.grad(loss, learned, allow_unused=True)

        whole = bool(part.shapes) or model.device.type != "cpu"
        count = 1 if whole else min(SHARES, len(part.numbers))
        shares = [part] if count == 1 else self.split(model, rows, part, count)
        losses, found = zip(*in_threads(learn, shares, model.device), strict=True)
        for value, *gradients in zip(learned, *found, strict=True):
            for gradient in gradients:
                if gradient is not None:
                    value.grad = gradient if value.grad is None else value.grad + gradient
        return losses[0] if count == 1 else torch.stack(losses).sum()

    def predicted(self, model: FieldNetwork, rows: Rows, share: float) -> Prediction:
        """Predict from the field; in epochs with whole places, also from rows of near places."""
        return model.predict_scaled(rows.x, rows.counts, alone=not self.complete(share))


def _groups(model: FieldNetwork) -> list[Indices]:
    """Return the numbers of the places of each group."""
    n = len(model.sites.sites)
    return np.array_split(np.arange(n), max(1, n // GROUP))


def _rows_of(model: FieldNetwork, part: Part) -> BlockRows:
    """Return the rows of a part with whole places."""
    return BlockRows.of(part.numbers, part.shapes) if part.shapes else model.rows_at(part.numbers)
