"""The estimator of count models."""

from typing import Any, ClassVar

from geogp.estimators.spatial_gp import SpatialGP


class CountGP(SpatialGP):
    """Counts whose logarithm of the rate is a Gaussian process: a Cox process.

    y ~ Poisson(exposure * rate), or negative binomial; y holds whole numbers of 0 or more.

    Parameters
    ----------
    model
        One of ``geogp.list_models("count")``.
    x, y, crs, time, time_unit, validation, device, random_state, preset, epochs, rank, batch
        As in `FieldGP`.
    exposure
        Column of the size counted over, such as an area or a time; None: the same everywhere.
    """

    families: ClassVar[tuple[str, ...]] = ("count",)
    counts = True

    def __init__(
        self,
        model: str = "cox-nb",
        *,
        x: str = "longitude",
        y: str = "latitude",
        crs: Any = "EPSG:4326",
        time: str | None = None,
        time_unit: str | None = None,
        exposure: str | None = None,
        validation: Any = "blocks",
        preset: str = "quick",
        epochs: int | None = None,
        rank: int | None = None,
        batch: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.keep(locals())
