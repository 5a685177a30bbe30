"""Predictions by cached products, against features in float64."""

import math

import numpy as np
import pytest
import torch

from geogp.models.process import rbf_readers as readers
from geogp.models.process.rbf import Whitening
from geogp.models.process.rbf_readers import CachedReader, interpolation, product_error

SEARCHES = readers.searches


@pytest.fixture(autouse=True)
def search(monkeypatch) -> None:
    """Search for points also on a GPU, and for few rows."""
    monkeypatch.setattr(readers, "searches", lambda *_: True)


@pytest.fixture
def posterior() -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and factor of 200 weights: the first known well, the last not at all, as after a fit.

    Where the function is known, the standard deviation is small and so is no place to hide.
    """
    generator = torch.Generator().manual_seed(4)
    known = torch.where(torch.arange(200) < 100, 0.01, 1.0)
    return torch.randn(200, generator=generator), torch.diag(known)


@pytest.fixture
def make_white(device):
    """Factorise the kernel of 200 points in the square for a lengthscale and variance 1.7."""

    def make(lengthscale: float, jitter: float = 1e-4) -> Whitening:
        points = np.random.default_rng(0).uniform(-1, 1, (200, 2))
        anchors = torch.from_numpy(points).float().to(device)
        length = torch.full((2,), float(np.log(lengthscale)), device=device)
        return Whitening.of(anchors, length, torch.tensor(np.log(1.7), device=device), jitter)

    return make


@pytest.fixture
def rows(device) -> torch.Tensor:
    return (
        torch.from_numpy(np.random.default_rng(1).uniform(-1.2, 1.2, (300, 2))).float().to(device)
    )


def _exact(white, posterior, rows) -> tuple[torch.Tensor, torch.Tensor]:
    m, L = (part.double().to(rows.device) for part in posterior)
    phi = white.cross(rows.double() / white.lengthscale) @ white.inverse.T
    return phi @ m, (phi @ L).norm(dim=1)


def _errors(found, white, posterior, rows) -> tuple[float, float]:
    """Return the largest errors of mean and sd, over the prior sd."""
    mean, sd = _exact(white, posterior, rows)
    prior = float(white.variance.sqrt())
    gaps = (found[0] - mean).abs().max(), (found[1].sqrt() - sd).abs().max()
    return float(gaps[0]) / prior, float(gaps[1]) / prior


@pytest.mark.parametrize("lengthscale", [0.03, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("jitter", [1e-4, 1e-6])
def test_errors_are_a_small_part_of_the_prior(lengthscale, jitter, make_white, posterior, rows):
    white = make_white(lengthscale, jitter)
    of = tuple(part.to(rows.device) for part in posterior)
    read, many = (CachedReader(white, *of, rows=number) for number in (0, 100_000))
    in_blocks = rows.device.type == "cpu"
    assert (read.triangular, many.triangular) == (False, in_blocks)
    assert bool(many.factor[: len(white.Z)].triu(1).any()) is not in_blocks
    assert max(_errors(many(rows), white, posterior, rows)) < 1e-4
    found = read(rows)
    assert found.mean.dtype == found.variance.dtype == torch.float64
    assert max(_errors(found, white, posterior, rows)) < 1e-4


def test_without_the_interpolation_they_are_far_larger(make_white, posterior, rows):
    white = make_white(1.0, 1e-6)
    columns = white.inverse.T @ posterior[1].double().to(rows.device)
    kernel = white.cross(rows.double() / white.lengthscale)
    rough = (kernel.float() @ columns.float()).double()
    mean, _ = _exact(white, posterior, rows)
    error = _errors((mean, rough.square().sum(1)), white, posterior, rows)[1]
    assert error > 5e-5
    # What the choice goes by is the error of the whole product, within a factor.
    whole = float((rough - kernel @ columns).norm(dim=1).max())
    assert whole / 2 < product_error(white.Kzz, columns) < 4 * whole
    read = CachedReader(white, *(part.to(rows.device) for part in posterior), rows=0)
    assert len(read.chosen.points) > 0
    assert read.factor.dtype == torch.float32
    assert max(_errors(read(rows), white, posterior, rows)) < error / 5


def test_the_kernel_is_float32_where_its_rounding_does_not_matter(make_white, posterior, rows):
    white = make_white(1.0, 1e-6)
    m, L = (part.to(rows.device) for part in posterior)
    columns = white.inverse.T @ torch.cat([L, m[:, None]], 1).double()
    centred = white.Z - white.Z.mean(0)
    half = 0.5 * centred.square().sum(1)
    # Both sides of the exponents, whose product is the error of an exponent over 2^-24.
    left = (2 * half + (white.variance.log() - half).square() + 1).max().sqrt()
    right = (2 * half + 1 + half.square()).max().sqrt()
    whole = product_error(white.Kzz, columns)
    allowed = readers.LARGEST_ERROR * float(white.variance.sqrt())
    for own, dtype in ((0.0, torch.float64), (float(left * right), torch.float32)):
        size = 0.99 * allowed / (whole * math.hypot(1, own))
        read = CachedReader(white, m * size, L * size, rows=0)
        assert (len(read.chosen.points), read.right.dtype) == (0, dtype)
        assert max(_errors(read(rows), white, (m * size, L * size), rows)) < 1e-4


def test_for_short_lengthscales_a_float32_kernel_would_be_wrong(make_white, posterior):
    """By far, so that it shows however a processor rounds: at the points, where k is largest."""
    white = make_white(0.01, 1e-4)
    rows = (white.Z * white.lengthscale).float()
    read = CachedReader(white, *(part.to(rows.device) for part in posterior), rows=0)
    assert (len(read.chosen.points), read.right.dtype) == (0, torch.float64)
    assert max(_errors(read(rows), white, posterior, rows)) < 1e-4
    read.right = read.right.float()
    assert max(_errors(read(rows), white, posterior, rows)) > 1e-4


def test_where_no_interpolation_will_do_it_is_float64(make_white, posterior, rows, monkeypatch):
    monkeypatch.setattr(readers, "POINTS", (0,))
    white = make_white(1.0, 1e-6)
    read = CachedReader(white, *(part.to(rows.device) for part in posterior), rows=0)
    assert read.factor.dtype == torch.float64
    assert max(_errors(read(rows), white, posterior, rows)) < 1e-9


def test_without_a_search_it_is_float64(make_white, posterior, rows, monkeypatch):
    monkeypatch.setattr(readers, "searches", lambda *_: False)
    monkeypatch.setattr(readers, "product_error", lambda *_: pytest.fail("waits for the GPU"))
    white = make_white(1.0, 1e-6)
    read = CachedReader(white, *(part.to(rows.device) for part in posterior), rows=0)
    assert (len(read.chosen.points), read.factor.dtype) == (0, torch.float64)
    assert max(_errors(read(rows), white, posterior, rows)) < 1e-9


def test_a_gpu_searches_for_many_rows_only():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    found = [SEARCHES(device, rows, 100) for device in (cpu, gpu) for rows in (0, 6399, 6400)]
    assert found == [True, True, True, False, False, True]


def test_buffers_do_not_mix_chunks(make_white, posterior, rows):
    white = make_white(0.5)
    read = CachedReader(white, *(part.to(rows.device) for part in posterior), rows=0)
    whole = read(rows)
    parts = [read(part) for part in rows.split(70)]
    again = [torch.cat([part[which] for part in parts]) for which in (0, 1)]
    for one, other in zip(again, whole[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    first = CachedReader(white, *(part.to(rows.device) for part in posterior), rows=0)(rows[:70])
    torch.testing.assert_close(parts[0].variance, first.variance, rtol=1e-4, atol=1e-5)


class TestInterpolation:
    def test_it_leaves_little_of_a_smooth_kernel(self, make_white):
        K = make_white(1.0).Kzz
        found = interpolation(K, 64)
        psi = K[:, found.points] @ found.inverse.T
        assert len(found.points) <= 64
        assert float((K - psi @ found.onto).abs().max()) < 1e-6

    def test_it_is_exact_at_its_points(self, make_white):
        K = make_white(0.1).Kzz
        found = interpolation(K, 10)
        gap = K - K[:, found.points] @ found.inverse.T @ found.onto
        assert float(gap[found.points].abs().max()) < 1e-12
        assert float(gap.abs().max()) > 0.1

    def test_it_ends_where_nothing_is_left(self):
        found = interpolation(torch.ones(6, 6, dtype=torch.float64), 4)
        assert len(found.points) == 1


@pytest.mark.parametrize("part", ["posterior.m", "basis.anchors", "basis.log_lengthscale"])
def test_changed_parameters_change_the_prediction(part, make_model, randomised):
    model = randomised(make_model("dbk-rbf"))
    x = np.array([[0.1, 0.2]])
    before = model.predict(x)
    with torch.no_grad():
        dict(model.named_parameters())[part].add_(0.5)
    assert abs(model.predict(x).mean[0] - before.mean[0]) > 1e-4
