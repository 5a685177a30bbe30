"""The fit of several targets of the same rows: a process for each of their factors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.models.catalogue.fit_plan import FitPlan
from geogp.models.fitting.loop import FitState
from geogp.models.process.data import Data
from geogp.models.several.factors import Factors, completed
from geogp.models.several.several_targets import SeveralTargets
from geogp.models.several.target_laws import learned_laws

Floats = NDArray[np.float64]


def fit_targets(
    plan: FitPlan,
    names: tuple[str, ...],
    train: Data,
    validation: Data,
    *,
    y: Floats,
    checkpoint: Path | None = None,
    **watch: Any,
) -> tuple[SeveralTargets, FitState]:
    """Fit a model of t targets, y (n, t), of the training rows followed by the validation rows.

    NaN marks a target that a row lacks. An exact process takes its prediction from the row's other
    targets and near rows as a measurement with a known error; for other models, the error is drawn.
    The targets of `train` and `validation` are ignored. Other arguments are those of `FitPlan.fit`;
    each factor has a checkpoint. The history has the seconds of all fits, and the joint log score
    of the factors.

    Raises the errors of `FitPlan.fit`, `Factors.of` and `completed`.
    """
    rows, n = train.joined(validation), len(train.y)
    whole = np.asarray(~np.isnan(y).any(1), np.bool_)
    points = np.asarray(rows.x)[:, : plan.sizes.d - len(plan.sizes.covariates)]
    filled = completed(points, y, names)
    factors = Factors.of(points[whole], y[whole], names)
    if plan.takes_exact(rows):
        z, errors = factors.scores(filled.y), factors.score_variance(filled.covariance)
    else:
        z = factors.scores(filled.drawn(plan.preset.seed))
        errors = np.zeros_like(z)
    models, states = [], []
    for k in range(len(names)):
        data = replace(rows, y=z[:, k], error_variance=errors[:, k])
        own = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}-{k}")
        parts = data.at(np.arange(n)), data.at(np.arange(n, len(y)))
        model, state = plan.fit(*parts, checkpoint=own, **watch)
        models.append(model)
        states.append(state)
    left_out = [model.left_out_rows() for model in models]
    # An exact process learns few parameters from its rows, so that all count as held out.
    laws = learned_laws(factors, left_out, rows, whole, n if models[0].validates else 0)
    history = FitState(
        epoch=max(state.epoch for state in states),
        best_epoch=max(state.best_epoch for state in states),
        best_nll=sum(state.best_nll for state in states)
        + float(np.linalg.slogdet(factors.mixing)[1]),
        seconds=sum(state.seconds for state in states),
    )
    return SeveralTargets(names, factors, tuple(models), laws), history
