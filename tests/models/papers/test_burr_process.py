"""Processes with a Burr XII scale: against SciPy's quadrature, and the processes beside them."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from scale_worlds import matrix, process, rows_of, table
from scipy import integrate, special, stats

from geogp.distributions.burr import (
    BURR_PRIOR,
    Burr,
    BurrMixture,
    BurrScale,
)
from geogp.distributions.shape_columns import shape_from
from geogp.distributions.shapes import GAUSSIAN
from geogp.errors import NumericalError, RequestError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import learn_closed_forms
from geogp.models.options import Weights
from geogp.models.papers.scale_mixtures.processes import (
    BurrProcess,
    InverseGamma,
    burr_log_evidence,
)
from geogp.models.process.architecture import Architecture
from geogp.models.process.rows import Rows

SCALES = [
    BurrScale(Burr(c, d), n, n * square)
    for c, d, n, square in (
        (2.0, 2.0, 0, 0.0),
        (2.0, 2.0, 1, 0.5),
        (2.0, 2.0, 20, 1.0),
        (2.0, 2.0, 20, 100.0),
        (2.0, 2.0, 20, 0.01),
        (0.5, 4.0, 20, 0.2),
        (4.0, 0.5, 20, 40.0),
        (300.0, 1.0, 20, 2.0),
        (2.0, 2.0, 5000, 1.3),
        (0.5, 0.5, 5000, 100.0),
        (4.0, 3.0, 5000, 0.01),
    )
]


def _integral(prior: Burr, n: float, distance: float, h) -> tuple[float, float]:
    """∫ p(s²) s^(-n) exp(-distance / (2 s²)) h(s²) ds² = I e^top, by quadrature in log s²."""
    c, d = prior.c, prior.d

    def log_joint(u: float) -> float:
        rise = c * u + math.log1p(math.exp(-c * u)) if c * u > 0 else math.log1p(math.exp(c * u))
        pull = distance / 2 * math.exp(min(-u, 500.0))
        return math.log(c * d) + c * u - (d + 1) * rise - n / 2 * u - pull

    places = np.concatenate([np.arange(-100, 100, 0.05), np.arange(-6, 6, 1e-3)])
    places.sort()
    values = np.array([log_joint(u) for u in places])
    top = values.max()
    inside = places[values > top - 80]

    def value(u: float) -> float:
        return math.exp(log_joint(u) - top) * h(math.exp(u))

    edges = np.linspace(inside[0], inside[-1], 17)
    pairs = pairwise(edges)
    return sum(integrate.quad(value, *pair, epsabs=0, epsrel=1e-9)[0] for pair in pairs), top


def _quad(scale: BurrScale, h) -> float:
    """E[h(s²)] by adaptive quadrature."""
    given = (scale.prior, scale.n, scale.distance)
    return _integral(*given, h)[0] / _integral(*given, lambda _: 1.0)[0]


def _expectation(scale: BurrScale, h) -> float:
    return float(h(np.exp(scale.nodes[0])) @ scale.weights)


@pytest.mark.parametrize("c", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("d", [0.5, 3.0])
def test_the_prior_is_scipys_burr12(c, d):
    s2 = np.geomspace(1e-3, 1e3, 25)
    expected = stats.burr12(c, d).logpdf(s2) + np.log(s2)
    np.testing.assert_allclose(Burr(c, d).log_density(np.log(s2)), expected, rtol=1e-10)


class TestPosterior:
    @pytest.mark.parametrize("scale", SCALES, ids=str)
    def test_moments_are_those_of_quadrature(self, scale):
        for h in (lambda s2: s2, np.sqrt, np.log, lambda s2: 1 / s2):
            assert _expectation(scale, h) == pytest.approx(_quad(scale, h), rel=1e-7, abs=1e-9)
        assert scale.mean == pytest.approx(_expectation(scale, lambda s2: s2), rel=1e-14)

    def test_without_rows_the_mean_is_that_of_the_prior(self):
        for c, d in ((2.0, 2.0), (4.0, 0.5), (1.0, 3.0)):
            found = BurrScale(Burr(c, d), 0, 0.0).mean
            assert found == pytest.approx(stats.burr12(c, d).mean(), rel=1e-9)

    def test_draws_from_the_prior_agree(self):
        """The paper's importance sampling, prior as proposal, to its Monte Carlo error."""
        scale, random = BurrScale(BURR_PRIOR, 20, 24.0), np.random.default_rng(0)
        s2 = stats.burr12(2, 2).rvs(200_000, random_state=random)
        w = np.exp(special.log_softmax(-10 * np.log(s2) - 12 / s2))
        error = math.sqrt((np.square(w) * np.square(s2 - w @ s2)).sum())
        assert error < 2e-3
        assert scale.mean == pytest.approx(w @ s2, abs=4 * error)

    @pytest.mark.parametrize("square", [1.0, 100.0])
    def test_nodes_are_more_exact_than_midpoints_of_an_inverse_gamma_proposal(self, square):
        """A proposal with the likelihood as density: its outermost node cuts off the tails."""
        n = 20
        scale = BurrScale(BURR_PRIOR, n, n * square)
        far = 8 * math.sqrt(scale.mean)

        def density(s2):
            return np.exp(-far * far / (2 * s2)) / np.sqrt(2 * np.pi * s2)

        s2 = stats.invgamma(n / 2, scale=n * square / 2).ppf((np.arange(1000) + 0.5) / 1000)
        w = np.exp(special.log_softmax(BURR_PRIOR.log_density(np.log(s2))))
        expected = _quad(scale, density)
        assert len(scale.weights) < 100
        assert _expectation(scale, density) == pytest.approx(expected, rel=1e-8)
        assert abs(w @ density(s2) / expected - 1) > 1e-3

    def test_a_tenfold_scale_is_found_from_few_rows(self):
        found = [BurrScale(BURR_PRIOR, n, 100.0 * n).mean for n in (20, 200, 5000)]
        assert 60 < found[0] < found[1] < found[2] < 100


class TestEffectiveSize:
    @pytest.mark.parametrize("scale", SCALES, ids=str)
    def test_it_is_enough_everywhere(self, scale):
        w = scale.weights
        assert w.sum() == pytest.approx(1, rel=1e-12)
        assert 10 < 1 / np.square(w).sum() < len(w) < 1000  # Kish's effective number


class TestShape:
    AT = np.array([-8.0, -3.0, -0.7, 0.0, 0.4, 2.0, 8.0])

    @pytest.mark.parametrize("scale", SCALES[1:4:2] + SCALES[8:9], ids=str)
    def test_density_and_cdf_are_those_of_quadrature(self, scale):
        shape, mean = scale.shape, scale.mean
        for x in (-0.7, 2.0, 8.0):
            y = x * math.sqrt(mean)
            # Of y at scale s², so that the density at x is this times sqrt(E s²).
            normal = partial(stats.norm.pdf, y)
            found = _quad(scale, lambda s2: normal(scale=math.sqrt(s2)))  # noqa: B023
            expected = math.log(found * math.sqrt(mean))
            assert shape.log_density(np.array([x]))[0] == pytest.approx(expected, abs=1e-7)
            tail = _quad(scale, lambda s2: special.ndtr(-y / math.sqrt(s2)))  # noqa: B023
            assert shape.survival(np.array([x]))[0] == pytest.approx(tail, rel=1e-7)

    @pytest.mark.parametrize("scale", SCALES[:9], ids=str)
    def test_it_is_standard_and_consistent(self, scale):
        shape = scale.shape
        x = np.linspace(-40, 40, 8001)
        density = np.exp(shape.log_density(x))
        # Without rows or with one, the tails reach further.
        loose = 3e-3 if scale.n < 2 else 1e-8
        assert integrate.trapezoid(density, x) == pytest.approx(1, abs=loose)
        assert integrate.trapezoid(density * x**2, x) == pytest.approx(1, abs=loose)
        np.testing.assert_allclose(shape.cdf(self.AT) + shape.survival(self.AT), 1, rtol=1e-14)
        np.testing.assert_allclose(shape.survival(self.AT), shape.cdf(-self.AT), rtol=0)
        p = np.array([1e-6, 0.025, 0.5, 0.9, 0.9, 1 - 1e-6])
        np.testing.assert_allclose(shape.cdf(shape.quantile(p)), p, rtol=1e-9)
        cdf = shape.cdf(x)
        for at in (2000, 3870, 4000, 4500):
            below = integrate.trapezoid(np.square(cdf[: at + 1]), x[: at + 1])
            above = integrate.trapezoid(np.square(1 - cdf[at:]), x[at:])
            assert shape.crps(x[[at]])[0] == pytest.approx(below + above, abs=3e-5)

    def test_crps_against_draws(self):
        scale, random = SCALES[2], np.random.default_rng(0)
        s2 = np.exp(random.choice(scale.nodes[0], 400_000, p=scale.weights))
        draws = np.sqrt(s2 / scale.mean) * random.standard_normal(400_000)
        spread = np.abs(draws[::2] - draws[1::2]).mean()
        for x in (0.0, 1.5, -4.0):
            expected = np.abs(draws - x).mean() - spread / 2
            assert scale.shape.crps(np.array([x]))[0] == pytest.approx(expected, abs=5e-3)

    def test_many_rows_make_it_normal_and_few_do_not(self):
        x = np.array([0.0, 1.0, 3.0])
        many, few = (BurrScale(BURR_PRIOR, n, n).shape for n in (1_000_000, 5))
        np.testing.assert_allclose(many.log_density(x), GAUSSIAN.log_density(x), atol=2e-5)
        np.testing.assert_allclose(many.crps(x), GAUSSIAN.crps(x), atol=1e-5)
        assert few.log_density(x)[-1] > GAUSSIAN.log_density(x)[-1] + 0.3

    def test_values_are_taken_in_chunks(self, monkeypatch):
        shape, x = SCALES[2].shape, np.linspace(-3, 3, 40)
        whole = [shape.cdf(x), shape.crps(x), shape.quantile(shape.cdf(x))]
        monkeypatch.setattr("geogp.distributions.heavy_shapes.VALUES_AT_ONCE", 300)
        for found, expected in zip(
            [shape.cdf(x), shape.crps(x), shape.quantile(shape.cdf(x))], whole, strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(whole[2], x, atol=1e-9)

    def test_powers_have_no_mean(self):
        shape = SCALES[2].shape
        assert not shape.has_power_mean
        np.testing.assert_array_equal(
            shape.exponential_mean(np.array([0.0, 0.1])), np.array([1.0, np.inf])
        )


def _log_density(A: np.ndarray, y: np.ndarray, prior: Burr = BURR_PRIOR) -> float:
    """Log of ∫ p(s²) N(y; 0, s² A) ds², with dense matrices."""
    found, top = _integral(prior, len(y), y @ np.linalg.solve(A, y), lambda _: 1.0)
    return math.log(found) + top + stats.multivariate_normal.logpdf(0 * y, cov=A)


class TestEvidence:
    def test_the_objective_is_the_mixture_of_dense_normals(self):
        data, model = table(12), process("burr-process")
        loss = CATALOGUE["burr-process"].fit(model).backward(rows_of(data), 12, Weights())
        expected = _log_density(matrix(model, data.x), data.y)
        assert -12 * loss.item() == pytest.approx(expected, rel=1e-8)

    @pytest.mark.parametrize("n", [20, 5000])
    @pytest.mark.parametrize("square", [0.01, 1.0, 100.0])
    def test_its_gradient(self, n, square, device):
        """By differences, and -½ E[1/s²], for which the nodes need not be differentiated."""
        distance = torch.tensor(n * square, dtype=torch.float64, device=device, requires_grad=True)
        determinant = torch.tensor(3.0, dtype=torch.float64, device=device, requires_grad=True)
        found = burr_log_evidence(BURR_PRIOR, distance, determinant, n)
        found.backward()
        step = 1e-4 * n * square
        with torch.no_grad():
            up, down = (
                burr_log_evidence(BURR_PRIOR, distance + change, determinant, n).item()
                for change in (step, -step)
            )
        assert distance.grad.item() == pytest.approx((up - down) / (2 * step), rel=1e-5)
        scale = BurrScale(BURR_PRIOR, n, n * square)
        inverse = _expectation(scale, lambda s2: 1 / s2)
        assert distance.grad.item() == pytest.approx(-inverse / 2, rel=1e-10)
        assert determinant.grad.item() == pytest.approx(-0.5)

    def test_the_gradient_of_every_parameter(self):
        data, model = table(60, scale=5.0), process("burr-process")
        steps, rows = model.make_fit(model), rows_of(data)
        steps.backward(rows, 60, Weights())
        learned = [p for p in model.parameters() if p.requires_grad and p.grad is not None]
        assert len(learned) >= 3
        gradients = [p.grad.clone() for p in learned]
        for parameter, gradient in zip(learned, gradients, strict=True):
            for place in range(parameter.numel()):
                flat = parameter.data.view(-1)
                losses = []
                for change in (1e-5, -1e-5):
                    flat[place] += change
                    losses.append(steps.backward(rows, 60, Weights()).item())
                    flat[place] -= change
                difference = (losses[0] - losses[1]) / 2e-5
                assert gradient.view(-1)[place].item() == pytest.approx(
                    difference, rel=1e-5, abs=1e-8
                )


@pytest.mark.parametrize("prior", [BURR_PRIOR, Burr(4.0, 0.5)])
def test_predictions_are_the_conditionals_of_the_mixture(prior, device):
    data, new = table(12, scale=3.0), table(2, seed=1, scale=3.0)
    model = process("burr-process")
    A = matrix(model, np.concatenate([data.x, new.x]))
    assert isinstance(model, BurrProcess)
    model.set_prior(prior)
    model.to(device)
    rows = Rows(*(part.to(device) for part in rows_of(data)[:3]))
    learn_closed_forms(model, rows, rows)
    found = model.predict(new.x).log_score(new.y)
    before = _log_density(A[:12, :12], data.y, prior)
    for row in range(2):
        both = [*range(12), 12 + row]
        joint = _log_density(A[np.ix_(both, both)], np.append(data.y, new.y[row]), prior)
        assert -found[row] == pytest.approx(joint - before, abs=1e-6)


def test_as_many_anchors_as_rows_are_the_exact_process():
    train, new = table(40), table(15, seed=1).x
    sizes = Architecture(d=2, r=40, dtype="float64", jitter=0.0)
    model = build("burr-process", sizes, train.x, placement="pivoted", noise_start=0.1)
    learn_closed_forms(model, rows_of(train), rows_of(train))
    found = model.predict(new)
    both = torch.from_numpy(np.concatenate([train.x, new]))
    with torch.no_grad():
        K = model.basis.covariance(both, both).numpy()
        residual = model.basis(torch.from_numpy(new)).residual.numpy()
    noise = model.noise().item()
    A = np.linalg.inv(K[:40, :40] + noise * np.eye(40))
    scale = BurrScale(BURR_PRIOR, 40, train.y @ A @ train.y)
    assert model.scale_posterior.distance == pytest.approx(scale.distance, rel=1e-8)
    variance = np.diag(K[40:, 40:] - K[40:, :40] @ A @ K[:40, 40:])
    mean = _quad(scale, lambda s2: s2)
    np.testing.assert_allclose(found.mean, K[40:, :40] @ A @ train.y, atol=1e-8)
    np.testing.assert_allclose(
        found.function_variance + mean * residual, mean * variance, atol=1e-7
    )
    np.testing.assert_allclose(found.noise_variance, mean * noise, rtol=1e-7)


def test_the_shape_is_that_of_the_scale_also_without_noise():
    data, model = table(25), process("burr-process")
    learn_closed_forms(model, rows_of(data), rows_of(data))
    scale = model.scale_posterior
    assert scale.n == 25
    for level in (False, True):
        assert model.predict(data.x, level=level).shape.columns == BurrMixture(scale).columns
    assert (model.predict(data.x, level=True).noise_variance == 0).all()


@pytest.mark.parametrize("wrong", [10.0, 0.1])
@pytest.mark.parametrize("n", [20, 200])
def test_few_rows_and_a_wrong_scale(n, wrong):
    """As good as the Student-t process, where the Gaussian process fails."""
    gaps, beside = [], []
    for seed in range(5):
        data, new = table(n, seed, scale=wrong), table(200, 100 + seed, scale=wrong)
        scores = {}
        for name in ("nngp", "t-process", "burr-process"):
            model = process(name)
            learn_closed_forms(model, rows_of(data), rows_of(data))
            scores[name] = float(model.predict(new.x).log_score(new.y).mean())
        gaps.append(scores["nngp"] - scores["burr-process"])
        beside.append(scores["burr-process"] - scores["t-process"])
    assert min(gaps) > 0
    assert np.mean(gaps) > 0.3
    assert np.mean(beside) < 0.02


def test_a_table_keeps_the_distribution():
    data, new = table(80), table(20, seed=1)
    model = process("burr-process")
    fit(model, data, new, FitSettings(epochs=2, batch=1000, optimiser="lbfgs"))
    found = model.predict(new.x)
    columns = found.columns()
    assert list(columns)[4:] == [
        *("skewness", "tailweight"),
        *("burr_c", "burr_d", "burr_rows", "burr_distance"),
    ]
    assert all(len(column) == 20 for column in columns.values())
    shape = shape_from(columns, found.function_variance, found.noise_variance)
    assert shape.columns == found.shape.columns
    np.testing.assert_equal(shape.crps(new.y), found.shape.crps(new.y))


def test_fitting_learns_the_noise():
    data, new = table(500, scale=7.0), table(500, seed=1, scale=7.0)
    sizes = Architecture(d=2, r=40, dtype="float64")
    model, student = (build(name, sizes, data.x) for name in ("burr-process", "t-process"))
    for one in (model, student):
        fit(one, data, new, FitSettings(epochs=3, batch=1000, optimiser="lbfgs"))
    found = model.predict(new.x)
    # The noise of the table has standard deviation 0.3.
    assert np.sqrt(found.noise_variance[0]) == pytest.approx(2.1, rel=0.1)
    scores = [float(one.predict(new.x).log_score(new.y).mean()) for one in (model, student)]
    assert scores[0] == pytest.approx(scores[1], abs=0.02)


class TestRefusals:
    @pytest.mark.parametrize("pair", [(0.0, 1.0), (1.0, -2.0), (np.inf, 1.0), (1.0, np.nan)])
    def test_parameters_out_of_range(self, pair):
        with pytest.raises(RequestError, match="expected c and d above 0, found"):
            Burr(*pair)

    @pytest.mark.parametrize("pair", [(-1, 1.0), (5, 0.0), (0, 1.0), (5, np.nan), (5, np.inf)])
    def test_rows_and_distances_that_do_not_go_together(self, pair):
        with pytest.raises(RequestError, match="both above 0 or both 0, found"):
            BurrScale(BURR_PRIOR, *pair)

    def test_scales_without_a_mean(self):
        with pytest.raises(RequestError, match=r"expected n / 2 \+ c d above 1, .* found 1"):
            BurrScale(Burr(2.0, 0.5), 0, 0.0)
        assert BurrScale(Burr(2.0, 0.5), 1, 1.0).mean > 0

    @pytest.mark.parametrize(("c", "d"), [(2.0, 0.51), (0.01, 200.0), (1e-6, 1e9)])
    def test_scales_too_wide_for_nodes(self, c, d):
        with pytest.raises(
            NumericalError, match="too wide for the quadrature nodes: log s² ranges from"
        ):
            _ = BurrScale(Burr(c, d), 0, 0.0).weights

    def test_a_prior_of_another_kind(self):
        with pytest.raises(RequestError, match="a prior Burr of the scale of burr-process"):
            process("burr-process").set_prior(InverseGamma(2.0, 2.0))
        with pytest.raises(RequestError, match="a prior InverseGamma of the scale of t-process"):
            process("t-process").set_prior(BURR_PRIOR)
