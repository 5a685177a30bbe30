"""Small worlds, models with known parameters, and dense references made without geogp."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF

from geogp.models.catalogue.build import build
from geogp.models.field import vecchia
from geogp.models.fit_settings import FitSettings
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import InducingBasis
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess

Floats = NDArray[np.float64]

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Matrices here are tiny: on a busy machine, threads cost ten times what they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Every device of this machine."""
    return str(request.param)


@pytest.fixture
def tolerance() -> Callable[[str], dict[str, float]]:
    """Relative and absolute tolerance of one dtype, the only place where they are set."""
    table = {"float32": {"rtol": 2e-4, "atol": 2e-5}, "float64": {"rtol": 1e-9, "atol": 1e-10}}
    return lambda dtype: table[dtype]


@pytest.fixture
def make_data() -> Callable[..., Data]:
    """Make rows of a smooth surface on [-1, 1]^d with noise of standard deviation 0.1."""

    def make(n: int, *, d: int = 2, seed: int = 0) -> Data:
        random = np.random.default_rng(seed)
        x = random.uniform(-1, 1, (n, d))
        y = np.sin(3 * x).sum(1) + 0.5 * x.prod(1) + 0.1 * random.standard_normal(n)
        return Data(x, y)

    return make


@pytest.fixture
def train(make_data: Callable[..., Data]) -> Data:
    """The rows to learn from: 5 batches of 40, the last one of 30."""
    return make_data(190, seed=1)


@pytest.fixture
def validation(make_data: Callable[..., Data]) -> Data:
    """The rows that choose the epoch."""
    return make_data(60, seed=2)


@pytest.fixture
def quick() -> FitSettings:
    """A few epochs."""
    return FitSettings(epochs=6, batch=40, learning_rate=1e-2)


@pytest.fixture
def make_model(train: Data) -> Callable[..., LowRankProcess]:
    """Build a small untrained model over the training inputs."""

    def make(name: str = "dbk-rbf", *, seed: int = 0, dtype: str = "float32") -> LowRankProcess:
        sizes = Architecture(d=2, h=6, r=8, blocks=1, dtype=dtype, units=(5.0, 5.0))
        return build(name, sizes, torch.from_numpy(train.x), seed=seed)

    return make


@pytest.fixture
def randomised() -> Callable[[LowRankProcess], LowRankProcess]:
    """Move every parameter and buffer of a model off its start, and give the target a unit."""

    def move(model: LowRankProcess, seed: int = 5) -> LowRankProcess:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for value in model.parameters():
                value.add_(0.3 * torch.randn(value.shape, generator=generator, dtype=value.dtype))
            # Upwards only: variances stay positive, and each range of the inputs keeps its order.
            for value in filter(torch.is_floating_point, model.buffers()):
                drawn = torch.randn(value.shape, generator=generator, dtype=value.dtype)
                value.add_(0.3 * drawn.abs())
            model.x_high.add_(1.0)
            model.y_mean.fill_(7.0)
            model.y_sd.fill_(2.5)
            model.widening.fill_(1.0)  # what few rows call for, and nothing else
        return model

    return move


@pytest.fixture
def make_sparse_gp() -> Callable[..., LowRankProcess]:
    """Make a plain sparse GP in float64 whose every parameter is given."""

    def make(
        anchors: Floats,
        *,
        lengthscale: Floats,
        variance: float,
        noise_var: float,
        jitter: float,
        mean: float = 0.0,
    ) -> LowRankProcess:
        r, d = anchors.shape
        sizes = Architecture(d=d, r=r, jitter=jitter, dtype="float64")
        model = build("sv-rbf", sizes, None)
        with torch.no_grad():
            model.basis.anchors.copy_(torch.from_numpy(anchors))
            model.basis.log_lengthscale.copy_(torch.from_numpy(np.log(lengthscale)))
            model.basis.log_variance.fill_(np.log(variance))
            model.noise.log_excess.fill_(np.log(noise_var - 1e-6))
            model.mean_constant.fill_(mean)
        return model

    return make


@pytest.fixture
def set_posterior() -> Callable[[LowRankProcess, Floats, Floats], None]:
    """Give a model's posterior its mean m and lower factor L."""

    def put(model: LowRankProcess, m: Floats, L: Floats) -> None:
        with torch.no_grad():
            model.posterior.m.copy_(torch.from_numpy(m))
            model.posterior.log_diagonal.copy_(torch.from_numpy(np.log(np.diag(L))))
            model.posterior.lower.copy_(torch.from_numpy(np.tril(L, -1)))

    return put


@pytest.fixture
def dense_rbf() -> Callable[..., Floats]:
    """scikit-learn's RBF kernel times a variance."""

    def kernel(a: Floats, b: Floats, lengthscale: Floats, variance: float) -> Floats:
        return variance * RBF(length_scale=lengthscale)(a, b)

    return kernel


@pytest.fixture
def nystroem(dense_rbf: Callable[..., Floats]) -> Callable[..., Floats]:
    """Dense k_aZ (k_ZZ + jitter variance I)^(-1) k_Zb by NumPy and scikit-learn."""

    def approximate(a: Floats, b: Floats, Z: Floats, **hyper: float | Floats) -> Floats:
        jitter = hyper.pop("jitter")
        Kzz = dense_rbf(Z, Z, **hyper) + jitter * hyper["variance"] * np.eye(len(Z))
        return dense_rbf(a, Z, **hyper) @ np.linalg.solve(Kzz, dense_rbf(Z, b, **hyper))

    return approximate


@pytest.fixture
def make_basis() -> Callable[..., InducingBasis]:
    """Make a plain inducing basis in float64 with given hyperparameters."""

    def make(Z: Floats, *, lengthscale: Floats, variance: float, jitter: float) -> InducingBasis:
        basis = InducingBasis(torch.from_numpy(Z), jitter=jitter)
        with torch.no_grad():
            basis.log_lengthscale.copy_(torch.from_numpy(np.log(lengthscale)))
            basis.log_variance.fill_(np.log(variance))
        return basis

    return make


@pytest.fixture
def with_settings(quick: FitSettings) -> Callable[..., FitSettings]:
    """The quick settings with some of them changed."""
    return lambda **changed: replace(quick, **changed)


@pytest.fixture
def exact(monkeypatch) -> None:
    """Condition on everything, so that nothing is approximate."""
    for name in ("TRAINING", "PREDICTION"):
        monkeypatch.setattr(vecchia, f"{name}_PLACES", (200, 200))
        monkeypatch.setattr(vecchia, f"{name}_ROWS", 200)
