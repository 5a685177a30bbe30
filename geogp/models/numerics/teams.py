"""The processes of torchrun that work together; sums and maxima over these processes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Team:
    """Processes that do the same work, each for its own rows.

    `rank` is the number of this process, counted from 0; `size` is the number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process is the leader, which reads, reports and writes."""
        return self.rank == 0

    def own(self, n: int) -> slice:
        """Return this process's share of n rows; the sizes of shares differ by at most one row."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over the processes, and overwrite `value` with the sum."""
        if self.size > 1:
            distributed.all_reduce(value)
        return value

    def largest(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return the largest value of all processes, a scalar with a gradient, from values (b,).

        The gradient is for a mean over the rows of all processes; this process has `rows` rows.
        """
        if self.size == 1:
            return torch.max(values)
        return _Largest.apply(values, rows, self)  # type: ignore[no-untyped-call, no-any-return]


def current_team() -> Team:
    """Return the processes of `team`; outside `team`, return a team of this process only."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Team()
    return Team(distributed.get_rank(), distributed.get_world_size())


class _Largest(torch.autograd.Function):
    """The maximum over processes; equal maxima share the gradient, as in `torch.max`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: Tensor, team: Team) -> Tensor:
        largest = values.max()
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        here = values == largest
        ctx.team, ctx.ties = team, team.total(here.sum())
        ctx.save_for_backward(here, rows)
        return largest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        here, rows = ctx.saved_tensors
        # They are gradients of means over rows; the sum weights them by numbers of rows.
        by_all = ctx.team.total(gradients[0] * rows)
        return here * (by_all / (ctx.ties * rows)), None, None
