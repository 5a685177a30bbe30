"""Features of inducing points and their backward pass, against the plain formula."""

import numpy as np
import pytest
import torch
from torch import Tensor

from geogp.errors import NumericalError
from geogp.models.numerics import products
from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.process.rbf import rbf_features

DIMENSIONS = [2, 20]
"""On either side of the width at which products are taken another way."""


def _plain(
    rows: Tensor, anchors: Tensor, log_lengthscale: Tensor, log_variance: Tensor, jitter: float
) -> tuple[Tensor, Tensor]:
    """The textbook's features, differentiated by PyTorch, in float64."""
    Z, X = (part.double() / log_lengthscale.double().exp() for part in (anchors, rows))

    def kernel(A: Tensor, B: Tensor) -> Tensor:
        square = (A[:, None] - B[None]).square().sum(-1)
        return log_variance.double().exp() * torch.exp(-0.5 * square)

    Lz, _ = jittered_cholesky(kernel(Z, Z), jitter)
    phi = torch.linalg.solve_triangular(Lz, kernel(Z, X), upper=False).T
    return phi, phi.square().sum(1)


def _inputs(h: int, *, r: int = 21, b: int = 33, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(h)
    made = [
        torch.randn(b, h, generator=generator, dtype=torch.float64),
        torch.randn(r, h, generator=generator, dtype=torch.float64),
        0.5 * np.log(h) + 0.2 * torch.randn(h, generator=generator, dtype=torch.float64),
        torch.tensor(0.3, dtype=torch.float64),
    ]
    return [value.to(device).requires_grad_() for value in made]


def _gradients(function, inputs: list[Tensor], jitter: float) -> list[Tensor]:
    """Return gradients of a loss that depends on all of phi and of its norms."""
    phi, norm = function(*inputs, jitter)
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(phi.shape, generator=generator, dtype=torch.float64).to(phi)
    loss = (
        (weights * phi).sum() + (phi**2 @ weights[0].square()).sum() + (weights[:, 0] * norm).sum()
    )
    return list(torch.autograd.grad(loss, inputs))


@pytest.mark.parametrize("block", [8, 192])
@pytest.mark.parametrize("h", DIMENSIONS)
def test_values_and_gradients_against_the_plain_formula(h, block, device, monkeypatch):
    monkeypatch.setattr(products, "BLOCK", block)
    inputs = _inputs(h, device=device)
    found, expected = rbf_features(*inputs, 1e-4), _plain(*inputs, 1e-4)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
    pairs = zip(
        _gradients(rbf_features, inputs, 1e-4), _gradients(_plain, inputs, 1e-4), strict=True
    )
    for one, other in pairs:
        assert other.abs().max() > 1e-3
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9 * float(other.abs().max()))


@pytest.mark.parametrize("h", DIMENSIONS)
def test_gradients_against_finite_differences(h):
    inputs = _inputs(h, r=4, b=3)
    assert torch.autograd.gradcheck(lambda *given: rbf_features(*given, 1e-2), inputs, atol=1e-6)


def test_gradients_where_the_jitter_was_raised(device, caplog):
    inputs = _inputs(2, device=device)
    with torch.no_grad():
        inputs[1][11:] = inputs[1][:10].clone()  # ten points twice
    found = _gradients(rbf_features, inputs, 0.0)
    assert "jitter raised" in caplog.text
    expected = _gradients(_plain, inputs, 0.0)
    for one, other in zip(found, expected, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def test_what_does_not_factorise_is_refused():
    inputs = _inputs(2)
    with torch.no_grad():
        inputs[3].fill_(float("nan"))
    with pytest.raises(NumericalError, match="not finite"):
        rbf_features(*inputs, 1e-4)


@pytest.mark.parametrize("h", DIMENSIONS)
@pytest.mark.parametrize("lengthscale", [0.03, 0.3, 3.0])
def test_float32_is_near_float64(h, lengthscale, device):
    exact = _inputs(h, r=60, b=80, device=device)
    with torch.no_grad():
        for value in exact:
            value.copy_(value.float())
        exact[2].fill_(np.log(np.float32(lengthscale * np.sqrt(h / 2))))
        exact[2].copy_(exact[2].float())
    rough = [value.detach().float().requires_grad_() for value in exact]
    (phi, norm), (expected, expected_norm) = (rbf_features(*v, 1e-4) for v in (rough, exact))
    assert phi.dtype == torch.float32
    assert norm.dtype == torch.float64
    torch.testing.assert_close(norm, expected_norm, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(phi, expected.float(), rtol=1e-6, atol=1e-7)
    found, wanted = (_gradients(rbf_features, v, 1e-4) for v in (rough, exact))
    for one, other in zip(found, wanted, strict=True):
        gap = (one.double() - other).norm()
        assert gap <= 5e-3 * other.norm() + 1e-12


@pytest.mark.parametrize("h", DIMENSIONS)
def test_float32_among_close_points_with_little_jitter(h, device):
    exact = _inputs(h, r=60, b=80, device=device)
    with torch.no_grad():
        for value in exact:
            value.copy_(value.float())
    rough = [value.detach().float().requires_grad_() for value in exact]
    found, wanted = (_gradients(rbf_features, v, 1e-6) for v in (rough, exact))
    for one, other in zip(found[:3], wanted[:3], strict=True):
        assert (one.double() - other).norm() <= 3e-2 * other.norm()
    # That by the variance is ½ Σ g∘φ: nothing in it cancels but the sum itself.
    torch.testing.assert_close(found[3].double(), wanted[3], rtol=1e-3, atol=1e-3)


def test_rows_that_take_no_gradient_get_none():
    inputs = _inputs(2)
    rows = inputs[0].detach()
    phi, norm = rbf_features(rows, *inputs[1:], 1e-4)
    (phi.sum() + norm.sum()).backward()
    assert rows.grad is None
    assert all(torch.isfinite(value.grad).all() for value in inputs[1:])


@pytest.mark.parametrize("which", [0, 1])
def test_one_output_alone_has_its_gradient(which):
    inputs = _inputs(2)
    found = torch.autograd.grad(rbf_features(*inputs, 1e-4)[which].sum(), inputs)
    expected = torch.autograd.grad(_plain(*inputs, 1e-4)[which].sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9 * float(other.abs().max()))
