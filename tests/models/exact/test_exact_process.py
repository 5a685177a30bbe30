"""The exact process as a model: predictions, its law, what it refuses, and its file."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.exact.exact_process import ExactProcess, fit_exact
from geogp.models.exact.passes import MOST_ROWS
from geogp.models.joint.level import joint_level
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

CPU = torch.device("cpu")
SIZES = Architecture(
    d=4, columns=("x", "y", "time", "height"), units=(50.0, 50.0, 4.0, 1.0), covariates=("height",)
)


def made(n=200, *, seed=0):
    """Rows with a trend of .5 for each unit of height; the values have a mean of 70 and unit 10."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (n, 3)), random.standard_normal(n)])
    field = np.sin(3 * x[:, 0]) + np.cos(2 * x[:, 1]) * (1 + 0.3 * x[:, 2])
    return Data(x, 70 + 10 * (field + 0.5 * x[:, 3] + 0.2 * random.standard_normal(n)))


@pytest.fixture(scope="module")
def process():
    return fit_exact("field", SIZES, made(), 0, CPU)[0]


def test_new_values_are_predicted(process):
    new = made(600, seed=1)
    law = process.predict(new.x)
    assert np.sqrt(np.mean(np.square(law.mean - new.y))) < 3.0
    level = process.predict(new.x, level=True)
    assert not level.noise_variance.any()
    np.testing.assert_array_equal(level.mean, law.mean)
    np.testing.assert_array_equal(level.function_variance, law.function_variance)
    # The noise has a standard deviation of 2.
    assert np.median(law.noise_variance) == pytest.approx(4, rel=0.5)


@pytest.mark.trial
@pytest.mark.parametrize("n", [40, 200])
def test_new_values_are_inside(n):
    """95 % of the new values of a dozen fields are inside."""
    inside = []
    for seed in range(12):
        new = made(300, seed=100 + seed)
        law = fit_exact("field", SIZES, made(n, seed=seed), 0, CPU)[0].predict(new.x)
        lower, upper = law.interval(0.95)
        inside.append(np.mean((lower < new.y) & (new.y < upper)))
    assert 0.93 < np.mean(inside) < 0.97


def test_a_prediction_is_the_mixture_of_its_points(process):
    """Before the law of the errors, mean and variance are those of draws from the mixture."""
    x = made(5, seed=2).x
    plain = process.widened(1.0)
    places, trend = process.placed(x)
    random = np.random.default_rng(0)
    draws = []
    for point in process.mixture.points:
        mean, variance = (part.numpy() for part in point.kriging.field(places, trend))
        sd = np.sqrt(variance + point.kriging.noise)
        draws.append(mean + sd * random.standard_normal((round(400_000 * point.weight), 5)))
    values = np.concatenate(draws)
    scale, centre = float(process.y_sd), float(process.y_mean)
    found = plain.predict(x)
    np.testing.assert_allclose(found.mean, centre + scale * values.mean(0), rtol=1e-3)
    np.testing.assert_allclose(found.sd, scale * values.std(0), rtol=1e-2)


def test_coefficients_have_their_unit_and_error(process):
    mean, sd = process.coefficients()
    assert mean.shape == (1,)
    assert 0.05 < sd[0] < 0.5
    assert abs(mean[0] - 5) < 4 * sd[0]


def test_the_law_learns_the_size_of_errors():
    """Where the noise is four times as large, intervals are wider by much."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (800, 2))
    noise = np.where(x[:, 0] > 0, 0.8, 0.2)
    sizes = Architecture(d=2, units=(10.0, 10.0))
    data = Data(x, np.sin(3 * x[:, 0]) + noise * random.standard_normal(800))
    process, history = fit_exact("field", sizes, data, 0, CPU)
    sd = process.predict(np.array([[-0.5, 0.0], [0.5, 0.0]])).sd
    assert sd[1] > 1.8 * sd[0]
    assert process.widened(1.0).predict(np.array([[0.5, 0.0]])).sd < sd[1]
    assert np.isfinite(history.best_nll)
    assert history.losses == []


SESSIONS = Architecture(d=2, units=(10.0, 10.0))


def driven(sessions, *, rows=30, seed=0):
    """Rows of drives along straight lines, each with an error of its own of sd .5."""
    random = np.random.default_rng(seed)
    starts, ends = random.uniform(-1, 1, (2, sessions, 1, 2))
    x = (starts + np.linspace(0, 0.5, rows)[:, None] * (ends - starts)).reshape(-1, 2)
    session = np.arange(sessions).repeat(rows)
    own = 0.5 * random.standard_normal(sessions)[session]
    y = np.sin(3 * x[:, 0]) + own + 0.3 * random.standard_normal(len(x))
    return Data(x, y, session=session)


@pytest.fixture
def few_passes(monkeypatch):
    """The largest number of passes, which is small."""
    monkeypatch.setattr("geogp.models.exact.passes.MOST_ROWS", 400)
    monkeypatch.setattr("geogp.models.exact.passes.MOST_PASSES", 400)
    return 400


def level_and_inside(data, new):
    process, _ = fit_exact("field", SESSIONS, data, 0, CPU)
    level = process.predict(new.x, level=True)
    z = (level.mean - np.sin(3 * new.x[:, 0])) / level.sd
    lower, upper = process.predict(new.x).interval(0.95)
    return np.mean(z**2), np.mean((lower < new.y) & (new.y < upper))


def test_intervals_hold_the_rows_of_new_sessions(few_passes):
    """Without sessions, the level is far more certain than it may be."""
    aware, unaware = [], []
    for seed in range(3):
        data, new = driven(30, rows=60, seed=seed), driven(60, rows=5, seed=100 + seed)
        aware.append(level_and_inside(data, new))
        alone = replace(data.at(np.arange(0, len(data.y), 6)), session=None)
        unaware.append(level_and_inside(alone, new))
    squares, inside = np.mean(aware, 0)
    assert 0.93 < inside < 0.975
    assert 0.25 < squares < 1.6
    assert np.mean(unaware, 0)[0] > 2 * squares


def test_rows_of_sessions_are_pooled_and_kept_in_a_file(few_passes, tmp_path):
    data, new = driven(20, rows=50), driven(5, seed=9)
    process, state = fit_exact("field", SESSIONS, data, 0, CPU)
    rows = process.mixture.rows
    assert 100 < len(rows) <= few_passes < len(data.y)
    assert process.within * float(process.y_sd) ** 2 == pytest.approx(0.09, rel=0.1)
    assert np.isfinite(state.best_nll)
    law, level = process.predict(new.x), process.predict(new.x, level=True)
    assert np.median(law.noise_variance) == pytest.approx(0.5**2 + 0.3**2, rel=0.5)
    assert not level.noise_variance.any()
    save_model(process, tmp_path / "m.safetensors")
    again, _ = load_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(new.x).sd, law.sd)
    np.testing.assert_array_equal(again.predict(new.x).mean, law.mean)


def means_of_tests(sessions, *, rows=30, seed=0):
    """Rows of drives that are means of 1 to 40 tests with noise of sd .8 each."""
    data, random = driven(sessions, rows=rows, seed=seed), np.random.default_rng(seed + 50)
    tests = random.choice([1, 2, 4, 40], len(data.y)).astype(float)
    noise = 0.8 * random.standard_normal(len(data.y)) / np.sqrt(tests)
    return replace(data, y=data.y + noise, tests=tests, devices=np.ones(len(data.y)))


def test_means_of_more_tests_have_less_noise(tmp_path):
    data, new = means_of_tests(40), means_of_tests(60, seed=9, rows=10)
    process, _ = fit_exact("field", SESSIONS, data, 0, CPU)
    law = process.predict(new.x, new.tests)
    many = process.predict(new.x, np.inf).noise_variance
    of_test = process.predict(new.x).noise_variance - many
    assert np.median(of_test) == pytest.approx(0.8**2, rel=0.25)
    np.testing.assert_allclose(law.noise_variance, many + of_test / new.tests)
    lower, upper = law.interval(0.95)
    for k in (1, 40):
        own = new.tests == k
        assert 0.88 < np.mean((lower < new.y)[own] & (new.y < upper)[own]) < 0.99
    save_model(process, tmp_path / "m.safetensors")
    again, _ = load_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(new.x, new.tests).sd, law.sd)


@pytest.mark.parametrize("sessions", [5, 30])
def test_few_sessions_make_wider_intervals(sessions):
    data = driven(sessions, rows=12)
    process, _ = fit_exact("field", SESSIONS, data, 0, CPU)
    law = process.widened(1.0).predict(data.x)
    _, field, noise = process.mixture.predict(*process.placed(data.x))
    factor = stats.t(sessions - 1).ppf(0.975) / stats.norm.ppf(0.975)
    expected = factor * float(process.y_sd) * np.sqrt((field + noise).numpy())
    np.testing.assert_allclose(law.sd, expected, rtol=1e-9)


def test_pooled_rows_count_as_all_their_tests(few_passes):
    data = means_of_tests(20, rows=50)
    data = replace(data, tests=np.full(len(data.y), 4.0))
    rows = fit_exact("field", SESSIONS, data, 0, CPU)[0].mixture.rows
    assert len(rows) < few_passes < len(data.y)
    assert float(rows.tests.sum()) == pytest.approx(4 * len(data.y))


@pytest.mark.usefixtures("few_passes")
def test_covariates_are_seen_at_single_rows():
    """Pooled, the effect of a covariate would be lost within cells, and noise of a new row."""
    data = driven(20, rows=50)
    height = np.random.default_rng(3).standard_normal(len(data.y))
    x = np.column_stack([data.x, np.zeros(len(data.y)), height])
    with pytest.warns(UserWarning, match="400 of 1,000 rows are used: .* 400 rows, as there are"):
        process, _ = fit_exact("field", SIZES, replace(data, x=x, y=data.y + 2 * height), 0, CPU)
    mean, sd = process.coefficients()
    assert abs(mean[0] - 2) < 4 * sd[0] < 0.2
    assert process.within == 0


@pytest.mark.usefixtures("few_passes")
def test_scattered_groups_are_thinned_instead_of_averaged():
    random = np.random.default_rng(0)
    x, session = random.uniform(-1, 1, (1200, 2)), np.arange(1200) // 4
    own = 0.3 * random.standard_normal(300)[session]
    data = Data(x, np.sin(3 * x[:, 0]) + own, session=session)
    with pytest.warns(UserWarning, match=r"40\d of 1,200 rows .* 400 passes of groups through a"):
        process, _ = fit_exact("field", SESSIONS, data, 0, CPU)
    level = process.predict(x, level=True)
    z = (level.mean - np.sin(3 * x[:, 0])) / level.sd
    assert np.mean(z**2) < 2.5
    assert level.sd.mean() < 0.15


def test_a_covariate_of_one_group_does_not_spoil_the_errors():
    data = driven(8)
    x = np.column_stack([data.x, np.zeros(len(data.y)), data.session == 3])
    process, state = fit_exact("field", SIZES, replace(data, x=x), 0, CPU)
    own = data.session == 3
    np.testing.assert_array_equal(process.mixture.foretold, ~own)
    assert state.best_nll < 2
    assert (process.mixture.near(None)[1] < 10).all()


def test_sessions_at_equal_times_depend_on_place_alone():
    data = driven(6, rows=10)
    x = np.column_stack([data.x, np.full(len(data.y), 0.25), np.zeros(len(data.y))])
    process, _ = fit_exact("field", SIZES, replace(data, x=x), 0, CPU)
    assert np.isfinite(process.predict(x).sd).all()


def test_sessions_that_tell_nothing_are_refused():
    data = driven(4)
    one = replace(data, session=np.zeros(len(data.y), np.int64))
    with pytest.raises(DataError, match="all rows are of one group"):
        fit_exact("field", SESSIONS, one, 0, CPU)
    many = driven(2, rows=MOST_ROWS)
    same = replace(many, x=np.zeros_like(many.x))
    with pytest.raises(DataError, match="the rows of all groups lie in only 2 cells"):
        fit_exact("field", SESSIONS, same, 0, CPU)


def test_far_from_rows_the_law_fades_to_the_process(process):
    far = np.array([[40.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(process.predict(far).sd, process.widened(1.0).predict(far).sd, 1e-2)
    prior = np.sqrt(process.kernel(far, far)[0, 0])
    assert process.predict(far, level=True).sd > 0.9 * prior


def test_a_file_predicts_the_same(process, tmp_path):
    save_model(process, tmp_path / "m.safetensors")
    again, _ = load_model(tmp_path / "m.safetensors")
    assert isinstance(again, ExactProcess)
    x = made(30, seed=3).x
    first, second = process.predict(x), again.predict(x)
    np.testing.assert_array_equal(second.mean, first.mean)
    np.testing.assert_array_equal(second.sd, first.sd)
    assert again.to(CPU) is again


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("exact.weights", lambda w: -w, "expected weights above 0"),
        ("exact.weights", lambda w: w[:0], "expected weights above 0, one for each form"),
        ("exact.form", lambda form: form + 9, "expected forms from 0 to 3, found"),
        ("exact.theta", lambda theta: theta[1:], "expected .* parameters, found"),
        ("law_ranges", lambda own: own[:, :2], "3 covariates, found 2: an older version wrote it"),
        ("exact.y", lambda y: y * np.inf, "exact.y in .* is not finite"),
    ],
)
def test_a_damaged_file_is_refused(process, name, change, message, tmp_path):
    path = tmp_path / "m.safetensors"
    save_model(process, path)
    tensors, described = read_tensors(path)
    write_tensors(path, tensors | {name: change(tensors[name]).contiguous()}, described)
    with pytest.raises(DataError, match=message):
        load_model(path)


def test_there_is_no_basis(process):
    x = made(3).x
    asked = (
        lambda: process.features(x),
        lambda: process.function_variance(x, torch.eye(3)),
        lambda: process.conditioned(None),
        lambda: process.as_rows(made(3)),
    )
    for each in asked:
        with pytest.raises(RequestError, match="exact process, which has no basis"):
            each()


def test_the_joint_level_has_the_means_and_variances_of_the_map(process):
    x = made(40, seed=4).x
    level = joint_level(process, None, x)
    stated = process.predict(x, level=True)
    np.testing.assert_allclose(level.mean, stated.mean)
    np.testing.assert_allclose(level.single_variances(), stated.function_variance, rtol=1e-6)
    np.testing.assert_allclose(level.stated_variances(), stated.function_variance)
    raw = joint_level(process, None, x, calibrated=False)
    mean, covariance = process.joint(x)
    weights = np.random.default_rng(0).standard_normal((40, 3))
    np.testing.assert_allclose(raw.mean, mean)
    expected = weights.T @ covariance @ weights
    np.testing.assert_allclose(raw.sum_covariance(weights), expected, rtol=1e-5)
    paths = np.concatenate(list(raw.paths(4000, seed=1)))
    np.testing.assert_allclose(paths.std(0), np.sqrt(covariance.diagonal()), rtol=0.1)
    np.testing.assert_allclose(np.cov(paths.T)[0, 1], covariance[0, 1], atol=1.0)
    measured = level.measured(1)
    np.testing.assert_allclose(measured.noise_variance, process.predict(x).noise_variance)


@pytest.fixture
def in_patches(monkeypatch):
    """Levels of more than ten places are sequences of patches."""
    monkeypatch.setattr("geogp.models.exact.exact_level.DENSE_PLACES", 10)


@pytest.fixture(scope="module")
def grid():
    """Inputs on a grid of 20 by 20 places at two times."""
    places = np.stack(np.meshgrid(*[np.linspace(-1, 1, 20)] * 2, [0.0, 0.5]), -1).reshape(-1, 3)
    return np.column_stack([places, np.zeros(len(places))])


@pytest.fixture
def averages(grid):
    """Weights of a mean over all places, a quarter, a row, and of the change between the times."""
    places = grid[:, :2], grid[:, 2]
    everywhere = np.ones(len(grid))
    quarter, row = (places[0] < 0).all(1), places[0][:, 0] == places[0][0, 0]
    sums = [everywhere, quarter, row, np.where(places[1] > 0, 1.0, -1.0)]
    return np.column_stack([one / np.abs(one).sum() for one in sums])


def test_patches_have_the_level_of_all_places_together(process, grid, averages, monkeypatch):
    """Both the dense factor and the sequence have the same posterior; the sequence is Vecchia's."""
    whole = joint_level(process, None, grid)
    assert whole.local is None
    monkeypatch.setattr("geogp.models.exact.exact_level.DENSE_PLACES", 10)
    level = joint_level(process, None, grid)
    np.testing.assert_allclose(level.mean, whole.mean, rtol=1e-9)
    np.testing.assert_allclose(level.single_variances(), whole.single_variances(), rtol=1e-6)
    expected = whole.sum_covariance(averages)
    unit = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    assert np.abs(level.sum_covariance(averages) - expected).max() < 0.005 * unit.max()
    np.testing.assert_allclose(level.sum_variances(averages), expected.diagonal(), rtol=0.005)
    np.testing.assert_allclose(whole.sum_variances(averages), expected.diagonal(), rtol=1e-6)
    paths = np.concatenate(list(level.paths(4000, seed=1))) @ averages
    np.testing.assert_allclose(paths.std(0), np.sqrt(expected.diagonal()), rtol=0.07)


def test_covariances_of_patches_are_products_with_vectors(process, grid, averages, in_patches):
    level = joint_level(process, None, grid)
    low = level.low_rank().T @ averages
    product = averages.T @ level.local.times(averages) + low.T @ low
    np.testing.assert_allclose(product, level.sum_covariance(averages), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(level.local.places, grid[:, :2] * 50)


def test_repeated_places_have_no_joint_level(process, grid, in_patches):
    with pytest.raises(DataError, match="once at each time, found 1 repeated"):
        joint_level(process, None, grid[[*range(30), 0]])


def test_a_level_in_patches_needs_little_memory(process, grid, in_patches, monkeypatch):
    """A dense factor of 800 places needs 31 MB."""
    monkeypatch.setattr("geogp.models.process.memory.available_bytes", lambda _: 25_000_000)
    assert len(joint_level(process, None, grid)) == 800
    monkeypatch.setattr("geogp.models.process.memory.available_bytes", lambda _: 1_000_000)
    with pytest.raises(RequestError, match="the joint level of 800 places needs about"):
        joint_level(process, None, grid)


def test_too_many_places_for_a_joint_level_are_refused(process, monkeypatch):
    monkeypatch.setattr("geogp.models.process.memory.available_bytes", lambda _: 10_000)
    with pytest.raises(RequestError, match="the joint level of 40 places needs about"):
        joint_level(process, None, made(40).x)
