"""Processes of classes: the bound, the divergence with a random scale, and known probabilities."""

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build, find_spec
from geogp.models.catalogue.rows import CLASS_CATALOGUE
from geogp.models.catalogue.storage import load_model, load_models, save_model, save_models
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import Batch
from geogp.models.names import CLASS_MODELS, MODELS, list_models
from geogp.models.options import Weights
from geogp.models.papers.classes.processes import TRAINING_DRAWS, drawn_nll
from geogp.models.papers.scale_mixtures.processes import scale_divergence
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.objectives import BatchTerms

SIZES = Architecture(d=2, h=16, r=12, blocks=1, classes=3)
PROCESSES = ["class-nngp", "class-t-process", "class-rbf", "class-dbk"]

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
Y = RNG.integers(0, 3, 60).astype(float)


def _model(name, sizes=SIZES):
    """Return a model whose posterior differs between classes."""
    model = build(name, sizes, X)
    model.take_target(Y)
    torch.manual_seed(0)
    with torch.no_grad():
        for part in model.posterior.each():
            part.weights()[0].add_(0.5 * torch.randn(model.basis.rank))
    return model


def _terms(mean, variance) -> BatchTerms:
    zero = torch.zeros(len(mean), dtype=torch.float64)
    return BatchTerms(
        torch.tensor(mean), torch.tensor(variance), zero, zero, zero.sum(), zero.sum()
    )


class TestCatalogue:
    def test_names_and_rows_agree(self):
        assert list(CLASS_CATALOGUE) == list(CLASS_MODELS) == list_models("class")
        assert list_models() == [*MODELS, *CLASS_MODELS]
        for name, row in CLASS_CATALOGUE.items():
            assert find_spec(name) is row
            assert row.about.family == "class"

    def test_maps_do_not_know_them(self):
        assert not set(CLASS_MODELS) & set(MODELS)

    @pytest.mark.parametrize("name", list_models("class"))
    def test_a_saved_model_predicts_the_same(self, name, tmp_path):
        model = _model(name)
        save_model(model, tmp_path / "one.safetensors", {"a": 1})
        again, context = load_model(tmp_path / "one.safetensors")
        one, other = (found.predict(X) for found in (model, again))
        assert (one.mean == other.mean).all()
        assert (one.variance == other.variance).all()
        assert context == {"a": 1}

    def test_an_ensemble_is_saved_in_one_file(self, tmp_path):
        path = tmp_path / "both.safetensors"
        models = [_model("class-dnn"), _model("class-dnn")]
        with torch.no_grad():
            models[1].posterior.each()[0].weights()[0].add_(1)
        save_models(models, path)
        again, _ = load_models(path)
        for one, other in zip(models, again, strict=True):
            assert (one.predict(X).mean == other.predict(X).mean).all()
        with pytest.raises(DataError, match="an ensemble of 2 models"):
            load_model(path)

    @pytest.mark.parametrize("name", list_models("class"))
    def test_a_model_needs_classes(self, name):
        with pytest.raises(RequestError, match="2 classes or more, found 0"):
            build(name, Architecture(d=2, h=16, r=12), X)

    def test_a_number_of_classes_out_of_range_is_refused(self):
        with pytest.raises(RequestError, match=r"classes from 0 to 1,000.*classes -1"):
            Architecture(d=2, classes=-1)

    @pytest.mark.parametrize("y", [[0.0, 3.0], [-1.0, 0.0], [0.5, 1.0]])
    def test_targets_that_are_no_classes_are_refused(self, y):
        model = build("class-dnn", SIZES, X)
        with pytest.raises(DataError, match="whole numbers from 0 to 2"):
            model.take_target(np.array(y))


class TestBound:
    MEAN, VARIANCE = [[0.3, -1.0], [2.0, 1.0]], [[0.5, 2.0], [0.01, 3.0]]

    def test_the_drawn_loss_is_an_integral(self):
        terms, y = _terms(self.MEAN, self.VARIANCE), torch.tensor([0.0, 1.0])
        torch.manual_seed(0)
        found = drawn_nll(terms, y, torch.randn(400_000, 2, 2, dtype=torch.float64))
        expected = []
        for row, own in enumerate((0, 1)):
            middle = self.MEAN[row][1 - own] - self.MEAN[row][own]
            law = stats.norm(middle, np.sqrt(sum(self.VARIANCE[row])))

            def loss(d, law=law):
                return np.logaddexp(0, d) * law.pdf(d)

            expected.append(integrate.quad(loss, -40, 40)[0])
        assert float(found) == pytest.approx(np.mean(expected), abs=4e-3)

    def test_the_steps_of_a_random_scale_are_multivariate_t(self):
        model = _model("class-t-process")
        torch.manual_seed(0)
        steps = model.steps((4000, 2, 3)).detach().numpy()
        assert stats.kstest(steps[:, 0, 0], stats.t(model.df).cdf).pvalue > 0.01
        # One scale is common to the classes of a row: squares are correlated.
        squares = np.log(np.square(steps).mean(2))
        assert abs(np.corrcoef(squares.T)[0, 1]) < 0.05
        assert np.corrcoef(np.log(np.square(steps[:, 0])).T)[0, 1] > 0.05

    def test_the_gradient_reaches_the_shape_of_the_scale(self):
        model = _model("class-t-process")
        rows = model.as_rows(Data(X, Y))
        CLASS_CATALOGUE["class-t-process"].fit(model).backward(rows, 60, Weights())
        for name, value in model.named_parameters():
            assert not value.requires_grad or bool(value.grad.isfinite().all()), name
        assert model.log_shape.grad.abs() > 0

    @pytest.mark.parametrize("name", PROCESSES)
    def test_a_step_is_repeatable_and_another_step_draws_anew(self, name):
        model = _model(name)
        steps = model.make_fit(model)
        steps.start(model.as_rows(Data(X, Y)), 0)
        one, another = (Batch(torch.tensor(order), 60) for order in (range(60), range(59, -1, -1)))
        first, again, other = (float(steps.step(batch, Weights())) for batch in (one, one, another))
        assert first == again != other
        assert first == pytest.approx(other, rel=0.5)

    def test_the_loss_is_the_mean_over_draws_plus_the_divergence(self):
        model = _model("class-rbf")
        rows = model.as_rows(Data(X, Y))
        torch.manual_seed(3)
        loss = CLASS_CATALOGUE["class-rbf"].fit(model).backward(rows, 600, Weights())
        with torch.no_grad():
            found = model.basis(rows.x)
            m, L = model.posterior.weights()
            mean = model.constants + found.phi @ m.T
            spread = torch.einsum("br,krs->bks", found.phi, L).square().sum(2)
            sd = (spread + found.residual[:, None]).sqrt()
            torch.manual_seed(3)
            logits = mean + sd * torch.randn(TRAINING_DRAWS, 60, 3)
            fit_of = -logits.log_softmax(2)[:, torch.arange(60), rows.y.long()].mean()
            eye = torch.eye(12)
            prior = torch.distributions.MultivariateNormal(torch.zeros(12), eye)
            kl = sum(
                torch.distributions.kl_divergence(
                    torch.distributions.MultivariateNormal(m[k], scale_tril=L[k]), prior
                )
                for k in range(3)
            )
        assert float(loss) == pytest.approx(float(fit_of + kl / 600), rel=1e-5)


class TestRandomScale:
    @pytest.mark.parametrize(("a", "b"), [(2.0, 2.0), (5.0, 1.5), (40.0, 300.0)])
    def test_the_divergence_of_scales_is_an_integral(self, a, b):
        one, prior = stats.invgamma(a, scale=b), stats.invgamma(2.0, scale=2.0)

        def integrand(u):
            s2 = np.exp(u)
            return one.pdf(s2) * s2 * (one.logpdf(s2) - prior.logpdf(s2))

        middle = np.log(b / a)
        expected = integrate.quad(integrand, middle - 6, middle + 12, limit=300)[0]
        values = (torch.tensor(v, dtype=torch.float64) for v in (a, b))
        found = scale_divergence(*values, torch.tensor([2.0, 2.0], dtype=torch.float64))
        assert float(found) == pytest.approx(expected, abs=1e-6)

    def test_the_divergence_of_the_model_is_an_integral_over_the_scale(self):
        """Given s², q(w) = N(s0 m, s² L L') and the prior is N(0, s² I)."""
        model = _model(
            "class-t-process", Architecture(2, r=6, blocks=1, classes=3, dtype="float64")
        )
        with torch.no_grad():
            model.log_shape.fill_(1.3)
            model.log_scale.fill_(0.7)
            a, b = (float(v) for v in model.scale_parameters())
            m, L = model.posterior.weights()
            found = float(model.terms(model.scaled(X)).kl)
        q = stats.invgamma(a, scale=b)
        traces = float(L.square().sum() - 2 * L.diagonal(dim1=1, dim2=2).log().sum()) - 18
        square = float(m.square().sum()) * b / a

        def given(u):
            s2 = np.exp(u)
            return q.pdf(s2) * s2 * (traces + square / s2) / 2

        expected = integrate.quad(given, -8, 12, limit=300)[0]
        both = scale_divergence(*torch.tensor([a, b]), torch.tensor([2.0, 2.0]))
        assert found == pytest.approx(expected + float(both), rel=1e-5)

    @pytest.mark.parametrize("squared", [1.0, 4.0])
    def test_the_scale_multiplies_the_functions(self, squared):
        """With equal weights, functions are s0 times those of the process without a scale."""
        plain, random = _model("class-nngp"), _model("class-t-process")
        with torch.no_grad():
            random.log_scale.fill_(np.log(squared))
        one, other = (found.predict(X) for found in (plain, random))
        middle = plain.constants.detach().numpy()
        expected = middle + np.sqrt(squared) * (one.mean - middle)
        assert other.mean == pytest.approx(expected, abs=1e-5)
        assert other.variance == pytest.approx(squared * one.variance, abs=1e-5)
        assert np.isinf(one.df).all()
        assert other.df == pytest.approx([2 * float(random.scale_parameters()[0].detach())])


def _truth(x):
    return special.softmax(np.column_stack([3 * np.sin(3 * x), 2 * x, 0 * x]), axis=1)


@pytest.mark.parametrize("name", [*PROCESSES, "class-dnn", "class-bll"])
def test_known_probabilities_are_found(name):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, 1500)
    p = _truth(x)
    y = (rng.random((1500, 1)) > p.cumsum(1)).sum(1).astype(float)
    sizes = Architecture(1, h=32, r=15, blocks=2, classes=3)
    model = build(name, sizes, x[:, None])
    parts = slice(0, 1300), slice(1300, None)
    train, held = (Data(x[part, None], y[part]) for part in parts)
    settings = FitSettings(epochs=25, batch=128, learning_rate=2e-3 if name in PROCESSES else 1e-2)
    _, state = fit(model, train, held, settings)
    at = np.linspace(-0.95, 0.95, 101)
    found = model.predict(at[:, None])
    assert np.abs(found.probabilities - _truth(at)).mean() < 0.05
    scores = model.predict(held.x).log_score(held.y)
    # The variance of a last layer is added after the last epoch.
    assert state.best_nll == pytest.approx(scores.mean(), rel=1e-3 if name == "class-bll" else 1e-6)


def test_a_class_without_rows_is_possible_but_rare():
    model = build("class-rbf", SIZES, X)
    fit(model, Data(X, np.minimum(Y, 1)), Data(X, np.minimum(Y, 1)), FitSettings(epochs=5))
    p = model.predict(X).probabilities
    assert (p[:, 2] > 0).all()
    assert (p[:, 2] < 0.1).all()
