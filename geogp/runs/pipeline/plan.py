"""The second step of a run: what the map shows, and how its models are made."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from geogp.choices import AVERAGE, check_sample
from geogp.errors import RequestError
from geogp.evaluation.conformal.repair_methods import BY_STRATA
from geogp.evaluation.splits.split_names import RANDOM, SESSION, TILES
from geogp.evaluation.splits.split_rows import LEAST_SESSIONS
from geogp.geodata.places.region import Region
from geogp.geodata.places.stratum_names import UNKNOWN
from geogp.geodata.tiles.quarters import quarter_index, quarter_label
from geogp.geodata.tiles.targets import find_target
from geogp.models.exact.passes import MOST_ROWS
from geogp.models.names import ModelName, find_model
from geogp.records.map_settings import MAX_TILES, MapSettings
from geogp.records.record_names import LEVEL, OTHER_QUESTIONS
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.run_model import RunModel, why_not_by_drive
from geogp.runs.pipeline.splits import same_splits
from geogp.runs.progress import RunListener
from geogp.runs.question import Question, check_quarter


@dataclass(frozen=True)
class Plan:
    """What is decided before the fits: how models are made, and what the map shows.

    `refits` says whether the map needs its own fit, in addition to the fits of the splits.
    """

    model: RunModel
    question: Question
    refits: bool


def plan_map(
    settings: MapSettings, inputs: Inputs, device: torch.device, listener: RunListener
) -> Plan:
    """Return the plan of a map; warn of misleading maps.

    Raises RequestError if the model cannot predict the map, the zoom gives too few tiles or the
    repair needs strata that some tiles lack.
    """
    settings = _asked_once(_with_session(settings, inputs), inputs, listener)
    model = RunModel.of(settings, inputs, device)
    _check_drives(inputs, model, listener)
    _check_errors(inputs)
    question = question_of(settings, inputs)
    inputs.region.check_zoom(settings.zoom)
    _check_strata(settings, inputs.region)
    quarters, timeless = inputs.observations.quarters, model.scale.times is None
    check_quarter(question.quarter, quarters, model.name, timeless=timeless)
    _check_question(settings, question, model.name, listener)
    if question.beyond:
        listener.warn(
            f"the map shows {question.at}, but the data end in {quarter_label(quarters[-1])}: the "
            "predicted level stays constant, and the intervals become wider."
        )
    return Plan(model, question, model.preset.refit or RANDOM.name not in settings.splits)


def _with_session(settings: MapSettings, inputs: Inputs) -> MapSettings:
    """Return the settings with a split by drives, if there are enough and no split is named."""
    drive, named = inputs.observations.drive, settings.split not in {None, "all"}
    if named or drive is None or len(np.unique(drive)) < LEAST_SESSIONS:
        return settings
    return replace(settings, split=",".join([*settings.splits, SESSION.name]))


def _asked_once(settings: MapSettings, inputs: Inputs, listener: RunListener) -> MapSettings:
    """Return the settings without the split by tiles, if the random split asks the same."""
    if TILES.name not in settings.splits or TILES.name not in same_splits(settings, inputs):
        return settings
    listener.stage("each tile has one row, so the splits random and tiles are fitted once")
    return replace(settings, split=",".join(set(settings.splits) - {TILES.name}))


def _check_drives(inputs: Inputs, model: RunModel, listener: RunListener) -> None:
    """Warn if the model does not know the drives of a log of drives.

    Raises RequestError for a repair of a model that knows them: calibration rows are of drives that
    were seen, and would make intervals too narrow for new drives.
    """
    settings = model.settings
    if model.by_drive and settings.devices not in {None, 1}:
        listener.warn("the measurements of a drive are of one device: --devices has no effect.")
    if model.by_drive and settings.calibrated:
        raise RequestError(
            f"--conformal {settings.conformal} repairs intervals with rows of known drives, and "
            "the intervals of a log of drives are for new drives. Leave --conformal out."
        )
    why = why_not_by_drive(settings, inputs)
    if why is not None and inputs.points is not None:
        listener.warn(
            f"{inputs.points.path.name} is a log of drives, whose tests err together, but the "
            f"model does not know them: {why}. Intervals hold for tests of these drives, and are "
            "too narrow for new drives."
        )


def _check_errors(inputs: Inputs) -> None:
    """Raise RequestError if known errors of rows need an exact process of too many rows."""
    rows = inputs.observations
    if rows.error_variance is not None and len(rows) > MOST_ROWS:
        raise RequestError(
            f"--columns error_sd= needs an exact process, of at most {MOST_ROWS:,} rows, where a "
            f"row is one tile in one quarter, found {len(rows):,}. Choose fewer quarters with "
            "--quarters or a smaller region, or leave error_sd out."
        )


def question_of(settings: MapSettings, inputs: Inputs) -> Question:
    """Return the predicted quantity and the quarter of the map.

    A run by provider maps the provider with most rows.
    """
    name, rows = find_model(settings.model), inputs.observations
    latest = rows.quarters[-1]
    quarter = latest if settings.at is None else quarter_index(settings.at)
    if name.kind != AVERAGE:
        return Question(name.kind, quarter, latest, None)
    typical = max(1, round(float(np.median(rows.tests))))
    tests = 1 if settings.question == "single-test" else settings.tests or typical
    knows_tests = name.has_tiles or settings.conformal == BY_STRATA
    counted = knows_tests and settings.question != LEVEL
    devices = None
    if name.has_tiles and counted:
        devices = settings.devices or rows.typical_devices(tests)
    provider = inputs.providers[0] if inputs.providers else None
    if find_target(settings.target).is_share:
        return Question(LEVEL, quarter, latest, None, provider=provider, shares=True)
    return Question(
        settings.question, quarter, latest, tests if counted else None, devices, provider
    )


def _check_strata(settings: MapSettings, region: Region) -> None:
    """Raise RequestError if the repair uses strata and some tiles have no stratum."""
    strata = region.strata
    if settings.conformal != BY_STRATA or strata is None or strata.rest is None:
        return
    tiles = region.tiles(region.zoom_within(settings.zoom, MAX_TILES))
    lost = int((region.stratum(*tiles.centres) == UNKNOWN).sum())
    if lost:
        raise RequestError(
            f"--conformal {BY_STRATA} needs the stratum of every tile, but {lost:,} of "
            f"{len(tiles):,} tiles lie in neither {strata.names[0]} nor {strata.names[1]}. Extend "
            f"the polygons of --strata, or choose --conformal marginal or local."
        )


def _check_question(
    settings: MapSettings, question: Question, name: ModelName, listener: RunListener
) -> None:
    """Raise RequestError if the model cannot predict the quantity; warn of misleading maps."""
    check_sample(question.tests, question.devices)
    if settings.devices is not None and question.devices is None:
        listener.warn(
            f"the noise of {name.name} does not depend on devices: --devices has no effect."
        )
    chosen = settings.question == "single-test" or settings.tests or settings.devices
    if question.tests is None and question.name not in {LEVEL, *OTHER_QUESTIONS} and chosen:
        listener.warn(
            f"the noise of {name.name} does not depend on the number of tests: the map predicts "
            "measurements with as many tests as those in the data."
        )
    if question.name == LEVEL and not name.has_spread:
        raise RequestError(
            f"{name.name} does not state the uncertainty of its level, so --for level has no "
            f"intervals. Choose --for tile-mean or --for single-test, or another model."
        )
    if question.name == LEVEL and name.spread_is_noise:
        listener.warn(
            f"the function variance of {name.name} also contains noise that varies over space, so "
            "the intervals of the level are too wide."
        )
