"""The average of a model's parameters over its last steps."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from geogp.models.core.lowrank import LowRankGP


class ParameterAverage:
    """Exponential average of a model's parameters over about `span` steps; 0 keeps none.

    The first spans are shorter, so that the start is soon forgotten.
    """

    def __init__(self, model: LowRankGP, span: float) -> None:
        self.span = span
        self.parameters = [value.detach() for value in model.parameters()] if span else []
        self.values = [value.clone() for value in self.parameters]
        self.count = torch.zeros((), dtype=torch.float64)

    def update(self) -> None:
        """Take the parameters after a step."""
        if self.span:
            self.count += 1
            share = max(1 / self.span, 9 / (10 + float(self.count)))
            torch._foreach_lerp_(self.values, self.parameters, min(share, 1.0))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged parameters inside the block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for parameter, value in zip(self.parameters, self.values, strict=True):
            held = parameter.clone()
            parameter.copy_(value)
            value.copy_(held)

    def tensors(self) -> dict[str, Tensor]:
        """Return what `load` takes."""
        held = {str(index): value for index, value in enumerate(self.values)}
        return {**held, "count": self.count} if held else {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of an earlier average.

        Raises ValueError: its count of steps is not a number of 0 or more.
        """
        if self.values and not 0 <= float(tensors["count"]) < math.inf:
            raise ValueError("the steps of its average are no number")
        for index, value in enumerate(self.values):
            value.copy_(tensors[str(index)])
        if self.values:
            self.count.copy_(tensors["count"])
