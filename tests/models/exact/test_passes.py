"""Passes: rows of a session in a cell, and their means."""

import numpy as np
import pytest

from geogp.models.exact.passes import MOST_PASSES, passes_of


def rows(n, sessions):
    random = np.random.default_rng(0)
    session = np.sort(random.integers(sessions, size=n))
    places = random.uniform(0, 30, (n, 2)) * [1.0, 0.5]
    return places, session, random.standard_normal(n)


def test_few_rows_are_a_pass_each():
    places, session, y = rows(MOST_PASSES, 10)
    for found in (passes_of(places, y, session), passes_of(*rows(5_000, 9)[::2], None)):
        np.testing.assert_array_equal(found.number, np.arange(len(found.number)))
        assert (found.rows == 1).all()
        assert found.within == 0
    np.testing.assert_array_equal(passes_of(places, y, session).mean(y), y)


def test_rows_of_a_session_in_the_smallest_cells_are_a_pass():
    places, session, y = rows(20_000, 10)
    found = passes_of(places, y, session)
    assert MOST_PASSES / 5 < len(found.rows) <= MOST_PASSES
    np.testing.assert_array_equal(found.rows, np.bincount(found.number))
    for number in (0, 7, len(found.rows) - 1):
        own = found.number == number
        assert len(np.unique(session[own])) == 1
        assert np.ptp(places[own], 0).max() <= 30 / 4
        assert found.mean(y)[number] == pytest.approx(y[own].mean())
        np.testing.assert_allclose(found.mean(places)[number], places[own].mean(0))
    squares = np.square(y - found.mean(y)[found.number]).sum()
    assert found.within == pytest.approx(squares / (20_000 - len(found.rows)))
    assert found.within == pytest.approx(1, abs=0.03)


def test_there_are_as_many_passes_as_sessions_in_the_widest_cell():
    places, session, y = rows(3_000, MOST_PASSES)
    found = passes_of(places, y, session)
    assert len(found.rows) == len(np.unique(session))
    same = passes_of(np.zeros((3_000, 2)), y, session % 3)
    np.testing.assert_array_equal(same.rows, np.bincount(session % 3))
