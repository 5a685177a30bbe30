"""The first page of the report: nothing on it that the rest of the run does not say."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from run_worlds import Page, as_record

from geogp.reports.beside import AreaMean, Beside, Changed, RankedAreas, ShownAnswer
from geogp.reports.rendering import say
from geogp.reports.run_report import build_report, report_html, report_markdown

MEANS = [
    AreaMean(f"county {k}", 10.0 * k, 10.0 * k - 2, 10.0 * k + 3, (k, k + 2), 7.0 * k)
    for k in range(1, 9)
]
COUNTIES = RankedAreas("areas_county", "county", "2019Q2", "Mbps", "23 %", 1, MEANS, "averages")
ROSE = Changed("county", "2019Q1", "2019Q2", "Of 8 areas, 3 rose and 1 fell.")

pytestmark = pytest.mark.usefixtures("no_drawings")


def beside(*ranked, changes=()):
    answers = [ShownAnswer("", "", [], [], [], [], "", ranked=one) for one in ranked]
    answers += [ShownAnswer("", "", [], [], [], [], "", changed=one) for one in changes]
    return Beside(subject="download speed", answers=tuple(answers))


def summary_of(rows, run, answers):
    return build_report(as_record(run), rows, answers).summary


def test_the_first_page_names_best_and_worst_counties_and_the_change(both, run_of):
    run = run_of(both) | {"drawing": {"far_km": 10.0}, "map": {"tiles": 400, "far_tiles": 50}}
    answers = beside(COUNTIES, changes=[ROSE])
    report = build_report(as_record(run), both, answers)
    assert report.summary.sentences == {
        "The place": "In 2019Q2, the mean download speed by county, without measurement noise, "
        "lies between 10.0 Mbps (county 1; 95 % interval 8.0 to 13.0; the map's median is 7.0) and "
        "80.0 Mbps (county 8; 95 % interval 78.0 to 83.0; the map's median is 56.0), and is "
        "typically known to within 23 %.",
        "The change from 2019Q1 to 2019Q2": ROSE.text,
        "Do not rely on": "tiles far from any measurement, grey on the map (12.5 %).",
    }
    named = {label: [one.area[-1] for one in of] for label, of in report.summary.extremes.items()}
    assert named == {"Best": ["8", "7", "6"], "Worst": ["3", "2", "1"]}
    page, markdown = report_html(report, both, answers), report_markdown(report, answers)
    assert page.index("In short") < page.index("What may I rely on?") < page.index("Appendix")
    front = Page(page[: page.index("</section>")])
    assert [dict(a)["href"] for tag, a in front.tags if tag == "a"] == ["#areas_county"]
    for text in (front.text, markdown):
        assert re.search(r"county 8\W.*78\.0 to 83\.0\W+56\.0\W+8 to 10", text)
        assert "median is the same mean of what the map shows: medians of averages. Where" in text
        assert "chance. Areas that are mostly far from data are left out: 1." in text
    worst = summary_of(both, run | {"target": "latency"}, answers).extremes["Worst"]
    assert [one.area for one in worst] == ["county 6", "county 7", "county 8"]


def test_what_is_not_known_leaves_no_trace(both, run_of):
    """The intervals of the blocks are right and not wide, and no answer lies beside them."""
    report = build_report(as_record(run_of(both)), both)
    assert report.summary.sentences == report.summary.extremes == {}
    page = report_html(report, both)
    assert "In short" not in page
    assert page.index("What may I rely on?") < page.index("</section>")
    assert not re.search(r"<(dl|dd|tbody|table|h2)[^>]*>\s*</", page)


def test_one_area_or_two_have_no_table_or_a_short_one(both, run_of):
    run = run_of(both)
    of_earlier_version = [replace(MEANS[0], median=None)]
    alone = summary_of(both, run, beside(replace(COUNTIES, means=of_earlier_version)))
    assert alone.sentences["The place"] == (
        "In 2019Q2, the mean download speed of county 1, without measurement noise, is 10.0 Mbps "
        "(95 % interval 8.0 to 13.0)."
    )
    assert alone.extremes == {}
    two = summary_of(both, run, beside(replace(COUNTIES, means=MEANS[:2]))).extremes
    assert two == {"Best": [MEANS[1]], "Worst": [MEANS[0]]}


def test_without_areas_the_place_is_what_was_measured(both, run_of):
    run = run_of(both) | {"drawing": {"thresholds": [7.0, 35.0]}}
    rows = both[both["split"] == "blocks"]
    low, high = (f"{100 * (rows['y'] >= level).mean():.1f} %" for level in (0.845098, 1.544068))
    assert summary_of(both, run, beside()).sentences["The place"] == (
        f"of 1,200 measurements that were not used for the fit, {low} are at least 7 Mbps and "
        f"{high} at least 35 Mbps."
    )


def test_counties_the_latest_quarter_and_the_longest_change_come_first(both, run_of):
    others = [
        replace(COUNTIES, by="stratum", at="2020Q1"),
        replace(COUNTIES, at="2019Q1"),
        COUNTIES,
    ]
    late = [replace(ROSE, start=start, end="2019Q4", text=start) for start in ("2019Q3", "2019Q2")]
    found = summary_of(both, run_of(both), beside(*others, changes=[ROSE, *late]))
    assert found.areas.by == "county"
    assert found.areas.at == "2019Q2"
    assert found.sentences["The change from 2019Q2 to 2019Q4"] == "2019Q2"


def test_intervals_that_are_too_narrow_or_wide_or_unchecked_are_named(predictions_of, run_of):
    rows = predictions_of("random", stratum=["urban"] * 2000 + ["rural"] * 1000, shrink=0.6)
    told = summary_of(rows, run_of(rows), beside()).sentences["Do not rely on"]
    assert told.startswith("intervals in town, which are too narrow; intervals in the country")
    assert re.search(r"intervals of tests per tile and quarter “.*, which are too narrow; ", told)
    assert told.endswith("places without measurements nearby, which this run did not check.")
    assert "single tile" not in told
    rows = predictions_of("random", stratum=["rural"] * 1000)
    told = summary_of(rows, run_of(rows), beside()).sentences["Do not rely on"]
    assert told.startswith("the value of a single tile: the upper end of its interval is typically")


@pytest.mark.parametrize(
    ("factor", "covered", "words"),
    [
        (1.99, 0.95, "right, and narrow: typically, the upper end is 2.0 times the lower end, so"),
        (1.99, 0.95, "the value of a single tile can be used."),
        (2.0, 0.95, "right: typically, the upper end is 2.0 times"),
        (10.0, 0.95, "gives the order of magnitude."),
        (124.0, 0.95, "right, and wide: typically, the upper end is 124.0 times the lower end, so"),
        (124.0, 0.95, "says little. Use means over areas."),
        (None, 0.95, "These intervals are right."),
        (1.5, 0.80, "lie outside. Typically, the upper end is 1.5 times the lower end."),
        (124.0, 0.99, "on the safe side. Typically, the upper end is 124.0 times the lower end."),
    ],
)
def test_advice_follows_from_coverage_and_width(factor, covered, words):
    group = SimpleNamespace(
        scores=SimpleNamespace(coverage_95=covered),
        coverage_bounds=SimpleNamespace(coverage_95=(covered - 0.01, covered + 0.01)),
        coverage_expected=SimpleNamespace(coverage_95=0.95),
        median_factor_95=factor,
    )
    assert words in say("report", "use", group)
