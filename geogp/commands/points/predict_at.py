"""The predictions of a finished run at an address, or at the places of a file."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.choices import settings_of
from geogp.commands.answers.run_answer import RunAnswer
from geogp.commands.output_files import OutputFiles
from geogp.commands.run_requests import AtRequest
from geogp.errors import DataError, RequestError, quoted
from geogp.estimators.stored_estimators import load_with_notes
from geogp.geodata.points.cell_places import NO_POSITION, read_places
from geogp.geodata.points.point_options import TableOptions
from geogp.geodata.points.tables import Floats, RowReview, read_point_table
from geogp.geodata.tiles.quadkeys import NORTHMOST
from geogp.maps.csv_tables import csv_content
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.progress import ProgressListener
from geogp.runs.questions.place_answers import PlaceAnswers, place_answers
from geogp.runs.run_folder import MODEL_FILE, locked_run

if TYPE_CHECKING:
    from geogp.runs.reopen import Reopened

_PLACE = re.compile(r"\s*([-+]?\d+(?:\.\d*)?)\s*,\s*([-+]?\d+(?:\.\d*)?)\s*")

_COORDINATES = ("latitude", "longitude")


def answer_at(request: AtRequest, listener: ProgressListener | None = None) -> RunAnswer:
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
    places = _read_places(request)
    for note in places.notes:
        listener.stage(note)
    for text in places.warnings:
        listener.warn(text)
    known = places.known

    def reopen() -> "Reopened":
        from geogp.commands.answers.run_answer import open_requested  # noqa: PLC0415 - slow

        return open_requested(request, listener).reopen(counts=True)

    with locked_run(request.run) as record, arithmetic(precision=record.precision):
        loaded = load_with_notes(request.run / MODEL_FILE, device=request.device)
        run, asked = (request.run, record), (places.longitude[known], places.latitude[known])
        found = place_answers(run, loaded, asked, request, reopen)
    answers = _rows_of(places, found, request.place)
    described = {
        "run": str(request.run),
        **found.described,
        "places": len(known),
        "without_position": int((~known).sum()),
        "outside": len(found.outside),
    }
    answer = RunAnswer(files, answers, described)
    for file in files:
        if file.suffix.lower() == ".csv":
            output.write(file, csv_content(answers))
        else:
            text = json.dumps(answer.described_with("answers"), indent=1, allow_nan=False)
            output.write(file, f"{text}\n".encode())
    return answer


@dataclass(frozen=True)
class _Places:
    """The m places of a request in degrees, NaN where unknown, and the user's columns beside them.

    `notes` say what was understood of a file, and `warnings` which of its rows have no position.
    """

    longitude: Floats
    latitude: Floats
    beside: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of the places with a position, (m,)."""
        return np.isfinite(self.longitude)


def _read_places(request: AtRequest) -> _Places:
    """Return the place or the file of places of a request."""
    match, path = _PLACE.fullmatch(request.place), Path(request.place)
    if match is None and not path.is_file():
        raise RequestError(
            "expected a place as LATITUDE,LONGITUDE in degrees, such as 18.2,-66.4, or a file of "
            f"places, found {quoted(request.place)}."
        )
    if match is None:
        return _read_file(path, request)
    for name, one in settings_of(TableOptions).items():
        if getattr(request, name) != one.default:
            option = f"--{name.replace('_', '-')}"
            raise RequestError(f"{option} describes a file of places. Leave {option} out.")
    north, east = float(match[1]), float(match[2])
    if abs(north) > NORTHMOST or abs(east) > 180:
        raise RequestError(
            f"expected a latitude from -{NORTHMOST:.2f} to {NORTHMOST:.2f}, then a longitude from "
            f"-180 to 180, found {request.place}."
        )
    return _Places(np.array([east]), np.array([north]))


def _read_file(path: Path, request: AtRequest) -> _Places:
    """Return the places in a file; rows without a position are kept, but have no answer."""
    table = read_point_table(path, request)
    review = RowReview.of(table)
    columns = table.columns(request, _COORDINATES)
    longitude, latitude = read_places(review, columns, request)
    absent = review.bad.pop(NO_POSITION, None)  # an address that was not found is no fault
    review.check(request.most_left_out)
    if not np.isfinite(longitude).any():
        raise DataError(f"{path} has no row with a position.")
    if absent is not None:
        review.apart[NO_POSITION] = absent
    taken = set() if table.places is not None else {columns[name] for name in _COORDINATES}
    beside = table.frame.loc[:, [name not in taken for name in table.frame]].copy()
    notes = tuple(f"{path.name}, {subject}: {note}" for subject, note in review.notes)
    warnings = tuple(f"no answer for {reason}." for reason in review.reasons())
    names = pd.Series(beside.columns)
    again = names.groupby(names).cumcount()  # a second column note becomes note.1
    beside.columns = pd.Index(names.where(again == 0, names + "." + again.astype(str)))
    return _Places(longitude, latitude, beside, notes, warnings)


def _rows_of(places: _Places, found: PlaceAnswers, path: str) -> pd.DataFrame:
    """Return the predictions for all places, empty where unknown, beside the user's columns."""
    quarters = found.described["quarters"]
    times, known = len(quarters), places.known
    answers = found.table
    if not known.all():
        rows = np.flatnonzero(np.repeat(known, times))
        answers = answers.set_axis(rows).reindex(range(len(known) * times))
        answers["in_region"] = (
            answers["in_region"].astype("boolean").fillna(value=False).astype(bool)
        )
        answers["quarter"] = np.tile(quarters, len(known))
    if places.beside is None:
        return answers
    double = [name for name in places.beside if name in answers]
    if double:
        raise RequestError(
            f"{path} has the column {quoted(double[0])}, which is also the name of a column of the "
            "answers. Rename the column."
        )
    many = places.beside.loc[places.beside.index.repeat(times)].reset_index(drop=True)
    return pd.concat([many, answers.reset_index(drop=True)], axis=1)
