"""Bayesian last layers, plain and enriched, against autograd, least squares and dense processes."""

import logging
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import linalg
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geogp.errors import RequestError
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint.law import joint_posterior
from geogp.models.papers.last_layers import regression as rich
from geogp.models.papers.last_layers import tangents
from geogp.models.papers.last_layers.regression import (
    Enrichment,
    enrich,
    parameters_before_the_last,
    posterior_factor,
    row_factor,
    rows_for,
)
from geogp.models.papers.last_layers.tangents import Mlp, Tangents
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess

Floats = np.ndarray

NOISE = 0.05


def network(d: int = 3, h: int = 6, layers: int = 2, seed: int = 0) -> tuple[Mlp, Tensor]:
    """A network with random biases and its last layer's weights, float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Mlp(d, h, layers).double()
        with torch.no_grad():
            for bias in made.biases:
                bias.copy_(0.3 * torch.randn(h))
        return made, torch.randn(h + 1).double()


def rows(n: int, d: int = 3, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d)))


def features(made: Mlp, readout: Tensor, x: Tensor) -> tuple[Floats, Floats]:
    """Phi^r and Phi^m row by row by automatic differentiation of the forward pass."""
    last, before = [], []
    top = readout.clone().requires_grad_()
    for row in x:
        output = made(row[None])[0] @ top[:-1] + top[-1]
        parameters = [*made.weights, *made.biases]
        found = torch.autograd.grad(output, [top, *parameters])
        half = len(made.weights)
        layers = zip(found[1 : 1 + half], found[1 + half :], strict=True)
        before.append(torch.cat([torch.cat([w, b[:, None]], 1).flatten() for w, b in layers]))
        last.append(found[0])
    return torch.stack(last).numpy(), torch.stack(before).numpy()


def earlier(found: Tangents) -> Tensor:
    """The whole phi^m, (c, m)."""
    return torch.cat([found.block(i, slice(None)) for i in range(len(found.layers))], 1)


def dense_bb(Phi_r: Floats, Phi_m: Floats) -> Floats:
    """A'A + I with A by NumPy's least squares."""
    A = np.linalg.lstsq(Phi_r, Phi_m, rcond=None)[0].T
    return A.T @ A + np.eye(Phi_r.shape[1])


def bb(found: Enrichment) -> Floats:
    return (found.L @ found.L.T).numpy()


class TestTangents:
    @pytest.mark.parametrize("layers", [1, 2, 3])
    def test_gradients_are_those_of_autograd(self, layers):
        made, readout = network(layers=layers)
        x = rows(17)
        Phi_r, Phi_m = features(made, readout, x)
        found = made.tangents(x, readout)
        assert np.abs(Phi_m).max() > 0.1
        np.testing.assert_allclose(found.last, Phi_r, atol=1e-13)
        np.testing.assert_allclose(earlier(found), Phi_m, atol=1e-13)
        assert parameters_before_the_last(made) == Phi_m.shape[1]

    @pytest.mark.parametrize("most", [1, 9, 10**6])
    def test_blocks_cover_every_parameter_once(self, most):
        made, readout = network()
        found = made.tangents(rows(5), readout)
        blocks = list(tangents.parameter_blocks(made, most))
        parts = [found.block(layer, units) for layer, units, _ in blocks]
        assert [part.shape[1] for part in parts] == [size for _, _, size in blocks]
        torch.testing.assert_close(torch.cat(parts, 1), earlier(found))
        assert len(blocks) == {1: 12, 9: 9, 10**6: 2}[most]

    def test_no_hidden_layer_is_refused(self):
        with pytest.raises(RequestError, match=r"1 hidden layer \(blocks\) or more, found 0"):
            build("bll", Architecture(d=2, h=6, blocks=0), None)


class TestMaximalUpdate:
    """The parametrisation keeps features, gradients and what a step changes O(1) in the width."""

    WIDTHS = (16, 128)

    def test_the_start(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = Mlp(3, 400)
        assert made.weights[0].var().item() == pytest.approx(2 / (4 * 400), rel=0.1)
        assert made.biases[0].var().item() == pytest.approx(2 / (4 * 400), rel=0.2)
        assert made.weights[1].var().item() == pytest.approx(2 / 400, rel=0.02)
        assert not made.biases[1].any()
        model = build("rich-bll", Architecture(d=3, h=8), None)
        assert not model.posterior.m.any()

    def test_the_rates_of_the_weights_in_effect(self):
        """Times the multipliers √h, 1 and 1/√h: 1 for the first layer and biases, 50/h later."""
        model = build("rich-bll", Architecture(d=3, h=64), None)
        network = "basis.backbone."
        rates = model.make_fit(model).rates()
        assert rates == pytest.approx(
            {
                "mean_constant": 0.0,
                "posterior.m": 50 / 64 * 8,
                f"{network}weights.0": 1 / 8,
                f"{network}weights.1": 50 / 64,
                f"{network}biases.0": 1 / 8,
                f"{network}biases.1": 1 / 8,
            }
        )
        assert rates.keys() == dict(model.named_parameters()).keys()

    def test_every_layer_has_a_gradient_of_about_one_size(self):
        sizes = []
        for h in self.WIDTHS:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(1)
                made = Mlp(3, h).double()
                readout = torch.randn(h + 1).double() / h**0.5  # in effect N(0, 1/h²)
            found = made.tangents(rows(50), readout)
            layers = [found.block(i, slice(None)).square().sum(1).mean() for i in range(2)]
            sizes.append([found.last.square().sum(1).mean().item(), *(v.item() for v in layers)])
        ratio = np.array(sizes[1]) / sizes[0]
        assert (ratio > 0.4).all()
        assert (ratio < 2.5).all()

    def _change(self, h: int, train: Data, validation: Data) -> float:
        model = build("bll", Architecture(d=2, h=h), train.x, seed=1)
        x = model.scaled(validation.x)
        before = model.network(x).detach() * model.network.root
        settings = FitSettings(epochs=2, batch=40, learning_rate=1e-2, decay="constant")
        fit(model, train, validation, settings)
        after = model.network(x).detach() * model.network.root
        return float((after - before).square().mean().sqrt())

    def test_a_few_steps_move_activations_as_far_at_any_width(self, train, validation, monkeypatch):
        narrow, wide = (self._change(h, train, validation) for h in self.WIDTHS)
        assert narrow > 0.02
        assert 0.4 < wide / narrow < 2.5
        # One rate for all parameters moves those of the wide network ever farther.
        monkeypatch.setattr(rich.LastLayerFit, "rates", lambda _: {})
        narrow, wide = (self._change(h, train, validation) for h in self.WIDTHS)
        assert wide / narrow > 2.5


class TestEnrichment:
    @pytest.fixture
    def world(self) -> tuple[Mlp, Tensor, Tensor]:
        return *network(), rows(60)

    def test_a_is_that_of_least_squares(self, world):
        expected = dense_bb(*features(*world))
        found = enrich(*world)
        assert np.linalg.eigvalsh(expected).max() > 2
        np.testing.assert_allclose(bb(found), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found.L, np.tril(found.L))
        assert found.L.diagonal().min() > 0
        assert found.rows == 60

    def test_dead_units_get_the_solution_of_least_norm(self, world):
        made, readout, x = world
        with torch.no_grad():
            made.biases[1][2] = -50.0
        Phi_r, Phi_m = features(*world)
        assert not Phi_r[:, 2].any()
        np.testing.assert_allclose(bb(enrich(made, readout, x)), dense_bb(Phi_r, Phi_m), atol=1e-9)

    @pytest.mark.parametrize("entries", [1, 300, 2000])
    def test_by_blocks_is_whole(self, world, entries, monkeypatch):
        whole = enrich(*world)
        monkeypatch.setattr(rich, "BLOCK_ENTRIES", entries)
        monkeypatch.setattr(rich, "CHUNK", 7)
        parts = enrich(*world)
        torch.testing.assert_close(parts.L, whole.L, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(parts.T, whole.T, rtol=1e-9, atol=1e-9)

    def test_what_is_held_does_not_grow(self, monkeypatch):
        """Neither A (m, r) nor Phi^m (n, m) is made: the largest tensor is a block or a chunk."""
        made, readout = network(h=40)
        monkeypatch.setattr(rich, "BLOCK_ENTRIES", 20_000)
        monkeypatch.setattr(rich, "CHUNK", 256)
        largest = []
        for n in (500, 2000):
            x = rows(n)
            with _Largest() as seen:
                enrich(made, readout, x)
            largest.append(seen.numbers)
        m, r = parameters_before_the_last(made), 41
        assert largest[0] == largest[1] <= 20_000 + r * r < m * r < 500 * m

    def test_the_tangent_kernel_itself_where_rows_are_fewer_than_features(self):
        """N <= r: A fits phi^m exactly, and (15) is the full tangent-kernel posterior (3)."""
        made, readout = network(h=14)
        x = rows(12)
        Phi_r, Phi_m = features(made, readout, x)
        assert np.linalg.matrix_rank(Phi_r) == 12
        K = Phi_r @ Phi_r.T + Phi_m @ Phi_m.T
        expected = K - K @ np.linalg.solve(K + NOISE * np.eye(12), K)
        found = enrich(made, readout, x)
        V = posterior_factor(found.T, found.L, NOISE).numpy()
        np.testing.assert_allclose(Phi_r @ V @ V.T @ Phi_r.T, expected, atol=1e-8)

    def test_the_posterior_is_that_of_the_dense_process(self, world):
        made, readout, _x = world
        Phi_r, Phi_m = features(*world)
        new, _ = features(made, readout, rows(20, seed=4))
        BB = dense_bb(Phi_r, Phi_m)
        found = enrich(*world)
        V = posterior_factor(found.T, found.L, NOISE).numpy()
        cross = new @ BB @ Phi_r.T
        A = Phi_r @ BB @ Phi_r.T + NOISE * np.eye(60)
        expected = new @ BB @ new.T - cross @ np.linalg.solve(A, cross.T)
        np.testing.assert_allclose(new @ V @ V.T @ new.T, expected, atol=1e-9)
        inner = linalg.inv(Phi_r.T @ Phi_r / NOISE + linalg.inv(BB))
        np.testing.assert_allclose(V @ V.T, inner, atol=1e-9)

    @pytest.mark.parametrize("noise_var", [1e-6, 0.05, 10.0])
    def test_never_below_the_plain_last_layer(self, world, noise_var):
        """Theorem 3.3, and at most noise_var r / n on average over the training rows."""
        made, readout, x = world
        found = enrich(*world)
        enriched = posterior_factor(found.T, found.L, noise_var)
        plain = posterior_factor(found.T, torch.eye(7).double(), noise_var)
        far = torch.cat([x, rows(200, seed=5), 30 * rows(50, seed=6)])
        phi = made.tangents(far, readout).last
        high, low = ((phi @ V).square().sum(1) for V in (enriched, plain))
        assert (high >= low * (1 - 1e-9)).all()
        assert (high / low).max() > 1 + min(0.01, noise_var)
        assert high[:60].mean() <= noise_var * 7 / 60
        assert low[:60].mean() <= high[:60].mean()

    def test_the_error_of_a_subsample_falls_as_one_over_root_k(self):
        """Theorem 3.5: of the variances at new points, averaged over draws."""
        made, readout = network(h=5)
        with torch.no_grad():
            made.biases[1].add_(1.0)  # the constants of the theorem ask for units that are alive
        x, new = rows(16384), rows(40, seed=9)
        phi = made.tangents(new, readout).last

        def variance(found: Enrichment) -> Tensor:
            return (phi @ posterior_factor(found.T, found.L, NOISE)).square().sum(1)

        def gram(found: Enrichment) -> Tensor:
            return found.L @ found.L.T

        exact = enrich(made, readout, x)
        ks = np.array([128, 256, 512, 1024])
        draws = {k: [enrich(made, readout, x, int(k), seed=s) for s in range(20)] for k in ks}
        for of in (variance, gram):
            errors = [np.mean([(of(d) - of(exact)).norm() for d in draws[k]]) for k in ks]
            slope = np.polyfit(np.log(ks), np.log(errors), 1)[0]
            assert -0.65 < slope < -0.35
        # All rows in another order are all rows.
        whole = enrich(made, readout, x, len(x))
        torch.testing.assert_close(variance(whole), variance(exact), rtol=1e-9, atol=0)

    def test_a_subsample_is_drawn_by_its_seed(self, world):
        first, again, other = (enrich(*world, 20, seed=s).L for s in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    @pytest.mark.parametrize("k", [0, 6, 61])
    def test_a_subsample_of_too_few_or_too_many_rows_is_refused(self, world, k):
        message = rf"7 \(the number of features\) to 60 rows, found k = {k}"
        with pytest.raises(RequestError, match=message):
            enrich(*world, k)


class _Largest(TorchDispatchMode):
    """The most numbers in one tensor that an operation made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        made = [v.untyped_storage().nbytes() // 8 for v in tree_leaves(found) if _is_new(v, args)]
        self.numbers = max([self.numbers, *made])
        return found


def _is_new(value: object, args: tuple) -> bool:
    given = {v.untyped_storage()._cdata for v in tree_leaves(args) if isinstance(v, Tensor)}
    return isinstance(value, Tensor) and value.untyped_storage()._cdata not in given


class TestModels:
    @pytest.fixture
    def make_fitted(self, train, validation) -> Callable[..., LowRankProcess]:
        def make(name: str) -> LowRankProcess:
            model = build(name, Architecture(d=2, h=12, dtype="float64"), train.x, seed=2)
            fit(model, train, validation, FitSettings(epochs=15, batch=40, learning_rate=1e-2))
            return model

        return make

    @pytest.fixture
    def x(self) -> Floats:
        return np.random.default_rng(3).uniform(-2, 2, (50, 2))

    def test_both_have_one_network_noise_and_mean(self, make_fitted, validation, x):
        plain, enriched = make_fitted("bll"), make_fitted("rich-bll")
        found, other = plain.predict(x), enriched.predict(x)
        np.testing.assert_array_equal(found.mean, other.mean)
        np.testing.assert_array_equal(found.noise_variance, other.noise_variance)
        assert (other.function_variance >= found.function_variance * (1 - 1e-9)).all()
        assert (other.function_variance / found.function_variance).max() > 1.5
        error = validation.y - plain.predict(validation.x).mean
        np.testing.assert_allclose(found.noise_variance, np.mean(error**2), rtol=1e-9)

    def test_the_mean_is_the_network_and_it_learned(self, make_fitted, validation, train):
        model = make_fitted("rich-bll")
        with torch.no_grad():
            phi = model.basis(model.scaled(validation.x)).phi
            output = (phi[:, :-1] @ model.posterior.m[:-1] + model.posterior.m[-1]).numpy()
        expected = train.y.mean() + train.y.std() * output
        np.testing.assert_allclose(model.predict(validation.x).mean, expected, rtol=1e-12)
        assert np.mean((validation.y - expected) ** 2) < 0.3 * validation.y.var()
        assert model.mean_constant.item() == 0

    @pytest.mark.parametrize("name", ["bll", "rich-bll"])
    def test_the_variance_is_that_of_the_dense_process(self, name, make_fitted, train, x):
        model = make_fitted(name)
        Phi_r, Phi_m = features(model.network, model.posterior.m.detach(), model.scaled(train.x))
        BB = dense_bb(Phi_r, Phi_m) if name == "rich-bll" else np.eye(13)
        new, _ = features(model.network, model.posterior.m.detach(), model.scaled(x))
        S = linalg.inv(Phi_r.T @ Phi_r / model.noise().item() + linalg.inv(BB))
        expected = train.y.var() * (new @ S * new).sum(1)
        np.testing.assert_allclose(model.predict(x).function_variance, expected, rtol=1e-7)
        kernel = train.y.var() * new @ BB @ new.T
        np.testing.assert_allclose(model.kernel(x, x), kernel, rtol=1e-7, atol=1e-9)
        assert model.features(x).shape == (50, 13)

    @pytest.mark.parametrize("name", ["bll", "rich-bll"])
    def test_joint_draws_are_around_the_network(self, name, make_fitted, train, x):
        model = make_fitted(name)
        joint, found = joint_posterior(model, train), model.predict(x)
        np.testing.assert_allclose(joint.mean(x), found.mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(joint.variance(x), found.function_variance, rtol=1e-6)
        draws = joint.sample_paths(x, 4000)
        error = np.abs(draws.mean(0) - found.mean) / np.sqrt(found.function_variance / 4000)
        assert error.max() < 5
        np.testing.assert_allclose(draws.var(0), found.function_variance, rtol=0.2)

    def test_before_the_end_of_a_fit_there_is_no_variance(self, make_fitted, train, validation, x):
        model = make_fitted("rich-bll")
        assert model.predict(x).function_variance.min() > 0
        seen = []
        settings = FitSettings(epochs=2, batch=40)
        fit(
            model,
            train,
            validation,
            settings,
            progress=lambda *_: seen.append(model.predict(x).function_variance.max()),
        )
        assert seen == [0, 0]
        assert model.predict(x).function_variance.min() > 0


class TestRule:
    """All rows where rows times parameters allow, else a subsample that is told."""

    def test_by_rows_and_parameters(self, monkeypatch):
        made, _ = network()  # m = 24 + 42, r = 7
        monkeypatch.setattr(rich, "EXACT_ENTRIES", 66 * 100)
        assert rows_for(made, 100) is None
        assert rows_for(made, 101) == 100
        monkeypatch.setattr(rich, "EXACT_ENTRIES", 66)
        assert rows_for(made, 101) == 7
        assert rows_for(made, 5) is None

    def test_a_subsample_is_reported_and_kept(self, train, validation, quick, monkeypatch, caplog):
        monkeypatch.setattr(rich, "EXACT_ENTRIES", 60 * 50)
        sizes = Architecture(d=2, h=6, dtype="float64")  # m = 18 + 42
        model = build("rich-bll", sizes, train.x)
        with caplog.at_level(logging.WARNING):
            fit(model, train, validation, quick)
        assert (
            "fitted to 50 of 190 rows: the number of rows times 60 parameters exceeds 3000"
            in caplog.text
        )
        assert model.enrichment_rows.item() == 50
        # The posterior itself is still that of all rows.
        T = row_factor(model.network, model.scaled(train.x))
        V = posterior_factor(T, model.enrichment, model.noise().item())
        torch.testing.assert_close(model.posterior.L, V)
