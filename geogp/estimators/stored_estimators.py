"""Reads fitted estimators from files."""

from pathlib import Path
from typing import Any

import numpy as np

from geogp.arguments import checked_arguments
from geogp.errors import DataError
from geogp.estimators.class_gp import ClassGP
from geogp.estimators.estimator_classes import (
    CountGP,
    DeepBasisGP,
    FieldGP,
    KernelGP,
    PlaceClassGP,
)
from geogp.estimators.point_scale import CovariateScale, PointScale
from geogp.estimators.spatial_gp import SpatialGP
from geogp.models.catalogue import storage
from geogp.models.catalogue.model_names import find_model
from geogp.models.core.devices import pick_device
from geogp.models.core.lowrank import LowRankGP
from geogp.models.training.training_loop import FitState

ESTIMATORS: dict[str, type[SpatialGP]] = {
    kind.__name__: kind for kind in (FieldGP, DeepBasisGP, KernelGP, CountGP, PlaceClassGP)
}


@checked_arguments
def load_model(path: Path | str, *, device: str = "auto") -> SpatialGP | ClassGP:
    """Return the estimator from a file that `save` wrote, or from ``model.safetensors`` of a run.

    Parameters
    ----------
    path
        The file. `load_model` checks the hash of the file, and executes no code from the file.
    device
        ``auto``, ``cpu`` or ``cuda``.

    Raises
    ------
    DataError
        The file is damaged or was changed, or another version of geogp wrote it.
    RequestError
        The device is unknown or not available.
    """
    networks, context = storage.load_models(path)
    if context.get("estimator") != ClassGP.__name__:
        return _spatial(networks, context, path, device)
    try:
        return ClassGP.restored(networks, context, device)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} does not describe its classes ({error!r}).") from error


def load_with_notes(path: Path | str, *, device: str = "auto") -> tuple[SpatialGP, dict[str, Any]]:
    """Return the estimator in a file of a run, and all entries of the file by name.

    Raises the errors of `load_model`.
    """
    network, context = storage.load_model(path)
    return _spatial([network], context, path, device), context


def _spatial(
    networks: list[LowRankGP], context: dict[str, Any], path: Path | str, device: str
) -> SpatialGP:
    network = networks[0]
    try:
        estimator = _estimator(network.name, context)
        estimator.scale_ = _scale(estimator, context["inputs"])
        estimator.history_ = FitState(
            best_epoch=int(context["best_epoch"]), best_nll=float(context["validation_nll"])
        )
        timed = estimator.scale_.times is not None
        estimator.n_features_in_ = int(context.get("n_features_in", 2 + timed))
        names = context.get("feature_names_in", ["longitude", "latitude", "quarter"][: 2 + timed])
        if names:
            estimator.feature_names_in_ = np.asarray(names, object)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} does not describe the inputs of its model ({error!r}).") from error
    estimator.device = device
    estimator.network_ = network.to(pick_device(device))
    return estimator


def make_estimator(model: str, **parameters: Any) -> SpatialGP:
    """Return a new estimator for a model; ignore parameters that this estimator does not have."""
    family = find_model(model).family
    kind = next(one for one in ESTIMATORS.values() if family in one.families)
    names = kind.defaults()
    wanted = {"model": model, **parameters}
    return kind(**{name: value for name, value in wanted.items() if name in names})


def _estimator(model: str, context: dict[str, Any]) -> SpatialGP:
    if "params" in context:
        found = ESTIMATORS[context["estimator"]](**context["params"])
        if found.model != model:
            raise ValueError(f"{found.model} is not {model}")
        return found
    inputs = context["inputs"]
    return make_estimator(
        model,
        time=None if inputs["quarters"] is None else "quarter",
        tests="tests",
        devices="devices",
        exposure="area_km2" if "area_km2" in inputs else None,
    )


def _scale(estimator: SpatialGP, inputs: dict[str, Any]) -> PointScale:
    west, south, east, north = inputs["bounds"]
    times = inputs["quarters"]
    return PointScale(
        (west, south, east, north),
        inputs.get("km"),
        None if times is None else (times[0], times[1]),
        inputs.get("area_km2"),
        (estimator.x, estimator.y, estimator.time or "time"),
        inputs.get("time_kind", None if times is None else "quarter"),
        tuple(CovariateScale(*one) for one in inputs.get("covariates", [])),
        tuple(map(str, inputs.get("providers", []))),
    )
