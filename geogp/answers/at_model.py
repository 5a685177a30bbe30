"""Predictions of the model of a run at places."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.answers.asked_tiles import LEVELS, Asked, level_beside
from geogp.answers.requests import AtRequest
from geogp.distributions.quantity import Quantity
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import load_with_notes
from geogp.evaluation.conformal.conformal_cells import Cell, RepairPlaces
from geogp.evaluation.conformal.conformal_repair import NO_REPAIR, Repair
from geogp.evaluation.conformal.repair_methods import LOCAL, NONE
from geogp.geodata.places.stratum_names import STRATA
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.targets import target_names
from geogp.geodata.tiles.thresholds import Threshold
from geogp.maps.target_quantities import quantity_of
from geogp.records.record_names import LEVEL
from geogp.records.run_record import OpenedRecord, RunRecord, given
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.run_covariates import PlaceTables
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import MODEL_FILE, check_model

if TYPE_CHECKING:
    from geogp.distributions.prediction import Prediction
    from geogp.runs.reopen import Reopened

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PlaceModel:
    """The model of a run, which predicts at places; `notes` are all entries of its file.

    `reopen` reads the data of the run, which is only needed for covariates and for the repair
    ``local``.
    """

    path: Path
    record: RunRecord
    model: SpatialGP
    notes: dict[str, Any]
    reopen: Callable[[], "Reopened"]

    @classmethod
    def of_request(
        cls, request: AtRequest, record: RunRecord, listener: ProgressListener
    ) -> "PlaceModel":
        """Load the model of a request's run."""

        def reopen() -> "Reopened":
            # Slow, and rarely needed.
            from geogp.answers.make import stored_run, with_data  # noqa: PLC0415

            return with_data(stored_run(request, listener), counts=True)

        with arithmetic(precision=record.precision):
            loaded = load_with_notes(request.run / MODEL_FILE, device=request.device)
        return cls(request.run, record, *loaded, reopen)

    def columns(self, asked: Asked) -> pd.DataFrame:
        """Return the median, intervals, level and probabilities, (t q,), sorted by tile.

        Raises DataError if run.json contradicts the model's file.
        """
        check_model(self.path, self.record, self.model.model, self.notes)
        with arithmetic(precision=self.record.precision):
            prediction, level = self._predict(asked)
        joint = None
        if prediction.targets > 1:
            joint, prediction = prediction, prediction.marginal(asked.target)
            level = None if level is None else level.marginal(asked.target)
        table = _columns(prediction, level, quantity_of(asked.target), asked.thresholds)
        return table.assign(**{tier.variable: tier.probability(joint) for tier in asked.tiers})

    def _predict(self, asked: Asked) -> tuple[Any, Any]:
        """Return the predictions and, if an answer has it beside them, the level.

        They are joint predictions of several targets.
        """
        own, quarters, question = asked.own, asked.quarters, asked.question
        tables, repair = self._context(asked.record)
        # The rows of a tile are at its centre.
        x, y = quadkeys.tile_centres(*quadkeys.codes_to_tiles(own.code))
        west, _, east, _ = self.model.scale_.bounds
        x = x - 360 * np.round((x - (west + east) / 2) / 360)
        times = len(quarters)
        x, y, place = np.repeat(x, times), np.repeat(y, times), np.repeat(own.place, times)
        when = np.tile(np.array(quarters, np.int64), len(own.code))
        table = tables.at(x, y, when, provider=question.provider)
        together = len(target_names(self.record.target)) > 1
        shown = self.model.of_target(asked.target) if together else self.model
        inputs, tests = shown.inputs(table), float(question.tests or 1)
        of_level = question.name == LEVEL
        prediction = self.model.predicted(inputs, tests, question.devices, level=of_level)
        beside = level_beside(asked.record, question)
        level = self.model.predicted(inputs, tests, level=True) if beside else None
        if not repair.n or of_level:
            return prediction, level
        names = asked.record.strata or STRATA
        places = RepairPlaces(
            asked.tiles.stratum[place], np.full(len(x), tests), x, y, (names[0], names[1])
        )
        return repair.apply(prediction, places), level

    def _context(self, record: OpenedRecord) -> tuple[PlaceTables, Repair]:
        """Return the covariates and the conformal repair of the run."""
        calibration = given(record.calibration, None)
        method = NONE if calibration is None else given(calibration.method, NONE)
        if record.settings.data.covariates or method == LOCAL:
            from geogp.runs.pipeline.repair import repair_of  # noqa: PLC0415 - slow
            from geogp.runs.pipeline.splits import (  # noqa: PLC0415 - slow
                map_calibration_rows,
            )

            opened = self.reopen()
            settings, inputs = opened.settings, opened.inputs
            rows = map_calibration_rows(settings, inputs)
            return inputs.places, repair_of(settings.conformal, inputs, self.model, rows)
        if calibration is None or method == NONE:
            return PlaceTables(), NO_REPAIR
        cells = tuple(
            Cell(
                cell.stratum,
                cell.tests[0] or 1,
                cell.tests[1],
                cell.n,
                tuple(np.nan if knot is None else knot for knot in cell.knots),
            )
            for cell in given(calibration.cells, [])
        )
        return PlaceTables(), Repair(method, given(calibration.n, 0), cells)


def _columns(
    prediction: "Prediction",
    level: "Prediction | None",
    quantity: Quantity,
    thresholds: Sequence[Threshold],
) -> pd.DataFrame:
    """Return median, intervals, level and probabilities of predictions, in units of people."""

    def value(y: Floats) -> Floats:
        return y if quantity.counted else quantity.scale.values(y)

    columns = {f"median_{quantity.suffix}": value(prediction.median)}
    for percent in LEVELS:
        for side, bound in zip(("lower", "upper"), prediction.interval(percent / 100), strict=True):
            columns[f"{side}_{percent}_{quantity.suffix}"] = value(bound)
    if level is not None:
        columns[f"level_{quantity.suffix}"] = value(level.median)
    for threshold in thresholds:
        columns[threshold.variable] = threshold.probability(prediction)
    return pd.DataFrame(columns)
