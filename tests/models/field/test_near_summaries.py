"""Summaries of near measurements: equal to slow loops, and blind to the row or group itself."""

from functools import partial

import numpy as np
import pytest
from benchmark_scripts import load

from geogp.models.field import near_summaries as near

kriging = load("peers.local_kriging")


def _rows(n: int, seed: int = 0) -> "near.Measurements":
    random = np.random.default_rng(seed)
    place = random.uniform(0, 10, (n // 3, 2))[random.integers(0, n // 3, n)]
    time = random.integers(0, 6, n).astype(float)
    return near.Measurements(place, time, random.standard_normal(n), random.uniform(0.5, 3, n))


def _mean(rows: list[int], source, decays) -> float:
    w = source.weight[rows] * decays[rows]
    return (w * source.y[rows]).sum() / w.sum() if len(rows) else np.nan


def _slow(source, place, time, without: int | None) -> np.ndarray:
    """Return the features of one row by loops."""
    left = [i for i in range(len(source)) if i != without]
    lag = np.abs(source.time - time)
    decays = [np.exp(-lag / d) for d in near.DECAYS]

    def summary(rows: list[int]) -> list[float]:
        w, y = source.weight[rows], source.y[rows]
        mean = _mean(rows, source, decays[0])
        spread = np.sqrt((w * (y - mean) ** 2).sum() / w.sum()) if len(rows) > 1 else np.nan
        weight = np.log(w.sum()) if len(rows) else np.nan
        return [*(_mean(rows, source, d) for d in decays), spread, weight]

    own = [i for i in left if (source.place[i] == place).all()]
    found = summary(own)
    for sign in (-1, 1):
        side = [i for i in own if sign * (source.time[i] - time) > 0]
        if not side:
            found += [np.nan] * 3
            continue
        least = min(lag[i] for i in side)
        side = [i for i in side if lag[i] == least]
        found += [_mean(side, source, decays[0]), least, source.weight[side].sum()]
    tiles = {tuple(p): np.hypot(*(p - place)) for p in source.place if (p != place).any()}
    order = sorted(tiles, key=tiles.__getitem__)
    for k in near.NEAREST:
        rows = [i for i in left if tuple(source.place[i]) in set(order[:k])]
        found += [*summary(rows), np.mean([tiles[p] for p in order[:k]])]
    return np.array(found)


@pytest.mark.parametrize("n", [90, 300])
def test_they_are_those_of_a_slow_loop(n):
    rows, others = _rows(n), _rows(30, seed=1)
    fast = near.left_out_summaries(near.near_summaries, rows, np.arange(n), np.ones(n, bool), 0)
    slow = [_slow(rows, rows.place[i], rows.time[i], i) for i in range(n)]
    np.testing.assert_allclose(fast, slow, atol=1e-6)
    fast = near.near_summaries(rows, others, None)
    slow = [_slow(rows, *row, None) for row in zip(others.place, others.time, strict=True)]
    np.testing.assert_allclose(fast, slow, atol=1e-6)


def test_many_times_are_summed_by_intervals():
    """Means without decay, spreads and weights do not depend on times; no own row is used."""
    rows, others = _rows(300), _rows(40, seed=1)
    random = np.random.default_rng(2)
    spread = near.Measurements(rows.place, random.uniform(0, 9, 300), rows.y, rows.weight)
    sums = near.TileSums.of(spread)
    assert len(sums.times) == near.MOST_TIMES
    found, expected = (near.near_summaries(r, others, None) for r in (spread, rows))
    same = [0, 3, 4, *(11 + 6 * k + i for k in range(len(near.NEAREST)) for i in (0, 3, 4, 5))]
    np.testing.assert_allclose(found[:, same], expected[:, same], atol=1e-6)
    own = np.arange(300)
    before = near.near_summaries(spread, spread, own)
    after = near.near_summaries(_changed(spread, 7), _changed(spread, 7), own)
    np.testing.assert_allclose(after[7], before[7], atol=1e-6)


def test_parts_do_not_change_summaries(monkeypatch):
    rows = _rows(300)
    whole = near.near_summaries(rows, rows, np.arange(300))
    assert whole.shape == (300, near.SUMMARIES)
    monkeypatch.setattr(near, "ROWS_AT_ONCE", 37)
    np.testing.assert_array_equal(near.near_summaries(rows, rows, np.arange(300)), whole)


def _krige(rows) -> "near.Summaries":
    return kriging.fit_covariance(rows, 0).features


def _changed(rows, chosen) -> "near.Measurements":
    y = rows.y.copy()
    y[chosen] += 100.0
    return near.Measurements(rows.place, rows.time, y, rows.weight)


@pytest.mark.parametrize("krige", [False, True])
def test_the_own_row_does_not_matter(krige):
    rows = _rows(240)
    make = _krige(rows) if krige else near.near_summaries
    found = partial(
        near.left_out_summaries, make, groups=np.arange(240), alone=np.ones(240, bool), seed=0
    )
    before, after = found(rows=rows), found(rows=_changed(rows, 7))
    # Kriging subtracts the mean of the quarter, which contains the row.
    assert np.allclose(after[7], before[7], atol=3.0 if krige else 1e-6, equal_nan=True)
    assert not np.allclose(after, before, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize("krige", [False, True])
def test_no_row_of_the_own_group_matters(krige):
    rows = _rows(240)
    groups = np.unique(np.floor(rows.place / 2), axis=0, return_inverse=True)[1].reshape(-1)
    make = _krige(rows) if krige else near.near_summaries
    found = partial(near.left_out_summaries, make, groups=groups, alone=np.zeros(240, bool), seed=0)
    chosen = groups == groups[0]
    before, after = found(rows=rows), found(rows=_changed(rows, chosen))
    np.testing.assert_array_equal(after[chosen], before[chosen])
    assert not np.allclose(after, before, equal_nan=True)


def test_some_rows_are_left_out_alone_and_others_with_their_groups():
    rows = _rows(240)
    groups = np.unique(np.floor(rows.place / 2), axis=0, return_inverse=True)[1].reshape(-1)
    alone = np.random.default_rng(0).random(240) < 0.5
    every, none = np.ones(240, bool), np.zeros(240, bool)
    found, single, grouped = (
        near.left_out_summaries(near.near_summaries, rows, groups, marked, 0)
        for marked in (alone, every, none)
    )
    np.testing.assert_array_equal(found, np.where(alone[:, None], single, grouped))
    assert not np.allclose(single, grouped, equal_nan=True)


def test_values_of_asked_rows_are_not_used():
    rows, others = _rows(240), _rows(60, seed=1)
    for make in (near.near_summaries, _krige(rows)):
        before, after = (make(rows, asked, None) for asked in (others, _changed(others, [3])))
        np.testing.assert_array_equal(after, before)


def test_kriging_is_that_of_the_whole_matrix():
    rows, others = _rows(40), _rows(9, seed=1)
    fitted = kriging.fit_covariance(rows, 0)
    v, noise, r, t = fitted.parameters.exp().numpy().reshape(4, 2)

    def covariance(a, b) -> np.ndarray:
        apart = np.hypot(*(a.place[:, None] - b.place).transpose(2, 0, 1))
        lag = np.abs(a.time[:, None] - b.time)
        return sum(v[k] * np.exp(-apart / r[k] - lag / t[k]) for k in (0, 1))

    levels = kriging.quarter_means(rows)
    whole = covariance(rows, rows) + np.diag(noise[0] + noise[1] / rows.weight)
    across = np.linalg.solve(whole, covariance(rows, others))
    found = fitted.features(rows, others, None)
    residual = rows.y - levels(rows.time)
    np.testing.assert_allclose(found[:, 0], levels(others.time) + across.T @ residual, atol=1e-8)
    variance = v.sum() - (across * covariance(rows, others)).sum(0)
    np.testing.assert_allclose(found[:, 1], variance, atol=1e-8)
