"""The estimator of the field model."""

from typing import Any, ClassVar

from geogp.estimators.spatial_gp import SpatialGP


class FieldGP(SpatialGP):
    """A smooth field, a process of single places, and noise that knows the number of tests.

    y = f(place, time) + g(place, time) + noise. f is a Gaussian process with a learned deep basis;
    g is a process of short range with memory; the variance of the noise falls with the tests behind
    a measurement and varies over space. Skewness and tails of the predictive law come from the
    validation rows.

    Parameters
    ----------
    x, y
        Columns of coordinates.
    crs
        Their coordinate reference system; None for plain units, without a projection.
    time
        Column of times: quarters (``Period[Q]``), dates (UTC unless they have a time zone), or
        numbers. None: no time.
    time_unit
        Unit of times that are numbers: ``year``, ``quarter``, ``month``, ``week``, ``day``,
        ``hour``, ``minute`` or ``second``.
    tests, devices
        Columns of the tests and devices behind each measurement, which averages them; None, or a
        table without the column: 1. Devices are kept, and not used yet.
    validation
        Rows that choose the epoch and the shape of the predictive law: ``blocks`` (a tenth of
        cells), ``random`` (a tenth of rows), or a mask of the rows, (n,).
    preset
        ``quick``, ``standard`` or ``paper``: sizes and schedule.
    epochs, rank, batch
        Replace the preset's values; None keeps them.
    device
        ``auto``, ``cpu`` or ``cuda``.
    random_state
        Fixes the validation rows and the fit.

    Examples
    --------
    >>> import numpy as np, geogp
    >>> rng = np.random.default_rng(0)
    >>> places = rng.uniform(0, 1, (1200, 2))
    >>> values = np.sin(6 * places[:, 0]) + 0.1 * rng.standard_normal(1200)
    >>> model = geogp.FieldGP(crs=None, epochs=2).fit(places, values)
    >>> law = model.predict_distribution(places[:3])
    >>> law.mean.shape, law.interval(0.95)[0].shape
    ((3,), (3,))
    """

    families: ClassVar[tuple[str, ...]] = ("field",)
    model = "field"

    def __init__(
        self,
        *,
        x: str = "longitude",
        y: str = "latitude",
        crs: Any = "EPSG:4326",
        time: str | None = None,
        time_unit: str | None = None,
        tests: str | None = None,
        devices: str | None = None,
        validation: Any = "blocks",
        preset: str = "quick",
        epochs: int | None = None,
        rank: int | None = None,
        batch: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.keep(locals())
