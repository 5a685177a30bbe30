"""Stated and measured shares below thresholds by county, where the truth is known."""

import json
from dataclasses import asdict
from operator import methodcaller

import numpy as np
import pandas as pd
import pytest

from geogp.distributions.prediction import Prediction
from geogp.geodata.tiles.thresholds import Threshold
from geogp.reports.area_shares import area_shares
from geogp.reports.rendering import environment, say

TEN = Threshold(10, "download")


def world(seed=0, *, bias=0.0, tile_sd=0.0, areas=40, tiles=60, quarters=6):
    """Rows drawn from their prediction; `tile_sd` moves the rows of one tile together."""
    random = np.random.default_rng(seed)
    tile = np.repeat(np.arange(areas * tiles), quarters)
    n = len(tile)
    mean = random.normal(1.0, 0.3, n)
    own = np.sqrt(0.09 - tile_sd**2) * random.standard_normal(n)
    y = mean + own + tile_sd * random.standard_normal(areas * tiles)[tile]
    rows = pd.DataFrame({"y": y, "quadkey": tile.astype(str), "county": tile // tiles})
    variance = np.full(n, 0.09)
    return rows, Prediction(mean + bias, 0.4 * variance, 0.6 * variance)


def asked(rows, prediction, threshold=TEN):
    return area_shares(rows, "county", methodcaller("probability", prediction), (threshold,))


def test_shares_are_means_of_probabilities_and_of_outcomes():
    rows, prediction = world()
    found = asked(rows, prediction)
    assert len(found) == 40
    assert all((one.rows, one.tiles, one.missed) == (360, 60, "below 10 Mbps") for one in found)
    first = rows["county"] == 0
    assert found[0].stated == pytest.approx((1 - TEN.probability(prediction))[first].mean())
    assert found[0].observed == pytest.approx((rows["y"][first] < 1).mean())
    assert found[0].lower < found[0].difference < found[0].upper
    json.dumps([asdict(one) for one in found], allow_nan=False)


def test_latency_counts_rows_above_the_threshold():
    rows, prediction = world()
    one, other = (asked(rows, prediction, one)[0] for one in (Threshold(10, "latency"), TEN))
    assert one.missed == "above 10 ms"
    assert one.observed == pytest.approx(1 - other.observed)
    assert one.stated == pytest.approx(1 - other.stated)


@pytest.mark.parametrize("tile_sd", [0.0, 0.25])
def test_intervals_contain_0_in_95_of_100_areas_if_the_shares_are_right(tile_sd):
    inside = [not one.off for seed in range(5) for one in asked(*world(seed, tile_sd=tile_sd))]
    assert 0.91 < np.mean(inside) <= 1.0


def test_wrong_shares_are_found():
    found = asked(*world(bias=0.1))
    assert np.mean([one.off for one in found]) > 0.9
    page = environment().get_template("area_shares.html.j2").render(shares=found)
    assert 'tabindex="0" aria-label="Shares below thresholds by area"' in page
    text = say("report", "area_shares", found)
    assert f"{40 - sum(one.off for one in found)} contain 0" in text
    page = environment().get_template("area_shares.html.j2").render(shares=found)
    assert page.count("<tr>") == 41
    assert 'role="region" tabindex="0" aria-label="Shares below thresholds by area"' in page


def test_few_rows_are_left_out_and_few_tiles_have_no_interval():
    rows, prediction = world(areas=2, tiles=8)
    rows.loc[rows.index[: 8 * 6 - 29], "county"] = 1  # 29 rows stay in the first area
    (one,) = asked(rows, prediction)
    assert one.rows == 2 * 48 - 29
    assert one.lower is not None  # 13 tiles
    (few,) = asked(*world(areas=1, tiles=8))
    assert few.lower is None
    assert not few.off
    assert "No area has enough tiles" in say("report", "area_shares", [few])
