"""Predictions of a finished run at places, such as addresses, from the files in the run folder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.answers.answer import Answer, Column, with_rows
from geogp.answers.asked_tiles import LEVELS, Asked, OwnTiles, columns_of, stored_columns
from geogp.answers.map_question import question_of
from geogp.answers.map_tiles import TILES_FILE, MapTiles, read_map_tiles
from geogp.answers.places import read_places_of, rows_of
from geogp.answers.requests import ALL_QUARTERS, AtRequest, PlaceQuestion
from geogp.choices import one_of
from geogp.errors import RequestError
from geogp.geodata.places.distances import nearest_km, sums_within_km
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index, quarter_label
from geogp.geodata.tiles.targets import target_names
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.geodata.tiles.tiers import Tier, tiers_of
from geogp.maps.csv_tables import csv_content
from geogp.maps.target_quantities import quantity_of
from geogp.models.names import find_model
from geogp.records.map_settings import DEVICE_CHOICES
from geogp.records.record_names import INPUTS
from geogp.records.record_reading import complete_record
from geogp.records.run_record import OpenedRecord, RunDrawing, RunRecord, given
from geogp.runs.output_files import OutputFiles
from geogp.runs.progress import ProgressListener
from geogp.runs.question import check_quarter
from geogp.runs.run_folder import locked_run
from geogp.value_scales import suffix_of

if TYPE_CHECKING:
    from geogp.answers.at_model import PlaceModel

Floats = NDArray[np.float64]


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
    places: tuple[Floats, Floats],
    request: PlaceQuestion,
    model: Callable[[], "PlaceModel"],
    *,
    stored: bool = True,
    target: str | None = None,
) -> PlaceAnswers:
    """Return the predictions of a run at m places, given as longitudes and latitudes in degrees.

    `run` is the folder and the record of the run. `model` loads its model, which is only needed if
    the map does not have the answer (see `stored_columns`), or if `stored` is false. `target` is
    one of several targets of the run, by default the first.

    A place has the prediction for its tile of zoom 16. The columns are ``latitude``, ``longitude``,
    ``in_region``, ``quarter``, ``speaks_of``, the median and the intervals, the level (such as
    ``level_mbps``, unless the median is that of the level), the probabilities of the thresholds,
    and of the tiers of several targets,
    ``tests_near`` (tests of all quarters within `near_km`), ``nearest_measured_km`` (distance to
    the centre of the nearest measured tile), ``stratum``, ``county`` if the run has counties, and
    ``quadkey``.

    Raises RequestError if the model cannot make the prediction, and DataError if a file of the run
    is damaged or of another version.
    """
    longitude, latitude = places
    record = complete_record(*run, OpenedRecord)
    targets = target_names(record.target)
    one_of("target", target or targets[0], targets)
    target = target or targets[0]
    quantity, thresholds = quantity_of(target), _thresholds(record, request, target)
    drawing = given(record.drawing, RunDrawing())
    tiers = tiers_of(record.target, request.tier or given(drawing.tiers, []) or None)
    events: tuple[Threshold | Tier, ...] = (*thresholds, *tiers)
    quarters = _quarters(record, request)
    providers = [provider.name for provider in given(record.providers, [])]
    question = replace(question_of(record, request), provider=providers[0] if providers else None)
    stored_names = columns_of(record, question, target, events).values()
    tiles = read_map_tiles(run[0] / TILES_FILE, stored_names)
    place = tiles.at(longitude, latitude)
    inside = place >= 0
    if not inside.any():
        raise RequestError(_all_outside(record, tiles, longitude, latitude))
    own = OwnTiles.of_places(longitude[inside], latitude[inside], place[inside])
    asked = Asked(record, question, quarters, thresholds, tiles, own, target, tiers)
    columns = stored_columns(asked, run[0]) if stored else None
    if columns is None:
        columns = model().columns(asked)
    times = len(quarters)
    every = (own.number[:, np.newaxis] * times + np.arange(times)).ravel()
    predicted = columns.take(every)
    predicted.index = pd.Index(np.flatnonzero(np.repeat(inside, times)))
    rows = _described_places(tiles, place, longitude, latitude, request.near_km)
    many = rows.loc[rows.index.repeat(times)].reset_index(drop=True)
    first = ["latitude", "longitude", "in_region"]
    labels = [quarter_label(quarter) for quarter in quarters]
    start = many[first].assign(quarter=labels * len(rows), speaks_of=question.words())
    table = pd.concat([start, predicted.reindex(many.index), many.drop(columns=first)], axis=1)
    described = {
        "region": record.region,
        "target": target,
        "unit": quantity.unit,
        "for": question.name,
        "speaks_of": question.words(),
        "tests": question.tests,
        "devices": question.devices,
        "quarters": labels,
        "data_end": record.quarters[-1],
        "near_km": request.near_km,
        "zoom": tiles.zoom,
        "thresholds": {event.variable: event.met for event in events},
        **({"tiers": {tier.variable: tier.definition for tier in tiers}} if tiers else {}),
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


def _quarters(record: OpenedRecord, request: PlaceQuestion) -> tuple[int, ...]:
    """Return the indices of the asked quarters; raise RequestError if one cannot be predicted."""
    known = tuple(quarter_index(quarter) for quarter in record.quarters)
    if request.quarters is None:
        return (quarter_index(record.map.at),)
    wanted = known if request.quarters == ALL_QUARTERS else parse_quarters(request.quarters).all
    model, timeless = find_model(record.model), record.settings.model.inputs == INPUTS[0]
    for quarter in wanted:
        check_quarter(quarter, known, model, timeless=timeless, option="--quarters")
    return wanted


def _thresholds(record: OpenedRecord, request: PlaceQuestion, target: str) -> tuple[Threshold, ...]:
    """Return the thresholds of a request, or of the map, which has those of its first target."""
    drawn = given(given(record.drawing, RunDrawing()).thresholds, [])
    if request.threshold is None and target != target_names(record.target)[0]:
        return thresholds_of(target, None, record.service)
    return thresholds_of(target, drawn if request.threshold is None else request.threshold)


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

    def model() -> "PlaceModel":
        # Imports torch, which answers from the map do not need.
        from geogp.answers.at_model import PlaceModel  # noqa: PLC0415

        return PlaceModel.of_request(request, record, listener)

    with locked_run(request.run) as record:
        run, points = (request.run, record), (places.longitude[known], places.latitude[known])
        stored = request.device != DEVICE_CHOICES[-1]
        answers = place_answers(run, points, request, model, stored=stored, target=request.target)
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
    tiers, short = content.get("tiers", {}), alone and len(rows) == 1
    beside = f"level_{suffix_of(unit)}"
    columns = _value_columns(
        unit,
        LEVELS if alone else LEVELS[-1:],
        beside if beside in table else None,
        {k: v for k, v in content["thresholds"].items() if not (short and k in tiers)},
    )
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
    for name, definition in tiers.items():
        share = f"{rows[0][name]:.1%}" if short else content["thresholds"][name]
        texts.append(f"{share}: {definition}.")
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


def _value_columns(
    unit: str, levels: Sequence[int], level: str | None, thresholds: dict[str, str]
) -> list[Column]:
    """Return the columns of predictions: median, intervals, level and probabilities.

    `level` is the column of the level beside the median, if there is one, and `thresholds` says
    what each column of probabilities asks.
    """
    suffix = suffix_of(unit)
    columns = [
        Column("quarter", ("quarter",), "{}"),
        Column(f"median {unit}", (f"median_{suffix}",), "{:.3g}"),
    ]
    for percent in levels:
        ends = tuple(f"{side}_{percent}_{suffix}" for side in ("lower", "upper"))
        columns.append(Column(f"{percent} % interval", ends, "{:.3g} to {:.3g}"))
    if level is not None:
        columns.append(Column(f"level without noise, {unit}", (level,), "{:.3g}"))
    return columns + [Column(met, (name,), "{:.1%}") for name, met in thresholds.items()]
