"""Spread by cells of 0.05 degrees."""

import numpy as np
import pandas as pd
import pytest

from geogp.errors import DataError
from geogp.evaluation.spread import CELL_DEGREES, MIN_ROWS, spread_by_cell


def rows_of(*columns):
    names = ("longitude", "latitude", "y", "mean", "function_variance", "noise_variance")
    return pd.DataFrame(dict(zip(names, columns, strict=True)))


def test_spread_of_a_cell_by_hand():
    y = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
    place = np.array([0.01, 0.02, 0.03, 0.04, 0.049, 0.051])
    variance = np.array([0.1, 0.2, 0.3, 0.4, 1.0, 9.0])
    found = spread_by_cell(
        rows_of(-66 - CELL_DEGREES + place, 18 + place, y, 0 * y + 2, variance, 0 * y + 1)
    )
    assert found["n"].tolist() == [5]
    assert found["west"].tolist() == pytest.approx([-66.05])
    assert found["south"].tolist() == pytest.approx([18.0])
    assert found["measured"].tolist() == pytest.approx([np.sqrt(2.5)])
    assert found["error"].tolist() == pytest.approx([np.sqrt((1 + 0 + 1 + 4 + 9) / 5)])
    assert found["predicted"].tolist() == pytest.approx([np.sqrt(1.4)])


def test_right_predictions_are_spread_as_they_say():
    """A known law, whose spread varies over space and whose mean varies within cells."""
    rng = np.random.default_rng(0)
    n = 60_000
    longitude, latitude = rng.uniform(-66.5, -66, n), rng.uniform(18, 18.5, n)
    mean, sd = np.sin(120 * longitude), 0.2 + (longitude + 66.5)
    y = mean + sd * rng.standard_normal(n)
    found = spread_by_cell(rows_of(longitude, latitude, y, mean, 0.3 * sd**2, 0.7 * sd**2))
    assert len(found) == 100
    assert found.n.sum() == n
    np.testing.assert_allclose(found.error / found.predicted, 1, atol=0.12)
    assert np.corrcoef(found.error, found.predicted)[0, 1] > 0.98
    assert np.all(found.measured > 1.2 * found.predicted)


def test_too_few_rows_anywhere():
    n = MIN_ROWS - 1
    rows = rows_of(*np.zeros((6, n)))
    with pytest.raises(DataError, match=f"with {MIN_ROWS} test rows or more, found none among {n}"):
        spread_by_cell(rows)
