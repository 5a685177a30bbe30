"""The predictions of a finished run at an address, or at the places of a file."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from geogp.commands.answers.run_answer import RunAnswer
from geogp.commands.csv_tables import csv_content
from geogp.commands.output_files import OutputFiles
from geogp.commands.run_requests import AtRequest
from geogp.errors import RequestError
from geogp.estimators.stored_estimators import load_with_notes
from geogp.geodata.points.point_roles import columns_of, named_columns
from geogp.geodata.points.point_table import Floats, PointTable, coordinates, read_point_table
from geogp.geodata.tiles.quadkeys import NORTHMOST
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
    files = () if request.out is None else (request.out,)
    inputs = request.place, request.source, request.boundaries
    output = OutputFiles("at", files, reads=inputs, runs=[request.run], force=request.force)
    table, columns, longitude, latitude = _read_places(request)

    def reopen() -> "Reopened":
        from geogp.commands.answers.run_answer import open_requested  # noqa: PLC0415 - slow

        return open_requested(request, listener).reopen(counts=True)

    with locked_run(request.run) as record, arithmetic(precision=record.precision):
        loaded = load_with_notes(request.run / MODEL_FILE, device=request.device)
        run, places = (request.run, record), (longitude, latitude)
        found = place_answers(run, loaded, places, request, reopen)
    answers = found.table if table is None else _beside(table, columns, found)
    described = {
        "run": str(request.run),
        **found.described,
        "places": len(longitude),
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


def _read_places(
    request: AtRequest,
) -> tuple[PointTable | None, dict[str, str], Floats, Floats]:
    """Return the table of a file of places (None for one place), its columns, and coordinates."""
    match, path = _PLACE.fullmatch(request.place), Path(request.place)
    if match is None and not path.is_file():
        raise RequestError(
            "expected a place as LATITUDE,LONGITUDE in degrees, such as 18.2,-66.4, or a file of "
            f"places, found {request.place!r}."
        )
    if match is None:
        table = read_point_table(path)
        columns = columns_of(table.names, named_columns(request.columns), _COORDINATES, str(path))
        faults: list[str] = []
        longitude, latitude = coordinates(table, columns, faults)
        table.refuse(faults)
        return table, columns, longitude, latitude
    if request.columns:
        raise RequestError("--columns names columns of a file of places. Leave --columns out.")
    north, east = float(match[1]), float(match[2])
    if abs(north) > NORTHMOST or abs(east) > 180:
        raise RequestError(
            f"expected a latitude from -{NORTHMOST:.2f} to {NORTHMOST:.2f}, then a longitude from "
            f"-180 to 180, found {request.place}."
        )
    return None, {}, np.array([east]), np.array([north])


def _beside(table: PointTable, columns: dict[str, str], found: PlaceAnswers) -> pd.DataFrame:
    """Return the user's other columns, and the predictions beside them."""
    taken = {columns[name] for name in _COORDINATES}
    own = table.frame[[name for name in table.frame if name not in taken]]
    double = [name for name in own if name in found.table]
    if double:
        raise RequestError(
            f"{table.path} has the column {double[0]!r}, which is also the name of a column of the "
            "answers. Rename the column."
        )
    times = len(found.described["quarters"])
    many = own.loc[own.index.repeat(times)].reset_index(drop=True)
    return pd.concat([many, found.table], axis=1)
