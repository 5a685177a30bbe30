"""The estimator of models with deep bases, inducing points and last layers."""

from typing import Any, ClassVar

from geogp.estimators.spatial_gp import SpatialGP


class DeepBasisGP(SpatialGP):
    """A Gaussian process whose basis a network learns: the papers' models without anchor kernels.

    dPPGP, PPGP, variational bounds and Bayesian last layers; the noise is the same everywhere.

    Parameters
    ----------
    model
        One of ``geogp.list_models("deep")``.
    x, y, crs, time, time_unit, validation, device, random_state, preset, epochs, rank, batch
        As in `FieldGP`.
    alpha, beta
        Weights of the objective of dPPGP and PPGP; None takes the preset's.
    noise
        ``gaussian``, or ``student-t`` for models that take it: outliers have less effect.
    """

    families: ClassVar[tuple[str, ...]] = ("deep",)

    def __init__(
        self,
        model: str = "dbk-rbf",
        *,
        x: str = "longitude",
        y: str = "latitude",
        crs: Any = "EPSG:4326",
        time: str | None = None,
        time_unit: str | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        noise: str = "gaussian",
        validation: Any = "blocks",
        preset: str = "quick",
        epochs: int | None = None,
        rank: int | None = None,
        batch: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.keep(locals())
