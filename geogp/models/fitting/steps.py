"""Evaluation of an objective and its gradient, by batches or over all rows at once."""

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from geogp.errors import RequestError
from geogp.models.options import Weights
from geogp.models.process.objectives import BatchObjective, Statistics, WholeObjective

if TYPE_CHECKING:
    from geogp.distributions.prediction import Prediction
    from geogp.models.process.lowrank import LowRankProcess, Rows

M = TypeVar("M", bound="LowRankProcess")


class Step(ABC, Generic[M]):
    """How a class of models is trained: which rows a step uses, and how it learns from them.

    `one_core_each` is true if the operations are small; see the function `one_core_each`.
    `same_kernels` is true if `RecordedStep` can record a step.
    """

    one_core_each: ClassVar[bool] = False
    same_kernels: ClassVar[bool] = False

    def rows(self, batch: int, n: int) -> int:
        """Return how many of the n rows a step uses; by default the requested batch size."""
        return min(batch, n)

    def gathered(self, rows: "Rows") -> "Rows":
        """Return the rows in the form that the steps need; by default unchanged."""
        return rows

    def complete(self, share: float) -> bool:
        """Return whether an epoch ending at fraction `share` of the fit trains the whole model."""
        return True

    @abstractmethod
    def parts(
        self, model: M, rows: "Rows", batch: int, rng: np.random.Generator, share: float
    ) -> list["Part"]:
        """Divide the rows into the steps of an epoch that ends at fraction `share` of the fit."""

    @abstractmethod
    def split(self, model: M, rows: "Rows", part: "Part", count: int) -> list["Part"]:
        """Divide a part into `count` parts for several processes; a part may be empty."""

    def placed(self, model: M, rows: "Rows", batch: int) -> Callable[["Part"], "Part"]:
        """Return a function that copies a part to a GPU, for `RecordedStep`; by default nothing."""
        return lambda part: part

    @abstractmethod
    def learn(self, model: M, rows: "Rows", part: "Part", weights: Weights) -> Tensor:
        """Add the gradient of a part's loss per datum to the parameters; return the loss."""

    def predicted(self, model: M, rows: "Rows", share: float) -> "Prediction":
        """Predict held-out rows after an epoch that ends at fraction `share` of the fit."""
        return model.predict_scaled(rows.x, rows.counts)


def no_prior(model: "LowRankProcess") -> Tensor:
    """Return 0, the log density of a flat prior."""
    return torch.zeros((), dtype=torch.float64, device=model.device)


class Part(NamedTuple):
    """The `n` rows of one step, as row numbers or as numbers of whole places.

    `seed` depends on the row numbers alone, for steps that draw random numbers. With `shapes`,
    `numbers` has arrays of these shapes, one after the other; see `BlockRows`.
    """

    numbers: Tensor
    n: int
    whole_places: bool = False
    seed: int = 0
    shapes: Sequence[tuple[int, ...]] = ()


class ByInputs(Step[M]):
    """A training step that does not depend on the places of its rows.

    `splits` is true if the objective is a mean over rows; processes can then share a step.
    `combines` is true if the objective needs only the `Repeats` of rows with equal inputs.
    """

    splits: ClassVar[bool] = True
    combines: bool = True

    @abstractmethod
    def backward(self, model: M, rows: "Rows", n: int, weights: Weights) -> Tensor:
        """Add the gradient of the rows' loss per datum to the parameters; return the loss."""

    def gathered(self, rows: "Rows") -> "Rows":
        """Collapse rows with equal inputs (see `Repeats`), if there are two or more on average."""
        if not self.combines:
            return rows
        found = rows.collapsed()
        return found if len(found.y) <= rows.n / 2 else rows

    def parts(
        self, model: M, rows: "Rows", batch: int, rng: np.random.Generator, share: float
    ) -> list[Part]:
        """Divide the inputs, in random order, into batches of about `batch` rows."""
        inputs = len(rows.y)
        size = math.ceil(self.rows(batch, rows.n) * inputs / rows.n)
        order = torch.as_tensor(rng.permutation(inputs))
        repeats = torch.ones(inputs) if rows.repeats is None else rows.repeats.rows.cpu()
        pairs = zip(order.split(size), order.to(model.device).split(size), strict=True)
        return [
            Part(there, int(repeats[here].double().sum()), seed=_seed(here))
            for here, there in pairs
        ]

    def split(self, model: M, rows: "Rows", part: Part, count: int) -> list[Part]:
        """Divide a part into `count` parts; raise RequestError if `splits` is false."""
        if not self.splits:
            raise RequestError(
                f"{model.name} is fitted to all rows at once, so {count} processes cannot share "
                "the fit. Start the fit without torchrun, or choose a model that is fitted in "
                "batches, such as field."
            )
        pieces = part.numbers.tensor_split(count)
        return [Part(own, rows.at(own).n, seed=_seed(own)) for own in pieces]

    def learn(self, model: M, rows: "Rows", part: Part, weights: Weights) -> Tensor:
        """Add the gradient of a part's loss per datum to the parameters; return the loss."""
        return self.backward(model, rows.at(part.numbers, part.n), rows.n, weights)


def _seed(numbers: Tensor) -> int:
    return zlib.crc32(numbers.cpu().numpy().tobytes())


@dataclass(frozen=True)
class PerBatch(ByInputs["LowRankProcess"]):
    """Training step on the objective of a batch of rows; see `Step`."""

    same_kernels: ClassVar[bool] = True
    objective: BatchObjective
    combines: bool = True

    def backward(self, model: "LowRankProcess", rows: "Rows", n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss to the parameters; return the loss."""
        terms = replace(model.terms(rows.x), repeats=rows.repeats)
        loss = self.objective(terms, rows.y, n, weights)
        loss.backward()
        return loss.detach().double()


@dataclass(frozen=True)
class WholeData(ByInputs[M]):
    """Training step for the loss -(log likelihood of all rows + log prior) / n; see `Step`.

    The first pass computes sums over the rows, in chunks, and the gradient by the sums. The second
    pass propagates this gradient to the features of each chunk. Memory does not grow with n. One
    pass is enough for a single chunk.

    `objective`: the log likelihood, a function of `Statistics` and the noise variance.
    `prior`: a log prior, added to the log likelihood.
    `own_variance`: whether the variance of a row is noise_var plus the residual k~(x, x) - ||phi||²
        at the row's input. If so, the sums weight each row by its inverse variance.
    """

    splits: ClassVar[bool] = False

    objective: WholeObjective
    prior: Callable[[M], Tensor] = no_prior
    own_variance: bool = False

    def rows(self, batch: int, n: int) -> int:
        """Return n, because the likelihood does not split into batches."""
        return n

    def backward(self, model: M, rows: "Rows", n: int, weights: Weights) -> Tensor:
        """Add the gradient of the loss to the parameters; return the loss."""
        single = len(list(rows.chunks())) == 1
        if single:
            total = statistics(model, rows, n, own_variance=self.own_variance)
        else:
            total, peak = _total(model, rows, n, own_variance=self.own_variance)
            for value in _tensors(total).values():
                value.requires_grad_()
        loss = -(self.objective(total, model.noise()) + self.prior(model)) / n
        loss.backward()
        if single:
            return loss.detach().double()
        gradients = {name: value.grad for name, value in _tensors(total).items()}
        by_largest = gradients["largest_norm"]
        for index, part in enumerate(rows.chunks()):
            sums = _tensors(statistics(model, part, n, own_variance=self.own_variance))
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
    model: "LowRankProcess", rows: "Rows", n: int, *, own_variance: bool = False
) -> Statistics:
    """Return the sums of a chunk, on the scale of the standardised target; n counts all rows."""
    features = model.basis(rows.x)
    phi, norm = features.phi.double(), features.norm.double()
    residual = rows.y.double() - model.mean_constant.double()
    square, count = residual.square(), torch.ones_like(norm)
    if rows.repeats is not None:
        count, scatter = (part.double() for part in rows.repeats)
        square = square + scatter
    weight, log_variance = count, torch.zeros_like(norm)
    if own_variance:
        variance = model.noise().double() + features.residual.double()
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
    model: "LowRankProcess", rows: "Rows", n: int, *, own_variance: bool
) -> tuple[Statistics, Tensor]:
    """Return the sums over all n rows, and the number of the chunk with the largest norm."""
    chunks = rows.chunks()
    total = statistics(model, next(chunks), n, own_variance=own_variance)
    largest = [total.largest_norm]
    for chunk in chunks:
        more = _tensors(statistics(model, chunk, n, own_variance=own_variance))
        largest.append(more["largest_norm"])
        sums = {name: value + more[name] for name, value in _tensors(total).items()}
        sums["largest_norm"] = torch.maximum(total.largest_norm, largest[-1])
        total = Statistics(n, **sums)
    return total, torch.stack(largest).argmax()


def _tensors(sums: Statistics) -> dict[str, Tensor]:
    return {name: value for name, value in sums._asdict().items() if name != "n"}
