"""Reports on counts that are right by construction, and on ones that are too sure."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from run_worlds import as_record

from geogp.distributions.count_prediction import predict_counts
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.metrics import score_by_stratum
from geogp.evaluation.strata import EXPECTED_CLASSES, ranges, strata_of
from geogp.reports.run_report import build_report, report_html, report_markdown

N = 6000


def _predictions(stated: float) -> pd.DataFrame:
    """Draw counts with dispersion 1.2, predicted with another."""
    random = np.random.default_rng(0)
    log_rate, variance = random.uniform(-3, 3, N), np.full(N, 0.04)
    rate = np.exp(log_rate + 0.2 * random.standard_normal(N))
    y = random.poisson(rate * random.gamma(1 / 1.2, 1.2, N)).astype(float)
    prediction = predict_counts(log_rate, variance, np.full(N, stated))
    lower, upper = prediction.interval(0.95)
    return pd.DataFrame(
        {
            "split": "blocks",
            "quadkey": [f"{number:016d}" for number in range(N)],
            "quarter": random.choice(["2019Q1", "2019Q2"], N),
            "longitude": random.uniform(-67, -65, N),
            "latitude": random.uniform(18, 18.5, N),
            "y": y,
            "tests": y.astype(int),
            "stratum": random.choice(["urban", "rural"], N),
            **prediction.columns(),
            "lower_95": lower,
            "upper_95": upper,
        }
    )


def _run(rows: pd.DataFrame) -> dict:
    scores = score_by_stratum(prediction_of(rows), rows["y"], rows["stratum"])
    metrics = {"blocks": {name: asdict(found) for name, found in scores.items()}}
    named = {"region": "XX", "target": "tests", "model": "cox-nb", "preset": "quick"}
    return {**named, "service": "mobile", "metrics": metrics, "baseline": metrics}


def test_right_counts_hold_although_more_than_95_percent_lie_inside():
    rows = _predictions(1.2)
    report = build_report(as_record(_run(rows)), rows)
    group = report.splits["blocks"].groups["all"]
    assert group.scores["coverage_95"] > 0.963  # 95 % would look wider than needed
    assert group.coverage_expected["coverage_95"] == pytest.approx(
        group.scores["coverage_95"], abs=0.006
    )
    assert report.headline.endswith(
        "intervals have the stated coverage in town and in the country."
    )
    curve = group.reliability
    np.testing.assert_allclose(curve.observed, curve.level, atol=0.025)
    share = np.array(group.pit) / N
    np.testing.assert_allclose(share, 0.1, atol=0.02)
    assert not any(one.off for one in report.splits["blocks"].strata)
    assert group.median_factor_95 is None
    assert report.plain_unit == ""


def test_counts_that_are_too_sure_are_told():
    rows = _predictions(0.0)
    report = build_report(as_record(_run(rows)), rows)
    assert report.headline.endswith("intervals are too narrow in town and in the country.")
    assert any(one.off for one in report.splits["blocks"].strata)


def test_pages_say_what_right_intervals_would_hold():
    rows = _predictions(1.2)
    report = build_report(as_record(_run(rows)), rows)
    for text in (report_markdown(report), report_html(report, rows)):
        assert "correct intervals would contain" in text.replace("\N{NO-BREAK SPACE}", " ")
        assert "expected tests per tile and quarter" in text
        assert "factor of 10" not in text


def test_classes_are_those_of_what_was_expected():
    mean = np.array([0.001, 0.03, 0.05, 0.5, 1.0, 2.9, 3.0, 10.0, 500.0])
    found = ranges(mean, EXPECTED_CLASSES)
    assert list(found) == [
        *("below 0.03", "0.03 to 0.1", "0.1 to 0.3", "0.3 to 1", "1 to 3", "3 to 10", "10 or more")
    ]
    assert [int(rows.sum()) for rows in found.values()] == [1, 2, 0, 1, 2, 1, 2]
    rows = _predictions(1.2)
    assert set(strata_of(rows, np.ones(N), "tests")) == {"all", "stratum", "expected", "quarter"}
