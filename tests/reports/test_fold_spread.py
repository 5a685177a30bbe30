"""Folds: each row by the prediction of its own fit, figures pooled, and their spread."""

from dataclasses import asdict

import numpy as np
import pytest
from run_worlds import as_record

from geogp.errors import DataError
from geogp.evaluation.assessment import prediction_of, split_rows
from geogp.evaluation.metrics import score_by_stratum
from geogp.reports.run_report import build_report, report_html, report_markdown

NO_ROWS = {"train": 0, "validation": 0, "test": 0}


@pytest.fixture
def folded(predictions_of):
    """Return rows of three folds, mixed in order."""
    rows = predictions_of("blocks", stratum=["urban", "rural"] * 600, seed=9)
    rows["fold"] = np.random.default_rng(0).integers(0, 3, len(rows))
    return rows


def _entries(rows, baseline=2.0):
    entries = []
    for number in range(3):
        part = rows[rows["fold"] == number]
        scores = score_by_stratum(prediction_of(part), part["y"], part["stratum"])
        held = {name: asdict(each) for name, each in scores.items()}
        flat = {name: {**each, "nll": baseline + number} for name, each in held.items()}
        entries.append({"n": NO_ROWS, "metrics": held, "baseline": flat})
    return entries


def test_spread_is_mean_and_standard_deviation_over_the_folds(folded, run_of):
    entries = _entries(folded)
    run = run_of(folded) | {"folds": {"blocks": entries}}
    split = build_report(as_record(run), folded).splits["blocks"]
    assert split.folds == 3
    for group in ("all", "urban", "rural"):
        crps = [entry["metrics"][group]["crps"] for entry in entries]
        found = split.spread[group]["crps"]
        assert found.values == pytest.approx(crps, rel=1e-12)
        assert found.mean == pytest.approx(np.mean(crps), rel=1e-12)
        assert found.sd == pytest.approx(np.std(crps, ddof=1), rel=1e-12)
        gain = [e["baseline"][group]["nll"] - e["metrics"][group]["nll"] for e in entries]
        assert split.spread[group]["gain"].values == pytest.approx(gain, rel=1e-12)
    assert 0.8 < split.spread["all"]["coverage_90"].mean < 1


def test_pages_show_the_spread(folded, run_of):
    report = build_report(as_record(run_of(folded)), folded)
    for text in (report_html(report, folded), report_markdown(report)):
        assert "3 folds, each predicted by a separate fit" in text
        assert "Mean and standard deviation over" in text
    assert "gain" not in report.splits["blocks"].spread["all"]  # no baselines on file


def test_means_over_areas_are_of_the_reports_splits(folded, run_of):
    check = {"areas": 7, "rows": 90, "coverage_95": 0.9, "coverage_95_independent": 0.5}
    run = run_of(folded)
    checks = {"areas_check": {"blocks": check, "random": check}}
    report = build_report(as_record(run | checks), folded)
    assert list(report.areas_check) == ["blocks"]
    assert "7 areas with 5 to 25 test measurements each" in report.areas[0]
    assert "contains 90.0 % of their means" in report.areas[0]


def test_folds_with_noise_of_their_own_are_read_apart(folded):
    """Student-t noise has one parameter for each fit, which rows of one fit share."""
    folded["noise_df"] = 4.0 + folded["fold"]
    for number in range(3):
        chosen = folded["fold"] == number
        lower, upper = prediction_of(folded[chosen]).interval(0.95)
        folded.loc[chosen, "lower_95"], folded.loc[chosen, "upper_95"] = lower, upper
    scored = split_rows(folded)
    for number in range(3):
        part = folded[folded["fold"] == number]
        expected = prediction_of(part).crps(part["y"])
        np.testing.assert_array_equal(scored["crps"][folded["fold"].to_numpy() == number], expected)


def test_one_fold_has_no_spread(folded, run_of):
    split = build_report(as_record(run_of(folded)), folded.assign(fold=0)).splits["blocks"]
    assert split.folds == 1
    assert split.spread == {}


@pytest.mark.parametrize("wrong", [-1, 0.5, np.nan, "a"])
def test_folds_that_are_no_numbers_are_refused(folded, run_of, wrong):
    fold = folded["fold"].astype(object)
    fold.iloc[3] = wrong
    with pytest.raises(DataError, match="expected whole numbers from 0 to 4"):
        build_report(as_record(run_of(folded)), folded.assign(fold=fold))
