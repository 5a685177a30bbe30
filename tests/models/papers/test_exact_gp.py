"""Exact processes: scikit-learn, SciPy, automatic differentiation, recovery, refusals."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from geogp.errors import DataError, RequestError
from geogp.models.papers.deep_basis.exact_gp import ExactGP, ExactSettings, check_rows, fit_exact
from geogp.models.process import memory
from geogp.models.process.data import Data

Floats = np.ndarray

LENGTHS, VARIANCE, NOISE, MEAN = np.array([0.4, 0.9]), 1.7, 0.05, 0.3


def _rows(n: int, seed: int = 0) -> Data:
    random = np.random.default_rng(seed)
    x = random.uniform(-3, 5, (n, 2))
    return Data(x, 20 + 3 * np.sin(x[:, 0]) + 2 * np.cos(x[:, 1]) + 0.4 * random.standard_normal(n))


def _set(model: ExactGP) -> ExactGP:
    with torch.no_grad():
        if model.backbone is None:
            model.log_lengthscale.copy_(torch.from_numpy(np.log(LENGTHS)))
        model.log_variance.fill_(np.log(VARIANCE))
        model.noise.log_excess.fill_(np.log(NOISE - 1e-6))
        model.mean_constant.fill_(MEAN)
    return model


def _scaled(data: Data, by: Data) -> tuple[Floats, Floats]:
    low, high = by.x.min(0), by.x.max(0)
    return 2 * (data.x - low) / (high - low) - 1, (data.y - by.y.mean()) / by.y.std()


@pytest.fixture
def conditioned() -> tuple[ExactGP, Data]:
    model, train = _set(ExactGP(2)), _rows(60)
    model.take_scales(train)
    model.condition(train)
    return model, train


class TestAgainstScikitLearn:
    @pytest.fixture
    def dense(self, conditioned) -> GaussianProcessRegressor:
        x, y = _scaled(conditioned[1], conditioned[1])
        kernel = ConstantKernel(VARIANCE) * RBF(LENGTHS)
        return GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(x, y - MEAN)

    def test_the_likelihood(self, conditioned, dense):
        model, train = conditioned
        rows = model.scaled(train.x), model.standardised(train.y)
        found = model.log_marginal_likelihood(*rows).item()
        assert found == pytest.approx(dense.log_marginal_likelihood_value_, rel=1e-10)

    def test_the_prediction_in_the_unit_of_the_target(self, conditioned, dense, monkeypatch):
        model, train = conditioned
        new = _rows(40, seed=1)
        monkeypatch.setattr("geogp.models.papers.deep_basis.exact_gp.CHUNK_ROWS", 7)
        found = model.predict(new.x)
        mean, sd = dense.predict(_scaled(new, train)[0], return_std=True)
        spread = train.y.std()
        np.testing.assert_allclose(found.mean, train.y.mean() + spread * (MEAN + mean), rtol=1e-9)
        np.testing.assert_allclose(found.function_variance, (spread * sd) ** 2, rtol=1e-7)
        np.testing.assert_allclose(found.noise_variance, NOISE * spread**2, rtol=1e-9)

    def test_a_fit_finds_the_likelihood_of_its_optimiser(self):
        train = _rows(120)
        x, y = _scaled(train, train)
        kernel = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)
        theirs = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0).fit(x, y)
        found = fit_exact(ExactGP(2), train, ExactSettings(steps=300))
        # Ours has a mean constant too, so its maximum may be higher.
        best = theirs.log_marginal_likelihood_value_ / 120
        assert -1e-4 < found.likelihood[-1] - best < 0.05


@pytest.mark.parametrize("h", [None, 5])
def test_value_and_gradients_are_those_of_automatic_differentiation(h):
    model, train = _set(ExactGP(2, h=h)), _rows(25)
    model.take_scales(train)
    x, y = model.scaled(train.x), model.standardised(train.y)
    found = model.log_marginal_likelihood(x, y)
    found.backward()
    ours = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    K = model.kernel(x, x) + model.noise() * torch.eye(25).double()
    plain = torch.distributions.MultivariateNormal(model.mean_constant.expand(25), K).log_prob(y)
    plain.backward()
    assert found.item() == pytest.approx(plain.item(), rel=1e-10)
    for name, value in model.named_parameters():
        torch.testing.assert_close(ours[name], value.grad, rtol=1e-7, atol=1e-9, msg=name)
        # LayerNorm removes a shift of all features, and the RBF any shift of its inputs.
        assert value.grad.abs().max() > 1e-8, name


def test_the_kernel_of_dkl_is_an_rbf_on_the_features():
    model, train = _set(ExactGP(2, h=5)), _rows(30)
    model.take_scales(train)
    x = model.scaled(train.x)
    with torch.no_grad():
        places = model.backbone(x).numpy()
        expected = VARIANCE * RBF(np.full(5, np.sqrt(5)))(places)
        np.testing.assert_allclose(model.kernel(x, x), expected, rtol=1e-9)


def test_dkl_learns_a_step_better_than_an_rbf():
    random = np.random.default_rng(0)

    def draw(n: int) -> Data:
        x = random.uniform(-1, 1, (n, 1))
        return Data(x, np.sign(x[:, 0]) + 0.1 * random.standard_normal(n))

    train, validation, new = draw(150), draw(60), draw(400)
    scores = {}
    for name, h in (("GP", None), ("DKL", 8)):
        model = ExactGP(1, h=h, seed=1)
        found = fit_exact(model, train, ExactSettings(steps=150), validation)
        assert 1 <= found.best_step <= 150
        scores[name] = model.predict(new.x).log_score(new.y).mean()
    assert scores["DKL"] < scores["GP"] - 0.1
    truth = stats.norm(np.sign(new.x[:, 0]), 0.1).logpdf(new.y).mean()
    assert scores["DKL"] < -truth + 0.6


def test_the_seed_gives_the_network_and_leaves_torch_alone():
    state = torch.random.get_rng_state()
    one, same, other = (ExactGP(3, h=4, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    pairs = [(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True)]
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.backbone.project.weight, other.backbone.project.weight)


def test_a_part_of_the_rows_gives_the_kernel_and_all_give_the_prediction():
    train = _rows(200)
    model = ExactGP(2)
    fit_exact(model, train, ExactSettings(steps=30, likelihood_rows=50))
    before = model.predict(train.x[:5])
    model.condition(train)
    np.testing.assert_array_equal(model.predict(train.x[:5]).mean, before.mean)
    model.condition(train.at(np.arange(50)))
    assert (model.predict(train.x[:5]).function_variance > before.function_variance).all()


def test_a_column_with_one_value_changes_nothing():
    train, new = _rows(50), _rows(10, seed=3)
    constant = Data(np.column_stack([train.x, np.full(50, 7.0)]), train.y)
    one, other = ExactGP(2), ExactGP(3)
    for model, data in ((one, train), (other, constant)):
        with torch.no_grad():
            model.log_lengthscale.zero_()
        model.take_scales(data)
        model.condition(data)
    found = other.predict(np.column_stack([new.x, np.full(10, 7.0)]))
    np.testing.assert_allclose(found.mean, one.predict(new.x).mean, rtol=1e-9)


class TestRefusals:
    def test_too_many_rows(self):
        data = Data(np.zeros((20_001, 1)), np.arange(20_001.0))
        with pytest.raises(RequestError, match=r"at most 20,000 training rows .* found 20,001"):
            fit_exact(ExactGP(1), data, ExactSettings())
        check_rows(10)

    def test_too_little_memory(self, monkeypatch):
        monkeypatch.setattr(memory, "available_bytes", lambda _: 1e9)
        with pytest.raises(RequestError, match=r"exact Gaussian process of 10,000 rows needs"):
            check_rows(10_000)

    def test_no_training_rows(self):
        with pytest.raises(RequestError, match="call fit_exact first"):
            ExactGP(2).predict(np.zeros((3, 2)))

    @pytest.mark.parametrize("x", [np.zeros((3, 3)), np.zeros(2), np.zeros((0, 2))])
    def test_inputs_of_another_shape(self, conditioned, x):
        with pytest.raises(DataError, match=r"expected inputs of shape \(n, 2\)"):
            conditioned[0].predict(x)

    def test_a_constant_target_or_another_dimension(self):
        with pytest.raises(DataError, match="a target with several values"):
            fit_exact(ExactGP(1), Data(np.arange(5.0)[:, None], np.ones(5)), ExactSettings())
        with pytest.raises(DataError, match="expected 1 columns"):
            fit_exact(ExactGP(1), _rows(9), ExactSettings())

    @pytest.mark.parametrize(
        "wrong", [{"steps": 0}, {"kernel_rate": 0.0}, {"likelihood_rows": 1}, {"check_every": 0}]
    )
    def test_settings_out_of_range(self, wrong):
        with pytest.raises(RequestError, match="expected steps and check_every of 1 or more"):
            ExactSettings(**wrong)

    def test_noise_at_the_floor(self):
        with pytest.raises(RequestError, match="expected a starting noise above 1e-06"):
            ExactGP(1, noise_start=1e-6)
