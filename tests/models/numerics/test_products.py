"""Products with triangular matrices in blocks against whole ones, and exponentials."""

import pytest
import torch

from geogp.models.numerics import products
from geogp.models.numerics.elementwise import FLOORS, exponential_
from geogp.models.numerics.linalg import inverse_cholesky, jittered_inverse_cholesky


@pytest.fixture(params=[1, 4, 64])
def _blocks(request, monkeypatch) -> None:
    """Blocks of one column, of a size that leaves a rest, and one block."""
    monkeypatch.setattr(products, "BLOCK", request.param)


def _drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.usefixtures("_blocks")
class TestBlocks:
    def test_products_with_a_triangle(self, device):
        A, L = _drawn(7, 10).to(device), _drawn(10, 10, seed=1).tril().to(device)
        torch.testing.assert_close(products.times_lower(A, L), A @ L)
        torch.testing.assert_close(products.times_lower_transposed(A, L), A @ L.T)

    def test_products_of_columns_come_as_rows(self):
        A, L = _drawn(10, 7).T, _drawn(10, 10, seed=1).tril()
        assert A.stride(0) == 1
        for product in (products.times_lower, products.times_lower_transposed):
            assert product(A, L).is_contiguous()

    def test_lower_triangle_of_a_product(self, device):
        A, B = (_drawn(7, 10, seed=seed).to(device) for seed in (0, 1))
        torch.testing.assert_close(products.lower_of_product(A, B), (A.T @ B).tril())

    def test_lower_triangle_is_mirrored(self, device):
        A = _drawn(10, 10).to(device)
        expected = A.tril() + A.tril(-1).T
        torch.testing.assert_close(products.mirrored(A), expected)
        torch.testing.assert_close(A, expected)

    def test_congruence(self, device):
        root, L = (_drawn(10, 10, seed=seed).to(device) for seed in (0, 1))
        S, L = root + root.T, L.tril()
        found = products.congruence(S, L)
        torch.testing.assert_close(found, L.T @ S @ L)

    @pytest.mark.parametrize("r", [1, 3, 10, 13])
    def test_inverse_factor(self, r, device):
        root = _drawn(r, r + 2).to(device)
        K = root @ root.T
        expected = torch.linalg.inv(torch.linalg.cholesky(K))
        found, info = inverse_cholesky(K.clone())
        assert int(info) == 0
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
        assert found.is_contiguous()

    @pytest.mark.parametrize("at", [0, 5, 9])
    def test_a_matrix_without_a_factor_is_told(self, at):
        K = torch.eye(10, dtype=torch.float64)
        K[at, at] = -1
        assert int(inverse_cholesky(K)[1]) != 0

    def test_the_upper_triangle_does_not_count(self):
        root = _drawn(10, 12)
        K = root @ root.T
        (whole, _), (lower, _) = inverse_cholesky(K.clone()), inverse_cholesky(K.tril())
        torch.testing.assert_close(whole, lower, rtol=0, atol=0)


def test_the_jitter_is_raised_and_the_matrix_stays_as_it_was(caplog):
    K = torch.ones(5, 5, dtype=torch.float64)
    found, used = jittered_inverse_cholesky(K, 0.0)
    assert used > 0
    assert "raised" in caplog.text
    expected = torch.linalg.inv(torch.linalg.cholesky(K + used * torch.eye(5)))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(K, torch.ones(5, 5, dtype=torch.float64), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_are_normal_numbers(dtype, device):
    exponents = torch.tensor([1.0, -3.0, -60.0, -1e4, -torch.inf, torch.nan], dtype=dtype)
    expected = exponents.clone().exp()
    found = exponential_(exponents.to(device)).cpu()
    torch.testing.assert_close(found[:3], expected[:3])
    assert torch.finfo(dtype).tiny < found[3] == found[4] < 1e-36
    assert found[5].isnan()
    assert found[4].log().item() == pytest.approx(FLOORS[dtype], rel=1e-6)
