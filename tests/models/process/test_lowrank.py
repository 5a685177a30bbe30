"""Predictions, features and kernels of the one model class."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.fitting.loop import fit
from geogp.models.papers.last_layers.regression import LastLayerPosterior
from geogp.models.process import lowrank
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import InducingBasis
from geogp.models.process.data import Data
from geogp.models.process.diagonals import NystromDiagonal, VarianceCorrection
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.noise import ValidationNoise
from geogp.models.process.posteriors import (
    ClosedFormPosterior,
    PointPosterior,
    VariationalPosterior,
)

DTYPES = ["float32", "float64"]


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(11).uniform(-1.3, 1.3, (23, 2))


NAMES = sorted(
    name for name, spec in CATALOGUE.items() if not (spec.about.has_tiles or spec.about.counts)
)
"""Processes with a random scale have a test of their predictions of their own."""


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


def _rank(model: LowRankProcess) -> int:
    """Return the number of weights; a plain network has one for each of its outputs."""
    sizes = model.architecture
    return model.basis.rank if model.name in {"dnn", "bll", "rich-bll"} else sizes.r


def _double(value: torch.Tensor) -> np.ndarray:
    return value.detach().double().numpy()


def _factor(model: LowRankProcess) -> np.ndarray:
    """Return a matrix L so that the weights have covariance L L', from the tensors."""
    posterior = model.posterior
    if isinstance(posterior, VariationalPosterior):
        diagonal = np.diag(np.exp(_double(posterior.log_diagonal)))
        return np.tril(_double(posterior.lower), -1) + diagonal
    if isinstance(posterior, ClosedFormPosterior | LastLayerPosterior):
        return _double(posterior.L)
    assert isinstance(posterior, PointPosterior)
    return np.zeros((_rank(model), _rank(model)))


def _added(model: LowRankProcess, residual: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Return what the row of the catalogue adds to the variance at single points."""
    if isinstance(model.diagonal, NystromDiagonal):
        assert residual.max() > 1e-3
        return residual
    if isinstance(model.diagonal, VarianceCorrection):
        largest = model.diagonal.largest.item()
        assert norm.min() < largest < norm.max()
        return np.maximum(largest, norm) - norm
    return np.zeros_like(norm)


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunked_is_whole(
    *, name, dtype, x, device, make_model, randomised, tolerance, monkeypatch: pytest.MonkeyPatch
):
    model = randomised(make_model(name, dtype=dtype)).to(device)
    whole, features, kernel = model.predict(x), model.features(x), model.kernel(x, x[:9])
    monkeypatch.setattr(lowrank, "CHUNK", 5)
    assert [len(part) for part in model.feature_chunks(x)] == [5, 5, 5, 5, 3]
    close = tolerance(dtype)
    parts = model.predict(x)
    np.testing.assert_allclose(parts.mean, whole.mean, **close)
    np.testing.assert_allclose(parts.function_variance, whole.function_variance, **close)
    np.testing.assert_allclose(parts.noise_variance, whole.noise_variance, **close)
    np.testing.assert_allclose(model.features(x), features, **close)
    np.testing.assert_allclose(model.kernel(x, x[:9]), kernel, **close)


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_is_the_product_of_the_features(
    *, name, dtype, x, device, make_model, randomised, tolerance
):
    model = randomised(make_model(name, dtype=dtype)).to(device)
    features = model.features(x)
    assert features.shape == (23, _rank(model))
    assert features.dtype == np.float64
    expected = features @ features[:4].T
    np.testing.assert_allclose(model.kernel(x, x[:4]), expected, **tolerance(dtype))


def test_kernel_in_the_unit_of_the_target_against_scikit_learn(x, make_sparse_gp, nystroem):
    Z = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    hyper = {"lengthscale": np.array([0.5, 0.8]), "variance": 1.4, "jitter": 1e-6}
    model = make_sparse_gp(Z, noise_var=0.1, **hyper)
    model.y_sd.fill_(3.0)
    expected = 9 * nystroem(x, x[:5], Z, **hyper)
    np.testing.assert_allclose(model.kernel(x, x[:5]), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"t-process", "sv-t-process", "burr-process"}))
def test_prediction_by_hand(*, name, dtype, x, make_model, randomised, tolerance):
    model = randomised(make_model(name, dtype=dtype))
    low, high = _double(model.x_low), _double(model.x_high)
    scaled = 2 * (x - low) / (high - low) - 1
    assert np.abs(scaled - x).max() > 0.1
    with torch.no_grad():
        features = model.basis(torch.from_numpy(scaled).to(model.architecture.torch_dtype))
    phi, residual, norm = (_double(v) for v in (features.phi, features.residual, features.norm))
    np.testing.assert_allclose(norm, (phi**2).sum(1), **tolerance(dtype))
    if isinstance(model.diagonal, VarianceCorrection):  # between the norms: both of its branches
        model.diagonal.largest.fill_(np.median(norm))
    found = model.widened(1.5).predict(x)
    m, L = _double(model.posterior.m), _factor(model)
    if isinstance(model.noise, ValidationNoise):
        noise = model.noise.variance.item()
    else:
        noise = 1e-6 + np.exp(model.noise.log_excess.item())
    variance = np.diag(phi @ L @ L.T @ phi.T) + _added(model, residual, norm)
    assert (variance.max() > 1e-3) == (name != "dnn")
    close = tolerance(dtype)
    constant = model.mean_constant.item()
    np.testing.assert_allclose(found.mean, 7 + 2.5 * (constant + phi @ m), **close)
    np.testing.assert_allclose(found.function_variance, (1.5 * 2.5) ** 2 * variance, **close)
    np.testing.assert_allclose(found.noise_variance, (1.5 * 2.5) ** 2 * noise, **close)
    assert found.mean.dtype == found.function_variance.dtype == np.float64
    assert found.noise_variance.shape == (23,)


def test_far_away_the_sparse_gp_returns_to_its_prior(make_model):
    model = make_model("sv-rbf", dtype="float64")
    with torch.no_grad():
        model.basis.log_variance.fill_(np.log(1.7))
        model.posterior.m.normal_(generator=torch.Generator().manual_seed(0))
    model.y_mean.fill_(4.0)
    model.y_sd.fill_(3.0)
    for level, noise in ((False, 9 * 1e-2), (True, 0)):
        far = model.predict(np.array([[60.0, -60.0]]), level=level)
        assert far.mean[0] == pytest.approx(4.0)
        assert far.function_variance[0] == pytest.approx(9 * 1.7)
        assert far.noise_variance[0] == pytest.approx(noise)


@pytest.mark.parametrize(("scale", "shift"), [(40.0, 1000.0), (-0.03, 5.0)])
def test_another_unit_of_the_target_changes_nothing_else(
    *, name, scale, shift, x, train, validation, make_model, quick
):
    settings = replace(quick, epochs=3)
    plain, other = make_model(name, dtype="float64"), make_model(name, dtype="float64")
    mirror = np.sign(scale)
    first = Data(train.x, mirror * train.y), Data(validation.x, mirror * validation.y)
    second = tuple(Data(data.x, scale * data.y + shift) for data in (train, validation))
    _, state = fit(plain, *first, settings)
    _, moved_state = fit(other, *second, settings)
    size = abs(scale)
    expected, found = plain.predict(x), other.predict(x)
    np.testing.assert_allclose(found.mean, shift + size * expected.mean, rtol=1e-6)
    np.testing.assert_allclose(
        found.function_variance, size**2 * expected.function_variance, rtol=1e-6
    )
    np.testing.assert_allclose(found.noise_variance, size**2 * expected.noise_variance, rtol=1e-6)
    assert moved_state.best_nll == pytest.approx(state.best_nll + np.log(size), abs=1e-6)
    assert moved_state.losses == pytest.approx(state.losses, abs=1e-6)


@pytest.mark.parametrize("verb", ["predict", "features"])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((4, 3)), r"shape \(n, 2\) with n >= 1, found \(4, 3\)"),
        (np.zeros(4), r"found \(4,\)"),
        (np.zeros((0, 2)), r"found \(0, 2\)"),
        (np.array([[0, np.nan]]), "finite inputs"),
        (np.array([[0, 0], [np.inf, 0]]), "finite inputs"),
    ],
)
def test_refused_inputs(verb, x, message, make_model):
    with pytest.raises(DataError, match=message):
        getattr(make_model(), verb)(x)


def test_kernel_refuses_either_side(make_model):
    good, bad = np.zeros((2, 2)), np.zeros((2, 1))
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(DataError, match=r"found \(2, 1\)"):
            make_model().kernel(*pair)


def test_prediction_leaves_inputs_and_gradients_alone(make_model, x):
    model, before = make_model(), x.copy()
    model.predict(x)
    np.testing.assert_array_equal(x, before)
    assert all(value.grad is None for value in model.parameters())


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_fix_the_tensors(name, dtype):
    sizes = Architecture(d=3, h=5, r=4, blocks=1, dtype=dtype)
    model = build(name, sizes, None)
    assert {value.dtype for value in model.parameters()} == {sizes.torch_dtype}
    rank = {"dnn": 5, "bll": 6, "rich-bll": 6}.get(name, 4)
    assert model.basis.rank == _rank(model) == rank
    if isinstance(model.basis, InducingBasis):
        assert model.basis.anchors.shape == (4, 3 if name in {"sv-rbf", "sgp"} else 5)
    assert model.posterior.m.shape == (rank,)
    assert _factor(model).shape == (rank, rank)
    assert model.features(np.zeros((2, 3))).shape == (2, rank)
    assert model.mean_constant.item() == 0
    assert Architecture(**asdict(sizes)) == sizes


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dtype": "float16"}, "unknown dtype 'float16'; choose one of float32, float64"),
        ({"d": 0}, "expected whole numbers as sizes, d from 1 .* h of 2 or more, .* found d 0"),
        ({"d": 2.5}, r"d 2\.5"),
        ({"d": 10**9}, "d 1000000000"),
        ({"r": -1}, "r -1"),
        ({"r": 8.0}, r"r as a whole number, found 8\.0"),
        ({"r": "8"}, "r as a whole number, found '8'"),
        ({"h": 1e9}, r"h as a whole number, found 1000000000\.0"),
        ({"blocks": 1.5}, r"blocks as a whole number, found 1\.5"),
        ({"blocks": 10**9}, "blocks 1000000000"),
        ({"h": 1}, "h 1"),
        ({"jitter": float("nan")}, "jitter from 0 to 0.01, found nan"),
        ({"jitter": -1e-9}, "jitter from 0"),
        ({"jitter": 0.5}, "jitter from 0"),
        ({"blocks": -1}, "blocks -1"),
        ({"columns": ("a",)}, r"2 different names of columns, .* found \['a'\]"),
        ({"columns": ("a", "a")}, r"found \['a', 'a'\]"),
        ({"columns": ("a", "b"), "dropped": ("c",)}, r"dropped \['c'\]"),
        ({"dropped": ("x0", "x1")}, "at least one column that is not dropped"),
    ],
)
def test_refused_sizes(sizes, message):
    with pytest.raises(RequestError, match=message):
        Architecture(**{"d": 2, **sizes})
