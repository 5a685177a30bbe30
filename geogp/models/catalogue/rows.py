"""The models that can be fitted, each with a basis, a posterior and an objective."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, get_args

import torch
from torch import Tensor

from geogp.choices import CLASS, one_of
from geogp.errors import RequestError
from geogp.models.catalogue import part_makers as parts
from geogp.models.exact.exact_level import exact_level
from geogp.models.exact.exact_process import ExactProcess
from geogp.models.field.fit import FieldFit
from geogp.models.field.fitted import FittedField
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.tile_level import tile_level
from geogp.models.fitting.steps import PerBatch, WholeData
from geogp.models.joint.level import level_of
from geogp.models.names import CLASS_MODELS, MODELS, Family, ModelName
from geogp.models.numerics.tensor_files import with_added
from geogp.models.papers.classes import softmax_layers as softmax
from geogp.models.papers.classes.processes import (
    ClassProcess,
    DrawnBatch,
    StudentClassProcess,
    logit_noise,
)
from geogp.models.papers.counts.cox import CoxGP, Dispersion
from geogp.models.papers.last_layers.regression import (
    EnrichedGP,
    LastLayerFit,
    LastLayerGP,
    LastLayerPosterior,
)
from geogp.models.papers.mixed_nystrom.nystrom import AnchorEvidence, KernelProcess, kernel_prior
from geogp.models.papers.scale_mixtures import processes as scales
from geogp.models.papers.student_noise import StudentPerBatch
from geogp.models.process import objectives
from geogp.models.process.basis_functions import FourierBasis, SplineBasis
from geogp.models.process.diagonals import (
    Diagonal,
    NystromDiagonal,
    PredictiveDiagonal,
    VarianceCorrection,
)
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.model import Model
from geogp.models.process.noise import ConstantNoise, Noise, ValidationNoise
from geogp.models.process.posteriors import (
    ClosedFormPosterior,
    PointPosterior,
    Posterior,
    VariationalPosterior,
)
from geogp.models.process.process import Process
from geogp.models.several.joint_targets import mixed_level
from geogp.models.several.one_target import OneTarget

MakeFit = partial[Any]
"""A class of `Fit` with its options; called with a process, it makes a fit."""


ADDED_TENSORS = (("widening",),)
"""First letters of the names of tensors that files of earlier versions lack; see `with_added`."""


def restored(process: LowRankProcess, tensors: dict[str, Tensor]) -> LowRankProcess:
    """Return the process with the tensors of a file; raise RuntimeError if they do not fit."""
    process.load_state_dict(with_added(tensors, process.state_dict(), ADDED_TENSORS))
    return process


def restored_field(parameters: FieldParameters, tensors: dict[str, Tensor]) -> Model:
    """Return the field, or the exact process of few rows, with the tensors of a file."""
    if "exact.theta" in tensors:
        return ExactProcess.restored(parameters.name, parameters.architecture, tensors)
    return FittedField.restored(parameters, tensors)


@dataclass(frozen=True)
class ModelSpec:
    """A row of the catalogue: how one model is built and trained.

    `name`: the name on the command line.
    `basis`, `posterior`, `diagonal`, `noise`: make the parts of the model.
    `fit`: makes the fit that trains a process of this model (see `fitting/steps.py`); a class, or a
        partial class with options. The attribute is always partial.
    `assemble`: makes the model from its name, its sizes and the parts.
    `restore`: returns the fitted model from an untrained process and the tensors of a file.
    `student`: as `fit`, for training under Student-t noise; None if this is not possible.
    """

    name: str
    basis: parts.MakeBasis
    posterior: Callable[[int, torch.Generator, torch.dtype], Posterior]
    fit: MakeFit | type[Any]
    diagonal: Callable[[], Diagonal] = Diagonal
    noise: Callable[[torch.dtype, float], Noise] = ConstantNoise
    assemble: Callable[..., Process] = LowRankProcess
    student: MakeFit | type[Any] | None = None
    restore: Callable[[Any, dict[str, Tensor]], Model] = restored

    def __post_init__(self) -> None:
        for name in ("fit", "student"):
            kind = getattr(self, name)
            if kind is not None and not isinstance(kind, partial):
                object.__setattr__(self, name, partial(kind))

    def batch_rows(self, batch: int, n: int) -> int:
        """Return how many of n rows a step uses, for a requested batch size."""
        kind: Any = self.fit.func
        rows: int = kind.batch_rows(batch, n)
        return rows

    @property
    def about(self) -> ModelName:
        """Description of the model for users."""
        return (MODELS | CLASS_MODELS)[self.name]


_DPPGP = partial(PerBatch, objective=objectives.dppgp)
_ELBO = partial(PerBatch, objective=objectives.elbo)
_STUDENT_ELBO = partial(StudentPerBatch, missed=attrgetter("residual"))
_CORRECTED_MLL = partial(WholeData, objective=objectives.corrected_log_marginal_likelihood)
_COLLAPSED = partial(WholeData, objective=objectives.collapsed_bound)
_MLL = partial(WholeData, objective=objectives.log_marginal_likelihood)
_FITC_MAP = partial(
    WholeData,
    objective=objectives.fitc_log_marginal_likelihood,
    prior=kernel_prior,
    own_variance=True,
)
_MAP = partial(AnchorEvidence, objective=objectives.log_marginal_likelihood, prior=kernel_prior)
_EVIDENCE = partial(AnchorEvidence, objective=objectives.log_marginal_likelihood)

_ERF = parts.anchored(parts.network_kernel("erf"))
_SCALED_ERF = parts.anchored(parts.network_kernel("erf", own_scale=False))
_MIXED = parts.anchored(parts.mixed_kernel)

_learned = partial(ModelSpec, posterior=VariationalPosterior)
_closed = partial(ModelSpec, posterior=ClosedFormPosterior)
_kernel = partial(_closed, assemble=KernelProcess)
_last_layer = partial(
    ModelSpec,
    basis=parts.last_layer_basis,
    posterior=LastLayerPosterior,
    fit=partial(LastLayerFit, objective=objectives.squared_error),
    noise=ValidationNoise,
)
_collapsed = partial(_closed, fit=_COLLAPSED, diagonal=PredictiveDiagonal)
_sparse = partial(_learned, fit=_ELBO, diagonal=NystromDiagonal, student=_STUDENT_ELBO)

_ROWS = (
    _learned(
        "field",
        parts.field_basis,
        fit=FieldFit,
        assemble=FieldParameters,
        restore=restored_field,
    ),
    _learned("dbk-rbf", parts.deep_basis, fit=_DPPGP),
    _learned("dbk-silu", parts.dense_basis, fit=_DPPGP),
    _learned("dbk-fourier", partial(parts.dense_basis, kind=FourierBasis), fit=_DPPGP),
    _learned("dbk-spline", partial(parts.dense_basis, kind=SplineBasis), fit=_DPPGP),
    _learned(
        "pp-dkl",
        parts.deep_basis,
        fit=partial(PerBatch, objective=objectives.ppgp),
        diagonal=NystromDiagonal,
    ),
    _sparse("sv-dkl", parts.deep_basis),
    _sparse("sv-rbf", parts.plain_basis),
    _learned(
        "sv-dbk",
        parts.dense_basis,
        fit=partial(PerBatch, objective=objectives.corrected_elbo),
        diagonal=VarianceCorrection,
        student=partial(StudentPerBatch, missed=objectives.batch_correction),
    ),
    _learned("vbll", parts.dense_basis, fit=_ELBO, student=_STUDENT_ELBO),
    _closed("dbk-exact", parts.dense_basis, fit=_CORRECTED_MLL, diagonal=VarianceCorrection),
    _closed("dbk-exact-rbf", parts.deep_basis, fit=_CORRECTED_MLL, diagonal=VarianceCorrection),
    _closed("dbk-mml", parts.dense_basis, fit=_MLL),
    _collapsed("sgp", parts.plain_basis),
    _collapsed("sdkl", parts.deep_basis),
    ModelSpec(
        "dnn",
        parts.network_basis,
        PointPosterior,
        partial(PerBatch, objective=objectives.squared_error),
        noise=ValidationNoise,
    ),
    _kernel("nystrom-mixed", _MIXED, fit=_MAP),
    _kernel("nystrom-mixed-dtc", _MIXED, fit=_MAP, diagonal=PredictiveDiagonal),
    _kernel("nystrom-mixed-fitc", _MIXED, fit=_FITC_MAP, diagonal=NystromDiagonal),
    _kernel("nngp", _ERF, fit=_EVIDENCE),
    _kernel("nngp-relu", parts.anchored(parts.network_kernel("relu")), fit=_EVIDENCE),
    _kernel(
        "t-process",
        _SCALED_ERF,
        fit=partial(scales.ScaleMixtureFit, objective=scales.student_log_marginal_likelihood),
        assemble=scales.StudentProcess,
    ),
    _learned(
        "sv-t-process",
        _SCALED_ERF,
        fit=scales.VariationalStudentFit,
        diagonal=NystromDiagonal,
        assemble=scales.VariationalStudentProcess,
    ),
    _last_layer("bll", assemble=LastLayerGP),
    _last_layer("rich-bll", assemble=EnrichedGP),
    # The objectives of counts need each count, not mean and scatter.
    _learned(
        "cox",
        parts.dense_basis,
        fit=partial(PerBatch, objective=objectives.poisson_elbo, combines=False),
        assemble=CoxGP,
    ),
    _learned(
        "cox-nb",
        parts.dense_basis,
        fit=partial(PerBatch, objective=objectives.negative_binomial_elbo, combines=False),
        assemble=partial(CoxGP, law=Dispersion),
    ),
    _kernel(
        "burr-process",
        _SCALED_ERF,
        fit=partial(scales.ScaleMixtureFit, objective=scales.burr_log_marginal_likelihood),
        assemble=scales.BurrProcess,
    ),
)

# The level of a field has a process of single tiles, that of one of several targets has factors.
level_of.register(FittedField, tile_level)
level_of.register(ExactProcess, exact_level)
level_of.register(OneTarget, mixed_level)

CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _ROWS}
"""All models of numbers, by name."""

_classes = partial(
    ModelSpec,
    posterior=VariationalPosterior,
    fit=DrawnBatch,
    noise=logit_noise,
    assemble=ClassProcess,
)
_softmax = partial(
    _classes,
    basis=parts.last_layer_basis,
    posterior=LastLayerPosterior,
    fit=softmax.SoftmaxFit,
)

_CLASS_ROWS = (
    _classes("class-nngp", _ERF, diagonal=NystromDiagonal),
    _classes(
        "class-t-process", _SCALED_ERF, diagonal=NystromDiagonal, assemble=StudentClassProcess
    ),
    _classes("class-rbf", parts.plain_basis, diagonal=NystromDiagonal),
    _classes("class-dbk", parts.dense_basis),
    _softmax("class-dnn", assemble=softmax.SoftmaxNetwork),
    _softmax("class-bll", assemble=softmax.SoftmaxLayer),
    _softmax("class-rich-bll", assemble=softmax.EnrichedSoftmax),
    _softmax("class-laplace", assemble=softmax.LaplaceSoftmax),
    _softmax("class-dnn-normal", assemble=softmax.NormalReadout),
    _softmax("class-dnn-student", assemble=softmax.StudentReadout),
)

CLASS_CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _CLASS_ROWS}
"""All models of classes, by name. They are apart from `CATALOGUE`, because maps, runs and reports
describe numbers, and cannot show a class.
"""


_own: set[str] = set()
"""Names of the models that `add_model` added."""


def add_model(description: ModelName, spec: ModelSpec) -> None:
    """Add a model of one's own to the catalogue, until Python ends; added models can be replaced.

    Parameters
    ----------
    description
        The description of the model. The estimator of its family fits it.
    spec
        The row of the catalogue, with the same name.

    Raises
    ------
    RequestError
        If the names differ, geogp has a model of this name, or the family is unknown.
    """
    name = description.name
    if name != spec.name:
        raise RequestError(
            f"expected one name in the description and the row of a model, found {name!r} and "
            f"{spec.name!r}."
        )
    if name in MODELS | CLASS_MODELS and name not in _own:
        raise RequestError(f"expected a new name of a model; geogp has a model {name!r}.")
    one_of("family", description.family, get_args(Family))
    for names in (MODELS, CLASS_MODELS, CATALOGUE, CLASS_CATALOGUE):
        names.pop(name, None)  # of an earlier call
    of_classes = description.kind == CLASS
    (CLASS_MODELS if of_classes else MODELS)[name] = description
    (CLASS_CATALOGUE if of_classes else CATALOGUE)[name] = spec
    _own.add(name)
