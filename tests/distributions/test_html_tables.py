"""What notebooks show of predictions."""

import re

import numpy as np
import pytest

from geogp.distributions.class_prediction import ClassPrediction
from geogp.distributions.count_prediction import predict_counts
from geogp.distributions.html_tables import html_table
from geogp.distributions.prediction import Prediction


def rows_of(html):
    """The cells of each row of a table, the head first."""
    lines = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in lines]


def test_texts_are_escaped():
    html = html_table("<script>", {"a & b": ["<img src=x>", 1.23456]})
    assert "<script>" not in html
    assert rows_of(html) == [["a &amp; b"], ["&lt;img src=x&gt;"], ["1.235"]]


@pytest.mark.parametrize("n", [0, 3, 5, 1207])
def test_the_first_rows_of_a_law(n):
    law = Prediction.of_moments(np.arange(n, dtype=float), np.full(n, 4.0))
    html = law._repr_html_()
    head, *rows = rows_of(html)
    assert head == ["median", "lower 95 %", "upper 95 %", "sd"]
    assert f"Prediction at {n:,} points" in html
    assert len(rows) == min(n, 5)
    assert ("... and 1,202 more rows" in html) == (n == 1207)
    if rows:
        assert rows[2] == ["2", "-1.92", "5.92", "2"]


def test_the_first_counts():
    law = predict_counts(np.log([2.0, 50.0]), np.zeros(2), np.zeros(2))
    html = law._repr_html_()
    assert "CountPrediction at 2 points" in html
    assert rows_of(html)[2] == ["50", "37", "64", f"{np.sqrt(50):.4g}"]


def test_the_first_classes():
    mean = np.array([[[3.0, 0.0], [0.0, 0.0]]])
    html = ClassPrediction(mean, np.zeros((1, 2, 2)), np.array([np.inf]))._repr_html_()
    head, first, second = rows_of(html)
    assert head == ["class", "entropy", "p of class 0", "p of class 1"]
    assert first[2:] == ["0.9526", "0.04743"]
    assert second[1:] == ["0.6931", "0.5", "0.5"]
