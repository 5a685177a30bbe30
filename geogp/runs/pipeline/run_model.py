"""How the models of a run are made: the same sizes, scale, columns and device for all fits."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.distributions.shares import BINOMIAL
from geogp.errors import RequestError
from geogp.estimators.point_scale import PointScale, covariate_scales
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import make_estimator
from geogp.geodata.tiles.quarters import quarter_label
from geogp.geodata.tiles.targets import find_target
from geogp.models.catalogue.build import find_spec, with_noise
from geogp.models.exact.passes import MOST_PASSES, MOST_ROWS
from geogp.models.names import ModelName, find_model
from geogp.models.options import DOUBLE, Weights
from geogp.models.presets import Preset, find_preset
from geogp.records.map_settings import DEFAULT_MODEL, MapSettings
from geogp.runs.pipeline.read import Inputs

Rows = NDArray[np.bool_]

COLUMNS = {"time": "quarter", "tests": "tests", "devices": "devices", "exposure": "area_km2"}
"""The column of a run's tables for each of these parameters of the estimator."""


@dataclass(frozen=True)
class RunModel:
    """Makes the estimators of a run.

    `rows` is the number of all rows of the region. `by_drive` says whether the model knows that the
    rows of a drive err together; `why_not_by_drive` decides it. `has_errors` says whether rows have
    known errors.
    """

    settings: MapSettings
    preset: Preset
    scale: PointScale
    device: torch.device
    rows: int
    by_drive: bool = False
    has_errors: bool = False

    @classmethod
    def of(cls, settings: MapSettings, inputs: Inputs, device: torch.device) -> "RunModel":
        """Return how the models of a run are made; raise the errors of `scale_of`."""
        preset = find_preset(settings.preset, settings.model)
        scale = scale_of(settings, inputs)
        drive = inputs.observations.drive
        by_drive = drive is not None and why_not_by_drive(settings, inputs) is None
        has_errors = inputs.observations.error_variance is not None
        return cls(settings, preset, scale, device, len(inputs.observations), by_drive, has_errors)

    @property
    def name(self) -> ModelName:
        """Properties of the model: its name, its family and its abilities."""
        return find_model(self.settings.model)

    @property
    def epochs(self) -> int:
        """Number of passes over the training rows: the user's number, or the preset's number."""
        return self.settings.epochs or self.preset.epochs

    @property
    def batch(self) -> int:
        """Number of rows per training step, for a training part of 80 % of all rows."""
        n = 8 * self.rows // 10
        spec = with_noise(find_spec(self.settings.model), self.settings.noise)
        return spec.batch_rows(self.preset.batch_for(n), n)

    @property
    def keeps_level(self) -> bool:
        """Whether the run folder keeps the level of single tiles; see `KeptLevel`.

        In single precision, rounding errors decide which rows are near, and the model that was
        fitted and the model from the file have different ones.
        """
        return not self.scale.providers and self.settings.precision == DOUBLE

    def with_rank(self, r: int) -> "RunModel":
        """Return how the models are made with another rank."""
        return replace(self, preset=replace(self.preset, r=r))

    def shown(self, estimator: SpatialGP) -> SpatialGP:
        """Return a fitted estimator of the target that the map shows: the first of several."""
        targets = self.settings.targets
        return estimator if len(targets) == 1 else estimator.of_target(targets[0])

    def estimator(
        self, weights: Weights, *, validation: Rows | None = None, epochs: int | None = None
    ) -> SpatialGP:
        """Return an unfitted estimator with the settings of the run, or with other `epochs`.

        An exact process, which knows drives, known errors or the errors of few shares of tests, has
        no epochs, rank and batch.
        """
        settings, scale = self.settings, self.scale
        shares = find_target(settings.target).is_share
        columns: dict[str, str | None] = dict(COLUMNS)
        sizes: dict[str, int | None] = {
            "epochs": epochs or self.epochs,
            "rank": self.preset.r,
            "batch": self.batch,
        }
        if scale.times is None:
            columns["time"] = None
        if self.by_drive:
            columns |= {"group": "drive", "devices": None}
        if self.has_errors:
            columns |= {"error_variance": "error_variance", "devices": None}
        if shares:
            columns |= {"law": BINOMIAL, "devices": None}
        if (
            self.by_drive
            or self.has_errors
            or (shares and settings.epochs is None and self.rows <= MOST_ROWS)
        ):
            sizes = {}
        return make_estimator(
            settings.model,
            **columns,
            **sizes,
            covariates=[covariate.name for covariate in scale.covariates] or None,
            provider="provider" if scale.providers else None,
            validation="random" if validation is None else validation,
            preset=settings.preset,
            alpha=weights.alpha,
            beta=weights.beta,
            noise=settings.noise,
            classes=len(find_target(settings.target).classes),
            device=str(self.device),
            random_state=settings.seed,
        )


def why_not_by_drive(settings: MapSettings, inputs: Inputs) -> str | None:
    """Return why the model does not know the drives of a log of drives; None if it knows them.

    Also returns None if the tests are no log of drives.
    """
    if inputs.points is None or inputs.points.drive is None:
        return None
    drive = inputs.observations.drive
    if drive is None:
        return "--by-provider, --target tests or success, and error_sd pool the tests of all drives"
    if settings.model != DEFAULT_MODEL:
        return f"--model {settings.model} does not know drives, as {DEFAULT_MODEL} does"
    if settings.epochs is not None:
        return "--epochs asks for a model that does not know drives"
    count = len(np.unique(drive))
    if not 2 <= count <= MOST_PASSES:
        return f"it needs 2 to {MOST_PASSES:,} drives, found {count:,}"
    return None


def scale_of(settings: MapSettings, inputs: Inputs) -> PointScale:
    """Return the conversion of rows to model inputs, which is the same for all fits of a run.

    The conversion depends on the box of the region and on all rows. The exposure of a count is
    the area of its tile divided by the mean area. Raises RequestError if the settings ask for
    quarters as inputs, but all rows are of one quarter.
    """
    quarters, kind = inputs.observations.quarters, settings.inputs
    if kind == "place-quarter" and len(quarters) == 1:
        raise RequestError(
            f"--inputs place-quarter needs data of two quarters or more, but the only quarter "
            f"with data is {quarter_label(quarters[0])}. Choose more quarters, or --inputs "
            f"place."
        )
    timeless = kind == "place" or len(quarters) == 1
    counts, names = find_model(settings.model).counts, inputs.places.names
    return PointScale(
        inputs.region.bounds,
        times=None if timeless else (quarters[0], quarters[-1]),
        exposure=float(inputs.table["area_km2"].to_numpy().mean()) if counts else None,
        time_kind=None if timeless else "quarter",
        covariates=covariate_scales(names, inputs.table[names].to_numpy(np.float64)),
        providers=inputs.providers,
    )
