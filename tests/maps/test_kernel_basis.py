"""The reduced kernel: exact where it can be, and honest about its error where not."""

from dataclasses import replace

import numpy as np
import pytest

from geogp.errors import DataError, NumericalError
from geogp.geodata.region import Tiles
from geogp.maps.frame import Frame
from geogp.maps.kernel_basis import (
    MOST_CELLS,
    MOST_COMPONENTS,
    MOST_TEXT,
    Features,
    coarser,
    kernel_basis,
    kernel_cells,
    leading_components,
)
from geogp.maps.packing import text_bytes, unpack


def disc(radius, zoom=16):
    column, row = np.meshgrid(np.arange(2 * radius), np.arange(2 * radius))
    inside = (column - radius) ** 2 + (row - radius) ** 2 < radius**2
    return Tiles(column[inside] + 17_001, row[inside] + 26_003, zoom)


def places(tiles, radius):
    size = 2.0 ** (16 - tiles.zoom)
    across = ((tiles.column + 0.5) * size - 17_001) / radius
    return np.column_stack([across, ((tiles.row + 0.5) * size - 26_003) / radius])


def waves(rank, radius, frequency=2.0):
    """Cosine features whose weights fall, as those of smooth kernels do."""
    random = np.random.default_rng(rank)
    W, phase = random.normal(size=(2, rank)) * frequency, random.uniform(0, 6, rank)
    weight = np.arange(1, rank + 1) ** -1.0

    def features(tiles):
        return np.cos(places(tiles, radius) @ W + phase) * weight

    return Features(features, lambda one, two: features(one) @ features(two).T)


def decoded(basis, cells):
    return unpack(basis.components)[(slice(None), *basis.frame.pixels(cells))].T


def largest_error(basis, cells, model):
    """Work it out over all pairs of cells: what the basis samples."""
    found, exact = decoded(basis, cells), model.kernel(cells, cells)
    return np.abs(found @ found.T - exact).max() / np.abs(exact).max()


def test_cells_cover_every_tile_and_no_more():
    tiles = disc(300)
    cells = kernel_cells(tiles)
    assert cells.zoom == 14
    frame = Frame.of_tiles(cells)
    assert max(frame.width, frame.height) <= MOST_CELLS
    held = set(zip(cells.column.tolist(), cells.row.tolist(), strict=True))
    parents = {(c >> 2, r >> 2) for c, r in zip(tiles.column, tiles.row, strict=True)}
    assert held == parents
    assert len(cells) == len(held)


def test_cells_of_a_small_map_are_its_tiles():
    tiles = disc(20)
    assert kernel_cells(tiles).zoom == 16
    assert len(coarser(tiles, 16)) == len(tiles)


def test_columns_beyond_the_worlds_edge_stay_there():
    tiles = Tiles(np.array([-3, -2, 1]), np.array([5, 5, 5]), 10)
    assert coarser(tiles, 9).column.tolist() == [-2, -1, 0]


def test_components_are_those_of_the_singular_value_decomposition():
    random = np.random.default_rng(0)
    phi = random.normal(size=(9000, 12)) * np.arange(12, 0, -1)
    found = leading_components(lambda rows: phi[rows], len(phi), 5)
    U, S, _ = np.linalg.svd(phi, full_matrices=False)
    expected = U[:, :5] * S[:5]
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-7, atol=1e-9)
    assert (found[np.abs(found).argmax(axis=0), np.arange(5)] > 0).all()


def test_a_kernel_of_low_rank_is_reproduced():
    tiles, model = disc(25), waves(8, 25)
    cells = kernel_cells(tiles)
    basis = kernel_basis(tiles, model)
    assert basis.components["shape"][0] == 8
    assert basis.error < 0.003
    assert basis.error_at_tiles < 0.003  # the cells are the tiles
    assert largest_error(basis, cells, model) == pytest.approx(basis.error, rel=1e-9)


@pytest.mark.parametrize("rank", [30, 200])
def test_the_stated_error_is_that_of_all_pairs(rank):
    tiles, model = disc(30), waves(rank, 30, frequency=6.0)
    basis = kernel_basis(tiles, model)
    brute = largest_error(basis, kernel_cells(tiles), model)
    assert basis.references == len(kernel_cells(tiles))
    assert basis.error == pytest.approx(brute, rel=1e-9)


def test_of_many_cells_those_with_large_values_and_some_others_are_looked_at(monkeypatch):
    tiles, model = disc(30), waves(200, 30, frequency=6.0)
    monkeypatch.setattr("geogp.maps.kernel_basis._PAIRS", 400 * len(tiles))
    basis = kernel_basis(tiles, model)
    brute = largest_error(basis, kernel_cells(tiles), model)
    assert basis.references == 400
    assert 0.6 * brute < basis.error <= brute * (1 + 1e-9)


def test_the_error_at_tiles_holds_what_a_coarse_grid_loses():
    tiles, model = disc(300), waves(10, 300, frequency=15.0)
    basis = kernel_basis(tiles, model)
    assert basis.error < 0.005
    random = np.random.default_rng(9)
    rows = random.choice(len(tiles), 600, replace=False)
    some = Tiles(tiles.column[rows], tiles.row[rows], 16)
    parents = Tiles(some.column >> 2, some.row >> 2, 14)
    frame, picture = basis.frame, unpack(basis.components)
    at = picture[:, parents.row - frame.row, parents.column - frame.column].T
    exact = model.kernel(some, some)
    brute = np.abs(at @ at.T - exact).max() / np.abs(exact).max()
    assert basis.error_at_tiles == pytest.approx(brute, rel=0.35)
    assert basis.error_at_tiles > 5 * basis.error


def test_noise_of_high_rank_stays_within_the_bytes():
    tiles = disc(320)
    cells = kernel_cells(tiles)
    phi = np.random.default_rng(3).normal(size=(len(cells), 1024)).astype(np.float32)
    number = {at: k for k, at in enumerate(zip(cells.column, cells.row, strict=True))}

    def features(tiles):
        shift = tiles.zoom - cells.zoom
        at = zip(tiles.column >> shift, tiles.row >> shift, strict=True)
        return phi[[number[one] for one in at]].astype(np.float64)

    model = Features(features, lambda one, two: features(one) @ features(two).T)
    basis = kernel_basis(tiles, model)
    assert text_bytes(basis.components) <= MOST_TEXT
    assert basis.components["shape"][0] <= MOST_COMPONENTS
    assert basis.error > 0.5  # and says that little of it is left


def test_fewer_bytes_cost_accuracy_and_are_kept():
    tiles, model = disc(20), waves(40, 20, frequency=6.0)
    whole = kernel_basis(tiles, model)
    small = kernel_basis(tiles, model, most_text=text_bytes(whole.components) // 4)
    assert text_bytes(small.components) <= text_bytes(whole.components) // 4
    assert small.error > whole.error
    with pytest.raises(DataError, match="fits 50 bytes"):
        kernel_basis(tiles, model, most_text=50)


def test_a_kernel_of_nothing_has_no_basis():
    tiles = disc(10)
    nothing = Features(lambda t: np.zeros((len(t), 3)), lambda a, b: np.zeros((len(a), len(b))))
    assert kernel_basis(tiles, nothing) is None
    broken = replace(nothing, features=lambda t: np.full((len(t), 3), np.nan))
    with pytest.raises(NumericalError, match="finite features"):
        kernel_basis(tiles, broken)
