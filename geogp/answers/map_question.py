"""What the map of a run predicts, or what else a user asks of the model at places."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from geogp.answers.requests import PlaceQuestion
from geogp.choices import CLASS, COUNT
from geogp.errors import RequestError
from geogp.evaluation.conformal.repair_methods import BY_STRATA
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.targets import find_target
from geogp.maps.target_quantities import quantity_of
from geogp.models.names import find_model
from geogp.records.record_names import LEVEL, QUESTIONS
from geogp.records.run_record import OpenedRecord, given
from geogp.runs.question import Question
from geogp.runs.reopen import Reopened


def question_of(record: OpenedRecord, request: PlaceQuestion) -> Question:
    """Return the predicted quantity; raise RequestError if the model cannot predict it.

    Without options, this is the quantity and the quarter of the map.
    """
    model, drawn = find_model(record.model), record.map
    quarter, latest = quarter_index(drawn.at), quarter_index(record.quarters[-1])
    if model.kind == CLASS:
        raise RequestError(
            f"the target of this run is a class ({record.target}), which geogp at cannot predict. "
            "Click a place on the map page, or read tiles.parquet."
        )
    if model.counts:
        if request.question or request.tests or request.devices:
            raise RequestError(
                "the run predicts numbers of tests; --for, --tests and --devices describe averages "
                "of tests. Leave these options out."
            )
        return Question(COUNT, quarter, latest, None)
    if find_target(record.target).is_share:
        if request.question not in {None, LEVEL} or request.tests or request.devices:
            raise RequestError(
                "the run predicts the probability that a test succeeds; --for, --tests and "
                "--devices describe averages of tests. Leave these options out."
            )
        return Question(LEVEL, quarter, latest, None, shares=True)
    mean, single, _ = QUESTIONS
    name = request.question or (mean if request.tests or request.devices else drawn.question)
    if name != mean and (request.tests or request.devices):
        raise RequestError(
            f"--tests and --devices describe a tile mean; --for {name} does not use these numbers. "
            f"Leave them out, or choose --for {mean}."
        )
    if name == LEVEL and not model.has_spread:
        raise RequestError(
            f"{model.name} does not state the uncertainty of its level. Choose --for {mean} or "
            f"--for {single}."
        )
    if name == LEVEL or not (model.has_tiles or record.settings.checks.conformal == BY_STRATA):
        return Question(name, quarter, latest, None)
    if name == single:
        return Question(name, quarter, latest, 1, 1 if model.has_tiles else None)
    tests = request.tests or (drawn.tests if drawn.question == mean else None)
    if tests is None:
        raise RequestError(
            f"expected --tests with --for {mean}, because the run's map is --for {drawn.question}."
        )
    devices = request.devices
    if devices is None and tests == drawn.tests:
        devices = given(drawn.devices, None)
    return Question(name, quarter, latest, tests, devices if model.has_tiles else None)


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
