"""The Cox process: objectives, the fit of known rates, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint.law import joint_posterior
from geogp.models.numerics.products import squared_norms
from geogp.models.options import OFFSET, Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import Basis, Features
from geogp.models.process.data import Data
from geogp.models.process.objectives import BatchTerms, negative_binomial_elbo, poisson_elbo

NAMES = ["cox", "cox-nb"]
SIZES = Architecture(
    d=3, h=16, r=16, blocks=1, columns=("easting", "northing", OFFSET), dropped=(OFFSET,)
)


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


def _terms(mean, variance, offset, dispersion=None, kl=0.7) -> BatchTerms:
    def tensor(values):
        return torch.tensor(values, dtype=torch.float64)

    zero = torch.zeros(len(mean), dtype=torch.float64)
    return BatchTerms(
        mean=tensor(mean),
        function_variance=tensor(variance),
        residual=zero,
        feature_norm=zero,
        noise_var=zero[0],
        kl=torch.tensor(kl, dtype=torch.float64),
        offset=tensor(offset),
        dispersion=None if dispersion is None else tensor(dispersion),
    )


MEAN, VARIANCE, OFFSETS = [0.3, -2.0, 3.0], [0.2, 1.5, 0.01], [0.0, 0.4, -0.3]
DISPERSION = [0.5, 3.0, 1e-3]
Y = torch.tensor([2.0, 0.0, 13.0], dtype=torch.float64)


def _expected(law_of):
    """Integrate -log p(y | f) over f ~ N(mean, variance) for each row, and take the mean."""
    found = []
    for row in range(3):
        z = np.linspace(-10, 10, 4001)
        law = law_of(np.exp(OFFSETS[row] + MEAN[row] + np.sqrt(VARIANCE[row]) * z), row)
        nll = -stats.norm.pdf(z) * law.logpmf(float(Y[row]))
        found.append(integrate.simpson(nll, x=z))
    return np.mean(found)


def test_poisson_elbo_is_the_integral_over_the_function():
    expected = _expected(lambda rate, _: stats.poisson(rate)) + 0.7 / 50
    found = poisson_elbo(_terms(MEAN, VARIANCE, OFFSETS), Y, 50, Weights())
    assert found.item() == pytest.approx(expected, rel=1e-8)


def test_negative_binomial_elbo_is_the_integral_over_the_function():
    def law_of(rate, row):
        return stats.nbinom(1 / DISPERSION[row], 1 / (1 + DISPERSION[row] * rate))

    expected = _expected(law_of) + 0.7 / 50
    terms = _terms(MEAN, VARIANCE, OFFSETS, DISPERSION)
    found = negative_binomial_elbo(terms, Y, 50, Weights())
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_without_uncertainty_it_is_the_loss_of_torch():
    terms = _terms(MEAN, [0.0] * 3, OFFSETS, kl=0.0)
    log_rate = terms.mean + terms.offset
    expected = nn.functional.poisson_nll_loss(log_rate, Y) + torch.lgamma(Y + 1).mean()
    torch.testing.assert_close(poisson_elbo(terms, Y, 9, Weights()), expected)


def test_little_dispersion_is_poisson():
    terms = _terms(MEAN, VARIANCE, OFFSETS, [1e-6] * 3)
    found, expected = (f(terms, Y, 9, Weights()) for f in (negative_binomial_elbo, poisson_elbo))
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


class _Constant(Basis):
    """phi(x) = (1): every input has one rate."""

    rank = 1

    def forward(self, x):
        phi = x.new_ones(len(x), 1)
        norm = squared_norms(phi)
        return Features(phi, norm, torch.zeros_like(norm))


@pytest.mark.trial
def test_a_constant_basis_finds_the_maximum_likelihood_rate(device):
    """The rate per exposure of largest Poisson likelihood is sum y / sum exposure."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (500, 3))
    data = Data(x, random.poisson(4 * np.exp(x[:, 2])).astype(float))
    expected = data.y.sum() / np.exp(x[:, 2]).sum()
    sizes = replace(SIZES, h=4, r=1, blocks=0, dtype="float64")
    model = build("cox", sizes, x)
    model.basis = _Constant()
    model.to(device)
    fit(model, data, data, FitSettings(epochs=300, batch=500, learning_rate=0.05))
    assert model.predict(np.array([[0.1, 0.2, 0.0]])).mean[0] == pytest.approx(expected, rel=0.01)
    y, scaled = torch.from_numpy(data.y).to(device), model.scaled(x)
    learned = [p for name, p in model.named_parameters() if name != "posterior.lower"]
    optimiser = torch.optim.LBFGS(learned, max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = poisson_elbo(model.terms(scaled), y, len(y), Weights())
        value.backward()
        return value

    optimiser.step(loss)
    terms = model.terms(scaled)
    rate = (terms.mean + terms.function_variance / 2 + model.y_mean).exp()[0].item()
    assert rate == pytest.approx(expected, rel=1e-5)
    # Given m0 the likelihood of w has curvature sum y, and its prior 1.
    variance = terms.function_variance[0].item()
    assert variance == pytest.approx(1 / (1 + data.y.sum()), rel=1e-3)


def _world(seed=0, n=3000, dispersion=0.0):
    """Draw a log rate of a few smooth waves on [-1, 1]², and counts with exposures."""
    random = np.random.default_rng(seed)
    wave, phase, size = random.normal(0, 2.5, (6, 2)), random.uniform(0, 6, 6), 0.6

    def log_rate(x):
        return 0.3 + size * np.cos(x[:, :2] @ wave.T + phase).sum(1)

    def draw(n):
        x = np.column_stack([random.uniform(-1, 1, (n, 2)), random.uniform(-0.7, 0.7, n)])
        rate = np.exp(log_rate(x) + x[:, 2])
        if dispersion:
            rate = rate * random.gamma(1 / dispersion, dispersion, n)
        return Data(x, random.poisson(rate).astype(float))

    return log_rate, draw(n), draw(n // 4), draw(2000)


SETTINGS = FitSettings(epochs=25, batch=128, learning_rate=1e-2, decay="cosine", clip=1.0)


@pytest.mark.trial
@pytest.mark.parametrize(("name", "dispersion"), [("cox", 0.0), ("cox-nb", 1.5)])
def test_a_known_intensity_is_found(name, dispersion, device):
    log_rate, train, validation, test = _world(dispersion=dispersion)
    model = build(name, SIZES, train.x).to(device)
    fit(model, train, validation, SETTINGS)
    found, truth = model.predict(test.x), log_rate(test.x) + test.x[:, 2]
    assert np.corrcoef(found.log_rate_mean, truth)[0, 1] > 0.93
    np.testing.assert_allclose(found.mean.mean(), np.exp(truth).mean(), rtol=0.1)
    # In each third of the predicted rates the mean is that of the truth.
    for rows in np.array_split(np.argsort(found.mean), 3):
        assert found.mean[rows].mean() == pytest.approx(np.exp(truth[rows]).mean(), rel=0.12)
    lower, upper = found.interval(0.95)
    held = np.mean((lower <= test.y) & (test.y <= upper))
    assert held == pytest.approx(found.interval_mass(0.95).mean(), abs=0.015)
    oracle = -(
        stats.nbinom.logpmf(test.y, 1 / dispersion, 1 / (1 + dispersion * np.exp(truth)))
        if dispersion
        else stats.poisson.logpmf(test.y, np.exp(truth))
    )
    flat = -stats.poisson.logpmf(test.y, train.y.mean())
    assert oracle.mean() - 0.02 < found.log_score(test.y).mean() < oracle.mean() + 0.08
    assert found.log_score(test.y).mean() < flat.mean() - 0.1
    if dispersion:
        assert np.median(found.dispersion) == pytest.approx(dispersion, rel=0.25)
    else:
        assert found.dispersion.max() == 0


@pytest.mark.trial
def test_poisson_intervals_of_overdispersed_counts_are_too_narrow():
    """Why cox-nb is the default: the same rows, the same basis."""
    _, train, validation, test = _world(n=1500, dispersion=1.5)
    held = {}
    for name in NAMES:
        model = build(name, SIZES, train.x)
        fit(model, train, validation, FitSettings(epochs=10, batch=64, learning_rate=1e-2))
        found = model.predict(test.x)
        lower, upper = found.interval(0.95)
        expected = found.interval_mass(0.95).mean()
        held[name] = np.mean((lower <= test.y) & (test.y <= upper)) - expected
    assert held["cox"] < -0.05
    assert abs(held["cox-nb"]) < 0.02


@pytest.mark.trial
def test_zeros_are_in_the_likelihood():
    """One tile with tests on a grid of none: the rate is low wherever else."""
    side = np.linspace(-1, 1, 20)
    x = np.column_stack([part.ravel() for part in np.meshgrid(side, side)] + [np.zeros(400)])
    y = np.zeros(400)
    y[210] = 40.0
    data = Data(x, y)
    model = build("cox", SIZES, x)
    fit(model, data, data, FitSettings(epochs=60, batch=64, learning_rate=1e-2, clip=1.0))
    rate = model.predict(x).mean
    far = np.abs(x - x[210]).max(1) > 0.5
    assert rate[far].mean() < 0.05
    assert rate.sum() == pytest.approx(40, rel=0.3)
    assert rate.argmax() == pytest.approx(210, abs=21)


def test_twice_the_exposure_is_twice_the_rate(name):
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (300, 3))
    data = Data(x, random.poisson(2.0, 300).astype(float))
    model = build(name, SIZES, x)
    fit(model, data, data, FitSettings(epochs=1))
    doubled = x + np.array([0, 0, np.log(2)])
    np.testing.assert_allclose(model.predict(doubled).mean, 2 * model.predict(x).mean, rtol=1e-5)
    np.testing.assert_allclose(model.features(doubled), model.features(x), rtol=1e-6)


def test_a_constant_exposure_is_no_dropped_column(name):
    x = np.column_stack([np.random.default_rng(0).uniform(-1, 1, (50, 2)), np.zeros(50)])
    assert build(name, SIZES, x).architecture.dropped == (OFFSET,)  # warnings are errors


def test_without_the_column_every_exposure_is_one(name):
    random = np.random.default_rng(4)
    x = random.uniform(-1, 1, (300, 2))
    data = Data(x, random.poisson(3.0, 300).astype(float))
    settings = FitSettings(epochs=2, batch=64)
    found = []
    for more in (x, np.column_stack([x, np.zeros(300)])):
        sizes = SIZES if more.shape[1] == 3 else Architecture(d=2, h=16, r=16, blocks=1)
        model = build(name, sizes, more)
        fit(model, Data(more, data.y), Data(more, data.y), settings)
        found.append(model.predict(more).mean)
    np.testing.assert_array_equal(*found)


def test_rows_of_one_place_are_not_put_together(name):
    """Mean and scatter of several counts do not tell their likelihood."""
    random = np.random.default_rng(5)
    x = np.repeat(random.uniform(-1, 1, (40, 3)), 5, axis=0)
    data = Data(x, random.poisson(2.0, 200).astype(float))
    model = build(name, SIZES, x)
    _, state = fit(model, data, data, FitSettings(epochs=1, batch=200))
    first = build(name, SIZES, x)
    first.take_target(data.y)
    terms = first.terms(first.scaled(x))
    objective = {"cox": poisson_elbo, "cox-nb": negative_binomial_elbo}[name]
    expected = objective(terms, first.standardised(data.y), 200, Weights())
    assert state.losses[0] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("wrong", [-1.0, 0.5])
def test_targets_that_are_no_counts_are_refused(name, wrong):
    x = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    y = np.arange(30.0)
    y[4] = wrong
    model = build(name, SIZES, x)
    with pytest.raises(DataError, match=rf"whole numbers .* found 1 of 30 .* first {wrong:g}"):
        fit(model, Data(x, y), Data(x, np.arange(30.0)), FitSettings(epochs=1))


def test_what_counts_do_not_have_is_refused(name):
    x = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    model = build(name, SIZES, x)
    with pytest.raises(RequestError, match="no separate level"):
        model.predict(x, level=True)
    with pytest.raises(RequestError, match="no posterior in closed form"):
        joint_posterior(model, Data(x, np.arange(30.0)))
