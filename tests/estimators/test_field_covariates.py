"""Covariates of the field model: what they add, what they need, and how they are kept."""

import numpy as np
import pytest
from estimator_worlds import TINY, made_points
from sklearn.base import clone

from geogp import DeepBasisGP, FieldGP, RequestError, load_model, split
from geogp.errors import DataError
from geogp.models.field.conditioning import information_in
from geogp.models.process.architecture import Architecture
from geogp.models.process.posteriors import posterior_of

PLAIN = {"x": "east", "y": "north", "crs": None}
SLOPE = 0.5


@pytest.fixture(scope="module")
def points():
    """Points whose values rise with a covariate that varies from place to place."""
    table = made_points(2400)
    height = np.random.default_rng(5).normal(200, 40, len(table))
    return table.assign(height=height, value=table.value + SLOPE * (height - 200) / 40)


@pytest.fixture(scope="module")
def parts(points):
    return split(points, how="blocks", x="east", y="north", time="date")


@pytest.fixture(scope="module")
def fitted(parts):
    train, _ = parts
    model = FieldGP(**PLAIN, time="date", covariates=["height"], epochs=4)
    return model.fit(train, train.value)


def test_the_coefficient_of_a_covariate_is_found(fitted):
    found = fitted.coefficients_.loc["height"]
    assert found["mean"] == pytest.approx(SLOPE, abs=0.04)
    assert 0 < found["sd"] < 0.1


def test_the_closed_form_finds_it_too(fitted):
    """Given the basis, the weights have a posterior in closed form, with its own coefficient."""
    network = fitted.network_
    m, L = posterior_of(information_in(network.parameters, network.rows))
    scale = float(network.y_sd) * float(network.parameters.basis.log_scale.detach().exp())
    assert scale * float(m.detach()[-1]) == pytest.approx(SLOPE, abs=0.04)
    own = fitted.coefficients_.loc["height", "sd"]
    assert scale * float(L.detach()[-1].norm()) == pytest.approx(own, rel=0.5)


def test_held_out_blocks_are_predicted_better_with_the_covariate(fitted, parts):
    train, test = parts
    without = FieldGP(**PLAIN, time="date", epochs=4).fit(train, train.value)
    gain = fitted.score(test, test.value) - without.score(test, test.value)
    assert gain > 0.3
    lower, upper = fitted.predict_distribution(test).interval(0.95)
    assert 0.9 < np.mean((test.value > lower) & (test.value < upper)) < 0.99


def test_a_covariate_beyond_four_standard_deviations_counts_as_four(fitted, points):
    scale = fitted.scale_.covariates[0]
    far, farther = (
        points[:5].assign(height=scale.mean + times * scale.sd) for times in (4.0, 40.0)
    )
    assert fitted.predict(far) == pytest.approx(fitted.predict(farther))


def test_a_saved_model_keeps_its_covariates(fitted, parts, tmp_path):
    _, test = parts
    fitted.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert again.covariates == ["height"]
    assert again.coefficients_.equals(fitted.coefficients_)
    assert (again.predict(test) == fitted.predict(test)).all()
    assert clone(again).get_params() == again.get_params()


def test_the_joint_level_of_places_contains_the_uncertainty_of_the_coefficient(fitted, points):
    here = points[:40].assign(date=points.date.max())
    scale = fitted.scale_.covariates[0]
    low, high = (here.assign(height=scale.mean + times * scale.sd) for times in (0.0, 4.0))
    mean = np.full(len(here), 1 / len(here))
    one, other = (fitted.joint(table).weighted_sums(mean) for table in (low, high))
    coefficient = fitted.coefficients_.loc["height"]
    assert other.mean[0] - one.mean[0] == pytest.approx(4 * coefficient["mean"], rel=0.1)
    assert other.sd[0] ** 2 - one.sd[0] ** 2 > 0


def test_a_grid_asks_for_the_covariate_at_its_cells(fitted):
    how = {"time": "2024-06-01", "resolution": 10.0}
    grid = fitted.grid((0, 0, 100, 60), covariates={"height": lambda x, y: 200 + x - y}, **how)
    flat = fitted.grid((0, 0, 100, 60), covariates={"height": lambda x, _: 200 + 0 * x}, **how)
    x, y = np.meshgrid(grid.x, grid.y)
    sd = fitted.scale_.covariates[0].sd
    expected = fitted.coefficients_.loc["height", "mean"] * (x - y) / sd
    assert (grid["mean"] - flat["mean"]).to_numpy() == pytest.approx(expected, abs=0.1)
    with pytest.raises(RequestError, match="expected covariates= with a function for height"):
        fitted.grid((0, 0, 100, 60), **how)


def test_a_constant_covariate_is_not_used(points):
    table = points[:1100].assign(same=3.0)
    with pytest.warns(UserWarning, match="the same value in all .* rows are not used: same"):
        model = FieldGP(**PLAIN, **TINY, covariates=["same", "height"]).fit(table, table.value)
    assert list(model.coefficients_.index) == ["height"]
    assert np.isfinite(model.predict(table[:5])).all()


def test_tables_that_lack_a_covariate_are_refused(fitted, points):
    with pytest.raises(RequestError, match="expected a column 'height'"):
        fitted.predict(points.drop(columns="height"))
    with pytest.raises(DataError, match="expected finite numbers in the column height"):
        fitted.predict(points.assign(height=np.nan))
    model = FieldGP(**PLAIN, **TINY, covariates=["height"])
    with pytest.raises(RequestError, match="expected a table with the columns height"):
        model.fit(points[["east", "north"]].to_numpy(), points.value)


@pytest.mark.parametrize("given", ["height", ["height", "height"], [1]])
def test_covariates_are_a_list_of_different_columns(points, given):
    with pytest.raises(RequestError, match="expected covariates as a list"):
        FieldGP(**PLAIN, **TINY, covariates=given).fit(points, points.value)


def test_other_models_have_no_covariates():
    with pytest.raises(TypeError, match="covariates"):
        DeepBasisGP("dbk-silu", covariates=["height"])


def test_covariates_are_the_last_columns():
    with pytest.raises(RequestError, match=r"covariates \['h'\] as the last of the columns"):
        Architecture(d=3, columns=("h", "x", "y"), covariates=("h",))
