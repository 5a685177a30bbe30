"""The mean of the weights in closed form at the end of a fit."""

import logging
import math
from collections.abc import Callable

import torch

from geogp.errors import NumericalError, RequestError
from geogp.models.core.lowrank import LowRankGP, Rows

logger = logging.getLogger(__name__)


def check_solvable(model: LowRankGP) -> None:
    """Refuse models whose mean does not follow from a regression on rows.

    Raises RequestError: it does not.
    """
    if not model.can_solve_mean:
        raise RequestError(f"expected no solve_mean: not for the posterior of {model.name}.")


def solve_mean(model: LowRankGP, rows: Rows, validate: Callable[[], float], best: float) -> float:
    """Replace the mean of the weights by its closed form, if the validation score falls.

    See `condition`; covariance and all other parameters stay. `validate` returns the model's
    validation score, `best` is the score before. Returns the lower score.
    """
    m, _ = model.posterior.weights()
    with torch.no_grad():
        before, score = m.clone(), math.inf
        try:
            m.copy_(model.conditioned(rows)[0])
            score = validate()
        except NumericalError as error:
            logger.warning("the mean of the weights is left as it was learned: %s", error)
        if score < best:
            return score
        m.copy_(before)
    return best
