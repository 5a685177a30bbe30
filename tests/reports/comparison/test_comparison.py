"""Runs side by side: differences known by construction, joined by keys, refused where wrong."""

import json
import re
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from run_worlds import as_record, made_up_run, made_up_settings

from geogp.distributions.count_prediction import predict_counts
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, RequestError
from geogp.evaluation.paired import Estimate, mark, paired_estimates
from geogp.evaluation.scores import ClassScores
from geogp.maps.figures.figure_style import MARKS
from geogp.reports.comparison.compare_pages import (
    comparison_html,
    comparison_latex,
    comparison_markdown,
    difference_figure,
)
from geogp.reports.comparison.comparison import compare
from geogp.reports.comparison.comparison_rows import NUMBERS, RunContent
from geogp.reports.rendering import report_json

URBAN, ROWS = 400, 600
EMPTY = made_up_run().metrics["random"]["all"]
"""Scores of no rows."""

HOSTILE = "<b>$x_1$ & 50% \\input{a}|*~^#</b>"


def world(split="random", *, seed=0):
    """Return rows whose predictions are N(mean, 0.3²), without figures of a model."""
    random = np.random.default_rng(seed)
    place = random.uniform([-67.2, 17.95], [-65.6, 18.5], (ROWS, 2))
    return pd.DataFrame(
        {
            "split": split,
            "quadkey": [f"{row:016d}" for row in range(ROWS)],
            "quarter": np.where(np.arange(ROWS) % 2, "2023Q3", "2023Q4"),
            "longitude": place[:, 0],
            "latitude": place[:, 1],
            "y": random.normal(1.5, 0.4, ROWS),
            "tests": random.integers(1, 9, ROWS),
            "stratum": ["urban"] * URBAN + ["rural"] * (ROWS - URBAN),
        }
    )


def predicted(rows, away, sd=0.3):
    """Add predictions with means `away` from y, of standard deviation `sd`."""
    n = len(rows)
    prediction = Prediction(
        rows["y"].to_numpy() - away, np.full(n, 0.25 * sd**2), np.full(n, 0.75 * sd**2)
    )
    return with_prediction(rows, prediction)


def with_prediction(rows, prediction):
    lower, upper = prediction.interval(0.95)
    return rows.assign(**prediction.columns(), lower_95=lower, upper_95=upper)


def run_of(name, predictions, **changes):
    run = {
        "region": "PR",
        "region_name": "Puerto Rico",
        "service": "mobile",
        "target": "download",
        "model": "dbk-rbf",
        "seed": 0,
        "preset": "standard",
        "metrics": {},
        "settings": {"r": 128},
        "seconds": {"fit": 60.0, "predict": 2.0},
        **changes,
    }
    return RunContent(name, as_record(run), predictions)


@pytest.fixture(scope="module")
def errors():
    return np.random.default_rng(3).normal(0, 0.3, ROWS)


@pytest.fixture(scope="module")
def pair(errors):
    """A good run, and one whose means are 0.2 farther off in the country."""
    rows = world()
    off = np.where(rows["stratum"] == "rural", 0.2, 0.0) * np.sign(errors)
    return run_of("good", predicted(rows, errors)), run_of("worse", predicted(rows, errors + off))


def test_a_known_difference_is_recovered(pair, errors):
    found = compare(pair).splits["random"]
    rural = np.abs(errors[URBAN:])
    # Of N(m, s²) the log score is (y - m)² / 2 s² + a constant.
    expected = (((rural + 0.2) ** 2 - rural**2) / (2 * 0.3**2)).mean()
    worse = found.strata["rural"].differences["worse"]
    assert worse["log_score"].value == pytest.approx(expected, rel=1e-10)
    assert worse["absolute_error"].value == pytest.approx(0.2, rel=1e-10)
    assert all(worse[score].marked and worse[score].lower > 0 for score in NUMBERS.scores)
    assert all(
        found.strata["urban"].differences["worse"][name] == Estimate(0, 0, 0, 0, 1)
        for name in worse
    )
    share = (ROWS - URBAN) / ROWS
    whole = found.strata["all"].differences["worse"]["log_score"].value
    assert whole == pytest.approx(share * expected, rel=1e-10)
    z = 1.6448536269514722
    held = (rural <= z * 0.3).mean(), (rural + 0.2 <= z * 0.3).mean()
    assert found.strata["rural"].figures["worse"]["coverage_90"] == pytest.approx(held[1])
    assert worse["coverage_90"].value == pytest.approx(held[1] - held[0])
    assert not worse["coverage_90"].marked
    assert [found.strata[name].n for name in found.strata] == [ROWS, URBAN, ROWS - URBAN]


def test_one_row_a_block_has_the_textbook_error():
    random = np.random.default_rng(0)
    values = random.standard_normal((400, 2)) * [1.0, 3.0]
    found = paired_estimates(values, np.arange(400), draws=5000)
    error = values.std(0, ddof=1) / np.sqrt(400)
    assert [one.error for one in found] == pytest.approx(error, rel=0.03)
    assert [one.value for one in found] == pytest.approx(values.mean(0))
    assert found[0].upper - found[0].value == pytest.approx(1.96593 * found[0].error, rel=1e-4)


def test_rows_that_err_alike_widen_the_error():
    effect = np.random.default_rng(1).standard_normal(40)
    values, blocks = np.repeat(effect, 25)[:, None], np.repeat(np.arange(40), 25)
    (found,) = paired_estimates(values, blocks, draws=5000)
    assert found.error == pytest.approx(effect.std(ddof=1) / np.sqrt(40), rel=0.03)
    (apart,) = paired_estimates(values, np.arange(1000), draws=2000)
    assert apart.error < found.error / 4


def test_intervals_hold_for_blocks_of_very_different_sizes():
    random = np.random.default_rng(2)
    sizes = np.repeat([2, 10, 25, 50, 100, 200], 4)
    blocks = np.repeat(np.arange(len(sizes)), sizes)
    held = 0
    for seed in range(300):
        effect = 0.3 * random.standard_normal(len(sizes))[blocks]
        values = (effect + random.standard_normal(len(blocks)))[:, None]
        (one,) = paired_estimates(values, blocks, draws=200, seed=seed)
        held += one.lower <= 0 <= one.upper
    assert 0.915 <= held / 300 <= 0.985  # two binomial deviations more or less are 2.5 points


def test_few_blocks_tell_no_error():
    values = np.arange(12.0)[:, None]
    (found,) = paired_estimates(values, np.arange(12) % 4)
    assert found == Estimate(5.5)
    # One block that holds nearly all rows counts as one, however many small ones there are.
    lopsided = np.concatenate([np.zeros(1000, np.int64), np.arange(1, 30)])
    (found,) = paired_estimates(np.ones((1029, 1)), lopsided)
    assert found.error is None


def test_marks_follow_holm():
    p = [0.011, 0.02, 0.0125, 0.9, None]
    family = [Estimate(1.0, p=value) for value in p]
    # 0.011 <= 0.05 / 4 and 0.0125 <= 0.05 / 3, 0.02 <= 0.05 / 2, but 0.9 > 0.05.
    assert [one.marked for one in mark(family)] == [True, True, True, False, False]
    # The smallest fails, and so do all after it, though 0.02 <= 0.05 / 2.
    stopped = mark([Estimate(1.0, p=value) for value in (0.013, 0.02, 0.5, 0.6)])
    assert not any(one.marked for one in stopped)


def test_a_run_against_itself_differs_by_nothing(pair):
    again = replace(pair[1], name="again")
    found = compare([pair[1], again]).splits["random"]
    for stratum in found.strata.values():
        for one in stratum.differences["again"].values():
            assert one == Estimate(0.0, 0.0, 0.0, 0.0, 1.0)
        assert stratum.figures["again"] == stratum.figures["worse"]


def test_rows_are_joined_by_key_and_not_by_order(pair):
    good, worse = pair
    shuffled = worse.predictions.sample(frac=1, random_state=1).reset_index(drop=True)
    assert compare([good, replace(worse, predictions=shuffled)]) == compare(pair)


def test_rows_beyond_the_common_ones_are_left_out_and_counted(pair):
    good, worse = pair
    part = replace(worse, predictions=worse.predictions.iloc[100:])
    kept = replace(good, predictions=good.predictions.iloc[:550])
    found = compare([kept, part])
    assert found.splits["random"].n == 450
    assert found.splits["random"].beyond == {"good": 100, "worse": 50}
    assert "450 test rows are common" in found.notes[0]
    assert "good 100, worse 50" in found.notes[0]
    same = [replace(one, predictions=one.predictions.iloc[100:550]) for one in pair]
    assert found.splits["random"].strata == compare(same).splits["random"].strata


def test_folds_are_kept_apart(pair):
    good, _ = pair
    fold = np.arange(ROWS) % 3
    folded = [replace(one, predictions=one.predictions.assign(fold=fold)) for one in pair]
    assert compare(folded).splits["random"].strata == compare(pair).splits["random"].strata
    # A run without folds has the rows of the first one.
    found = compare([good, folded[1]]).splits["random"]
    assert found.n == (fold == 0).sum()
    assert found.beyond["good"] == (fold > 0).sum()


def test_a_split_that_one_run_lacks_is_left_out(pair, errors):
    good, worse = pair
    more = pd.concat([good.predictions, predicted(world("blocks"), errors)], ignore_index=True)
    found = compare([replace(good, predictions=more), worse])
    assert list(found.splits) == ["random"]
    assert found.notes == ["The split blocks is left out, because it was not run in worse."]


def test_the_reference_comes_first(pair):
    found = compare(pair, reference="worse")
    assert [one.name for one in found.runs] == ["worse", "good"]
    turned = compare(pair).splits["random"].strata["rural"].differences["worse"]["crps"]
    one = found.splits["random"].strata["rural"].differences["good"]["crps"]
    assert (one.value, one.error) == pytest.approx((-turned.value, turned.error))


def test_the_gain_is_given_where_the_rows_are_all_rows(pair):
    good, worse = pair
    ours = compare(pair).splits["random"].strata["all"].figures["good"]["log_score"]
    baseline = {"random": {"all": replace(EMPTY, n=ROWS, nll=2.0)}}
    known = replace(good, run=structs.replace(good.run, baseline=baseline))
    found = compare([known, worse]).splits["random"].strata
    assert found["all"].figures["good"]["gain"] == pytest.approx(2.0 - ours)
    assert found["urban"].figures["good"]["gain"] is None
    fewer = replace(worse, predictions=worse.predictions.iloc[1:])
    found = compare([known, fewer]).splits["random"].strata
    assert found["all"].figures["good"]["gain"] is None


def test_settings_that_differ_are_told(pair):
    good, worse = pair
    asked = made_up_settings(r=64, conformal="strata")
    other = replace(worse, run=structs.replace(worse.run, settings=asked))
    found = compare([good, other])
    assert found.settings["r"] == {"good": "128", "worse": "64"}
    assert found.settings["conformal"]["worse"] == "strata"
    assert found.runs[1].conformal == "strata"
    assert compare(pair).settings == {}


def test_counts_are_compared_by_the_probability_of_the_count():
    random = np.random.default_rng(5)
    rows = world().assign(y=random.poisson(2.0, ROWS).astype(float))
    rates = {"right": 2.0, "high": 3.0}
    runs = [
        run_of(
            name,
            with_prediction(
                rows, predict_counts(np.full(ROWS, np.log(rate)), np.zeros(ROWS), np.zeros(ROWS))
            ),
            target="tests",
        )
        for name, rate in rates.items()
    ]
    found = compare(runs)
    one = found.splits["random"].strata["all"].differences["high"]["log_score"]
    # log Poisson(y; a) - log Poisson(y; b) = y log(a / b) - (a - b).
    expected = 1.0 - rows["y"].mean() * np.log(1.5)
    assert one.value == pytest.approx(expected, rel=1e-9)
    assert one.marked
    assert found.unit == "tests per tile and quarter"
    assert any("counts" in sentence for sentence in found.method)
    with pytest.raises(RequestError, match="counts in only one of right and normal"):
        compare([runs[0], run_of("normal", predicted(rows, np.ones(ROWS)), target="tests")])


TIERS = [f"p_tier_{name}" for name in ("below_5_1", "5_1", "7_1", "35_3")]


def of_tiers(name, rows, p, **changes):
    rows = rows.assign(**dict(zip(TIERS, np.transpose(p), strict=True)))
    found = run_of(name, rows, target="tier", model="class-dbk")
    return replace(found, run=structs.replace(found.run, **changes))


@pytest.fixture(scope="module")
def tiers():
    """A run that gives the measured tier 0.7, and one that gives it 0.4 in the country."""
    rows = world().assign(y=np.arange(ROWS) % 4.0)
    hit, rural = np.eye(4)[np.arange(ROWS) % 4], (rows["stratum"] == "rural").to_numpy()
    good, poor = (hit * (4 * p - 1) / 3 + (1 - p) / 3 for p in (0.7, 0.4))
    stored = {"random": {"all": ClassScores(ROWS, 1.0, -float(np.log(0.7)), 0.12, 0.3)}}
    return (
        of_tiers("good", rows, good, metrics=stored, baseline=stored),
        of_tiers("poor", rows, np.where(rural[:, None], poor, good)),
    )


def test_tiers_are_compared_by_the_scores_of_classes(tiers):
    found = compare(tiers)
    split = found.splits["random"].strata
    good, rural = split["all"].figures["good"], split["rural"].differences["poor"]
    assert good["brier"] == pytest.approx(0.3**2 + 3 * 0.1**2)
    assert (good["accuracy"], good["ece"]) == (1, pytest.approx(0.3))
    assert good["gain"] == pytest.approx(0)
    # Each of the other tiers has 0.1 or 0.2, so the means are over the four measured tiers.
    assert good["rps"] == pytest.approx(0.1**2 * (14 + 6 + 6 + 14) / 4)
    assert rural["rps"].value == pytest.approx((0.2**2 - 0.1**2) * 10)
    assert rural["log_score"].value == pytest.approx(np.log(0.7 / 0.4))
    assert rural["log_score"].marked
    assert rural["ece"].value == pytest.approx(0.6 - 0.3)
    assert (rural["accuracy"].value, rural["ece"].marked) == (0, False)
    assert split["urban"].differences["poor"]["ece"] == Estimate(0, 0, 0, 0, 1)
    for page in (comparison_markdown(found), comparison_html(found), comparison_latex(found)):
        assert "RPS" in page
        assert "CRPS" not in page
        assert "width" not in page.partition("</style>")[2]
    assert "shares of the classes in each quarter" in comparison_markdown(found)


def test_the_calibration_error_of_all_rows_is_not_the_mean_of_the_strata(tiers):
    """The errors of the two strata in one bin have opposite signs, so they cancel."""
    rows = tiers[0].predictions
    wrong = rows.assign(y=np.where(rows["stratum"] == "rural", (rows["y"] + 1) % 4, rows["y"]))
    runs = [replace(tiers[1], name=name, predictions=wrong) for name in ("one", "two")]
    strata = compare(runs).splits["random"].strata
    error = {name: found.figures["one"]["ece"] for name, found in strata.items()}
    assert error == pytest.approx({"all": 0.7 - 2 / 3, "urban": 0.3, "rural": 0.7})


def test_edited_probabilities_of_tiers_are_refused(tiers):
    good, poor = tiers
    with pytest.raises(DataError, match=r"poor: .* lacks the columns p_tier_5_1"):
        compare([good, replace(poor, predictions=poor.predictions.drop(columns=TIERS[1]))])
    with pytest.raises(DataError, match="with the sum 1 in each row"):
        compare([good, replace(poor, predictions=poor.predictions.assign(**{TIERS[1]: 0.9}))])


def test_an_infinite_score_has_no_mean(pair):
    good, worse = pair
    far = worse.predictions.copy()
    far.loc[0, "mean"] = 1e154
    with np.errstate(over="ignore"):
        found = compare([good, replace(worse, predictions=far)])
    stratum = found.splits["random"].strata["all"]
    assert stratum.figures["worse"]["log_score"] is None
    assert stratum.differences["worse"]["log_score"] == Estimate(None)
    assert stratum.differences["worse"]["absolute_error"].value > 1e150
    assert "measured values is 0" in found.notes[0]
    json.loads(report_json(found))
    assert "\N{EN DASH}" in comparison_html(found)


REFUSALS = {
    "other target": ({"target": "upload"}, r"one target, found download \(good\) and upload"),
    "other service": ({"service": "fixed"}, r"one service, found mobile \(good\) and fixed"),
    "other region": ({"region": "GU"}, r"one region, found PR \(good\) and GU \(worse\)"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_runs_of_something_else_are_refused(case, pair):
    changes, message = REFUSALS[case]
    with pytest.raises(RequestError, match=message):
        compare([pair[0], replace(pair[1], run=structs.replace(pair[1].run, **changes))])


@pytest.fixture(scope="module")
def by_provider():
    """A run by provider, with a row of each provider in every tile and quarter."""
    north = predicted(world(), np.full(ROWS, 0.1)).assign(provider="North")
    south = predicted(world(seed=1), np.full(ROWS, 0.2)).assign(provider="South")
    names = [{"name": name, "rows": ROWS, "tests": ROWS} for name in ("North", "South")]
    return run_of("both", pd.concat([north, south], ignore_index=True), providers=names)


def of_provider(name, provider, rows, **changes):
    """Return a run of the tests of one provider, or of all providers together."""
    return run_of(name, rows, settings={"points_provider": provider, **changes})


def test_the_rows_of_providers_are_kept_apart(by_provider):
    shuffled = by_provider.predictions.sample(frac=1, random_state=0)
    found = compare([by_provider, replace(by_provider, name="again", predictions=shuffled)])
    split = found.splits["random"]
    assert (split.n, split.beyond) == (2 * ROWS, {"both": 0, "again": 0})
    figures = split.strata["all"].figures["again"]
    assert figures["absolute_error"] == pytest.approx(0.15)
    assert split.strata["all"].differences["again"]["log_score"].value == 0


def test_a_run_of_one_provider_shares_the_rows_of_this_provider(by_provider):
    south = predicted(world(seed=1), np.full(ROWS, 0.3))
    split = compare([by_provider, of_provider("south", "South", south)]).splits["random"]
    assert (split.n, split.beyond) == (ROWS, {"both": ROWS, "south": 0})
    figures = split.strata["all"].figures
    assert figures["both"]["absolute_error"] == pytest.approx(0.2)
    assert figures["south"]["absolute_error"] == pytest.approx(0.3)


def test_the_rows_of_drives_are_kept_apart():
    drives = [
        predicted(world(seed=seed), np.full(ROWS, 0.1 * (seed + 1))).assign(drive=str(seed))
        for seed in (0, 1)
    ]
    log = run_of("log", pd.concat(drives, ignore_index=True))
    shuffled = replace(log, name="again", predictions=log.predictions.sample(frac=1))
    split = compare([log, shuffled]).splits["random"]
    assert (split.n, split.beyond) == (2 * ROWS, {"log": 0, "again": 0})
    assert split.strata["all"].figures["again"]["absolute_error"] == pytest.approx(0.15)


def test_runs_of_other_tests_of_a_file_are_refused(by_provider):
    """Also if some of their rows have the same measurements."""
    rows = predicted(world(), np.full(ROWS, 0.1))
    pooled = of_provider("pooled", None, rows)
    north, south = (of_provider(name, name, rows) for name in ("North", "South"))
    for runs, told in (
        ([by_provider, pooled], r"found both: North, South; pooled: all providers together"),
        ([north, pooled], r"found North: North; pooled: all providers together"),
        ([by_provider, north, south], r"a common provider, found .* South: South"),
    ):
        with pytest.raises(RequestError, match=told):
            compare(runs)
    fast = of_provider("fast", None, rows, points_technology="5G")
    with pytest.raises(RequestError, match=r"a common technology, found pooled: all; fast: 5G"):
        compare([pooled, fast])


def test_other_measurements_are_refused(pair):
    good, worse = pair
    other = worse.predictions.copy()
    other.loc[:2, ["y", "mean"]] += 0.01
    with pytest.raises(DataError, match=r"3 of 600 common rows .* different data"):
        compare([good, replace(worse, predictions=other)])


def test_no_common_row_is_refused_and_seeds_are_told(pair):
    good, worse = pair
    half = replace(good, predictions=good.predictions.iloc[:300])
    rest = replace(
        worse, predictions=worse.predictions.iloc[300:], run=structs.replace(worse.run, seed=4)
    )
    told = r"worse \(seed 4\).*different seeds have different test rows"
    with pytest.raises(RequestError, match=told):
        compare([half, rest])
    some = replace(rest, predictions=worse.predictions.iloc[250:])
    notes = compare([half, some]).notes
    assert "different seeds (good 0, worse 4)" in notes[0]


def test_edited_and_incomplete_runs_are_refused(pair):
    good, worse = pair
    twice = pd.concat([worse.predictions, worse.predictions.iloc[:1]])
    with pytest.raises(
        DataError, match=r"worse: expected each tile, quarter, provider and drive.*found 1"
    ):
        compare([good, replace(worse, predictions=twice)])
    short = worse.predictions.drop(columns="stratum")
    with pytest.raises(DataError, match=r"worse: .*lacks the columns stratum"):
        compare([good, replace(worse, predictions=short)])
    with pytest.raises(RequestError, match="two runs or more to compare, found 1"):
        compare([good])
    with pytest.raises(RequestError, match=r"as reference \(good, worse\), found 'best'"):
        compare(pair, reference="best")
    with pytest.raises(RequestError, match="different names"):
        compare([good, good])


def test_json_says_all(pair):
    found = compare(pair)
    assert json.loads(report_json(found)) == asdict(found)


@pytest.fixture(scope="module")
def hostile(pair):
    named = replace(pair[1], name=HOSTILE, run=structs.replace(pair[1].run, model=HOSTILE))
    return compare([pair[0], named, replace(pair[1], name="x" * 80)])


def test_latex_has_as_many_cells_as_columns(hostile):
    table = comparison_latex(hostile)
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", table)
    body = table.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 1 + 3 * 3
    for line in lines[1:]:
        assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
    assert table.count("{") - table.count(r"\{") == table.count("}") - table.count(r"\}")
    shown = (
        r"\textless{}b\textgreater{}\$x\_1\$ \& 50\% \textbackslash{}input\{a\}\textbar{}*"
        r"\textasciitilde{}\textasciicircum{}\#\textless{}/b\textgreater{}"
    )
    assert table.count(shown) == 3
    assert re.search(r"\$\+0\.\d{3}\^\{\*\}\$ \(0\.\d{3}\)", table)


def test_pages_show_hostile_names_as_text(hostile):
    page = comparison_html(hostile)
    assert "<b>" not in page
    assert "&lt;b&gt;$x_1$ &amp; 50% \\input{a}" in page
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    text = comparison_markdown(hostile)
    assert "<b>" not in text
    assert r"&lt;b&gt;$x\_1$ &amp; 50% \\input{a}\|\*\~^\#" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block


def test_the_figure_fills_what_is_beyond_chance(pair):
    import base64

    found = compare(pair)
    svg = base64.b64decode(difference_figure(found).partition("base64,")[2]).decode()
    assert ">worse</text>" in svg
    first, second, _ = (f"fill: {mark.colour}" for mark in MARKS)
    assert svg.count(second) > svg.count(first)
    assert "worse: log score +" in comparison_html(found)
