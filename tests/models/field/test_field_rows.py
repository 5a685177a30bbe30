"""Blocks of the field model, packed with less padding."""

import numpy as np
import pytest
import torch
from field_worlds import field_of
from hypothesis import given
from hypothesis import strategies as st

from geogp.models.catalogue.build import build
from geogp.models.field import conditioning
from geogp.models.field import fit as fitting
from geogp.models.field.blocks import (
    Block,
    BlockRows,
    block_arrays,
    block_rows,
    flat_on_device,
    padded,
    place_arrays,
)
from geogp.models.field.conditioning import block_at, rows_at
from geogp.models.field.fitted import FittedField
from geogp.models.field.vecchia import NO_ROW
from geogp.models.fitting.steps import Batch
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.rows import Rows


@given(st.integers(1, 9), st.integers(1, 7), st.integers(1, 6), st.integers(0, 999))
def test_arranged_blocks_have_the_same_rows_in_the_same_order(blocks, width, parts, seed):
    random = np.random.default_rng(seed)
    index = random.integers(0, 50, (blocks, width))
    index[random.random((blocks, width)) < 0.4] = NO_ROW
    index[:, -1] = random.integers(0, 50, blocks)
    first_own = width // 2
    arrays = block_arrays(index, first_own, parts)
    distinct, own, found = block_rows(arrays, torch.device("cpu"))
    assert distinct.tolist() == sorted(set(index[index != NO_ROW].tolist()))
    ours = index[:, first_own:]
    assert distinct[own > 0].tolist() == sorted(set(ours[ours != NO_ROW].tolist()))
    assert sum(len(part.rows) for part in found) == blocks
    kept = []
    for rows, mine in found:
        count = (rows != NO_ROW).sum(1)
        assert rows.shape[1] == count.max()
        assert mine.shape[1] == mine.sum(1).max()
        for at, k, marks in zip(rows, count.tolist(), mine, strict=True):
            assert (at[: len(at) - k] == NO_ROW).all()
            kept.append((tuple(distinct[at[len(at) - k :]].tolist()), int(marks.sum())))
            assert marks.tolist() == sorted(marks.tolist())  # own rows come last
    expected = [
        (tuple(row[row != NO_ROW].tolist()), int((row[first_own:] != NO_ROW).sum()))
        for row in index
    ]
    assert sorted(kept) == sorted(expected)


@pytest.fixture
def model() -> FittedField:
    """A field that has rows of sixty places, conditioned on few of those near."""
    random = np.random.default_rng(0)
    place = random.uniform(-1, 1, (60, 2)).repeat(random.integers(1, 6, 60), axis=0)
    x = np.column_stack([place, random.uniform(-1, 1, len(place))])
    sizes = Architecture(d=3, h=6, r=5, blocks=1, dtype="float64", units=(20.0, 10.0, 4.0))
    made = build("field", sizes, x, seed=2)
    y, tests = np.sin(3 * x[:, 0]), random.integers(1, 9, len(x)).astype(float)
    counts = torch.from_numpy(np.column_stack([tests, np.ceil(0.6 * tests)]))
    field = field_of(made, Rows(made.scaled(x), torch.from_numpy(y), counts))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in made.named_parameters():
            if not name.startswith("basis"):
                moved = torch.randn(value.shape, generator=generator, dtype=value.dtype)
                value.add_(0.3 * moved)
    return field


def _all_blocks(model: FittedField) -> Block:
    at = rows_at(model.rows, torch.arange(len(model.rows.sites)))
    return block_at(model.parameters, model.rows, at, model.parameters.weights.L)


def _fit_of(model: FittedField) -> fitting.FieldFit:
    """A fit to the rows of a field."""
    fit = fitting.FieldFit(model.parameters)
    fit.start(model.rows.rows, model.rows.seed, resumed=True)
    return fit


def _loss(residual, spread, log_scale) -> torch.Tensor:
    return residual.square().sum() + 0.7 * spread.square().sum() + log_scale


def _place_by_place(model: FittedField) -> torch.Tensor:
    """What `_loss` is of all blocks, each by itself and unpadded, in plain PyTorch."""
    parameters, rows = model.parameters, model.rows
    sites, tiles = rows.sites, parameters.tiles
    s, ranges, memories = (
        value.exp() for value in (tiles.log_sills, tiles.log_ranges, tiles.log_memories)
    )
    total = torch.zeros((), dtype=torch.float64)
    conditioning_rows = torch.from_numpy(rows.earlier)
    for first, count, earlier in zip(sites.first, sites.count, conditioning_rows, strict=True):
        at = torch.cat([earlier[earlier != NO_ROW], torch.arange(first, first + count)])
        points = parameters.points(rows.x[at])
        terms = parameters.row_terms(rows.x[at], rows.counts[at])
        h = (points[:, None, :2] - points[None, :, :2]).square().sum(-1)
        same = h == 0
        h = torch.where(same, 1.0, h).sqrt() * ~same
        t = (points[:, None, 2] - points[None, :, 2]).abs()
        k = s[0] * (-h / ranges[0]).exp() + s[1] * (-h / ranges[1] - t / memories[0]).exp()
        k = k + same * (s[2] + s[3] * (-t / memories[1]).exp())
        K = k * torch.outer(terms.amplitude, terms.amplitude) + terms.noise.diag()
        L = torch.linalg.cholesky(K)
        L_q = parameters.weights.L
        values = torch.cat([(rows.y[at] - terms.mean)[:, None], terms.phi @ L_q], 1)
        white = torch.linalg.solve_triangular(L, values, upper=False)[-count:]
        total = total + _loss(white[:, 0], white[:, 1:], L.diagonal()[-count:].log().sum())
    return total


@pytest.mark.parametrize("parts", [1, 4, 1000])
def test_blocks_and_all_their_gradients_are_those_of_each_place(model, parts, monkeypatch):
    monkeypatch.setattr(conditioning, "MIN_PIECES", parts)
    block = _all_blocks(model)
    ours = _loss(block.residual, block.spread, block.log_scale)
    expected = _place_by_place(model)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-12)
    named = dict(model.parameters.named_parameters())
    found, other = (
        torch.autograd.grad(value, list(named.values()), allow_unused=True)
        for value in (ours, expected)
    )
    told = {name for name, gradient in zip(named, found, strict=True) if gradient is not None}
    assert {"tiles.head", "noise.heads", "posterior.m"} <= told
    for name, one, another in zip(named, found, other, strict=True):
        torch.testing.assert_close(one, another, rtol=1e-8, atol=1e-10, msg=name)


def test_more_padding_adds_only_zeros(model):
    arrays = place_arrays(model.rows.sites, model.rows.earlier, np.arange(20, 40), 1)
    shapes = [tuple(np.add(array.shape, 3)) for array in arrays]
    shapes[2] = shapes[0]  # marks of the distinct rows
    shapes[3] = (shapes[1][0], shapes[3][1])
    flat = flat_on_device(padded(arrays, shapes), model.device)
    found = []
    for rows in (block_rows(arrays, model.device), BlockRows.of(flat, shapes)):
        block = block_at(model.parameters, model.rows, rows, model.parameters.weights.L)
        loss = _loss(*block)
        gradients = torch.autograd.grad(
            loss, list(model.parameters.parameters()), allow_unused=True
        )
        kept = [part[block.residual != 0] for part in block[:2]]
        found.append([loss, *kept, rows.own.sum(), *gradients])
    assert len(found[0]) > 4
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_an_amplitude_that_runs_off_leaves_the_gradients_finite(model):
    with torch.no_grad():
        model.parameters.tiles.head.mul_(1e4)
    block = _all_blocks(model)
    loss = _loss(block.residual, block.spread, block.log_scale)
    for gradient in torch.autograd.grad(loss, model.parameters.parameters(), allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


def test_shares_of_a_step_have_the_gradient_of_the_whole(model, monkeypatch):
    batch = Batch(torch.arange(60), len(model.rows), whole_places=True)
    fit = _fit_of(model)
    found = []
    for shares in (1, 2, 60):
        monkeypatch.setattr(fitting, "SHARES", shares)
        model.parameters.zero_grad()
        loss = fit.step(batch, Weights(alpha=0.0, beta=1.0))
        named = model.parameters.named_parameters()
        gradients = {name: value.grad for name, value in named if value.grad is not None}
        found.append({"loss": loss, **gradients})
    assert "posterior.lower" in found[0]
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, value in other.items():
            torch.testing.assert_close(value, found[0][name], rtol=1e-8, atol=1e-11, msg=name)


def test_steps_with_equal_shapes_have_the_same_gradients(model):
    fit, random = _fit_of(model), np.random.default_rng(0)
    placed, found, lengths = fit.placed(50), [], set()
    for _ in range(20):
        batches = fit.batches(50, random, 1.0)
        lengths.update(len(placed(batch).numbers) for batch in batches)
    assert len(batches) > 2
    assert len(lengths) == 1
    for batch in (batches[0], placed(batches[0])):
        model.parameters.zero_grad()
        loss = fit.step(batch, Weights())
        values = model.parameters.parameters()
        found.append([loss, *(value.grad for value in values if value.grad is not None)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_the_first_and_the_last_time_are_those_of_the_rows(model):
    x = model.rows.x
    for times in (x[:, 2], 2 * x[:, 2] + 1):
        moved = model.rows.rows._replace(x=torch.column_stack([x[:, :2], times]))
        rows = field_of(model.parameters, moved).rows
        for _ in range(2):
            assert [time.item() for time in rows.times] == [times.min(), times.max()]
