"""The collapsed bound of `sgp` and `sdkl`: dense formulas, the exact likelihood, the best q."""

import numpy as np
import pytest
import torch
from scipy import stats

from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import learn_closed_forms
from geogp.models.options import Weights
from geogp.models.process.diagonals import NystromDiagonal, PredictiveDiagonal
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.objectives import elbo
from geogp.models.process.posteriors import ClosedFormPosterior
from geogp.models.process.rows import Rows

Floats = np.ndarray

HYPER = {"lengthscale": np.array([0.35, 0.5]), "variance": 1.6}
NOISE, MEAN = 0.07, 0.35


@pytest.fixture
def rows() -> tuple[Floats, Floats]:
    """A shaken grid: points far enough apart for a jitter of 1e-10."""
    random = np.random.default_rng(2)
    side = np.linspace(-0.9, 0.9, 5)
    x = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    x += random.uniform(-0.08, 0.08, x.shape)
    return x, np.sin(4 * x).sum(1) + 0.25 * random.standard_normal(25)


@pytest.fixture
def evidence(rows, dense_rbf) -> float:
    """The log marginal likelihood of the exact process, by SciPy."""
    x, y = rows
    dense = stats.multivariate_normal(
        np.full(25, MEAN), dense_rbf(x, x, **HYPER) + NOISE * np.eye(25)
    )
    return float(dense.logpdf(y))


@pytest.fixture
def make(make_sparse_gp):
    """Make a sparse process with given inducing points, hyperparameters and the best q."""

    def at(Z: Floats, rows: tuple[Floats, Floats]) -> LowRankProcess:
        model = make_sparse_gp(Z, noise_var=NOISE, mean=MEAN, jitter=1e-10, **HYPER)
        model.diagonal, model.posterior = PredictiveDiagonal(), ClosedFormPosterior(len(Z))
        learn_closed_forms(model, _rows(rows), _rows(rows))
        return model

    return at


def _rows(rows: tuple[Floats, Floats]) -> Rows:
    x, y = (torch.from_numpy(part) for part in rows)
    return Rows(x, y, torch.ones(len(y), 2, dtype=torch.float64))


def _bound(model: LowRankProcess, rows: tuple[Floats, Floats]) -> float:
    found = CATALOGUE["sgp"].fit(model).backward(_rows(rows), len(rows[1]), Weights())
    return -len(rows[1]) * found.item()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_the_dense_formula_and_below_the_exact_likelihood(
    rows, evidence, make, dense_rbf, seed
):
    x, y = rows
    Z = np.random.default_rng(seed).uniform(-1, 1, (6, 2))
    Kxz = dense_rbf(x, Z, **HYPER)
    Q = Kxz @ np.linalg.solve(dense_rbf(Z, Z, **HYPER), Kxz.T)
    dense = stats.multivariate_normal(np.full(25, MEAN), Q + NOISE * np.eye(25)).logpdf(y)
    expected = dense - np.trace(dense_rbf(x, x, **HYPER) - Q) / (2 * NOISE)
    assert _bound(make(Z, rows), rows) == pytest.approx(expected, rel=1e-7)
    assert expected < evidence - 1


def test_it_is_the_exact_likelihood_with_the_rows_as_inducing_points(rows, evidence, make):
    assert _bound(make(rows[0], rows), rows) == pytest.approx(evidence, abs=1e-6)


def test_it_is_the_largest_elbo_and_q_reaches_it(rows, make):
    x, y = (torch.from_numpy(part) for part in rows)
    model = make(np.random.default_rng(4).uniform(-1, 1, (7, 2)), rows)
    bound = _bound(model, rows)

    def at() -> float:
        with torch.no_grad():
            return -25 * elbo(model.terms(x), y, 25, Weights()).item()

    assert at() == pytest.approx(bound, abs=1e-7)
    model.posterior.m += 0.01
    assert at() < bound - 1e-4
    # The posterior that counts the residual as noise of the rows (FITC) is another q.
    model.diagonal = NystromDiagonal()
    learn_closed_forms(model, _rows(rows), _rows(rows))
    assert at() < bound - 1e-2


def test_the_prediction_is_that_of_the_exact_process(rows, make, dense_rbf):
    x, y = rows
    new = np.random.default_rng(5).uniform(-1, 1, (40, 2))
    K = dense_rbf(x, x, **HYPER) + NOISE * np.eye(25)
    cross = dense_rbf(new, x, **HYPER)
    found = make(x, rows).predict(new)
    np.testing.assert_allclose(found.mean, MEAN + cross @ np.linalg.solve(K, y - MEAN), atol=1e-6)
    spread = HYPER["variance"] - (cross * np.linalg.solve(K, cross.T).T).sum(1)
    np.testing.assert_allclose(found.function_variance, spread, atol=1e-6)


def test_the_prior_variance_returns_far_from_the_inducing_points(rows, make):
    found = make(rows[0][:6], rows).predict(np.array([[50.0, 50.0]]))
    np.testing.assert_allclose(found.mean, MEAN)
    np.testing.assert_allclose(found.function_variance, HYPER["variance"])


@pytest.mark.parametrize("name", ["sgp", "sdkl"])
def test_training_moves_the_inducing_points_and_raises_the_bound(
    name, make_model, train, validation
):
    model = make_model(name)
    start = model.basis.anchors.detach().clone()
    _, state = fit(model, train, validation, FitSettings(epochs=60, learning_rate=3e-2))
    assert (model.basis.anchors - start).abs().max() > 0.05
    assert state.losses[-1] < state.losses[0] - 0.3
    assert state.best_nll < state.validation_nll[0] - 0.1
