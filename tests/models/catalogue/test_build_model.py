"""One contract for every row of the catalogue."""

import logging
import re

import numpy as np
import pytest
import torch

from geogp.errors import DataError, RequestError
from geogp.models.catalogue.build import build, find_spec
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import PerBatch, WholeData
from geogp.models.options import Weights
from geogp.models.papers.last_layers.regression import LastLayerFit, LastLayerPosterior
from geogp.models.papers.last_layers.tangents import LastLayerBasis
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import (
    DenseBasis,
    FourierBasis,
    InducingBasis,
    NetworkBasis,
    SplineBasis,
)
from geogp.models.process.data import Data
from geogp.models.process.diagonals import (
    Diagonal,
    NystromDiagonal,
    PredictiveDiagonal,
    VarianceCorrection,
)
from geogp.models.process.noise import ConstantNoise, ValidationNoise
from geogp.models.process.posteriors import (
    ClosedFormPosterior,
    PointPosterior,
    VariationalPosterior,
)
from geogp.models.process.rows import Rows

SIZES = Architecture(d=2, h=6, r=8, blocks=1)

PARTS = {
    "dbk-rbf": (InducingBasis, VariationalPosterior, "dppgp", Diagonal),
    "dbk-silu": (DenseBasis, VariationalPosterior, "dppgp", Diagonal),
    "dbk-fourier": (FourierBasis, VariationalPosterior, "dppgp", Diagonal),
    "dbk-spline": (SplineBasis, VariationalPosterior, "dppgp", Diagonal),
    "pp-dkl": (InducingBasis, VariationalPosterior, "ppgp", NystromDiagonal),
    "sv-dkl": (InducingBasis, VariationalPosterior, "elbo", NystromDiagonal),
    "sv-rbf": (InducingBasis, VariationalPosterior, "elbo", NystromDiagonal),
    "sv-dbk": (DenseBasis, VariationalPosterior, "corrected_elbo", VarianceCorrection),
    "vbll": (DenseBasis, VariationalPosterior, "elbo", Diagonal),
    "dbk-exact": (
        DenseBasis,
        ClosedFormPosterior,
        "corrected_log_marginal_likelihood",
        VarianceCorrection,
    ),
    "dbk-exact-rbf": (
        InducingBasis,
        ClosedFormPosterior,
        "corrected_log_marginal_likelihood",
        VarianceCorrection,
    ),
    "dbk-mml": (DenseBasis, ClosedFormPosterior, "log_marginal_likelihood", Diagonal),
    "sgp": (InducingBasis, ClosedFormPosterior, "collapsed_bound", PredictiveDiagonal),
    "sdkl": (InducingBasis, ClosedFormPosterior, "collapsed_bound", PredictiveDiagonal),
    "dnn": (NetworkBasis, PointPosterior, "squared_error", Diagonal),
    "bll": (LastLayerBasis, LastLayerPosterior, "squared_error", Diagonal),
    "rich-bll": (LastLayerBasis, LastLayerPosterior, "squared_error", Diagonal),
}
"""The rows as the papers define them, written down a second time."""

INDUCING = sorted(name for name, parts in PARTS.items() if parts[0] is InducingBasis)


PAPERS = sorted(PARTS)
"""The models of the deep-basis papers; the others have tests of their own."""


@pytest.fixture(params=PAPERS)
def name(request) -> str:
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("placement", ["kmeans", "farthest", "uniform"])
def test_learns_and_predicts(
    *, name, dtype, placement, device, train, validation, with_settings, caplog
):
    sizes = Architecture(d=2, h=6, r=8, blocks=1, dtype=dtype)
    made = build(name, sizes, torch.from_numpy(train.x), placement=placement)
    model = made.to(device)
    with caplog.at_level(logging.WARNING):
        _, state = fit(model, train, validation, with_settings(epochs=2))
    assert not caplog.records
    prediction = model.predict(validation.x)
    assert len(prediction) == 60
    assert prediction.function_variance.min() >= 0
    assert prediction.noise_variance.min() > 0
    assert state.losses[1] < state.losses[0]
    assert state.epoch == 2


def test_every_parameter_has_a_finite_gradient(name, train, make_model):
    model = make_model(name)
    x, y = torch.from_numpy(train.x).float(), torch.from_numpy(train.y).float()
    with torch.no_grad():
        model.posterior.m.fill_(0.1)
    loss = CATALOGUE[name].fit(model).backward(Rows(x, y, torch.ones(len(y), 2)), len(y), Weights())
    assert torch.isfinite(loss)
    for key, value in model.named_parameters():
        assert value.grad is not None, key
        assert torch.isfinite(value.grad).all(), key
        assert value.grad.any(), key


DRAWN = re.compile(
    r"posterior\.lower|basis\.anchors|basis\.scale"
    r"|basis\.backbone\.(weights\.\d|biases\.0)"
    r"|basis\.(backbone\.project|expand|backbone\.blocks\.\d\.[13])\.(weight|bias)"
)
"""Tensors that start at random; all others start at stated values."""


def test_a_seed_fixes_the_start_and_leaves_the_global_one(name, make_model):
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    first = make_model(name, seed=4).state_dict()
    assert torch.equal(torch.rand(3), expected)
    again, other = make_model(name, seed=4).state_dict(), make_model(name, seed=5).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    drawn = {key for key in first if DRAWN.fullmatch(key)}
    assert {key for key in first if not torch.equal(first[key], other[key])} == drawn
    assert drawn


@pytest.mark.parametrize("name", INDUCING)
def test_inducing_points_start_where_the_rows_are(name, train):
    """Rows in a corner: the points lie on them, seen through the network if there is one."""
    corner = torch.from_numpy(0.9 + 0.05 * train.x).float()
    model = build(name, SIZES, corner, seed=1)
    places = model.basis.anchors
    seen = corner if model.basis.backbone is None else model.basis.backbone(corner)
    low, high = seen.min(0).values - 1e-3, seen.max(0).values + 1e-3
    assert ((places >= low) & (places <= high)).all()


@pytest.mark.parametrize("name", sorted(set(PAPERS) - set(INDUCING)))
def test_without_inducing_points_the_start_does_not_see_the_rows(name, train):
    first, other = (
        build(name, SIZES, rows, seed=1).state_dict() for rows in (train.x, 0.9 + 0.05 * train.x)
    )
    assert all(torch.equal(first[key], other[key]) for key in first)


def test_names_say_what_they_are():
    assert next(iter(CATALOGUE)) == "field"
    assert set(PARTS) < set(CATALOGUE)
    for name, spec in CATALOGUE.items():
        assert spec.name == name
        assert find_spec(name) is spec
        assert spec.about.summary


@pytest.mark.parametrize("row", sorted(CATALOGUE))
def test_fitted_models_are_what_is_said_of_their_names(row, make_model, make_data, with_settings):
    rows, about = make_data(60), find_spec(row).about
    counts = Data(rows.x, np.round(np.square(rows.y)))
    model, _ = fit(make_model(row), counts, counts, with_settings(epochs=1))
    assert model.holds_rows == about.has_tiles
    assert model.has_level == (not about.counts)


def test_rows_have_the_parts_of_the_papers(name):
    basis, posterior, objective, diagonal = PARTS[name]
    model = build(name, SIZES, None)
    steps = model.make_fit(model)
    assert type(model.basis) is basis
    assert type(model.posterior) is posterior
    about = find_spec(name).about
    assert about.has_spread == (posterior is not PointPosterior)
    assert type(model.diagonal) is diagonal
    by_errors = objective == "squared_error"
    assert type(model.noise) is (ValidationNoise if by_errors else ConstantNoise)
    assert steps.objective.__name__ == objective
    kinds = {ClosedFormPosterior: WholeData, LastLayerPosterior: LastLayerFit}
    assert type(steps) is kinds.get(posterior, PerBatch)
    assert about.spread_is_noise == ("ppgp" in objective)
    assert about.uses == {"dppgp": ("alpha", "beta"), "ppgp": ("beta",)}.get(objective, ())
    has_network = getattr(model.basis, "backbone", None) is not None
    assert has_network == (name not in {"sv-rbf", "sgp"})


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("dbk-rfb", "dbk-rbf"),
        ("sv-dk", "sv-dkl"),
        ("svrbf", "sv-rbf"),
        ("§§§", ", ".join(CATALOGUE)),
    ],
)
def test_unknown_names_are_answered_with_near_ones(wrong, nearest):
    with pytest.raises(RequestError, match=rf"unknown model '{wrong}'\. Nearest: {nearest}"):
        build(wrong, Architecture(d=2), None)


class TestConstantColumns:
    SIZES = Architecture(d=3, h=6, r=8, blocks=1, columns=("a", "b", "c"))

    @pytest.fixture
    def with_constant(self, train, validation) -> tuple[Data, Data]:
        """The rows of the others with a second column in between that says nothing."""
        return tuple(
            Data(np.insert(data.x, 1, 0.4, axis=1), data.y) for data in (train, validation)
        )

    def test_are_dropped_with_a_warning_and_named_in_the_file(
        self, *, name, train, validation, with_constant, with_settings, tmp_path
    ):
        with pytest.warns(UserWarning, match=r"the same value in all 190 .* not used: b\.$"):
            model = build(name, self.SIZES, with_constant[0].x)
        assert model.architecture.dropped == ("b",)
        assert model.architecture.columns == ("a", "b", "c")
        fit(model, *with_constant, with_settings(epochs=2))
        save_model(model, tmp_path / "m")
        loaded, _ = load_model(tmp_path / "m")
        assert loaded.architecture == model.architecture
        x = with_constant[1].x.copy()
        found = loaded.predict(x)
        np.testing.assert_array_equal(found.mean, model.predict(x).mean)
        x[:, 1] = np.linspace(-50, 50, len(x))
        moved = loaded.predict(x)
        np.testing.assert_array_equal(moved.mean, found.mean)
        np.testing.assert_array_equal(moved.variance, found.variance)
        with pytest.raises(DataError, match=r"shape \(n, 3\)"):
            loaded.predict(validation.x)
        # The model is that of the columns that are left.
        plain = build(name, SIZES, train.x)
        fit(plain, train, validation, with_settings(epochs=2))
        expected = plain.predict(validation.x)
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.variance, expected.variance)

    def test_all_of_them_constant_is_refused(self, name):
        x = np.tile([0.5, 0.0, -3.0], (20, 1))
        message = r"columns that are used \(a, b, c\) has the same value in all 20 training rows"
        with pytest.raises(DataError, match=message):
            build(name, self.SIZES, x)

    def test_columns_without_names_are_counted(self, train):
        x = np.hstack([np.ones((190, 1)), train.x, np.zeros((190, 1))])
        with pytest.warns(UserWarning, match=r"not used: x0, x3\.$"):
            model = build("sv-rbf", Architecture(d=4, r=8), x)
        assert model.architecture.used == (1, 2)
        np.testing.assert_allclose(model.scaled(x), train.x, rtol=1e-6, atol=1e-7)


def test_fewer_rows_than_weights_are_told_and_can_be_fitted(
    name, make_data, validation, with_settings
):
    few = make_data(5)
    weights = build(name, SIZES, None).basis.rank
    with pytest.warns(UserWarning, match=f"5 training rows for {weights} weights"):
        model = build(name, SIZES, few.x)
    assert fit(model, few, validation, with_settings(epochs=2))[1].epoch == 2


def test_as_many_rows_as_weights_are_enough(make_data):
    model = build("sv-rbf", SIZES, make_data(8).x)  # warnings are errors
    assert model.basis.rank == 8


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((1, 2)), r"\(n, 2\) with n >= 2, found \(1, 2\)"),
        (np.zeros((0, 2)), r"found \(0, 2\)"),
        (np.zeros((9, 3)), r"found \(9, 3\)"),
        (np.zeros(9), r"found \(9,\)"),
        (np.array([[0.0, np.nan], [1, 2]]), "expected finite inputs, found .* 1 of 4 places"),
        (np.array([[0.0, 1], [np.inf, -np.inf]]), "expected finite inputs, found .* 2 of 4"),
    ],
)
def test_refused_training_inputs(name, x, message):
    with pytest.raises(DataError, match=message):
        build(name, SIZES, x)


class TestScaling:
    @pytest.fixture
    def raw(self, train, validation) -> tuple[Data, Data]:
        """The rows in another unit for each column."""
        return tuple(
            Data(data.x * [300.0, -0.01] + [5000.0, 7.0], data.y) for data in (train, validation)
        )

    def test_minmax_maps_the_range_of_the_training_rows(self, raw):
        sizes = Architecture(d=2, h=6, r=8, blocks=1, dtype="float64")
        x = raw[0].x
        model = build("dbk-rbf", sizes, x, scaling="minmax")
        scaled = model.scaled(x).numpy()
        np.testing.assert_allclose(scaled.min(0), -1, rtol=1e-12)
        np.testing.assert_allclose(scaled.max(0), 1, rtol=1e-12)
        outside = np.array([1.5 * x.max(0) - 0.5 * x.min(0), (x.min(0) + x.max(0)) / 2])
        np.testing.assert_allclose(model.scaled(outside), [[2, 2], [0, 0]], atol=1e-9)

    def test_none_leaves_the_inputs_alone(self, train):
        sizes = Architecture(d=2, h=6, r=8, blocks=1, dtype="float64")
        model = build("dbk-rbf", sizes, train.x)
        np.testing.assert_allclose(model.scaled(3 * train.x), 3 * train.x, rtol=0, atol=1e-15)

    def test_minmax_is_scaling_by_hand(self, name, raw, with_settings):
        sizes = Architecture(d=2, h=6, r=8, blocks=1, dtype="float64")
        low, high = raw[0].x.min(0), raw[0].x.max(0)
        by_hand = [Data(2 * (data.x - low) / (high - low) - 1, data.y) for data in raw]
        inside = build(name, sizes, raw[0].x, scaling="minmax")
        outside = build(name, sizes, by_hand[0].x, scaling="none")
        settings = with_settings(epochs=2)
        _, state = fit(inside, *raw, settings)
        _, expected_state = fit(outside, *by_hand, settings)
        assert state.losses == pytest.approx(expected_state.losses, rel=1e-8)
        found, expected = inside.predict(raw[1].x), outside.predict(by_hand[1].x)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6)


def test_a_scaling_or_placement_of_another_name_is_refused(train):
    with pytest.raises(RequestError, match="unknown scaling 'MinMax'; choose one of none, minmax"):
        build("dnn", SIZES, train.x, scaling="MinMax")
    with pytest.raises(RequestError, match="unknown placement 'k-means'; choose one of kmeans"):
        build("dbk-rbf", SIZES, train.x, placement="k-means")


def test_inputs_far_outside_are_refused_unless_scaled(name, train):
    with pytest.raises(
        DataError, match=r"roughly in \[-1, 1\], found values up to .*scaling='minmax'"
    ):
        build(name, SIZES, 1e5 * train.x)
    build(name, SIZES, 1e5 * train.x, scaling="minmax")


def test_columns_dropped_by_the_user_stay_dropped(train):
    sizes = Architecture(d=3, h=6, r=8, columns=("a", "b", "c"), dropped=("b",))
    x = np.hstack([train.x, np.ones((190, 1))])
    with pytest.warns(UserWarning, match="not used: c"):
        model = build("sv-rbf", sizes, x)
    assert model.architecture.dropped == ("b", "c")


@pytest.mark.parametrize("start", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_must_start_above_its_floor(start, train):
    with pytest.raises(RequestError, match="starting noise above 1e-06"):
        build("dbk-rbf", SIZES, train.x, noise_start=start)


def test_noise_starts_where_it_is_told(name, train):
    model = build(name, SIZES, train.x, noise_start=0.4)
    assert model.noise().item() == pytest.approx(0.4, rel=1e-5)


def test_a_model_beyond_the_memory_is_refused_with_the_number():
    sizes = Architecture(d=2, h=10**9, r=10**9)
    with pytest.raises(RequestError, match=r"rank 1,000,000,000 and .* 12,000,000,000\.0 GB"):
        build("dbk-rbf", sizes, None)


def test_a_model_without_numbers_is_refused():
    model = build("dbk-rbf", SIZES, None).to("meta")
    for ask in (model.predict, model.features):
        with pytest.raises(
            RequestError, match=r"on the device meta.*Build or load the model on cpu"
        ):
            ask(np.zeros((3, 2)))
    with torch.device("meta"), pytest.raises(RequestError, match="device meta"):
        build("dbk-rbf", SIZES, None)
