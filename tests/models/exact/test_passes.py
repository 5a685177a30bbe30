"""Passes: rows of a session in a cell of space and time, and their means."""

import numpy as np
import pytest

from geogp.models.exact.passes import MOST_PASSES, MOST_ROWS, passes_of


def rows(n, sessions, *, time=False):
    """Rows of sessions that are anywhere in a box, or with times, on one line from west to east."""
    random = np.random.default_rng(0)
    session = np.sort(random.integers(sessions, size=n))
    points = random.uniform(0, 30, (n, 2)) * [1.0, 0.5]
    if time:
        points = np.column_stack([points[:, 0], np.full(n, 3.0), points[:, 0] / 30])
    return points, random.standard_normal(n), session


def test_few_rows_are_a_pass_each():
    points, y, session = rows(MOST_ROWS, 10)
    for found in (
        passes_of(points, y, session, pool=True),
        passes_of(*rows(5_000, 9)[:2], None, pool=True),
    ):
        assert found.kept.all()
        np.testing.assert_array_equal(found.number, np.arange(len(found.number)))
        assert (found.rows == 1).all()
        assert found.within == 0
    np.testing.assert_array_equal(passes_of(points, y, session, pool=True).mean(y), y)


@pytest.mark.parametrize("time", [False, True])
def test_rows_of_a_session_in_the_smallest_cells_are_a_pass(time):
    points, y, session = rows(20_000, 2, time=time)
    found = passes_of(points, y, session, pool=True)
    assert MOST_PASSES / 8 < len(found.rows) <= MOST_PASSES
    assert found.kept.all()
    np.testing.assert_array_equal(found.rows, np.bincount(found.number))
    for number in (0, 7, len(found.rows) - 1):
        own = found.number == number
        assert len(np.unique(session[own])) == 1
        assert np.ptp(points[own, :2], 0).max() <= np.ptp(points[:, :2], 0).max() / 16
        assert not time or np.ptp(points[own, 2]) <= 1 / 16
        assert found.mean(y)[number] == pytest.approx(y[own].mean())
        np.testing.assert_allclose(found.mean(points)[number], points[own].mean(0))
    squares = np.square(y - found.mean(y)[found.number]).sum()
    assert found.within == pytest.approx(squares / (20_000 - len(found.rows)))
    assert found.within == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("pool", [False, True])
def test_some_of_too_many_passes_are_drawn(pool):
    points, y, session = rows(20_000, 300)
    found = passes_of(points, y, session, pool=pool, seed=1)
    assert len(found.rows) == MOST_PASSES
    assert found.kept.sum() == len(found.number) == found.rows.sum()
    assert (found.rows > 1).any() == pool
    own = np.flatnonzero(found.kept)[found.number == 5]
    assert len(np.unique(session[own])) == 1
    assert found.mean(y[found.kept])[5] == pytest.approx(y[own].mean())
    # All places are drawn alike.
    drawn = points[found.kept]
    np.testing.assert_allclose(drawn.mean(0), points.mean(0), atol=0.6)
    again = passes_of(points, y, session, pool=pool, seed=1)
    np.testing.assert_array_equal(again.kept, found.kept)


def test_rows_of_a_session_at_one_place_are_one_pass():
    _, y, session = rows(4_000, 3)
    same = passes_of(np.zeros((4_000, 2)), y, session, pool=True)
    np.testing.assert_array_equal(same.rows, np.bincount(session))
