"""Small networks that predict a measurement from summaries of the measurements near it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import layer_norm, silu

from geogp.errors import NumericalError
from geogp.models.field.near_summaries import (
    AFTER,
    BEFORE,
    OWN,
    ROWS_AT_ONCE,
    SUMMARIES,
    Indices,
    TileSums,
    folds,
)
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.predictive_law import MIN_SPREAD, NO_EFFECT
from geogp.models.fitting.optimisers import AdamW
from geogp.models.numerics.threads import chunks, in_threads, threads_of

Floats = NDArray[np.float64]

MEMBERS = 5
"""Number of networks; each is trained without one fifth of the rows."""

HIDDEN = 64
"""Number of units in each hidden layer."""

LEAST_ROWS = 2000
"""With fewer training rows, the networks are not fitted."""

EPOCHS = 8
"""Largest number of epochs."""

RATE = 4e-3
"""Largest learning rate; the rate rises to it and falls again."""

BATCHES = (128, 1024)
"""Bounds of the rows in a step; an epoch has about 32 steps unless a bound applies."""

ENOUGH_STEPS = 1000
"""With more steps than this, there are fewer epochs, at least two."""

DEGREES = 5.0
"""Degrees of freedom of the loss, a Student t distribution: it limits the effect of outliers."""

MOST_SPREADS = 5.0
"""Bound of standardised inputs, which limits the effect of outliers."""

MOST_LOG_SD = 4.0
"""Bound of predicted log standard deviations, so that their exponentials stay moderate."""

COUNTS = 3
"""Number of inputs about the counts: log tests, log devices, log tests per device."""

SHARE = 0.4
"""Share of the networks in predictions."""

WEIGHTS = ("first", "second", "skip", "last")
"""Names of the buffers with the weights of the layers."""


class NearNetworks(nn.Module):
    """Networks whose mean and log standard deviation of a measurement are averaged.

    The inputs of a row are its scaled inputs, `COUNTS` logarithms, and `SUMMARIES` of the rows near
    it (`TileSums`). A missing summary counts as the mean of this summary; three indicators say
    whether the own tile, an earlier row and a later row are missing. With z the standardised inputs
    and N a normalisation to mean 0 and variance 1 over the units,

        h = silu(N(A z + a)),  g = h + silu(N(B h + b)),  (mean, log sd) = C g + c + D z + d.

    Each network is trained without one fifth of the rows (or of their groups), so that it predicts
    these rows as it predicts new rows. The loss is the negative log density of a Student t
    distribution with 5 degrees of freedom, scaled to the variance sd².

    `inputs`: number of scaled inputs. The weights are buffers, because `fit` has an
    optimiser of its own for them.
    """

    centre: Tensor
    spread: Tensor
    first: Tensor

    def __init__(self, inputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.columns = inputs + COUNTS + SUMMARIES
        flags = self.columns - SUMMARIES + np.array([OWN, BEFORE, AFTER])
        self.flags = flags.tolist()
        self.register_buffer("centre", torch.zeros(self.columns, dtype=torch.float64))
        self.register_buffer("spread", torch.full((self.columns,), NO_EFFECT, dtype=torch.float64))
        width = self.columns + len(self.flags)
        sizes = (width, HIDDEN), (HIDDEN, HIDDEN), (width, 2), (HIDDEN, 2)
        for name, (before, after) in zip(WEIGHTS, sizes, strict=True):
            # The last row of a matrix is the intercept.
            self.register_buffer(name, torch.zeros(MEMBERS, before + 1, after, dtype=dtype))

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        if not bool((self.spread > 0).all()):
            raise ValueError("expected standard deviations of inputs above 0")

    def forward(self, columns: Floats) -> tuple[Floats, Floats]:
        """Return mean and log standard deviation, each (n,), for inputs (n, c)."""
        outputs = []
        for start in range(0, len(columns), ROWS_AT_ONCE):
            z = self._standardised(columns[start : start + ROWS_AT_ONCE])
            with torch.no_grad():
                outputs.append(_outputs(self._weights(), z.expand(MEMBERS, *z.shape)).mean(0))
        return _pair(torch.cat(outputs))

    def fit(self, columns: Floats, y: Tensor, groups: Indices, seed: int) -> tuple[Floats, Floats]:
        """Train the networks on inputs (n, c) and targets (n,), each group in one fifth.

        Return mean and log standard deviation of each row, (n,), from the network that is trained
        without it. Raises NumericalError if these are not finite.
        """
        known = np.isfinite(columns)
        count = np.maximum(known.sum(0), 1)
        centre = np.where(known, columns, 0.0).sum(0) / count
        spread = np.sqrt(np.square(np.where(known, columns - centre, 0.0)).sum(0) / count)
        self.centre.copy_(torch.as_tensor(centre))
        self.spread.copy_(torch.as_tensor(np.where(spread > MIN_SPREAD, spread, NO_EFFECT)))
        z = self._standardised(columns)
        random = torch.Generator().manual_seed(seed)
        for name in WEIGHTS[:2]:
            weights = getattr(self, name)
            drawn = torch.rand(weights.shape, generator=random, dtype=weights.dtype)
            weights.copy_((2 * drawn - 1) / weights.shape[1] ** 0.5)
        for name in WEIGHTS[2:]:
            getattr(self, name).zero_()
        rows, left_out = [], []
        for others, fold in folds(groups, seed, MEMBERS):
            rows.append(torch.as_tensor(others))
            left_out.append(torch.as_tensor(fold))
        state = random.get_state()
        groups_of_networks = np.array_split(np.arange(MEMBERS), min(MEMBERS, threads_of(z.device)))
        with torch.enable_grad():
            trained = in_threads(
                lambda members: self._trained(z, y.to(z.dtype), rows, members, state),
                groups_of_networks,
                z.device,
            )
            for weights, *learned in zip(self._weights(), *trained, strict=True):
                weights.copy_(torch.cat(learned))
        outputs = z.new_empty(len(z), 2)
        with torch.no_grad():
            for k, numbers in enumerate(left_out):
                network = [weights[k : k + 1] for weights in self._weights()]
                outputs[numbers] = _outputs(network, z[numbers][None])[0]
        if not bool(outputs.isfinite().all()):
            raise NumericalError("the networks of near measurements diverged.")
        return _pair(outputs)

    def _trained(
        self, z: Tensor, y: Tensor, rows: list[Tensor], members: Indices, state: Tensor
    ) -> list[Tensor]:
        """Return the trained weights of some networks; `rows` are those of each network.

        `state` is the state of the generator that draws the order of the rows of all networks.
        """
        random = torch.Generator()
        random.set_state(state)
        weights = [layer[members].clone().requires_grad_() for layer in self._weights()]
        size = sum(map(len, rows)) // len(rows)
        batch = min(max(len(z) // 40, BATCHES[0]), BATCHES[1], size)
        used = batch * (size // batch)
        epochs = min(EPOCHS, max(ENOUGH_STEPS // (size // batch), 2))
        steps = epochs * (size // batch)
        optimiser = AdamW(weights, lr=RATE, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, steps, pct_start=0.1)
        for _ in range(epochs):
            epoch = torch.stack([_drawn(others, used, random) for others in rows])[members]
            for chosen in epoch.to(z.device).split(batch, 1):
                mean, log_sd = _outputs(weights, z[chosen]).unbind(2)
                ratio = (y[chosen] - mean).square() * (-2 * log_sd).exp() / (DEGREES - 2)
                loss = (log_sd + (DEGREES + 1) / 2 * ratio.log1p()).mean(1).sum()
                optimiser.zero_grad()
                loss.backward()
                _clip(weights)
                optimiser.step()
                schedule.step()
        return [layer.detach() for layer in weights]

    def _weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in WEIGHTS]

    def _standardised(self, columns: Floats) -> Tensor:
        inputs = torch.as_tensor(columns).to(self.centre.device)
        z = ((inputs - self.centre) / self.spread).clamp(-MOST_SPREADS, MOST_SPREADS)
        missing = torch.stack([inputs[:, column] for column in self.flags], 1).isnan()
        return torch.cat([z.nan_to_num(), missing.double()], 1).to(self.first.dtype)


def _drawn(rows: Tensor, n: int, random: torch.Generator) -> Tensor:
    """Return n of the rows in random order; if there are fewer, each is repeated equally often."""
    times = -(-n // len(rows))
    orders = [rows[torch.randperm(len(rows), generator=random)] for _ in range(times)]
    return torch.cat(orders)[:n]


def _clip(weights: list[Tensor]) -> None:
    """Limit the norm of the gradient of each network to 1."""
    gradients = [layer.grad for layer in weights if layer.grad is not None]
    squares = [gradient.square().sum((1, 2)) for gradient in gradients]
    norm = torch.stack(squares).sum(0).sqrt()
    for gradient in gradients:
        gradient.mul_((1 / norm).clamp(max=1)[:, None, None])


def _outputs(weights: list[Tensor], z: Tensor) -> Tensor:
    """Return mean and log standard deviation, (members, n, 2), for inputs (members, n, c)."""
    first, second, skip, last = weights
    h = silu(layer_norm(_linear(first, z), (HIDDEN,)))
    h = h + silu(layer_norm(_linear(second, h), (HIDDEN,)))
    mean, log_sd = (_linear(last, h) + _linear(skip, z)).unbind(2)
    return torch.stack([mean, log_sd.clamp(-MOST_LOG_SD, MOST_LOG_SD)], 2)


def _linear(weights: Tensor, x: Tensor) -> Tensor:
    return torch.baddbmm(weights[:, -1:], x, weights[:, :-1])


def _pair(outputs: Tensor) -> tuple[Floats, Floats]:
    mean, log_sd = outputs.double().cpu().numpy().T
    return mean, log_sd


def network_predictions(
    parameters: FieldParameters,
    networks: NearNetworks,
    sums: TileSums,
    x: Tensor,
    counts: Sequence[Tensor],
) -> Floats:
    """Return the networks' means and log standard deviations at scaled inputs, (k, 2, n).

    `sums` are those of the rows, and `counts` are k arrays of counts, (n, 2) each. The target is
    standardised.
    """

    def predicted(chunk: slice) -> Floats:
        near = sums.summaries(parameters.measurements(x[chunk], counts[0][chunk]))
        return np.array(
            [
                networks(parameters.network_inputs(x[chunk], row_counts[chunk], near))
                for row_counts in counts
            ]
        )

    chunks_of_rows = in_threads(predicted, chunks(len(x), ROWS_AT_ONCE), parameters.device)
    return np.concatenate(list(chunks_of_rows), axis=2)
