"""The models by name: each row is a basis, a posterior and an objective."""

import difflib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from geogp.errors import DataError, RequestError
from geogp.models.arrays import as_floats
from geogp.models.bases import Backbone, Basis, DenseBasis, InducingBasis, NetworkBasis
from geogp.models.blocksteps import PerPlace
from geogp.models.cox import CountLaw, CoxGP, Dispersion, PerCount
from geogp.models.diagonals import Diagonal, NystromDiagonal, VarianceCorrection
from geogp.models.field import FieldGP
from geogp.models.lowrank import Architecture, Floats, LowRankGP
from geogp.models.measurement import MeasurementLaw
from geogp.models.noise import NOISE_FLOOR, NOISE_START, ConstantNoise, Noise, ValidationNoise
from geogp.models.objectives import (
    corrected_elbo,
    corrected_log_marginal_likelihood,
    dppgp,
    elbo,
    log_marginal_likelihood,
    negative_binomial_elbo,
    poisson_elbo,
    ppgp,
    squared_error,
)
from geogp.models.placement import Placement, place_anchors
from geogp.models.posteriors import (
    ClosedFormPosterior,
    PointPosterior,
    Posterior,
    VariationalPosterior,
)
from geogp.models.steps import PerBatch, Step, WholeData
from geogp.models.tiles import TileProcess

MakeBasis = Callable[[Architecture, Tensor | None, Placement, torch.Generator], Basis]
MakePosterior = Callable[[int, torch.Generator, torch.dtype], Posterior]
MakeNoise = Callable[[torch.dtype, float], Noise]

Scaling = Literal["none", "minmax"]

SCALINGS: tuple[str, ...] = get_args(Scaling)

LARGEST_INPUT = 10.0
"""Inputs that are taken as they are must not exceed this: the models start on [-1, 1]."""


@dataclass(frozen=True)
class Parts:
    """What a model is put together from; see `LowRankGP`."""

    name: str
    architecture: Architecture
    basis: Basis
    posterior: Posterior
    noise: Noise
    diagonal: Diagonal


def plain_gp(parts: Parts, span: Tensor) -> LowRankGP:  # noqa: ARG001
    """Return the low-rank process of the papers."""
    return LowRankGP(
        parts.name,
        parts.architecture,
        basis=parts.basis,
        posterior=parts.posterior,
        noise=parts.noise,
        diagonal=parts.diagonal,
    )


Assemble = Callable[[Parts, Tensor], LowRankGP]
"""From the parts, and half the range that each scaled input stands for, to a model."""


@dataclass(frozen=True)
class ModelSpec:
    """A row of the catalogue.

    Attributes
    ----------
    name
        As on the command line.
    basis
        Makes the basis from sizes, scaled training inputs (None when a saved model is restored)
        and the placement of inducing points.
    posterior
        Makes the posterior over the weights.
    step
        What training minimises, and how its gradient is taken.
    diagonal
        What is added to the predictive variance at single points.
    summary
        One line.
    noise
        Makes the noise law.
    assemble
        Puts the parts together.
    has_tiles
        Whether a process of single tiles and a law of tests belong to it.
    counts
        Whether it models counts: its targets are whole numbers of 0 or more, its function the
        logarithm of their rate.
    """

    name: str
    basis: MakeBasis
    posterior: MakePosterior
    step: Step
    diagonal: Callable[[], Diagonal]
    summary: str
    noise: MakeNoise = ConstantNoise
    assemble: "Assemble" = plain_gp
    has_tiles: bool = False
    counts: bool = False


def build(
    name: str,
    architecture: Architecture,
    x: Floats | Tensor | None,
    *,
    placement: Placement = "kmeans",
    scaling: Scaling = "none",
    noise_start: float = NOISE_START,
    seed: int = 0,
) -> LowRankGP:
    """Make an untrained model.

    A column of `x` with one value in all rows is dropped with a warning; the model names it in
    `architecture.dropped`.

    Parameters
    ----------
    name
        A name of the catalogue.
    architecture
        Sizes.
    x
        Training inputs (n, d), over which inducing points are placed; None leaves them at
        random, for a model whose tensors are loaded next.
    placement
        How inducing points are chosen; see `place_anchors`.
    scaling
        ``minmax`` maps the range of each column to [-1, 1]; ``none`` expects such inputs.
    noise_start
        Where the noise variance starts, for a standardised target. The papers' 1e-2 suits
        precise targets; noisy ones want a share of 1, which also spares steps.
    seed
        Fixes all initial values.

    Raises
    ------
    RequestError
        No such name (the nearest ones are given), placement or scaling.
    DataError
        `x` is not finite, has another number of columns than the architecture, all its columns
        are constant, or it is far outside [-1, 1] and not to be scaled.

    Warns
    -----
    UserWarning
        A column was dropped, or there are fewer rows than weights.
    """
    spec = find_spec(name)
    generator = torch.Generator().manual_seed(seed)
    if not NOISE_FLOOR < noise_start < float("inf"):
        raise RequestError(f"expected a noise to start above {NOISE_FLOOR:g}, found {noise_start}.")
    if scaling not in SCALINGS:
        raise RequestError(f"unknown scaling {scaling!r}; choose one of {', '.join(SCALINGS)}.")
    values = None
    if x is not None:
        values = _checked(x, architecture, scaling)
        architecture = _without_constants(values, architecture)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _assemble(
            spec,
            architecture,
            values,
            placement=placement,
            scaling=scaling,
            noise_start=noise_start,
            generator=generator,
        )
    if values is not None and len(values) < model.basis.rank:
        warnings.warn(
            f"{len(values)} training rows for {model.basis.rank} weights: the model can be "
            "fitted, but a smaller r says as much.",
            stacklevel=2,
        )
    return model


def find_spec(name: str) -> ModelSpec:
    """Return a row of the catalogue by its name.

    Raises
    ------
    RequestError
        No such name; the nearest ones are given.
    """
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=3, cutoff=0.3) or list(CATALOGUE)
        raise RequestError(
            f"unknown model {name!r}. Nearest: {', '.join(near)}. `geogp models` lists all."
        )
    return CATALOGUE[name]


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
            f"expected inputs in about [-1, 1], found values up to {largest:.3g}; "
            "build with scaling='minmax'."
        )
    return values


def _without_constants(values: Floats, architecture: Architecture) -> Architecture:
    constant = values.min(0) == values.max(0)
    names = tuple(
        name
        for name, same in zip(architecture.columns, constant, strict=True)
        if same and name not in architecture.dropped
    )
    dropped = {*names, *architecture.dropped}
    if dropped == set(architecture.columns):
        raise DataError(
            f"every column of the inputs that is used ({', '.join(names)}) has one value in all "
            f"{len(values)} training rows; there is nothing to tell rows apart."
        )
    if names:
        warnings.warn(
            f"columns with one value in all {len(values)} training rows are not used: "
            f"{', '.join(names)}.",
            stacklevel=3,
        )
    in_order = tuple(name for name in architecture.columns if name in dropped)
    return replace(architecture, dropped=in_order)


def _assemble(
    spec: ModelSpec,
    architecture: Architecture,
    values: Floats | None,
    *,
    placement: Placement,
    scaling: Scaling,
    noise_start: float,
    generator: torch.Generator,
) -> LowRankGP:
    used, dtype = list(architecture.used), architecture.torch_dtype
    low, high = torch.full((len(used),), -1.0), torch.ones(len(used))
    scaled = None
    if values is not None:
        rows = torch.from_numpy(np.ascontiguousarray(values[:, used]))
        if scaling == "minmax":
            low, high = rows.min(0).values, rows.max(0).values
        scaled = (2 * (rows - low) / (high - low) - 1).to(dtype)
    basis = spec.basis(architecture, scaled, placement, generator)
    parts = Parts(
        spec.name,
        architecture,
        basis,
        spec.posterior(basis.rank, generator, dtype),
        spec.noise(dtype, noise_start),
        spec.diagonal(),
    )
    model = spec.assemble(parts, (high - low) / 2)
    model.x_low.copy_(low)
    model.x_high.copy_(high)
    return model


def _backbone(sizes: Architecture) -> Backbone:
    return Backbone(len(sizes.used), sizes.h, sizes.blocks).to(sizes.torch_dtype)


def _plain_basis(
    sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
) -> InducingBasis:
    x = x if x is not None else torch.zeros(1, len(sizes.used), dtype=sizes.torch_dtype)
    return InducingBasis(place_anchors(x, sizes.r, placement, generator), jitter=sizes.jitter)


def _deep_basis(
    sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
) -> InducingBasis:
    backbone = _backbone(sizes)
    if x is None or placement == "uniform":
        empty = torch.zeros(1, sizes.h, dtype=sizes.torch_dtype)
        anchors = place_anchors(empty, sizes.r, "uniform", generator)
    else:
        # Points spread over the inputs, seen through the untrained network.
        places = place_anchors(x, sizes.r, placement, generator)
        with torch.no_grad():
            anchors = backbone(places)
    return InducingBasis(anchors, backbone, jitter=sizes.jitter)


def _dense_basis(
    sizes: Architecture, _x: Tensor | None, _placement: Placement, _generator: torch.Generator
) -> DenseBasis:
    return DenseBasis(_backbone(sizes), sizes.h, sizes.r).to(sizes.torch_dtype)


def _network_basis(
    sizes: Architecture, _x: Tensor | None, _placement: Placement, _generator: torch.Generator
) -> NetworkBasis:
    return NetworkBasis(_backbone(sizes), sizes.h)


def _closed_form(r: int, _generator: torch.Generator, _dtype: torch.dtype) -> ClosedFormPosterior:
    return ClosedFormPosterior(r)


def _point(r: int, _generator: torch.Generator, dtype: torch.dtype) -> PointPosterior:
    return PointPosterior(r, dtype)


def _field_gp(parts: Parts, span: Tensor) -> FieldGP:
    """Return the field model; its units are those of the architecture."""
    sizes, r = parts.architecture, parts.basis.rank
    if not sizes.units:
        raise RequestError(
            f"{parts.name} measures distances: give Architecture(units=...), the kilometres and "
            "quarters that one unit of each input stands for."
        )
    per_input = torch.tensor(sizes.units, dtype=torch.float64)
    return FieldGP(
        parts.name,
        sizes,
        basis=parts.basis,
        posterior=parts.posterior,
        noise=MeasurementLaw(r, sizes.torch_dtype),
        diagonal=parts.diagonal,
        tiles=TileProcess(r, sizes.torch_dtype),
        units=per_input[list(sizes.used)] * span.double(),
    )


def _cox_gp(law: type[CountLaw]) -> Assemble:
    """Return what puts a model of counts together under a law of their scatter."""

    def assemble(parts: Parts, span: Tensor) -> CoxGP:  # noqa: ARG001
        return CoxGP(
            parts.name,
            parts.architecture,
            basis=parts.basis,
            posterior=parts.posterior,
            noise=law(parts.basis.rank, parts.architecture.torch_dtype),
            diagonal=parts.diagonal,
        )

    return assemble


_DPPGP = PerBatch(dppgp, uses=("alpha", "beta"), spread_is_noise=True)
_PPGP = PerBatch(ppgp, uses=("beta",), spread_is_noise=True)
_ELBO = PerBatch(elbo)
_CORRECTED_ELBO = PerBatch(corrected_elbo)
_CORRECTED_MLL = WholeData(corrected_log_marginal_likelihood)
_MLL = WholeData(log_marginal_likelihood)
_MSE = PerBatch(squared_error)

_ROWS = (
    ModelSpec(
        "field",
        _dense_basis,
        VariationalPosterior,
        PerPlace(),
        Diagonal,
        "a deep basis over space and time, a process of single tiles, noise that knows the tests",
        assemble=_field_gp,
        has_tiles=True,
    ),
    ModelSpec(
        "dbk-rbf",
        _deep_basis,
        VariationalPosterior,
        _DPPGP,
        Diagonal,
        "deep basis kernel: inducing points under an RBF on a network, dPPGP",
    ),
    ModelSpec(
        "dbk-silu",
        _dense_basis,
        VariationalPosterior,
        _DPPGP,
        Diagonal,
        "deep basis kernel: a dense SiLU layer on a network, dPPGP",
    ),
    ModelSpec(
        "pp-dkl",
        _deep_basis,
        VariationalPosterior,
        _PPGP,
        NystromDiagonal,
        "parametric predictive deep kernel learning: inducing points on a network, PPGP",
    ),
    ModelSpec(
        "sv-dkl",
        _deep_basis,
        VariationalPosterior,
        _ELBO,
        NystromDiagonal,
        "sparse deep kernel learning: inducing points under an RBF on a network, ELBO",
    ),
    ModelSpec(
        "sv-rbf",
        _plain_basis,
        VariationalPosterior,
        _ELBO,
        NystromDiagonal,
        "sparse variational GP: inducing points under an RBF on the inputs, ELBO",
    ),
    ModelSpec(
        "sv-dbk",
        _dense_basis,
        VariationalPosterior,
        _CORRECTED_ELBO,
        VarianceCorrection,
        "deep basis kernel: a dense SiLU layer, ELBO with the variance correction",
    ),
    ModelSpec(
        "vbll",
        _dense_basis,
        VariationalPosterior,
        _ELBO,
        Diagonal,
        "variational Bayesian last layer: a dense SiLU layer on a network, ELBO",
    ),
    ModelSpec(
        "dbk-exact",
        _dense_basis,
        _closed_form,
        _CORRECTED_MLL,
        VarianceCorrection,
        "deep basis kernel in closed form: a dense SiLU layer, marginal likelihood, corrected",
    ),
    ModelSpec(
        "dbk-exact-rbf",
        _deep_basis,
        _closed_form,
        _CORRECTED_MLL,
        VarianceCorrection,
        "deep basis kernel in closed form: inducing points, marginal likelihood, corrected",
    ),
    ModelSpec(
        "dbk-mml",
        _dense_basis,
        _closed_form,
        _MLL,
        Diagonal,
        "as dbk-exact without the correction, which collapses; for study",
    ),
    ModelSpec(
        "dnn",
        _network_basis,
        _point,
        _MSE,
        Diagonal,
        "a plain network, squared error; one noise variance from the validation rows",
        noise=ValidationNoise,
    ),
    ModelSpec(
        "cox",
        _dense_basis,
        VariationalPosterior,
        PerCount(poisson_elbo),
        Diagonal,
        "counts of tests: a Poisson process whose log intensity has a deep basis, ELBO",
        assemble=_cox_gp(CountLaw),
        counts=True,
    ),
    ModelSpec(
        "cox-nb",
        _dense_basis,
        VariationalPosterior,
        PerCount(negative_binomial_elbo),
        Diagonal,
        "as cox with a gamma effect of each tile and quarter: negative binomial counts",
        assemble=_cox_gp(Dispersion),
        counts=True,
    ),
)

CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _ROWS}
"""All models that can be fitted, by name."""
