"""Estimators of several targets of the same rows, on fields whose covariance is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

import geogp
from geogp.errors import DataError, RequestError
from geogp.models.numerics.tensor_files import read_tensors, write_tensors

MIXING = np.array([[1.0, 0.3], [0.8, -0.5]])
NOISE = np.array([[0.3, 0.0], [0.15, 0.2]])


def world(n, seed, mixing=MIXING, noise=NOISE):
    """Return places, and levels and measurements of two targets, (n, 2) each.

    The levels are mixtures of two processes with exponential correlations.
    """
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 1, (n, 2))
    apart = cdist(places, places)
    factors = [
        np.linalg.cholesky(np.exp(-apart / reach) + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
        for reach in (0.3, 0.08)
    ]
    level = np.column_stack(factors) @ mixing.T
    return places, level, level + rng.standard_normal((n, 2)) @ noise.T


@pytest.fixture(scope="module")
def fitted():
    """Return an exact fit to 700 rows, and 500 other rows."""
    places, level, y = world(1200, 1)
    model = geogp.FieldGP(crs=None).fit(places[:700], pd.DataFrame(y[:700], columns=["d", "u"]))
    return model, (places[:700], y[:700]), (places[700:], level[700:], y[700:])


def test_errors_of_the_level_at_new_places_have_the_stated_correlation(fitted):
    model, _, (places, level, _) = fitted
    law = model.predict_distribution(places, level=True)
    z = (level - law.mean) / law.sd
    seen, stated = np.corrcoef(z.T)[0, 1], law.correlation[:, 0, 1].mean()
    apart = np.corrcoef(level.T)[0, 1]
    assert abs(seen - stated) < 0.15 < abs(apart - stated)


def test_measurements_are_predicted_together_better_than_apart(fitted):
    model, (known, y), (places, _, new) = fitted
    joint = model.predict_distribution(places)
    assert model.path_ == "exact"
    singles = [
        geogp.FieldGP(crs=None).fit(known, y[:, k]).predict_distribution(places) for k in (0, 1)
    ]
    for k in (0, 1):
        own, single = joint.marginal(k), singles[k]
        assert own.log_score(new[:, k]).mean() < single.log_score(new[:, k]).mean() + 0.02
        lower, upper = own.interval(0.95)
        assert 0.92 < ((lower <= new[:, k]) & (new[:, k] <= upper)).mean() < 0.98
    apart = sum(single.log_score(new[:, k]) for k, single in enumerate(singles))
    gain = apart - joint.joint_log_score(new)
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))
    z = joint.normal_scores(new)
    stated = joint.correlation[:, 0, 1].mean()
    assert np.corrcoef(z.T)[0, 1] == pytest.approx(stated, abs=0.1)
    assert model.score(places, new) == pytest.approx(-joint.joint_log_score(new).mean())


def test_probabilities_of_both_targets_hold(fitted):
    model, _, (places, _, new) = fitted
    joint = model.predict_distribution(places)
    stated = joint.probability(at_least={"d": 0.2, "u": 0.2})
    seen = (new >= 0.2).all(1)
    bound = 3 * np.sqrt((stated * (1 - stated)).sum()) / len(stated)
    assert stated.mean() == pytest.approx(seen.mean(), abs=bound)


def test_a_row_that_lacks_a_target_tells_about_it():
    """The second target has much noise and few rows; the first is nearly proportional to it."""
    places, level, y = world(900, 3, np.array([[1.0, 0.1], [0.9, 0.3]]), np.diag([0.15, 0.4]))
    known = y[:400].copy()
    lacking = np.random.default_rng(0).random(400) < 0.8
    known[lacking, 1] = np.nan
    with pytest.warns(UserWarning, match="of 400 rows, .* lack y1; .* have one target alone"):
        model = geogp.FieldGP(crs=None).fit(places[:400], known)
    both = model.predict_distribution(places[400:]).marginal("y1")
    alone = geogp.FieldGP(crs=None).fit(places[:400][~lacking], known[~lacking, 1])
    alone = alone.predict_distribution(places[400:])
    errors = [np.square(law.mean - level[400:, 1]).mean() for law in (both, alone)]
    assert errors[0] < 0.7 * errors[1]
    assert both.log_score(y[400:, 1]).mean() < alone.log_score(y[400:, 1]).mean() - 0.05
    lower, upper = both.interval(0.95)
    assert ((lower <= y[400:, 1]) & (y[400:, 1] <= upper)).mean() > 0.9


@pytest.fixture(scope="module")
def basis():
    """Return a fit of the model of three parts to rows with tests, and its table and targets."""
    places, level, _ = world(1500, 5)
    rng = np.random.default_rng(6)
    tests = rng.integers(1, 20, 1500)
    noise = rng.standard_normal((1500, 2)) @ (3 * NOISE).T / np.sqrt(tests)[:, None]
    table = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "tests": tests})
    y = pd.DataFrame(level + noise, columns=["d", "u"])
    model = geogp.FieldGP(x="x", y="y", crs=None, tests="tests", epochs=4, validation="random")
    return model.fit(table[:1200], y[:1200]), table, y


def test_with_tests_the_model_of_three_parts_is_fitted(basis):
    model, table, y = basis
    assert model.path_ == "basis"
    joint, new = model.predict_distribution(table[1200:]), y[1200:].to_numpy()
    z = joint.normal_scores(new)
    assert np.corrcoef(z.T)[0, 1] == pytest.approx(joint.correlation[:, 0, 1].mean(), abs=0.15)
    lower, upper = joint.interval(0.95)
    assert 0.9 < ((lower <= new) & (new <= upper)).mean() < 0.99
    apart = sum(joint.marginal(k).log_score(new[:, k]) for k in (0, 1))
    assert joint.joint_log_score(new).mean() < apart.mean()
    assert model.several_.models[0].left_out_rows() is not None


def test_a_row_left_out_is_named_with_its_own_target(basis):
    model, table, y = basis
    known = model.several_.models[0].left_out_rows()
    order = np.argsort(model.validation_, kind="stable")
    z = model.several_.factors.scores(y[:1200].to_numpy()[order])[:, 0]
    np.testing.assert_allclose(known.y, z[known.rows], atol=1e-5)
    assert len(set(known.rows)) == len(known.rows) == 1200
    inside = known.rows < (~model.validation_).sum()
    rows = table.iloc[order[known.rows]]
    inputs = model.scale_.inputs(model.columns().read(rows))
    plain = model.several_.models[0].predict(inputs, rows.tests.to_numpy(np.float64))
    seen, left = (np.abs(law.mean - known.y)[inside].mean() for law in (plain, known.prediction))
    assert left > 1.05 * seen


@pytest.mark.parametrize("which", ["fitted", "basis"])
def test_a_file_brings_back_the_same_predictions(which, request, tmp_path):
    model, *_ = found = request.getfixturevalue(which)
    rows = found[2][0][:20] if which == "fitted" else found[1][:20]
    model.save(tmp_path / "model.safetensors")
    again = geogp.load_model(tmp_path / "model.safetensors")
    first, second = (one.predict_distribution(rows) for one in (model, again))
    assert second.names == ("d", "u")
    np.testing.assert_allclose(second.mean, first.mean, rtol=1e-6)
    np.testing.assert_allclose(second.sd, first.sd, rtol=1e-6)
    np.testing.assert_allclose(second.correlation, first.correlation, atol=1e-6)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        (None, None, "expected the targets of 2 models, found none"),
        ("names", ["d"], "expected 2 names and a mixing of as many targets"),
        ("mixing", [[1.0, 0.0]], "expected 2 names and a mixing of as many targets"),
        ("noise", [[1.0]], r"mixings of shape \(2, 2\)"),
        ("laws", [], "expected laws of 2 targets"),
        ("centre", ["a", "b"], r"targets\.centre"),
    ],
)
def test_an_edited_file_is_refused(fitted, tmp_path, key, value, match):
    path = tmp_path / "model.safetensors"
    fitted[0].save(path)
    tensors, described = read_tensors(path)
    context = described["context"]
    if key is None:
        context["targets"] = None
    else:
        context["targets"][key] = value
    write_tensors(path, tensors, described)
    with pytest.raises(DataError, match=match):
        geogp.load_model(path)


def test_medians_have_a_column_for_each_target(fitted):
    model, _, (places, *_) = fitted
    law = model.predict_distribution(places[:5])
    median, sd = model.predict(places[:5], return_std=True)
    np.testing.assert_array_equal(median, law.median)
    np.testing.assert_array_equal(sd, law.sd)
    assert model.predict(places[:5]).shape == (5, 2)


def test_a_fit_of_one_target_after_several_forgets_them():
    places, _, y = world(60, 2)
    model = geogp.FieldGP(crs=None).fit(places, y).fit(places, y[:, 0])
    assert model.predict(places[:3]).shape == (3,)
    assert not hasattr(model, "several_")


@pytest.mark.parametrize("name", ["kernel", "grid", "plot", "features"])
def test_what_needs_one_target_says_so(fitted, name):
    model, (known, _), _ = fitted
    arguments = {"grid": ((0, 0, 1, 1),), "plot": (), "kernel": (known[:2], known[:2])}
    with pytest.raises(RequestError, match="expected an estimator of one target, found one of d"):
        getattr(model, name)(*arguments.get(name, (known[:2],)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: np.where(np.arange(60)[:, None] == 7, np.nan, y), "the first is row 7"),
        (lambda y: y[:59], "expected 60 rows of measurements"),
        (lambda y: np.where(y > 99, y, np.inf), "measurements y"),
        (lambda y: np.column_stack([y[:, 0], y[:, 0]]), "determine another"),
        (lambda y: pd.DataFrame(y, columns=["a", "a"]), "targets with different names"),
    ],
)
def test_wrong_targets_are_refused(change, message):
    places, _, y = world(60, 2)
    with pytest.raises(DataError, match=message):
        geogp.FieldGP(crs=None).fit(places, change(y))


def test_models_of_one_target_say_so():
    places, _, y = world(60, 2)
    with pytest.raises(RequestError, match="expected one target, because KernelGP fits one"):
        geogp.KernelGP(crs=None).fit(places, y)
    with pytest.raises(RequestError, match="expected one target with law, found several"):
        geogp.FieldGP(crs=None, law="positive").fit(places, np.abs(y))
