"""Saves models to files, and loads them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build, find_spec
from geogp.models.catalogue.rows import CATALOGUE, CLASS_CATALOGUE
from geogp.models.fitting.parallel import under
from geogp.models.numerics.precision import precision
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.options import DOUBLE
from geogp.models.process.architecture import Architecture
from geogp.models.process.model import Model

FORMAT = "geogp-model-2"
"""Version of the file layout; files with other versions are refused."""

SLACK = 10_000_000
"""A loaded model may need this many numbers plus four times the numbers in its file."""

MAX_MESSAGE_CHARACTERS = 500
"""Largest number of characters of torch's message about tensors that do not fit."""


def _check_sizes(architecture: Architecture, tensors: dict[str, Tensor]) -> None:
    """Refuse sizes that need far more numbers than the file contains, before using memory."""
    d, h, r = architecture.d, architecture.h, architecture.r
    largest = max(r * r, r * h, (architecture.blocks + 1) * h * h, d * max(h, r))
    stored = sum(value.numel() for value in tensors.values())
    if largest > 4 * stored + SLACK or architecture.blocks > len(tensors):
        raise ValueError(
            f"sizes d {d}, h {h}, r {r}, blocks {architecture.blocks} are too large for the "
            f"{stored:,} numbers in the file"
        )


def save_model(model: Model, path: Path | str, context: dict[str, Any] | None = None) -> None:
    """Save a model with its catalogue name, sizes and a `context`.

    Raises RequestError if JSON cannot represent the context, and OutputError as `write_tensors`.
    """
    with precision(DOUBLE):  # tensors are stored as they are
        write_tensors(Path(path), model.state_dict(), _described(model, context))


def save_models(
    models: Sequence[Model], path: Path | str, context: dict[str, Any] | None = None
) -> None:
    """Save the members of an ensemble, which differ only in their tensors; see `save_model`."""
    described = {**_described(models[0], context), "members": len(models)}
    with precision(DOUBLE):
        tensors = {
            f"{number}.{name}": value
            for number, model in enumerate(models)
            for name, value in model.state_dict().items()
        }
        write_tensors(Path(path), tensors, described)


def _described(model: Model, context: dict[str, Any] | None) -> dict[str, Any]:
    try:
        json.dumps(context or {}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RequestError(f"the context of a model must be valid JSON: {error}.") from None
    return {
        "format": FORMAT,
        "model": model.name,
        "architecture": asdict(model.architecture),
        "context": context or {},
    }


def load_model(path: Path | str) -> tuple[Model, dict[str, Any]]:
    """Load a model and its context from a file written by `save_model`; see `load_models`."""
    models, context = load_models(path)
    if len(models) > 1:
        raise DataError(f"expected one model in {path}, found an ensemble of {len(models)} models.")
    return models[0], context


def load_models(path: Path | str) -> tuple[list[Model], dict[str, Any]]:
    """Load the members of an ensemble, or a single model, and their context.

    Raises DataError if the file is damaged, edited or from another version, if the model is
    unknown, or if tensors do not fit the model or are not finite.
    """
    tensors, described = read_tensors(Path(path))
    layout, name = described.get("format"), described.get("model")
    if layout != FORMAT:
        raise DataError(f"expected a model of format {FORMAT} in {path}, found format {layout!r}.")
    if name not in [*CATALOGUE, *CLASS_CATALOGUE]:
        raise DataError(
            f"{path} has the model {name!r}, which geogp does not have. If it is your own, add it "
            "with add_model first."
        )
    members = described.get("members")
    context = described.get("context")
    if not isinstance(context, dict):
        raise DataError(f"expected a description of the model in {path}, found {context!r}.")
    if members is None:
        return [_filled(tensors, described, path)], context
    if members not in range(1, len(tensors) + 1):
        raise DataError(f"expected 1 model or more in {path}, found {members!r}.")
    of_members = (under(tensors, f"{number}.") for number in range(members))
    return [_filled(of_member, described, path) for of_member in of_members], context


def _filled(tensors: dict[str, Tensor], described: dict[str, Any], path: Path | str) -> Model:
    """Return the model with the given tensors; raise the errors of `load_models`."""
    _check_finite(tensors, path)
    try:
        architecture = Architecture(**described["architecture"])
        _check_sizes(architecture, tensors)
        spec, process = find_spec(described["model"]), build(described["model"], architecture, None)
        model = spec.restore(process, tensors)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = str(error)[:MAX_MESSAGE_CHARACTERS]  # torch lists every unexpected tensor
        raise DataError(f"the tensors in {path} do not fit its model: {message}.") from error
    _check_finite(model.state_dict(), path)  # after conversions
    return model


def _check_finite(tensors: dict[str, Tensor], path: Path | str) -> None:
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise DataError(f"the tensor {name} in {path} is not finite.")
