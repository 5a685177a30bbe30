"""The estimator of one of several targets, against the estimator of all and against plain ones."""

import numpy as np
import pandas as pd
import pytest

import geogp
from geogp.errors import RequestError
from geogp.models.numerics.tensor_files import read_tensors, write_tensors

NAMES = ["d", "u"]
MIXING = np.array([[1.0, 0.3], [0.8, -0.5]])


def world(n, seed):
    """Return a table of places with a covariate and tests, and measurements of two targets."""
    rng = np.random.default_rng(seed)
    x, y, c = rng.uniform(0, 1, (3, n))
    factors = np.column_stack([np.sin(5 * x) + y, np.cos(9 * y) * x + 0.5 * c])
    measured = factors @ MIXING.T + 0.2 * rng.standard_normal((n, 2))
    table = pd.DataFrame({"x": x, "y": y, "c": c, "tests": rng.integers(1, 9, n)})
    return table, pd.DataFrame(measured, columns=NAMES)


@pytest.fixture(scope="module")
def exact():
    """Return an exact fit with a covariate, and other places."""
    table, y = world(150, 1)
    model = geogp.FieldGP(x="x", y="y", crs=None, covariates=["c"])
    return model.fit(table[:100], y[:100]), table[100:]


@pytest.fixture(scope="module")
def basis():
    """Return a fit of the model of three parts with a covariate, and other places."""
    table, y = world(1300, 2)
    how = {"tests": "tests", "covariates": ["c"], "epochs": 2, "validation": "random"}
    model = geogp.FieldGP(x="x", y="y", crs=None, **how)
    return model.fit(table[:1200], y[:1200]), table[1200:]


@pytest.fixture(scope="module", params=["exact", "basis"])
def fitted(request):
    return request.getfixturevalue(request.param)


def same(first, second):
    for name in ("mean", "function_variance", "noise_variance", "tile_variance", "sd"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.interval(0.9), second.interval(0.9))


@pytest.mark.parametrize("level", [False, True])
def test_predictions_are_the_marginals(fitted, level):
    model, places = fitted
    together = model.predict_distribution(places, level=level)
    for k, name in enumerate(NAMES):
        one = model.of_target(name)
        same(one.predict_distribution(places, level=level), together.marginal(k))
        assert one.predict(places).shape == (len(places),)
        assert one.path_ == model.path_
        assert not hasattr(one, "several_")
    assert hasattr(model, "several_")
    assert not hasattr(model, "network_")


def test_kernels_and_coefficients_are_those_of_the_factors(fitted):
    model, places = fitted
    inputs, models = model.scale_.inputs(model.columns().read(places[:9])), model.several_.models
    rng = np.random.default_rng(0)
    factors = [
        rng.multivariate_normal(np.zeros(9), own.kernel(inputs, inputs), 40_000, method="eigh")
        for own in models
    ]
    slopes = [rng.normal(*own.coefficients(), (100_000, 1)) for own in models]
    mixing = model.several_.factors.mixing
    for k, weights in enumerate(mixing):
        one = model.of_target(k)
        np.testing.assert_array_equal(one.inputs(places[:9]), inputs)
        K = one.kernel(places[:9], places[:9])
        drawn = np.cov(np.einsum("f,fns->sn", weights, np.stack(factors)))
        np.testing.assert_allclose(K, drawn, atol=0.03 * K.max())
        mixed = np.column_stack(slopes) @ weights
        found = one.coefficients_.loc["c"]
        assert found["mean"] == pytest.approx(mixed.mean(), abs=0.02 * found["sd"])
        assert found["sd"] == pytest.approx(mixed.std(), rel=0.02)


def test_features_are_those_of_the_factors_side_by_side(basis, exact):
    model, places = basis
    one = model.of_target("u")
    phi = one.features(places[:9])
    np.testing.assert_allclose(phi @ phi.T, one.kernel(places[:9], places[:9]), rtol=1e-10)
    m, L = one.network_.conditioned(None)
    inputs = one.inputs(places)
    mean = one.network_.intercept + one.features(places) @ m.numpy()
    tiles = one.predict_distribution(places, level=True)
    assert np.corrcoef(mean, tiles.mean)[0, 1] > 0.9
    known = one.network_.function_variance(inputs, L)
    np.testing.assert_allclose(known, tiles.function_variance, rtol=1e-5)
    L[-1, 0] = 0.1
    with pytest.raises(RequestError, match="weights that are independent between factors"):
        one.network_.function_variance(inputs, L)
    with pytest.raises(RequestError, match="exact process, which has no basis"):
        exact[0].of_target("u").features(places[:2])


def test_targets_in_the_unit_of_the_fit(fitted):
    model, _ = fitted
    _, y = world(*((150, 1) if model.path_ == "exact" else (1300, 2)))
    known = y[: len(model.validation_)][~model.validation_]
    for name in NAMES:
        network = model.of_target(name).network_
        assert float(network.y_mean) == pytest.approx(known[name].mean(), abs=1e-5)
        assert float(network.y_sd) == pytest.approx(known[name].std(ddof=0), rel=0.05)


def test_maps_and_figures_have_one_target(exact):
    model, _ = exact
    one = model.of_target("u")
    constant = {"c": lambda x, _: np.full(len(x), 0.5)}
    grid = one.grid((0, 0, 1, 1), resolution=0.25, covariates=constant)
    x, y = np.meshgrid(grid.x, grid.y)
    places = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "c": 0.5})
    law = model.predict_distribution(places).marginal("u")
    np.testing.assert_allclose(grid["median"].to_numpy().ravel(), law.median, rtol=1e-5)
    figure = one.plot(covariates=constant)
    assert len(figure.axes) > 1


def test_a_file_of_all_targets_gives_each(fitted, tmp_path):
    model, places = fitted
    with pytest.raises(RequestError, match=r"found that of 'u' alone\. Save the estimator of all"):
        model.of_target("u").save(tmp_path / "one.safetensors")
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "model.safetensors")
    again = geogp.load_model(tmp_path / "model.safetensors").of_target("u")
    first = model.of_target("u").predict_distribution(places)
    np.testing.assert_allclose(again.predict_distribution(places).mean, first.mean, rtol=1e-6)
    with pytest.raises(RequestError, match="expected X and y, because the estimator was loaded"):
        again.plot()


def test_what_predictions_have_in_common_is_kept_for_all_factors(basis, tmp_path):
    model, places = basis
    one = model.of_target("d")
    inputs = one.inputs(places)
    plain = [one.network_.predict(inputs, level=level) for level in (True, False)]
    with one.network_.remembering(inputs) as kept:
        assert {name.split(".")[0] for name in kept} == {"0", "1"}
        for law, level in zip(plain, (True, False), strict=True):
            found = one.network_.predict(inputs, level=level)
            np.testing.assert_allclose(found.mean, law.mean, rtol=1e-5)
        write_tensors(tmp_path / "level", dict(kept), {})
    stored = read_tensors(tmp_path / "level")[0]
    other = model.of_target("u").network_
    law = other.predict(inputs, level=True)
    with other.remembering(inputs, stored=stored):
        np.testing.assert_allclose(other.predict(inputs, level=True).mean, law.mean, rtol=1e-5)
    stored["0.mean"] = stored["0.mean"] + 1
    with other.remembering(inputs, stored=stored):
        moved = other.predict(inputs, level=True).mean - law.mean
    unit = float(model.several_.models[0].y_sd) * model.several_.factors.mixing[1, 0]
    assert np.median(moved) == pytest.approx(unit, rel=0.2)


def test_wider_intervals_of_one_target(fitted):
    model, places = fitted
    network, inputs = model.of_target("d").network_, model.of_target("d").inputs(places)
    once, twice = (network.widened(factor).predict(inputs) for factor in (1.0, 2.0))
    np.testing.assert_allclose(twice.sd, 2 * once.sd, rtol=1e-9)
    np.testing.assert_allclose(once.interval(0.95)[1], once.mean + 1.959964 * once.sd, rtol=1e-6)


def test_wrong_targets_are_refused(exact):
    model, _ = exact
    with pytest.raises(RequestError, match=r"expected one of the targets d, u, .* found 'x'"):
        model.of_target("x")
    with pytest.raises(RequestError, match="or its number from 0, found 2"):
        model.of_target(2)
    with pytest.raises(RequestError, match="expected an estimator of several targets, found one"):
        model.of_target("u").of_target("u")
    with pytest.raises(RequestError, match="not fitted"):
        geogp.FieldGP(crs=None).of_target(0)


@pytest.mark.parametrize("measured", [False, True])
def test_single_points_of_joint_levels_are_those_of_predictions(fitted, measured):
    model, places = fitted
    together = model.joint(places)
    assert together.names == tuple(NAMES)
    assert len(together) == len(places)
    tests = places["tests"].to_numpy(np.float64) if model.tests else 1.0
    for k, name in enumerate(NAMES):
        law = model.predict_distribution(places, level=not measured).marginal(k)
        for level in (together.of_target(name), model.of_target(name).joint(places)):
            found = level.measured(tests) if measured else level
            np.testing.assert_allclose(found.mean, law.mean, rtol=1e-6)
            np.testing.assert_allclose(found.single_variances(), law.function_variance, rtol=1e-5)
            np.testing.assert_allclose(found.noise_variance, law.noise_variance, atol=1e-9)
            np.testing.assert_allclose(level.noise_of(4), found.measured(4).noise_variance)
        stated = together.of_target(name).stated_variances()
        np.testing.assert_allclose(stated, together.of_target(name).single_variances(), rtol=1e-5)
    with pytest.raises(RequestError, match="of several targets contains its rows; leave out rows"):
        model.joint(places, rows=(places, np.zeros((len(places), 2))))
    with pytest.raises(RequestError, match="already contains its training rows"):
        model.of_target("u").joint(places, rows=(places, np.zeros(len(places))))
    with pytest.raises(RequestError, match="expected one of the targets d, u"):
        together.of_target("x")


def test_levels_keep_what_the_map_remembers(basis):
    model, places = basis
    one = model.of_target("d")
    plain = one.joint(places)
    with one.network_.remembering(one.inputs(places)) as kept:
        assert kept
        level = one.joint(places)
    np.testing.assert_allclose(level.mean, plain.mean, rtol=1e-6)
    np.testing.assert_allclose(level.single_variances(), plain.single_variances(), rtol=1e-5)
