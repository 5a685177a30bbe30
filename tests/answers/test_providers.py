"""The comparison of three providers, against a covariance matrix written out in full."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import ndtr
from shapely.geometry import box

from geogp.answers.providers import compared
from geogp.answers.tile_areas import TileAreas
from geogp.maps.target_quantities import quantity_of

NAMES, TILES = ("A", "B", "C"), 5
AREAS = TileAreas.with_tiles(
    "half", ["west", "east"], ["w", "e"], [box(0, 0, 1, 1)] * 2, [np.arange(2), np.arange(2, TILES)]
)


class Known:
    """A level with a known mean and covariance at all tiles of A, then of B, then of C."""

    def __init__(self):
        random = np.random.default_rng(0)
        root = random.standard_normal((3 * TILES, 3 * TILES)) / 20
        self.mean, self.covariance = random.normal(1.5, 0.3, 3 * TILES), root @ root.T

    def __len__(self):
        return len(self.mean)

    def sum_means(self, weights):
        return weights.T @ self.mean

    def sum_variances(self, weights):
        dense = weights.toarray()
        return np.diag(dense.T @ self.covariance @ dense)


def test_signals_differ_by_decibels_and_are_stronger():
    level, quantity = Known(), quantity_of("rsrp")
    columns = compared(level, AREAS, quantity, NAMES)[("A", "B")]
    weights = np.zeros(3 * TILES)
    weights[:2], weights[TILES : TILES + 2] = 0.5, -0.5  # the west of A, less that of B
    mean, sd = weights @ level.mean, np.sqrt(weights @ level.covariance @ weights)
    assert columns["level_dbm"][0] == pytest.approx(level.mean[:2].mean())
    assert columns["difference_db"][0] == pytest.approx(mean)
    assert columns["difference_upper_db"][0] == pytest.approx(mean + 1.959964 * sd)
    assert columns["probability_stronger"][0] == pytest.approx(ndtr(mean / sd))
    assert not [name for name in columns if "log10" in name or "percent" in name]


@pytest.mark.parametrize(("target", "sign"), [("download", 1), ("latency", -1)])
def test_each_pair_has_the_moments_of_its_difference(target, sign):
    level, quantity = Known(), quantity_of(target)
    found = compared(level, AREAS, quantity, NAMES)
    assert list(found) == list(combinations(NAMES, 2))
    for (a, b), columns in found.items():
        for area, tiles in enumerate(AREAS.tiles):
            weights = np.zeros(3 * TILES)
            weights[NAMES.index(a) * TILES + tiles] = 1 / len(tiles)
            own = 10 ** (weights @ level.mean)
            assert columns[f"level_{quantity.suffix}"][area] == pytest.approx(own)
            weights[NAMES.index(b) * TILES + tiles] = -1 / len(tiles)
            mean, sd = weights @ level.mean, np.sqrt(weights @ level.covariance @ weights)
            assert columns["difference_log10"][area] == pytest.approx(mean)
            assert columns["difference_sd_log10"][area] == pytest.approx(sd)
            upper = 100 * (10 ** (mean + 1.959964 * sd) - 1)
            assert columns["difference_upper_percent"][area] == pytest.approx(upper)
            assert columns["probability_faster"][area] == pytest.approx(ndtr(sign * mean / sd))
