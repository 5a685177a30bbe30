"""GPBoost: boosted trees and a Gaussian process, fitted together (Sigrist 2022)."""

from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.field_case import Answer, Case
from benchmarks.peers.boosted_peers import counts_of, errors_of, weights_of, with_law
from benchmarks.script import Floats
from geogp.models.field.predictive_law import fit_law
from geogp.models.process.data import Data

NEIGHBOURS = 20
"""Number of neighbours of Vecchia's approximation."""

COVARIANCE_ROWS = 15_000
"""Approximate number of training rows (all rows of random tiles) for the covariance parameters."""

TREES, PATIENCE = 500, 20
SETTINGS = {
    "objective": "regression",
    "metric": "l2",
    "learning_rate": 0.1,
    "num_leaves": 8,
    "min_data_in_leaf": 40,
    "lambda_l2": 5.0,
    "verbose": -1,
}


def boosted_process(case: Case) -> Answer:
    """Boosted mean plus a Matérn 3/2 process in space and time, by Vecchia's approximation.

    Inputs of the trees are place, quarter, tests and devices; the noise variance of a row is
    divided by its weight (`weights_of`). The parameters of the covariance are estimated once, with
    a linear mean, on `COVARIANCE_ROWS` training rows, and stay fixed while trees are added: their
    estimation at each tree takes 5 seconds on 4,000 rows. The validation rows choose the number of
    trees, and give the distribution of the standardised errors.
    """
    import gpboost  # noqa: PLC0415

    train, held, test = case.train, case.validation, case.test
    start = monotonic()
    few = train.at(_whole_tiles(train, case.seed))
    first = _process(case, few)
    first.fit(few.y, X=np.column_stack([np.ones(len(few.y)), _inputs(few)[:, :-1]]))
    parameters = np.asarray(first.get_cov_pars()).reshape(-1)
    process = _process(case, train)
    process.set_optim_params({"init_cov_pars": parameters})
    process.set_prediction_data(gp_coords_pred=_points(case, held))
    table = gpboost.Dataset(_inputs(train), train.y)
    booster = gpboost.train(
        SETTINGS | {"num_threads": torch.get_num_threads(), "seed": case.seed},
        table,
        num_boost_round=TREES,
        gp_model=process,
        valid_sets=gpboost.Dataset(_inputs(held), held.y, reference=table),
        early_stopping_rounds=PATIENCE,
        use_gp_model_for_validation=True,
        train_gp_model_cov_pars=False,
        verbose_eval=False,
    )

    def predicted(data: Data) -> tuple[Floats, Floats]:
        found = booster.predict(
            _inputs(data), gp_coords_pred=_points(case, data), predict_var=True, pred_latent=True
        )
        noise = parameters[0] / weights_of(data, devices=True)
        centre = found["fixed_effect"] + found["random_effect_mean"]
        return centre, np.sqrt(found["random_effect_cov"] + noise)

    held_counts, test_counts = (counts_of(data, devices=True) for data in (held, test))
    law = fit_law(errors_of(held, held_counts, *predicted(held)))
    seconds = monotonic() - start
    return Answer(seconds, with_law(law, test_counts, *predicted(test)))


def _whole_tiles(data: Data, seed: int) -> NDArray[np.bool_]:
    """Mark about `COVARIANCE_ROWS` rows: all rows of random tiles."""
    tiles, tile = np.unique(data.x[:, :2], axis=0, return_inverse=True)
    rank = np.random.default_rng(seed).permutation(len(tiles))[tile.reshape(-1)]
    return np.asarray(rank < len(tiles) * COVARIANCE_ROWS / len(data.y))


def _process(case: Case, data: Data) -> Any:
    import gpboost  # noqa: PLC0415

    return gpboost.GPModel(
        likelihood="gaussian",
        gp_coords=_points(case, data),
        cov_function="matern_space_time" if data.x.shape[1] > 2 else "matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=NEIGHBOURS,
        weights=weights_of(data, devices=True),
        num_parallel_threads=torch.get_num_threads(),
        seed=case.seed,
    )


def _inputs(data: Data) -> Floats:
    return np.column_stack([data.x, counts_of(data, devices=True)])


def _points(case: Case, data: Data) -> Floats:
    """Return quarter, if there is one, and place in km: GPBoost expects the time first."""
    place = data.x * case.units
    return np.column_stack([place[:, 2:], place[:, :2]])
