"""The places of a request: an address, or the places of a file with the user's columns."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.answers.requests import AtRequest
from geogp.choices import settings_of
from geogp.errors import DataError, RequestError, quoted
from geogp.geodata.points.cell_places import NO_POSITION, read_places
from geogp.geodata.points.point_options import TableOptions
from geogp.geodata.points.tables import Floats, RowReview, read_point_table
from geogp.geodata.tiles.quadkeys import NORTHMOST

_PLACE = re.compile(r"\s*([-+]?\d+(?:\.\d*)?)\s*,\s*([-+]?\d+(?:\.\d*)?)\s*")

_COORDINATES = ("latitude", "longitude")


@dataclass(frozen=True)
class Places:
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


def read_places_of(request: AtRequest) -> Places:
    """Return the place or the file of places of a request."""
    match, path = _PLACE.fullmatch(request.place), Path(request.place)
    if match is None and not path.is_file():
        raise RequestError(
            "expected a place as LATITUDE,LONGITUDE in degrees, such as 18.2,-66.4, or a file of "
            f"places, found {quoted(request.place)}."
        )
    if match is None:
        return _read_file(path, request)
    for name, choice in settings_of(TableOptions).items():
        if getattr(request, name) != choice.default:
            option = f"--{name.replace('_', '-')}"
            raise RequestError(f"{option} describes a file of places. Leave {option} out.")
    north, east = float(match[1]), float(match[2])
    if abs(north) > NORTHMOST or abs(east) > 180:
        raise RequestError(
            f"expected a latitude from -{NORTHMOST:.2f} to {NORTHMOST:.2f}, then a longitude from "
            f"-180 to 180, found {request.place}."
        )
    return Places(np.array([east]), np.array([north]))


def _read_file(path: Path, request: AtRequest) -> Places:
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
    return Places(longitude, latitude, beside, notes, warnings)


def rows_of(places: Places, answers: pd.DataFrame, quarters: list[str], path: str) -> pd.DataFrame:
    """Return the predictions for all places, empty where unknown, beside the user's columns."""
    times, known = len(quarters), places.known
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
