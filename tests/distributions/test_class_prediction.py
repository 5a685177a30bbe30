"""Probabilities of classes, compared with integrals over the logits."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

from geogp.distributions import class_prediction
from geogp.distributions.class_prediction import ClassPrediction
from geogp.distributions.quantity import Quantity
from geogp.errors import DataError

RNG = np.random.default_rng(0)
MEAN, VARIANCE = 2 * RNG.standard_normal((6, 4)), RNG.uniform(0.1, 4, (6, 4))


def _law(mean=MEAN, variance=VARIANCE, df=np.inf) -> ClassPrediction:
    return ClassPrediction(mean[None], variance[None], np.array([df]))


@pytest.mark.parametrize("df", [3.0, 12.0, np.inf])
def test_two_classes_are_an_integral_over_their_difference(df):
    """The difference of two logits is normal, or Student-t because the scale is common."""
    law = _law(MEAN[:, :2], VARIANCE[:, :2], df)
    unit = stats.norm if df == np.inf else stats.t(df)
    for row in range(6):
        middle, sd = MEAN[row, 1] - MEAN[row, 0], np.sqrt(VARIANCE[row, :2].sum())

        def share(z, middle=middle, sd=sd):
            return special.expit(middle + sd * z) * unit.pdf(z)

        expected = integrate.quad(share, -60, 60, limit=400, points=[-3, 0, 3])[0]
        assert law.probabilities[row, 1] == pytest.approx(expected, abs=0.01 if df == 3 else 4e-3)


def test_more_draws_come_nearer_to_random_draws_without_end():
    z = np.random.default_rng(1).standard_normal((400_000, 1, 4))
    p = special.softmax(MEAN[:1] + np.sqrt(VARIANCE[:1]) * z, axis=2).mean(0)
    few, many = (replace(_law(), draws=n).probabilities[:1] for n in (16, 4096))
    assert np.abs(many - p).max() < 2e-3
    assert np.abs(many - p).max() < np.abs(few - p).max()


def test_known_logits_give_their_softmax_and_no_information():
    law = _law(variance=np.zeros((6, 4)))
    assert law.probabilities == pytest.approx(special.softmax(MEAN, axis=1), abs=1e-15)
    assert law.mutual_information == pytest.approx(0, abs=1e-12)
    assert (law.logit_variance == 0).all()


def test_a_point_does_not_depend_on_the_others(monkeypatch):
    whole = _law().log_probabilities
    assert (_law(MEAN[2:3], VARIANCE[2:3]).log_probabilities == whole[2:3]).all()
    monkeypatch.setattr(class_prediction, "_ENTRIES", 2 * 4 * class_prediction.DRAWS)
    assert (_law().log_probabilities == whole).all()


def test_a_mixture_averages_probabilities_and_separates_its_information():
    one, other = _law(variance=np.zeros((6, 4))), _law(MEAN[::-1], np.zeros((6, 4)))
    both = ClassPrediction.mixture([one, other])
    p = (one.probabilities + other.probabilities) / 2
    assert both.probabilities == pytest.approx(p)
    entropy = stats.entropy(p, axis=1)
    own = (one.entropy + other.entropy) / 2
    assert both.entropy == pytest.approx(entropy)
    assert both.mutual_information == pytest.approx(entropy - own)
    assert len(both) == 6


def test_the_variance_of_a_logit_counts_spread_within_and_between_models():
    shifted = _law(MEAN + 5)  # the softmax ignores a shift of all logits
    both = ClassPrediction.mixture([_law(), shifted])
    best = VARIANCE[np.arange(6), _law().codes]
    assert both.logit_variance == pytest.approx(best)
    student = _law(df=6.0)
    assert student.logit_variance == pytest.approx(1.5 * VARIANCE[np.arange(6), student.codes])
    assert np.isinf(_law(df=2.0).logit_variance).all()
    apart = ClassPrediction.mixture([_law(np.eye(4), 0 * MEAN[:4]), _law(-np.eye(4), 0 * MEAN[:4])])
    own = np.eye(4) - 0.25
    assert apart.logit_variance == pytest.approx(own[np.arange(4), apart.codes] ** 2)


def test_the_log_score_stays_finite_far_away():
    law = _law(np.array([[0.0, 2000.0]]), np.zeros((1, 2)))
    assert law.log_score([0]) == pytest.approx([2000.0])


@pytest.mark.parametrize("codes", [[0, 1], [4] * 6, [-1] * 6, [0.5] * 6])
def test_what_is_no_class_is_refused(codes):
    with pytest.raises(DataError, match="6 numbers of classes from 0 to 3"):
        _law().log_score(codes)


def test_the_variables_of_a_map_follow_from_the_probabilities():
    classes = ("below 5/1", "5/1", "7/1", "35/3")
    quantity = Quantity("tier", "tier", "1", "tier", "lower", counted=False, classes=classes)
    law = _law()
    p, found = law.probabilities, law.variables(quantity, 0.95)
    for code, tag in enumerate(("below_5_1", "5_1", "7_1", "35_3")):
        assert found[f"p_tier_{tag}"][0] == pytest.approx(p[:, code])
        if code:
            assert found[f"p_at_least_{tag}"][0] == pytest.approx(p[:, code:].sum(1))
    assert "p_at_least_below_5_1" not in found
    assert found["p_most_probable"][0] == pytest.approx(p.max(1))
    assert found["entropy"][0] == pytest.approx(stats.entropy(p, axis=1))
    assert law.flags(quantity)["tier"][0] == pytest.approx(p.argmax(1))


def test_a_part_of_a_prediction_is_the_prediction_of_these_points():
    law, rows = _law(df=5.0), np.array([4, 1])
    assert (law[rows].probabilities == law.probabilities[rows]).all()
    assert (law[2:].entropy == law.entropy[2:]).all()
    assert (len(law[rows]), law[rows].classes) == (2, 4)
    assert law.pooled(16) is law
