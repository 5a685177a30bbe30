"""The parameters of all estimators, and the plan of their fit."""

from dataclasses import replace
from typing import Any, ClassVar

from geogp.choices import MOST_SEED, whole_number
from geogp.errors import RequestError
from geogp.estimators.parameters import Parameters
from geogp.estimators.point_columns import PointColumns
from geogp.estimators.point_scale import PointScale
from geogp.models.catalogue.build_model import find_spec
from geogp.models.catalogue.model_names import find_model
from geogp.models.catalogue.presets import Preset, find_preset
from geogp.models.core.devices import pick_device
from geogp.models.core.options import NOISES, Weights
from geogp.models.training.fit_plan import FitPlan


class SpatialParameters(Parameters):
    """Parameters of an estimator: columns, a model, and its training."""

    families: ClassVar[tuple[str, ...]] = ()
    """Families of the catalogue that the estimator fits."""

    model: str
    x: str
    y: str
    crs: Any
    time: str | None
    time_unit: str | None
    tests: str | None = None
    devices: str | None = None
    exposure: str | None = None
    noise: str = NOISES[0]
    validation: Any
    preset: str
    epochs: int | None
    rank: int | None
    batch: int | None
    alpha: float | None = None
    beta: float | None = None
    device: str
    random_state: int

    def check(self) -> None:
        """Refuse parameters out of range, and a model of another estimator (RequestError)."""
        about = find_model(self.model)
        if about.family not in self.families:
            raise RequestError(
                f"{type(self).__name__} fits models of {', '.join(self.families)}, found "
                f"{self.model!r}. geogp.list_models() names the families."
            )
        about.check_noise(self.noise)
        whole_number("random_state", self.random_state, 0, MOST_SEED)
        for name in ("epochs", "rank", "batch"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1, MOST_SEED)

    def columns(self) -> PointColumns:
        """Return the columns by their use."""
        return PointColumns(
            self.x,
            self.y,
            self.crs,
            self.time,
            self.time_unit,
            self.tests,
            self.devices,
            self.exposure,
        )

    def plan(self, scale: PointScale, n: int) -> FitPlan:
        """Return the plan of a fit to n rows: the preset, changed by the parameters."""
        preset = self._preset()
        step = find_spec(self.model).step
        batch = preset.batch_for(n) if self.batch is None else self.batch
        return FitPlan(
            self.model,
            preset,
            scale.columns,
            scale.units,
            preset.epochs if self.epochs is None else self.epochs,
            max(batch, step.rows(batch, n)),
            preset.weights,
            pick_device(self.device),
            scale.offsets,
            self.noise,
            self.random_state,
        )

    def _preset(self) -> Preset:
        found = find_preset(self.preset, self.model)
        weights = Weights(
            found.weights.alpha if self.alpha is None else self.alpha,
            found.weights.beta if self.beta is None else self.beta,
        )
        return replace(found, weights=weights, r=found.r if self.rank is None else self.rank)

    @classmethod
    def kind(cls) -> type["SpatialParameters"]:
        """Return geogp's own class that a file names: this class or its base."""
        return next(one for one in cls.__mro__ if "families" in vars(one))
