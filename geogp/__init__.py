"""Maps of network quality, with their uncertainty, by scalable Gaussian processes.

The public names are functions, such as `read_tiles` and `make_map`, estimators and errors. A module
is loaded when one of its names is first used, so ``import geogp`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geogp.answers.make_run import make_map
    from geogp.answers.run import Run, open_run
    from geogp.distributions.amounts import AmountPrediction
    from geogp.distributions.class_prediction import ClassPrediction
    from geogp.distributions.joint_prediction import JointPrediction
    from geogp.distributions.prediction import Prediction
    from geogp.distributions.shares import SharePrediction
    from geogp.errors import (
        DataError,
        GeogpError,
        NetworkError,
        NumericalError,
        OutputError,
        ReadingError,
        RequestError,
    )
    from geogp.estimators.class_gp import ClassGP
    from geogp.estimators.estimator_classes import CountGP, DeepBasisGP, FieldGP, KernelGP
    from geogp.estimators.stored_estimators import load_model
    from geogp.evaluation.evaluate import evaluate
    from geogp.evaluation.splits.split_table import split
    from geogp.geodata.covariates.read_covariate import read_covariate
    from geogp.geodata.places.region import Region
    from geogp.geodata.readers import read_region, read_tiles
    from geogp.models.joint.level import JointLevel
    from geogp.models.joint.weighted_sums import WeightedSums
    from geogp.models.names import list_models
    from geogp.models.numerics.precision import precision
    from geogp.models.several.joint_targets import JointTargets

__version__ = "0.2.0"

_MODULES = {
    "ClassGP": "estimators.class_gp",
    "AmountPrediction": "distributions.amounts",
    "ClassPrediction": "distributions.class_prediction",
    "CountGP": "estimators.estimator_classes",
    "DataError": "errors",
    "DeepBasisGP": "estimators.estimator_classes",
    "FieldGP": "estimators.estimator_classes",
    "GeogpError": "errors",
    "JointLevel": "models.joint.level",
    "JointPrediction": "distributions.joint_prediction",
    "JointTargets": "models.several.joint_targets",
    "KernelGP": "estimators.estimator_classes",
    "NetworkError": "errors",
    "NumericalError": "errors",
    "OutputError": "errors",
    "Prediction": "distributions.prediction",
    "ReadingError": "errors",
    "Region": "geodata.places.region",
    "RequestError": "errors",
    "Run": "answers.run",
    "SharePrediction": "distributions.shares",
    "WeightedSums": "models.joint.weighted_sums",
    "evaluate": "evaluation.evaluate",
    "list_models": "models.names",
    "load_model": "estimators.stored_estimators",
    "make_map": "answers.make_run",
    "open_run": "answers.run",
    "precision": "models.numerics.precision",
    "read_covariate": "geodata.covariates.read_covariate",
    "read_region": "geodata.readers",
    "read_tiles": "geodata.readers",
    "split": "evaluation.splits.split_table",
}
"""The public names, and the module that defines each name."""

__all__ = [
    "AmountPrediction",
    "ClassGP",
    "ClassPrediction",
    "CountGP",
    "DataError",
    "DeepBasisGP",
    "FieldGP",
    "GeogpError",
    "JointLevel",
    "JointPrediction",
    "JointTargets",
    "KernelGP",
    "NetworkError",
    "NumericalError",
    "OutputError",
    "Prediction",
    "ReadingError",
    "Region",
    "RequestError",
    "Run",
    "SharePrediction",
    "WeightedSums",
    "__version__",
    "evaluate",
    "list_models",
    "load_model",
    "make_map",
    "open_run",
    "precision",
    "read_covariate",
    "read_region",
    "read_tiles",
    "split",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
