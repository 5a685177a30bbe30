"""The models that can be fitted: each row is a basis, a posterior and an objective."""

from functools import partial
from operator import attrgetter

from geogp.models.bases.nystrom import AnchorEvidence, kernel_prior
from geogp.models.catalogue.model_spec import Assemble, ModelSpec, plain_gp
from geogp.models.catalogue.part_makers import (
    anchored,
    closed_form,
    cox_gp,
    deep_basis,
    dense_basis,
    field_gp,
    last_layer,
    last_layer_basis,
    mixed_kernel,
    network_basis,
    network_kernel,
    plain_basis,
    point,
)
from geogp.models.core.diagonals import NystromDiagonal, VarianceCorrection
from geogp.models.core.lowrank import LowRankGP
from geogp.models.core.noise import ValidationNoise
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
from geogp.models.core.posteriors import VariationalPosterior
from geogp.models.families.cox import CountLaw, Dispersion, PerCount
from geogp.models.families.kernel_process import KernelProcess
from geogp.models.families.last_layers import LastLayerGP, RichGP
from geogp.models.families.scale_mixture import (
    BurrProcess,
    StudentProcess,
    VariationalStudentProcess,
    burr_log_marginal_likelihood,
    scaled_elbo,
    student_log_marginal_likelihood,
)
from geogp.models.families.student_noise import StudentPerBatch
from geogp.models.field.field_step import PerPlace
from geogp.models.training.steps import PerBatch, WholeData

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


def _of(kind: type[LowRankGP]) -> Assemble:
    """Return a maker of models of a class."""
    return partial(plain_gp, kind=kind)


_ROWS = (
    ModelSpec("field", dense_basis, VariationalPosterior, PerPlace(), assemble=field_gp),
    ModelSpec("dbk-rbf", deep_basis, VariationalPosterior, _DPPGP),
    ModelSpec("dbk-silu", dense_basis, VariationalPosterior, _DPPGP),
    ModelSpec("pp-dkl", deep_basis, VariationalPosterior, _PPGP, NystromDiagonal),
    ModelSpec(
        "sv-dkl", deep_basis, VariationalPosterior, _ELBO, NystromDiagonal, student=_STUDENT_ELBO
    ),
    ModelSpec(
        "sv-rbf", plain_basis, VariationalPosterior, _ELBO, NystromDiagonal, student=_STUDENT_ELBO
    ),
    ModelSpec(
        "sv-dbk",
        dense_basis,
        VariationalPosterior,
        _CORRECTED_ELBO,
        VarianceCorrection,
        student=_CORRECTED_STUDENT_ELBO,
    ),
    ModelSpec("vbll", dense_basis, VariationalPosterior, _ELBO, student=_STUDENT_ELBO),
    ModelSpec("dbk-exact", dense_basis, closed_form, _CORRECTED_MLL, VarianceCorrection),
    ModelSpec("dbk-exact-rbf", deep_basis, closed_form, _CORRECTED_MLL, VarianceCorrection),
    ModelSpec("dbk-mml", dense_basis, closed_form, _MLL),
    ModelSpec("dnn", network_basis, point, _MSE, noise=ValidationNoise),
    ModelSpec(
        "nystrom-mixed", anchored(mixed_kernel), closed_form, _MAP, assemble=_of(KernelProcess)
    ),
    ModelSpec(
        "nystrom-mixed-fitc",
        anchored(mixed_kernel),
        closed_form,
        _FITC_MAP,
        NystromDiagonal,
        assemble=_of(KernelProcess),
    ),
    ModelSpec(
        "nngp", anchored(network_kernel("erf")), closed_form, _EVIDENCE, assemble=_of(KernelProcess)
    ),
    ModelSpec(
        "nngp-relu",
        anchored(network_kernel("relu")),
        closed_form,
        _EVIDENCE,
        assemble=_of(KernelProcess),
    ),
    ModelSpec(
        "t-process",
        anchored(network_kernel("erf", own_scale=False)),
        closed_form,
        _STUDENT_EVIDENCE,
        assemble=_of(StudentProcess),
    ),
    ModelSpec(
        "sv-t-process",
        anchored(network_kernel("erf", own_scale=False)),
        VariationalPosterior,
        _SCALED_ELBO,
        NystromDiagonal,
        assemble=_of(VariationalStudentProcess),
    ),
    ModelSpec(
        "bll", last_layer_basis, last_layer, _MSE, noise=ValidationNoise, assemble=_of(LastLayerGP)
    ),
    ModelSpec(
        "rich-bll", last_layer_basis, last_layer, _MSE, noise=ValidationNoise, assemble=_of(RichGP)
    ),
    ModelSpec(
        "cox", dense_basis, VariationalPosterior, PerCount(poisson_elbo), assemble=cox_gp(CountLaw)
    ),
    ModelSpec(
        "cox-nb",
        dense_basis,
        VariationalPosterior,
        PerCount(negative_binomial_elbo),
        assemble=cox_gp(Dispersion),
    ),
    ModelSpec(
        "burr-process",
        anchored(network_kernel("erf", own_scale=False)),
        closed_form,
        _BURR_EVIDENCE,
        assemble=_of(BurrProcess),
    ),
)

CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _ROWS}
"""All models that can be fitted, by name."""
