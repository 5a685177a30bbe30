import base64
import json
import re
from dataclasses import asdict
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from run_worlds import Page, as_record
from scipy import stats

from geogp.errors import DataError
from geogp.geodata.places.stratum_column import with_strata
from geogp.records.run_record import RUN_SCHEMA
from geogp.reports.rendering import report_json, say
from geogp.reports.run_report import build_report, report_html, report_markdown
from geogp.reports.words import MISSING

FIGURES = ("mae", "rmse", "nll", "crps", "coverage_50", "coverage_80", "coverage_95", "width_95")


def test_tables_equal_the_figures_of_the_run(both, run_of):
    run = run_of(both)
    report = build_report(as_record(run), both)
    assert list(report.splits) == ["blocks", "random"]
    for name, split in report.splits.items():
        for group, entry in split.groups.items():
            stored, yardstick = run["metrics"][name][group], run["baseline"][name][group]
            assert entry.n == stored["n"] > 0
            assert entry.scores["coverage_90"] is not None
            assert entry.baseline["coverage_90"] is entry.difference["coverage_90"] is None
            for figure in FIGURES:
                assert entry.scores[figure] == stored[figure]
                assert entry.baseline[figure] == yardstick[figure]
                assert entry.difference[figure] == stored[figure] - yardstick[figure]


def test_figures_beyond_the_run_against_pandas_and_scipy(both, run_of):
    report = build_report(as_record(run_of(both)), both)
    rows = both[(both["split"] == "blocks") & (both["stratum"] == "rural")]
    group = report.splits["blocks"].groups["rural"]
    width = rows["upper_95"] - rows["lower_95"]
    inside = int(rows["y"].between(rows["lower_95"], rows["upper_95"]).sum())
    exact = stats.binomtest(inside, len(rows)).proportion_ci(method="exact")
    assert group.tiles == rows["quadkey"].nunique() < len(rows)
    assert group.median_width_95 == pytest.approx(width.median(), rel=1e-9)
    assert group.median_factor_95 == pytest.approx(10 ** width.median(), rel=1e-9)
    assert group.coverage_bounds["coverage_95"] == pytest.approx([exact.low, exact.high], rel=1e-9)
    assert group.reliability.level[-2:] == [0.95, 0.99]
    assert group.reliability.observed[-2] == inside / len(rows)
    assert np.all(np.diff(group.reliability.observed) >= 0)
    assert sum(group.pit) == len(rows)
    medians = both[both["split"] == "blocks"].assign(width=both["upper_95"] - both["lower_95"])
    medians = medians.groupby("stratum")["width"].median()
    assert report.splits["blocks"].width_ratio == pytest.approx(
        medians["rural"] / medians["urban"], rel=1e-9
    )


def test_json_round_trip(both, run_of):
    report = build_report(as_record(run_of(both)), both)
    assert json.loads(report_json(report)) == asdict(report)


@pytest.mark.parametrize(
    ("urban", "rural", "expected"),
    [
        (1.0, 1.0, "95 % intervals have the stated coverage in town and in the country."),
        (1.0, 0.6, "have the stated coverage in town and are too narrow in the country."),
        (1.6, 0.6, "are wider than needed in town and are too narrow in the country."),
    ],
)
def test_headline_says_whether_the_intervals_hold(predictions_of, run_of, urban, rural, expected):
    rows = pd.concat(
        [
            predictions_of("blocks", stratum=["urban"] * 2000, shrink=urban, seed=3),
            predictions_of("blocks", stratum=["rural"] * 1000, shrink=rural, seed=4),
        ]
    )
    report = build_report(as_record(run_of(rows)), rows)
    assert report.headline.endswith(expected)
    assert "2,000 rows" in report.findings[0]


@pytest.mark.usefixtures("no_drawings")
@pytest.mark.parametrize(
    ("facts", "side", "km"),
    [
        ({"schema": RUN_SCHEMA, "block_degrees": 0.025}, "0.025", "2.5"),
        ({}, "0.1", "10"),  # runs of version 0.1 have no other blocks
        ({"schema": RUN_SCHEMA}, None, None),
    ],
)
def test_the_side_of_blocks_is_the_side_of_the_run(both, run_of, facts, side, km):
    report = build_report(as_record(run_of(both) | facts), both)
    split, start = report.splits["blocks"], "Where nothing was measured in the same block"
    if side is None:
        assert report.headline.startswith(f"{start}, the 95 % intervals")
        assert split.question.endswith("measured in its own block?")
    else:
        assert report.headline.startswith(f"{start} of {side} degrees, the 95 % intervals")
        told = f"its own block of {side} by {side} degrees (about {km} km)?"
        assert split.question.endswith(told)
        for text in (report_html(report, both), report_markdown(report)):
            assert told in text
    assert report.splits["random"].block_degrees is None
    assert split.block_degrees == (None if side is None else float(side))


def test_few_rows_are_not_a_proof(predictions_of, run_of):
    rows = predictions_of("blocks", stratum=["urban"] * 20 + ["rural"] * 20, seed=11)
    assert "judged from few rows" in build_report(as_record(run_of(rows)), rows).headline
    one = rows[rows["stratum"] == "rural"][:1].assign(y=9.0)
    told = reliance_of(one, run_of(one))
    assert told["In the country"].startswith("0.0 % of 1 measurement. Too few rows to say.")


@pytest.mark.usefixtures("no_drawings")
def test_only_random_is_said_aloud(both, run_of):
    rows = both[both["split"] == "random"]
    run = run_of(rows)
    report = build_report(as_record(run), rows)
    assert list(report.splits) == ["random"]
    for text in (report_html(report, rows), report_markdown(report)):
        assert "Random splits give spatial models scores that are too good" in text
        assert "when its other quarters and its neighbours may be measured?" in text
    full = build_report(as_record(run_of(both)), both)
    assert not any("too good" in statement for statement in full.statements)
    assert any("independent" in statement for statement in full.statements)


@pytest.mark.usefixtures("no_drawings")
def test_regions_without_urban_areas(predictions_of, run_of):
    rows = predictions_of("blocks", stratum=["unknown"] * 300)
    run = run_of(rows)
    assert run["metrics"]["blocks"]["urban"]["n"] == 0
    report = build_report(as_record(run), rows)
    assert report.splits["blocks"].groups["rural"].reliability is None
    assert report.splits["blocks"].width_ratio is None
    assert "urban areas are not available" in report.headline
    assert json.loads(report_json(report))["splits"]["blocks"]["groups"]["urban"]["pit"] is None
    page = Page(report_html(report, rows))
    assert "No urban areas are available" in page.text
    assert "MAE" + 3 * f" {MISSING}" in page.text


def test_one_empty_stratum_is_named(predictions_of, run_of):
    rows = predictions_of("blocks", stratum=["rural"] * 300)
    report = build_report(as_record(run_of(rows)), rows)
    assert "cannot be judged in town and have the stated coverage in the country" in report.headline
    assert any("no test row lies in town" in statement for statement in report.statements)


def test_page_needs_nothing_else(both, run_of):
    report = build_report(as_record(run_of(both)), both)
    html = report_html(report, both)
    assert len(html) < 400_000
    assert html == report_html(report, both)
    assert not re.search(r"@import|url\(", html)
    page = Page(html)
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed"}
        assert attributes.get("src", "data:").startswith("data:")
        assert "href" not in attributes or tag == "a"
        assert not any(name.startswith("on") for name in attributes)
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 8
    assert all(len(image["alt"]) > 40 for image in images)
    for image in images:
        svg = base64.b64decode(image["src"].partition(",")[2])
        assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(rb'(?:href|src)="(?!#)', svg)
    assert dict(page.tags)["html"] == {"lang": "en"}
    assert [tag for tag, _ in page.tags].count("h1") == 1


@pytest.mark.usefixtures("no_drawings")
def test_page_says_what_the_run_was(both, run_of):
    run = run_of(both)
    page = Page(report_html(build_report(as_record(run), both), both))
    urban = run["metrics"]["blocks"]["urban"]
    for expected in (
        f"{urban['rmse']:.3f}",
        f"{100 * urban['coverage_95']:.1f} %",
        "log10 Mbps",
        "dbk-rbf",
        "zones.shp",
        "ab" * 32,
        "2019Q1, 2019Q2",
        "train 9,600",
        "Speedtest by Ookla Global Fixed and Mobile Network Performance Maps, CC BY-NC-SA 4.0",
    ):
        assert expected in page.text
    assert page.text.index("2019Q3 is missing") < page.text.index("What may I rely on?")
    markdown = report_markdown(build_report(as_record(run | {"attribution": "by somebody"}), both))
    assert "by somebody" in markdown
    assert markdown.index("\n\n> Warning: 2019Q3 is missing\n\n") < markdown.index("**Overall**")
    assert "Ookla" not in markdown
    assert f"| RMSE | {urban['rmse']:.3f} |" in markdown


@pytest.mark.usefixtures("no_drawings")
@pytest.mark.parametrize("place", ["region", "warnings", "settings", "inputs", "attribution"])
def test_text_from_outside_is_escaped(both, run_of, place):
    bad = "<img src=x onerror=alert(1)>|`*"
    value = {
        "warnings": [bad],
        "settings": {"decay": bad},
        "inputs": [{"name": bad, "sha256": "ab" * 32, "rows": 1}],
    }.get(place, bad)
    report = build_report(as_record(run_of(both) | {place: value}), both)
    html, markdown = report_html(report, both), report_markdown(report)
    assert "<img src=x" not in html
    assert bad in Page(html).text
    assert "<img src=x" not in markdown
    assert r"&lt;img src=x onerror=alert(1)&gt;\|\`\*" in markdown


@pytest.mark.usefixtures("no_drawings")
def test_quarters_that_were_not_reached_are_told_where_there_are_some(both, run_of):
    run = run_of(both)
    for unreached in ([], ["2019Q4", "2020Q1"]):
        report = build_report(as_record(run | {"quarters_unreached": unreached}), both)
        assert report.quarters_unreached == unreached
        assert ("2019Q4, 2020Q1" in Page(report_html(report, both)).text) == bool(unreached)
        assert ("| quarters not reached | 2019Q4" in report_markdown(report)) == bool(unreached)


@pytest.mark.usefixtures("no_drawings")
def test_rows_left_out_are_counted_where_there_are_some(both, run_of):
    told = {"file": "a_tiles.parquet", "quarter": "2020Q1", "rows": 2, "first": []}
    for left_out in ([], [told, told | {"rows": 3}]):
        report = build_report(as_record(run_of(both) | {"rows_left_out": left_out}), both)
        assert report.rows_left_out == (5 if left_out else 0)
        words = "ows left out because of impossible values"
        assert (words in Page(report_html(report, both)).text) == bool(left_out)
        assert (f"{words} | 5 |" in report_markdown(report)) == bool(left_out)


@pytest.mark.usefixtures("no_drawings")
def test_sparse_run_files_are_read(both, run_of):
    """Only what every run.json holds is needed."""
    run = run_of(both)
    least = {key: run[key] for key in ("region", "service", "target", "model", "preset")}
    least["metrics"] = {}
    report = build_report(as_record(least), both)
    assert report.splits["random"].groups["all"].baseline["mae"] is None
    assert MISSING in report_markdown(report)
    assert report_html(report, both)
    other = run | {
        "region": "PR",
        "region_name": "Puerto Rico",
        "target": "latency",
    }
    report = build_report(as_record(other), both)
    assert report.region == "Puerto Rico (PR)"
    assert report.unit == "log10 ms"


def test_constant_widths_can_be_drawn(predictions_of, run_of):
    """A plain network states one variance for all rows."""
    rows = predictions_of("blocks", stratum=["urban"] * 50 + ["rural"])
    rows["function_variance"], rows["noise_variance"] = 0.0, 0.09
    half = 1.959963984540054 * 0.3
    rows["lower_95"], rows["upper_95"] = rows["mean"] - half, rows["mean"] + half
    report = build_report(as_record(run_of(rows)), rows)
    assert report.splits["blocks"].width_ratio == pytest.approx(1)
    assert report_html(report, rows).count("<img") == 4


def test_a_baseline_of_other_rows_is_refused(both, run_of):
    fewer = run_of(both)
    fewer["baseline"]["blocks"]["urban"]["n"] -= 1
    with pytest.raises(DataError, match="model and baseline on the same rows"):
        build_report(as_record(fewer), both)


def test_wrong_input_is_refused(both, run_of):
    run = run_of(both)
    with pytest.raises(DataError, match="lacks the columns y, stratum"):
        build_report(as_record(run), both.drop(columns=["y", "stratum"]))
    with pytest.raises(DataError, match="found an empty table"):
        build_report(as_record(run), both[:0])
    with pytest.raises(
        DataError, match="splits random, tiles, blocks, buffer, county, latest, session, found"
    ):
        build_report(as_record(run), both.assign(split="folds"))
    odd = [None, [1.0], {"a": 1}, "many"]
    for name in ("tests", "longitude", "distance_km", "mean", "upper_95"):
        for value in odd:
            spoilt = both.assign(**{name: pd.Series([value] * len(both), dtype=object)})
            with pytest.raises(DataError, match=f"expected numbers in the columns {name} of"):
                build_report(as_record(run), spoilt)
    with pytest.raises(DataError, match="1 test or more in each row, found other values in 1 rows"):
        build_report(as_record(run), both.assign(tests=both["tests"].where(both.index > 0)))
    with pytest.raises(DataError, match="whole numbers from 0 to 4 in the column fold"):
        build_report(as_record(run), both.assign(fold=2**63 - 1))
    for name, value in (("upper_95", np.inf), ("lower_95", np.nan)):
        with pytest.raises(DataError, match=r"scores and bounds of test_predictions\.parquet from"):
            build_report(as_record(run), both.assign(**{name: value}))


def reliance_of(rows, run):
    return build_report(as_record(run), rows).reliance


@pytest.mark.usefixtures("no_drawings")
def test_reliance_comes_first_and_says_where_not_to_rely(predictions_of, run_of):
    rows = pd.concat(
        [
            predictions_of("random", stratum=["urban"] * 2000, seed=3),
            predictions_of("random", stratum=["rural"] * 1000, shrink=0.6, seed=4),
        ]
    )
    run = run_of(rows)
    told = reliance_of(rows, run)
    found = {
        name: f"{100 * run['metrics']['random'][name]['coverage_95']:.1f} %"
        for name in run["metrics"]["random"]
    }
    assert told["Overall"].startswith(
        f"of 3,000 measurements that were not used for the fit, {found['all']}"
    )
    assert told["In town"].startswith(
        f"{found['urban']} of 2,000 measurements. These intervals are right: typically, the upper"
    )
    assert told["In the country"].startswith(
        f"{found['rural']} of 1,000 measurements. These intervals are too narrow"
    )
    assert "do not rely on the intervals of this group" in told["Weakest group"]
    report = build_report(as_record(run), rows)
    weakest = min(
        one.coverage[-1].observed
        for one in report.splits["random"].strata
        if one.judged and one.coverage[-1].off
    )
    assert f"{100 * weakest:.1f} %" in told["Weakest group"]
    assert "--split blocks" in told["Not checked"]
    html, markdown = report_html(report, rows), report_markdown(report)
    for text, marks in ((html, ("<dt>", "<table")), (markdown, ("- **Overall**", "| split |"))):
        assert text.index(marks[0]) < text.index(marks[1])
        assert text.index("were not used for the fit") < text.index(
            "posterior" if "posterior" in text else "log score"
        )


@pytest.mark.parametrize(
    ("far", "words"),
    [
        (0, "no tile of the map is farther than 10 km from a measurement"),
        (50, "12.5 % of the map's tiles (50 of 400) are farther than 10 km"),
        (None, None),  # of an earlier version
    ],
)
def test_reliance_names_tiles_far_from_data(both, run_of, far, words):
    drawn = {"tiles": 400} | ({} if far is None else {"far_tiles": far})
    told = reliance_of(both, run_of(both) | {"drawing": {"far_km": 10.0}, "map": drawn})
    assert told.get("Far from data", "").startswith(words or "")
    assert ("Far from data" in told) == (words is not None)
    assert "Not checked" not in told  # the split by blocks comes first


def test_means_over_areas_have_a_figure_beside_their_sentence(both, run_of):
    check = {"areas": 200, "rows": 3000, "coverage_95": 0.94, "coverage_95_independent": 0.71}
    plain, run = run_of(both), run_of(both) | {"areas_check": {"random": check}}
    run["areas_unchecked"] = {"blocks": "the map is small."}
    without, report = (build_report(as_record(one), both) for one in (plain, run))
    alone = build_report(as_record(plain | {"areas_unchecked": {"random": "why."}}), both)
    assert (
        "Random split, means over areas: not checked: why." in Page(report_html(alone, both)).text
    )
    assert report.areas_check == {"random": check}
    html = report_html(report, both)
    assert html.count("<img") == report_html(without, both).count("<img") + 1
    text = Page(html).text
    assert "Split by blocks, means over areas: not checked: the map is small." in text
    assert "200 areas with 5 to 25 test measurements" in text
    (image,) = [dict(a) for tag, a in Page(html).tags if tag == "img" and "joint law" in a["alt"]]
    assert "joint law 94.0 %, independent errors 71.0 %" in image["alt"]
    svg = ET.fromstring(base64.b64decode(image["src"].partition(",")[2]))
    words = "".join(svg.itertext())
    assert "Random split, joint" in words
    assert "Random split, independent" in words


def test_the_weakest_group_is_a_part_of_the_rows_with_a_significantly_low_coverage():
    strata = [
        group("all", "all", 900, 0.90, off=True),
        group("stratum", "rural", 900, 0.90, off=True),
        group("county", "unknown", 300, 0.80, off=True),
        group("county", "small", 100, 0.87, off=False),
        group("county", "large", 500, 0.89, off=True),
        group("county", "wide", 500, 0.99, off=True),
    ]
    split = SimpleNamespace(strata=strata, groups={"all": SimpleNamespace(n=900)})
    told = say("report", "weakest", split)
    assert told.startswith("county “large”, 89.0 % of 500 measurements. This is significantly less")
    del strata[4]
    assert say("report", "weakest", split).startswith("county “small”, 87.0 %")
    del strata[3]
    assert "No group with enough rows to be judged has less" in say("report", "weakest", split)


def group(kind, name, n, observed, *, off):
    level = SimpleNamespace(observed=observed, level=0.95, off=off)
    return SimpleNamespace(kind=kind, name=name, n=n, judged=True, coverage=[None] * 3 + [level])


def test_the_split_by_the_latest_quarter_does_not_check_places(both, run_of):
    rows = both[both["split"] == "random"].assign(split="latest")
    told = reliance_of(rows, run_of(rows))["Not checked"]
    assert "most test rows lie at places that were measured earlier" in told
    assert "--split blocks" in told


def test_names_with_colons_do_not_hide_strata(predictions_of, run_of):
    rows = predictions_of("random", stratum=["urban"] * 200 + ["rural"] * 100)
    names = {"urban": "zone: north", "rural": "zone: south"}
    rows["stratum"] = rows["stratum"].map(names)
    rows = with_strata(rows, list(names.values()))
    run = run_of(rows) | {"settings": {"strata": list(names.values())}}
    told = reliance_of(rows, run)
    assert [one for one in told if one.startswith("In stratum")] == [
        *("In stratum zone: north", "In stratum zone: south")
    ]
