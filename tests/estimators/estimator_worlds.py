"""Made-up points in space and time, and the smallest fits."""

import numpy as np
import pandas as pd

TINY = {"epochs": 1, "rank": 8}
"""Parameters of a fit that takes a moment."""


def made_points(n=1200, *, seed=0, noise=0.2):
    """Points in plain units with dates, and values that depend on both."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "east": random.uniform(0, 100, n),
            "north": random.uniform(0, 60, n),
            "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(random.uniform(0, 700, n), "D"),
            "tests": random.integers(1, 9, n),
        }
    )
    table["value"] = (
        np.sin(table.east / 15) + np.cos(table.north / 10) + noise * random.standard_normal(n)
    )
    return table
