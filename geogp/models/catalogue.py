"""The models by name: each row is a basis, a posterior and an objective."""

import difflib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Literal, cast, get_args

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
from geogp.models.kernels import Kernel, MixedKernel
from geogp.models.lowrank import Architecture, Floats, LowRankGP
from geogp.models.measurement import MeasurementLaw
from geogp.models.network_kernels import NetworkKernel
from geogp.models.noise import (
    NOISE_FLOOR,
    NOISE_START,
    NOISES,
    ConstantNoise,
    Noise,
    ValidationNoise,
)
from geogp.models.nystrom import AnchorBasis, AnchorEvidence, kernel_prior
from geogp.models.objectives import (
    batch_correction,
    corrected_elbo,
    corrected_log_marginal_likelihood,
    dppgp,
    elbo,
    fitc_log_marginal_likelihood,
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
from geogp.models.rich import LastLayerGP, LastLayerPosterior, RichGP
from geogp.models.robust import StudentGP, StudentNoise, StudentPerBatch
from geogp.models.scale_mixture import (
    StudentProcess,
    VariationalStudentProcess,
    scaled_elbo,
    student_log_marginal_likelihood,
)
from geogp.models.steps import PerBatch, Step, WholeData
from geogp.models.tangents import LastLayerBasis, Mlp
from geogp.models.tiles import TileProcess

MakeBasis = Callable[[Architecture, Tensor | None, Placement, torch.Generator], Basis]
MakePosterior = Callable[[int, torch.Generator, torch.dtype], Posterior]
MakeNoise = Callable[[torch.dtype, float], Noise]

Family = Literal["deep", "field", "kernel", "count"]
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


def plain_gp(
    parts: Parts,
    span: Tensor,  # noqa: ARG001
    kind: type[LowRankGP] = LowRankGP,
) -> LowRankGP:
    """Return the low-rank process of the papers, or one of a class that takes the same parts."""
    return kind(
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
    family
        ``deep``, ``field``, ``kernel`` or ``count``: which presets suit it.
    student
        The step that trains it under Student-t noise; None where there is none.
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
    family: Family = "deep"
    student: Step | None = None
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
        No such name (the nearest ones are given), placement or scaling, or the model does not
        take the architecture's noise.
    DataError
        `x` is not finite, has another number of columns than the architecture, all its columns
        are constant, or it is far outside [-1, 1] and not to be scaled.

    Warns
    -----
    UserWarning
        A column was dropped, or there are fewer rows than weights.
    """
    spec = with_noise(find_spec(name), architecture.noise)
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


def with_noise(spec: ModelSpec, noise: str) -> ModelSpec:
    """Return a row of the catalogue with noise of a family of `geogp.models.noise.NOISES`.

    ``gaussian`` is the row itself; ``student-t`` has another noise law, step and prediction.

    Raises
    ------
    RequestError
        No such noise, or the model cannot be trained under it.
    """
    if noise not in NOISES:
        raise RequestError(f"unknown noise {noise!r}; choose one of {', '.join(NOISES)}.")
    if noise == NOISES[0]:
        return spec
    if spec.student is None:
        able = [name for name, row in CATALOGUE.items() if row.student is not None]
        raise RequestError(
            f"{spec.name} has no {noise} noise: it takes a likelihood that splits into rows and "
            f"the evidence lower bound. Choose one of {', '.join(able)}, or the noise {NOISES[0]}."
        )
    assemble = partial(plain_gp, kind=StudentGP)
    return replace(spec, step=spec.student, noise=StudentNoise, assemble=assemble)


def spec_of(model: LowRankGP) -> ModelSpec:
    """Return the row of the catalogue that a model was made from, with its noise."""
    return with_noise(find_spec(model.name), model.architecture.noise)


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


def _anchored(make_kernel: Callable[[Architecture], Kernel]) -> MakeBasis:
    """Return the maker of a Nyström basis of a kernel."""

    def make(
        sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
    ) -> AnchorBasis:
        kernel = make_kernel(sizes)
        anchors = torch.zeros(sizes.r, len(sizes.used), dtype=sizes.torch_dtype)
        basis = AnchorBasis(kernel, anchors, jitter=sizes.jitter)
        if x is not None:
            pair = basis.covariance, basis.variance
            basis.anchors.copy_(place_anchors(x, sizes.r, placement, generator, pair))
        return basis

    return make


def _mixed_kernel(sizes: Architecture) -> Kernel:
    return MixedKernel(dtype=sizes.torch_dtype)


def _network_kernel(activation: str, *, own_scale: bool = True) -> Callable[[Architecture], Kernel]:
    """Return the maker of a network's kernel; its depth is the architecture's `blocks`.

    Without a scale of its own its readout variance stays at 1.
    """

    def make(sizes: Architecture) -> Kernel:
        kernel = NetworkKernel(sizes.blocks, activation, dtype=sizes.torch_dtype)
        kernel.log_readout.requires_grad = own_scale
        return kernel

    return make


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


def _kernel_gp(parts: Parts, span: Tensor) -> LowRankGP:
    """Return a process whose constant mean stays at that of the targets."""
    model = plain_gp(parts, span)
    model.mean_constant.requires_grad = False
    return model


def _student_process(parts: Parts, span: Tensor) -> StudentProcess:  # noqa: ARG001
    return StudentProcess(parts)


def _variational_student_process(
    parts: Parts,
    span: Tensor,  # noqa: ARG001
) -> VariationalStudentProcess:
    return VariationalStudentProcess(parts)


def _last_layer_basis(
    sizes: Architecture, _x: Tensor | None, _placement: Placement, _generator: torch.Generator
) -> LastLayerBasis:
    """Return a network of `blocks` hidden layers of width h and its last layer's features."""
    network = Mlp(len(sizes.used), sizes.h, sizes.blocks)
    return LastLayerBasis(network, sizes.h).to(sizes.torch_dtype)


def _last_layer(r: int, _generator: torch.Generator, dtype: torch.dtype) -> LastLayerPosterior:
    return LastLayerPosterior(r, dtype)


def _last_layer_gp(kind: type[LastLayerGP]) -> Assemble:
    """Return what puts a model with a Bayesian last layer together."""

    def assemble(parts: Parts, span: Tensor) -> LowRankGP:  # noqa: ARG001
        return kind(
            parts.name,
            parts.architecture,
            basis=cast("LastLayerBasis", parts.basis),
            posterior=cast("LastLayerPosterior", parts.posterior),
            noise=parts.noise,
            diagonal=parts.diagonal,
        )

    return assemble


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
_STUDENT_ELBO = StudentPerBatch(attrgetter("residual"))
_CORRECTED_STUDENT_ELBO = StudentPerBatch(batch_correction)
_CORRECTED_MLL = WholeData(corrected_log_marginal_likelihood)
_MLL = WholeData(log_marginal_likelihood)
_MAP = AnchorEvidence(log_marginal_likelihood, kernel_prior)
_FITC_MAP = WholeData(fitc_log_marginal_likelihood, prior=kernel_prior, own_variance=True)
_EVIDENCE = AnchorEvidence(log_marginal_likelihood)
_SCALED_ELBO = PerBatch(scaled_elbo)
_STUDENT_EVIDENCE = AnchorEvidence(student_log_marginal_likelihood)
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
        family="field",
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
        student=_STUDENT_ELBO,
    ),
    ModelSpec(
        "sv-rbf",
        _plain_basis,
        VariationalPosterior,
        _ELBO,
        NystromDiagonal,
        "sparse variational GP: inducing points under an RBF on the inputs, ELBO",
        student=_STUDENT_ELBO,
    ),
    ModelSpec(
        "sv-dbk",
        _dense_basis,
        VariationalPosterior,
        _CORRECTED_ELBO,
        VarianceCorrection,
        "deep basis kernel: a dense SiLU layer, ELBO with the variance correction",
        student=_CORRECTED_STUDENT_ELBO,
    ),
    ModelSpec(
        "vbll",
        _dense_basis,
        VariationalPosterior,
        _ELBO,
        Diagonal,
        "variational Bayesian last layer: a dense SiLU layer on a network, ELBO",
        student=_STUDENT_ELBO,
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
        "nystrom-mixed",
        _anchored(_mixed_kernel),
        _closed_form,
        _MAP,
        Diagonal,
        "mixed arcsine and leaky-ReLU kernel at anchors, maximum a posteriori",
        assemble=_kernel_gp,
        family="kernel",
    ),
    ModelSpec(
        "nystrom-mixed-fitc",
        _anchored(_mixed_kernel),
        _closed_form,
        _FITC_MAP,
        NystromDiagonal,
        "as nystrom-mixed with the prior variance that anchors miss added to every row",
        assemble=_kernel_gp,
        family="kernel",
    ),
    ModelSpec(
        "nngp",
        _anchored(_network_kernel("erf")),
        _closed_form,
        _EVIDENCE,
        Diagonal,
        "kernel of infinitely wide erf networks at anchors, marginal likelihood",
        assemble=_kernel_gp,
        family="kernel",
    ),
    ModelSpec(
        "nngp-relu",
        _anchored(_network_kernel("relu")),
        _closed_form,
        _EVIDENCE,
        Diagonal,
        "kernel of infinitely wide ReLU networks at anchors, marginal likelihood",
        assemble=_kernel_gp,
        family="kernel",
    ),
    ModelSpec(
        "t-process",
        _anchored(_network_kernel("erf", own_scale=False)),
        _closed_form,
        _STUDENT_EVIDENCE,
        Diagonal,
        "as nngp with an inverse-gamma scale: a Student-t process",
        assemble=_student_process,
        family="kernel",
    ),
    ModelSpec(
        "sv-t-process",
        _anchored(_network_kernel("erf", own_scale=False)),
        VariationalPosterior,
        _SCALED_ELBO,
        NystromDiagonal,
        "t-process by mini-batches: a variational posterior of weights and scale",
        assemble=_variational_student_process,
    ),
    ModelSpec(
        "bll",
        _last_layer_basis,
        _last_layer,
        _MSE,
        Diagonal,
        "Bayesian last layer: a plain network, squared error, then a closed form on its features",
        noise=ValidationNoise,
        assemble=_last_layer_gp(LastLayerGP),
    ),
    ModelSpec(
        "rich-bll",
        _last_layer_basis,
        _last_layer,
        _MSE,
        Diagonal,
        "Bayesian last layer enriched by the tangent kernel of the layers before it",
        noise=ValidationNoise,
        assemble=_last_layer_gp(RichGP),
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
        family="count",
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
        family="count",
    ),
)

CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _ROWS}
"""All models that can be fitted, by name."""
