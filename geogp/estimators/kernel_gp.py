"""The estimator of models whose kernel has a few parameters."""

from typing import Any, ClassVar

from geogp.estimators.spatial_gp import SpatialGP


class KernelGP(SpatialGP):
    """A Gaussian process whose kernel has a few parameters, by Nyström features at anchors.

    L-BFGS maximises the evidence of all rows, or the posterior of the parameters.

    Parameters
    ----------
    model
        One of ``geogp.list_models("kernel")``.
    x, y, crs, time, time_unit, validation, device, random_state, preset, epochs, rank, batch
        As in `FieldGP`.
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
