"""Checks of a checkpoint before a fit continues from it.

Its hash shows that it was not changed, not that it was ever right.
"""

import math
from typing import Any

from torch import Tensor


def checked_state(described: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Return the description of a `FitState` in a checkpoint of a fit of `epochs` epochs.

    Raises ValueError, TypeError or KeyError: epochs are not whole numbers, are too many, or differ
    from the number of scores; or losses or scores are not finite (the best score of no epoch is
    inf).
    """
    epoch, best = described["epoch"], described["best_epoch"]
    losses, scores = described["losses"], described["validation_nll"]
    numbers = (*losses, *scores, described["best_nll"], described["seconds"])
    if (
        any(type(value) is not int for value in (epoch, best))
        or any(type(value) not in {int, float} for value in numbers)
        or not all(math.isfinite(value) for value in (*losses, *scores, described["seconds"]))
        or not described["best_nll"] > -math.inf
        or not 0 <= best <= epoch <= epochs
        or not epoch == len(losses) == len(scores)
    ):
        raise ValueError("its epochs and scores are not those of a fit")
    return described


def check_alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Refuse tensors with other names or shapes than the model's.

    Raises ValueError: they differ.
    """
    shapes = [{name: value.shape for name, value in held.items()} for held in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError("its tensors are not those of the model")


def check_begun(moments: dict[str, Tensor], epoch: int) -> None:
    """Refuse a fit with finished epochs but no state of its optimiser.

    Raises ValueError: the state is missing.
    """
    if epoch and not moments:
        raise ValueError("it has no state of the optimiser")
