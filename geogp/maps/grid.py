"""The grid of a map: predictions for the tiles of a region as an xarray Dataset with a CRS."""

import re
from collections.abc import Sized
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, NumericalError, RequestError
from geogp.geodata.places.region import Region, Strata, Tiles
from geogp.geodata.places.stratum_names import STRATA, UNKNOWN
from geogp.geodata.tiles.quadkeys import EARTH_RADIUS_M
from geogp.geodata.tiles.thresholds import Threshold
from geogp.maps.frame import Frame
from geogp.maps.prediction_grid import LEVEL, georeferenced
from geogp.maps.target_quantities import quantity_of

Settings = dict[str, str | int | float]

FLAG_FILL = 255
"""Value of a flag outside the region."""

TESTS_FILL = -1
"""Number of tests outside the region."""

URBAN_FLAG, OWN_FLAG = "urban", "stratum"
"""Names of the variable with the strata: for urban and rural tiles, and for strata of the user.

The variable is 1 in the first stratum and 0 in the second.
"""

_FIRST, _SECOND = "first_stratum", "second_stratum"

_MERCATOR: Settings = {
    "grid_mapping_name": "mercator",
    "standard_parallel": 0.0,
    "longitude_of_projection_origin": 0.0,
    "false_easting": 0.0,
    "false_northing": 0.0,
    "earth_radius": EARTH_RADIUS_M,
}
"""Attributes that describe EPSG:3857 to readers of CF files that do not read WKT."""


def build_grid(
    region: Region,
    tiles: Tiles,
    prediction: Prediction,
    *,
    target: str,
    distance_km: NDArray[np.float64],
    far_km: float,
    measured: NDArray[Any],
    stratum: NDArray[np.str_] | None = None,
    settings: Settings | None = None,
    thresholds: tuple[Threshold, ...] = (),
    level: NDArray[np.float64] | None = None,
) -> xr.Dataset:
    """Return the predictions for tiles as a raster in EPSG:3857, where tiles are square.

    Let m and v be the predictive mean and variance of log10 of the value. For a Gaussian
    prediction, median = 10^m, lower and upper = 10^(m ∓ 1.96 sqrt(v)), mean = 10^m exp((ln 10)² v /
    2), and width_log10 = 2 · 1.96 sqrt(v). Decibels are not transformed: median = mean = m, and the
    width is width_db. Predictions of other shapes have other quantiles and means. A mean is NaN if
    it does not exist (heavy tails) or is too large for float32. Each threshold adds a variable,
    such as p_at_least_7_mbps: the probability that the predicted value meets the threshold. Numbers
    of tests and classes have other variables; see the method `variables` of `CountPrediction` and
    `ClassPrediction`.

    `prediction` is a prediction of log10(Mbps), log10(ms), dBm, dB or the number of tests,
    depending on `target`, for the n `tiles`. Arrays have shape (n,). `distance_km` is the distance
    to the nearest measured tile; a flag marks tiles farther than `far_km`. `measured` is the number
    of tests in all quarters. `stratum` is ``unknown`` outside both strata; if all strata are
    unknown, the grid has no variable with strata. `settings` become attributes of the grid.
    `level` is the level of the tiles, in the unit of the predicted values, which adds a variable
    such as level_mbps.

    The coordinates y and x are centres of tiles in metres, with y descending; if `settings` has a
    ``quarter``, the coordinate ``time`` is its first day. Outside the region,
    float32 variables are NaN, flags are 255, and the number of tests is -1; whole numbers without
    such a tile have no fill value. Raises DataError if an
    input does not have n values, a tile occurs twice, or there is no tile. Raises RequestError if
    the target is unknown, if the prediction or a threshold has another target, or if a setting
    cannot be an attribute. Raises NumericalError if a value other than the mean is too large for
    float32.
    """
    quantity = quantity_of(target)
    _check_lengths(
        len(tiles),
        prediction=prediction,
        distance_km=distance_km,
        measured=measured,
        stratum=stratum,
        level=level,
    )
    frame = Frame.of_tiles(tiles)
    kind = prediction.discrete, prediction.classes
    if kind != (quantity.counted, len(quantity.classes)):
        raise RequestError(f"expected a prediction of the target {target}, found another target.")
    variables = prediction.variables(quantity, LEVEL)
    variables |= _probabilities(prediction, target, thresholds)
    if level is not None:
        label = f"level of {quantity.subject}, the value to expect without measurement noise"
        variables[f"level_{quantity.suffix}"] = level, label, quantity.unit
    variables["distance_km"] = (
        np.asarray(distance_km, np.float64),
        "distance to the nearest measured tile",
        "km",
    )
    grid = xr.Dataset(coords={"y": frame.y, "x": frame.x})

    def add(name: str, values: NDArray[Any], fill: float, **attributes: str) -> None:
        meanings = attributes.get("flag_meanings", "").split()
        flags = {"flag_values": np.arange(len(meanings), dtype=np.uint8)} if meanings else {}
        grid[name] = (("y", "x"), frame.place(tiles, values, fill), flags | attributes)
        # xarray reads whole numbers that may be missing as float64.
        if values.dtype.kind == "f" or (grid[name] == fill).any():
            grid[name].encoding["_FillValue"] = values.dtype.type(fill)

    for name, (codes, label) in prediction.flags(quantity).items():
        meanings = " ".join(quantity.class_tags)
        add(name, codes.astype(np.uint8), FLAG_FILL, long_name=label, flag_meanings=meanings)
    for name, (values, label, unit) in variables.items():
        # With heavy tails, the mean may not exist.
        narrow = _narrowed(values, name, absent=name == f"mean_{quantity.suffix}")
        add(name, narrow, np.nan, long_name=label, units=unit)
    counted = "number of tests in the data, all quarters together"
    tests = np.asarray(measured).astype(np.int32)
    add("tests", tests, TESTS_FILL, long_name=counted, units="1")
    label = f"farther than {far_km:g} km from any measured tile"
    far = (distance_km > far_km).astype(np.uint8)
    meanings = "near far_from_any_measurement"
    add("far", far, FLAG_FILL, long_name=label, flag_meanings=meanings)
    if stratum is not None and region.strata is not None and np.any(stratum != UNKNOWN):
        first = np.asarray(stratum) == region.strata.names[0]
        values = np.where(stratum == UNKNOWN, FLAG_FILL, first).astype(np.uint8)
        name, attributes = strata_flag(region.strata)
        add(name, values, FLAG_FILL, **attributes)
    grid.attrs = _attributes(region, target, frame.zoom, far_km, settings or {})
    grid = georeferenced(grid, "EPSG:3857", frame.transform)
    grid["spatial_ref"].attrs |= _MERCATOR
    for axis in ("x", "y"):
        grid[axis].encoding["_FillValue"] = None  # CF: coordinates have no missing values
    return grid if "quarter" not in grid.attrs else _with_time(grid)


def _with_time(grid: xr.Dataset) -> xr.Dataset:
    """Return a grid with the first day of its quarter as the coordinate ``time``."""
    start = pd.Period(str(grid.attrs["quarter"]), freq="Q").start_time.to_datetime64()
    attributes = {
        "standard_name": "time",
        "long_name": f"first day of the quarter {grid.attrs['quarter']}",
        "axis": "T",
        "units_metadata": "leap_seconds: none",
    }
    encoding = {
        "units": "days since 2000-01-01",
        "calendar": "proleptic_gregorian",
        "dtype": "int32",
    }
    return grid.assign_coords(time=xr.Variable((), start, attributes, encoding))


def strata_flag(strata: Strata) -> tuple[str, dict[str, str]]:
    """Return the name and the attributes of the variable with the strata."""
    if strata.names == STRATA:
        year = "" if strata.vintage is None else f" of {strata.vintage}"
        attributes = {"long_name": f"in a Census urban area{year}", "flag_meanings": "rural urban"}
        return URBAN_FLAG, attributes
    first, second = strata.names
    meanings = " ".join(re.sub(r"[^\w.+@-]", "_", name) for name in (second, first))
    attributes = {"long_name": f"stratum: {first} or {second}", "flag_meanings": meanings}
    return OWN_FLAG, {**attributes, _FIRST: first, _SECOND: second}


def strata_in(grid: xr.Dataset) -> tuple[NDArray[np.uint8], tuple[str, str]] | None:
    """Return the flags of a grid and the names of its strata; None if there are no strata."""
    if URBAN_FLAG in grid:
        return grid[URBAN_FLAG].to_numpy(), STRATA
    if OWN_FLAG in grid:
        attributes = grid[OWN_FLAG].attrs
        return grid[OWN_FLAG].to_numpy(), (str(attributes[_FIRST]), str(attributes[_SECOND]))
    return None


def stratum_at(grid: xr.Dataset, pixels: tuple[NDArray[np.int64], ...]) -> NDArray[np.str_]:
    """Return the name of the stratum at each of n pixels, (n,)."""
    strata = strata_in(grid)
    if strata is None:
        return np.full(len(pixels[0]), UNKNOWN)
    flags, names = strata[0][pixels], strata[1]
    return np.select([flags == 1, flags == 0], names, UNKNOWN).astype(np.str_)


def _check_lengths(n: int, **parts: Sized | None) -> None:
    lengths = {name: len(values) for name, values in parts.items() if values is not None}
    wrong = [f"{name} has {length}" for name, length in lengths.items() if length != n]
    if wrong:
        raise DataError(f"expected one entry for each of {n} tiles, but {', '.join(wrong)}.")


def _probabilities(
    prediction: Prediction, target: str, thresholds: tuple[Threshold, ...]
) -> dict[str, tuple[NDArray[np.float64], str, str]]:
    """Return the probability of each threshold: the values, their long name and their unit."""
    variables = {}
    for threshold in thresholds:
        if threshold.target != target:
            raise RequestError(f"{threshold.met} is not a threshold of the target {target}.")
        label = f"probability that {quantity_of(target).subject} is {threshold.met}"
        variables[threshold.variable] = (threshold.probability(prediction), label, "1")
    return variables


def _narrowed(values: NDArray[np.float64], name: str, *, absent: bool) -> NDArray[np.float32]:
    """Return values as float32; if `absent`, a value may be missing or infinite and becomes NaN."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if absent:
        narrow = np.where(np.isfinite(narrow), narrow, np.float32(np.nan))
    elif not np.isfinite(narrow).all():
        raise NumericalError(
            f"{name} is not finite at {int((~np.isfinite(narrow)).sum())} of {len(values)} tiles; "
            f"float32 allows values up to {np.finfo(np.float32).max:.3g}. Did the fit diverge?"
        )
    return narrow


def _attributes(
    region: Region, target: str, zoom: int, far_km: float, settings: Settings
) -> Settings:
    own: Settings = {
        "Conventions": "CF-1.10",
        "title": f"Predicted {quantity_of(target).subject} in {region.name}",
        # A date would make the files of two equal runs differ.
        "history": f"made by geogp {settings.get('geogp', '')}".strip(),
        "region_code": region.code,
        "region_name": region.name,
        "target": target,
        "zoom": zoom,
        "far_km": float(far_km),
        "interval_level": LEVEL,
    }
    for key, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise RequestError(
                f"expected settings that are texts or numbers, found {key} = {value!r}. Write the "
                "value as text."
            )
        if own.get(key, value) != value:
            raise RequestError(
                f"the setting {key} = {value!r} contradicts the value {own[key]!r} of the grid."
            )
    return settings | own
