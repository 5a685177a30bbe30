"""The medians that the map of a run shows, beside answers about the level."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from geogp.answers.map_question import question_of
from geogp.answers.requests import PlaceQuestion
from geogp.maps.target_quantities import quantity_of
from geogp.records.record_names import LEVEL
from geogp.runs.question import Question
from geogp.runs.reopen import Reopened


def drawn_question(opened: Reopened) -> Question:
    """Return what the map of the run predicts, in the quarter of the answer."""
    asked = opened.question
    own = question_of(opened.record, PlaceQuestion())
    # Runs of earlier versions do not state the typical number of devices.
    devices = asked.devices if own.devices is None and own.tests else own.devices
    return replace(
        own,
        quarter=asked.quarter,
        latest=asked.latest,
        devices=devices,
        provider=asked.provider,
    )


def mean_medians(
    opened: Reopened, weights: sparse.csc_array, quarter: int
) -> NDArray[np.float64] | None:
    """Return means of the medians that the map shows in a quarter, with weights (n, k), (k,).

    They are on the scale of the model, as means of the level are. None if the map shows the level.
    """
    question = drawn_question(opened)
    if question.name == LEVEL:
        return None
    law = opened.map_law(replace(question, quarter=quarter))
    means: NDArray[np.float64] = weights.T @ law.median
    return means


def median_changes(
    opened: Reopened, weights: sparse.csc_array, quarters: tuple[int, int]
) -> dict[str, NDArray[np.float64]]:
    """Return columns about the map's medians in two quarters; none if the map shows the level."""
    before, after = (mean_medians(opened, weights, quarter) for quarter in quarters)
    if before is None or after is None:
        return {}
    quantity = quantity_of(opened.settings.target)
    scale, unit = quantity.scale, quantity.suffix
    return {
        f"map_median_from_{unit}": scale.values(before),
        f"map_median_to_{unit}": scale.values(after),
        f"map_median_change_{scale.change_tag}": scale.changes(after - before),
    }


def beside_the_level(predicted: str) -> str:
    """Return a sentence on the map's medians beside levels; the map predicts `predicted`."""
    return f" The map's median is the same mean of what the map shows: medians of {predicted}."
