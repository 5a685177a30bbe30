"""Gradients written by hand, against differences and against those of the library."""

import pytest
import torch

from geogp.models.core.elementwise import FLOORS, exponential_
from geogp.models.field.tile_process import SAME_TILE_KM, TileProcess
from geogp.models.field.vecchia import whiten


def _points(n, seed) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    places = torch.rand(n, 3, generator=random, dtype=torch.float64)
    return places * torch.tensor([4.0, 4.0, 6.0], dtype=torch.float64)


def _written_out(process, a, b) -> torch.Tensor:
    """Return the kernel from its docstring, differentiated by the library."""
    s, ranges, m = (
        value.double().exp()
        for value in (process.log_sills, process.log_ranges, process.log_memories)
    )
    h = (a[..., :, None, :2] - b[..., None, :, :2]).norm(dim=-1)
    t = (a[..., :, None, 2] - b[..., None, :, 2]).abs()
    own = s[2] + s[3] * torch.exp(-t / m[1])
    shared = s[0] * torch.exp(-h / ranges[0]) + s[1] * torch.exp(-h / ranges[1] - t / m[0])
    return shared + (h < SAME_TILE_KM) * own


@pytest.mark.parametrize("shape", [(7, 9), (3, 7, 9), (1, 1)])
def test_the_tile_process(shape):
    process = TileProcess(2, torch.float64)
    *batch, m, n = shape
    a, b = (_points(k, seed).expand(*batch, k, 3) for seed, k in enumerate((m, n)))
    b = b.clone()
    b[..., 0, :2] = a[..., 0, :2]
    weights = torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found, expected = process(a, b), _written_out(process, a, b)
    torch.testing.assert_close(found, expected)
    parameters = (process.log_sills, process.log_ranges, process.log_memories)
    ours = torch.autograd.grad((found * weights).sum(), parameters)
    theirs = torch.autograd.grad((expected * weights).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_whitening():
    random = torch.Generator().manual_seed(0)
    root = torch.randn(3, 5, 7, generator=random, dtype=torch.float64, requires_grad=True)
    values = torch.randn(3, 5, 2, generator=random, dtype=torch.float64, requires_grad=True)
    known = torch.ones(3, 5, dtype=torch.bool)
    known[1, 3:] = False

    noise = torch.rand(3, 5, generator=random, dtype=torch.float64, requires_grad=True)

    def both(root, noise, values) -> tuple[torch.Tensor, torch.Tensor]:
        return whiten(root @ root.mT, noise, known, values)

    assert torch.autograd.gradcheck(both, (root, noise, values))
    L, white = both(root, noise, values)
    padded = L[1, 3:], white[1, 3:]
    torch.testing.assert_close(padded, (torch.eye(5, dtype=torch.float64)[3:], 0 * white[1, 3:]))
    kept = (root @ root.mT + torch.diag_embed(noise))[1, :3, :3]
    torch.testing.assert_close(L[1, :3, :3] @ L[1, :3, :3].mT, kept)
    torch.testing.assert_close(L[1, :3, :3] @ white[1, :3], values[1, :3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_are_normal_numbers(dtype, device):
    exponents = torch.tensor([1.0, -3.0, -60.0, -1e4, -torch.inf, torch.nan], dtype=dtype)
    expected = exponents.clone().exp()
    found = exponential_(exponents.to(device)).cpu()
    torch.testing.assert_close(found[:3], expected[:3])
    assert torch.finfo(dtype).tiny < found[3] == found[4] < 1e-36
    assert found[5].isnan()
    assert found[4].log().item() == pytest.approx(FLOORS[dtype], rel=1e-6)
