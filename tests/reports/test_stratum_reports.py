"""Figures of strata against pandas and SciPy, marks where and only where they belong."""

import re

import numpy as np
import pandas as pd
import pytest
from run_worlds import as_record
from scipy import stats

from geogp.errors import DataError
from geogp.evaluation.assessment import split_rows
from geogp.evaluation.simultaneous_coverage import class_reports
from geogp.evaluation.strata import value_groups
from geogp.reports.run_report import build_report, report_html, report_markdown
from geogp.reports.split_report import stratum_reports


@pytest.fixture
def wide(predictions_of):
    """Return rows with counties, distances and a layer; the county ``Off`` is far too narrow."""
    rows = predictions_of("blocks", stratum=["urban", "rural"] * 4000, seed=6)
    random = np.random.default_rng(1)
    rows["county"] = random.choice(
        ["Ay", "Bee", "Cee", "Dee", "Off"], len(rows), p=[0.24, 0.24, 0.24, 0.24, 0.04]
    )
    rows.loc[:39, "county"] = "Tiny"
    rows.loc[40:79, "county"] = "Wee"
    rows["distance_km"] = random.exponential(3, len(rows))
    rows["layer_firm"] = np.where(rows["longitude"] < -66, "West", "East")
    off = rows["county"] == "Off"
    rows.loc[off, "y"] = rows["mean"] + 2.0 * (rows["y"] - rows["mean"])
    return rows


def test_figures_against_pandas_and_scipy(wide):
    found = {one.name: one for one in stratum_reports(wide, split_rows(wide), "download")}
    rows = wide[wide["county"] == "Bee"]
    one = found["Bee"]
    sd = np.sqrt(rows["function_variance"] + rows["noise_variance"])
    z = (rows["y"] - rows["mean"]) / sd
    width = rows["upper_95"] - rows["lower_95"]
    assert one.kind == "county"
    assert one.n == len(rows)
    cells = np.floor(rows[["longitude", "latitude"]] / 0.1).drop_duplicates()
    assert one.blocks == len(cells)
    assert one.mean_width_95 == pytest.approx(width.mean(), rel=1e-9)
    assert one.median_width_95 == pytest.approx(width.median(), rel=1e-9)
    assert one.mean_error == pytest.approx((rows["y"] - rows["mean"]).mean(), rel=1e-9)
    assert one.log_score == pytest.approx((-stats.norm.logpdf(z) + np.log(sd)).mean(), rel=1e-9)
    crps = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)
    assert one.crps == pytest.approx(crps.mean(), rel=1e-9)
    assert one.pit == np.histogram(stats.norm.cdf(z), np.linspace(0, 1, 11))[0].tolist()
    for each in one.coverage:
        hits = int((np.abs(z) <= stats.norm.isf((1 - each.level) / 2)).sum())
        exact = stats.binomtest(hits, one.n).proportion_ci(method="exact")
        assert each.observed == hits / one.n
        assert each.exact == pytest.approx([exact.low, exact.high], rel=1e-9)
    assert [each.level for each in one.coverage] == [0.5, 0.8, 0.9, 0.95]


def test_a_stratum_made_wrong_is_marked_and_no_other(wide, run_of):
    report = build_report(as_record(run_of(wide)), wide)
    marked = {one.name for one in report.splits["blocks"].strata if one.off}
    assert marked == {"Off"}
    assert "county Off: " in report.marks["blocks"]
    for text in (report_html(report, wide), report_markdown(report)):
        assert "others (2 counties)" in text
        assert "Tiny, Wee" in text
        assert "By layer firm" in text or "| layer firm |" in text
        assert "Off" in text


@pytest.mark.usefixtures("no_drawings")
@pytest.mark.parametrize("step", [0.0, 3.0])
def test_intervals_too_narrow_along_a_border_are_said(predictions_of, run_of, step):
    """West of -66.05 degrees, measurements are above the prediction, and east of it below."""
    rows = predictions_of("blocks", stratum=["urban", "rural"] * 3000, seed=6)
    rows["quadkey"] = np.arange(len(rows)).astype(str)
    east = rows["longitude"] + 66.05
    sd = np.sqrt(rows["function_variance"] + rows["noise_variance"])
    rows["y"] -= np.where(np.abs(east) < 0.04, step * sd * np.sign(east), 0.0)
    report = build_report(as_record(run_of(rows)), rows)
    rough, smooth = report.splits["blocks"].kinds["roughness"]
    assert [rough.name, smooth.name] == ["rough places", "smooth places"]
    assert rough.n == 600 == len(rows) - smooth.n
    if not step:
        # Below 93 %, but by chance.
        assert rough.coverage[-1].observed < 0.93
        assert rough.coverage[-1].band[1] > 0.95
        assert len(report.findings) == 1
        return
    longitude, latitude = rough.most_missed
    assert longitude == -66.05
    within = f"{100 * rough.coverage[-1].observed:.1f}"
    told = (
        f"such as along sharp borders: of 600 measurements in such rough places, {within} % lie "
        "inside their 95 % interval, and the block of 0.1 degrees with the most measurements "
        f"outside has its centre at longitude \N{MINUS SIGN}66.05 and latitude {latitude:.2f}."
    )
    assert report.findings[1].endswith(told)
    assert report.findings[1].startswith("Split by blocks: the intervals are too narrow where")
    assert "rough places: " in report.marks["blocks"]
    assert report.reliance["Weakest group"].startswith(f"rough places, {within} % of 600")
    html = report_html(report, rows).replace("\N{NO-BREAK SPACE}", " ")
    for text in (html, report_markdown(report)):
        assert told in text
        assert "roughness of errors" in text
        assert "the errors of the eight nearest other tiles differ most" in text


def test_pooled_places_that_remain_too_few_are_shown_and_not_judged(wide):
    found = {one.name: one for one in stratum_reports(wide, split_rows(wide), "download")}
    assert found["others (2 counties)"].n == 80
    assert not found["others (2 counties)"].judged
    assert found["Ay"].judged


def test_a_place_may_be_called_as_those_that_are_pooled(wide):
    rows = wide.assign(county=wide["county"].replace("Ay", "others (2 counties)"))
    counties = [
        one for one in stratum_reports(rows, split_rows(rows), "download") if one.kind == "county"
    ]
    found = {one.name: (one.members, one.n) for one in counties}
    assert found["others (2 counties) together"] == (["Tiny", "Wee"], 80)
    named = int((wide["county"] == "Ay").sum())
    assert found["others (2 counties)"] == (["others (2 counties)"], named)
    assert len(found) == len(counties) == 6


def test_right_predictions_are_seldom_marked():
    """In 200 worlds of 30 strata of three kinds, any mark at all comes in about 1 of 20.

    The bound is 5 % and three binomial deviations of 200 worlds.
    """
    marked = 0
    n, blocks = 4000, 60
    for seed in range(200):
        random = np.random.default_rng(seed)
        block = random.integers(0, blocks, n)
        shared = np.sqrt(0.03) * random.standard_normal(blocks)[block]
        pit = stats.norm.cdf(shared + np.sqrt(0.97) * random.standard_normal(n))
        county = (block // 3).astype(str)  # 20 counties of three blocks each
        kinds = {
            "county": value_groups(county),
            "quarter": value_groups(random.integers(0, 6, n).astype(str)),
            "tests": value_groups(random.integers(0, 4, n).astype(str)),
        }
        found = class_reports(pit, kinds, block, draws=100)
        assert all(one.checks[0].lower is not None for one in found)
        marked += any(check.off for one in found for check in one.checks)
    assert marked / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_tables_without_the_new_columns_have_fewer_kinds(both, run_of):
    report = build_report(as_record(run_of(both)), both)
    kinds = {one.kind for one in report.splits["blocks"].strata}
    assert kinds == {"all", "stratum", "tests", "speed", "quarter", "roughness"}
    assert report.splits["blocks"].folds == 1
    assert report.splits["blocks"].spread == {}


def test_devices_with_gaps_leave_their_strata_out(both, run_of):
    """As in predictions of another program, some of whose rows have no devices."""
    whole = both.assign(devices=1.0)
    by_devices = {"devices", "tests_per_device"}
    told = "Split by blocks: some test rows have no number of devices, so the strata by devices and"
    split = build_report(as_record(run_of(both)), whole).splits["blocks"]
    assert by_devices < set(split.kinds)
    gaps = whole.copy()
    gaps.loc[gaps.index[gaps["split"] == "blocks"][3], "devices"] = np.nan
    report = build_report(as_record(run_of(both)), gaps)
    assert set(split.kinds) - set(report.splits["blocks"].kinds) == by_devices
    assert by_devices < set(report.splits["random"].kinds)
    assert [text.startswith(told) for text in report.statements].count(True) == 1
    assert told in report_html(report, gaps)
    assert not any(
        "no number of devices" in text
        for text in build_report(as_record(run_of(both)), whole).statements
    )


def test_the_rules_stand_in_every_format(both, run_of):
    both = both[both["split"] == "blocks"]
    report = build_report(as_record(run_of(both)), both)
    html, markdown = report_html(report, both), report_markdown(report)
    for text in (html, markdown):
        flat = text.replace("\N{NO-BREAK SPACE}", " ")
        assert "fewer than 100 rows is joined with the next class" in flat
        assert "differs from its level by more than 3 points and its 95 % band" in flat
    assert len(report.rules) == 2


def test_many_places_are_folded_away(predictions_of, run_of):
    rows = predictions_of("blocks", stratum=["urban", "rural"] * 1500, seed=6)
    rows["county"] = pd.Series(np.arange(len(rows)) % 15).map("County {}".format)
    report = build_report(as_record(run_of(rows)), rows)
    html = report_html(report, rows)
    folded = re.findall(r"<details>\s*<summary>(.*?)</summary>", html)
    assert [one.startswith("By county: 15 strata") for one in folded] == [True]


def test_a_name_of_several_lines_stays_in_its_cell_of_markdown(predictions_of, run_of):
    rows = predictions_of("blocks", stratum=["urban", "rural"] * 1500, seed=6)
    rows["county"] = np.where(np.arange(len(rows)) % 2, "San Juan\r\n\n# of | the north", "Ponce")
    run = as_record(run_of(rows) | {"region": "Puerto\nRico"})
    markdown = report_markdown(build_report(run, rows))
    (line,) = [line for line in markdown.splitlines() if "San Juan" in line and line[0] == "|"]
    assert line.startswith(r"| San Juan \# of \| the north | 1,500 |")
    assert markdown.splitlines()[0].endswith(": Puerto Rico")


def test_distances_out_of_range_are_refused(wide, run_of):
    with pytest.raises(
        DataError, match="expected distances of 0 km or more to the nearest measured tile"
    ):
        build_report(as_record(run_of(wide)), wide.assign(distance_km=-1.0))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"settings": {"conformal": "marginal"}}, "repaired by split conformal calibration"),
        (
            {"variance_check": {"closed_form": 0.1, "stated": 0.2}},
            "function variance also contains noise",
        ),
        (
            {"variance_check": {"closed_form": 0.1, "stated": 0.2}},
            "0.200 as stated by the model and 0.100",
        ),
        ({"variance_check": {"closed_form": 0.1, "stated": 0.2}}, "(a ratio of 2.00)"),
        (
            {"variance_check": {"closed_form": 0.1, "stated": 0.2, "differ_by": "steps"}},
            "weights was learned by gradient steps",
        ),
        (
            {"variance_check": {"closed_form": 0.1, "stated": 0.2, "differ_by": "field"}},
            "scaled so that each single tile has the stated variance",
        ),
        (
            {"variance_check": {"closed_form": 0.1, "stated": 0, "differ_by": "point"}},
            "states no function variance",
        ),
    ],
)
def test_repairs_stand_after_the_plain_words_and_the_figures(both, run_of, entry, said):
    both = both[both["split"] == "blocks"]
    run = run_of(both)
    report = build_report(as_record(run | entry), both)
    assert len(report.repairs) == 1
    html = report_html(report, both).replace("\N{NO-BREAK SPACE}", " ")
    first, figures = html.index("What may I rely on?"), html.index('<table class="answer">')
    assert first < figures < html.index(said)
    assert said in report_markdown(report)
    none = build_report(as_record(run | {"settings": {"conformal": "none"}}), both)
    assert none.repairs == []


def test_what_a_repair_guarantees_stands_after_the_first_page(both, run_of):
    entry = {
        "settings": {"conformal": "marginal"},
        "calibration": {"statements": ["Ninety of 100."]},
    }
    both = both[both["split"] == "blocks"]
    report = build_report(as_record(run_of(both) | entry), both)
    html = report_html(report, both)
    assert html.index('<table class="answer">') < html.index("Ninety of 100.")
    assert "Ninety of 100." in report_markdown(report)
