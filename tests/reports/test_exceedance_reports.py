"""Probabilities of thresholds against what came, where the truth is known."""

import json
from dataclasses import asdict, replace
from operator import methodcaller
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression

from geogp.distributions.prediction import Prediction
from geogp.evaluation.threshold_reliability import bins_of, brier_parts, exceedance_reports
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.reports.rendering import environment, say, say_labelled
from geogp.reports.report_figures import thresholds_figure
from geogp.reports.run_report import LIMITS

DOWNLOAD = thresholds_of("download", (5, 7, 35))
"""Thresholds that divide the rows, half of which are below 10 Mbps."""


def world(n=4000, seed=0, bias=0.0, block=0.0):
    """Test rows drawn from their prediction; `bias` moves the stated mean, `block` moves rows of
    one block of 0.1 degrees together."""
    random = np.random.default_rng(seed)
    mean, variance = random.normal(1.0, 0.5, n), np.full(n, 0.09)
    longitude, latitude = random.uniform(-67, -65, n), random.uniform(18, 18.5, n)
    cell = np.floor(longitude * 10).astype(int) * 100 + np.floor(latitude * 10).astype(int)
    shift = dict(zip(np.unique(cell), random.standard_normal(len(np.unique(cell))), strict=True))
    own = np.sqrt(0.09 - block**2) * random.standard_normal(n)
    y = mean + own + block * np.array([shift[one] for one in cell])
    rows = pd.DataFrame(
        {
            "y": y,
            "longitude": longitude,
            "latitude": latitude,
            "quarter": random.choice(["2022Q1", "2022Q2"], n),
            "stratum": np.where(random.random(n) < 0.7, "urban", "rural"),
        }
    )
    return rows, Prediction(mean + bias, 0.4 * variance, 0.6 * variance)


def reports(rows, prediction, *args, **kwargs):
    return exceedance_reports(rows, methodcaller("probability", prediction), *args, **kwargs)


@pytest.fixture(scope="module")
def right():
    return reports(*world(), DOWNLOAD)


@pytest.fixture(scope="module")
def biased():
    return reports(*world(bias=0.15), DOWNLOAD)


def test_one_report_for_each_threshold_and_stratum(right):
    assert [(one.threshold, one.group) for one in right] == [
        (value, group) for value in (5, 7, 35) for group in ("all", "urban", "rural")
    ]
    assert all(sum(part.n for part in one.bins) == one.n for one in right)
    assert right[0].n == right[1].n + right[2].n
    json.dumps([asdict(one) for one in right], allow_nan=False)


def test_right_probabilities_are_found_right(right):
    for one in right:
        assert one.observed == pytest.approx(one.stated, abs=0.03)
        assert not one.difference.off
        assert not any(part.difference.off for part in one.bins)
        assert one.difference.lower < one.difference.value < one.difference.upper
        assert 0 <= one.reliability < 0.01
    assert say("report", "thresholds", right, 10).startswith(
        "No mean probability differs significantly"
    )
    assert say("report", "thresholds", right, 10).endswith(
        "none differ significantly from the observed share."
    )


def test_a_bias_is_found_and_named(biased):
    assert all(one.difference.off and one.difference.upper < 0 for one in biased if one.n > 2000)
    assert sum(part.difference.off for one in biased for part in one.bins) > 20
    assert "9 of 9 mean probabilities differ significantly from the observed share" in say(
        "report", "thresholds", biased, 10
    )


def test_a_report_on_classes_names_the_stratum_with_the_largest_error(right, biased):
    def group(ece):
        return SimpleNamespace(n=1000, scores=SimpleNamespace(ece=ece, accuracy=0.8))

    about = {"name": "random", "places": {"urban": "in town", "rural": "in the country"}}
    about |= {"shown": ["urban", "rural"], "reliability": biased}
    about["groups"] = {"all": group(0.002), "urban": group(0.085), "rural": group(0.045)}
    split = SimpleNamespace(**about)
    text = "share by 8.5 points in town and by 4.5 points in the country on average"
    assert text in say("class_report", "headline", split, "tier")
    weakest = say_labelled("class_report", "reliance", split, None, "tier")["Weakest group"]
    assert weakest.startswith("urban, where the stated probability differs")
    assert "by 8.5 points on average. 9 of 9 mean probabilities differ" in weakest
    few = [replace(one, difference=replace(one.difference, lower=None)) for one in right]
    split.reliability, split.shown = few, ["all"]
    weakest = say_labelled("class_report", "reliance", split, None, "tier")["Weakest group"]
    assert "0.2 points on average. Mean probabilities are not judged" in weakest


def test_shares_and_bins_are_counts(right):
    rows, prediction = world()
    met = rows["y"] >= np.log10(7)
    (one,) = (one for one in right if (one.threshold, one.group) == (7, "all"))
    p = prediction.exceedance(np.log10(7))
    assert one.observed == pytest.approx(met.mean())
    assert one.brier == pytest.approx(((p - met) ** 2).mean())
    order = np.argsort(p)
    sizes = np.array([part.n for part in one.bins])
    assert sizes.tolist() == [400] * 10
    for part, chosen in zip(one.bins, np.split(order, 10), strict=True):
        assert part.stated == pytest.approx(p[chosen].mean())
        assert part.observed == pytest.approx(met[chosen].mean())
        assert part.lower <= part.observed <= part.upper
        assert part.difference.value == pytest.approx(part.observed - part.stated)


def test_the_parts_make_up_the_brier_score(right, biased):
    for one in (*right, *biased):
        total = one.reliability - one.resolution + one.uncertainty
        assert total == pytest.approx(one.brier, abs=1e-12)
        assert one.uncertainty == pytest.approx(one.observed * (1 - one.observed))
        assert one.skill == pytest.approx(1 - one.brier / one.reference)
        assert one.reference <= one.uncertainty
    assert biased[0].reliability > 4 * right[0].reliability
    # A shift of all probabilities leaves their order, and so what they tell apart.
    assert biased[0].resolution == pytest.approx(right[0].resolution, rel=1e-6)


def test_the_parts_agree_with_an_isotonic_regression_of_scikit_learn():
    random = np.random.default_rng(1)
    p = np.round(random.random(500), 2)
    met = (random.random(500) < p**2).astype(float)
    fitted = IsotonicRegression().fit(p, met).predict(p)
    reliability, resolution, uncertainty = brier_parts(p, met)
    best = ((fitted - met) ** 2).mean()
    assert reliability == pytest.approx(((p - met) ** 2).mean() - best, abs=1e-12)
    assert resolution == pytest.approx(uncertainty - best, abs=1e-12)
    assert reliability > 0.02


def test_perfect_and_useless_probabilities():
    met = np.array([0.0, 1, 1, 0, 1])
    assert brier_parts(met, met) == pytest.approx((0, 0.24, 0.24))
    assert brier_parts(np.full(5, 0.6), met) == pytest.approx((0, 0, 0.24))
    assert brier_parts(1 - met, met) == pytest.approx((0.76, 0, 0.24))


def test_bins_hold_equal_probabilities_together():
    p = np.array([0.0] * 50 + [1.0] * 45 + [0.2, 0.4, 0.5, 0.6, 0.8])
    found = bins_of(p)
    assert len(set(found[:50].tolist())) == len(set(found[50:95].tolist())) == 1
    assert sorted(set(found.tolist())) == list(range(found.max() + 1))
    assert bins_of(np.full(20, 0.3)).tolist() == [0] * 20


def test_rows_that_err_together_widen_the_band():
    alone = reports(*world(), DOWNLOAD[1:2])[0].difference
    together = reports(*world(block=0.25), DOWNLOAD[1:2])[0].difference
    assert together.upper - together.lower > 1.5 * (alone.upper - alone.lower)


def test_the_bands_hold_for_all_differences_together():
    """Of regions in which rows of a block err alike, 95 % have no band that leaves out 0."""
    left = 0
    for seed in range(40):
        found = reports(*world(1500, seed + 10, block=0.12), DOWNLOAD[:2], draws=200)
        differences = [part.difference for one in found for part in one.bins]
        differences += [one.difference for one in found]
        left += any(not one.lower <= 0 <= one.upper for one in differences)
    assert left <= 8


def test_small_latencies_are_the_good_ones():
    rows, prediction = world()
    rows["y"] += 1
    prediction = replace(prediction, mean=prediction.mean + 1)
    fifty, hundred = reports(rows, prediction, thresholds_of("latency"))[::3]
    assert fifty.meets == "at most 50 ms"
    assert fifty.observed == pytest.approx((rows["y"] <= np.log10(50)).mean())
    assert fifty.stated < hundred.stated
    assert not fifty.difference.off
    p = Threshold(50, "latency").probability(prediction)
    np.testing.assert_allclose(p, prediction.cdf(np.log10(50)))


def test_few_blocks_are_not_judged():
    rows, prediction = world(200)
    rows["longitude"], rows["latitude"] = -66.05, 18.05
    (one,) = reports(rows, prediction, DOWNLOAD[:1])[:1]
    assert (one.difference.lower, one.difference.off) == (None, False)
    assert say("report", "difference_band", one.difference) == "too few blocks to judge"
    said = say("report", "thresholds", [one], 10)
    assert said.startswith("Mean probabilities are not judged")
    assert said.endswith(
        "11 of 11 means and bins lie in fewer than 10 effective blocks and are not judged."
    )


def test_bands_are_those_of_the_effective_number_of_blocks():
    """One probability for all rows: a single difference, so a ratio's interval by Student's t."""
    size = np.array([400] * 10 + [5] * 90)
    effective = size.sum() ** 2 / np.square(size).sum()
    block, ratios = np.repeat(np.arange(100), size), []
    for seed in range(10):
        rows, _ = world(len(block), seed)
        rows["longitude"] = -66.95 + 0.1 * (block % 20)
        rows["latitude"] = 18.05 + 0.1 * (block // 20)
        rows["stratum"] = "urban"
        random = np.random.default_rng(seed)
        error = 0.2 * random.standard_normal(100)[block] + 0.2 * random.standard_normal(len(block))
        rows["y"] = np.log10(7) + error
        same = np.full(len(block), np.log10(7))
        prediction = Prediction(same, np.full(len(block), 0.04), np.full(len(block), 0.04))
        one = reports(rows, prediction, DOWNLOAD[1:2], draws=4000)[0].difference
        away = (rows["y"] >= np.log10(7)) - 0.5 - one.value
        sd = np.sqrt(np.square(np.bincount(block, away)).sum()) / len(block)
        ratios.append((one.upper - one.value) / sd)
    expected = stats.t.ppf(0.975, effective - 1) * np.sqrt(effective / (effective - 1))
    assert effective < 13
    # The bootstrap's own quantile differs a little from the normal one; 100 blocks would give 1.98.
    assert np.mean(ratios) == pytest.approx(expected, rel=0.07)


def test_small_strata_are_left_out_and_small_quarters_lean_on_all():
    rows, prediction = world(300)
    rows["stratum"] = "urban"
    rows.loc[:10, "stratum"] = "rural"
    rows["quarter"] = "2022Q1"
    rows.loc[:5, "quarter"] = "2022Q2"
    found = reports(rows, prediction, DOWNLOAD[:1])
    assert [one.group for one in found] == ["all", "urban"]
    met = rows["y"] >= np.log10(5)
    share = np.where(rows["quarter"] == "2022Q2", met.mean(), met[6:].mean())
    assert found[0].reference == pytest.approx(((share - met) ** 2).mean())


def test_counts_have_no_thresholds():
    assert reports(*world(50), thresholds_of("tests")) == []


def test_a_threshold_that_all_meet():
    rows, prediction = world(400)
    (one, *_) = reports(rows, prediction, thresholds_of("download", (0.001,)))
    assert (one.observed, one.uncertainty, one.reference, one.skill) == (1, 0, 0, None)


def test_figure_and_pages(right, biased):
    drawing = thresholds_figure(right)
    assert drawing.startswith("data:image/svg+xml;base64,")
    assert "at least 7 Mbps: stated" in say("figures", "thresholds_alt", right)
    for reports in (right, biased):
        split = {"title": "Random split"}
        context = {"exceedances": reports, "drawing": drawing, "limits": LIMITS, "split": split}
        page = environment().get_template("exceedance.html.j2").render(context)
        text = environment().get_template("exceedance.md.j2").render(context)
        assert page.count("<tr>") == len(reports) + 1
        assert text.count("\n| at least") == len(reports)
        assert ("pt*" in page) == (reports is biased)
