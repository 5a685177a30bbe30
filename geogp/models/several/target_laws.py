"""Laws of the errors of targets, and the copula that joins them, from rows that were left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.distributions.shapes import GAUSSIAN
from geogp.models.field.predictive_law import (
    LAW_ARRAYS,
    Errors,
    PredictiveLaw,
    fit_law,
    minimise,
    no_law,
)
from geogp.models.process.data import Data
from geogp.models.process.model import KnownPredictions
from geogp.models.several.factors import Factors

Floats = NDArray[np.float64]

COVARIATES = ("log tests", "log noise share", "log sd", "mean")
"""Covariates of the law of a target's errors."""

SIMPLE = [COVARIATES.index("log sd")]
"""Covariates of the scale of a law of few errors."""

FEW_ERRORS = 2_000
"""With fewer errors, a law is simple."""

PRIOR_ROWS = 30.0
"""Weight of the prior of the copula, in rows; its mean is the copula of the factors."""

ITERATIONS = 100
"""Largest number of iterations in the fit of the copula."""


@dataclass(frozen=True)
class TargetLaws:
    """The laws of the errors of targets, and the mixing of function and noise in their copula.

    The factors of a row have independent functions with the variances f and independent noise with
    the variances e, (t,) each. The normal scores of the targets have the correlation matrix of

        B diag(f) B' + C diag(e) C'.

    So the correlation depends on the share of the noise, which falls with the number of tests. With
    B = C = A this is the linear model of coregionalisation; B and C are learned.

    `laws`: one for each target. `function`: B, `noise`: C, (t, t) each.
    """

    laws: tuple[PredictiveLaw, ...]
    function: Floats
    noise: Floats

    @classmethod
    def of_factors(cls, factors: Factors) -> "TargetLaws":
        """Return normal errors and the copula of the factors, as before a fit."""
        laws = tuple(no_law(len(COVARIATES)) for _ in factors.centre)
        return cls(laws, factors.mixing, factors.mixing)

    def joint(
        self,
        names: tuple[str, ...],
        factors: Factors,
        predicted: list[Prediction],
        tests: ArrayLike,
        *,
        level: bool,
    ) -> JointPrediction:
        """Return the joint prediction of the targets from predictions of the factors."""
        marginals = tuple(
            self.marginal(k, factors, predicted, tests, level=level) for k in range(len(names))
        )
        f, e = (
            np.column_stack([getattr(one, name) for one in predicted])
            for name in ("function_variance", "noise_variance")
        )
        covariance = np.einsum("ik,nk,jk->nij", self.function, f, self.function)
        if not level:
            covariance += np.einsum("ik,nk,jk->nij", self.noise, e, self.noise)
        return JointPrediction(names, marginals, correlations(covariance))

    def marginal(
        self,
        k: int,
        factors: Factors,
        predicted: list[Prediction],
        tests: ArrayLike,
        *,
        level: bool,
    ) -> Prediction:
        """Return the prediction of target number k from predictions of the factors."""
        own = _target(_parts(factors, predicted), k)
        if level:
            return _normal_level(own)
        location, scale, shape = self.laws[k].parameters(_covariates(own, tests)).distribution()
        square = np.square(scale)
        return Prediction(
            own.mean + location * own.sd,
            square * own.function_variance,
            square * own.noise_variance,
            square * own.tile_variance,
            shape,
        )

    def described(self) -> dict[str, Any]:
        """Return the laws as lists, for a file."""
        return {
            "laws": [
                {name: getattr(law, name).tolist() for name in LAW_ARRAYS}
                | {"most_tail": law.most_tail}
                for law in self.laws
            ],
            "function": self.function.tolist(),
            "noise": self.noise.tolist(),
        }

    @classmethod
    def restored(cls, described: Mapping[str, Any], t: int) -> "TargetLaws":
        """Return the laws of `described`; raise ValueError if shapes do not fit t targets."""
        shapes = {name: getattr(no_law(len(COVARIATES)), name).shape for name in LAW_ARRAYS}
        laws = []
        for law in described["laws"]:
            arrays = {name: np.array(law[name], np.float64) for name in LAW_ARRAYS}
            found = {name: array.shape for name, array in arrays.items()}
            if found != shapes or not (arrays["ranges"][3] > 0).all():
                raise ValueError(f"expected a law with arrays of shapes {shapes}, found {found}")
            laws.append(PredictiveLaw(**arrays, most_tail=float(law["most_tail"])))
        mixings = [np.array(described[name], np.float64) for name in ("function", "noise")]
        if len(laws) != t or any(mixing.shape != (t, t) for mixing in mixings):
            raise ValueError(f"expected laws of {t} targets and mixings of shape {(t, t)}")
        return cls(tuple(laws), *mixings)


def learned_laws(
    factors: Factors,
    left_out: list[KnownPredictions | None],
    rows: Data,
    whole: NDArray[np.bool_],
    training: int,
) -> TargetLaws:
    """Return the laws of targets from predictions of the factors of rows that are left out.

    `rows` are training rows, followed by rows that the models did not learn from; the first
    `training` are training rows.
    `whole`, (n,), marks the rows that have all targets; the others have no errors of their own. The
    laws are normal if a model knows no predictions of rows that are left out.
    """
    start = TargetLaws.of_factors(factors)
    known = [one for one in left_out if one is not None and one.rows is not None]
    if len(known) < len(left_out):
        return start
    known = _of_same_rows(known, whole)
    numbers = known[0].rows
    assert numbers is not None, "these have numbers"
    if not len(numbers):
        return start
    predicted = [one.prediction for one in known]
    y = factors.mean(np.column_stack([one.y for one in known]))
    parts, tests = _parts(factors, predicted), rows.tests[numbers]
    flags = numbers >= training, known[0].alone, rows.groups[numbers]
    laws = []
    for k in range(len(start.laws)):
        own = _target(parts, k)
        errors = Errors((y[:, k] - own.mean) / own.sd, _covariates(own, tests), *flags)
        laws.append(fit_law(errors, scale=SIMPLE if len(numbers) < FEW_ERRORS else ()))
    marginal = TargetLaws(tuple(laws), start.function, start.noise)
    names = tuple(map(str, range(len(laws))))
    joint = marginal.joint(names, factors, predicted, tests, level=False)
    return _with_copula(marginal, factors, predicted, joint.normal_scores(y))


def _with_copula(
    laws: TargetLaws,
    factors: Factors,
    predicted: list[Prediction],
    z: Floats,
) -> TargetLaws:
    """Return the laws with the copula of the largest posterior density given normal scores z.

    B = (I + b) A and C = (I + c) A in units of the targets' standard deviations; the entries of b
    and c have a normal prior with mean 0 and the weight `PRIOR_ROWS`.
    """
    f, e = (
        torch.as_tensor(np.column_stack([getattr(one, name) for one in predicted]))
        for name in ("function_variance", "noise_variance")
    )
    unit = np.sqrt(np.square(factors.mixing).sum(1))
    A = torch.as_tensor(factors.mixing / unit[:, None])
    scores, t = torch.as_tensor(z), len(unit)
    change = torch.zeros(2, t, t, dtype=torch.float64, requires_grad=True)

    def loss() -> torch.Tensor:
        B, C = (torch.eye(t, dtype=torch.float64) + change) @ A
        covariance = torch.einsum("ik,nk,jk->nij", B, f, B)
        covariance = covariance + torch.einsum("ik,nk,jk->nij", C, e, C)
        sd = covariance.diagonal(dim1=1, dim2=2).sqrt()
        R = covariance / (sd[:, :, None] * sd[:, None, :])
        L = torch.linalg.cholesky(R)
        white = torch.linalg.solve_triangular(L, scores[..., None], upper=False)[..., 0]
        log_det = L.diagonal(dim1=1, dim2=2).log().sum()
        fit = log_det + 0.5 * white.square().sum()
        value: torch.Tensor = (fit + 0.5 * PRIOR_ROWS * change.square().sum()) / len(scores)
        return value

    minimise(loss, [change], ITERATIONS)
    with torch.no_grad():
        B, C = ((torch.eye(t, dtype=torch.float64) + change) @ A).numpy() * unit[:, None]
    return TargetLaws(laws.laws, B, C)


def _of_same_rows(
    known: list[KnownPredictions], whole: NDArray[np.bool_]
) -> list[KnownPredictions]:
    """Return the predictions of the whole rows that all models left out, in the same order."""
    common, chosen = np.flatnonzero(whole), []
    for one in known:
        assert one.rows is not None, "these have numbers"
        common = np.intersect1d(common, one.rows)
    for one in known:
        assert one.rows is not None, "these have numbers"
        order = np.argsort(one.rows)
        place = order[np.searchsorted(one.rows[order], common)]
        chosen.append(
            KnownPredictions(one.prediction[place], one.y[place], one.rows[place], one.alone[place])
        )
    return chosen


def _parts(factors: Factors, predicted: list[Prediction]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return mean and variances of function, noise and tiles of the targets, (n, t) each."""
    mean, function, noise, tile = (
        np.column_stack([getattr(one, name) for one in predicted])
        for name in ("mean", "function_variance", "noise_variance", "tile_variance")
    )
    variances = [factors.variance(part) for part in (function, noise, tile)]
    # Sums may differ by rounding.
    variances[2] = np.minimum(variances[2], variances[0])
    return factors.mean(mean), variances[0], variances[1], variances[2]


def _target(parts: tuple[Floats, Floats, Floats, Floats], k: int) -> Prediction:
    """Return the prediction of one target from `_parts`, with normal errors."""
    mean, function, noise, tile = (part[:, k] for part in parts)
    return Prediction(mean, function, noise, tile)


def _normal_level(own: Prediction) -> Prediction:
    return Prediction(
        own.mean, own.function_variance, np.zeros(len(own)), own.tile_variance, GAUSSIAN
    )


def _covariates(own: Prediction, tests: ArrayLike) -> Floats:
    """Return the covariates of a law, (n, c)."""
    counts = np.broadcast_to(np.asarray(tests, np.float64), len(own))
    logs = np.log(np.minimum(counts, 1e9))
    # A level without noise has no law of errors; the smallest share is never used there.
    share = np.log(np.maximum(own.noise_variance / own.variance, 1e-9))
    return np.column_stack([logs, share, np.log(own.sd), own.mean])


def correlations(covariance: Floats) -> Floats:
    """Return the correlation matrices of covariance matrices, (n, t, t)."""
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation: Floats = covariance / (sd[:, :, None] * sd[:, None, :])
    diagonal = np.arange(covariance.shape[1])
    correlation[:, diagonal, diagonal] = 1.0
    return correlation
