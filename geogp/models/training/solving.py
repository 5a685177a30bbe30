"""The mean of the weights in closed form at the end of a fit."""

import logging
import math
from collections.abc import Callable

import torch

from geogp.errors import NumericalError, RequestError
from geogp.models.core.lowrank import LowRankGP, Rows

logger = logging.getLogger(__name__)


def check_solvable(model: LowRankGP) -> None:
    """Refuse models whose mean is not that of a regression on rows.

    Raises
    ------
    RequestError
        It is not.
    """
    if not model.can_solve_mean:
        raise RequestError(f"expected no solve_mean: not for the posterior of {model.name}.")


def solve_mean(model: LowRankGP, rows: Rows, validate: Callable[[], float], best: float) -> float:
    """Take the mean of the weights given the rows, where the validation score agrees.

    See `condition`. Covariance and all else stay as they are.

    Parameters
    ----------
    model
        A fitted model that `check_solvable` takes.
    rows
        Its training rows.
    validate
        Returns the validation score of the model as it is.
    best
        That of the model as it was learned.

    Returns
    -------
    float
        The lower of the two scores.
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
