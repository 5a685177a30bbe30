"""Predictions of a finished run at places, such as addresses, from the files in the run folder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from msgspec import UNSET
from numpy.typing import NDArray

from geogp.answers.answer import Answer, Column, with_rows
from geogp.answers.map_question import question_of
from geogp.answers.map_tiles import TILES_FILE, MapTiles, read_map_tiles
from geogp.answers.places import read_places_of, rows_of
from geogp.answers.requests import ALL_QUARTERS, AtRequest, PlaceQuestion
from geogp.distributions.quantity import Quantity
from geogp.errors import RequestError
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import load_with_notes
from geogp.evaluation.conformal.conformal_cells import Cell, RepairPlaces
from geogp.evaluation.conformal.conformal_repair import NO_REPAIR, Repair
from geogp.evaluation.conformal.repair_methods import LOCAL, NONE
from geogp.geodata.places.distances import nearest_km, sums_within_km
from geogp.geodata.places.stratum_column import STRATA
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index, quarter_label
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.maps.csv_tables import csv_content
from geogp.maps.target_quantities import quantity_of
from geogp.models.names import find_model
from geogp.records.record_names import LEVEL
from geogp.records.record_reading import complete_record
from geogp.records.run_record import OpenedRecord, RunRecord, given
from geogp.runs.output_files import OutputFiles
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.run_covariates import PlaceTables
from geogp.runs.progress import ProgressListener
from geogp.runs.question import Question, check_quarter
from geogp.runs.run_folder import MODEL_FILE, check_model, locked_run
from geogp.value_scales import suffix_of

if TYPE_CHECKING:
    from geogp.distributions.prediction import Prediction
    from geogp.runs.reopen import Reopened

Floats = NDArray[np.float64]

LEVELS = (50, 80, 95)
"""Levels of the intervals in percent."""


@dataclass(frozen=True)
class _OwnTiles:
    """The t different tiles of zoom 16 in which m places lie, in the order of the places.

    `place` is the index of each tile's tile in the map, (t,); `number` is the index of each place's
    tile, (m,).
    """

    code: NDArray[np.uint64]
    place: NDArray[np.int64]
    number: NDArray[np.intp]

    @classmethod
    def of_places(
        cls, longitude: Floats, latitude: Floats, place: NDArray[np.int64]
    ) -> "_OwnTiles":
        code = quadkeys.tiles_to_codes(*quadkeys.tiles_at(longitude, latitude))
        # At the border, a tile of zoom 16 may have places in several tiles of the map.
        pairs = pd.MultiIndex.from_arrays([code, place])
        first = ~pairs.duplicated()
        return cls(code[first], place[first], pairs.factorize()[0])


@dataclass(frozen=True)
class PlaceAnswers:
    """Predictions with a row for each place and quarter, and the common entries for JSON.

    `outside` are the indices of the places outside the region, whose rows have no prediction.
    """

    table: pd.DataFrame
    outside: tuple[int, ...]
    described: dict[str, Any]


def place_answers(
    run: tuple[Path, RunRecord],
    loaded: tuple[SpatialGP, dict[str, Any]],
    places: tuple[Floats, Floats],
    request: PlaceQuestion,
    reopen: Callable[[], "Reopened"],
) -> PlaceAnswers:
    """Return the predictions of a run at m places, given as longitudes and latitudes in degrees.

    `run` is the folder and the record of the run, and `loaded` its model with the notes of its
    file.

    A place has the prediction for its tile of zoom 16. The columns are ``latitude``, ``longitude``,
    ``in_region``, ``quarter``, ``speaks_of``, the median and the intervals, the level (such as
    ``level_mbps``, unless the median is that of the level), the probabilities of the thresholds,
    ``tests_near`` (tests of all quarters within `near_km`), ``nearest_measured_km`` (distance to
    the centre of the nearest measured tile), ``stratum``, ``county`` if the run has counties, and
    ``quadkey``. `reopen` reads the data of the run, which is only needed for covariates and for the
    repair ``local``.

    Raises RequestError if the model cannot make the prediction, and DataError if a file of the run
    is damaged or of another version.
    """
    (longitude, latitude), model = places, loaded[0]
    check_model(*run, model.model, loaded[1])
    opened = complete_record(*run, OpenedRecord)
    tiles = read_map_tiles(run[0] / TILES_FILE)
    quarters = _quarters(opened, request, timeless=model.scale_.times is None)
    providers = model.scale_.providers
    question = replace(question_of(opened, request), provider=providers[0] if providers else None)
    thresholds = _thresholds(opened, request)
    place = tiles.at(longitude, latitude)
    inside = place >= 0
    if not inside.any():
        raise RequestError(_all_outside(opened, tiles, longitude, latitude))
    own = _OwnTiles.of_places(longitude[inside], latitude[inside], place[inside])
    prediction, level = _Predictor(opened, model, question, tiles, reopen).predict(own, quarters)
    quantity, times = quantity_of(opened.target), len(quarters)
    every = (own.number[:, np.newaxis] * times + np.arange(times)).ravel()
    predicted = _columns(prediction, level, quantity, thresholds).take(every)
    predicted.index = pd.Index(np.flatnonzero(np.repeat(inside, times)))
    rows = _described_places(tiles, place, longitude, latitude, request.near_km)
    many = rows.loc[rows.index.repeat(times)].reset_index(drop=True)
    first = ["latitude", "longitude", "in_region"]
    labels = [quarter_label(quarter) for quarter in quarters]
    start = many[first].assign(quarter=labels * len(rows), speaks_of=question.words())
    table = pd.concat([start, predicted.reindex(many.index), many.drop(columns=first)], axis=1)
    described = {
        "region": opened.region,
        "target": opened.target,
        "unit": quantity.unit,
        "for": question.name,
        "speaks_of": question.words(),
        "tests": question.tests,
        "devices": question.devices,
        "quarters": labels,
        "data_end": opened.quarters[-1],
        "near_km": request.near_km,
        "zoom": tiles.zoom,
        "thresholds": {threshold.variable: threshold.met for threshold in thresholds},
    }
    return PlaceAnswers(table, tuple(np.flatnonzero(~inside).tolist()), described)


def _all_outside(record: OpenedRecord, tiles: MapTiles, longitude: Floats, latitude: Floats) -> str:
    """Return a message for places that all lie outside the region."""
    name = record.region_in_words
    if len(longitude) > 1:
        text = f"none of {len(longitude):,} points lies in {name}, the region of the run."
    else:
        text = (
            f"the place at latitude {latitude[0]:g} and longitude {longitude[0]:g} lies outside "
            f"{name}, the region of the run."
        )
    turned = np.abs(longitude) <= quadkeys.NORTHMOST
    if turned.all() and (tiles.at(latitude, longitude) >= 0).all():
        text += (
            " With latitude and longitude swapped, it would lie inside: give LATITUDE,LONGITUDE."
        )
    return text


def _quarters(record: OpenedRecord, request: PlaceQuestion, *, timeless: bool) -> tuple[int, ...]:
    """Return the indices of the asked quarters; raise RequestError if one cannot be predicted."""
    known = tuple(quarter_index(quarter) for quarter in record.quarters)
    if request.quarters is None:
        return (quarter_index(record.map.at),)
    wanted = known if request.quarters == ALL_QUARTERS else parse_quarters(request.quarters).all
    model = find_model(record.model)
    for quarter in wanted:
        check_quarter(quarter, known, model, timeless=timeless, option="--quarters")
    return wanted


def _thresholds(record: OpenedRecord, request: PlaceQuestion) -> tuple[Threshold, ...]:
    drawn = () if record.drawing is UNSET else given(record.drawing.thresholds, [])
    own = tuple(drawn) if request.threshold is None else request.threshold
    return thresholds_of(record.target, own)


def _described_places(
    tiles: MapTiles,
    place: NDArray[np.int64],
    longitude: Floats,
    latitude: Floats,
    near_km: float,
) -> pd.DataFrame:
    """Return what is known of m places without a prediction; empty cells outside the region."""
    inside = place >= 0
    own = place[inside]
    x, y = tiles.centres
    tested = tiles.tests > 0
    measured = x[tested], y[tested]
    here = longitude[inside], latitude[inside]
    column, row = quadkeys.tiles_at(longitude, latitude)
    code = quadkeys.tiles_to_codes(column, row)
    table = pd.DataFrame({"latitude": latitude, "longitude": longitude, "in_region": inside})
    columns: dict[str, Any] = {
        "tests_near": sums_within_km(*here, *measured, tiles.tests[tested], km=near_km),
        "nearest_measured_km": nearest_km(*here, *measured) if len(own) else np.zeros(0),
        "stratum": tiles.stratum[own].astype(object),
    }
    if tiles.county is not None:
        columns["county"] = tiles.county[own]
    columns["quadkey"] = quadkeys.format_quadkeys(code[inside]).astype(object)
    described = pd.DataFrame(columns, index=np.flatnonzero(inside))
    described["tests_near"] = described["tests_near"].astype("Int64")
    return table.join(described)


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


@dataclass(frozen=True)
class _Predictor:
    """Predicts at places of a run; reads the data of the run only if this is necessary."""

    record: OpenedRecord
    model: SpatialGP
    question: Question
    tiles: MapTiles
    reopen: Callable[[], "Reopened"]

    def predict(
        self, own: _OwnTiles, quarters: Sequence[int]
    ) -> "tuple[Prediction, Prediction | None]":
        """Return predictions in t tiles and q quarters, (t q,), sorted by tile, and the level.

        The level is None if the predictions are of it, or the model has no level of single tiles.
        """
        tables, repair = self._context()
        # The rows of a tile are at its centre.
        x, y = quadkeys.tile_centres(*quadkeys.codes_to_tiles(own.code))
        west, _, east, _ = self.model.scale_.bounds
        x = x - 360 * np.round((x - (west + east) / 2) / 360)
        times = len(quarters)
        x, y, place = np.repeat(x, times), np.repeat(y, times), np.repeat(own.place, times)
        question = self.question
        when = np.tile(np.array(quarters, np.int64), len(own.code))
        table = tables.at(x, y, when, provider=question.provider)
        inputs, tests = self.model.inputs(table), float(question.tests or 1)
        of_level = question.name == LEVEL
        prediction = self.model.predicted(inputs, tests, question.devices, level=of_level)
        if of_level:
            return prediction, None
        beside = find_model(self.record.model).has_tiles
        level = self.model.predicted(inputs, tests, level=True) if beside else None
        if not repair.n:
            return prediction, level
        names = self.record.strata or STRATA
        places = RepairPlaces(
            self.tiles.stratum[place], np.full(len(x), tests), x, y, (names[0], names[1])
        )
        return repair.apply(prediction, places), level

    def _context(self) -> tuple[PlaceTables, Repair]:
        """Return the covariates and the conformal repair of the run."""
        calibration = given(self.record.calibration, None)
        method = NONE if calibration is None else given(calibration.method, NONE)
        if self.record.settings.data.covariates or method == LOCAL:
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


def answer_at(request: AtRequest, listener: ProgressListener | None = None) -> Answer:
    """Predict at the places of a request, in their order; write --out if it is given.

    The run folder is locked, and gets no file. Raises RequestError if the text is neither a place
    nor a file, if the place lies outside the region, if there is no finished run, if another
    process is using the run, or if --out may not be overwritten (see `OutputFiles`). Raises
    DataError with line numbers if coordinates of a file are missing or wrong. Raises the other
    errors of `place_answers`, and OutputError if --out cannot be written.
    """
    listener = listener or ProgressListener()
    files = () if request.out is None else (request.out,)
    inputs = request.place, request.source, request.boundaries
    output = OutputFiles("at", files, reads=inputs, runs=[request.run], force=request.force)
    places = read_places_of(request)
    for note in places.notes:
        listener.stage(note)
    for text in places.warnings:
        listener.warn(text)
    known = places.known

    def reopen() -> "Reopened":
        # Slow, and rarely needed.
        from geogp.answers.make import stored_run, with_data  # noqa: PLC0415

        return with_data(stored_run(request, listener), counts=True)

    with locked_run(request.run) as record, arithmetic(precision=record.precision):
        loaded = load_with_notes(request.run / MODEL_FILE, device=request.device)
        run, points = (request.run, record), (places.longitude[known], places.latitude[known])
        answers = place_answers(run, loaded, points, request, reopen)
    table = rows_of(places, answers.table, answers.described["quarters"], request.place)
    facts = {
        "run": str(request.run),
        **answers.described,
        "attribution": given(record.attribution, ""),
        "places": len(known),
        "without_position": int((~known).sum()),
        "outside": len(answers.outside),
    }
    answer = replace(read_at(with_rows(facts, "answers", table), table), files=files)
    for file in files:
        if file.suffix.lower() == ".csv":
            output.write(file, csv_content(table))
        else:
            text = json.dumps(answer.described, indent=1, allow_nan=False)
            output.write(file, f"{text}\n".encode())
    return answer


def read_at(content: dict[str, Any], table: pd.DataFrame) -> Answer:
    """Return the answer with a content; a single place has more intervals, and no position."""
    unit, rows, near_km = content["unit"], content["answers"], content["near_km"]
    alone, most = content["places"] == 1, 40
    columns = [
        Column("quarter", ("quarter",), "{}"),
        Column(f"median {unit}", (f"median_{suffix_of(unit)}",), "{:.3g}"),
    ]
    for level in LEVELS if alone else LEVELS[-1:]:
        ends = tuple(f"{side}_{level}_{suffix_of(unit)}" for side in ("lower", "upper"))
        columns.append(Column(f"{level} % interval", ends, "{:.3g} to {:.3g}"))
    beside = f"level_{suffix_of(unit)}"
    if beside in table:
        columns.append(Column(f"level without noise, {unit}", (beside,), "{:.3g}"))
    columns += [Column(met, (name,), "{:.1%}") for name, met in content["thresholds"].items()]
    tests = Column(f"tests in {near_km:g} km", ("tests_near",), "{:,}")
    nearest = Column("nearest", ("nearest_measured_km",), "{:.1f} km")
    texts = []
    if beside in table:
        texts.append(
            f"Median and intervals are of {content['speaks_of']}: what one more measurement would "
            "show. The level is the value of the place itself; --for level gives its interval."
        )
    if alone:
        stratum = "" if rows[0]["stratum"] == "unknown" else f"{rows[0]['stratum']}; "
        texts.append(
            f"{stratum}{tests.text(rows[0])} tests of all quarters within {near_km:g} km; the "
            f"nearest measured tile is {nearest.text(rows[0])} away."
        )
    else:
        position = [Column(name, (name,), "{:.5f}") for name in ("latitude", "longitude")]
        columns = [*position, *columns, tests, nearest]
    if content["zoom"] < quadkeys.ZOOM:
        texts.append(
            f"The map has tiles of zoom {content['zoom']}, so distances to tests are distances to "
            "the centres of these tiles."
        )
    for count, what in (
        (content["outside"], "lie outside the region"),
        (content["without_position"], "have no position"),
    ):
        if count:
            texts.append(
                f"{count:,} of {content['places']:,} places {what} and have no prediction."
            )
    if len(rows) > most:
        texts.append("--out FILE.csv has all rows.")
    return Answer(
        "",
        f"{content['region']}, {content['target']}: {content['speaks_of']}",
        content,
        "answers",
        table,
        tuple(columns),
        after=tuple(texts),
        most=most,
    )
