"""Exact inference: dense Gaussian processes, the evidence, and its gradient in chunks."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geogp.models.catalogue.build import build
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.objectives import (
    Statistics,
    corrected_log_marginal_likelihood,
    log_marginal_likelihood,
)
from geogp.models.process.posteriors import ClosedFormPosterior, WeightedRows, condition
from geogp.models.process.rows import Rows

Floats = np.ndarray

EXACT = ["dbk-exact", "dbk-exact-rbf"]
COLLAPSED = ["sgp", "sdkl"]
WHOLE = [*EXACT, "dbk-mml", *COLLAPSED]


def _normal(*shape: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape)


class TestMarginalLikelihood:
    """Sums over the rows against the dense normal density of SciPy."""

    @pytest.fixture(name="Phi")
    def features(self) -> Floats:
        return 0.6 * _normal(40, 5, seed=0)

    @pytest.fixture
    def e(self) -> Floats:
        return _normal(40, seed=1)

    @pytest.fixture
    def sums(self, Phi, e) -> Statistics:
        norm = (Phi**2).sum(1)
        parts = (Phi.T @ Phi, Phi.T @ e, e @ e, norm.sum(), norm.max(), 0.0, 0.0)
        return Statistics(40, *(torch.as_tensor(part, dtype=torch.float64) for part in parts))

    @pytest.mark.parametrize("noise", [1e-3, 0.2, 4.0])
    def test_it_is_the_dense_density(self, Phi, e, sums, noise):
        dense = stats.multivariate_normal(np.zeros(40), Phi @ Phi.T + noise * np.eye(40))
        found = log_marginal_likelihood(sums, torch.tensor(noise, dtype=torch.float64))
        assert found.item() == pytest.approx(dense.logpdf(e), rel=1e-8)

    def test_more_weights_than_rows(self, e):
        Phi = _normal(4, 9, seed=3)
        dense = stats.multivariate_normal(np.zeros(4), Phi @ Phi.T + 0.3 * np.eye(4))
        norm = (Phi**2).sum(1)
        parts = (Phi.T @ Phi, Phi.T @ e[:4], e[:4] @ e[:4], norm.sum(), norm.max(), 0.0, 0.0)
        sums = Statistics(4, *(torch.as_tensor(part, dtype=torch.float64) for part in parts))
        found = log_marginal_likelihood(sums, torch.tensor(0.3, dtype=torch.float64))
        assert found.item() == pytest.approx(dense.logpdf(e[:4]), abs=1e-8)

    @pytest.mark.parametrize("noise", [0.05, 0.2])
    def test_the_correction_takes_the_trace_of_c_away(self, Phi, e, sums, noise):
        K = Phi @ Phi.T
        C = np.diag(np.diag(K).max() - np.diag(K))
        dense = stats.multivariate_normal(np.zeros(40), K + noise * np.eye(40))
        found = corrected_log_marginal_likelihood(sums, torch.tensor(noise, dtype=torch.float64))
        assert np.trace(C) > 1
        assert found.item() == pytest.approx(dense.logpdf(e) - np.trace(C) / (2 * noise), rel=1e-8)


class TestCondition:
    """p(w | y) against the same Gaussian process in its dense form."""

    @pytest.fixture
    def world(self) -> dict[str, Floats]:
        random = np.random.default_rng(5)
        return {
            "Phi": 0.7 * random.standard_normal((30, 6)),
            "e": random.standard_normal(30),
            "v": random.uniform(0.05, 2.0, 30),
            "phi": random.standard_normal((11, 6)),
        }

    def _chunks(self, world: dict[str, Floats], size: int) -> Iterator[WeightedRows]:
        parts = (torch.from_numpy(world[key]).split(size) for key in ("Phi", "e", "v"))
        return (WeightedRows(*part) for part in zip(*parts, strict=True))

    @pytest.mark.parametrize("size", [30, 7])
    def test_moments_are_those_of_the_dense_process(self, world, size):
        posterior = ClosedFormPosterior(6)
        posterior.update_closed_forms(self._chunks(world, size))
        found = posterior.moments(torch.from_numpy(world["phi"]))
        A = world["Phi"] @ world["Phi"].T + np.diag(world["v"])
        cross = world["phi"] @ world["Phi"].T
        mean = cross @ np.linalg.solve(A, world["e"])
        covariance = world["phi"] @ world["phi"].T - cross @ np.linalg.solve(A, cross.T)
        np.testing.assert_allclose(found.mean, mean, atol=1e-8)
        np.testing.assert_allclose(found.variance, np.diag(covariance), atol=1e-8)

    def test_equation_12_of_dbk_1(self, world):
        noise, Phi, phi = 0.05, world["Phi"], world["phi"]
        D = np.diag(world["v"] / noise)  # diag(1 + c_i / noise) with c_i = v_i - noise
        assert D.diagonal().min() >= 1
        Lambda = Phi.T @ np.linalg.inv(D) @ Phi + noise * np.eye(6)
        mean = phi @ np.linalg.solve(Lambda, Phi.T @ np.linalg.solve(D, world["e"]))
        variance = noise * np.diag(phi @ np.linalg.solve(Lambda, phi.T))
        m, L = (part.numpy() for part in condition(self._chunks(world, 7), torch.zeros(6)))
        np.testing.assert_allclose(phi @ m, mean, atol=1e-8)
        np.testing.assert_allclose(((phi @ L) ** 2).sum(1), variance, atol=1e-8)
        np.testing.assert_array_equal(L, np.triu(L))

    def test_equal_variances_are_those_of_scikit_learn(self, world):
        # Its dot product is the kernel of the features themselves.
        from sklearn.gaussian_process.kernels import DotProduct

        kernel = DotProduct(sigma_0=1e-8, sigma_0_bounds="fixed")
        dense = GaussianProcessRegressor(kernel, alpha=0.3, optimizer=None)
        dense.fit(world["Phi"], world["e"])
        mean, sd = dense.predict(world["phi"], return_std=True)
        m, L = (
            part.numpy()
            for part in condition(self._chunks({**world, "v": np.full(30, 0.3)}, 8), torch.zeros(6))
        )
        np.testing.assert_allclose(world["phi"] @ m, mean, atol=1e-8)
        np.testing.assert_allclose(np.linalg.norm(world["phi"] @ L, axis=1), sd, atol=1e-8)

    def test_kl_against_torch(self, world):
        posterior = ClosedFormPosterior(6)
        assert posterior.kl().item() == 0  # it starts as the prior
        posterior.update_closed_forms(self._chunks(world, 7))
        A = np.eye(6) + world["Phi"].T @ (world["Phi"] / world["v"][:, None])
        S = torch.from_numpy(np.linalg.inv(A))
        m = S @ torch.from_numpy(world["Phi"].T @ (world["e"] / world["v"]))
        prior = MultivariateNormal(torch.zeros(6).double(), torch.eye(6).double())
        expected = kl_divergence(MultivariateNormal(m, S), prior).item()
        assert posterior.kl().item() == pytest.approx(expected, abs=1e-8)
        assert expected > 1


class TestGradientInChunks:
    """The second pass carries the gradient of the sums into the features of each chunk."""

    @pytest.fixture(params=WHOLE)
    def model(self, request, make_model, randomised) -> LowRankProcess:
        return randomised(make_model(request.param, dtype="float64"))

    @pytest.fixture
    def rows(self, train) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(train.x), torch.from_numpy(train.y)

    def _dense(self, model: LowRankProcess, x: Tensor, y: Tensor) -> Tensor:
        """The loss by the n x n covariance and plain automatic differentiation."""
        phi = model.basis(x).phi
        n = len(y)
        mean = model.mean_constant.expand(n)
        K = phi @ phi.T
        likelihood = MultivariateNormal(mean, K + model.noise() * torch.eye(n).double()).log_prob(y)
        if model.name == "dbk-mml":
            return -likelihood / n
        if model.name in COLLAPSED:
            trace = (model.basis.log_variance.exp() - K.diagonal()).sum()
        else:
            trace = (K.diagonal().max() - K.diagonal()).sum()
        return -(likelihood - trace / (2 * model.noise())) / n

    def _gradients(self, model: LowRankProcess) -> dict[str, Tensor]:
        found = {name: value.grad.clone() for name, value in model.named_parameters()}
        model.zero_grad()
        return found

    def _compare(self, model: LowRankProcess, x: Tensor, y: Tensor) -> None:
        expected = self._dense(model, x, y)
        expected.backward()
        reference = self._gradients(model)
        steps = model.make_fit(model)
        found = steps.backward(Rows(x, y, torch.ones_like(y)), len(y), Weights())
        assert found.item() == pytest.approx(expected.item(), rel=1e-8)
        gradients = self._gradients(model)
        assert max(value.abs().max() for value in reference.values()) > 1e-2
        for name, value in reference.items():
            torch.testing.assert_close(gradients[name], value, rtol=1e-8, atol=1e-8, msg=name)

    @pytest.mark.parametrize("chunk", [7, 8192])
    def test_value_and_gradients_are_those_of_the_dense_formula(
        self, model, rows, chunk, monkeypatch
    ):
        monkeypatch.setattr("geogp.models.process.rows.CHUNK", chunk)
        self._compare(model, *rows)

    @pytest.mark.parametrize("chunk", [7, 8192])
    def test_a_tie_of_the_largest_norm_counts_once(self, model, rows, chunk, monkeypatch):
        # The row of the largest norm is there again, in the first, the same and the last chunk.
        x, y = rows
        with torch.no_grad():
            peak = int(model.basis(x).norm.argmax())
        again = [peak, *range(len(x)), peak, peak]
        monkeypatch.setattr("geogp.models.process.rows.CHUNK", chunk)
        self._compare(model, x[again], y[again])

    def test_the_first_chunk_holds_the_largest_norm(self, model, rows, monkeypatch):
        # And the last one, in the other order: both ends of the search for the peak.
        x, y = rows
        with torch.no_grad():
            order = model.basis(x).norm.argsort()
        monkeypatch.setattr("geogp.models.process.rows.CHUNK", 7)
        self._compare(model, x[order], y[order])
        self._compare(model, x[order.flip(0)], y[order.flip(0)])

    def test_gradients_add_to_those_that_are_there(self, model, rows):
        steps = model.make_fit(model)
        steps.backward(Rows(*rows, torch.ones_like(rows[1])), len(rows[1]), Weights())
        once = {name: value.grad.clone() for name, value in model.named_parameters()}
        steps.backward(Rows(*rows, torch.ones_like(rows[1])), len(rows[1]), Weights())
        for name, value in self._gradients(model).items():
            torch.testing.assert_close(value, 2 * once[name], rtol=1e-12, atol=1e-14)


class _Meter(TorchDispatchMode):
    """Follows every storage that an operation makes: the largest, and the most at once."""

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self.given = {value.untyped_storage()._cdata for value in given}
        self.largest = self.most = 0
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for value in tree_leaves(found):
            if not isinstance(value, Tensor):
                continue
            storage = value.untyped_storage()
            if storage._cdata not in self.given:
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
                self.largest = max(self.largest, storage.nbytes())
        self.alive = {key: part for key, part in self.alive.items() if not part[0].expired()}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))
        return found


class TestMemory:
    """The step of all rows holds one chunk of features at a time."""

    RANK, CHUNK = 64, 1024

    @pytest.fixture
    def peaks(self, monkeypatch) -> Callable[..., tuple[int, int]]:
        def measure(name: str, n: int, chunk: int = self.CHUNK) -> tuple[int, int]:
            monkeypatch.setattr("geogp.models.process.rows.CHUNK", chunk)
            random = np.random.default_rng(0)
            x = torch.from_numpy(random.uniform(-1, 1, (n, 2)))
            y = x.sum(1) + 0.1
            sizes = Architecture(d=2, h=8, r=self.RANK, blocks=1, dtype="float64")
            model = build(name, sizes, x[:500], seed=0)
            model.basis(x[:2])  # what is allocated once and for all
            rows = Rows(x, y, torch.ones_like(y))
            with _Meter(*rows[:3]) as meter:
                model.make_fit(model).backward(rows, n, Weights())
            return meter.largest, meter.most

        return measure

    @pytest.mark.parametrize("name", [*EXACT, "sdkl"])
    def test_it_does_not_grow_with_the_rows(self, peaks, name):
        few, many = peaks(name, 4 * self.CHUNK), peaks(name, 40 * self.CHUNK)
        assert many == few
        # No array of 41 thousand rows and more than their two columns was made.
        assert many[0] <= 8 * (self.CHUNK + self.RANK) * (self.RANK + 2)

    def test_the_meter_sees_one_chunk_of_all_rows(self, peaks):
        n = 4 * self.CHUNK
        largest, most = peaks("dbk-exact", n, chunk=n)
        assert largest >= 8 * n * self.RANK
        assert most > 2 * peaks("dbk-exact", n)[1]
