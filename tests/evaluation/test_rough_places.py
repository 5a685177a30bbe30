"""Rough places: found at a step, not in correct predictions, and not from a row's own error."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from scipy.linalg import solve_triangular
from scipy.spatial import cKDTree

from geogp.evaluation.rough_places import NEIGHBOURS, roughness_strata
from geogp.evaluation.simultaneous_coverage import blocks_of, class_reports, most_missed

SIDE = 0.1 / 16
"""Side of a tile in degrees; a block has 16 by 16 tiles."""


def world(n=3000, blocks=6, seed=0):
    """Return n random tiles in a square of blocks, with their coordinates (n, 2)."""
    random = np.random.default_rng(seed)
    tiles = random.choice((16 * blocks) ** 2, n, replace=False)
    x = np.column_stack(np.divmod(tiles, 16 * blocks)) * SIDE + SIDE / 2 + [-66.0, 18.0]
    quadkey = [f"{tile:016d}" for tile in tiles]
    return pd.DataFrame({"quadkey": quadkey, "longitude": x[:, 0], "latitude": x[:, 1]}), x


def rough_of(rows, pit):
    """Return the mask of the rough places, (n,)."""
    rough, smooth = roughness_strata(rows, pit)["roughness"]
    assert (rough.name, smooth.name) == ("rough places", "smooth places")
    np.testing.assert_array_equal(rough.rows, ~smooth.rows)
    return rough.rows


def check_of(rows, pit):
    """Return the check of the 95 % intervals in rough places."""
    groups = {"k": {one.name: one.rows for one in roughness_strata(rows, pit)["roughness"]}}
    blocks = blocks_of(rows["longitude"].to_numpy(), rows["latitude"].to_numpy())
    return class_reports(pit, groups, blocks, draws=200)[0].checks[-1]


def too_narrow(check):
    return check.observed < 0.93 and check.upper is not None and check.upper < check.level


def smooth_scores(x, height, seed):
    """Return z of noise around a step of `height` at latitude 18.25, predicted by a mean.

    The mean is over all tiles within 0.03 degrees, as in a kernel smoother, and the spread is
    correct in the sum over all tiles, as in a model whose noise is estimated.
    """
    y = height * (x[:, 1] > 18.25) + np.random.default_rng(seed).standard_normal(len(x))
    near = cKDTree(x).query_ball_point(x, 0.03)
    error = y - np.array([y[one].mean() for one in near])
    return error / error.std()


def test_a_step_predicted_by_a_smooth_law_is_found_where_it_lies():
    rows, x = world()
    pit = special.ndtr(smooth_scores(x, 6.0, 1))
    rough, check = rough_of(rows, pit), check_of(rows, pit)
    assert too_narrow(check)
    assert check.observed < 0.85 < (np.abs(pit - 0.5) <= 0.475).mean()
    # The border touches fewer than a tenth of the rows; the other rough places are by chance.
    away = np.abs(x[:, 1] - 18.25)
    assert rough[away < SIDE].mean() > 0.8
    assert rough[away > 0.03].mean() < 0.06
    longitude, latitude = most_missed(pit[rough], *x[rough].T)
    assert latitude == 18.25
    assert -66 < longitude < -65.4
    without = special.ndtr(smooth_scores(x, 0.0, 1))
    assert not too_narrow(check_of(rows, without))


@pytest.fixture(scope="module")
def correlated():
    """Test tiles of whole blocks, and a factor of the true correlation of their errors.

    The field has the covariance exp(-distance / 0.05 degrees), the noise a tenth of its variance.
    The errors are those of the true conditional law, given the other blocks.
    """
    rows, x = world()
    blocks = blocks_of(*x.T)
    test = np.random.default_rng(3).permutation(36)[blocks] < 18
    covariance = np.exp(-np.linalg.norm(x[:, None] - x, axis=-1) / 0.05)
    noise = 0.1 * np.eye(len(x))
    factor = np.linalg.cholesky((covariance + noise)[np.ix_(~test, ~test)])
    known = solve_triangular(factor, covariance[np.ix_(~test, test)], lower=True)
    left = (covariance + noise)[np.ix_(test, test)] - known.T @ known
    sd = np.sqrt(np.diag(left))
    return rows[test].reset_index(drop=True), np.linalg.cholesky(left / np.outer(sd, sd))


def test_correct_predictions_with_correlated_errors_are_seldom_found(correlated):
    """In 40 draws, at most 5 % plus three binomial deviations; the mean coverage is close to 95 %.

    A mean square in place of the variance, which selects large shared errors, fails this test.
    """
    rows, factor = correlated
    random = np.random.default_rng(4)
    draws = [special.ndtr(factor @ random.standard_normal(len(rows))) for _ in range(40)]
    checks = [check_of(rows, pit) for pit in draws]
    assert all(one.upper is not None for one in checks)
    assert sum(map(too_narrow, checks)) <= 40 * (0.05 + 3 * np.sqrt(0.05 * 0.95 / 40))
    assert np.mean([one.observed for one in checks]) == pytest.approx(0.95, abs=0.02)
    # The errors are strongly correlated: neighbours with a large mean square would be a wrong test.
    x = rows[["longitude", "latitude"]].to_numpy()
    near = cKDTree(x).query(x, NEIGHBOURS + 1)[1][:, 1:]
    naive = []
    for pit in draws:
        square = np.square(special.ndtri(pit))[near].mean(1)
        chosen = square > np.quantile(square, 0.9)
        naive.append((np.abs(pit[chosen] - 0.5) <= 0.475).mean())
    assert np.mean(naive) < 0.85


def test_roughness_against_a_loop_over_rows():
    """With several rows in many tiles. At the equator, distances in degrees have the same order."""
    random = np.random.default_rng(5)
    rows, _ = world(700)
    rows["latitude"] -= 18.3
    rows = rows.loc[random.integers(0, 700, 2000)].reset_index(drop=True)
    pit = random.uniform(size=len(rows))
    pit[:5] = 0.0, 1.0, 0.0, 1.0, 1.0
    z = np.clip(stats.norm.ppf(pit), -3, 3)
    found = []
    places = rows.groupby("quadkey")[["longitude", "latitude"]].first()
    for name in rows["quadkey"]:
        distance = np.linalg.norm(places - places.loc[name], axis=1)
        order = np.argsort(distance)
        border = distance[order[NEIGHBOURS]]
        tie = distance[order[NEIGHBOURS + 1]] - border < 1e-9
        near = places.index[order[1 : NEIGHBOURS + 1]]
        found.append(np.nan if tie else z[rows["quadkey"].isin(near)].var(ddof=1))
    value, rough = np.array(found), rough_of(rows, pit)
    assert np.isfinite(value).sum() > 500
    assert np.nanmax(value[~rough]) <= np.nanmin(value[rough])
    assert 0.09 * len(rows) < rough.sum() <= 0.1 * len(rows)


def test_the_errors_of_a_rows_own_tile_do_not_matter():
    random = np.random.default_rng(6)
    rows, _ = world(1200)
    rows = pd.concat([rows, rows], ignore_index=True)  # two quarters
    pit = random.uniform(size=len(rows))
    for number in random.integers(0, 1200, 20):
        other = pit.copy()
        other[[number, number + 1200]] = 1 - 1e-6, 1e-6
        before, after = rough_of(rows, pit), rough_of(rows, other)
        assert before[number] == before[number + 1200]
        # The limit of the tenth moves a little, because the neighbours of the tile become rough.
        assert after[number] <= before[number]


def test_the_order_of_rows_does_not_matter():
    random = np.random.default_rng(7)
    rows, _ = world(1500)
    rows = pd.concat([rows, rows[:500]], ignore_index=True)
    pit, order = random.uniform(size=len(rows)), random.permutation(len(rows))
    expected = rough_of(rows, pit)[order]
    np.testing.assert_array_equal(rough_of(rows.iloc[order], pit[order]), expected)


def test_without_enough_rows_or_tiles_there_are_no_rough_places():
    rows, _ = world(1000)
    pit = np.random.default_rng(8).uniform(size=1000)
    assert rough_of(rows, pit).sum() == 100
    assert roughness_strata(rows[1:], pit[1:]) == {}
    few = rows.assign(quadkey=np.arange(1000) % NEIGHBOURS)
    assert roughness_strata(few, pit) == {}
    assert roughness_strata(rows, np.full(1000, 0.5)) == {}  # all alike


def test_the_block_with_the_most_missed_rows():
    place = np.array([[-66.01, 18.29], [-66.09, 18.21], [-66.05, 18.31], [179.99, -0.01]])
    pit = np.array([0.0, 0.976, 0.001, 0.02])
    assert most_missed(pit, *place.T) == [-66.05, 18.25]
    assert most_missed(pit[2:], *place[2:].T) == [179.95, -0.05]
    assert most_missed(np.array([0.026, 0.974, 0.5, 0.5]), *place.T) is None
