"""Nyström features at anchors, the evidence of all rows under them, and L-BFGS."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scale_worlds import with_values
from scipy import stats

from geogp.errors import DataError, NumericalError, RequestError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import FitState, fit
from geogp.models.fitting.steps import ByInputs, WholeData, learn_closed_forms
from geogp.models.options import Weights
from geogp.models.papers.mixed_nystrom.kernels import MixedKernel
from geogp.models.papers.mixed_nystrom.nystrom import AnchorEvidence, kernel_prior
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.diagonals import NystromDiagonal
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.objectives import log_marginal_likelihood
from geogp.models.process.placement import place_anchors
from geogp.models.process.rows import Rows

KERNELS = sorted(name for name, spec in CATALOGUE.items() if spec.about.family == "kernel")
SIZES = Architecture(d=2, r=12, dtype="float64")
LBFGS = FitSettings(epochs=2, batch=10_000, optimiser="lbfgs")


def _table(n: int, seed: int = 0) -> Data:
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (n, 2))
    y = np.sin(3 * x[:, 0]) * x[:, 1] + 0.1 * random.standard_normal(n)
    return Data(x, y)


def _rows(data: Data) -> Rows:
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    return Rows(x, y, y.new_ones(len(y), 2, dtype=torch.float64))


def _model(name: str, data: Data, **changed) -> LowRankProcess:
    model = build(name, replace(SIZES, **changed), data.x, placement="pivoted", noise_start=0.1)
    model.basis.kernel.load_state_dict(
        {key: value + 0.7 for key, value in model.basis.kernel.state_dict().items()}
    )
    return model


def _gradients(steps: ByInputs, rows: Rows) -> tuple[float, dict[str, torch.Tensor]]:
    model = steps.process
    model.zero_grad(set_to_none=True)
    loss = steps.backward(rows, rows.n, Weights())
    return loss.item(), {k: v.grad for k, v in model.named_parameters() if v.grad is not None}


def _dense(model: LowRankProcess, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        tensor = torch.from_numpy(x)
        return model.basis.covariance(tensor, tensor).numpy()


def _missed(model: LowRankProcess, x: np.ndarray) -> np.ndarray:
    """The prior variance that anchors miss at new points, where the model does not add it."""
    residual = model.basis(torch.from_numpy(x)).residual.detach().numpy()
    return 0 * residual if isinstance(model.diagonal, NystromDiagonal) else residual


@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"t-process", "burr-process"}))
def test_as_many_anchors_as_rows_are_the_exact_process(name, device):
    train, new = _table(40), _table(15, seed=1).x
    model = _model(name, train, r=40, jitter=0.0).to(device)
    rows = Rows(*(part.to(device) for part in _rows(train)[:3]))
    learn_closed_forms(model, rows, rows)
    found = model.predict(new)
    K = _dense(model.cpu(), np.concatenate([train.x, new]))
    noise = model.noise().item()
    A = np.linalg.inv(K[:40, :40] + noise * np.eye(40))
    mean = K[40:, :40] @ A @ train.y
    variance = np.diag(K[40:, 40:] - K[40:, :40] @ A @ K[:40, 40:])
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.function_variance + _missed(model, new), variance, atol=1e-8)


@pytest.mark.parametrize("name", ["nystrom-mixed", "nystrom-mixed-dtc"])
def test_two_predictive_variances_are_the_dense_formulas(name, tmp_path):
    """Mixed equation (24) with Nyström's k(x, x), and with the whole k(x, x)."""
    train, new = _table(40), _table(15, seed=1).x
    model, rows = _model(name, train, r=6, jitter=0.0), _rows(train)
    learn_closed_forms(model, rows, rows)
    save_model(model, tmp_path / "model.safetensors")
    found = load_model(tmp_path / "model.safetensors")[0].predict(new)
    x = np.concatenate([model.basis.anchors.numpy(), train.x, new])
    K, noise = _dense(model, x), model.noise().item()
    Q = K[:, :6] @ np.linalg.solve(K[:6, :6], K[:6])
    weights = np.linalg.solve(Q[6:46, 6:46] + noise * np.eye(40), Q[6:46, 46:])
    prior = np.diag({"nystrom-mixed": Q, "nystrom-mixed-dtc": K}[name])[46:]
    variance = prior - (Q[46:, 6:46] @ weights).diagonal()
    np.testing.assert_allclose(found.mean, train.y @ weights, atol=1e-9)
    np.testing.assert_allclose(found.function_variance, variance, atol=1e-9)
    np.testing.assert_allclose(found.noise_variance, noise, rtol=1e-12)
    assert (np.diag(K - Q)[46:] > 1e-3 * variance).any()


def test_the_gradient_has_the_opposite_sign_of_equation_21():
    """∂(-log p)/∂θ = ½ tr[(C⁻¹ - C⁻¹ y y' C⁻¹) ∂C/∂θ]; the paper prints the other sign."""
    data = _table(30)
    model, rows = _model("nystrom-mixed", data, r=30, jitter=0.0), _rows(data)
    _, gradients = _gradients(AnchorEvidence(model, log_marginal_likelihood), rows)
    inverse = np.linalg.inv(_dense(model, data.x) + model.noise().item() * np.eye(30))
    white = inverse @ data.y
    for name, value in model.basis.kernel.named_parameters():
        ends = []
        for change in (1e-5, -2e-5):
            value.data += change
            ends.append(_dense(model, data.x))
        value.data += 1e-5
        slope = (ends[0] - ends[1]) / 2e-5
        expected = np.trace((inverse - np.outer(white, white)) @ slope) / 2
        assert abs(expected) > 1e-3, name
        assert 30 * gradients[f"basis.kernel.{name}"].item() == pytest.approx(expected, rel=1e-4)


def test_the_kernel_sees_half_the_inputs():
    basis = _model("nystrom-mixed", _table(12)).basis
    a, b = (torch.from_numpy(_table(n).x) for n in (5, 3))
    torch.testing.assert_close(basis.covariance(a, b), basis.kernel(a / 2, b / 2))
    torch.testing.assert_close(basis.variance(a), basis.kernel.diagonal(a / 2))


@pytest.mark.parametrize("name", ["nystrom-mixed", "nngp", "nngp-relu"])
@pytest.mark.parametrize("repeated", [False, True])
def test_sums_of_covariances_give_the_gradient_of_sums_of_features(name, repeated):
    data = _table(60)
    if repeated:
        data = Data(np.repeat(data.x[:20], 3, 0), data.y)
    model, rows = _model(name, data), _rows(data)
    steps = model.make_fit(model)
    other = WholeData(model, log_marginal_likelihood, prior=steps.prior)
    loss, gradients = _gradients(steps, steps.gathered(rows))
    expected, wanted = _gradients(other, rows)
    assert loss == pytest.approx(expected, rel=1e-8)
    assert gradients.keys() == wanted.keys()
    assert "mean_constant" not in gradients
    for key, value in wanted.items():
        torch.testing.assert_close(gradients[key], value, rtol=1e-5, atol=1e-7, msg=key)


def test_low_noise_and_many_rows_keep_their_digits():
    """Nothing is divided by the smallest eigenvalue of K_ZZ twice."""
    data = _table(6000)
    model, rows = _model("nngp", data, r=60), _rows(data)
    model.noise.log_excess.data.fill_(math.log(2e-6))
    loss, gradients = _gradients(model.make_fit(model), rows)
    expected, wanted = _gradients(WholeData(model, log_marginal_likelihood), rows)
    assert loss == pytest.approx(expected, rel=1e-6)
    for key, value in wanted.items():
        torch.testing.assert_close(gradients[key], value, rtol=1e-3, atol=1e-4, msg=key)


def test_lbfgs_is_not_for_mini_batches():
    model = build("vbll", SIZES, _table(90).x)
    with pytest.raises(RequestError, match="vbll makes 3 steps per epoch"):
        fit(model, _table(90), _table(20, seed=1), replace(LBFGS, batch=30))


def test_a_line_search_turns_back_from_points_without_a_value(monkeypatch):
    """Beyond a wall in one parameter the objective raises, as where a factor does not exist."""
    train, validation = _table(200), _table(50, seed=1)
    free = _model("nystrom-mixed", train)
    fit(free, train, validation, replace(LBFGS, epochs=4))
    backward, hits = AnchorEvidence.backward, []

    def walled(self, rows, n, weights):
        if self.process.basis.kernel.log_hidden_weight.item() > wall:
            hits.append(1)
            raise NumericalError("no factor")
        return backward(self, rows, n, weights)

    wall = free.basis.kernel.log_hidden_weight.item() + 0.02
    monkeypatch.setattr(AnchorEvidence, "backward", walled)
    model = _model("nystrom-mixed", train)
    _, state = fit(model, train, validation, replace(LBFGS, epochs=6))
    assert np.isfinite(state.losses).all()
    assert model.basis.kernel.log_hidden_weight.item() <= wall
    assert hits
    with torch.no_grad():
        model.basis.kernel.log_hidden_weight.fill_(wall + 1)
    with pytest.raises(NumericalError, match="no factor"):
        fit(model, train, validation, LBFGS)


def test_a_fit_that_began_at_its_optimum_is_continued(tmp_path):
    train, validation = _table(80), _table(20, seed=1)
    model = _model("nystrom-mixed", train)
    fit(model, train, validation, replace(LBFGS, epochs=12))
    reached = model.basis.kernel.logit_w.item()

    def stop(_state: FitState, _epochs: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        fit(model, train, validation, LBFGS, checkpoint=path, progress=stop)
    assert fit(model, train, validation, LBFGS, checkpoint=path)[1].epoch == 2
    assert model.basis.kernel.logit_w.item() == pytest.approx(reached, rel=1e-3)


def test_the_loss_is_the_dense_density_and_the_prior():
    data = _table(30)
    model, rows = _model("nystrom-mixed", data), _rows(data)
    loss, _ = _gradients(model.make_fit(model), rows)
    phi = model.basis(rows.x).phi.detach().numpy()
    noise = model.noise().item()
    dense = stats.multivariate_normal(np.zeros(30), phi @ phi.T + noise * np.eye(30))
    kernel = model.basis.kernel
    variances = [
        value.exp().item() for key, value in kernel.named_parameters() if key.startswith("log_")
    ]
    prior = sum(stats.invgamma(2, scale=3).logpdf(v) for v in [*variances, noise])
    shares = [kernel.logit_alpha.sigmoid().item(), kernel.logit_w.sigmoid().item()]
    prior += sum(stats.beta(2, 2).logpdf(share) for share in shares)
    assert kernel_prior(model).item() == pytest.approx(prior, rel=1e-10)
    assert -30 * loss == pytest.approx(dense.logpdf(data.y) + prior, rel=1e-8)


@pytest.mark.parametrize("repeated", [False, True])
def test_fitc_is_the_dense_density_with_the_missed_variance(repeated):
    data = _table(30)
    if repeated:
        data = Data(np.repeat(data.x[:10], 3, 0), data.y)
    model, rows = _model("nystrom-mixed-fitc", data, r=6), _rows(data)
    steps = model.make_fit(model)
    loss, gradients = _gradients(steps, steps.gathered(rows))
    found = model.basis(rows.x)
    phi = found.phi.detach().numpy()
    own = found.residual.detach().numpy() + model.noise().item()
    dense = stats.multivariate_normal(np.zeros(30), phi @ phi.T + np.diag(own)).logpdf(data.y)
    assert found.residual.max() > 1e-3
    assert -30 * loss == pytest.approx(dense + kernel_prior(model).item(), rel=1e-8)
    for key, value in model.named_parameters():
        if key in gradients:
            ends = []
            for change in (1e-5, -2e-5):
                value.data += change
                ends.append(_gradients(steps, steps.gathered(rows))[0])
            value.data += 1e-5
            slope = (ends[0] - ends[1]) / 2e-5
            assert gradients[key].item() == pytest.approx(slope, rel=1e-4, abs=1e-7), key


def test_lbfgs_ends_where_the_gradient_vanishes():
    train, validation = _table(200), _table(50, seed=1)
    model = _model("nystrom-mixed", train)
    _, state = fit(model, train, validation, replace(LBFGS, epochs=8))
    standard = Data(train.x, (train.y - train.y.mean()) / train.y.std())
    _, gradients = _gradients(model.make_fit(model), _rows(standard))
    assert max(value.abs().max().item() for value in gradients.values()) < 1e-4
    assert state.losses[-1] <= state.losses[0]
    assert model.mean_constant.item() == 0


def test_lbfgs_gets_farther_than_the_papers_adam():
    train, validation = _table(200), _table(50, seed=1)
    losses = {}
    for optimiser, epochs, rate in (("lbfgs", 3, 1.0), ("adamw", 50, 1e-3)):
        settings = FitSettings(
            epochs=epochs, batch=1000, optimiser=optimiser, learning_rate=rate, decay="constant"
        )
        _, state = fit(_model("nystrom-mixed", train), train, validation, settings)
        losses[optimiser] = state.losses
    assert losses["lbfgs"][-1] < losses["adamw"][-1] - 0.1


@pytest.mark.parametrize("name", KERNELS)
def test_an_interrupted_fit_ends_with_the_same_numbers(name, tmp_path):
    train, validation = _table(80), _table(20, seed=1)
    settings = replace(LBFGS, epochs=4)
    whole = _model(name, train)
    fit(whole, train, validation, settings)

    def stop(state: FitState, _epochs: int) -> None:
        if state.epoch == 2:
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        fit(_model(name, train), train, validation, settings, checkpoint=path, progress=stop)
    continued = _model(name, train)
    _, state = fit(continued, train, validation, settings, checkpoint=path)
    assert state.epoch == 4
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(continued.state_dict()[key], value, rtol=1e-9, atol=1e-12)


def test_a_checkpoint_without_the_optimiser_is_refused(tmp_path, monkeypatch):
    train, validation = _table(80), _table(20, seed=1)
    path = tmp_path / "checkpoint"
    monkeypatch.setattr(
        "geogp.models.fitting.loop.state_tensors", lambda _: {"0.t": torch.zeros(())}
    )

    def stop(_state: FitState, _epochs: int) -> None:
        raise KeyboardInterrupt

    name = "nystrom-mixed"
    with pytest.raises(KeyboardInterrupt):
        fit(_model(name, train), train, validation, LBFGS, checkpoint=path, progress=stop)
    with pytest.raises(DataError, match=r"does not match its model \('func_evals'\)\. Start over"):
        fit(_model(name, train), train, validation, LBFGS, checkpoint=path)


def test_a_smaller_batch_is_one_random_part_of_the_inputs():
    model, rows = _model("nystrom-mixed", _table(100)), _rows(_table(100))
    steps = model.make_fit(model)
    assert isinstance(steps, AnchorEvidence)
    steps.start(rows, 0)
    first, again = (steps.batches(30, np.random.default_rng(seed), seed / 2) for seed in (0, 1))
    assert [batch.n for batch in first] == [30]
    assert torch.equal(first[0].numbers, again[0].numbers)
    assert first[0].numbers.unique().numel() == 30
    assert first[0].numbers.max() > 50
    whole = steps.batches(1000, np.random.default_rng(0), 0.5)
    assert torch.equal(whole[0].numbers, torch.arange(100))
    posterior = _model("nystrom-mixed", _table(100))
    fit(posterior, _table(100), _table(20, seed=1), replace(LBFGS, epochs=1, batch=30))
    few = _model("nystrom-mixed", _table(100))
    few.load_state_dict(posterior.state_dict())
    y = torch.from_numpy(_table(100).y)
    learn_closed_forms(few, rows._replace(y=(y - few.y_mean) / few.y_sd), rows)
    # The posterior is that of all hundred rows.
    torch.testing.assert_close(few.posterior.m, posterior.posterior.m)


class TestPlacement:
    @pytest.fixture
    def kernel(self):
        return with_values(MixedKernel(), hidden_weight=30.0)

    def _place(self, x, r, placement, kernel=None, seed=0):
        generator = torch.Generator().manual_seed(seed)
        pair = kernel and (kernel.forward, kernel.diagonal)
        with torch.no_grad():
            return place_anchors(torch.from_numpy(x), r, placement, generator, pair)

    @pytest.mark.parametrize("placement", ["pivoted", "kmeans++", "first"])
    def test_anchors_are_distinct_rows(self, placement, kernel):
        x = np.repeat(_table(50).x, 2, 0)
        found = self._place(x, 20, placement, kernel).numpy()
        assert len(np.unique(found, axis=0)) == 20
        assert all((x == row).all(1).any() for row in found)

    def test_first_are_the_first_distinct_rows(self, kernel):
        x = np.repeat(_table(50).x, 2, 0)
        np.testing.assert_array_equal(self._place(x, 5, "first", kernel).numpy(), x[:10:2])

    @pytest.mark.parametrize("placement", ["pivoted", "kmeans++", "farthest", "kmeans"])
    def test_others_do_not_follow_the_order_of_the_rows(self, placement, kernel):
        x = _table(60).x
        one, other = (
            self._place(part, 20, placement, kernel).numpy() for part in (x, x[::-1].copy())
        )
        np.testing.assert_allclose(one, other, rtol=1e-12)

    def test_pivots_leave_less_variance_than_the_first_rows(self, kernel):
        """Rows that begin in a corner: what each choice misses of the trace of K."""
        random = np.random.default_rng(0)
        x = np.concatenate([random.uniform(-1, -0.8, (200, 2)), random.uniform(-1, 1, (800, 2))])

        def missed(placement: str, seed: int) -> float:
            Z = self._place(x, 40, placement, kernel, seed)
            with torch.no_grad():
                K = kernel(torch.from_numpy(x), torch.from_numpy(x)).numpy()
                cross = kernel(torch.from_numpy(x), Z).numpy()
                own = kernel(Z, Z).numpy() + 1e-9 * np.eye(40)
            return float(np.trace(K - cross @ np.linalg.solve(own, cross.T)))

        pivoted = np.mean([missed("pivoted", seed) for seed in range(5)])
        uniform = np.mean([missed("kmeans++", seed) for seed in range(5)])
        assert pivoted < 0.5 * missed("first", 0)
        assert pivoted < 1.3 * uniform

    def test_pivots_follow_the_variance_that_is_left(self):
        """Two points with independent values, variances 9 and 1: the first is drawn 9 in 10."""
        x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        pair = (lambda a, b: (a == b.T).double() * (9 - 8 * a), lambda a: 9 - 8 * a[:, 0])
        drawn = []
        for seed in range(400):
            generator = torch.Generator().manual_seed(seed)
            drawn.append(float(place_anchors(x, 1, "pivoted", generator, pair)))
        share = np.mean(np.array(drawn) == 0)
        assert abs(share - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 400)

    def test_a_kernel_of_few_ranks_takes_other_rows_for_the_rest(self):
        x = _table(50).x
        pair = (lambda a, b: a @ b.T, lambda a: a.square().sum(1))
        generator = torch.Generator().manual_seed(0)
        found = place_anchors(torch.from_numpy(x), 10, "pivoted", generator, pair)
        assert found.unique(dim=0).shape == (10, 2)

    def test_pivots_need_a_kernel(self):
        with pytest.raises(RequestError, match="placement pivoted needs a fixed kernel"):
            build("dbk-rbf", SIZES, _table(30).x, placement="pivoted")
