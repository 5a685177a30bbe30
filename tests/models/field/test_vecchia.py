"""The rows that condition a place, and padded blocks."""

import numpy as np
import pytest
import torch
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from geogp.errors import NumericalError
from geogp.models.field import vecchia
from geogp.models.field.vecchia import (
    NO_ROW,
    NearSites,
    Sites,
    distance_to_others,
    earlier_places,
    earlier_rows,
    near_places,
    whiten,
)


def test_places_are_conditioned_on_their_six_nearest_earlier_ones():
    """Against the definition, by all distances; the first ones of the order have fewer."""
    places = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    sites = Sites.of(places)  # one row a place, so that rows are sites
    found = earlier_rows(sites, 6, np.random.default_rng(1))
    chosen = [row[row != NO_ROW].tolist() for row in found]
    counts = np.array([len(one) for one in chosen])
    assert sorted(counts.tolist()) == [0, 1, 2, 3, 4, 5, *[6] * 14]
    distance = np.linalg.norm(sites.centre[:, None] - sites.centre, axis=2)
    order = [int(np.flatnonzero(counts == k)[0]) for k in range(6)]
    for k, place in enumerate(order):
        assert set(chosen[place]) == set(order[:k])
    for place, neighbours in enumerate(chosen):
        away = distance[place, neighbours]
        assert (np.diff(away) > 0).all()
        # None of the first six, which are earlier than all others, is nearer than the farthest.
        left_out = [one for one in order if one not in {*neighbours, place}]
        if counts[place] == 6:
            assert (distance[place, left_out] > away[-1]).all()


def test_padding_becomes_the_identity():
    random = torch.Generator().manual_seed(0)
    root = torch.randn(3, 5, 7, generator=random, dtype=torch.float64)
    values = torch.randn(3, 5, 2, generator=random, dtype=torch.float64)
    noise = torch.rand(3, 5, generator=random, dtype=torch.float64)
    known = torch.ones(3, 5, dtype=torch.bool)
    known[1, 3:] = False
    noise[1, 4] = torch.nan
    L, white = whiten(root @ root.mT, noise, known, values)
    padded = L[1, 3:], white[1, 3:]
    torch.testing.assert_close(padded, (torch.eye(5, dtype=torch.float64)[3:], 0 * white[1, 3:]))
    kept = root[1, :3] @ root[1, :3].mT + noise[1, :3].diag()
    torch.testing.assert_close(L[1, :3, :3] @ L[1, :3, :3].mT, kept)
    torch.testing.assert_close(L[1, :3, :3] @ white[1, :3], values[1, :3])


def test_a_block_that_does_not_factorise_is_told():
    one = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(NumericalError, match="block of tiles does not factorise"):
        whiten(-one[None], 0 * one, one.bool(), one[None])


def test_near_rows_are_all_rows_of_the_sixteen_nearest_places_searched():
    random = np.random.default_rng(0)
    sites = Sites.of(random.uniform(0, 10, (60, 2)).repeat(random.integers(1, 5, 60), axis=0))
    searched, at = random.random(60) < 0.7, random.uniform(0, 10, (9, 2))
    for chosen in (None, searched):
        found = NearSites.of(sites, chosen).rows(at, 16)
        numbers = np.arange(60) if chosen is None else np.flatnonzero(chosen)
        for place, rows in zip(at, found, strict=True):
            near = numbers[np.argsort(cdist(place[None], sites.centre[numbers])[0])[:16]]
            own = [np.arange(sites.first[k], sites.first[k] + sites.count[k]) for k in near]
            assert rows[rows != NO_ROW].tolist() == np.concatenate(own).tolist()


class TestDistanceToOthers:
    @pytest.mark.parametrize("n", [2, 5, 16, 17, 60])
    def test_against_all_distances(self, n):
        random = np.random.default_rng(n)
        places = random.uniform(0, 10, (n, 2))
        at = np.vstack([places, random.uniform(0, 10, (5, 2))])
        found = distance_to_others(KDTree(places), at)
        for value, row in zip(found, cdist(at, places), strict=True):
            assert value == pytest.approx(np.sort(row[row > 0])[:16].mean(), rel=1e-12)

    def test_a_single_place_tells_nothing(self):
        assert distance_to_others(KDTree(np.zeros((1, 2))), np.eye(2)).tolist() == [1, 1]

    def test_a_crowded_place_counts_once(self):
        sites = Sites.of(np.repeat([[0.0, 0.0], [3.0, 4.0]], [150, 1], axis=0))
        assert len(sites) == 4
        assert distance_to_others(
            NearSites.of(sites).places, np.array([[3.0, 4.0], [0.0, 0.0]])
        ).tolist() == [
            5,
            5,
        ]


class TestEarlierPlaces:
    @pytest.mark.parametrize("at_once", [5, 1000])
    def test_they_come_earlier_and_are_the_nearest(self, monkeypatch, at_once):
        monkeypatch.setattr(vecchia, "SEARCHED_AT_ONCE", at_once)
        random = np.random.default_rng(0)
        place, order = random.uniform(0, 10, (300, 2)), random.permutation(300)
        found = earlier_places(place, order, 7)
        rank = np.argsort(order)
        for one in range(300):
            near = found[one][found[one] != NO_ROW]
            before = order[: rank[one]]
            distance = np.hypot(*(place[before] - place[one]).T)
            assert (rank[near] < rank[one]).all()
            assert len(near) == min(7, rank[one])
            assert near.tolist() == before[np.argsort(distance)[:7]].tolist()

    def test_all_of_them_or_none(self):
        place, order = np.random.default_rng(1).uniform(0, 1, (20, 2)), np.arange(20)
        found = earlier_places(place, order, 20)
        assert [(row != NO_ROW).sum() for row in found] == list(range(20))
        assert earlier_places(place, order, 0).shape == (20, 0)


class TestSeries:
    """Places with many rows at different times."""

    @staticmethod
    def _points() -> np.ndarray:
        random = np.random.default_rng(3)
        places = random.uniform(0, 10, (6, 2))
        at = [np.column_stack([np.tile(place, (70, 1)), np.arange(70) * 0.5]) for place in places]
        return random.permutation(np.concatenate([*at, [[20.0, 20.0, 3.0]]]))

    def test_blocks_are_eight_rows_that_follow_each_other(self):
        points = self._points()
        sites = Sites.of(points)
        assert sorted(sites.count.tolist()) == sorted([*([8] * 8 + [6]) * 6, 1])
        for first, count, centre in zip(sites.first, sites.count, sites.centre, strict=True):
            own = points[sites.order[first : first + count]]
            assert len(np.unique(own[:, :2], axis=0)) == 1
            np.testing.assert_allclose(np.diff(own[:, 2]), 0.5)
            np.testing.assert_allclose(sites.located(own).mean(0), centre)

    def test_a_time_step_is_as_long_as_the_way_to_the_nearest_place(self):
        points = self._points()
        sites = Sites.of(points)
        places = np.unique(points[:, :2], axis=0)
        nearest = np.sort(cdist(places, places), 1)[:, 1]
        assert sites.time_unit * 0.5 == pytest.approx(np.median(nearest))

    def test_a_prediction_searches_near_times(self):
        points = self._points()
        sites = Sites.of(points)
        assert near_places(sites) == (6, 64)
        at = np.array([[*points[0, :2], 17.0]])
        rows = NearSites.of(sites).rows(at, 2)
        found = points[sites.order[rows[rows != NO_ROW]]]
        assert abs(found[:, 2] - 17).max() < 10
        assert 17.0 in found[:, 2]

    def test_few_times_or_one_time_need_no_series(self):
        points = self._points()
        few = points[points[:, 2] < 20]
        same = points * np.array([1.0, 1.0, 0.0])
        for rows, most in ((few, 40), (same, 64)):
            sites = Sites.of(rows)
            assert sites.centre.shape[1] == 2
            assert sites.count.max() == most
            assert sites.located(rows).shape[1] == 2

    def test_irregular_times_and_a_single_crowded_place(self):
        points, random = self._points(), np.random.default_rng(5)
        unit = Sites.of(points).time_unit
        shifted = points.copy()
        shifted[0, 2] += 1e-6
        assert Sites.of(shifted).time_unit == pytest.approx(unit)
        jittered = points + np.column_stack([np.zeros((len(points), 2)), *random.random((1, 421))])
        assert Sites.of(jittered).time_unit == pytest.approx(unit, rel=0.5)
        many = np.column_stack([random.uniform(0, 10, (700, 2)), random.uniform(0, 35, 700)])
        one = points[(points[:, :2] == points[0, :2]).all(1)]
        sites = Sites.of(np.concatenate([many, one]))
        assert sites.time_unit == 0, "one crowded place does not change the others"
        assert sites.count.max() == 64


@pytest.mark.parametrize(
    ("place", "time", "expected"),
    [([0, 0, 0, 1], [1.0, 3, 7, 0], 3.0), ([0, 0, 1], [2.0, 2, 5], None), ([], [], None)],
)
def test_the_time_step_is_that_within_places(place, time, expected):
    assert vecchia.time_step(np.array(place, int), np.array(time, float)) == expected
