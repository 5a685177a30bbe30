"""What each split says of measured tiles, unmeasured ones, and places far from measurements."""

import numpy as np
import pandas as pd
import pytest
from run_worlds import as_record
from scipy import stats

from geogp.reports.run_report import build_report, report_html, report_markdown

MAP = {"map": {"tiles": 1000, "measured_tiles": 580, "near_tiles": 380, "far_tiles": 5}}

pytestmark = pytest.mark.usefixtures("no_drawings")

DISTANCE = {
    "random": 0.6,
    "tiles": np.where(np.arange(2000) % 4, 0.6, 1.4),
    "blocks": np.where(np.arange(2000) % 4, 4.0, 0.9),
}
"""Distance in km to the nearest row of the fit; a quarter is beyond the limit of 1 km, or in it."""


@pytest.fixture
def worlds(predictions_of):
    """Test rows of three splits; a tenth of the random rows lie in tiles without other rows."""
    found = {}
    for seed, (name, shrink) in enumerate({"random": 1.0, "tiles": 0.5, "blocks": 1.5}.items()):
        rows = predictions_of(name, stratum=["urban"] * 1000 + ["rural"] * 1000, seed=seed)
        alone = np.arange(2000) % 10 == 0 if name == "random" else np.ones(2000, bool)
        shift = shrink * (rows["upper_95"] - rows["lower_95"]) / 2
        middle = (rows["upper_95"] + rows["lower_95"]) / 2
        found[name] = rows.assign(
            distance_km=DISTANCE[name] * alone,
            lower_95=middle - shift,
            upper_95=middle + shift,
            function_variance=rows["function_variance"] * shrink**2,
            noise_variance=rows["noise_variance"] * shrink**2,
        )
    return found


def report_of(run_of, *rows, **facts):
    table = pd.concat(rows, ignore_index=True)
    return build_report(as_record(run_of(table) | facts), table), table


def test_each_kind_of_place_has_the_rows_of_its_split(worlds, run_of):
    report, table = report_of(run_of, *worlds.values(), **MAP)
    assert [one.kind for one in report.places] == ["measured", "unmeasured", "far"]
    assert [one.split for one in report.places] == ["random", "tiles", "blocks"]
    assert [one.map_share for one in report.places] == pytest.approx([0.58, 0.38, 0.04])
    for one in report.places:
        rows = worlds[one.split]
        km = rows["distance_km"]
        kinds = {"measured": km == 0, "unmeasured": (km > 0) & (km <= 1), "far": km > 1}
        rows = rows[kinds[one.kind]]
        inside = rows["y"].between(rows["lower_95"], rows["upper_95"])
        exact = stats.binomtest(int(inside.sum()), len(rows)).proportion_ci(method="exact")
        width = (rows["upper_95"] - rows["lower_95"]).median()
        assert (one.n, one.coverage) == (len(rows), inside.mean())
        assert one.bounds == pytest.approx([exact.low, exact.high], rel=1e-9)
        assert one.median_factor == pytest.approx(10**width, rel=1e-9)
        told = report.reliance[one.title]
        assert f"{100 * one.map_share:.1f} % of the map's tiles" in told
        assert f"Of {one.n:,} measurements" in told
        assert f"(split {one.split}" in told
        assert f"{100 * one.coverage:.1f} % lie inside" in told
        assert f"{one.median_factor:.1f} times the lower end" in told
    assert "split random, 90.0 % of its test rows" in report.reliance["Measured tiles"]
    short = report.summary.sentences["The 95 % intervals"]
    for text in (report_html(report, table), report_markdown(report)):
        assert "Unmeasured tiles among measured ones" in text
        assert short.split(" (")[0] in text.replace("\N{NO-BREAK SPACE}", " ")
    assert short.count("% of the map") == 3
    assert "Not checked" not in report.reliance


def test_without_the_split_by_tiles_only_tiles_measured_once_stand_for_unmeasured_ones(
    worlds, run_of
):
    report, _ = report_of(run_of, worlds["random"], worlds["blocks"], **MAP)
    unmeasured = report.places[1]
    assert (unmeasured.split, unmeasured.n, unmeasured.share) == ("random", 200, 0.1)
    assert "of tiles of which the fit has no other row" in report.reliance[unmeasured.title]
    assert report.reliance["Not checked"].endswith("make a run with --split tiles.")
    assert "nearby" not in report.reliance["Not checked"]


def test_with_one_row_in_each_tile_random_rows_are_whole_tiles(worlds, run_of):
    rows = worlds["random"].assign(distance_km=0.6)
    report, _ = report_of(run_of, rows, same_splits={"tiles": "random"}, **MAP)
    (only,) = report.places
    assert (only.kind, only.n, only.share) == ("unmeasured", 2000, 1.0)
    told = report.reliance[only.title]
    assert (
        "of tiles without any other measurement (split random, 100.0 % of its test rows; " in told
    )
    assert "each tile has one row, so this split holds out whole tiles)" in told
    assert "--split tiles" not in report.reliance["Not checked"]


def test_runs_of_earlier_versions_say_what_they_know(worlds, run_of):
    """Those without sizes of the map have no shares, and those without distances no kinds."""
    report, _ = report_of(run_of, *worlds.values())
    assert [one.map_share for one in report.places] == [None] * 3
    assert "map" not in report.reliance["Measured tiles"]
    assert "The 95 % intervals" not in report.summary.sentences
    report, _ = report_of(run_of, worlds["random"].drop(columns="distance_km"), **MAP)
    assert report.places == []
    assert report.reliance["Overall"].startswith("of 2,000 measurements")
