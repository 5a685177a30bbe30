"""Coverage by class: counts by hand, and a band that holds for all checks at once."""

import numpy as np
import pytest
from scipy import stats

from geogp.evaluation.metrics import binomial_interval
from geogp.evaluation.simultaneous_coverage import (
    CLASS_LEVELS,
    MIN_SPLIT_BLOCKS,
    blocks_of,
    class_reports,
    share_interval,
)
from geogp.evaluation.strata import value_groups


def _correlated(seed: int, blocks: int = 60, per_block: int = 40) -> tuple[np.ndarray, ...]:
    """Uniform transforms whose rows err alike in a block, and classes across the blocks."""
    random = np.random.default_rng(seed)
    number = np.repeat(np.arange(blocks), per_block)
    shared = 0.5 * random.standard_normal(blocks)[number]
    own = np.sqrt(0.75) * random.standard_normal(len(number))
    return stats.norm.cdf(shared + own), number, random.integers(0, 6, len(number)).astype(str)


def test_coverage_is_the_share_of_rows_in_the_central_interval():
    pit = np.array([0.5, 0.26, 0.24, 0.01, 0.99, 0.95, 0.6])
    kind = np.array(list("aaaabbb"))
    found = class_reports(pit, {"kind": value_groups(kind)}, np.arange(7))
    assert [(c.kind, c.name, c.n) for c in found] == [("kind", "a", 4), ("kind", "b", 3)]
    assert [check.level for check in found[0].checks] == list(CLASS_LEVELS)
    assert [check.observed for check in found[0].checks] == [2 / 4, 3 / 4, 3 / 4, 3 / 4]
    found_b = [check.observed for check in found[1].checks]
    np.testing.assert_allclose(found_b, [1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert [c.blocks for c in found] == [4, 3]


def test_the_band_holds_for_all_classes_at_once():
    """All 24 checks of a calibrated forecast are inside in 95 % of worlds; rows alone would not."""
    inside = []
    for seed in range(120):
        pit, blocks, kind = _correlated(seed)
        found = class_reports(pit, {"k": value_groups(kind)}, blocks, draws=300)
        inside.append(all(c.lower <= c.level <= c.upper for f in found for c in f.checks))
    # 0.95 ± 3 standard errors of 120 draws, and room for the bootstrap's own bias.
    assert 0.86 <= np.mean(inside) < 1


def test_bands_are_wider_where_rows_err_alike():
    pit, blocks, _ = _correlated(0)
    one = {"k": {"all": np.ones(len(pit), bool)}}
    together = class_reports(pit, one, blocks)[0].checks[0]
    alone = class_reports(pit, one, np.arange(len(pit)))[0].checks[0]
    assert together.upper - together.lower > 1.25 * (alone.upper - alone.lower)


def test_standard_errors_are_those_of_a_ratio_over_blocks():
    """Against the linearised variance of a ratio, Σ (hits - p rows)² / n² over the blocks."""
    pit, blocks, kind = _correlated(0, blocks=300)
    rows = kind == "3"
    check = class_reports(pit, {"k": {"3": rows}}, blocks, draws=4000)[0].checks[0]
    hits = np.abs(pit - 0.5) <= 0.25
    inside, size = (np.bincount(blocks[rows], w[rows], 300) for w in (hits, np.ones(len(pit))))
    p = inside.sum() / size.sum()
    expected = np.sqrt(np.sum((inside - p * size) ** 2)) / size.sum()
    assert check.error == pytest.approx(expected, rel=0.05)
    assert check.upper - check.observed > 1.9 * check.error


def test_outside_tells_of_the_band_and_off_of_the_tolerance_too():
    random = np.random.default_rng(0)
    pit = random.uniform(0, 1, 40_000)
    pit = stats.norm.cdf(1.06 * stats.norm.ppf(pit))
    check = class_reports(pit, {"k": {"all": np.ones(40_000, bool)}}, np.arange(40_000))[0].checks[
        0
    ]
    assert 0.01 < abs(check.observed - 0.5) < 0.03
    assert not check.lower <= 0.5 <= check.upper
    assert not check.off


def test_a_class_that_is_off_is_marked_and_the_others_are_not():
    random = np.random.default_rng(0)
    kind = np.repeat(["2020Q1", "2020Q2", "2020Q3"], 2000)
    pit = random.uniform(0, 1, 6000)
    narrow = kind == "2020Q2"
    pit[narrow] = stats.norm.cdf(1.5 * stats.norm.ppf(pit[narrow]))
    found = class_reports(pit, {"quarter": value_groups(kind)}, random.integers(0, 200, 6000))
    assert [[c.off for c in f.checks] for f in found] == [[False] * 4, [True] * 4, [False] * 4]


def test_a_class_without_a_miss_has_a_band_too():
    every = {"k": {"all": np.ones(50, bool)}}
    found = class_reports(np.full(50, 0.5), every, np.arange(50), least=50)
    check = found[0].checks[-1]
    assert check.observed == 1
    assert check.lower < 1
    assert not check.off


def test_a_class_in_one_block_is_not_judged_and_leaves_the_others_their_bands():
    """Its rows err alike: in a block of its own it is far off in many calibrated worlds."""
    far, marked = 0, 0
    for seed in range(40):
        pit, blocks, _ = _correlated(seed, per_block=120)
        groups = {"k": {"one block": blocks == 0, "others": blocks > 0}}
        one, others = class_reports(pit, groups, blocks, draws=100)
        far += abs(one.checks[0].observed - 0.5) > 0.1
        marked += any(check.off for check in (*one.checks, *others.checks))
        assert one.checks[0].lower is one.checks[0].upper is one.checks[0].error is None
        assert others.checks[0].lower < others.checks[0].upper
    assert far > 10
    assert marked <= 2


def test_classes_with_few_rows_are_shown_and_not_judged():
    pit = np.random.default_rng(0).uniform(0, 1, 300)
    rows = np.arange(300) < 99
    small, large = class_reports(pit, {"k": {"a": rows, "b": ~rows}}, np.arange(300) % 50)
    assert small.n == 99
    assert small.checks[0].lower is None
    assert large.checks[0].lower is not None


def test_splits_in_few_blocks_are_not_judged():
    pit = np.random.default_rng(0).uniform(0, 1, 2000)
    every = {"k": {"all": np.ones(2000, bool)}}
    few = class_reports(pit, every, np.arange(2000) % (MIN_SPLIT_BLOCKS - 1))
    enough = class_reports(pit, every, np.arange(2000) % MIN_SPLIT_BLOCKS)
    assert few[0].checks[0].lower is None
    assert enough[0].checks[0].lower is not None


def test_splits_whose_rows_lie_nearly_all_in_few_blocks_are_not_judged():
    """Of 40 blocks one has 60 % of the rows: (sum m)² / sum m² is below 3."""
    pit = np.random.default_rng(0).uniform(0, 1, 10_000)
    blocks = np.where(np.arange(10_000) < 6000, 0, np.arange(10_000) % 40)
    found = class_reports(pit, {"k": {"all": np.ones(10_000, bool)}}, blocks)[0]
    assert found.blocks == 40
    assert all(check.lower is None and not check.off for check in found.checks)


def test_uneven_blocks_are_seldom_marked():
    """Of worlds with 200 blocks of Pareto sizes 5 % have a mark; bands of 199 freedom: 36 %."""
    marked, judged = 0, 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        size = 1 + random.pareto(1.0, 200)
        size = np.maximum(1, np.round(6000 * size / size.sum())).astype(int)
        block = np.repeat(np.arange(200), size)
        own = random.standard_normal(len(block))
        pit = stats.norm.cdf(np.sqrt(0.3) * random.standard_normal(200)[block] + np.sqrt(0.7) * own)
        county = (block // 5).astype(str)
        kinds = {
            "all": {"all": np.ones(len(block), bool)},
            "county": value_groups(county),
            "tests": value_groups(random.integers(0, 4, len(block)).astype(str)),
        }
        found = class_reports(pit, kinds, block, draws=100)
        judged += found[0].checks[0].lower is not None
        marked += any(check.off for one in found for check in one.checks)
    assert judged > 70
    assert marked <= 100 * (0.05 + 3 * np.sqrt(0.05 * 0.95 / 100))


def test_few_blocks_of_independent_rows_have_the_exact_binomial_band():
    """Without correlation the band is Clopper and Pearson's, its risk shared by number."""
    n, few, levels = 40_000, 400, (0.95,)
    pit = np.linspace(0.5 / n, 1 - 0.5 / n, n)
    random = np.random.default_rng(3)
    pit = random.permutation(pit)
    blocks = np.where(np.arange(n) < few, np.arange(n) % 4, random.permutation(n) % 4000)
    groups = {"k": {"few": np.arange(n) < few, "many": np.arange(n) >= few}}
    found = class_reports(pit, groups, blocks, levels=levels)[0].checks[0]
    hits = round(found.observed * few)
    exact = stats.binomtest(hits, few).proportion_ci(1 - 0.05 / 2, method="exact")
    # The correlation is estimated, so that it is small and not 0.
    assert found.lower == pytest.approx(exact.low, abs=0.01)
    assert found.upper == pytest.approx(exact.high, abs=0.01)


def test_bands_in_few_blocks_are_wider_where_rows_err_alike():
    pit, blocks, _ = _correlated(1, per_block=100)
    few = blocks < 5
    groups = {"k": {"few": few, "others": ~few}}
    together = class_reports(pit, groups, blocks)[0].checks[0]
    shuffled = np.random.default_rng(0).permutation(len(pit))
    apart = class_reports(pit[shuffled], groups, blocks)[0].checks[0]
    assert together.upper - together.lower > 1.3 * (apart.upper - apart.lower)


def test_blocks_are_cells_of_a_tenth_of_a_degree():
    longitude = np.array([-66.05, -66.01, -65.99, -66.05])
    latitude = np.array([18.11, 18.19, 18.11, 18.21])
    found = blocks_of(longitude, latitude)
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_an_interval_of_drives_counts_drives_not_rows():
    """Drives whose rows are all inside or all outside are as many rows as drives."""
    random = np.random.default_rng(0)
    held, inside = 0, np.array([True] * 36 + [False] * 4)
    alone = share_interval(inside, None)
    assert alone == binomial_interval(36, 40)
    low, high = share_interval(np.repeat(inside, 25), np.repeat(np.arange(40), 25))
    assert low == pytest.approx(alone.lower, abs=0.03)
    assert high == pytest.approx(alone.upper, abs=0.03)
    rows = binomial_interval(900, 1000)
    assert high - low > 4 * (rows.upper - rows.lower)
    assert share_interval(inside, np.zeros(40)) == (0, 1)
    for _ in range(300):
        error = np.repeat(random.standard_normal(30), 20) + 0.5 * random.standard_normal(600)
        low, high = share_interval(abs(error) < 1.96 * 1.25**0.5, np.repeat(np.arange(30), 20))
        held += low <= 0.95 <= high
    assert held / 300 > 0.9
