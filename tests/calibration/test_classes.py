"""Coverage by class: counts by hand, and a band that holds for all checks at once."""

import numpy as np
import pytest
from scipy import stats

from geogp.calibration.classes import (
    CLASS_LEVELS,
    blocks_of,
    class_reports,
    merged,
    tests_groups,
    value_groups,
)
from geogp.errors import DataError

# pytest would take the function for a test.
groups_of_tests = tests_groups
del tests_groups


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
    assert [check.observed for check in found[0].checks] == [2 / 4, 3 / 4, 3 / 4]
    np.testing.assert_allclose([check.observed for check in found[1].checks], [1 / 3, 1 / 3, 2 / 3])


def test_the_band_holds_for_all_classes_at_once():
    """All 18 checks of a calibrated forecast are inside in 95 % of worlds; rows alone would not."""
    inside = []
    for seed in range(120):
        pit, blocks, kind = _correlated(seed)
        found = class_reports(pit, {"k": value_groups(kind)}, blocks, draws=300, seed=seed)
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
    assert check.outside
    assert not check.off


def test_a_class_that_is_off_is_marked_and_the_others_are_not():
    random = np.random.default_rng(0)
    kind = np.repeat(["2020Q1", "2020Q2", "2020Q3"], 2000)
    pit = random.uniform(0, 1, 6000)
    narrow = kind == "2020Q2"
    pit[narrow] = stats.norm.cdf(1.5 * stats.norm.ppf(pit[narrow]))
    found = class_reports(pit, {"quarter": value_groups(kind)}, random.integers(0, 200, 6000))
    assert [[c.off for c in f.checks] for f in found] == [[False] * 3, [True] * 3, [False] * 3]


def test_a_class_without_a_miss_has_a_band_too():
    found = class_reports(np.full(50, 0.5), {"k": {"all": np.ones(50, bool)}}, np.arange(50))
    check = found[0].checks[2]
    assert check.observed == 1
    assert check.lower < 1
    assert not check.off


def test_a_class_in_few_blocks_is_not_judged_and_leaves_the_others_their_bands():
    """Its rows err alike: in a block of its own it is far off in many calibrated worlds."""
    far, marked = 0, 0
    for seed in range(40):
        pit, blocks, _ = _correlated(seed)
        groups = {"k": {"one block": blocks == 0, "others": blocks > 0}}
        one, others = class_reports(pit, groups, blocks, draws=100)
        far += abs(one.checks[0].observed - 0.5) > 0.1
        marked += any(check.off for check in (*one.checks, *others.checks))
        assert one.checks[0].lower is one.checks[0].upper is one.checks[0].error is None
        assert not one.checks[0].outside
        assert others.checks[0].lower < others.checks[0].upper
    assert far > 10
    assert marked <= 2


def test_classes_of_tests_hold_every_count_once():
    tests = np.arange(1, 60)
    groups = groups_of_tests(tests)
    assert list(groups) == ["1", "2", "3 to 4", "5 to 9", "10 to 19", "20 or more"]
    np.testing.assert_array_equal(np.sum(list(groups.values()), 0), np.ones(59))
    assert tests[groups["5 to 9"]].tolist() == [5, 6, 7, 8, 9]


def test_small_classes_are_joined_to_the_next():
    number = np.repeat(["a", "b", "c", "d", "e"], [10, 50, 5, 40, 3])
    found = merged(value_groups(number), least=30)
    assert {name: int(rows.sum()) for name, rows in found.items()} == {"a … b": 60, "c … e": 48}
    few = merged(value_groups(number[:10]), least=30)
    assert list(few) == ["a"]


def test_blocks_are_cells_of_a_tenth_of_a_degree():
    longitude = np.array([-66.05, -66.01, -65.99, -66.05])
    latitude = np.array([18.11, 18.19, 18.11, 18.21])
    found = blocks_of(longitude, latitude)
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_a_class_without_rows_is_refused():
    with pytest.raises(DataError, match="found none in b"):
        class_reports(np.array([0.5]), {"k": {"b": np.array([False])}}, np.array([0]))


def test_transforms_that_are_no_probabilities_are_refused():
    with pytest.raises(DataError, match="expected probabilities from 0 to 1"):
        class_reports(np.array([1.5]), {"k": {"b": np.array([True])}}, np.array([0]))
