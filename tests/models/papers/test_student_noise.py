"""Student-t noise against brute-force integration, the Gaussian limit and contaminated rows."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from geogp.distributions.student_sum import NormalPlusStudent
from geogp.errors import RequestError
from geogp.models.catalogue.build import build, find_spec, with_noise
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint.law import joint_posterior
from geogp.models.options import Weights
from geogp.models.papers.student_noise import MIN_DF, StudentGP, StudentNoise, student_expected_nll
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.rows import Rows

ABLE = ["sv-dkl", "sv-rbf", "sv-dbk", "vbll"]


def make(name, x, *, noise="student-t", dtype="float64", seed=0):
    sizes = Architecture(d=2, h=6, r=8, blocks=1, dtype=dtype, noise=noise)
    return build(name, sizes, x, seed=seed)


def set_law(model, scale_squared: float, df: float) -> None:
    with torch.no_grad():
        if isinstance(model.noise, StudentNoise):
            model.noise.log_excess.fill_(np.log(scale_squared - 1e-6))
            model.noise.log_df.fill_(np.log(df - MIN_DF))
        else:
            model.noise.log_excess.fill_(np.log(scale_squared - 1e-6))


def loss_of(model, train, device="cpu") -> float:
    y = torch.from_numpy(train.y).to(model.architecture.torch_dtype).to(device)
    rows = Rows(model.scaled(train.x), y, y.new_ones(len(y), 2, dtype=torch.float64))
    return float(model.make_fit(model).backward(rows, 3 * len(y), Weights()))


@pytest.mark.parametrize("df", [2.1, 4.0, 60.0, 1e4])
@pytest.mark.parametrize("sd", [0.05, 0.6])
def test_the_expectation_against_numerical_integration(df, sd, device):
    residual, squared = np.array([-3.0, 0.0, 0.2, 8.0]), 0.5
    found = student_expected_nll(
        torch.from_numpy(residual).to(device),
        torch.full((4,), sd**2, dtype=torch.float64, device=device),
        scale_squared=torch.tensor(squared, dtype=torch.float64, device=device),
        df=torch.tensor(df, dtype=torch.float64, device=device),
    )
    law = stats.t(df, scale=np.sqrt(squared))

    def at(f, r):
        return -law.logpdf(r + sd * f) * stats.norm.pdf(f)

    expected = [integrate.quad(at, -10, 10, args=(r,), epsabs=1e-12)[0] for r in residual]
    np.testing.assert_allclose(found.cpu(), expected, rtol=2e-5)


@pytest.mark.parametrize("name", ABLE)
def test_the_objective_is_the_expectation_plus_the_kl_term(name, train, randomised):
    model = randomised(make(name, train.x))
    set_law(model, 0.4, 3.5)
    terms = model.terms(model.scaled(train.x))
    norm = terms.feature_norm.detach().numpy()
    added = norm.max() - norm if name == "sv-dbk" else terms.residual.detach().numpy()
    variance = terms.function_variance.detach().numpy() + added
    law = stats.t(3.5, scale=np.sqrt(0.4))
    # Brute force: draws of f at even quantiles of its distribution.
    z = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    mean = terms.mean.detach().numpy()
    rows = zip(train.y, mean, np.sqrt(variance), strict=True)
    nll = np.mean([-law.logpdf(y - m - s * z).mean() for y, m, s in rows])
    expected = nll + float(terms.kl.detach()) / (3 * len(train.y))
    assert loss_of(model, train) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ABLE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_very_many_degrees_of_freedom_are_the_gaussian_objective(
    *, name, dtype, train, device, randomised
):
    student = randomised(make(name, train.x, dtype=dtype))
    gaussian = make(name, train.x, noise="gaussian", dtype=dtype)
    kept = {k: v for k, v in student.state_dict().items() if not k.startswith("noise.")}
    gaussian.load_state_dict({**gaussian.state_dict(), **kept})
    for model in (student, gaussian):
        set_law(model, 0.3, 1e8)
        model.to(device)
    found, expected = (loss_of(model, train, device) for model in (student, gaussian))
    assert found == pytest.approx(expected, rel=2e-5 if dtype == "float32" else 1e-6)
    x = np.random.default_rng(3).uniform(-1, 1, (20, 2))
    ours, theirs = student.predict(x), gaussian.predict(x)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-5)
    np.testing.assert_allclose(ours.quantile(0.975), theirs.quantile(0.975), rtol=1e-5)
    y = theirs.quantile(0.99)
    np.testing.assert_allclose(ours.log_score(y), theirs.log_score(y), rtol=1e-4)
    a, b = (joint_posterior(model, train).mean(x) for model in (student, gaussian))
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ABLE)
def test_every_parameter_has_a_finite_gradient(name, train, device):
    model = make(name, train.x, dtype="float32").to(device)
    loss_of(model, train, device)
    for parameter, value in model.named_parameters():
        assert value.grad is not None, parameter
        assert bool(torch.isfinite(value.grad).all()), parameter
    assert float(model.noise.log_df.grad) != 0


def test_the_noise_starts_at_4_degrees_of_freedom_and_the_variance_asked_for(train):
    sizes = Architecture(d=2, h=6, r=8, noise="student-t")
    model = build("vbll", sizes, train.x, noise_start=0.5)
    assert float(model.noise.df.detach()) == pytest.approx(4)
    assert float(model.noise().detach()) == pytest.approx(0.5, rel=1e-5)


def test_predictions_are_those_of_a_normal_plus_a_t(train, device):
    model = make("vbll", train.x).to(device)
    model.y_sd.fill_(3.0)
    set_law(model, 0.2, 3.0)
    x = train.x[:5]
    found, level = model.predict(x), model.predict(x, level=True)
    np.testing.assert_allclose(found.noise_variance, 9 * 0.2 * 3)
    assert isinstance(found.shape, NormalPlusStudent)
    drawn = np.random.default_rng(0)
    e = drawn.standard_t(3, 10**6) * np.sqrt(9 * 0.2)
    f = level.mean[0] + drawn.standard_normal(10**6) * level.sd[0]
    for p in (0.025, 0.3, 0.9):
        assert found.quantile(p)[0] == pytest.approx(np.quantile(f + e, p), abs=0.02)
    assert level.shape.has_power_mean
    np.testing.assert_array_equal(level.noise_variance, 0)


def test_rows_of_equal_inputs_stay_apart(train):
    model = make("vbll", train.x)
    x = model.scaled(np.repeat(train.x[:5], 4, axis=0))
    y = torch.arange(20, dtype=torch.float64)
    rows = Rows(x, y, y.new_ones(len(y), 2, dtype=torch.float64))
    assert model.make_fit(model).gathered(rows) is rows
    assert find_spec("vbll").fit(model).gathered(rows) is not rows


@pytest.fixture(scope="module")
def contaminated() -> tuple[Data, Data, Data]:
    """Rows of a smooth surface, one in ten of the training ones far off, and clean test rows."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (900, 2))
    y = np.sin(3 * x).sum(1) + 0.1 * random.standard_normal(900)
    bad = (random.random(900) < 0.1) & (np.arange(900) < 700)
    y = y + np.where(bad, random.choice([-4.0, 4.0], 900), 0)
    parts = slice(0, 500), slice(500, 700), slice(700, 900)
    return tuple(Data(x[part], y[part]) for part in parts)


@pytest.mark.trial
@pytest.mark.parametrize("name", ["sv-dkl", "vbll"])
def test_bad_rows_pull_the_function_less(name, contaminated, device):
    train, validation, test = contaminated
    settings = FitSettings(epochs=40, batch=50, learning_rate=1e-2)
    scores, errors = {}, {}
    for noise in ("gaussian", "student-t"):
        sizes = Architecture(d=2, h=16, r=20, noise=noise)
        model = build(name, sizes, train.x, noise_start=0.5).to(device)
        fit(model, train, validation, settings)
        found = model.predict(test.x)
        scores[noise] = found.log_score(test.y).mean()
        errors[noise] = np.abs(found.mean - test.y).mean()
    assert scores["student-t"] < scores["gaussian"] - 0.5
    assert errors["student-t"] < errors["gaussian"]
    assert float(model.noise.df.detach()) < 4


def test_a_bad_row_hardly_counts_in_the_joint_posterior(train):
    model = make("vbll", train.x)
    set_law(model, 0.05, 3.0)
    bad = train.y.copy()
    bad[0] += 500.0
    x = train.x[:3]
    clean = joint_posterior(model, train).mean(x)
    moved = joint_posterior(model, Data(train.x, bad)).mean(x)
    gaussian = make("vbll", train.x, noise="gaussian")
    set_law(gaussian, 0.15, 0.0)
    pulled = joint_posterior(gaussian, Data(train.x, bad)).mean(x)
    assert np.abs(moved - clean).max() < 0.1
    assert np.abs(pulled - joint_posterior(gaussian, train).mean(x)).max() > 1


@pytest.mark.parametrize("name", ABLE)
def test_a_saved_model_knows_its_noise(name, train, randomised, tmp_path, device):
    model = randomised(make(name, train.x, dtype="float32")).to(device)
    save_model(model, tmp_path / "model.safetensors")
    again, _ = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, StudentGP)
    assert again.architecture.noise == "student-t"
    x, y = train.x[:7], train.y[:7]
    np.testing.assert_array_equal(again.noise.df.detach().cpu(), model.noise.df.detach().cpu())
    here, there = again.predict(x), model.to("cpu").predict(x)
    np.testing.assert_array_equal(here.log_score(y), there.log_score(y))


def test_a_fit_continues_where_it_stopped(train, validation, quick, tmp_path):
    whole, parts = (make("vbll", train.x, dtype="float32") for _ in range(2))
    fit(whole, train, validation, quick)

    def stop(state, _epochs):
        if state.epoch == 3:
            raise KeyboardInterrupt

    path = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(parts, train, validation, quick, checkpoint=path, progress=stop)
    again = make("vbll", train.x, dtype="float32")
    fit(again, train, validation, quick, checkpoint=path)
    np.testing.assert_array_equal(again.predict(train.x).mean, whole.predict(train.x).mean)


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - set(ABLE)))
def test_models_without_it_are_refused_with_those_that_have_it(name):
    with pytest.raises(RequestError, match=f"{name} has no student-t noise.*sv-dkl, sv-rbf"):
        with_noise(find_spec(name), "student-t")


def test_unknown_noise_is_refused():
    with pytest.raises(
        RequestError, match="unknown noise 'cauchy'; choose one of gaussian, student-t"
    ):
        Architecture(d=2, noise="cauchy")
    with pytest.raises(RequestError, match="unknown noise 'cauchy'"):
        with_noise(find_spec("vbll"), "cauchy")
    assert with_noise(find_spec("vbll"), "gaussian") is find_spec("vbll")
