"""What the diagonal laws and the noise laws add, by hand and against scikit-learn."""

import numpy as np
import pytest
import torch
from torch import Tensor

from geogp.models.process.basis_functions import Features
from geogp.models.process.diagonals import Diagonal, NystromDiagonal, VarianceCorrection
from geogp.models.process.noise import NOISE_FLOOR, ConstantNoise, ValidationNoise


def _features(rows: np.ndarray, residual: np.ndarray | None = None) -> Features:
    norm = (rows**2).sum(1)
    parts = (rows, norm, np.zeros(len(rows)) if residual is None else residual)
    return Features(*(torch.from_numpy(part) for part in parts))


@pytest.fixture
def seen() -> np.ndarray:
    """Rows of features with the squared norms 0.25, 4 and 1."""
    return np.array([[0.5, 0.0], [0.0, -2.0], [0.6, 0.8]])


class TestVarianceCorrection:
    @pytest.fixture
    def law(self, seen) -> VarianceCorrection:
        law = VarianceCorrection()
        law.update_closed_forms([_features(seen[:2]), _features(seen[2:])])
        return law

    def test_it_lifts_the_training_rows_to_their_largest_variance(self, law, seen):
        found = law(_features(seen))
        np.testing.assert_allclose(found, [3.75, 0, 3], rtol=1e-14)
        np.testing.assert_allclose(found + _features(seen).norm, 4, rtol=1e-14)

    def test_a_point_beyond_the_training_maximum_gets_nothing(self, law):
        x = _features(np.array([[2.0, 0.1], [30.0, 0.0], [1.9, 0.0]]))
        np.testing.assert_allclose(law(x), [0, 0, 4 - 1.9**2], atol=1e-14)

    def test_it_is_never_negative(self, law):
        rows = 2 * np.random.default_rng(0).standard_normal((500, 2))
        found, norm = law(_features(rows)).numpy(), (rows**2).sum(1)
        np.testing.assert_allclose(found, np.clip(4 - norm, 0, None), atol=1e-12)
        assert 0.2 < np.mean(found == 0) < 0.8  # both sides of the maximum are here

    @pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 0, 1]])
    def test_the_maximum_may_stand_in_any_chunk(self, seen, order):
        law = VarianceCorrection()
        law.update_closed_forms(_features(seen[[row]]) for row in order)
        assert law.largest.item() == 4

    def test_it_forgets_the_rows_it_saw_before(self, law, seen):
        # The features shrink as the network learns; the old maximum must not stay.
        law.update_closed_forms([_features(0.1 * seen)])
        np.testing.assert_allclose(law(_features(0.1 * seen)), [0.0375, 0, 0.03], rtol=1e-12)

    def test_it_adds_nothing_before_it_has_seen_rows(self, seen):
        np.testing.assert_array_equal(VarianceCorrection()(_features(seen)), np.zeros(3))

    def test_single_precision_rounds_no_variance_below_zero(self, seen):
        law = VarianceCorrection()
        rows = torch.from_numpy(seen * np.pi).float()
        norm = (rows**2).sum(1)
        features = Features(rows, norm, torch.zeros(3))
        law.update_closed_forms([features])
        assert law(features).min() == 0
        assert law(features).dtype == torch.float64


def test_the_nystroem_law_is_what_the_inducing_points_miss(make_basis, nystroem):
    random = np.random.default_rng(1)
    Z, x = random.uniform(-1, 1, (7, 2)), random.uniform(-1.5, 1.5, (40, 2))
    hyper = {"lengthscale": np.array([0.4, 0.7]), "variance": 1.3, "jitter": 1e-6}
    law = NystromDiagonal()
    with torch.no_grad():
        features = make_basis(Z, **hyper)(torch.from_numpy(x))
        law.update_closed_forms([features])  # needs none of it
        found = law(features).numpy()
    np.testing.assert_allclose(found, 1.3 - np.diag(nystroem(x, x, Z, **hyper)), atol=1e-9)
    assert found.max() > 0.5


def test_the_plain_law_adds_nothing_whatever_the_features_say(seen):
    law = Diagonal()
    features = _features(seen, residual=np.array([0.1, 0.2, 0.3]))
    law.update_closed_forms([features])
    np.testing.assert_array_equal(law(features), np.zeros(3))
    np.testing.assert_array_equal(NystromDiagonal()(features), [0.1, 0.2, 0.3])


class TestValidationNoise:
    @pytest.fixture
    def errors(self) -> Tensor:
        return torch.from_numpy(np.random.default_rng(2).chisquare(1, 23))

    @pytest.mark.parametrize("chunk", [1, 5, 23])
    def test_it_is_the_mean_over_rows_and_not_over_chunks(self, errors, chunk):
        noise = ValidationNoise(torch.float64)
        noise.update_closed_forms(errors.split(chunk))
        assert noise().item() == pytest.approx(np.mean(errors.numpy()), rel=1e-12)

    def test_chunks_of_unequal_length_weigh_by_their_rows(self):
        noise = ValidationNoise(torch.float64)
        noise.update_closed_forms(
            iter([torch.tensor([1.0, 1.0, 1.0]).double(), torch.tensor([5.0]).double()])
        )
        assert noise().item() == 2

    def test_it_stops_at_the_floor(self):
        noise = ValidationNoise(torch.float64)
        noise.update_closed_forms([torch.full((9,), 1e-9, dtype=torch.float64)])
        assert noise().item() == NOISE_FLOOR == 1e-6

    def test_it_forgets_the_errors_it_saw_before(self, errors):
        noise = ValidationNoise(torch.float64)
        noise.update_closed_forms([100 * errors])
        noise.update_closed_forms([errors])
        assert noise().item() == pytest.approx(errors.mean().item(), rel=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_it_is_the_start_until_it_is_known_and_keeps_its_dtype(self, errors, dtype):
        noise = ValidationNoise(dtype, 0.25)
        assert noise().item() == 0.25
        noise.update_closed_forms([errors.to(dtype)])
        assert noise().dtype == dtype
        assert not list(noise.parameters())  # no gradient moves it

    def test_a_constant_noise_learns_by_its_gradient_only(self, errors):
        noise = ConstantNoise(torch.float64, start=0.3)
        noise.update_closed_forms([errors])
        assert noise().item() == pytest.approx(0.3, rel=1e-12)
