"""The seam between a model and the training loop, and fits by batches or over all rows at once."""

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.models.numerics.devices import CHUNK
from geogp.models.options import Weights
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.model import Model
from geogp.models.process.objectives import BatchObjective, Statistics, WholeObjective
from geogp.models.process.process import Process
from geogp.models.process.rows import Rows

P = TypeVar("P", bound=Process)
L = TypeVar("L", bound=LowRankProcess)


class Fit(ABC, Generic[P]):
    """A fit of one process to its rows: the seam between a model and the training loop.

    The loop calls `start`, makes the steps of a `SteppedFit`, and calls `finish`, which returns
    what predicts. `state` and `restore` save and restore what the steps have learned; everything
    else in a fit follows from the rows and the seed.

    Attributes
    ----------
    process
        The process, which the fit trains in place.
    rows
        The training rows, in the form that the steps need; set by `start`.
    seed
        Seed of random choices; set by `start`.
    """

    rows: Rows
    seed: int

    def __init__(self, process: P) -> None:
        self.process = process

    @staticmethod
    def batch_rows(batch: int, n: int) -> int:  # noqa: ARG004
        """Return how many of n rows a step uses, for a requested batch size; by default all."""
        return n

    def start(self, rows: Rows, seed: int, *, resumed: bool = False) -> None:
        """Take the training rows, and find start values of the parameters.

        If `resumed` is true, `restore` follows, so that start values do not matter.
        """
        self.rows, self.seed = rows, seed

    @abstractmethod
    def finish(self, held_out: Rows) -> Model:
        """Learn what the steps have not learned; return the fitted model.

        `held_out` are the validation rows.
        """

    @property
    def stepped(self) -> "SteppedFit[P] | None":
        """The fit itself if gradient steps train it, else None."""
        return None

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the steps change, by name, without copies."""
        return self.process.state_dict()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Set the tensors of `state`; raise RuntimeError or ValueError if they do not fit."""
        self.process.load_state_dict(tensors)


class Batch(NamedTuple):
    """The `n` rows of one step, as row numbers or as numbers of whole places.

    `seed` depends on the row numbers alone, for steps that draw random numbers. With `shapes`,
    `numbers` has arrays of these shapes, one after the other; see `BlockRows`.
    """

    numbers: Tensor
    n: int
    whole_places: bool = False
    seed: int = 0
    shapes: Sequence[tuple[int, ...]] = ()


class SteppedFit(Fit[P]):
    """A fit that gradient steps train; see `Fit`.

    A fit must have `batches`, `step`, `predicted` and `finish`. It may also have learning rates of
    its own (`rates`), closed forms after each epoch (`update_closed_forms`), shares of a batch for
    the processes of torchrun (`split`), copies of batches on a GPU (`placed`), epochs that do not
    train the whole model (`complete`), a closed form for the mean of the weights
    (`can_solve_mean`), and another number of rows in a step than the requested one (`batch_rows`).

    `one_core_each` is true if the operations are small; see the function `one_core_each`.
    `same_kernels` is true if `RecordedStep` can record a step.
    """

    one_core_each: ClassVar[bool] = False
    same_kernels: ClassVar[bool] = False

    @staticmethod
    def batch_rows(batch: int, n: int) -> int:
        """Return how many of n rows a step uses; by default the requested batch size."""
        return min(batch, n)

    @property
    def stepped(self) -> "SteppedFit[P]":
        """The fit itself, because gradient steps train it."""
        return self

    @property
    def can_solve_mean(self) -> bool:
        """Whether a closed form could replace the mean of the weights; by default not."""
        return False

    def complete(self, share: float) -> bool:
        """Return whether an epoch ending at fraction `share` of the fit trains the whole model."""
        return True

    def rates(self) -> dict[str, float]:
        """Return learning rates by parameter name, relative to the usual rate; empty by default."""
        return {}

    @abstractmethod
    def batches(self, batch: int, rng: np.random.Generator, share: float) -> list[Batch]:
        """Divide the rows into the steps of an epoch that ends at fraction `share` of the fit."""

    def split(self, batch: Batch, count: int) -> list[Batch]:
        """Divide a batch into `count` batches, some perhaps empty, for processes of torchrun.

        Raises RequestError if this is impossible, which is the default.
        """
        raise RequestError(
            f"{self.process.name} is fitted to all rows at once, so {count} processes cannot "
            "share the fit. Start the fit without torchrun, or choose a model that is fitted "
            "in batches, such as field."
        )

    def placed(self, batch: int) -> Callable[[Batch], Batch]:
        """Return a function that copies a batch to a GPU, for `RecordedStep`; default: nothing."""
        return lambda placed: placed

    @abstractmethod
    def step(self, batch: Batch, weights: Weights) -> Tensor:
        """Add the gradient of a batch's loss per datum to the parameters; return the loss."""

    def update_closed_forms(self, held_out: Rows) -> None:
        """Update, after an epoch, what learns from rows without a gradient; by default, nothing."""

    @abstractmethod
    def predicted(self, held_out: Rows, share: float) -> Prediction:
        """Predict held-out rows after an epoch that ends at fraction `share` of the fit."""


def update_closed_forms(process: LowRankProcess, rows: Rows, held_out: Rows) -> None:
    """Update diagonal and posterior from training rows, and the noise from validation rows.

    Each does so only if it has a closed form.
    """
    with torch.no_grad():
        process.diagonal.update_closed_forms(process.basis(chunk) for chunk in rows.x.split(CHUNK))
        process.posterior.update_closed_forms(process.weighted_rows(rows))
        process.noise.update_closed_forms(
            (process.terms(chunk.x).mean - chunk.y).square() for chunk in held_out.chunks()
        )


def learn_closed_forms(process: LowRankProcess, rows: Rows, held_out: Rows) -> None:
    """Learn, for known parameters, what a fit with steps learns without a gradient after an epoch.

    The fit does not start, so rows with equal inputs stay apart.
    """
    fit: SteppedFit[Any] = process.make_fit(process)
    fit.rows = rows
    fit.update_closed_forms(held_out)


def no_prior(process: LowRankProcess) -> Tensor:
    """Return 0, the log density of a flat prior."""
    return torch.zeros((), dtype=torch.float64, device=process.device)


class ByInputs(SteppedFit[L]):
    """A fit whose steps do not depend on the places of their rows.

    `splits` is true if the objective is a mean over rows; processes can then share a step.
    `combines` is true if the objective needs only the `Repeats` of rows with equal inputs.
    """

    splits: ClassVar[bool] = True

    def __init__(self, process: L, *, combines: bool = True) -> None:
        super().__init__(process)
        self.combines = combines

    def start(self, rows: Rows, seed: int, *, resumed: bool = False) -> None:
        """Take the rows as `gathered`."""
        super().start(self.gathered(rows), seed)

    @abstractmethod
    def backward(self, rows: Rows, n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss of some of n rows, per datum, to the parameters; return it.

        The result is the loss.
        """

    def gathered(self, rows: Rows) -> Rows:
        """Collapse rows with equal inputs (see `Repeats`), if there are two or more on average."""
        if not self.combines:
            return rows
        collapsed = rows.collapsed()
        return collapsed if len(collapsed.y) <= rows.n / 2 else rows

    def batches(self, batch: int, rng: np.random.Generator, share: float) -> list[Batch]:
        """Divide the inputs, in random order, into batches of about `batch` rows."""
        rows, inputs = self.rows, len(self.rows.y)
        size = math.ceil(self.batch_rows(batch, rows.n) * inputs / rows.n)
        order = torch.as_tensor(rng.permutation(inputs))
        repeats = torch.ones(inputs) if rows.repeats is None else rows.repeats.rows.cpu()
        pairs = zip(order.split(size), order.to(rows.x.device).split(size), strict=True)
        return [
            Batch(there, int(repeats[here].double().sum()), seed=_seed(here))
            for here, there in pairs
        ]

    def split(self, batch: Batch, count: int) -> list[Batch]:
        """Divide a batch into `count` batches; raise RequestError if `splits` is false."""
        if not self.splits:
            return super().split(batch, count)
        pieces = batch.numbers.tensor_split(count)
        return [Batch(piece, self.rows.at(piece).n, seed=_seed(piece)) for piece in pieces]

    @property
    def can_solve_mean(self) -> bool:
        """Whether the mean of the weights is learned, so that a closed form could replace it."""
        return self.process.has_level and self.process.posterior.is_learned

    def update_closed_forms(self, held_out: Rows) -> None:
        """Update, after an epoch, the parts that learn from rows without a gradient."""
        update_closed_forms(self.process, self.rows, held_out)

    def predicted(self, held_out: Rows, share: float) -> Prediction:
        """Predict held-out rows from the process."""
        return self.process.predict_scaled(held_out.x, held_out.counts)

    def finish(self, held_out: Rows) -> Model:
        """Return the process: by default, the steps have learned everything."""
        return self.process

    def step(self, batch: Batch, weights: Weights) -> Tensor:
        """Add the gradient of a batch's loss per datum to the parameters; return the loss."""
        return self.backward(self.rows.at(batch.numbers, batch.n), self.rows.n, weights)


def _seed(numbers: Tensor) -> int:
    return zlib.crc32(numbers.cpu().numpy().tobytes())


class PerBatch(ByInputs[L]):
    """A fit whose steps minimise the objective of a batch of rows."""

    same_kernels: ClassVar[bool] = True

    def __init__(self, process: L, objective: BatchObjective, *, combines: bool = True) -> None:
        super().__init__(process, combines=combines)
        self.objective = objective

    def backward(self, rows: Rows, n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss to the parameters; return the loss."""
        terms = replace(self.process.terms(rows.x), repeats=rows.repeats)
        loss = self.objective(terms, rows.y, n, weights)
        loss.backward()
        return loss.detach().double()


class WholeData(ByInputs[L]):
    """A fit whose steps minimise -(log likelihood of all rows + log prior) / n.

    The first pass computes sums over the rows, in chunks, and the gradient by the sums. The second
    pass propagates this gradient to the features of each chunk. Memory does not grow with n. One
    pass is enough for a single chunk.

    `objective`: the log likelihood, a function of `Statistics` and the noise variance.
    `prior`: a log prior, added to the log likelihood.
    `own_variance`: whether the variance of a row is noise_var plus the residual k~(x, x) - ||phi||²
        at the row's input. If so, the sums weight each row by its inverse variance.
    """

    splits: ClassVar[bool] = False

    def __init__(
        self,
        process: L,
        objective: WholeObjective,
        prior: Callable[[Any], Tensor] = no_prior,
        *,
        own_variance: bool = False,
    ) -> None:
        super().__init__(process)
        self.objective, self.prior, self.own_variance = objective, prior, own_variance

    @staticmethod
    def batch_rows(batch: int, n: int) -> int:  # noqa: ARG004
        """Return n, because the likelihood does not split into batches."""
        return n

    def backward(self, rows: Rows, n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss to the parameters; return the loss."""
        process, own_variance = self.process, self.own_variance
        single = len(list(rows.chunks())) == 1
        if single:
            total = statistics(process, rows, n, own_variance=own_variance)
        else:
            total, peak = _total(process, rows, n, own_variance=own_variance)
            for value in _tensors(total).values():
                value.requires_grad_()
        loss = -(self.objective(total, process.noise()) + self.prior(process)) / n
        loss.backward()
        if single:
            return loss.detach().double()
        gradients = {name: value.grad for name, value in _tensors(total).items()}
        by_largest = gradients["largest_norm"]
        for index, chunk in enumerate(rows.chunks()):
            sums = _tensors(statistics(process, chunk, n, own_variance=own_variance))
            if by_largest is not None:
                gradients["largest_norm"] = by_largest * (peak == index)
            used = [
                (sums[name], gradient)
                for name, gradient in gradients.items()
                if gradient is not None and sums[name].requires_grad
            ]
            torch.autograd.backward([v for v, _ in used], [g for _, g in used])
        return loss.detach().double()


def statistics(
    process: LowRankProcess, rows: Rows, n: int, *, own_variance: bool = False
) -> Statistics:
    """Return the sums of a chunk, on the scale of the standardised target; n counts all rows."""
    features = process.basis(rows.x)
    phi, norm = features.phi.double(), features.norm.double()
    residual = rows.y.double() - process.mean_constant.double()
    square, count = residual.square(), torch.ones_like(norm)
    if rows.repeats is not None:
        count, scatter = (part.double() for part in rows.repeats)
        square = square + scatter
    weight, log_variance = count, torch.zeros_like(norm)
    if own_variance:
        variance = process.noise().double() + features.residual.double()
        weight, log_variance = count / variance, variance.log()
    weighted = phi * weight[:, None]
    return Statistics(
        n,
        weighted.T @ phi,
        weighted.T @ residual,
        weight @ square,
        count @ norm,
        norm.max(),
        count @ features.residual.double(),
        count @ log_variance,
    )


@torch.no_grad()
def _total(
    process: LowRankProcess, rows: Rows, n: int, *, own_variance: bool
) -> tuple[Statistics, Tensor]:
    """Return the sums over all n rows, and the number of the chunk with the largest norm."""
    chunks = rows.chunks()
    total = statistics(process, next(chunks), n, own_variance=own_variance)
    largest = [total.largest_norm]
    for chunk in chunks:
        more = _tensors(statistics(process, chunk, n, own_variance=own_variance))
        largest.append(more["largest_norm"])
        sums = {name: value + more[name] for name, value in _tensors(total).items()}
        sums["largest_norm"] = torch.maximum(total.largest_norm, largest[-1])
        total = Statistics(n, **sums)
    return total, torch.stack(largest).argmax()


def _tensors(sums: Statistics) -> dict[str, Tensor]:
    return {name: value for name, value in sums._asdict().items() if name != "n"}
