"""The step of the field model: single rows first, then blocks of whole places."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from geogp.models.core.objectives import elbo, whitened_elbo
from geogp.models.core.options import Weights
from geogp.models.training.steps import Part, Step

if TYPE_CHECKING:
    from geogp.distributions.prediction import Prediction
    from geogp.models.core.lowrank import Rows
    from geogp.models.field.field_model import FieldNetwork

GROUP = 16
"""Neighbouring places in one group of a step: they share conditioning rows."""


@dataclass(frozen=True)
class PerPlace(Step["FieldNetwork"]):
    """The evidence lower bound under Vecchia's approximation; see `Step`.

    In the first epochs, a share `single` of all, every row is its own block, which is cheap and
    finds field, noise and amplitude; then the blocks are whole places, conditioned on near ones.
    """

    single: float = 0.5

    def complete(self, share: float) -> bool:
        """Tell whether the epoch that ends at `share` takes whole places."""
        return share > self.single

    def parts(
        self,
        model: "FieldNetwork",
        rows: "Rows",
        batch: int,
        rng: np.random.Generator,
        share: float,
    ) -> list[Part]:
        """Cut the rows, or groups of places, into batches."""
        n = rows.n
        if not self.complete(share):
            order = torch.from_numpy(rng.permutation(n)).to(model.device)
            return [Part(index, len(index)) for index in order.split(self.rows(batch, n))]
        sites, _ = model.sites
        groups = np.array_split(np.arange(len(sites)), max(1, len(sites) // GROUP))
        shuffled = rng.permutation(len(groups))
        steps = np.array_split(shuffled, max(1, round(n / self.rows(batch, n))))
        chosen = [np.concatenate([groups[i] for i in step]) for step in steps if len(step)]
        return [
            Part(torch.from_numpy(c).to(model.device), int(sites.count[c].sum()), whole_places=True)
            for c in chosen
        ]

    def split(self, model: "FieldNetwork", rows: "Rows", part: Part, count: int) -> list[Part]:
        """Cut a part into `count` parts, of rows or of whole neighbouring places."""
        own = part.numbers.tensor_split(count)
        if not part.whole_places:
            return [Part(numbers, rows.at(numbers).n) for numbers in own]
        places, _ = model.sites
        counts = [int(places.count[numbers.cpu().numpy()].sum()) for numbers in own]
        return [Part(numbers, n, whole_places=True) for numbers, n in zip(own, counts, strict=True)]

    def learn(self, model: "FieldNetwork", rows: "Rows", part: Part, weights: Weights) -> Tensor:
        """Add the gradient of a part's loss per datum to the parameters; return the loss."""
        n = rows.n
        if part.whole_places:
            block = model.block(part.numbers, factor=model.factor)
            loss = whitened_elbo(
                block.residual, block.spread, block.log_scale, model.posterior.kl(), n
            )
        else:
            chosen = rows.at(part.numbers)
            loss = elbo(model.single_row_terms(chosen), chosen.y, n, weights)
        loss.backward()
        return loss.detach().double()

    def predicted(self, model: "FieldNetwork", rows: "Rows", share: float) -> "Prediction":
        """Predict from near places once the epochs take them; earlier, by the field alone."""
        return model.predict_scaled(rows.x, rows.tests, alone=not self.complete(share))
