"""The models whose kernel has a few parameters as an estimator."""

from typing import Any, ClassVar

from geogp.estimators.spatial_gp import SpatialGP


class KernelGP(SpatialGP):
    """A Gaussian process whose kernel has a few parameters, by Nyström features at anchors.

    The evidence of all rows, or the posterior of the parameters, is maximised by L-BFGS.

    Parameters
    ----------
    model
        One of ``geogp.list_models("kernel")``.
    x, y, crs, time, time_unit, validation, device, random_state
        As `FieldGP` has them.
    preset, epochs, rank, batch
        As `FieldGP` has them.
    """

    families: ClassVar[tuple[str, ...]] = ("kernel",)

    def __init__(
        self,
        model: str = "nystrom-mixed",
        *,
        x: str = "longitude",
        y: str = "latitude",
        crs: Any = "EPSG:4326",
        time: str | None = None,
        time_unit: str | None = None,
        validation: Any = "blocks",
        preset: str = "quick",
        epochs: int | None = None,
        rank: int | None = None,
        batch: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.keep(locals())
