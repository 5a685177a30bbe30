"""Parameters of estimators in the style of scikit-learn, which is not imported."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.arguments import check_kind
from geogp.choices import MAX_SEED, one_of, whole_number
from geogp.distributions.amounts import LAWS
from geogp.distributions.html_tables import html_table
from geogp.distributions.shares import BINOMIAL
from geogp.errors import RequestError, named
from geogp.estimators.fit_rows import AUTO
from geogp.estimators.point_columns import PointColumns
from geogp.estimators.point_scale import PointScale
from geogp.models.catalogue.build import find_spec
from geogp.models.catalogue.fit_plan import FitPlan
from geogp.models.names import find_model
from geogp.models.numerics.devices import pick_device
from geogp.models.options import NOISES, Weights
from geogp.models.presets import Preset, find_preset
from geogp.models.process.architecture import Architecture

_MORE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""Kinds of ``*args`` and ``**options``, which stand for arguments of base classes."""


class EstimatorParameters:
    """Parameters of an estimator by name; the estimators are dataclasses of their parameters."""

    families: ClassVar[tuple[str, ...]] = ()
    """Families of models that the estimator fits."""

    counts: ClassVar[bool] = False
    """Whether targets must be 0 or more."""

    is_classifier: ClassVar[bool] = False
    """Whether scikit-learn must treat the estimator as a classifier."""

    model: str
    validation: Any
    epochs: int | None
    rank: int | None
    batch: int | None
    random_state: int
    verbose: bool

    history_: Any
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default of each constructor argument, including arguments of base classes."""
        defaults: dict[str, Any] = {}
        for base in cls.__mro__:
            if "__init__" not in vars(base):
                continue
            _, *arguments = inspect.signature(vars(base)["__init__"]).parameters.values()
            for argument in arguments:
                if argument.kind not in _MORE:
                    defaults.setdefault(argument.name, argument.default)
            if not any(argument.kind is inspect.Parameter.VAR_KEYWORD for argument in arguments):
                break
        return defaults

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - none are nested
        """Return the parameters by name, with the values that the user gave."""
        return {name: getattr(self, name) for name in self.defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and return the estimator.

        Raises
        ------
        RequestError
            A name is not a parameter of the estimator.
        """
        for name, value in params.items():
            if name not in self.defaults():
                raise RequestError(
                    f"expected one of the parameters {', '.join(self.defaults())}, found {name!r}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={shown}" for name, shown in self._changed().items())
        return f"{type(self).__name__}({arguments})"

    def _repr_html_(self) -> str:
        """Return the parameters that are not defaults, and whether it is fitted, as a table."""
        fitted = "fitted" if self.__sklearn_is_fitted__() else "not fitted"
        changed = self._changed()
        columns = {"parameter": list(changed), "value": list(changed.values())}
        return html_table(f"{type(self).__name__} ({fitted})", columns)

    def _changed(self) -> dict[str, str]:
        """Return the parameters that are not defaults, as they are shown."""
        usual = self.defaults()
        shown = {name: repr(value) for name, value in self.get_params().items()}
        return {name: text for name, text in shown.items() if text != repr(usual[name])}

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the estimator is fitted; scikit-learn calls this method."""
        return hasattr(self, "history_")

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags; only scikit-learn calls this method."""
        from sklearn import utils  # noqa: PLC0415

        return utils.Tags(
            estimator_type="classifier" if self.is_classifier else "regressor",
            target_tags=utils.TargetTags(required=True, positive_only=self.counts),
            classifier_tags=utils.ClassifierTags() if self.is_classifier else None,
            regressor_tags=None if self.is_classifier else utils.RegressorTags(),
            input_tags=utils.InputTags(),
        )

    def check_kinds(self) -> None:
        """Raise RequestError if a parameter is of a wrong kind, or a number is out of range."""
        kinds = get_type_hints(self.kind())
        for name in self.kind().defaults():
            check_kind(name, getattr(self, name), kinds[name])
        whole_number("random_state", self.random_state, 0, MAX_SEED)
        for name in ("epochs", "rank", "batch"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1, MAX_SEED)

    def check_fitted(self) -> None:
        """Raise RequestError if the estimator is not fitted."""
        if not self.__sklearn_is_fitted__():
            raise RequestError(f"this {type(self).__name__} is not fitted yet; call fit first.")

    def adapted(self, preset: Preset, n: int) -> Preset:
        """Return a preset for a fit to n rows, with the values of the parameters if given."""
        sizes = {"epochs": self.epochs, "r": self.rank, "batch": self.batch}
        changes: dict[str, Any] = {k: int(v) for k, v in sizes.items() if v is not None}
        batch = changes.pop("batch", preset.batch_for(n))
        batch = max(batch, find_spec(self.model).batch_rows(batch, n))
        rate, seed = preset.learning_rate_for(batch), int(self.random_state)
        return replace(preset, **changes, batch=batch, learning_rate=rate, seed=seed)

    def take_features(self, X: Any, names: Sequence[Any], n: int) -> None:
        """Set the number of input columns; if X is a table, also their names."""
        self.n_features_in_ = n
        vars(self).pop("feature_names_in_", None)  # from an earlier fit
        if isinstance(X, pd.DataFrame):
            self.feature_names_in_ = np.asarray(names, object)

    def described(self) -> dict[str, Any]:
        """Return the class, the parameters and the columns, as stored in the file of a model."""
        usual = self.kind().defaults()
        params = {name: plain(getattr(self, name)) for name in usual}
        if not isinstance(self.validation, str):
            params["validation"] = usual["validation"]  # the file has no rows for a mask
        names = [plain(name) for name in getattr(self, "feature_names_in_", [])]
        return {
            "estimator": self.kind().__name__,
            "params": params,
            "n_features_in": self.n_features_in_,
            "feature_names_in": [n if isinstance(n, int | float) else str(n) for n in names],
        }

    @classmethod
    def kind(cls) -> type["EstimatorParameters"]:
        """Return the class to store in files: for a user's subclass, its parent class in geogp."""
        return next(base for base in cls.__mro__ if "families" in vars(base))


@dataclass(eq=False, repr=False, kw_only=True)
class SpatialParameters(EstimatorParameters):
    """Parameters of an estimator: the columns, the model, and the training of the model."""

    model: str = field(default="", init=False, kw_only=False)
    x: str = "longitude"
    y: str = "latitude"
    crs: Any = "EPSG:4326"
    time: str | None = None
    time_unit: str | None = None
    tests: str | None = field(default=None, init=False)
    devices: str | None = field(default=None, init=False)
    exposure: str | None = field(default=None, init=False)
    covariates: Sequence[str] | None = field(default=None, init=False)
    provider: str | None = field(default=None, init=False)
    error_variance: str | None = field(default=None, init=False)
    group: str | None = field(default=None, init=False)
    law: str | None = field(default=None, init=False)
    alpha: float | None = field(default=None, init=False)
    beta: float | None = field(default=None, init=False)
    noise: str = field(default=NOISES[0], init=False)
    classes: int = field(default=0, init=False)
    validation: Any = "blocks"
    preset: str = "quick"
    epochs: int | None = None
    rank: int | None = None
    batch: int | None = None
    device: str = "auto"
    random_state: int = 0
    verbose: bool = False

    def check(self) -> None:
        """Raise RequestError if a parameter is out of range, or the model is of another family."""
        self.check_kinds()
        model = find_model(self.model)
        if model.family not in self.families:
            raise RequestError(
                f"{type(self).__name__} fits models of the families {', '.join(self.families)}, "
                f"found {self.model!r}. geogp.list_models() shows the family of each model."
            )
        model.check_noise(self.noise)
        if self.group is not None and self.error_variance is not None:
            raise RequestError("group and error_variance cannot be given together.")
        if self.law is not None:
            one_of("law", self.law, (*LAWS, BINOMIAL, AUTO))
            if self.error_variance is not None:
                raise RequestError("law and error_variance cannot be given together.")
            others = self.group, self.devices
            if self.law == BINOMIAL and (self.tests is None or others != (None, None)):
                raise RequestError(f"law={self.law!r} takes tests=, and no group= or devices=.")
        find_preset(self.preset, self.model)

    def columns(self) -> PointColumns:
        """Return the names of the columns that the estimator reads."""
        names = {column.name: getattr(self, column.name) for column in fields(PointColumns)}
        return PointColumns(**names)

    def plan(self, scale: PointScale, n: int) -> FitPlan:
        """Return the settings of a fit to n rows, from the preset and the other parameters."""
        preset = self.adapted(find_preset(self.preset, self.model), n)
        weights = Weights(
            preset.weights.alpha if self.alpha is None else self.alpha,
            preset.weights.beta if self.beta is None else self.beta,
        )
        sizes = Architecture(
            len(scale.columns),
            preset.h,
            preset.r,
            columns=scale.columns,
            dropped=scale.offsets,
            units=scale.units,
            noise=self.noise,
            covariates=scale.linear,
            classes=self.classes,
            providers=len(scale.providers),
        )
        device = pick_device(self.device)
        names = ["epochs", "rank", "batch", "provider", "devices"]
        knows_tests = self.group or self.error_variance or self.law == BINOMIAL
        names += [] if knows_tests else ["tests"]
        given = [name for name in names if getattr(self, name) is not None]
        if self.group is not None and given:
            raise RequestError(
                f"group needs an exact process, which has no {named(f'{one}=' for one in given)}. "
                "Leave this out, or group."
            )
        exact = self.model == "field" and not given
        return FitPlan(self.model, replace(preset, weights=weights), sizes, device, exact=exact)


def plain(value: Any) -> Any:
    """Return a value of NumPy as a value of Python, which JSON can store."""
    return value.item() if isinstance(value, np.generic) else value
