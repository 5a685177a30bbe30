"""Maps points to the inputs of a model, and states the units of the inputs in km and quarters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError, RequestError, named
from geogp.estimators.point_columns import Points, is_geographic, km_per_unit
from geogp.geodata.tiles.quadkeys import EARTH_RADIUS_KM
from geogp.models.options import OFFSET

Floats = NDArray[np.float64]
Bounds = tuple[float, float, float, float]

MOST_SD = 4.0
"""Largest absolute value of a standardised covariate; larger values are clipped."""

FARTHEST = 1e9
"""Largest absolute input; the square of a larger one has too few digits in single precision."""

SPACING_KM = 0.6
"""Assumed mean spacing of places, in km, if the unit of the coordinates is unknown."""


class CovariateScale(NamedTuple):
    """Name of a covariate, and its mean and standard deviation over the points of a fit."""

    name: str
    mean: float
    sd: float


@dataclass(frozen=True)
class PointScale:
    """The map from points to the inputs of a model; each input has its own scale.

    See Zhu, Yuchi and Xie, appendix B.3. The box `bounds` is mapped to [-1, 1]². `km` is the length
    of one coordinate unit in km, None for degrees. `times` are the first and last time in quarters,
    None if time is not used. `time_kind` is as in `Times`, None for any kind. The model's input
    is 0 at the exposure `exposure`, which is None if the model is not for counts. `names` name the
    first three inputs. The input of a covariate is (value - mean) / sd, clipped to ± `MOST_SD`. For
    each of the `providers`, the last inputs have 1 in the rows of this provider, and 0 elsewhere.
    """

    bounds: Bounds
    km: float | None = None
    times: tuple[float, float] | None = None
    exposure: float | None = None
    names: tuple[str, str, str] = ("longitude", "latitude", "quarter")
    time_kind: str | None = None
    covariates: tuple[CovariateScale, ...] = ()
    providers: tuple[str, ...] = ()

    @classmethod
    def of_points(
        cls,
        points: Points,
        crs: Any,
        *,
        counts: bool = False,
        names: tuple[str, str, str] = ("x", "y", "time"),
        covariates: Sequence[str] = (),
    ) -> "PointScale":
        """Return the scale of training points, which may lie on both sides of longitude 180."""
        degrees = is_geographic(crs)
        x = _around_gap(points.x) if degrees else points.x
        box = _box(x, points.y)
        km = None
        if not degrees:
            km = km_per_unit(crs) if crs is not None else SPACING_KM / _spacing(points)
        times = None
        if points.time is not None and points.time.min() < points.time.max():
            times = float(points.time.min()), float(points.time.max())
        exposure = None
        if counts:
            exposure = 1.0 if points.exposure is None else float(points.exposure.mean())
        scales = covariate_scales(covariates, points.covariates)
        providers = () if points.provider is None else providers_of(points.provider)
        return cls(box, km, times, exposure, names, points.time_kind, scales, providers)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the inputs."""
        axes = self.names[: 2 if self.times is None else 3]
        return (*axes, *self.offsets, *self.linear)

    @property
    def linear(self) -> tuple[str, ...]:
        """Names of the inputs with a linear effect: covariates, then providers."""
        providers = (f"provider {name}" for name in self.providers)
        return (*(scale.name for scale in self.covariates), *providers)

    @property
    def offsets(self) -> tuple[str, ...]:
        """Names of the inputs that the basis functions do not use."""
        return () if self.exposure is None else (OFFSET,)

    @property
    def half_size_km(self) -> tuple[float, float]:
        """Half the width (at the middle latitude) and half the height of the box, in km."""
        west, south, east, north = self.bounds
        if self.km is not None:
            return (east - west) / 2 * self.km, (north - south) / 2 * self.km
        degree = np.pi / 180 * EARTH_RADIUS_KM
        across = (east - west) / 2 * degree * np.cos(np.deg2rad((south + north) / 2))
        return float(across), float((north - south) / 2 * degree)

    @property
    def units(self) -> tuple[float, ...]:
        """Length of one unit of each input, in km for coordinates and in quarters for time."""
        time = () if self.times is None else ((self.times[1] - self.times[0]) / 2,)
        others = (*self.offsets, *self.linear)
        return (*self.half_size_km, *time, *(1.0 for _ in others))

    def unwrap(self, longitude: ArrayLike) -> Floats:
        """Return longitudes shifted by multiples of 360 degrees, as near as possible to the box."""
        middle = (self.bounds[0] + self.bounds[2]) / 2
        return (np.asarray(longitude, np.float64) - middle + 180) % 360 - 180 + middle

    def inputs(self, points: Points) -> Floats:
        """Return model inputs, float64 (n, d); RequestError if times or covariates are missing."""
        west, south, east, north = self.bounds
        x = points.x if self.km is not None else self.unwrap(points.x)
        across = (2 * x - west - east) / (east - west)
        up = (2 * points.y - south - north) / (north - south)
        columns = [across, up]
        if self.times is not None:
            if points.time is None:
                raise RequestError(
                    f"expected times in the column {self.names[2]}, because the model was fitted "
                    f"to rows at several times."
                )
            first, last = self.times
            columns.append((2.0 * self._when(points) - first - last) / (last - first))
        if self.exposure is not None:
            share = 1.0 if points.exposure is None else points.exposure / self.exposure
            columns.append(np.log(np.broadcast_to(share, len(points))))
        if self.covariates:
            if points.covariates is None:
                raise RequestError(
                    f"expected the covariates {named(scale.name for scale in self.covariates)}, "
                    f"because the model was fitted to them."
                )
            mean, sd = (np.array(values) for values in list(zip(*self.covariates, strict=True))[1:])
            columns += list(((points.covariates - mean) / sd).clip(-MOST_SD, MOST_SD).T)
        if self.providers:
            providers = () if points.provider is None else points.provider
            others = sorted({*providers} - {*self.providers})
            if others or not len(providers):
                raise RequestError(
                    f"expected the provider of each row, one of {named(self.providers)}, found "
                    f"{named(others) or 'none'}."
                )
            columns += [np.asarray(points.provider == name, float) for name in self.providers]
        rows: Floats = np.column_stack(columns)
        farthest = np.abs(rows).max()
        if farthest > FARTHEST:
            raise DataError(
                f"expected points and times near those of the fit, with x from {west:g} to "
                f"{east:g} and y from {south:g} to {north:g}, found one that is {farthest:.3g} "
                f"times as far away as the edge of the box of the fit."
            )
        return rows

    @property
    def is_near_origin(self) -> bool:
        """Whether the box of the fit contains the origin of the coordinates, or is near it."""
        west, south, east, north = self.bounds
        reach = east - west + north - south
        return west < reach and east > -reach and south < reach and north > -reach

    def _when(self, points: Points) -> Floats:
        """Return the times of points, (n,), converted to the kind of times in the fit."""
        assert points.time is not None
        kinds = self.time_kind, points.time_kind
        if None in kinds or kinds[0] == kinds[1]:
            return points.time
        if "number" in kinds:
            raise RequestError(
                f"expected times that are {kinds[0]}s, as in the fit of the model, found "
                f"{kinds[1]}s in {self.names[2]}."
            )
        # For a model of quarters, all dates in a quarter are the same time.
        return np.floor(points.time) if kinds[0] == "quarter" else points.time

    def described(self) -> dict[str, Any]:
        """Return the parameters of this scale, as stored in the file of a model."""
        area = {} if self.exposure is None else {"area_km2": self.exposure}
        km = {} if self.km is None else {"km": self.km}
        kind = {} if self.time_kind is None else {"time_kind": self.time_kind}
        scales = [list(scale) for scale in self.covariates]
        drift = {"covariates": scales} if scales else {}
        others = {"providers": list(self.providers)} if self.providers else {}
        optional = {**area, **km, **kind, **drift, **others}
        return {"bounds": self.bounds, "quarters": self.times, **optional}


def providers_of(provider: NDArray[Any]) -> tuple[str, ...]:
    """Return the providers of rows, (n,); the provider with most rows comes first.

    So the names do not matter to a fit, unless two providers have equally many rows. Raises
    RequestError if there is only one provider.
    """
    names, rows = np.unique(provider, return_counts=True)
    if len(names) < 2:
        raise RequestError(f"expected rows of two providers or more, found only {names[0]}.")
    return tuple(str(names[k]) for k in np.argsort(-rows, kind="stable"))


def covariate_scales(names: Sequence[str], values: Floats | None) -> tuple[CovariateScale, ...]:
    """Return the scales of training covariates, (n, c); a constant covariate gets the sd 1."""
    if not names or values is None:
        return ()
    columns = zip(names, values.T, strict=True)
    return tuple(
        CovariateScale(name, float(column.mean()), float(column.std()) or 1.0)
        for name, column in columns
    )


def _box(x: Floats, y: Floats) -> Bounds:
    """Return the box around points; an axis with only one value gets a length of one unit."""
    west, east, south, north = (float(f(v)) for v in (x, y) for f in (np.min, np.max))
    if west == east:
        west, east = west - 0.5, east + 0.5
    if south == north:
        south, north = south - 0.5, north + 0.5
    return west, south, east, north


def _spacing(points: Points) -> float:
    """Return the mean spacing of places: the square root of the area per place."""
    places = len(np.unique(np.column_stack([points.x, points.y]), axis=0))
    west, south, east, north = _box(points.x, points.y)
    return float(np.sqrt((east - west) * (north - south) / places))


def _around_gap(longitude: Floats) -> Floats:
    """Return longitudes shifted by multiples of 360 degrees, so that their range is smallest."""
    turned = np.sort(np.unique(longitude % 360))
    gaps = np.diff(np.append(turned, turned[0] + 360))
    cut = turned[int(gaps.argmax())] + gaps.max() / 2
    shifted: Floats = (longitude - cut) % 360 + cut
    middle = (shifted.min() + shifted.max()) / 2
    return shifted - 360 * float(np.round(middle / 360))
