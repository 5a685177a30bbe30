"""Coordinates of the points in a table: geometries, numbers, hemispheres, degrees and minutes."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError, quoted, shown
from geogp.geodata.places.file_choice import crs_for
from geogp.geodata.points.cell_numbers import decimal_sign
from geogp.geodata.points.point_options import TableOptions
from geogp.geodata.points.roles import find_columns
from geogp.geodata.points.tables import Floats, RowReview
from geogp.geodata.tiles.quadkeys import NORTHMOST

_NUMBER = r"\d+(?:[.,]\d+)?"
_PRIME = r"['\u2032\u2019]"
_DEGREES = re.compile(
    rf"(?P<before>[NSEW])?\s*(?P<minus>-)?\s*(?P<d>{_NUMBER})"
    rf"(?:\s*(?:[\u00b0\u00ba:\s]|d(?:eg)?)\s*(?:(?P<m>{_NUMBER})\s*(?:{_PRIME}|[m:\s])?\s*"
    rf"(?:(?P<s>{_NUMBER})\s*(?:{_PRIME}{_PRIME}|[\"\u2033\u201d]|s)?)?)?)?"
    r"\s*(?P<after>[NSEW])?",
    re.IGNORECASE,
)

NO_POSITION = "no position (empty, or 0, 0)"
"""The reason of rows without a position."""

FAR_KM = 1.0
"""Distance between a geometry and the coordinates in columns beside it that is told."""

_SIDES = {"latitude": ("N", "S"), "longitude": ("E", "W")}


def read_places(
    review: RowReview, columns: Mapping[str, str], options: TableOptions
) -> tuple[Floats, Floats]:
    """Return longitude and latitude of n points in degrees, NaN in rows without a usable position.

    `columns` has the names of the columns ``longitude`` and ``latitude``, unless the file has
    geometries, which count more. Longitudes may be from 0 to 360. Rows without a position (also 0,
    0, which devices without a position write) and rows beyond the range of degrees are marked as
    bad in `review`.
    """
    table = review.table
    if table.places is None:
        longitude, latitude = _of_columns(review, columns, options)
    else:
        longitude, latitude = table.places.T.copy()
        _compare(review, longitude, latitude)
    known = longitude[np.isfinite(longitude)]
    if len(known) and known.min() >= 0 and 180 < known.max() <= 360:
        longitude = (longitude + 180) % 360 - 180
        review.notes.append(("longitude", "from 0 to 360 degrees"))
    absent = np.isnan(longitude) | np.isnan(latitude) | ((longitude == 0) & (latitude == 0))
    review.mark(absent, NO_POSITION)
    beyond = ~absent & ((np.abs(latitude) > NORTHMOST) | (np.abs(longitude) > 180))
    if beyond.any():
        east, north = longitude[beyond], latitude[beyond]
        hint = ""
        if np.abs(north).max() <= 180 and np.abs(east).max() <= NORTHMOST:
            hint = "; are latitude and longitude swapped?"
        elif max(np.abs(east).max(), np.abs(north).max()) > 1000:
            hint = "; give the CRS of coordinates in metres with --crs"
        review.mark(
            beyond,
            f"expected latitudes from -{NORTHMOST:.2f} to {NORTHMOST:.2f} and longitudes from -180 "
            f"to 180, found {north[0]:g} and {east[0]:g}{hint}",
        )
    lost = absent | beyond
    return np.where(lost, np.nan, longitude), np.where(lost, np.nan, latitude)


def _of_columns(
    review: RowReview, columns: Mapping[str, str], options: TableOptions
) -> tuple[Floats, Floats]:
    """Return the coordinates in two columns."""
    table, places = review.table, {}
    forms: dict[str, None] = {}
    for role in ("longitude", "latitude"):
        numbers = table.numbers(columns[role])
        if numbers is not None:
            values = np.where(np.isinf(numbers), np.nan, numbers)
        else:
            values, wrong, form = _degrees(table.values(columns[role]), role)
            forms |= {form: None} if form else {}
            if wrong.any():
                first = table.texts(columns[role])[int(wrong.argmax())][:40]
                review.mark(wrong, f"unreadable {role}, such as {quoted(first)}")
        places[role] = values
    note = f"from the columns {shown(columns['latitude'])} and {shown(columns['longitude'])}"
    review.notes.append(("position", f"{note}{''.join(f', {form}' for form in forms)}"))
    east, north = places["longitude"], places["latitude"]
    known = np.isfinite(east) & np.isfinite(north)
    outside = known & ((np.abs(east) > 180) | (np.abs(north) > 90))
    crs = crs_for(table.path, options.crs)
    if crs is not None and outside.sum() > known.sum() / 2:
        east, north = _projected(east, north, known, crs)
        review.notes.append(("CRS", f"coordinates in {crs}"))
    return east, north


def _projected(
    east: Floats, north: Floats, known: NDArray[np.bool_], crs: str
) -> tuple[Floats, Floats]:
    """Return coordinates in a CRS as longitude and latitude."""
    import geopandas as gpd  # noqa: PLC0415 - slow

    from geogp.geodata.places.polygons import DAMAGE, without_network  # noqa: PLC0415

    try:
        with without_network():
            points = gpd.GeoSeries.from_xy(east[known], north[known], crs=crs).to_crs(4326)
    except DAMAGE as error:
        raise DataError(
            f"expected --crs with a CRS such as EPSG:32161, found {quoted(crs)} ({error})."
        ) from error
    degrees = np.full((2, len(east)), np.nan)
    degrees[:, known] = points.x.to_numpy(), points.y.to_numpy()
    degrees[:, ~np.isfinite(degrees).all(0)] = np.nan
    return degrees[0], degrees[1]


def _degrees(texts: NDArray[np.object_], role: str) -> tuple[Floats, NDArray[np.bool_], str]:
    """Return degrees in texts, a mask of unreadable texts, and the form of the coordinates."""
    sign = decimal_sign(texts)
    series = pd.Series(texts, dtype=object)
    points = series.str.replace(",", ".", regex=False) if sign == "," else series
    values = np.asarray(pd.to_numeric(points.where(texts != "", None), errors="coerce"), np.float64)
    values = np.where(np.isinf(values), np.nan, values)
    open_rows = np.isnan(values) & (texts != "")
    form = "decimal comma" if sign == "," else ""
    if not open_rows.any():
        return values, open_rows, form
    inverse, unique = pd.factorize(texts[open_rows])
    angles = np.array([_angle(text, role) for text in unique.tolist()], np.float64)
    values[open_rows] = angles[inverse]
    read = unique[np.isfinite(angles)]
    if len(read):
        form = f"written as {read[0]}"
    return values, np.isnan(values) & (texts != ""), form


def _angle(text: str, role: str) -> float:
    """Return the degrees in a text such as ``18°20'12.44"N`` or ``66.07W``; NaN if unreadable."""
    match = _DEGREES.fullmatch(text.replace("\N{MINUS SIGN}", "-")) if len(text) <= 40 else None
    if match is None:
        return float("nan")
    sides = {side.upper() for side in (match["before"], match["after"]) if side}
    degrees, minutes, seconds = (
        float((match[name] or "0").replace(",", ".")) for name in ("d", "m", "s")
    )
    if len(sides) > 1 or not sides <= set(_SIDES[role]) or max(minutes, seconds) >= 60:
        return float("nan")
    value = degrees + minutes / 60 + seconds / 3600
    negative = bool(match["minus"]) or bool(sides & {"S", "W"})
    return -value if negative else value


def _compare(review: RowReview, longitude: Floats, latitude: Floats) -> None:
    """Note how far coordinates in columns are from the geometries, which count more."""
    from geogp.geodata.places.distances import distance_km  # noqa: PLC0415

    table = review.table
    try:
        columns = find_columns(table.names, {}, ["latitude", "longitude"], str(table.path))
    except DataError:
        review.notes.append(("position", "from the geometry"))
        return
    east, north = (
        _degrees(table.values(columns[role]), role)[0] for role in ("longitude", "latitude")
    )
    names = f"{shown(columns['latitude'])} and {shown(columns['longitude'])}"
    apart = distance_km(east, north, longitude, latitude)
    far = apart > FAR_KM
    note = f"from the geometry, as in the columns {names}"
    if far.any():
        note = (
            f"from the geometry; the columns {names} differ by {np.nanmedian(apart[far]):,.0f} km "
            f"at the median in {table.where(far)}"
        )
    review.notes.append(("position", note))
