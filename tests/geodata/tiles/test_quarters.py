"""Quarters: labels, arithmetic, requests and what is refused."""

import pytest

from geogp.errors import RequestError
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index, quarter_label


def _labels(indices) -> list[str]:
    return [quarter_label(index) for index in indices]


def test_index_counts_quarters():
    assert quarter_index("2019Q1") == 2019 * 4
    assert quarter_index("2024Q1") - quarter_index("2023Q4") == 1
    assert quarter_index(" 2019q3 ") == quarter_index("2019Q3")


def test_label_undoes_index():
    labels = [f"{year}Q{quarter}" for year in range(2019, 2030) for quarter in (1, 2, 3, 4)]
    indices = [quarter_index(label) for label in labels]
    assert _labels(indices) == labels
    assert indices == list(range(indices[0], indices[0] + len(labels)))


def test_single_quarters_are_named_and_ranges_are_not():
    request = parse_quarters("2021Q4, 2019Q3..2020Q2,2019Q4")
    assert _labels(request.named) == ["2021Q4", "2019Q4"]
    assert _labels(request.ranged) == ["2019Q3", "2019Q4", "2020Q1", "2020Q2"]
    assert _labels(request.all) == ["2019Q3", "2019Q4", "2020Q1", "2020Q2", "2021Q4"]


def test_a_range_may_hold_one_quarter():
    request = parse_quarters("2022Q2..2022Q2")
    assert (request.named, _labels(request.ranged)) == ((), ["2022Q2"])


def test_ranges_may_have_spaces():
    assert parse_quarters("2019Q1 .. 2019Q3") == parse_quarters("2019Q1..2019Q3")


@pytest.mark.parametrize(
    "text",
    [
        *("", "2019", "2019Q0", "2019Q5", "19Q1", "Q12019", "2019-Q1", "2019Q11"),
        *("2019Q1..", "..2019Q1", "2019Q1,", "2019Q1...2019Q3", "2019Q1-2019Q3"),
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(RequestError, match="expected a quarter like 2019Q1, found"):
        parse_quarters(text)


def test_a_range_backwards_is_refused():
    with pytest.raises(RequestError, match=r"'2020Q1\.\.2019Q4' ends before it starts"):
        parse_quarters("2019Q1,2020Q1..2019Q4")
