"""What a checkpoint must hold before a fit continues from it.

Its hash tells whether it was changed by chance, not whether it was ever right.
"""

from typing import Any

from torch import Tensor


def checked_state(described: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a `FitState` in a checkpoint.

    Raises
    ------
    ValueError, TypeError, KeyError
        It is none: epochs are no whole numbers, or not as many as the scores.
    """
    epoch, best = described["epoch"], described["best_epoch"]
    losses, scores = described["losses"], described["validation_nll"]
    numbers = (*losses, *scores, described["best_nll"], described["seconds"])
    if (
        any(type(value) is not int for value in (epoch, best))
        or any(type(value) not in {int, float} for value in numbers)
        or not 0 <= best <= epoch
        or not epoch == len(losses) == len(scores)
    ):
        raise ValueError("its epochs and scores are not those of a fit")
    return described


def check_alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Refuse tensors that have not the names and shapes of others.

    Raises
    ------
    ValueError
        They differ.
    """
    shapes = [{name: value.shape for name, value in held.items()} for held in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError("its best parameters are not those of the model")
