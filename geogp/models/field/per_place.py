"""Training steps of the field model: single rows first, then places with the rows near them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.models.core.lowrank import Rows
from geogp.models.core.objectives import elbo, whitened_elbo
from geogp.models.core.options import Weights
from geogp.models.core.threads import in_threads
from geogp.models.field.field_model import FieldNetwork
from geogp.models.training.steps import Part, Step

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
        sites = model.sites.sites
        groups = np.array_split(np.arange(len(sites)), max(1, len(sites) // GROUP))
        shuffled = rng.permutation(len(groups))
        steps = np.array_split(shuffled, max(1, round(n / self.rows(batch, n))))
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
            L = model.factor
            block = model.block(share.numbers, factor=None)
            # There are fewer whitened rows than rows that condition them.
            spread = (block.spread.to(L.dtype) @ L).double()
            white = torch.cat([block.residual[:, None], spread], 1)
            loss = whitened_elbo(white, block.log_scale, model.posterior.kl(L), rows.n)
            loss = loss * (share.n / part.n)
            return loss.detach().double(), torch.autograd.grad(loss, learned, allow_unused=True)

        count = min(SHARES, len(part.numbers)) if model.device.type == "cpu" else 1
        shares = [part] if count == 1 else self.split(model, rows, part, count)
        losses, found = zip(*in_threads(learn, shares, model.device), strict=True)
        for value, *gradients in zip(learned, *found, strict=True):
            for gradient in gradients:
                if gradient is not None:
                    value.grad = gradient if value.grad is None else value.grad + gradient
        return torch.stack(losses).sum()

    def predicted(self, model: FieldNetwork, rows: Rows, share: float) -> Prediction:
        """Predict from the field; in epochs with whole places, also from rows of near places."""
        return model.predict_scaled(rows.x, rows.counts, alone=not self.complete(share))
