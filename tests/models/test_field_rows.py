"""Blocks of the field model, packed with less padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geogp.models import field
from geogp.models.architecture import Architecture
from geogp.models.catalogue import build
from geogp.models.field_rows import Padded, packed
from geogp.models.lowrank import Rows


@given(st.integers(1, 9), st.integers(1, 7), st.integers(1, 6), st.integers(0, 999))
def test_packed_blocks_hold_the_same_rows_in_the_same_order(blocks, width, parts, seed):
    random = np.random.default_rng(seed)
    rows = torch.from_numpy(random.integers(0, 50, (blocks, width)))
    known = torch.from_numpy(random.random((blocks, width)) < 0.6)
    known[:, -1] = True
    own = known & (torch.arange(width) >= width // 2)
    found = packed(Padded(rows, known, own), parts)
    assert sum(len(part.rows) for part in found) == blocks
    kept = []
    for part in found:
        assert part.rows.shape[1] == part.known.sum(1).max()
        counts = part.known.sum(1, keepdim=True)
        assert torch.equal(part.known, torch.arange(part.rows.shape[1]) < counts)
        for k, *held in zip(part.known, part.rows, part.own, strict=True):
            kept.append(tuple(tuple(each[k].tolist()) for each in held))
    expected = [
        tuple(tuple(each[k].tolist()) for each in held)
        for k, *held in zip(known, rows, own, strict=True)
    ]
    assert sorted(kept) == sorted(expected)


def test_a_block_does_not_depend_on_how_it_is_cut(monkeypatch):
    random = np.random.default_rng(0)
    place = random.uniform(-1, 1, (60, 2)).repeat(random.integers(1, 6, 60), axis=0)
    x = np.column_stack([place, random.uniform(-1, 1, len(place))])
    sizes = Architecture(d=3, h=6, r=5, blocks=1, dtype="float64", units=(20.0, 10.0, 4.0))
    model = build("field", sizes, x, seed=2)
    y = torch.from_numpy(np.sin(3 * x[:, 0]))
    model.hold(Rows(model.scaled(x), y, torch.ones_like(y)), 0)
    with torch.no_grad():
        model.tiles.head.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    results = []
    for parts in (1, 4, 1000):
        monkeypatch.setattr(field, "PARTS", parts)
        block = model.block(torch.arange(len(model.sites[0])), factor=model.factor)
        loss = block.residual.square().sum() + block.spread.square().sum() + block.log_scale
        gradients = torch.autograd.grad(loss, model.tiles.parameters())
        results.append([loss, *gradients])
    for result in results[1:]:
        for ours, one_part in zip(result, results[0], strict=True):
            torch.testing.assert_close(ours, one_part)
    assert loss.item() == pytest.approx(results[0][0].item(), rel=1e-12)
