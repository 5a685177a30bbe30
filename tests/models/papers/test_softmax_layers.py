"""Last layers with a softmax, compared with dense formulas and with autograd."""

import numpy as np
import pytest
import torch
from scipy import stats

from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.papers.classes.processes import LOGIT_NOISE
from geogp.models.papers.classes.softmax_layers import RIDGE, StudentReadout
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

SIZES = Architecture(d=2, h=8, r=4, blocks=2, classes=3, dtype="float64")
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (80, 2))
Y = (X[:, 0] + X[:, 1] > 0).astype(float) + (X[:, 0] > 0.5)
AWAY = 6 * RNG.standard_normal((20, 2))


@pytest.fixture(scope="module")
def fitted():
    """Models of the same network, by name."""
    found = {}
    for name in ("class-dnn", "class-bll", "class-rich-bll", "class-laplace"):
        model = build(name, SIZES, X)
        fit(model, Data(X, Y), Data(X, Y), FitSettings(epochs=30, batch=16, learning_rate=1e-2))
        found[name] = model
    return found


def _features(model, x):
    with torch.no_grad():
        return model.basis(model.scaled(x)).phi.numpy()


def test_all_have_the_logits_of_one_network(fitted):
    plain = fitted["class-dnn"].predict(AWAY)
    assert (plain.variance == 0).all()
    assert (plain.codes != plain.codes[0]).any()
    for model in fitted.values():
        assert model.predict(AWAY).mean == pytest.approx(plain.mean)


def test_the_plain_last_layer_is_a_ridge_regression_of_logits(fitted):
    phi, new = (_features(fitted["class-bll"], x) for x in (X, AWAY))
    S = np.linalg.inv(phi.T @ phi / LOGIT_NOISE + np.eye(9))
    expected = np.einsum("br,rs,bs->b", new, S, new)
    found = fitted["class-bll"].predict(AWAY).variance[0]
    assert found == pytest.approx(np.repeat(expected[:, None], 3, 1))


def test_the_enriched_last_layer_by_dense_matrices(fitted):
    """F F' is the mean over classes of A_j' A_j + I, each A_j by ridge regression."""
    model = fitted["class-rich-bll"]
    x = model.scaled(X)
    phi = _features(model, X)
    total = np.eye(9)
    for part in model.posterior.each():
        tangents = model.network.tangents(x, part.weights()[0])
        blocks = [tangents.block(layer, slice(0, 8)) for layer in range(2)]
        deep = torch.cat(blocks, 1).numpy()
        A = deep.T @ phi @ np.linalg.inv(phi.T @ phi + RIDGE * np.eye(9))
        total += A.T @ A / 3
    F = model.enrichment.numpy()
    assert pytest.approx(total) == F @ F.T
    S = np.linalg.inv(phi.T @ phi / LOGIT_NOISE + np.linalg.inv(total))
    new = _features(model, AWAY)
    expected = np.einsum("br,rs,bs->b", new, S, new)
    assert model.predict(AWAY).variance[0, :, 1] == pytest.approx(expected)
    plain = fitted["class-bll"].predict(AWAY).variance[0, :, 1]
    assert (expected > plain).all()


def test_a_subsample_keeps_the_scale_of_the_variance(fitted):
    model = fitted["class-rich-bll"]
    whole = model.posterior.each()[0].weights()[1].clone()
    x = model.scaled(X)
    with torch.no_grad():
        part = model.factor(x, 0, 32)
        again = model.factor(x, 0)
    assert int(model.enrichment_rows) == 80
    assert again == pytest.approx(whole)
    share = float(part.square().sum() / whole.square().sum())
    assert 0.5 < share < 2
    assert share != 1


def test_the_laplace_precision_is_the_mean_second_derivative(fitted):
    model = fitted["class-laplace"]
    phi = torch.from_numpy(_features(model, X))
    m, L = (part.detach() for part in model.posterior.weights())
    y = torch.from_numpy(Y).long()

    def loss(weights):
        logits = model.constants.detach() + phi @ weights.T
        return torch.nn.functional.cross_entropy(logits, y, reduction="sum")

    H = torch.autograd.functional.hessian(loss, m)
    mean = sum(H[k, :, k] for k in range(3)) / 3
    precision = np.linalg.inv((L[0] @ L[0].T).numpy())
    assert precision == pytest.approx(mean.numpy() + np.eye(9), rel=1e-6, abs=1e-8)


def test_unusual_rows_have_a_larger_variance(fitted):
    for name in ("class-bll", "class-rich-bll", "class-laplace"):
        usual, strange = (fitted[name].predict(x).logit_variance for x in (X, AWAY))
        assert np.median(strange) > 2 * np.median(usual), name


def test_a_wide_network_starts_as_a_gaussian_or_a_t_process():
    torch.manual_seed(0)
    squares = [float(StudentReadout.draw_scale(None).square()) for _ in range(2000)]
    assert stats.kstest(squares, stats.invgamma(2.0, scale=2.0).cdf).pvalue > 0.01
    sizes = Architecture(d=2, h=64, r=4, blocks=2, classes=500)
    for name, scaled in (("class-dnn-normal", False), ("class-dnn-student", True)):
        model = build(name, sizes, X)
        s = float(model.readout_scale)
        assert (s != 1) == scaled
        with torch.no_grad():
            phi = model.basis(model.scaled(X)).phi
            logits = model.terms(model.scaled(X)).mean
        own = s * phi.norm(dim=1)
        # Over the classes, the logits of a row have the sd s ||phi||.
        assert (logits.std(1) / own).mean() == pytest.approx(1, abs=0.1)
