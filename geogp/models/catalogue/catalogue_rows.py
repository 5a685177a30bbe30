"""The models that can be fitted, each with a basis, a posterior and an objective."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from geogp.models.bases.nystrom import AnchorEvidence, KernelProcess, kernel_prior
from geogp.models.catalogue.model_names import MODELS, ModelName
from geogp.models.catalogue.part_makers import (
    MakeBasis,
    anchored,
    deep_basis,
    dense_basis,
    field_basis,
    last_layer_basis,
    mixed_kernel,
    network_basis,
    network_kernel,
    plain_basis,
)
from geogp.models.core.diagonals import Diagonal, NystromDiagonal, VarianceCorrection
from geogp.models.core.lowrank import LowRankGP
from geogp.models.core.noise import ConstantNoise, Noise, ValidationNoise
from geogp.models.core.objectives import (
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
from geogp.models.core.posteriors import (
    ClosedFormPosterior,
    PointPosterior,
    Posterior,
    VariationalPosterior,
)
from geogp.models.families.cox import CoxGP, Dispersion
from geogp.models.families.last_layers import EnrichedGP, LastLayerGP, LastLayerPosterior
from geogp.models.families.scale_mixture import (
    BurrProcess,
    StudentProcess,
    VariationalStudentProcess,
    burr_log_marginal_likelihood,
    scaled_elbo,
    student_log_marginal_likelihood,
)
from geogp.models.families.student_noise import StudentPerBatch
from geogp.models.field.field_model import FieldNetwork, PerPlace
from geogp.models.training.steps import PerBatch, Step, WholeData


@dataclass(frozen=True)
class ModelSpec:
    """A row of the catalogue.

    `name`: the name on the command line.
    `basis`, `posterior`, `diagonal`, `noise`: make the parts of the model.
    `step`: the objective of training, and how its gradient is computed.
    `assemble`: makes the model from its name, its sizes and the parts.
    `student`: the step for training under Student-t noise; None if this is not possible.
    """

    name: str
    basis: MakeBasis
    posterior: Callable[[int, torch.Generator, torch.dtype], Posterior]
    step: Step[Any]
    diagonal: Callable[[], Diagonal] = Diagonal
    noise: Callable[[torch.dtype, float], Noise] = ConstantNoise
    assemble: Callable[..., LowRankGP] = LowRankGP
    student: Step[Any] | None = None

    @property
    def about(self) -> ModelName:
        """Description of the model for users."""
        return MODELS[self.name]


_DPPGP = PerBatch(dppgp)
_PPGP = PerBatch(ppgp)
_ELBO = PerBatch(elbo)
_CORRECTED_ELBO = PerBatch(corrected_elbo)
_STUDENT_ELBO = StudentPerBatch(attrgetter("residual"))
_CORRECTED_STUDENT_ELBO = StudentPerBatch(batch_correction)
_CORRECTED_MLL: WholeData[LowRankGP] = WholeData(corrected_log_marginal_likelihood)
_MLL: WholeData[LowRankGP] = WholeData(log_marginal_likelihood)
_MAP = AnchorEvidence(log_marginal_likelihood, kernel_prior)
_FITC_MAP = WholeData(fitc_log_marginal_likelihood, prior=kernel_prior, own_variance=True)
_EVIDENCE = AnchorEvidence(log_marginal_likelihood)
_SCALED_ELBO = PerBatch(scaled_elbo)
_STUDENT_EVIDENCE = AnchorEvidence(student_log_marginal_likelihood)
_BURR_EVIDENCE = AnchorEvidence(burr_log_marginal_likelihood)
_MSE = PerBatch(squared_error)
# The objectives of counts need each count, not mean and scatter.
_COUNTS = PerBatch(poisson_elbo, combines=False)
_DISPERSED_COUNTS = PerBatch(negative_binomial_elbo, combines=False)

_ERF, _RELU = anchored(network_kernel("erf")), anchored(network_kernel("relu"))
_MIXED, _SCALED_ERF = anchored(mixed_kernel), anchored(network_kernel("erf", own_scale=False))

_learned = partial(ModelSpec, posterior=VariationalPosterior)
_closed = partial(ModelSpec, posterior=ClosedFormPosterior)
_kernel = partial(_closed, assemble=KernelProcess)
_last_layer = partial(
    ModelSpec,
    basis=last_layer_basis,
    posterior=LastLayerPosterior,
    step=_MSE,
    noise=ValidationNoise,
)
_sparse = partial(_learned, step=_ELBO, diagonal=NystromDiagonal, student=_STUDENT_ELBO)

_ROWS = (
    _learned("field", field_basis, step=PerPlace(), assemble=FieldNetwork),
    _learned("dbk-rbf", deep_basis, step=_DPPGP),
    _learned("dbk-silu", dense_basis, step=_DPPGP),
    _learned("pp-dkl", deep_basis, step=_PPGP, diagonal=NystromDiagonal),
    _sparse("sv-dkl", deep_basis),
    _sparse("sv-rbf", plain_basis),
    _learned(
        "sv-dbk",
        dense_basis,
        step=_CORRECTED_ELBO,
        diagonal=VarianceCorrection,
        student=_CORRECTED_STUDENT_ELBO,
    ),
    _learned("vbll", dense_basis, step=_ELBO, student=_STUDENT_ELBO),
    _closed("dbk-exact", dense_basis, step=_CORRECTED_MLL, diagonal=VarianceCorrection),
    _closed("dbk-exact-rbf", deep_basis, step=_CORRECTED_MLL, diagonal=VarianceCorrection),
    _closed("dbk-mml", dense_basis, step=_MLL),
    ModelSpec("dnn", network_basis, PointPosterior, _MSE, noise=ValidationNoise),
    _kernel("nystrom-mixed", _MIXED, step=_MAP),
    _kernel("nystrom-mixed-fitc", _MIXED, step=_FITC_MAP, diagonal=NystromDiagonal),
    _kernel("nngp", _ERF, step=_EVIDENCE),
    _kernel("nngp-relu", _RELU, step=_EVIDENCE),
    _kernel("t-process", _SCALED_ERF, step=_STUDENT_EVIDENCE, assemble=StudentProcess),
    _learned(
        "sv-t-process",
        _SCALED_ERF,
        step=_SCALED_ELBO,
        diagonal=NystromDiagonal,
        assemble=VariationalStudentProcess,
    ),
    _last_layer("bll", assemble=LastLayerGP),
    _last_layer("rich-bll", assemble=EnrichedGP),
    _learned("cox", dense_basis, step=_COUNTS, assemble=CoxGP),
    _learned(
        "cox-nb",
        dense_basis,
        step=_DISPERSED_COUNTS,
        assemble=partial(CoxGP, law=Dispersion),
    ),
    _kernel("burr-process", _SCALED_ERF, step=_BURR_EVIDENCE, assemble=BurrProcess),
)

CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _ROWS}
"""All models that can be fitted, by name."""
