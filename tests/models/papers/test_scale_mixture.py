"""Processes with a random scale: against scipy's multivariate t, and Gaussian processes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scale_worlds import SIZES, matrix, process, rows_of, table
from scipy import stats

from geogp.distributions.burr import Burr
from geogp.distributions.heavy_shapes import StudentT
from geogp.errors import RequestError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import learn_closed_forms
from geogp.models.joint.law import joint_posterior
from geogp.models.options import Weights
from geogp.models.papers.scale_mixtures.processes import (
    SCALE_PRIOR,
    InverseGamma,
    StudentProcess,
    scaled_elbo,
)
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.rows import Rows

PROCESSES = ("t-process", "burr-process")


def _prior(a: float = SCALE_PRIOR.a, b: float = SCALE_PRIOR.b):
    return lambda A: stats.multivariate_t(np.zeros(len(A)), b / a * A, df=2 * a)


def test_the_objective_is_the_multivariate_t():
    data, model = table(30), process("t-process")
    loss = CATALOGUE["t-process"].fit(model).backward(rows_of(data), 30, Weights())
    expected = _prior()(matrix(model, data.x)).logpdf(data.y)
    assert -30 * loss.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("prior", [SCALE_PRIOR, InverseGamma(1.5, 0.02), InverseGamma(6.0, 40.0)])
def test_predictions_are_the_conditionals_of_the_multivariate_t(prior, device):
    data, new = table(25), table(6, seed=1)
    model = process("t-process")
    A = matrix(model, np.concatenate([data.x, new.x]))
    assert isinstance(model, StudentProcess)
    model.set_prior(prior)
    model.to(device)
    rows = Rows(*(part.to(device) for part in rows_of(data)[:3]))
    learn_closed_forms(model, rows, rows)
    found = model.predict(new.x).log_score(new.y)
    law = _prior(prior.a, prior.b)
    before = law(A[:25, :25]).logpdf(data.y)
    for row in range(6):
        both = [*range(25), 25 + row]
        joint = law(A[np.ix_(both, both)]).logpdf(np.append(data.y, new.y[row]))
        assert -found[row] == pytest.approx(joint - before, rel=1e-8)


def test_predictions_are_student_t_with_two_a_and_n_degrees_of_freedom():
    data, model = table(25), process("t-process")
    learn_closed_forms(model, rows_of(data), rows_of(data))
    found = model.predict(data.x)
    assert found.shape == StudentT(29.0)
    df, spread = 29.0, found.sd * np.sqrt(27 / 29)
    np.testing.assert_allclose(
        found.quantile(0.975), stats.t(df, found.mean, spread).ppf(0.975), rtol=1e-9
    )
    level = model.predict(data.x, level=True)
    assert level.shape == StudentT(29.0)
    assert (level.noise_variance == 0).all()


@pytest.mark.parametrize(
    ("name", "sure"), [("t-process", InverseGamma(1e9, 1e9)), ("burr-process", Burr(1e4, 1.0))]
)
def test_with_a_sure_scale_it_is_the_gaussian_process(name, sure):
    data, new = table(60), table(20, seed=1)
    model, gaussian = process(name), process("nngp")
    model.set_prior(sure)
    for one in (model, gaussian):
        learn_closed_forms(one, rows_of(data), rows_of(data))
    found, expected = model.predict(new.x), gaussian.predict(new.x)
    close = 1 if name == "t-process" else 10
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=close * 1e-6)
    np.testing.assert_allclose(found.crps(new.y), expected.crps(new.y), rtol=close * 1e-5)
    np.testing.assert_allclose(found.log_score(new.y), expected.log_score(new.y), atol=close * 1e-6)


@pytest.mark.parametrize("name", PROCESSES)
def test_rows_put_together_teach_the_same_scale(name):
    data = table(60)
    rows = rows_of(Data(np.repeat(data.x[:20], 3, 0), data.y))
    apart, together = process(name), process(name)
    learn_closed_forms(apart, rows, rows)
    learn_closed_forms(together, rows.collapsed(), rows)
    torch.testing.assert_close(apart.scale_terms, together.scale_terms)


class TestScale:
    """A prior scale that is wrong by ten, for a Gaussian process and for a Student-t one."""

    def _scores(self, n: int, wrong: float, seed: int) -> dict[str, float]:
        """Log scores of 200 new rows; y is standardised by truth, then by `wrong`."""
        data, new = table(n, seed, scale=wrong), table(200, 100 + seed, scale=wrong)
        scores = {}
        for name in ("nngp", "t-process"):
            model = process(name)
            learn_closed_forms(model, rows_of(data), rows_of(data))
            scores[name] = float(model.predict(new.x).log_score(new.y).mean())
        return scores

    @pytest.mark.parametrize("wrong", [10.0, 0.1])
    @pytest.mark.parametrize("n", [20, 100, 500])
    def test_few_rows_and_a_wrong_scale(self, n, wrong):
        found = [self._scores(n, wrong, seed) for seed in range(5)]
        gaps = np.array([scores["nngp"] - scores["t-process"] for scores in found])
        assert gaps.mean() > 0.3
        assert (gaps > 0).all()

    def test_many_rows_and_the_right_scale_agree(self):
        """With 100,000 rows and noise learned by both they say the same."""
        data, new = table(100_000), table(500, seed=1)
        scores = []
        for name in ("nngp", "t-process"):
            model = process(name)
            fit(model, data, new, FitSettings(epochs=3, batch=5000, optimiser="lbfgs"))
            scores.append(float(model.predict(new.x).log_score(new.y).mean()))
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)


@pytest.mark.parametrize("name", PROCESSES)
def test_joint_variances_are_those_of_predictions(name):
    data, new = table(80), table(20, seed=1)
    model = process(name)
    fit(model, data, new, FitSettings(epochs=1, batch=1000, optimiser="lbfgs"))
    found = joint_posterior(model, data).variance(new.x)
    level = model.predict(new.x, level=True)
    np.testing.assert_allclose(found, level.function_variance, rtol=1e-6)


def test_scales_without_a_mean_are_refused():
    with pytest.raises(RequestError, match="expected a and b above 0, found -1"):
        InverseGamma(-1.0, 2.0)
    with pytest.raises(RequestError, match="expected a above 1, so that the scale has a mean"):
        _ = InverseGamma(1.0, 2.0).mean


def test_the_readout_variance_is_the_random_scale():
    for name in PROCESSES:
        assert not process(name).basis.kernel.log_readout.requires_grad
    assert process("nngp").basis.kernel.log_readout.requires_grad


class TestVariational:
    @pytest.fixture
    def exact(self) -> LowRankProcess:
        data, model = table(30), process("t-process")
        learn_closed_forms(model, rows_of(data), rows_of(data))
        return model

    @pytest.fixture
    def best(self, exact) -> LowRankProcess:
        """The variational model at the exact posterior of the same features."""
        model = build("sv-t-process", SIZES, None)
        model.basis.load_state_dict(exact.basis.state_dict())
        model.noise.load_state_dict(exact.noise.state_dict())
        model.make_fit(model).start(rows_of(table(30)), 0)
        scale = exact.scale_posterior
        with torch.no_grad():
            # L of the closed form is upper triangular: take the lower factor of L L'.
            L = torch.linalg.cholesky(exact.posterior.L @ exact.posterior.L.T)
            model.posterior.m.copy_(exact.posterior.m)
            model.posterior.lower.copy_(L.tril(-1))
            model.posterior.log_diagonal.copy_(L.diagonal().log())
            model.log_scale.fill_(np.log(scale.b / scale.a))
        return model

    def _bound(self, model: LowRankProcess, rows: Rows) -> float:
        found = model.terms(rows.x)
        # Rows have only what the features explain: the bound of the low-rank process.
        found = replace(found, residual=torch.zeros_like(found.residual))
        return -30 * scaled_elbo(found, rows.y, 30, Weights()).item()

    def test_the_bound_is_the_evidence_at_the_exact_posterior(self, exact, best):
        rows = rows_of(table(30))
        expected = _prior()(matrix(exact, table(30).x)).logpdf(table(30).y)
        assert self._bound(best, rows) == pytest.approx(expected, rel=1e-9)
        for change in (0.05, -0.05):
            best.log_scale.data += change
            assert self._bound(best, rows) < expected - 1e-3
            best.log_scale.data -= change
            best.posterior.m.data += change
            assert self._bound(best, rows) < expected - 1e-3
            best.posterior.m.data -= change

    def test_predictions_there_are_those_of_the_exact_process(self, exact, best):
        new = table(10, seed=1)
        found, expected = best.predict(new.x), exact.predict(new.x)
        missed = best.basis(torch.from_numpy(new.x)).residual.detach().numpy()
        scale = exact.scale_posterior
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
        np.testing.assert_allclose(
            found.variance, expected.variance + missed * scale.b / (scale.a - 1), rtol=1e-9
        )
        assert found.shape == expected.shape

    @pytest.mark.trial
    def test_mini_batches_find_the_exact_process(self):
        data, new = table(2000), table(200, seed=1)
        scores = {}
        for name, settings in (
            ("t-process", FitSettings(epochs=3, batch=5000, optimiser="lbfgs")),
            ("sv-t-process", FitSettings(epochs=40, batch=256, learning_rate=5e-2)),
        ):
            model = build(name, replace(SIZES, r=40), data.x, noise_start=0.2)
            fit(model, data, new, settings)
            scores[name] = float(model.predict(new.x).log_score(new.y).mean())
        # Their kernels differ: the bound charges for the variance that anchors miss.
        assert scores["sv-t-process"] == pytest.approx(scores["t-process"], abs=0.04)
        spread = np.log(new.y.std()) + 0.5 * np.log(2 * np.pi * np.e)
        assert scores["sv-t-process"] < spread - 0.3
