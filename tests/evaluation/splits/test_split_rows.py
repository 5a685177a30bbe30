import numpy as np
import pytest

from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.row_parts import PARTS, _mix
from geogp.evaluation.splits.split_names import BLOCKS, SPLITS
from geogp.evaluation.splits.split_rows import (
    SplitRows,
    assign_cells,
    block_split,
    cell_indices,
    cell_side,
    random_split,
    split_groups,
    tile_split,
)
from geogp.geodata.tiles.quadkeys import tile_centres, tiles_to_codes


@pytest.fixture(scope="module")
def rows():
    """Tiles dense in one corner and sparse elsewhere, four quarters each, in odd order."""
    random = np.random.default_rng(3)
    dense = random.integers(0, 80, (3000, 2))
    sparse = random.integers(0, 500, (3000, 2))
    column, row = (np.unique(np.vstack([dense, sparse]), axis=0) + np.array([20500, 29000])).T
    quarter = np.tile(np.arange(8076, 8080), len(column))
    column, row = np.repeat(column, 4), np.repeat(row, 4)
    longitude, latitude = tile_centres(column, row)
    order = random.permutation(len(column))
    return tuple(
        part[order] for part in (tiles_to_codes(column, row), quarter, longitude, latitude)
    )


def test_random_split_is_eight_to_one_to_one(rows):
    part = random_split(rows[0], rows[1], 0)
    n = len(part)
    for name, share in zip(PARTS, (0.8, 0.1, 0.1), strict=True):
        sd = np.sqrt(n * share * (1 - share))
        assert abs(np.count_nonzero(part == name) - share * n) < 4 * sd


def test_random_split_is_the_same_for_ever():
    """Peers and stored runs rely on it: these values may never change."""
    part = random_split(np.arange(40, dtype=np.uint64), np.full(40, 8076), 7)
    letters = "".join(name[1] for name in part)
    assert letters == "rarrrrrrrarrrrerrrrarrrrarreeaererrararr"


def test_hash_is_splitmix64():
    """The first number that the published generator draws from the states 0 and 1234567."""
    drawn = _mix(np.array([0, 1234567], np.uint64)).tolist()
    assert drawn == [0xE220A8397B1DCDAF, 6457827717110365317]


def test_random_split_ignores_other_rows(rows):
    codes, quarter = rows[:2]
    kept = np.arange(len(codes)) % 3 == 0
    np.testing.assert_array_equal(
        random_split(codes, quarter, 5)[kept], random_split(codes[kept], quarter[kept], 5)
    )


def test_random_split_deals_the_quarters_of_a_tile_apart(rows):
    """Parts of the same tile in two quarters agree as often as chance: 0.8² + 0.1² + 0.1²."""
    codes = np.unique(rows[0])
    first, second = (random_split(codes, np.full(len(codes), q), 0) for q in (8076, 8077))
    assert np.mean(first == second) == pytest.approx(
        0.66, abs=4 * np.sqrt(0.66 * 0.34 / len(codes))
    )


def test_tiles_are_split_whole_eight_to_one_to_one(rows):
    """A part depends on seed and quadkey alone; other tiles and quarters change nothing."""
    part = tile_split(rows[0], 0)
    codes, of_row = np.unique(rows[0], return_inverse=True)
    alone = tile_split(codes, 0)
    np.testing.assert_array_equal(alone[of_row], part)
    np.testing.assert_array_equal(tile_split(codes[::3], 0), alone[::3])
    for name, share in zip(PARTS, (0.8, 0.1, 0.1), strict=True):
        sd = np.sqrt(len(codes) * share * (1 - share))
        assert abs(np.count_nonzero(alone == name) - share * len(codes)) < 4 * sd
    agree = np.mean(alone == tile_split(codes, 1))
    assert agree == pytest.approx(0.66, abs=4 * np.sqrt(0.66 * 0.34 / len(codes)))


def test_tile_split_is_the_same_for_ever():
    part = tile_split(np.arange(40, dtype=np.uint64), 7)
    assert "".join(name[1] for name in part) == "rrrrrerarrrrrerrarrarrrrrrrrrrrraarrrerr"


@pytest.mark.parametrize("other", [6, -5, 2**64 + 6])
def test_seed_changes_the_splits(rows, other):
    codes, quarter, longitude, latitude = rows
    agree = np.mean(random_split(codes, quarter, 5) == random_split(codes, quarter, other))
    assert agree == pytest.approx(0.66, abs=0.02)
    assert (
        np.mean(block_split(longitude, latitude, 5) == block_split(longitude, latitude, other))
        < 0.8
    )


def test_blocks_are_never_shared_between_parts(rows):
    _, _, longitude, latitude = rows
    part = block_split(longitude, latitude, 1)
    cell = np.floor(longitude / 0.1) * 10_000 + np.floor(latitude / 0.1)
    parts_of_cell = {c: set(part[cell == c]) for c in np.unique(cell)}
    assert len(parts_of_cell) > 100
    assert all(len(parts) == 1 for parts in parts_of_cell.values())


@pytest.mark.parametrize("seed", range(5))
def test_block_parts_are_nearly_equal(rows, seed):
    _, _, longitude, latitude = rows
    part = block_split(longitude, latitude, seed)
    cells = np.unique(cell_indices(longitude, latitude), axis=0, return_counts=True)[1]
    n, largest = len(part), cells.max()
    assert abs(np.count_nonzero(part == "test") - 0.2 * n) <= 2 * largest
    assert abs(np.count_nonzero(part == "validation") - 0.1 * n) <= largest
    assert largest < 0.05 * n, "the test would say little"


def test_longitudes_one_turn_apart_share_their_cell():
    west = np.array([-190.05, -180.0001, -175.55])
    np.testing.assert_array_equal(
        cell_indices(west, [60.0] * 3), cell_indices(west + 360, [60.0] * 3)
    )


def test_cells_are_a_tenth_of_a_degree():
    np.testing.assert_array_equal(
        cell_indices([0.05, 0.15, -0.05], [18.25, -0.01, 0.01]), [[0, 182], [1, -1], [3599, 0]]
    )


def test_empty_parts_are_refused():
    with pytest.raises(DataError, match=r"test 0 from 5 rows split at random.*larger region"):
        random_split(np.arange(5, dtype=np.uint64), np.zeros(5, np.int64), 3)
    with pytest.raises(
        DataError,
        match=r"from 1 tiles split at random 8:1:1\. Choose a larger region, or the split",
    ):
        tile_split(np.zeros(5, np.uint64), 3)
    with pytest.raises(DataError, match=r"train 0, validation 0, test 4 from 4 rows in 2 cells"):
        assign_cells(np.array([[0, 0], [0, 0], [1, 0], [1, 0]]), 0, "cells")
    with pytest.raises(DataError, match="train 0, validation 0, test 0"):
        random_split(np.zeros(0, np.uint64), np.zeros(0, np.int64), 0)
    told = "need 30 cells with rows, found {} cells of 0.0125 degrees with {} rows. Choose more"
    for n in (0, 29):
        with pytest.raises(RequestError, match=told.format(n, n)):
            block_split(np.arange(n), np.zeros(n), 0)


def test_wrong_input_is_refused():
    with pytest.raises(DataError, match="found 1 rows with other values"):
        block_split([0.0, np.nan], [0.0, 1.0], 0)


def test_each_split_says_what_it_asks():
    assert list(SPLITS) == ["random", "tiles", "blocks", "buffer", "county", "latest", "session"]
    assert all(split.question.endswith("?") for split in SPLITS.values())
    assert SPLITS["random"].flatters
    assert SPLITS["tiles"].flatters
    assert not BLOCKS.flatters


@pytest.mark.parametrize("name", ["blocks", "buffer"])
def test_the_question_of_blocks_says_their_side(name):
    split = SPLITS[name]
    assert split.asked(None) == split.question
    assert "own block of 0.05 by 0.05 degrees (about 5 km)" in split.asked(0.05)
    assert SPLITS["county"].asked(0.05) == SPLITS["county"].question


@pytest.mark.parametrize(("side", "expected"), [(0.1, 0.1), (0.05, 0.05), (0.02, 0.0125)])
def test_a_small_region_has_smaller_cells(side, expected):
    """36 places at the middle of cells of a side: the largest allowed side that parts them."""
    column, row = (part.ravel() for part in np.meshgrid(np.arange(6), np.arange(6)))
    longitude, latitude = (np.repeat((part + 0.5) * side, 3) for part in (column, row))
    assert cell_side(longitude, latitude) == expected
    order = np.random.default_rng(0).permutation(len(longitude))
    assert cell_side(longitude[order] - 360, latitude[order]) == expected
    zeros = np.zeros(len(longitude), np.int64)
    groups = split_groups("blocks", SplitRows(zeros, zeros, longitude, latitude))
    assert len(np.unique(groups)) == 36
    parts = block_split(longitude, latitude, 0)
    for group in range(36):
        assert len(np.unique(parts[groups == group])) == 1
    assert split_groups("random", SplitRows(zeros, zeros, longitude, latitude)) is None


def test_few_cells_with_most_rows_are_no_cells():
    place = np.append(np.arange(35) * 0.1 + 0.05, np.full(100, 0.05))
    assert cell_side(place[:35], place[:35]) == 0.1
    told = (
        r"need an effective number of 20 cells, found 1\.78 because few cells contain most rows "
        r"\(35 cells of 0\.0125 degrees with 135 rows\)"
    )
    with pytest.raises(RequestError, match=told):
        cell_side(place, place)
