"""The models that can be fitted, each with a basis, a posterior and an objective."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from geogp.models.catalogue import part_makers as parts
from geogp.models.field.network import FieldNetwork
from geogp.models.field.per_place import PerPlace
from geogp.models.fitting.steps import PerBatch, Step, WholeData
from geogp.models.names import CLASS_MODELS, MODELS, ModelName
from geogp.models.papers.classes import softmax_layers as softmax
from geogp.models.papers.classes.processes import (
    ClassProcess,
    DrawnBatch,
    StudentClassProcess,
    logit_noise,
    softmax_cross_entropy,
)
from geogp.models.papers.counts.cox import CoxGP, Dispersion
from geogp.models.papers.last_layers.regression import EnrichedGP, LastLayerGP, LastLayerPosterior
from geogp.models.papers.mixed_nystrom.nystrom import AnchorEvidence, KernelProcess, kernel_prior
from geogp.models.papers.scale_mixtures import processes as scales
from geogp.models.papers.student_noise import StudentPerBatch
from geogp.models.process import objectives
from geogp.models.process.diagonals import (
    Diagonal,
    NystromDiagonal,
    PredictiveDiagonal,
    VarianceCorrection,
)
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.noise import ConstantNoise, Noise, ValidationNoise
from geogp.models.process.posteriors import (
    ClosedFormPosterior,
    PointPosterior,
    Posterior,
    VariationalPosterior,
)


@dataclass(frozen=True)
class ModelSpec:
    """A row of the catalogue: how one model is built and trained.

    `name`: the name on the command line.
    `basis`, `posterior`, `diagonal`, `noise`: make the parts of the model.
    `step`: the objective of training, and how its gradient is computed.
    `assemble`: makes the model from its name, its sizes and the parts.
    `student`: the step for training under Student-t noise; None if this is not possible.
    """

    name: str
    basis: parts.MakeBasis
    posterior: Callable[[int, torch.Generator, torch.dtype], Posterior]
    step: Step[Any]
    diagonal: Callable[[], Diagonal] = Diagonal
    noise: Callable[[torch.dtype, float], Noise] = ConstantNoise
    assemble: Callable[..., LowRankProcess] = LowRankProcess
    student: Step[Any] | None = None

    @property
    def about(self) -> ModelName:
        """Description of the model for users."""
        return (MODELS | CLASS_MODELS)[self.name]


_DPPGP, _ELBO = PerBatch(objectives.dppgp), PerBatch(objectives.elbo)
_STUDENT_ELBO = StudentPerBatch(attrgetter("residual"))
_CORRECTED_MLL: Step[LowRankProcess] = WholeData(objectives.corrected_log_marginal_likelihood)
_COLLAPSED: Step[LowRankProcess] = WholeData(objectives.collapsed_bound)
_MLL: Step[LowRankProcess] = WholeData(objectives.log_marginal_likelihood)
_FITC_MAP = WholeData(
    objectives.fitc_log_marginal_likelihood, prior=kernel_prior, own_variance=True
)
_MAP = AnchorEvidence(objectives.log_marginal_likelihood, kernel_prior)
_EVIDENCE = AnchorEvidence(objectives.log_marginal_likelihood)
_MSE = PerBatch(objectives.squared_error)

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
    step=_MSE,
    noise=ValidationNoise,
)
_collapsed = partial(_closed, step=_COLLAPSED, diagonal=PredictiveDiagonal)
_sparse = partial(_learned, step=_ELBO, diagonal=NystromDiagonal, student=_STUDENT_ELBO)

_ROWS = (
    _learned("field", parts.field_basis, step=PerPlace(), assemble=FieldNetwork),
    _learned("dbk-rbf", parts.deep_basis, step=_DPPGP),
    _learned("dbk-silu", parts.dense_basis, step=_DPPGP),
    _learned("pp-dkl", parts.deep_basis, step=PerBatch(objectives.ppgp), diagonal=NystromDiagonal),
    _sparse("sv-dkl", parts.deep_basis),
    _sparse("sv-rbf", parts.plain_basis),
    _learned(
        "sv-dbk",
        parts.dense_basis,
        step=PerBatch(objectives.corrected_elbo),
        diagonal=VarianceCorrection,
        student=StudentPerBatch(objectives.batch_correction),
    ),
    _learned("vbll", parts.dense_basis, step=_ELBO, student=_STUDENT_ELBO),
    _closed("dbk-exact", parts.dense_basis, step=_CORRECTED_MLL, diagonal=VarianceCorrection),
    _closed("dbk-exact-rbf", parts.deep_basis, step=_CORRECTED_MLL, diagonal=VarianceCorrection),
    _closed("dbk-mml", parts.dense_basis, step=_MLL),
    _collapsed("sgp", parts.plain_basis),
    _collapsed("sdkl", parts.deep_basis),
    ModelSpec("dnn", parts.network_basis, PointPosterior, _MSE, noise=ValidationNoise),
    _kernel("nystrom-mixed", _MIXED, step=_MAP),
    _kernel("nystrom-mixed-dtc", _MIXED, step=_MAP, diagonal=PredictiveDiagonal),
    _kernel("nystrom-mixed-fitc", _MIXED, step=_FITC_MAP, diagonal=NystromDiagonal),
    _kernel("nngp", _ERF, step=_EVIDENCE),
    _kernel("nngp-relu", parts.anchored(parts.network_kernel("relu")), step=_EVIDENCE),
    _kernel(
        "t-process",
        _SCALED_ERF,
        step=AnchorEvidence(scales.student_log_marginal_likelihood),
        assemble=scales.StudentProcess,
    ),
    _learned(
        "sv-t-process",
        _SCALED_ERF,
        step=PerBatch(scales.scaled_elbo),
        diagonal=NystromDiagonal,
        assemble=scales.VariationalStudentProcess,
    ),
    _last_layer("bll", assemble=LastLayerGP),
    _last_layer("rich-bll", assemble=EnrichedGP),
    # The objectives of counts need each count, not mean and scatter.
    _learned(
        "cox",
        parts.dense_basis,
        step=PerBatch(objectives.poisson_elbo, combines=False),
        assemble=CoxGP,
    ),
    _learned(
        "cox-nb",
        parts.dense_basis,
        step=PerBatch(objectives.negative_binomial_elbo, combines=False),
        assemble=partial(CoxGP, law=Dispersion),
    ),
    _kernel(
        "burr-process",
        _SCALED_ERF,
        step=AnchorEvidence(scales.burr_log_marginal_likelihood),
        assemble=scales.BurrProcess,
    ),
)

CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _ROWS}
"""All models of numbers, by name."""

_classes = partial(
    ModelSpec,
    posterior=VariationalPosterior,
    step=DrawnBatch(),
    noise=logit_noise,
    assemble=ClassProcess,
)
_softmax = partial(
    _classes,
    basis=parts.last_layer_basis,
    posterior=LastLayerPosterior,
    # Rows with equal inputs can have different classes.
    step=PerBatch(softmax_cross_entropy, combines=False),
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
