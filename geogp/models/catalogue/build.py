"""Builds a model of the catalogue from its name."""

import warnings
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from geogp.choices import one_of
from geogp.errors import DataError, RequestError
from geogp.models.catalogue.part_makers import PlacementContext
from geogp.models.catalogue.rows import CATALOGUE, CLASS_CATALOGUE, ModelSpec
from geogp.models.names import find_model
from geogp.models.numerics.arrays import as_floats
from geogp.models.numerics.threads import seeded
from geogp.models.options import NOISES, Placement
from geogp.models.papers.student_noise import StudentGP, StudentNoise
from geogp.models.process.architecture import Architecture
from geogp.models.process.memory import check_model
from geogp.models.process.noise import NOISE_FLOOR, NOISE_START
from geogp.models.process.process import NO_NUMBERS, Floats, Process

__all__ = [
    "CATALOGUE",
    "CLASS_CATALOGUE",
    "SCALINGS",
    "ModelSpec",
    "Scaling",
    "build",
    "find_spec",
    "with_noise",
    "without_constants",
]

Scaling = Literal["none", "minmax"]
"""How inputs are mapped to [-1, 1]; see `build`."""

SCALINGS: tuple[str, ...] = get_args(Scaling)
"""All possible scalings, to check a name."""

LARGEST_INPUT = 10.0
"""Largest absolute input accepted without scaling; the models expect inputs in [-1, 1]."""


def build(
    name: str,
    architecture: Architecture,
    x: Floats | Tensor | None,
    *,
    placement: Placement = "kmeans",
    scaling: Scaling = "none",
    noise_start: float = NOISE_START,
    seed: int = 0,
) -> Process:
    """Build an untrained model.

    `x`: training inputs (n, d); inducing points are placed among them. With None, inducing points
        are random; use None only if the model's tensors are loaded later. A column with the same
        value in all rows is added to `architecture.dropped`.
    `placement`: how inducing points are chosen; see `place_anchors`.
    `scaling`: ``minmax`` maps the range of each column to [-1, 1]; ``none`` expects inputs that are
        already in [-1, 1].
    `noise_start`: start value of the noise variance, for a standardised target. The papers use
        1e-2, which suits precise targets; a value near 1 suits noisy targets.
    `seed`: fixes all initial values.

    Warns with UserWarning if a column is dropped, or if there are fewer rows than weights.

    Raises RequestError if the name, placement or scaling is unknown, the model cannot have this
    noise, memory is too small, or PyTorch's default device is ``meta``. Raises DataError if `x` is
    not finite, has a wrong number of columns or only constant columns, or is far outside [-1, 1]
    with scaling ``none``.
    """
    spec = with_noise(find_spec(name), architecture.noise)
    check_model(architecture)
    if torch.get_default_device().type == "meta":
        raise RequestError(NO_NUMBERS)
    generator = torch.Generator().manual_seed(seed)
    if not NOISE_FLOOR < noise_start < float("inf"):
        raise RequestError(f"expected a starting noise above {NOISE_FLOOR:g}, found {noise_start}.")
    one_of("scaling", scaling, SCALINGS)
    values = None
    if x is not None:
        values = _checked(x, architecture, scaling)
        architecture = without_constants(values, architecture)
    low, high, scaled = _range(values, architecture, scaling)
    dtype = architecture.torch_dtype
    with seeded(seed):
        basis = spec.basis(architecture, PlacementContext(scaled, placement, generator))
        model = spec.assemble(
            spec.name,
            architecture,
            basis=basis,
            posterior=spec.posterior(basis.rank, generator, dtype),
            noise=spec.noise(dtype, noise_start),
            diagonal=spec.diagonal(),
        )
    model.make_fit = spec.fit
    model.take_range(low, high)
    if values is not None and len(values) < model.basis.rank:
        warnings.warn(
            f"{len(values)} training rows for {model.basis.rank} weights: more weights than "
            f"rows. A smaller r fits equally well.",
            stacklevel=2,
        )
    return model


def find_spec(name: str) -> ModelSpec:
    """Return the row of either catalogue with this name; raise the errors of `find_model`."""
    spec = CLASS_CATALOGUE.get(name)
    return CATALOGUE[find_model(name).name] if spec is None else spec


def with_noise(spec: ModelSpec, noise: str) -> ModelSpec:
    """Return a row of the catalogue, adapted to a noise; raise the error of `check_noise`."""
    spec.about.check_noise(noise)
    if noise == NOISES[0]:
        return spec
    assert spec.student is not None
    return replace(spec, fit=spec.student, noise=StudentNoise, assemble=StudentGP)


def _checked(x: Floats | Tensor, architecture: Architecture, scaling: Scaling) -> Floats:
    values = as_floats(x, "inputs")
    if values.ndim != 2 or values.shape[1] != architecture.d or len(values) < 2:
        raise DataError(
            f"expected training inputs of shape (n, {architecture.d}) with n >= 2, "
            f"found {values.shape}."
        )
    largest = np.abs(values).max()
    if scaling == "none" and largest > LARGEST_INPUT:
        raise DataError(
            f"expected inputs roughly in [-1, 1], found values up to {largest:.3g}; build with "
            "scaling='minmax'."
        )
    return values


def without_constants(values: Floats, architecture: Architecture) -> Architecture:
    """Return an architecture that drops the columns with the same value in all rows.

    Warns of each dropped column. Raises DataError if no column is left.
    """
    constant = values.min(0) == values.max(0)
    names = tuple(
        name
        for name, same in zip(architecture.columns, constant, strict=True)
        if same and name not in architecture.dropped
    )
    dropped = {*names, *architecture.dropped}
    if dropped == set(architecture.columns):
        raise DataError(
            f"each of the columns that are used ({', '.join(names)}) has the same value in all "
            f"{len(values)} training rows, so the rows cannot be distinguished."
        )
    if names:
        warnings.warn(
            f"columns with the same value in all {len(values)} training rows are not used: "
            f"{', '.join(names)}.",
            stacklevel=3,
        )
    in_order = tuple(name for name in architecture.columns if name in dropped)
    return replace(architecture, dropped=in_order)


def _range(
    values: Floats | None, architecture: Architecture, scaling: Scaling
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the inputs that are mapped to -1 and 1, (used,), and the scaled inputs, if any."""
    used = list(architecture.used)
    low, high = torch.full((len(used),), -1.0), torch.ones(len(used))
    if values is None:
        return low, high, None
    rows = torch.as_tensor(np.ascontiguousarray(values[:, used]))
    if scaling == "minmax":
        low, high = rows.min(0).values, rows.max(0).values
    return low, high, (2 * (rows - low) / (high - low) - 1).to(architecture.torch_dtype)
