"""Folds, calibration rows, and the splits by buffer, county, latest quarter and session."""

import numpy as np
import pytest

from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.split_names import MAX_FOLDS, SPLITS
from geogp.evaluation.splits.split_rows import (
    SplitRows,
    assign_cells,
    block_split,
    buffer_split,
    cell_indices,
    county_split,
    latest_split,
    random_split,
    session_split,
    split_groups,
    split_parts,
)
from geogp.geodata.places.layers import ELSEWHERE
from geogp.geodata.tiles.quadkeys import tile_centres, tiles_to_codes


@pytest.fixture(scope="module")
def rows() -> SplitRows:
    """Some 1,900 tiles over a degree and a half, six quarters each, in odd order."""
    random = np.random.default_rng(3)
    tiles = np.unique(random.integers(0, 280, (2000, 2)), axis=0) + np.array([20500, 29000])
    quarter = np.tile(np.arange(8076, 8082), len(tiles))
    column, row = np.repeat(tiles, 6, axis=0).T
    longitude, latitude = tile_centres(column, row)
    county = np.char.add("County ", ((column - 20500) // 24).astype(str))
    county[row < 29010] = ELSEWHERE
    session = np.char.add("drive ", random.integers(60, size=len(column)).astype(str))
    order = random.permutation(len(column))
    return SplitRows(
        *(part[order] for part in (tiles_to_codes(column, row), quarter, longitude, latitude)),
        county=county[order],
        session=session[order],
    )


def some(rows: SplitRows, at: np.ndarray) -> SplitRows:
    return SplitRows(*(part[at] for part in vars(rows).values()))


def distances_km(rows: SplitRows, some_rows, other_rows):
    """All great-circle distances by the haversine formula, (n, m)."""
    lon, lat = np.deg2rad(rows.longitude), np.deg2rad(rows.latitude)
    a, b = np.flatnonzero(some_rows)[:, None], np.flatnonzero(other_rows)
    half = np.sin((lat[a] - lat[b]) / 2) ** 2
    half = half + np.cos(lat[a]) * np.cos(lat[b]) * np.sin((lon[a] - lon[b]) / 2) ** 2
    return 2 * 6371.0088 * np.arcsin(np.sqrt(half))


@pytest.mark.parametrize("name", SPLITS)
class TestEverySplit:
    def test_no_row_is_tested_twice(self, rows, name):
        tested = [split_parts(name, rows, 1, fold=fold) == "test" for fold in range(MAX_FOLDS)]
        assert np.sum(tested, axis=0).max() == 1
        assert min(fold.sum() for fold in tested) > 0.05 * len(rows.quarter)

    def test_the_order_of_rows_means_nothing(self, rows, name):
        order = np.random.default_rng(0).permutation(len(rows.quarter))
        for fold in (0, 3):
            whole = split_parts(name, rows, 5, fold=fold, calibrated=True)
            mixed = split_parts(name, some(rows, order), 5, fold=fold, calibrated=True)
            np.testing.assert_array_equal(whole[order], mixed)

    def test_calibration_rows_come_from_training_rows_alone(self, rows, name):
        for fold in (0, 4):
            plain = split_parts(name, rows, 2, fold=fold)
            kept = split_parts(name, rows, 2, fold=fold, calibrated=True)
            calibration = kept == "calibration"
            assert set(plain[calibration]) <= {"train", "left out"}
            assert name == "buffer" or "left out" not in plain[calibration]
            np.testing.assert_array_equal(plain[~calibration], kept[~calibration])
            fitted = np.isin(plain, ["train", "validation"]).sum()
            assert 0.07 * fitted < calibration.sum() < 0.2 * fitted

    def test_another_seed_or_fold_is_another_split(self, rows, name):
        first = split_parts(name, rows, 2)
        assert (split_parts(name, rows, 3) != first).mean() > 0.1
        assert (split_parts(name, rows, 2, fold=1) != first).mean() > 0.1


@pytest.mark.parametrize("name", ["blocks", "buffer", "county", "session"])
def test_five_folds_test_every_row_that_has_a_part(rows, name):
    tested = [split_parts(name, rows, 1, fold=fold) == "test" for fold in range(5)]
    known = rows.county != ELSEWHERE if name == "county" else np.ones(len(rows.quarter), bool)
    np.testing.assert_array_equal(np.sum(tested, axis=0) == 1, known)


def test_ten_random_folds_test_every_row_once(rows):
    parts = [random_split(rows.quadkey, rows.quarter, 1, fold=fold) for fold in range(10)]
    for name in ("test", "validation"):
        np.testing.assert_array_equal(np.sum([part == name for part in parts], axis=0), 1)
    # What validates in one fold tests in the next.
    np.testing.assert_array_equal(parts[0] == "validation", parts[1] == "test")


class TestSession:
    def test_a_session_is_in_one_part(self, rows):
        for fold in (0, 3):
            part = split_parts("session", rows, 1, fold=fold, calibrated=True)
            pairs = np.unique(np.stack([rows.session, part]), axis=1)
            assert pairs.shape[1] == 60
        # Other sessions may have rows at the same place.
        assert split_groups("session", rows) is None

    def test_few_sessions_have_a_part_each(self):
        session = np.repeat(["red", "green", "blue"], [50, 20, 30])
        part = session_split(session, 0)
        assert {*np.unique(np.stack([session, part]), axis=1)[1]} == {"train", "validation", "test"}

    def test_what_is_refused(self):
        with pytest.raises(RequestError, match=r"needs rows of drives, found none.*session=NAME"):
            session_split(None, 0)
        two = np.where(np.arange(20) % 2, "red", "blue")
        with pytest.raises(RequestError, match=r"session needs at least 3 sessions .* found 2"):
            session_split(two, 0)
        with pytest.raises(RequestError, match=r"at least 4 sessions .*calibration\), found 3"):
            session_split(np.append(two, "green"), 0, calibrated=True)


class TestBuffer:
    def test_no_training_or_validation_row_lies_within_it(self, rows):
        rows = some(rows, rows.quarter == 8076)
        part = buffer_split(rows.longitude, rows.latitude, 0, buffer_km=7.5, fold=2)
        used = (part == "train") | (part == "validation")
        nearest = distances_km(rows, used, part == "test").min(1)
        assert nearest.min() >= 7.5
        out = distances_km(rows, part == "left out", part == "test").min(1)
        assert 0 < out.max() < 7.5

    def test_nothing_else_moves(self, rows):
        blocks = block_split(rows.longitude, rows.latitude, 0)
        part = buffer_split(rows.longitude, rows.latitude, 0)
        moved = part != blocks
        assert set(blocks[moved]) == {"train", "validation"}
        assert set(part[moved]) == {"left out"}

    def test_a_buffer_that_leaves_nothing_is_refused(self, rows):
        with pytest.raises(RequestError, match=r"buffer of 500 km .* removes all \d+ training"):
            buffer_split(rows.longitude, rows.latitude, 0, buffer_km=500.0)


class TestCounty:
    def test_counties_stay_whole_and_rows_in_none_are_left_out(self, rows):
        part = county_split(rows.county, 4, calibrated=True)
        for name in np.unique(rows.county):
            assert len(set(part[rows.county == name])) == 1
        assert set(part[rows.county == ELSEWHERE]) == {"left out"}
        assert "left out" not in part[rows.county != ELSEWHERE]

    @pytest.mark.parametrize(("counties", "folds"), [(3, 3), (5, 5), (7, 7), (8, 4), (9, 4)])
    def test_few_counties_have_as_many_parts(self, counties, folds):
        county = np.array([f"C{number % counties}" for number in range(50 * counties)])
        tested = [county_split(county, 0, fold=fold) == "test" for fold in range(folds)]
        assert np.sum(tested, axis=0).max() == 1
        assert all(len(set(county[rows])) == (2 if counties > 7 else 1) for rows in tested)
        with pytest.raises(RequestError, match=f"split county has at most {folds} folds for"):
            county_split(county, 0, fold=folds)

    def test_too_few_counties_are_refused(self):
        county = np.array(["A", "B", "C", ELSEWHERE] * 5)
        with pytest.raises(RequestError, match=r"needs at least 3 counties .* found 2"):
            county_split(county[county != "C"], 0)
        with pytest.raises(
            RequestError, match=r"needs at least 4 counties .*one for calibration.* found 3"
        ):
            county_split(county, 0, calibrated=True)

    def test_no_boundaries_are_refused_with_the_files_expected(self):
        with pytest.raises(RequestError, match=r"counties_<ST>\.parquet or cb_2018_us_county"):
            county_split(None, 0)


class TestLatest:
    @pytest.mark.parametrize("fold", range(5))
    def test_nothing_is_learned_from_the_tested_quarter_or_later(self, rows, fold):
        part = latest_split(rows.quadkey, rows.quarter, 0, fold=fold, calibrated=True)
        tested = 8081 - fold
        np.testing.assert_array_equal(part == "test", rows.quarter == tested)
        np.testing.assert_array_equal(part == "left out", rows.quarter > tested)
        for name, share in (("train", 0.8), ("validation", 0.1), ("calibration", 0.1)):
            of_part = rows.quarter[part == name]
            assert of_part.max() < tested
            n = (rows.quarter < tested).sum()
            assert abs(len(of_part) - share * n) < 4 * np.sqrt(n * share * (1 - share))

    def test_too_few_quarters_are_refused(self, rows):
        one = rows.quarter == 8081
        with pytest.raises(RequestError, match="needs 2 quarters with data for 1 fold, found 1"):
            latest_split(rows.quadkey[one], rows.quarter[one], 0)
        with pytest.raises(RequestError, match=r"needs 7 quarters .* 6 folds, found 6"):
            latest_split(rows.quadkey, rows.quarter, 0, fold=5)


@pytest.mark.parametrize(("name", "most"), [("random", 10), ("blocks", 5), ("buffer", 5)])
def test_a_fold_that_is_not_there_is_refused(rows, name, most):
    with pytest.raises(
        RequestError, match=f"has at most {most} folds for these data, found fold number {most + 1}"
    ):
        split_parts(name, rows, 0, fold=most)


def test_a_calibration_part_without_rows_is_refused():
    cells = np.column_stack([np.repeat(np.arange(3), 4), np.zeros(12, np.int64)])
    with pytest.raises(DataError, match="calibration 0 from 12 rows in 3 cells"):
        assign_cells(cells, 0, "cells", calibrated=True)


def test_cells_stay_whole_in_every_fold(rows):
    cells = np.unique(cell_indices(rows.longitude, rows.latitude), axis=0, return_inverse=True)[1]
    part = block_split(rows.longitude, rows.latitude, 0, fold=3, calibrated=True)
    for number in range(cells.max() + 1):
        assert len(set(part[cells.reshape(-1) == number])) == 1
