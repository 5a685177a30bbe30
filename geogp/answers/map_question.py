"""What the map of a run predicts, or what else a user asks of the model at places."""

from geogp.answers.requests import PlaceQuestion
from geogp.choices import CLASS, COUNT
from geogp.errors import RequestError
from geogp.evaluation.conformal.repair_methods import BY_STRATA
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.targets import find_target
from geogp.models.names import find_model
from geogp.records.record_names import LEVEL, QUESTIONS
from geogp.records.run_record import OpenedRecord, given
from geogp.runs.question import Question


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
