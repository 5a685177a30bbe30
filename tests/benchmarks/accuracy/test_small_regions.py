"""Windows of the benchmark of small regions, and their table."""

from types import SimpleNamespace

import numpy as np
from benchmark_scripts import load

script = load("accuracy.small_regions")
FEWEST, MOST, cut, page = script.FEWEST, script.MOST, script.cut, script.page


class _Seen(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.quarter)


def test_a_window_holds_the_nearest_rows_of_successive_quarters():
    rng = np.random.default_rng(0)
    longitude, latitude = rng.uniform(0, 1, (2, 20_000))
    seen = _Seen(longitude=longitude, latitude=latitude, quarter=rng.integers(0, 6, 20_000))
    for seed in range(20):
        rows = cut(seen, np.random.default_rng(seed))
        assert len(np.unique(rows)) == len(rows)
        assert len(rows) <= MOST
        quarters = np.unique(seen.quarter[rows])
        assert (np.diff(quarters) == 1).all()
        there = np.isin(seen.quarter, quarters)
        box = [(part[rows].min(), part[rows].max()) for part in (seen.longitude, seen.latitude)]
        inside = there & np.logical_and.reduce(
            [
                (part >= low) & (part <= high)
                for part, (low, high) in zip((seen.longitude, seen.latitude), box, strict=True)
            ]
        )
        # The box around the nearest rows holds hardly any others.
        assert FEWEST <= len(rows) <= inside.sum() <= len(rows) + 2


def test_coverage_is_pooled_and_refusals_are_counted():
    own = {"window": 0, "region": "PR", "seed": 0, "rows": 800, "quarters": 1}
    figures = [
        {**own, "split": "random", "test_rows": 100, "log_score": 0.5, "baseline": 0.75}
        | {"inside": {"0.5": 50, "0.8": 80, "0.95": 95}},
        {**own, "split": "random", "test_rows": 300, "log_score": 0.5, "baseline": 0.5}
        | {"inside": {"0.5": 150, "0.8": 240, "0.95": 297}},
        {**own, "split": "random", "refused": "too few cells"},
    ]
    row = "| random | up to 1,499 | 2 | 1 | 400 | 50.0 % | 80.0 % | 98.0 % | 0.125 | 0.000 |"
    assert row in page(figures)
