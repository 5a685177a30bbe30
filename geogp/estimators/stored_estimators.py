"""Reads fitted estimators from files."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from geogp.arguments import checked_arguments
from geogp.choices import one_of
from geogp.distributions.amounts import NormalScores
from geogp.distributions.shares import BINOMIAL
from geogp.errors import DataError
from geogp.estimators.class_gp import ClassGP
from geogp.estimators.estimator_classes import (
    CountGP,
    DeepBasisGP,
    FieldGP,
    KernelGP,
    PlaceClassGP,
)
from geogp.estimators.fit_rows import AUTO
from geogp.estimators.point_columns import is_geographic
from geogp.estimators.point_scale import CovariateScale, PointScale
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_schema import (
    StoredClasses,
    StoredEstimator,
    StoredInputs,
    StoredNormalScores,
    described_as,
)
from geogp.models.catalogue import storage
from geogp.models.fitting.loop import FitState
from geogp.models.names import find_model
from geogp.models.numerics.devices import pick_device
from geogp.models.process.model import Model
from geogp.models.several.several_targets import SeveralTargets

_WRONG = (KeyError, TypeError, ValueError)
"""Errors of wrong parameters; geogp's own errors of arguments and data are of these kinds."""

ESTIMATORS: dict[str, type[SpatialGP]] = {
    kind.__name__: kind for kind in (FieldGP, DeepBasisGP, KernelGP, CountGP, PlaceClassGP)
}
"""The estimators of points in space that a file can name."""


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
    stored = described_as(StoredClasses, context, path)
    try:
        return ClassGP.restored(networks, stored, device)
    except _WRONG as error:
        raise DataError(f"{path} does not describe its classes ({error}).") from error


def load_with_notes(path: Path | str, *, device: str = "auto") -> tuple[SpatialGP, dict[str, Any]]:
    """Return the estimator in a file of a run, and all entries of the file by name.

    Raises the errors of `load_model`.
    """
    networks, context = storage.load_models(path)
    return _spatial(networks, context, path, device), context


def _spatial(
    networks: list[Model], context: dict[str, Any], path: Path | str, device: str
) -> SpatialGP:
    network, stored = networks[0], described_as(StoredEstimator, context, path)
    several = None
    try:
        estimator = _estimator(network.name, stored)
        estimator.scale_ = _scale(estimator, stored.inputs)
        _check_scale(estimator, network, named=stored.params is not None)
        estimator.normal_scores_ = _normal_scores(estimator, stored.normal_scores)
        if stored.targets is not None:
            several = SeveralTargets.restored(networks, msgspec.to_builtins(stored.targets))
        elif len(networks) > 1:
            raise DataError(f"expected the targets of {len(networks)} models, found none")
    except _WRONG as error:
        raise DataError(f"{path} does not describe the inputs of its model ({error}).") from error
    estimator.history_ = FitState(best_epoch=stored.best_epoch, best_nll=stored.validation_nll)
    columns = ["longitude", "latitude", "quarter"][: 2 + (estimator.scale_.times is not None)]
    estimator.n_features_in_ = stored.n_features_in or len(columns)
    names = columns if stored.feature_names_in is None else stored.feature_names_in
    if names:
        estimator.feature_names_in_ = np.asarray(names, object)
    estimator.device = device
    if several is not None:
        estimator.several_ = several.to(pick_device(device))
    else:
        estimator.network_ = network.to(pick_device(device))
    return estimator


def make_estimator(model: str, **parameters: Any) -> SpatialGP:
    """Return a new estimator for a model; ignore parameters that this estimator does not have."""
    family = find_model(model).family
    estimator = next(kind for kind in ESTIMATORS.values() if family in kind.families)
    names = estimator.defaults()
    chosen = {"model": model, **parameters}
    return estimator(**{name: value for name, value in chosen.items() if name in names})


def _estimator(model: str, stored: StoredEstimator) -> SpatialGP:
    """Return the estimator with the stored parameters, which are checked."""
    if stored.params is None:
        return make_estimator(
            model,
            time=None if stored.inputs.quarters is None else "quarter",
            tests="tests",
            devices="devices",
            exposure=None if stored.inputs.area_km2 is None else "area_km2",
        )
    one_of("estimator", stored.estimator, ESTIMATORS)
    estimator = ESTIMATORS[str(stored.estimator)](**stored.params)
    if estimator.model != model:
        raise DataError(f"expected parameters of {model}, found those of {estimator.model}")
    estimator.check()
    estimator.columns().check()
    return estimator


def _scale(estimator: SpatialGP, inputs: StoredInputs) -> PointScale:
    return PointScale(
        inputs.bounds,
        inputs.km,
        inputs.quarters,
        inputs.area_km2,
        (estimator.x, estimator.y, estimator.time or "time"),
        inputs.time_kind or (None if inputs.quarters is None else "quarter"),
        tuple(CovariateScale(*scale) for scale in inputs.covariates),
        tuple(inputs.providers),
    )


def _normal_scores(estimator: SpatialGP, stored: StoredNormalScores | None) -> NormalScores | None:
    """Return the stored map of normal scores; raise DataError if it is not that of the law."""
    expected = BINOMIAL, AUTO, None if stored is None else stored.law
    if estimator.law not in expected:
        raise DataError(f"expected normal scores for law={estimator.law!r}, found {stored}")
    if stored is None:
        return None
    lower, upper = (
        end if given is None else given
        for end, given in ((-np.inf, stored.lower), (np.inf, stored.upper))
    )
    scores, values = np.array(stored.scores), np.array(stored.values)
    return NormalScores(stored.law, scores, values, lower, upper)


def _check_scale(estimator: SpatialGP, network: Model, *, named: bool) -> None:
    """Raise DataError if the stored scale contradicts the estimator or the model."""
    scale, sizes = estimator.scale_, network.architecture
    degrees = is_geographic(estimator.crs)
    if degrees != (scale.km is None):
        raise DataError(f"expected km for coordinates in a plane, found km {scale.km}")
    if degrees:
        estimator.columns().check_degrees(scale.bounds)
    linear = len(scale.linear), len(scale.providers)
    same = scale.columns == sizes.columns if named else len(scale.columns) == sizes.d
    if not same or linear != (len(sizes.covariates), sizes.providers):
        raise DataError(f"expected the inputs {sizes.columns}, found {scale.columns}")
    if (scale.exposure is not None) != estimator.counts:
        raise DataError(f"expected area_km2 only for counts, found {scale.exposure}")
