"""Folds: each row by the prediction of its own fit, figures pooled, and their spread."""

from dataclasses import asdict

import numpy as np
import pytest
from run_worlds import as_record

from geogp.errors import DataError
from geogp.evaluation.assessment import prediction_of, split_rows
from geogp.evaluation.metrics import rows_by_group, score_by_stratum
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


def test_means_over_areas_are_of_known_splits(folded, run_of):
    check = {"areas": 7, "rows": 90, "coverage_95": 0.9, "coverage_95_independent": 0.5}
    run = run_of(folded)
    report = build_report(as_record(run | {"areas_check": {"blocks": check}}), folded)
    assert "7 areas with 5 to 25 test measurements each" in report.areas[0]
    assert "contains 90.0 % of their means" in report.areas[0]
    with pytest.raises(DataError, match=r"splits blocks under areas_check .* found random"):
        build_report(as_record(run | {"areas_check": {"random": check}}), folded)


def test_folds_with_noise_of_their_own_are_read_apart(folded):
    """Student-t noise has one parameter for each fit, which rows of one fit share."""
    folded["noise_df"] = 4.0 + folded["fold"]
    for number in range(3):
        chosen = folded["fold"] == number
        lower, upper = prediction_of(folded[chosen]).interval(0.95)
        folded.loc[chosen, "lower_95"], folded.loc[chosen, "upper_95"] = lower, upper
    scored = split_rows("blocks", folded)
    for number in range(3):
        part = folded[folded["fold"] == number]
        expected = prediction_of(part).crps(part["y"])
        np.testing.assert_array_equal(scored["crps"][folded["fold"].to_numpy() == number], expected)


def test_one_fold_has_no_spread(folded, run_of):
    split = build_report(as_record(run_of(folded)), folded.assign(fold=0)).splits["blocks"]
    assert split.folds == 1
    assert split.spread == {}


def test_contradictions_are_refused(folded, run_of):
    run, entries = run_of(folded), _entries(folded)
    with pytest.raises(DataError, match="found 2 and 3"):
        build_report(as_record(run | {"folds": {"blocks": entries[:2]}}), folded)
    entries[1]["metrics"]["rural"]["crps"] += 1e-3
    with pytest.raises(DataError, match=r"crps of blocks, fold 1/rural"):
        build_report(as_record(run | {"folds": {"blocks": entries}}), folded)


def test_a_run_of_version_0_1_may_hold_the_mae_of_the_mean(folded, run_of):
    """The MAE of later runs is that of the median."""
    folded["skewness"], folded["tailweight"] = -0.8, 0.9
    folded["lower_95"], folded["upper_95"] = prediction_of(folded).interval(0.95)
    scored = split_rows("blocks", folded)
    of_mean = (folded["y"] - folded["mean"]).abs()
    assert abs(of_mean.mean() - scored["absolute"].mean()) > 1e-3
    run, entries = run_of(folded), _entries(folded)
    held = score_by_stratum(prediction_of(folded), folded["y"], folded["stratum"])
    run["metrics"]["blocks"] = {name: asdict(each) for name, each in held.items()}
    run["folds"] = {"blocks": entries}
    later = run | {"schema": 1, "geogp": "0.2.0", "block_degrees": 0.1}
    new = build_report(as_record(later), folded)
    for group, chosen in rows_by_group(folded["stratum"], len(folded)).items():
        run["metrics"]["blocks"][group]["mae"] = float(of_mean[chosen].mean())
        for number, entry in enumerate(entries):
            part = chosen & (folded["fold"] == number)
            entry["metrics"][group]["mae"] = float(of_mean[part].mean())
    assert build_report(as_record(run), folded).splits == new.splits
    with pytest.raises(DataError, match="found 3 that differ: mae of blocks/all"):
        build_report(as_record(later), folded)
    entries[2]["metrics"]["rural"]["mae"] += 1e-3
    with pytest.raises(DataError, match="found 1 that differ: mae of blocks, fold 2/rural"):
        build_report(as_record(run), folded)


@pytest.mark.parametrize("wrong", [-1, 0.5, np.nan, "a"])
def test_folds_that_are_no_numbers_are_refused(folded, run_of, wrong):
    fold = folded["fold"].astype(object)
    fold.iloc[3] = wrong
    with pytest.raises(DataError, match="expected whole numbers from 0 to 4"):
        build_report(as_record(run_of(folded)), folded.assign(fold=fold))
